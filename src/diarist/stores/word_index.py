"""Which notes hold a word: the `words` table, and the notes that are not filed there yet.

A note of twenty words touches twenty places of an index. So the newest notes wait, at most `FILE_AT` of them, each with
its words in its own row, and are then filed together: one write stays cheap, and one search reads a few hundred rows.
A row of `words` covers 2**12 seqs, two bytes for each note; a search reads the newest rows first and stops after a
number of places, so that the commonest word of a huge diary costs no more than that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

import apsw
import numpy as np

from . import Posting
from .kept import FIRST_MESSAGE, NOTES, Kept
from .sql import row, rows, run, run_many, set_settings, setting

FILE_AT = 256
_BITS = 12
_LOW = 2**_BITS - 1
_MOST_TIMES = 15  # how often a word stands in a note is kept in four bits


def file_newest(db: apsw.Connection, owner: str, kept: Kept = NOTES) -> None:
    """Files the notes that wait, once there are enough of them."""
    filed = filed_through(db, kept)
    waiting = row(db, f"SELECT count(*) FROM {kept.table} WHERE seq > ?", (filed,))  # noqa: S608
    if waiting is None or waiting[0] < FILE_AT:
        return
    sql = f"SELECT seq, words FROM {kept.table} WHERE owner = ? AND seq > ? ORDER BY seq"  # noqa: S608
    found = list(rows(db, sql, (owner, filed)))
    if found:
        file(db, found)
        set_settings(db, **{kept.filed: found[-1][0]})


def filed_through(db: apsw.Connection, kept: Kept = NOTES) -> int:
    """Notes up to this seq are in the table."""
    return int(setting(db, kept.filed, kept.first))


def file(db: apsw.Connection, notes: Iterable[Sequence[object]]) -> None:
    """Adds (seq, words) to the table."""
    packed: dict[tuple[str, int], list[int]] = defaultdict(list)
    for seq, words in notes:
        assert isinstance(seq, int)
        for word, times in Counter(str(words).split()).items():
            packed[word, seq >> _BITS].append((seq & _LOW) | min(times, _MOST_TIMES) << _BITS)
    run_many(
        db,
        "INSERT INTO words (word, block, count, notes) VALUES (?,?,?,?) ON CONFLICT (word, block)"
        " DO UPDATE SET count = count + excluded.count, notes = CAST(notes || excluded.notes AS BLOB)",
        [(word, block, len(each), _bytes(each)) for (word, block), each in sorted(packed.items())],
    )


def unfile(db: apsw.Connection, seq: int, words: str) -> None:
    """Takes a note out of the table."""
    block = seq >> _BITS
    for word in set(words.split()):
        found = row(db, "SELECT notes FROM words WHERE word = ? AND block = ?", (word, block))
        held = np.frombuffer(found[0] if found else b"", "<u2")
        kept = held[(held & _LOW) != (seq & _LOW)]
        if len(kept):
            values = (kept.tobytes(), len(kept), word, block)
            run(db, "UPDATE words SET notes = ?, count = ? WHERE word = ? AND block = ?", values)
        else:
            run(db, "DELETE FROM words WHERE word = ? AND block = ?", (word, block))


def look_up(db: apsw.Connection, owner: str, words: Sequence[str], most: int, kept: Kept = NOTES) -> dict[str, Posting]:
    """Where each word stands; about the newest `most` places of it are read."""
    waiting = _waiting(db, owner, set(words), kept)
    found: dict[str, Posting] = {}
    within, blocks = "FROM words WHERE word = ? AND block BETWEEN ? AND ?", _blocks(kept)
    for word in words:
        late = waiting.get(word, [])
        count = row(db, f"SELECT coalesce(sum(count), 0) {within}", (word, *blocks))
        parts, read = [np.array(late, np.int64).reshape(-1, 2)], len(late)
        for block, notes in rows(db, f"SELECT block, notes {within} ORDER BY block DESC", (word, *blocks)):
            if read >= most:
                break
            held = np.frombuffer(notes, "<u2").astype(np.int64)
            parts.append(np.stack([(held & _LOW) + (block << _BITS), held >> _BITS], axis=1))
            read += len(held)
        places = np.concatenate(parts)
        if len(places):
            found[word] = Posting(len(late) + (count[0] if count else 0), places[:, 0], places[:, 1])
    return found


def _blocks(kept: Kept) -> tuple[int, int]:
    return kept.first >> _BITS, (kept.first + FIRST_MESSAGE - 1) >> _BITS


def _waiting(db: apsw.Connection, owner: str, wanted: set[str], kept: Kept) -> dict[str, list[tuple[int, int]]]:
    """(seq, times) of each wanted word in the notes that are not filed yet."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    sql = f"SELECT seq, words FROM {kept.table} WHERE owner = ? AND seq > ?"  # noqa: S608
    for seq, words in rows(db, sql, (owner, filed_through(db, kept))):
        held = words.split(" ")
        for word in wanted.intersection(held):
            found[word].append((seq, held.count(word)))
    return found


def _bytes(packed: Sequence[int]) -> bytes:
    return b"".join(each.to_bytes(2, "little") for each in packed)
