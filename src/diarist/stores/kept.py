"""What notes and messages have in common in a diary's file: a number, a line of history, words and vectors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, cast

import apsw

from .rows import as_text
from .sql import listed, row, rows, run, run_many, set_settings

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

FIRST_MESSAGE = 2**40
_WINDOWS = 4096  # windows a text may have: `place` is seq * 4096 + window


@dataclass(frozen=True, slots=True)
class Kept:
    """What is searched together: a table with `seq`, `owner` and `words`, and where its totals stand in `diary`."""

    table: str
    first: int
    """Seqs from here on, up to `FIRST_MESSAGE` later, are of this table."""
    filed: str
    count: str
    words: str
    pending: str


NOTES = Kept("notes", 0, "filed", "notes", "words", "pending")
MESSAGES = Kept("messages", FIRST_MESSAGE, "messages filed", "messages", "words in messages", "pending messages")


def last_line(db: apsw.Connection) -> int:
    """The number of the history's last line."""
    found = row(db, "SELECT coalesce(max(seq), 0) FROM history")
    return int(found[0]) if found else 0


def log(db: apsw.Connection, at: datetime, what: str, seq: int | None, note: str | None = None, first: int = 0) -> int:
    """Writes the next line of the history; returns the seq it is about, which for a new entry (None) is `first` and
    the line's number: never given before."""
    line = last_line(db) + 1
    entry = first + line if seq is None else seq
    run(
        db,
        "INSERT INTO history (seq, at, what, entry, note) VALUES (?,?,?,?,?)",
        (line, as_text(at), what, entry, note),
    )
    return entry


def changed(db: apsw.Connection, since: int, kept: Kept) -> list[int]:
    """Seqs of this table in the history after that line."""
    sql = "SELECT DISTINCT entry FROM history WHERE seq > ? AND entry BETWEEN ? AND ?"
    return [found[0] for found in rows(db, sql, (since, kept.first, kept.first + FIRST_MESSAGE - 1))]


def put_vectors(db: apsw.Connection, seq: int, embedder: str, vectors: NDArray[np.float32]) -> None:
    numbered = [(seq * _WINDOWS + window, embedder, v.astype("<f2").tobytes()) for window, v in enumerate(vectors)]
    run_many(db, "INSERT INTO vectors (place, embedder, vector) VALUES (?,?,?)", numbered)


def owe_vectors(db: apsw.Connection, owner: str, kept: Kept, embedder: str, anew: bool) -> int:
    """Marks what has no vector of this embedder as pending; returns how many are. `anew` removes its vectors first."""
    if anew:
        places = (kept.first * _WINDOWS, (kept.first + FIRST_MESSAGE) * _WINDOWS - 1)
        run(db, "DELETE FROM vectors WHERE embedder = ? AND place BETWEEN ? AND ?", (embedder, *places))
    searched = "words <> '' AND" if kept is MESSAGES else ""  # a call or its result is kept, not searched
    run(
        db,
        f"UPDATE {kept.table} SET pending = {searched} NOT EXISTS (SELECT 1 FROM vectors"  # noqa: S608
        f" WHERE place = seq * {_WINDOWS} AND embedder = ?) WHERE owner = ?",
        (embedder, owner),
    )
    owed = row(db, f"SELECT count(*) FROM {kept.table} WHERE owner = ? AND pending", (owner,))  # noqa: S608
    assert owed is not None
    set_settings(db, **{kept.pending: owed[0]})
    return int(owed[0])


def drop_vectors(db: apsw.Connection, seq: int) -> None:
    run(db, "DELETE FROM vectors WHERE place BETWEEN ? AND ?", (seq * _WINDOWS, seq * _WINDOWS + _WINDOWS - 1))


def vectors_of(db: apsw.Connection, kept: Kept, seqs: Sequence[int] | None) -> Iterator[tuple[int, str, bytes]]:
    """(seq, embedder, numbers) of each window, by ascending place, one by one: together they may be a gigabyte."""
    if seqs is None:
        sql = "SELECT place / 4096, embedder, vector FROM vectors WHERE place BETWEEN ? AND ? ORDER BY place"
        values = (kept.first * _WINDOWS, (kept.first + FIRST_MESSAGE) * _WINDOWS - 1)
        found = rows(db, sql, values)
    else:
        sql = (  # CROSS: in this order, since for the sake of the sorting SQLite would rather read the whole table
            "SELECT place / 4096, embedder, vector FROM json_each(?) CROSS JOIN vectors"
            " ON place BETWEEN value * 4096 AND value * 4096 + 4095 ORDER BY place"
        )
        found = rows(db, sql, (listed(seqs),))
    return cast("Iterator[tuple[int, str, bytes]]", found)
