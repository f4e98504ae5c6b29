"""A body of JSON lines to notes: an export as `export` writes it, or one note a line. All or none of it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, cast

from .limits import strict_json

if TYPE_CHECKING:
    from ..diary import Diary


def take(diary: Diary, data: bytes, *, rename: bool, forgotten_too: bool) -> tuple[int, int]:
    """(notes in the body, how many of them were new). ValueError or TypeError names the line or note at fault;
    nothing is then kept."""
    records = _records(data)
    first = records[0]
    if "diarist" in first:
        exported = _export(first, records[1:])
        return len(exported["notes"]), diary.load(exported, rename=rename, forgotten_too=forgotten_too)
    for record in records:
        # The same line again is the same request, however often it is made.
        said = hashlib.sha256(json.dumps(record, sort_keys=True).encode()).hexdigest()
        record.setdefault("key", f"import:{said}")
    before = diary.count(include_replaced=True)
    diary.remember_many(records)
    return len(records), diary.count(include_replaced=True) - before


def _records(data: bytes) -> list[dict[str, Any]]:
    try:
        whole = strict_json(data)
    except ValueError:
        lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
        every = [_line(number, line) for number, line in lines]
    else:
        every = cast("list[object]", whole) if isinstance(whole, list) else [whole]
    for number, each in enumerate(every, 1):
        if not isinstance(each, dict):
            raise ValueError(f'record {number} is no JSON object, such as {{"text": "Ships to Rosario."}}')
    if not every:
        raise ValueError("the body has no lines; send an export, or one JSON object a line")
    return cast("list[dict[str, Any]]", every)


def _line(number: int, line: bytes) -> object:
    try:
        return strict_json(line.strip())
    except ValueError as error:
        raise ValueError(f"line {number}: {str(error).replace('the body', 'it')}; nothing was kept") from None


def _export(header: dict[str, Any], rest: list[dict[str, Any]]) -> dict[str, Any]:
    said = header.get("notes")
    if isinstance(said, list):
        rest = [*cast("list[dict[str, Any]]", said), *rest]
    elif said != len(rest):
        raise ValueError(f"the export says that it has {said} notes, but has {len(rest)}: it was cut; nothing was kept")
    return header | {"notes": rest}
