"""Rows of the `notes` table to `Entry` and back, and a `Filter` as SQL."""

from __future__ import annotations

import json
from datetime import datetime

from ..note import Note
from . import Entry, Filter
from .sql import Row

COLUMNS = (
    "seq, id, owner, text, created_at, happened_at, expires_at, order_at, said, source, origin, tags, flagged, session,"
    " times, replaced_by, replaced_at, replaces, pending"
)


def as_text(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC, always of one width, so that times compare as text."""
    return None if moment is None else moment.isoformat(timespec="microseconds")


def as_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def as_entry(found: Row) -> Entry:
    (seq, id, owner, text, created, happened, expires, order_at, said, source, origin, tags, flagged, session, times,
     replaced_by, replaced_at, replaces, pending) = found  # fmt: skip
    note = Note(
        id=id,
        owner=owner,
        text=text,
        created_at=datetime.fromisoformat(created),
        happened_at=as_time(happened),
        expires_at=as_time(expires),
        source=source,
        origin=origin,
        tags=() if tags == "[]" else tuple(json.loads(tags)),
        flagged=flagged is not None,
        session=session,
        replaces=() if replaces == "[]" else tuple(json.loads(replaces)),
        replaced_by=replaced_by,
        times=times,
        pending=bool(pending),
    )
    return Entry(seq, note, as_time(replaced_at), (datetime.fromisoformat(order_at), said))


def within(filter: Filter) -> tuple[str, list[str]]:
    """The dates, tags and source of a filter as conditions to append, and their values."""
    where, values = "", list[str]()
    for sql, value in (
        (" AND coalesce(happened_at, created_at) >= ?", as_text(filter.since)),
        (" AND coalesce(happened_at, created_at) < ?", as_text(filter.before)),
        (" AND source = ?", filter.source),
        *((" AND EXISTS (SELECT 1 FROM json_each(tags) WHERE value = ?)", tag) for tag in filter.tags),
    ):
        if value is not None:
            where += sql
            values.append(value)
    return where, values


# `Filter.holds` as conditions: with `holding(filter)` as their values they must let through the same notes.
HOLDING = (
    " AND (? IS NULL OR coalesce(happened_at, created_at) <= ?) AND (expires_at IS NULL OR expires_at > ?)"
    " AND (replaced_by IS NULL OR ? OR (? IS NOT NULL AND replaced_at > ?))"
)


def holding(filter: Filter) -> tuple[str | bool | None, ...]:
    as_of, moment = as_text(filter.as_of), as_text(filter.as_of or filter.now)
    return (as_of, as_of, moment, filter.include_replaced, as_of, moment)
