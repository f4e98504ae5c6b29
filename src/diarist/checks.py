"""What may be an owner, a text, a time, a tag: bad input is refused here, before anything is read or written."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from .note import Origin

LONGEST_TEXT = 64_000
LONGEST_QUESTION = 32_000
LONGEST_OWNER = 1_024
MOST_HITS = 1_000
MOST_TAGS = 64
_SHORT = 256  # a tag, a key, a source


def checked_text(text: object, what: str, longest: int) -> str:
    """Text with something to see in it. NUL and lone surrogates are refused: no database keeps them the same way."""
    if not isinstance(text, str):
        raise TypeError(f"{what} must be text, not {type(text).__name__}")
    if len(text) > longest:
        raise ValueError(
            f"{what} has {len(text):,} characters; at most {longest:,} are kept, so say it shorter or split it"
        )
    if "\0" in text:
        raise ValueError(f"{what} holds a NUL character at {text.index(chr(0))}; take it out")
    if not text.isascii() and any("\ud800" <= char <= "\udfff" for char in text):
        raise ValueError(
            f"{what} holds half a character (a lone surrogate): a cut emoji or another encoding; pass whole text"
        )
    if not any(_visible(char) for char in text):
        raise ValueError(f"{what} is blank; give it some text")
    return text


def _visible(char: str) -> bool:
    return char.isalnum() or (not char.isspace() and unicodedata.category(char) not in {"Cc", "Cf"})


def checked_place(place: str) -> None:
    """A folder of this machine. What belongs to another system would become a file name with odd letters in it."""
    if not place.strip() or "\0" in place:
        raise ValueError(f"the memory's path {place!r} names no folder; give one, such as 'memory'")
    if "://" in place or place.startswith(("file:", ":memory:")):
        raise ValueError(f"the memory {place!r} is no folder; this version keeps memories in folders: give a path")
    if os.name != "nt" and (re.match(r"[A-Za-z]:[\\/]", place) or place.startswith("\\\\")):
        raise ValueError(
            f"the memory {place!r} is a Windows path, and this is not Windows; give a path of this machine"
        )


def checked_owner(owner: object) -> str:
    return checked_text(owner, "owner", LONGEST_OWNER)


def checked_question(question: object) -> tuple[str, bool]:
    """The question as it will be asked, and whether it was cut: the end stays, where a question stands. What cannot be
    encoded is replaced, not refused: a question must not fail a turn."""
    if not isinstance(question, str):
        raise TypeError(f"the question must be text, not {type(question).__name__}")
    asked = question[-LONGEST_QUESTION:].replace("\0", " ").encode("utf-8", "replace").decode()
    return checked_text(asked, "the question", LONGEST_QUESTION), len(question) > LONGEST_QUESTION


def checked_time(moment: object, what: str) -> datetime | None:
    """An aware datetime, or ISO 8601 text with an offset, in UTC."""
    if moment is None:
        return None
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError:
            raise ValueError(
                f"{what} {moment!r} is no ISO 8601 time; write it like 2026-03-01T09:00:00+01:00"
            ) from None
    if not isinstance(moment, datetime):
        raise TypeError(f"{what} must be a datetime or ISO 8601 text, not {type(moment).__name__}")
    if moment.utcoffset() is None:
        raise ValueError(
            f"{what} {moment.isoformat()} has no UTC offset, so it names no moment; add one, such as +00:00"
        )
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError(f"{what} {moment.isoformat()} is out of range") from None


def checked_zone(name: object) -> ZoneInfo | None:
    if name is None:
        return None
    if not isinstance(name, str):
        raise TypeError(f"timezone must be an IANA name such as 'Europe/Paris', not {type(name).__name__}")
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(f"timezone {name!r} is not known; give an IANA name such as 'Europe/Paris'") from None


def checked_short(text: object, what: str, longest: int = _SHORT) -> str | None:
    return None if text is None else checked_text(text, what, longest)


def checked_list(items: object, what: str) -> tuple[str, ...]:
    """Some short texts, each once, in order. A single text is a mistake: it would be taken letter by letter."""
    if items is None:
        return ()
    if isinstance(items, str) or not isinstance(items, Iterable):
        raise TypeError(f"{what} must be a list of text, not {type(items).__name__}")
    every: list[object] = list(items)  # pyright: ignore[reportUnknownArgumentType]
    listed = tuple(dict.fromkeys(checked_text(item, f"one of {what}", _SHORT) for item in every))
    if what == "tags" and len(listed) > MOST_TAGS:
        raise ValueError(f"{len(listed)} tags; at most {MOST_TAGS}")
    return listed


def checked_origin(origin: object) -> Origin:
    for known in get_args(Origin):
        if origin == known:
            return known
    raise ValueError(f"origin {origin!r} is not known; one of {', '.join(get_args(Origin))}")


def checked_days(days: object) -> int | None:
    if days is None:
        return None
    if not isinstance(days, int) or isinstance(days, bool):
        raise TypeError(f"retention is a whole number of days, not {type(days).__name__}")
    if not 1 <= days <= 36_500:
        raise ValueError(f"retention of {days} days is not between 1 and 36,500")
    return days


def checked_limit(limit: object) -> int:
    if not isinstance(limit, int) or isinstance(limit, bool):
        raise TypeError(f"limit must be a whole number, not {type(limit).__name__}")
    if limit < 1:
        raise ValueError(f"limit {limit} asks for nothing; give 1 or more")
    return min(limit, MOST_HITS)


def checked_score(score: object) -> float | None:
    if score is None:
        return None
    if not isinstance(score, int | float) or isinstance(score, bool):
        raise TypeError(f"min_score must be a number from 0 to 1, not {type(score).__name__}")
    if not 0 <= score <= 1:
        raise ValueError(f"min_score {score!r} is not between 0 and 1")
    return float(score)
