"""JSON lines to notes: what is good goes in, batch by batch; what is not is named by its line."""

from __future__ import annotations

import codecs
import hashlib
import json
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import datetime, tzinfo
from itertools import islice
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, cast

from ..errors import NotFound
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


class Line(NamedTuple):
    number: int
    ends: int
    """Where in the file it ends, in bytes."""
    note: dict[str, Any]
    """As `Diary.remember_many` takes it."""


def keep_all(diary: Diary, stream: BinaryIO, zone: tzinfo, refuse: Refuse, report: Report) -> Iterator[list[Note]]:
    """Saves the notes of all lines; yields those that were saved, batch by batch."""
    lines = _lines(stream, zone, refuse)
    done = saved = 0
    while batch := list(islice(lines, BATCH)):

        def on_progress(
            part: int, whole: int, start: int = done, end: int = batch[-1].ends, saved: int = saved
        ) -> None:
            report(start + (end - start) * part // whole, saved + part)

        notes = _keep(diary, batch, refuse, on_progress)
        saved += len(notes)
        done = batch[-1].ends
        report(done, saved)
        yield notes


def _keep(diary: Diary, batch: list[Line], refuse: Refuse, progress: Callable[[int, int], None]) -> list[Note]:
    """Saves the batch; where the diary refuses it, halves it until the lines at fault are alone."""
    try:
        if len(batch) == 1:
            return [diary.remember(**batch[0].note)]
        return diary.remember_many([line.note for line in batch], progress=progress)
    except (ValueError, TypeError, NotFound) as error:
        if len(batch) == 1:
            refuse(batch[0].number, reason(error))
            return []
    half = len(batch) // 2
    return _keep(diary, batch[:half], refuse, progress) + _keep(diary, batch[half:], refuse, progress)


def _lines(stream: BinaryIO, zone: tzinfo, refuse: Refuse) -> Iterator[Line]:
    ends, strange = 0, set[str]()
    for number, raw in enumerate(stream, 1):
        ends += len(raw)
        raw = (raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw).strip()
        if not raw:
            continue
        try:
            record = _record(raw)
            for name in record.keys() - {*FIELDS} - strange:
                strange.add(name)
                say(f'diarist: line {number}: "{name}" is not one of {", ".join(FIELDS)}: left out here and below.')
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


@contextmanager
def progress_bar(stream: BinaryIO) -> Generator[Report]:
    """A bar on stderr where that is a terminal; else a silent report."""
    if not sys.stderr.isatty():
        yield lambda _done, _notes: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("Saving", total=_size(stream))
        yield lambda done, notes: bar.update(task, completed=done, description=f"{notes:,} notes saved")


def _size(stream: BinaryIO) -> int | None:
    """In bytes; None for a pipe."""
    return os.fstat(stream.fileno()).st_size or None
