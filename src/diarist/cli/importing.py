"""A file to notes. What it is, its content tells: an export, a JSON array, or JSON lines.

An export is loaded whole or not at all. Of the others, what is good goes in, batch by batch; what is not is named.
Their vectors are made afterwards: all notes are then found by their words already, and an interruption costs little.
"""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import sys
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from ..errors import DiaristError, NotFound
from ..portable import seed_notes
from .show import reason, say

if TYPE_CHECKING:
    from ..diary import Diary
    from ..note import Note

FIELDS = ("text", "happened_at", "expires_at", "source", "origin", "tags", "replaces", "key")
BATCH = 256  # notes in one transaction: as many as an interruption can cost

Refuse = Callable[[int, str], None]
"""Called with the number of a line that is left out, and why."""
Report = Callable[[int, int], None]
"""Called with the bytes of the file that are done, and the notes."""


class Content(NamedTuple):
    """What a file holds: an export, as `Diary.load` takes it, or else records, one a line."""

    export: dict[str, Any] | None
    lines: Iterable[bytes] = ()
    size: int | None = None
    """Of all lines, in bytes; None for a pipe."""
    part: str = "line"
    """What one of them is called when it is named."""


class Line(NamedTuple):
    number: int
    ends: int
    """Where in the file it ends, in bytes."""
    note: dict[str, Any]
    """As `Diary.remember_many` takes it."""


def recognised(stream: BinaryIO) -> Content:
    """Looks at the first line; reads on only where that alone does not tell. DiaristError for a bad export."""
    head: list[bytes] = []
    for raw in stream:
        head.append(raw if head else raw.removeprefix(codecs.BOM_UTF8))
        if head[-1].strip():
            break
    first, every = head[-1].strip() if head else b"", chain(head, stream)
    opening = _parsed(first)
    if isinstance(opening, dict) and "diarist" in opening:
        return Content(_export(cast("dict[str, Any]", opening), len(head), stream))
    if (opening is None and first[:1] in (b"[", b"{")) or isinstance(opening, list):
        whole = b"".join(every)
        document = _parsed(whole)
        if isinstance(document, dict):  # one object over several lines
            if "diarist" in document:
                return Content(_export(cast("dict[str, Any]", document), 0, ()))
            document = cast("list[object]", [document])
        if isinstance(document, list):
            entries = cast("list[object]", seed_notes(cast("object", document)) or document)
            lines = [json.dumps(entry).encode() + b"\n" for entry in entries]
            return Content(None, lines, sum(map(len, lines)), "item")
        every = whole.splitlines(keepends=True)
    return Content(None, every, _size(stream))


def _size(stream: BinaryIO) -> int | None:
    """In bytes; None for a pipe."""
    try:
        return os.fstat(stream.fileno()).st_size or None
    except OSError:
        return None


def _parsed(raw: bytes) -> Any:
    """The JSON value; None if it is none."""
    try:
        return json.loads(raw.decode())
    except (ValueError, RecursionError):
        return None


def _export(header: dict[str, Any], read: int, rest: Iterable[bytes]) -> dict[str, Any]:
    """A header with its notes, one a line after it, or in it as `Diary.export` gives them."""
    notes = cast("list[object]", header["notes"]) if isinstance(header.get("notes"), list) else []
    for number, raw in enumerate(rest, read + 1):
        if raw.strip():
            try:
                notes.append(_record(raw.strip()))
            except (ValueError, RecursionError) as error:
                raise DiaristError(f"line {number} of the export: {reason(error)}; nothing was loaded") from None
    said = header.get("notes")
    if isinstance(said, int) and said > len(notes):
        say(f"The file says that it has {said:,} notes, but it has {len(notes):,}: it may have been cut.")
    return header | {"notes": notes}


def keep_all(diary: Diary, content: Content, zone: tzinfo, refuse: Refuse, report: Report) -> Iterator[list[Note]]:
    """Saves the notes of all lines; yields those that were saved, batch by batch. Vectors are left for later."""
    lines = _lines(content, zone, refuse)
    saved = 0
    while batch := list(islice(lines, BATCH)):
        notes = _keep(diary, batch, refuse)
        saved += len(notes)
        report(batch[-1].ends, saved)
        yield notes


def _keep(diary: Diary, batch: list[Line], refuse: Refuse) -> list[Note]:
    """Saves the batch; where the diary refuses it, halves it until the lines at fault are alone."""
    try:
        if len(batch) == 1:
            return [diary.remember(**batch[0].note)]
        return diary.remember_many([line.note for line in batch], defer=True)
    except (ValueError, TypeError, NotFound) as error:
        if len(batch) == 1:
            refuse(batch[0].number, reason(error))
            return []
    half = len(batch) // 2
    return _keep(diary, batch[:half], refuse) + _keep(diary, batch[half:], refuse)


def _lines(content: Content, zone: tzinfo, refuse: Refuse) -> Iterator[Line]:
    ends, strange = 0, set[str]()
    for number, raw in enumerate(content.lines, 1):
        ends += len(raw)
        raw = raw.strip()
        if not raw:
            continue
        try:
            record = _record(raw)
            for name in record.keys() - {*FIELDS} - strange:
                strange.add(name)
                known = ", ".join(FIELDS)
                say(f'diarist: {content.part} {number}: "{name}" is not one of {known}: left out here and below.')
            yield Line(number, ends, _note(record, zone))
        except (ValueError, RecursionError) as error:
            refuse(number, reason(error))


def _record(raw: bytes) -> dict[str, Any]:
    try:
        record: object = json.loads(raw.decode())
    except UnicodeDecodeError as error:
        raise ValueError("not UTF-8 text") from error
    except json.JSONDecodeError as error:
        raise ValueError(f"not JSON: {error.msg} at character {error.pos + 1}") from error
    if not isinstance(record, dict):
        raise ValueError('not a JSON object, such as {"text": "Ships to Rosario."}')
    return cast("dict[str, Any]", record)


def _note(record: dict[str, Any], zone: tzinfo) -> dict[str, Any]:
    note = {name: record[name] for name in FIELDS if record.get(name) is not None}
    if "text" not in note:
        raise ValueError('has no "text"')
    for name in ("happened_at", "expires_at"):
        if name in note:
            note[name] = when(note[name], zone, name)
    # The same line of the same file is the same request, however often it is made.
    note.setdefault(
        "key", "import:" + hashlib.sha256(json.dumps(note, sort_keys=True, default=str).encode()).hexdigest()
    )
    return note


def when(value: object, zone: tzinfo, name: str) -> datetime:
    """An ISO 8601 time; one without an offset is meant in that zone."""
    try:
        moment = datetime.fromisoformat(value.strip() if isinstance(value, str) else "")
    except ValueError:
        raise ValueError(f"{name}: {value!r} is not a time such as 2026-03-01 or 2026-03-01T09:30+01:00") from None
    return moment if moment.tzinfo else moment.replace(tzinfo=zone)


@contextmanager
def opened(file: str) -> Generator[BinaryIO]:
    """The file's bytes, or stdin's for "-"."""
    if file == "-":
        yield sys.stdin.buffer
        return
    with open(file, "rb") as stream:
        yield stream
