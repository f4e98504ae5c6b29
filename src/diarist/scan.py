"""Nearest vectors of one diary, in memory: exact cosine over every window of every note.

It is a cache of the store's vectors, loaded at the first question and kept in step with what this and other processes
write since. It knows nothing of texts or scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from .embedders import Embedder
from .following import Following

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .stores import Shelf


class Nearest(Following):
    """The vectors of one diary that one embedder can read. A note with several windows stands several times."""

    def __init__(self, store: Shelf, embedder: Embedder) -> None:
        super().__init__(store)
        self._embedder = embedder
        self._foreign: dict[int, str] = {}

    @property
    def foreign(self) -> dict[int, str]:
        """Notes whose vectors this embedder cannot read, with the id of the embedder that made them."""
        return self._foreign

    @property
    def _matrix(self) -> NDArray[np.float32]:
        return self._held[1]

    def cosines(self, query: NDArray[np.float32]) -> Cosines:
        """How near every note is to the query, a unit vector of shape (dim,)."""
        with self._lock:
            return Cosines(self.seqs, self._matrix @ query)

    def neighbours(self, seq: int, count: int) -> list[tuple[int, float]]:
        """(seq, cosine) of the notes nearest to this one by its first window, nearest first; [] if it has no vector."""
        import numpy as np

        with self._lock:
            place = int(np.searchsorted(self.seqs, seq))
            if place == len(self.seqs) or self.seqs[place] != seq:
                return []
            cosines = Cosines(self.seqs, self._matrix @ self._matrix[place])
        near = np.array([other for other in cosines.best(count + 1) if other != seq], np.int64)
        return list(zip(near.tolist(), cosines.of(near).tolist(), strict=True))

    def likeness(self, seqs: Iterable[int]) -> dict[tuple[int, int], float]:
        """Cosine between each two of these notes, by their first windows; only those that have a vector."""
        import numpy as np

        with self._lock:
            listed = np.array(list(seqs), np.int64)
            rows = np.searchsorted(self.seqs, listed)
            there = (
                (rows < len(self.seqs)) & (self.seqs[np.minimum(rows, len(self.seqs) - 1)] == listed)
                if len(self.seqs)
                else np.zeros(len(listed), bool)
            )
            vectors = self._matrix[rows[there]]
        product = vectors @ vectors.T
        names = listed[there].tolist()
        return {(a, b): float(product[i, j]) for i, a in enumerate(names) for j, b in enumerate(names) if i != j}

    def _load(self, seqs: list[int] | None) -> tuple[NDArray[Any], ...]:
        import numpy as np

        dim = self._embedder.dim
        parts: Mapping[str, slice] = {self._embedder.id: slice(None), **getattr(self._embedder, "reads", {})}
        self._foreign = {} if seqs is None else {s: e for s, e in self._foreign.items() if s not in set(seqs)}
        kept_seqs: list[int] = []
        kept: list[NDArray[np.float32]] = []
        for seq, embedder, data in self._store.vectors(seqs):
            part = parts.get(embedder)
            vector = None if part is None or len(data) % 2 else np.frombuffer(data, "<f2")[part]
            if vector is None or len(vector) != dim or not np.isfinite(vector).all() or not vector.any():
                self._foreign[seq] = embedder
                continue
            kept_seqs.append(seq)
            kept.append(vector.astype(np.float32))
        matrix = np.stack(kept) if kept else np.zeros((0, dim), np.float32)
        lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
        matrix /= np.where(lengths > 0, lengths, 1)  # a part of a vector is no unit vector, and float16 rounds
        return np.array(kept_seqs, np.int64), matrix


class Cosines:
    """The cosines of one question with every window."""

    def __init__(self, seqs: NDArray[np.int64], values: NDArray[np.float32]) -> None:
        self._seqs, self._values = seqs, values.clip(-1, 1)

    def best(self, count: int, allowed: NDArray[np.int64] | None = None) -> list[int]:
        """Seqs of the `count` nearest notes (among `allowed`, ascending), nearest first."""
        import numpy as np

        seqs, values = self._seqs, self._values
        if allowed is not None:
            inside = np.isin(seqs, allowed)
            seqs, values = seqs[inside], values[inside]
        taken = min(len(seqs), count)
        while taken:
            top = np.argpartition(-values, taken - 1)[:taken]
            found = list(dict.fromkeys(seqs[top[np.argsort(-values[top], kind="stable")]].tolist()))
            if len(found) >= count or taken == len(seqs):
                return found[:count]
            taken = min(len(seqs), taken * 2)  # several windows of one note took the places
        return []

    def of(self, seqs: NDArray[np.int64]) -> NDArray[np.float64]:
        """The cosine of each of these notes, by its nearest window; NaN for one without a vector."""
        import numpy as np

        first, last = np.searchsorted(self._seqs, seqs), np.searchsorted(self._seqs, seqs, side="right")
        there = last > first
        found = np.full(len(seqs), np.nan)
        if there.any():
            bounds = np.stack([first[there], last[there]], axis=1).ravel()
            found[there] = np.maximum.reduceat(np.append(self._values, -1.0), bounds)[::2]
        return found
