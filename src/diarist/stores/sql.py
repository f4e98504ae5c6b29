"""SQLite statements with the types that `apsw` leaves open. All SQL goes through these four."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

import apsw

Row = tuple[Any, ...]
Values = Sequence[Any] | Mapping[str, Any]
LISTED = "(SELECT value FROM json_each(?))"
"""For `IN`, with `listed(...)` as its value: one statement, compiled once, for a list of any length."""


def run(db: apsw.Connection, sql: str, values: Values = ()) -> None:
    for _ in db.execute(sql, values):  # pyright: ignore[reportUnknownMemberType]
        pass  # apsw stops at the first statement that gives a row, and some PRAGMAs do


def run_many(db: apsw.Connection, sql: str, every: Iterable[Values]) -> None:
    db.executemany(sql, every)  # pyright: ignore[reportUnknownMemberType]


def rows(db: apsw.Connection, sql: str, values: Values = ()) -> Iterator[Row]:
    """Read them all before the next write: an open statement keeps its snapshot."""
    return cast("Iterator[Row]", db.execute(sql, values))  # pyright: ignore[reportUnknownMemberType]


def row(db: apsw.Connection, sql: str, values: Values = ()) -> Row | None:
    return next(rows(db, sql, values), None)


def listed(seqs: Iterable[int]) -> str:
    return json.dumps([int(seq) for seq in seqs])


def settings(db: apsw.Connection) -> dict[str, Any]:
    """What is true of the diary as a whole, by name."""
    return dict(rows(db, "SELECT name, value FROM diary"))


def setting(db: apsw.Connection, name: str, default: Any) -> Any:
    found = row(db, "SELECT value FROM diary WHERE name = ?", (name,))
    return default if found is None else found[0]


def set_settings(db: apsw.Connection, **values: Any) -> None:
    run_many(
        db,
        "INSERT INTO diary VALUES (?,?) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        list(values.items()),
    )


def add_to_settings(db: apsw.Connection, **amounts: int) -> None:
    changed = [(name, amount) for name, amount in amounts.items() if amount]
    sql = "INSERT INTO diary VALUES (?,?) ON CONFLICT (name) DO UPDATE SET value = value + excluded.value"
    run_many(db, sql, changed)
