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
from .waiting import Waiting

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


def look_up(db: apsw.Connection, words: Sequence[str], most: int, waiting: Waiting) -> dict[str, Posting]:
    """Where each word stands; about the newest `most` places of it are read."""
    sql = "SELECT block, count, notes FROM words WHERE word = ? AND block BETWEEN ? AND ? ORDER BY block DESC"
    first, last = _blocks(waiting.kept)
    found: dict[str, Posting] = {}
    for word in words:
        late = waiting.holders(word)
        blocks: list[int] = []
        counts: list[int] = []
        packed: list[bytes] = []
        held = len(late)
        for block, count, notes in rows(db, sql, (word, first, last)):
            if held >= most:
                rest = "SELECT sum(count) FROM words WHERE word = ? AND block BETWEEN ? AND ?"
                held += (row(db, rest, (word, first, block)) or (0,))[0]
                break
            blocks.append(block << _BITS)
            counts.append(count)
            packed.append(notes)
            held += count
        if held:
            filed = np.frombuffer(b"".join(packed), "<u2")
            seqs, times = (filed & _LOW) + np.repeat(np.array(blocks, np.int64), counts), filed >> _BITS
            if late:
                seqs, times = np.append(seqs, [*late]), np.append(times, [*late.values()])
            found[word] = Posting(held, seqs, times.astype(np.int64))
    return found


def _blocks(kept: Kept) -> tuple[int, int]:
    return kept.first >> _BITS, (kept.first + FIRST_MESSAGE - 1) >> _BITS


def _bytes(packed: Sequence[int]) -> bytes:
    return b"".join(each.to_bytes(2, "little") for each in packed)
