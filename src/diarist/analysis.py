"""Text to index terms, for every script: what a search by words compares. Notes and questions go the same way.

Not here: what a text may contain (checked where it comes in), weights and ranking (`recall.py`), and meaning.
No language is guessed, because notes are too short for it: every rule depends on the script of a character only.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.resources import files
from itertools import accumulate, pairwise
from threading import Lock
from typing import cast

LIGHT: frozenset[str]
"""Terms that carry grammar, not content ("the", "quand", "どこ"), as `terms` gives them. Made on first use."""

# The Unicode script of a character, by ranges of letters and marks: (script, first, last).
# Source: https://www.unicode.org/Public/UCD/latest/ucd/Scripts.txt, gaps closed where nothing else lives in them.
_SCRIPTS = (
    ("latin", "a", "z"), ("latin", "\u00c0", "\u02af"), ("latin", "\u1d00", "\u1dbf"), ("latin", "\u1e00", "\u1eff"),
    ("latin", "\u2c60", "\u2c7f"), ("latin", "\ua722", "\ua7ff"), ("latin", "\uab30", "\uab6f"),
    ("greek", "\u0370", "\u03ff"), ("greek", "\u1f00", "\u1fff"),
    ("cyrillic", "\u0400", "\u052f"), ("cyrillic", "\u1c80", "\u1c8f"), ("cyrillic", "\ua640", "\ua69f"),
    ("hebrew", "\u0590", "\u05ff"),
    ("arabic", "\u0600", "\u06ff"), ("arabic", "\u0750", "\u077f"), ("arabic", "\u0870", "\u08ff"),
    ("devanagari", "\u0900", "\u097f"), ("devanagari", "\ua8e0", "\ua8ff"),
    # Thai and Lao, Myanmar, Khmer
    ("southeast", "\u0e00", "\u0e3e"), ("southeast", "\u0e40", "\u0eff"), ("southeast", "\u1000", "\u109f"),
    ("southeast", "\ua9e0", "\ua9ff"), ("southeast", "\uaa60", "\uaa7f"), ("southeast", "\u1780", "\u17ff"),
    ("hangul", "\u1100", "\u11ff"), ("hangul", "\u3131", "\u318e"), ("hangul", "\uac00", "\ud7ff"),
    ("hiragana", "\u3041", "\u309f"), ("hiragana", "\U0001b001", "\U0001b11f"),
    ("katakana", "\u30a1", "\u30fa"), ("katakana", "\u30fd", "\u30ff"), ("katakana", "\u31f0", "\u31ff"),
    ("han", "\u2e80", "\u2fdf"), ("han", "\u3005", "\u3007"), ("han", "\u3021", "\u3029"), ("han", "\u3038", "\u303b"),
    ("han", "\u3400", "\u4dbf"), ("han", "\u4e00", "\u9fff"), ("han", "\uf900", "\ufaff"),
    ("han", "\U00020000", "\U0003ffff"),
    ("symbol", "\u20a0", "\u20cf"), ("symbol", "\u2190", "\u2bff"), ("symbol", "\U0001f000", "\U0001faff"),
)  # fmt: skip


def _ranges(*scripts: str) -> str:
    return "".join(f"{first}-{last}" for script, first, last in _SCRIPTS if script in scripts)


_UNSPACED = _ranges("han", "hiragana", "katakana", "southeast") + "ー"
_SYMBOL = _ranges("symbol")
_CAMEL, _ZWNJ, _ZWJ = "\x1a", "\u200c", "\u200d"  # the first is ours: it marks the border in "camelCase"
_JOINT = rf"(?:://|/\?|[-'_.@/:+&#%=?~\\{_CAMEL}{_ZWNJ}]|,(?=[0-9]))"
_LETTER = rf"[^\s\x00-/:-@\[-`{{-\x7f{_ZWNJ}{_ZWJ}{_UNSPACED}{_ranges('hangul', 'symbol')}]"
# In all of these, what repeats and what may follow it have no character in common, or the repeat is bounded,
# so that no text takes more than linear time.
_TOKEN = re.compile(
    rf"(?P<code>{_LETTER}+(?:{_JOINT}{_LETTER}+)*(?:\+\+|#)?)|(?P<han>[{_ranges('han')}]+)"
    rf"|(?P<kana>[{_ranges('hiragana')}ー]+|[{_ranges('katakana')}ー]+)"
    rf"|(?P<southeast>[{_ranges('southeast')}]+)|(?P<hangul>[{_ranges('hangul')}]+)"
    rf"|(?P<symbol>[\U0001f1e6-\U0001f1ff]{{2}}|[{_SYMBOL}](?:{_ZWJ}[{_SYMBOL}]){{0,15}})"
)
_PART = re.compile(f"{_LETTER}+")
_SPACED = ("latin", "greek", "cyrillic", "hebrew", "arabic", "devanagari")
_WORD = re.compile("|".join(f"[{_ranges(script)}0-9]+" for script in _SPACED) + f"|[^{_ranges(*_SPACED)}]+")
_UNIT = re.compile(r"([0-9]+)([^0-9]+)([0-9]*)|([^0-9]+)([0-9]+)")  # 4pm, 16h30, iphone15
_THOUSANDS = re.compile(r"[0-9]{1,3}(?:[.,'][0-9]{3})+")
_ELISION = re.compile(r"(?<![^'])(?:[cdjlmnst]|qu)'|'(?:s|ll|ve|re|d|m)(?![^'])")  # l'adresse, customer's
_PHONE = re.compile(r"(?<![\w.,])[0-9](?:[ ().-]{0,2}[0-9]){6,14}(?!\w)")
_CLUSTER = re.compile(  # a character of Thai, Lao, Myanmar or Khmer with the signs above and below it
    r".[\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u17b4-\u17d3]{0,8}"
)
_CAMEL_BORDER = re.compile("(?<=[a-z])(?=[A-Z](?![\u0300-\u036f]))")
_STRAY_JOINER = re.compile(f"(?<![{_SYMBOL}]){_ZWJ}|{_ZWJ}(?![{_SYMBOL}])")
_LONG_MARKS = re.compile("(?:[^\\w\\s\x00-\x7f]|[\uff9e\uff9f]){31,}")
_KOREAN_PARTICLES = frozenset("은는이가을를의에도와과로만")
_LONGEST = 256  # characters of a term


def fold(text: str) -> str:
    """The form in which two texts are "the same": NFKC, case folded, white space runs to one space. Linear time."""
    return " ".join(_casefold(text).split())


def _casefold(text: str) -> str:
    if text.isascii():
        return text.lower()
    # Python sorts a run of combining marks in quadratic time; UAX #15 (stream-safe text) caps runs at 30.
    text = _LONG_MARKS.sub(_stream_safe, text)
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


def _stream_safe(run: re.Match[str]) -> str:
    out: list[str] = []
    marks = 0
    for char in run[0]:
        marks = marks + 1 if unicodedata.combining(char) or char in "\uff9e\uff9f" else 0
        if marks > 30:
            out.append("\u034f")
            marks = 1
        out.append(char)
    return "".join(out)


# Accents, stress, niqqud, tashkeel, nukta: marks that a reader can do without. Vowel signs are not among them.
_DROPPED = re.compile(
    "[\u0300-\u036f\u0483-\u0489\u0591-\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06ed\u0711\u0730-\u074a"
    "\u08ca-\u08ff\u093c\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f\U000e0100-\U000e01ef]"
)
# Letters that readers take for one another. й, ї and ў stay: to a reader of Cyrillic they are other letters.
_ALIKE = str.maketrans("øłđħŧðŋıſёѐѝأإآٱىیکة\u0901’‘ʼ‐–−־⁄٫٬", "oldhtdnisееиااااييكه\u0902'''----/.,") | str.maketrans(
    {"æ": "ae", "œ": "oe", "þ": "th", "ـ": ""}
)


class _Plain(dict[int, str]):
    """What each character becomes in the index, worked out when it is first met: one entry each at most."""

    def __missing__(self, code: int) -> str:
        self[code] = plain = self._plain(chr(code))
        return plain

    @staticmethod
    def _plain(char: str) -> str:
        category = unicodedata.category(char)
        if ord(char) in _ALIKE:
            return char.translate(_ALIKE)
        if char.isascii() or char in (_ZWNJ, _ZWJ):
            return char
        if category == "Nd":
            return str(unicodedata.decimal(char))
        if category == "Cf" or _DROPPED.match(char) or "\U0001f3fb" <= char <= "\U0001f3ff":  # the last: skin tones
            return ""
        if category[0] in "PZ" or category in ("Cc", "Sk"):
            return " "
        if category[0] == "S":
            return char if re.match(f"[{_SYMBOL}]", char) else f" {char} "
        if "\u00c0" <= char <= "\u03ff" or "\u1e00" <= char <= "\u1fff":
            return unicodedata.normalize("NFD", char)[0]
        return char


_PLAIN = _Plain()


def plain(text: str) -> str:
    """The text without case, accents and signs: "Émile's café" is "emile's cafe". Linear time."""
    folded = _casefold(text)
    return folded if folded.isascii() else folded.translate(_PLAIN)


_AROUND = "\"'.,:;!?()¿¡«»“”"


def terms(text: str) -> list[str]:
    """Index terms in text order, repetitions kept: made alike for notes and questions, so that they meet.

    A term holds no white space and at most 256 characters. A text that is not blank gives at least one.
    Time is linear in the text.
    """
    plain = folded = _casefold(_CAMEL_BORDER.sub(_CAMEL, text))
    if not plain.isascii():
        plain = plain.translate(_PLAIN)
        if _ZWJ in plain:
            plain = _STRAY_JOINER.sub("", plain)
    found: list[str] = []
    for chunk in plain.split():
        chunk = chunk.strip(_AROUND)  # so that more of them are in the cache
        found += _chunk(chunk) if len(chunk) <= 32 else _analyse(chunk)
    # A telephone number is written in groups, and seldom in the same ones twice: its digits in one are a term too.
    found += (re.sub("[^0-9]", "", number) for number in _PHONE.findall(plain) if not number.isdecimal())
    return found or [char for char in folded if not char.isspace()]


def words_of(text: str) -> dict[str, str]:
    """Each term with the word of the text that it is of, for people: "hous" is no word. Where a word has several terms,
    as in a script without spaces, each stands for itself."""
    found: dict[str, str] = {}
    for chunk in plain(text).split():
        chunk = chunk.strip(_AROUND)
        if len(chunk) <= 32 and len(made := _chunk(chunk)) == 1:
            found.setdefault(made[0], chunk)
    return found


@lru_cache(maxsize=1 << 16)
def _chunk(chunk: str) -> tuple[str, ...]:
    return tuple(_analyse(chunk))


def _analyse(chunk: str) -> Iterator[str]:
    if chunk.isascii() and chunk.isalpha():
        yield _stem(chunk[:_LONGEST])
        return
    for token in _TOKEN.finditer(chunk):
        run = token[0]
        match token.lastgroup:
            case "code":
                yield from _code(run)
            case "han":
                yield from _grams(run)
                if len(run) > 1:
                    yield from run
            case "kana":
                yield from _grams(run)
            case "hangul":
                yield from _grams(run)
                if run[1:] in _KOREAN_PARTICLES:  # "물을": the word is "물"
                    yield run[0]
                elif 2 < len(run) <= 64:
                    yield run
            case "southeast":
                yield from _grams(_CLUSTER.findall(run))
            case _:
                yield run


def _grams(units: str | list[str]) -> Iterator[str]:
    if len(units) == 1:
        yield units[0]
    for first, second in pairwise(units):
        yield first + second


def _code(code: str) -> Iterator[str]:
    """A word, or several in one (compound, name, address, number, code): as a whole and in parts."""
    if code[-1] in "+#":
        if len(code) <= 4:  # c++, c#
            yield code
        code = code.rstrip("+#")
    if "'" in code:
        code = _ELISION.sub("", code.replace("n't", "nt"))
    parts = _PART.findall(code)
    if len(parts) > 1 and len(code) <= _LONGEST:
        joined = "".join(parts)
        if _THOUSANDS.fullmatch(code):
            yield from (code, joined)
            return
        # "e-mail" is also "email" and "getName" "getname"; a code, an address or a time stays as it is written.
        soft = not any(map(str.isdigit, joined)) and {*code} <= {*joined, "-", "'", _CAMEL, _ZWNJ}
        yield _stem(joined) if soft else code.replace(_CAMEL, "")
    for part in parts:
        for word in [part] if part.isascii() else _WORD.findall(part):
            yield _stem(word[:_LONGEST])
            if not word.isalpha() and (pieces := _UNIT.fullmatch(word[:_LONGEST])):
                yield from (_stem(piece) for piece in pieces.groups() if piece)


_STEMMERS = {"latin": "english", "cyrillic": "russian", "greek": "greek", "arabic": "arabic", "devanagari": "hindi"}
# What the English stemmer leaves of the endings of fr, es, pt, it, de, nl, pl and tr, while five letters stay.
_ENDING = re.compile(r"(?<=.{5})(?:ait|a[dt]o|ido|a[bv]a|ando|[aei]r|l[ae]r|en|inn?|ow|[aeiou]){1,2}\Z")
_lock = Lock()  # a stemmer keeps the word that it is working on


@lru_cache(maxsize=1 << 16)
def _stem(word: str) -> str:
    if 2 < len(word) <= 40 and (word.isalpha() or not word.isascii()):
        for script, first, last in _SCRIPTS:
            if first <= word[0] <= last:
                if script in _STEMMERS:
                    with _lock:
                        word = _stemmer(_STEMMERS[script])(word) or word
                return _ENDING.sub("", word) if script == "latin" else word
    return word


@lru_cache
def _stemmer(language: str) -> Callable[[str], str]:
    import snowballstemmer  # pyright: ignore[reportMissingTypeStubs]

    return cast("Callable[[str], str]", snowballstemmer.stemmer(language).stemWord)  # pyright: ignore[reportUnknownMemberType]


def __getattr__(name: str) -> frozenset[str]:
    if name != "LIGHT":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    lines = files("diarist").joinpath("function_words.txt").read_text(encoding="utf-8").splitlines()
    words = (word for line in lines if not line.startswith("#") for word in line.partition(":")[2].split())
    # Of "如果" (if) only the pair is light: "果" alone is fruit.
    light = frozenset(term for word in words for term in terms(word) if len(term) > 1 or len(word) == 1)
    globals()["LIGHT"] = light
    return light


_BORDERS = (  # after a paragraph, a sentence or line, a word
    re.compile(r"\n[^\S\n]*\n\s*"),
    re.compile(r"[.!?…][\"'”’)\]]{0,3}\s+|[。！？][」』”’）]{0,3}\s*|\n\s*"),
    re.compile(r"\s+"),
)
_WIDE = re.compile(f"[{_UNSPACED}]")
_CJK = re.compile(f"[{_ranges('han', 'hiragana', 'katakana', 'hangul')}ー]")


def windows(text: str, size: int) -> list[str]:
    """Overlapping pieces of at most `size` characters, one of a script without spaces counting two.

    They overlap by about a fifth, cover every character, and are cut between paragraphs, sentences or words
    where the second half of a piece has such a place, else between characters as a reader sees them.
    """
    if size < 2:
        raise ValueError(f"size is {size}; a window holds at least 2 characters")
    return [text[start:end] for start, end in _spans(text, size)]


def _spans(text: str, size: int) -> Iterator[tuple[int, int]]:
    wide = {match.start() for match in _WIDE.finditer(text)}
    weight = list(accumulate((2 if at in wide else 1 for at in range(len(text))), initial=0))
    if weight[-1] <= size:
        yield 0, len(text)
        return
    inside = _inside(text)
    ends = [[m.end() for m in border.finditer(text) if m.end() not in inside] for border in _BORDERS]
    start = 0
    while weight[-1] - weight[start] > size:
        half = bisect_left(weight, weight[start] + size / 2)
        last = bisect_right(weight, weight[start] + size) - 1
        end = next((cut for borders in ends if (cut := _last(borders, half, last))), 0) or _last_whole(
            inside, half, last
        )
        yield start, end
        low, back = (bisect_left(weight, weight[end] - size / part) for part in (2, 5))
        word = bisect_left(ends[-1], back)
        again = ends[-1][word] if word < len(ends[-1]) and ends[-1][word] < end else _last_whole(inside, low, back)
        start = min(max(again, start + 1), end)
    yield start, len(text)


def _last(borders: list[int], low: int, high: int) -> int:
    at = bisect_right(borders, high) - 1
    return borders[at] if at >= 0 and borders[at] > low else 0


def _last_whole(inside: set[int], low: int, high: int) -> int:
    return next((at for at in range(high, low, -1) if at not in inside), high)


def _inside(text: str) -> set[int]:
    """The places inside what a reader sees as one character: a letter with its marks, an emoji sequence, a flag."""
    found: set[int] = set()
    flag = False
    for at, (before, here) in enumerate(pairwise(text), 1):
        flag = here in _FLAG and before in _FLAG and not flag  # a flag is two of these
        if flag or before == _ZWJ or _extends(here) or (here == "\n" and before == "\r"):
            found.add(at)
    return found


_FLAG = frozenset(map(chr, range(0x1F1E6, 0x1F200)))


@lru_cache(maxsize=1 << 12)
def _extends(char: str) -> bool:
    return not char.isascii() and (
        unicodedata.category(char)[0] == "M"
        or char in (_ZWJ, _ZWNJ)
        or "\U0001f3fb" <= char <= "\U0001f3ff"  # skin tones
        or "\U000e0020" <= char <= "\U000e007f"  # the tags in the flag of Wales
        or "\u1160" <= char <= "\u11ff"  # Hangul in pieces
    )


def estimate_tokens(text: str) -> int:
    """About how many tokens a model counts: one for each CJK character, for the rest UTF-8 bytes / 4, rounded up."""
    rest, cjk = _CJK.subn("", text)
    return cjk + -(-len(rest.encode("utf-8", "surrogatepass")) // 4)
