"""Rows of the `notes` table to `Entry` and back, and a `Filter` as SQL."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any

from ..note import Note
from . import Entry, Filter
from .sql import Row

COLUMNS = (
    "seq, id, owner, text, created_at, happened_at, expires_at, order_at, said, source, origin, tags, flagged, session,"
    " times, replaced_by, replaced_at, replaces, pending, (SELECT at FROM history WHERE history.seq = notes.seq),"
    " (SELECT happened_at FROM notes AS newer WHERE newer.id = notes.replaced_by)"
)


RELEASED = "released: "
"""How `flagged` begins for a note that a person has read. What follows is why it was flagged, parted by semicolons."""
QUARANTINED = f"(origin = 'third_party' AND flagged IS NOT NULL AND flagged NOT LIKE '{RELEASED}%')"
"""`Note.quarantined` in SQL."""


def as_flag(flagged_for: Iterable[str], released: bool = False) -> str | None:
    why = "; ".join(flagged_for)
    return f"{RELEASED if released else ''}{why}" if why else None


def as_text(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC, always of one width, so that times compare as text."""
    return None if moment is None else moment.isoformat(timespec="microseconds")


def as_time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text)


def as_entry(found: Row) -> Entry:
    (seq, id, owner, text, created, happened, expires, order_at, said, source, origin, tags, flagged, session, times,
     replaced_by, replaced_at, replaces, pending, first_at, replaced_from) = found  # fmt: skip
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
        flagged_for=tuple(each for each in (flagged or "").removeprefix(RELEASED).split("; ") if each),
        released=(flagged or "").startswith(RELEASED),
        session=session,
        replaces=() if replaces == "[]" else tuple(json.loads(replaces)),
        replaced_by=replaced_by,
        times=times,
        pending=bool(pending),
    )
    order = (datetime.fromisoformat(order_at), said)
    return Entry(seq, note, datetime.fromisoformat(first_at), as_time(replaced_at), as_time(replaced_from), order)


def within(filter: Filter) -> tuple[str, dict[str, Any]]:
    """The dates, tags and source of a filter as conditions to append, and their values."""
    values: dict[str, Any] = {
        "since": as_text(filter.since),
        "before": as_text(filter.before),
        "source": filter.source,
        **{f"tag{number}": tag for number, tag in enumerate(filter.tags)},
    }
    sql = {
        "since": " AND coalesce(happened_at, created_at) >= :since",
        "before": " AND coalesce(happened_at, created_at) < :before",
        "source": " AND source = :source",
    }
    given = {name: value for name, value in values.items() if value is not None}
    where = (sql.get(name, f" AND EXISTS (SELECT 1 FROM json_each(tags) WHERE value = :{name})") for name in given)  # noqa: S608
    return "".join(where), given


def holding(filter: Filter) -> tuple[str, dict[str, Any]]:
    """The whole filter: `within`, and `Filter.holds` in SQL. The two must let through the same notes."""
    where, values = within(filter)
    where += "" if filter.include_quarantined else f" AND NOT {QUARANTINED}"
    where += (
        " AND (:as_of IS NULL"
        " OR coalesce(happened_at, (SELECT at FROM history WHERE history.seq = notes.seq)) <= :as_of)"
        " AND (:all OR ((expires_at IS NULL OR expires_at > :moment) AND (replaced_by IS NULL OR coalesce("
        "CASE WHEN :as_of IS NULL THEN (SELECT happened_at FROM notes AS newer WHERE newer.id = notes.replaced_by)"
        " ELSE replaced_at END, '') > :moment)))"
    )
    as_of, moment = as_text(filter.as_of), as_text(filter.as_of or filter.now)
    return where, values | {"as_of": as_of, "moment": moment, "all": filter.include_replaced}
