"""The words of the notes that are not filed in the word index yet, in memory: a few hundred, read again only where they
changed.
"""

from __future__ import annotations

from collections import Counter

import apsw

from .kept import Kept, changed
from .sql import LISTED, listed, rows


class Waiting:
    """Follows one table of one diary. Whoever calls holds the diary's guard."""

    def __init__(self, kept: Kept) -> None:
        self.kept = kept
        self._line = -1
        self._held: dict[int, Counter[str]] = {}
        self._holders: dict[str, dict[int, int]] = {}

    def sync(self, db: apsw.Connection, owner: str, line: int, filed: int) -> None:
        """Takes in what was written up to this line of the history; up to the seq `filed` it is in the index."""
        if line == self._line:
            return
        sql = f"SELECT seq, words FROM {self.kept.table} WHERE owner = ? AND seq > ?"  # noqa: S608
        if self._line < 0:
            fresh = rows(db, sql, (owner, filed))
        else:
            new = changed(db, self._line, self.kept)
            for seq in [*new, *(seq for seq in self._held if seq <= filed)]:
                self._drop(seq)
            fresh = rows(db, f"{sql} AND seq IN {LISTED}", (owner, filed, listed(new)))
        for seq, words in fresh:
            self._held[seq] = Counter(words.split())
            for word, times in self._held[seq].items():
                self._holders.setdefault(word, {})[seq] = times
        self._line = line

    def _drop(self, seq: int) -> None:
        for word in self._held.pop(seq, ()):
            holders = self._holders[word]
            del holders[seq]
            if not holders:
                del self._holders[word]

    def holders(self, word: str) -> dict[int, int]:
        """How often the word stands in each note that waits, by seq."""
        return self._holders.get(word, {})
