"""What in a long question is the question. Agents hand over what they have: instructions, a page, half a conversation,
and at its end what the person wants to know. The rest would drown it: every word of it counts, and one vector for all
of it is near nothing in particular. It is no noise either: "what should I wear?" is about the wedding named before.
"""

from __future__ import annotations

import re

WHOLE = 150  # characters up to which a question is taken whole: a person's, with a sentence about why
MOST = 280  # characters of a longer one that are asked
CONTEXT = 600  # characters before the end of a long one that may still say what it is about
WEIGHT = 0.5  # of the context's vector beside the question's: more drowns the question again
_ENOUGH = 60  # characters that say what is wanted; "Thanks!" does not
_A_QUESTION = 12  # characters of one that ends with a question mark
_END = re.compile(r"(?<=[.!?…。！？])[\"'”’»)\]]*\s+|(?<=[。！？])|\n+")
_ASKS = re.compile(r"[?？؟][\"'”’»)\]\s]*$")


def focus(text: str) -> tuple[str, str]:
    """(what is asked, the context to read it in). A short text is asked whole and has no context: "". So is one that
    ends in nothing but signs.

    Of a long one the end is asked: its last sentence, with as many before as it takes to say something, but not over a
    blank line, behind which instructions end."""
    if len(text) <= WHOLE:
        return text, ""
    text, asked = text.strip(), ""
    for paragraph in reversed(re.split(r"\n\s*\n", text)):
        for sentence in reversed([each for each in _END.split(paragraph) if each and any(map(str.isalnum, each))]):
            if asked and len(sentence) + len(asked) > MOST:
                break
            asked = f"{sentence.strip()} {asked}".strip()
            if _says_enough(asked):
                break
        if len(asked) >= _A_QUESTION:
            break
    asked = asked[-MOST:]
    return (asked, text[-CONTEXT:]) if any(map(str.isalnum, asked)) else (text, "")


def _says_enough(asked: str) -> bool:
    return len(asked) >= (_A_QUESTION if _ASKS.search(asked) else _ENOUGH)
