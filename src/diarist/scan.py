"""Nearest vectors of one diary, in memory: cosine with every window of every note.

Up to `EXACT` notes the vectors themselves are held. Above, one bit a number is, which says of every note roughly how
near it is; those that seem nearest are then measured, in half precision: held too up to `HALVES`, above read from the
store. No index is built or tuned.

It is a cache of the store's vectors, loaded at the first question and kept in step with what this and other processes
write since. It knows nothing of texts or scores.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from .embedders import Embedder
from .following import Following

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .stores import Shelf

EXACT = 50_000  # notes
HALVES = 200_000  # notes
MEASURED = 1_500  # windows that are measured to find the nearest of a larger diary, at the least
ONE_IN = 250  # the same as a share of the diary: among more notes more seem nearest
_CHUNK = 10_000  # vectors decoded at once
_BLOCK = 16_384  # windows whose bits are compared at once: what one pass leaves for the next stays in the cache
_ONE_THREAD = 400_000  # numbers in a product: OpenBLAS takes more threads from 460,800 on


class Nearest(Following):
    """The vectors of one diary that one embedder can read. A note with several windows stands several times."""

    def __init__(self, store: Shelf, embedder: Embedder) -> None:
        super().__init__(store)
        self._embedder = embedder
        self._foreign: dict[int, str] = {}
        self._centre: NDArray[np.float32] | None = None  # where bits are held: what the numbers are compared with
        self._halves = False  # whether they are held beside numbers in half precision

    @property
    def foreign(self) -> dict[int, str]:
        """Notes whose vectors this embedder cannot read, with the id of the embedder that made them."""
        return self._foreign

    @property
    def exact(self) -> bool:
        """Whether the vectors themselves are held, so that every cosine is known."""
        return self._centre is None

    def cosines(self, query: NDArray[np.float32]) -> Cosines | Roughly:
        """How near every note is to the query, a unit vector of shape (dim,)."""
        with self._lock:
            if self._centre is None:
                return Cosines(self.seqs, _products(self._held[1], query))
            distances = _distances(self._planes, _bits(query - self._centre)[0])
            return Roughly(self, self.seqs, distances, query)

    def neighbours(self, seq: int, count: int) -> list[tuple[int, float]]:
        """(seq, cosine) of the notes nearest to this one by its first window, nearest first; [] if it has no vector."""
        import numpy as np

        with self._lock:
            own = self.first_windows([seq])
            if seq not in own:
                return []
            cosines = self.cosines(own[seq])
        near = np.array([other for other in cosines.best(count + 1) if other != seq], np.int64)
        return list(zip(near.tolist(), cosines.of(near).tolist(), strict=True))

    def likeness(self, seqs: Sequence[int], least: float) -> dict[int, list[tuple[int, float]]]:
        """For each of these notes the others that are as near as `least`, with the cosine, by their first windows."""
        import numpy as np

        held = self.first_windows(seqs)
        if not held:
            return {}
        names, vectors = list(held), np.stack(list(held.values()))
        product = vectors @ vectors.T
        np.fill_diagonal(product, -2.0)
        found: dict[int, list[tuple[int, float]]] = {}
        for a, b in np.argwhere(product >= least).tolist():
            found.setdefault(names[a], []).append((names[b], float(product[a, b])))
        return found

    def first_windows(self, seqs: Sequence[int]) -> dict[int, NDArray[np.float32]]:
        """The vector of the first window of each of these notes that has one."""
        import numpy as np

        if not self.exact:
            found, vectors = self.measured(seqs)
            names: list[int] = found.tolist()
            return {names[at]: vectors[at] for at in reversed(range(len(names)))}
        with self._lock:
            if not len(self.seqs):
                return {}
            places = np.minimum(np.searchsorted(self.seqs, np.array(seqs, np.int64)), len(self.seqs) - 1)
            names = self.seqs[places].tolist()
            return {
                seq: self._held[1][place]
                for seq, name, place in zip(seqs, names, places.tolist(), strict=True)
                if seq == name
            }

    @property
    def _planes(self) -> Sequence[NDArray[np.uint64]]:
        return self._held[2:] if self._halves else self._held[1:]

    def measured(self, seqs: Sequence[int]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The seqs, ascending, and unit vectors of every window of these notes."""
        import numpy as np

        if not self._halves:
            found, vectors, _ = self._decoded(self._store.vectors(sorted(set(seqs))))
            return found, vectors
        with self._lock:
            every, halves = self._held[:2]
        listed = np.unique(np.array(seqs, np.int64))
        first, last = np.searchsorted(every, listed), np.searchsorted(every, listed, side="right")
        places = np.repeat(last - np.cumsum(last - first), last - first) + np.arange(int((last - first).sum()))
        return every[places], _single(halves[places])[0]

    def _load(self, seqs: list[int] | None) -> tuple[NDArray[Any], ...]:
        import numpy as np

        if seqs is None:
            self._foreign, self._centre, self._halves = {}, None, False
        else:
            changed = set(seqs)
            self._foreign = {seq: embedder for seq, embedder in self._foreign.items() if seq not in changed}
        held: list[tuple[NDArray[Any], ...]] = []
        every = iter(self._store.vectors(seqs))
        while chunk := list(islice(every, _CHUNK)):
            found, vectors, foreign = self._decoded(chunk)
            self._foreign.update(foreign)
            held.append((found, *self._formed(vectors)))
            if seqs is None and self.exact and self._too_many(sum(len(each[0]) for each in held)):
                held = [self._in_bits(_joined(held))]
            if seqs is None and self._halves and sum(len(each[0]) for each in held) > HALVES:
                self._halves, held = False, [(each[0], *each[2:]) for each in held]
        if held:
            return _joined(held)
        return np.zeros(0, np.int64), *self._formed(np.zeros((0, self._embedder.dim), np.float32))

    def _formed(self, vectors: NDArray[np.float32]) -> Sequence[NDArray[Any]]:
        """Vectors as they are held."""
        import numpy as np

        if self._centre is None:
            return [vectors]
        return [*([vectors.astype("<f2").view(np.uint16)] if self._halves else []), *_bits(vectors - self._centre).T]

    def _settled(self) -> None:
        if self.exact and self._too_many(len(self.seqs)):
            self._held = self._room = self._in_bits(self._held)
        elif self._halves and len(self.seqs) > HALVES:
            self._halves, self._held = False, (self.seqs, *self._held[2:])
            self._room = (self._room[0], *self._room[2:])
        elif not self.exact and not self._too_many(len(self.seqs)):
            self._held = self._room = self._load(None)

    def _too_many(self, notes: int) -> bool:
        return notes > EXACT and self._store.kind == "note"  # a message is judged with what stands around it

    def _in_bits(self, held: tuple[NDArray[Any], ...]) -> tuple[NDArray[Any], ...]:
        """One bit a number, instead of the vectors: whether it is more than the mean of those that came first. Vectors
        of one embedder have much in common, and that says nothing about which of them is nearest."""
        seqs, vectors = held
        self._centre, self._halves = vectors[:EXACT].mean(axis=0), True
        return seqs, *self._formed(vectors)

    def _decoded(
        self, rows: Iterable[tuple[int, str, bytes]]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32], dict[int, str]]:
        """Seqs and unit vectors of the rows that this embedder can read, in their order, and the others by embedder."""
        import numpy as np

        dim = self._embedder.dim
        parts: Mapping[str, slice] = {self._embedder.id: slice(None), **getattr(self._embedder, "reads", {})}
        alike: dict[tuple[str, int], list[int]] = {}
        listed = list(rows)
        for number, (_, embedder, data) in enumerate(listed):
            alike.setdefault((embedder, len(data)), []).append(number)
        numbers: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
        vectors: list[NDArray[np.float32]] = [np.zeros((0, dim), np.float32)]
        for (embedder, size), some in alike.items():
            part = parts.get(embedder)
            if part is None or size % 2 or len(range(size // 2)[part]) != dim:
                continue
            half = np.frombuffer(b"".join([listed[number][2] for number in some]), "<u2").reshape(len(some), -1)
            single, good = _single(half[:, part])
            numbers.append(np.array(some, np.int64)[good])
            vectors.append(single[good] if not good.all() else single)
        number = np.concatenate(numbers)
        vector = np.concatenate(vectors) if len(vectors) > 2 else vectors[-1]
        if len(alike) > 1:
            order = np.argsort(number, kind="stable")
            number, vector = number[order], vector[order]
        kept = set(number.tolist()) if len(number) < len(listed) else None
        foreign = {seq: embedder for at, (seq, embedder, _) in enumerate(listed) if kept is not None and at not in kept}
        return np.array([seq for seq, _, _ in listed], np.int64)[number], vector, foreign


def _products(vectors: NDArray[np.float32], query: NDArray[np.float32]) -> NDArray[np.float32]:
    """`vectors @ query`, a block at a time. OpenBLAS shares a larger product among threads, which wait for each other
    busily: on two cores of which others use one, 10,000 vectors of 384 numbers took 8 ms and sometimes 80, not 1.3."""
    import numpy as np

    found = np.empty(len(vectors), np.float32)
    rows = max(1, _ONE_THREAD // vectors.shape[1])
    for start in range(0, len(vectors), rows):
        np.dot(vectors[start : start + rows], query, out=found[start : start + rows])
    return found


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

        if len(seqs) == len(self._seqs) and np.array_equal(seqs, self._seqs):
            return self._values.astype(np.float64)
        first, last = np.searchsorted(self._seqs, seqs), np.searchsorted(self._seqs, seqs, side="right")
        there = last > first
        found = np.full(len(seqs), np.nan)
        if there.any():
            bounds = np.stack([first[there], last[there]], axis=1).ravel()
            found[there] = np.maximum.reduceat(np.append(self._values, -1.0), bounds)[::2]
        return found


class Roughly:
    """The same where only bits are held: the notes that seem nearest are measured, and those that are asked for."""

    def __init__(
        self, nearest: Nearest, seqs: NDArray[np.int64], distances: NDArray[np.uint16], query: NDArray[np.float32]
    ) -> None:
        self._nearest, self._seqs, self._distances, self._query = nearest, seqs, distances, query
        self._known: dict[int, float] = {}

    def best(self, count: int, allowed: NDArray[np.int64] | None = None) -> list[int]:
        """Seqs of the `count` nearest notes (among `allowed`, ascending), nearest first."""
        import numpy as np

        seqs, distances = self._seqs, self._distances
        if allowed is not None:
            inside = np.isin(seqs, allowed)
            seqs, distances = seqs[inside], distances[inside]
        wanted = max(count, MEASURED, len(seqs) // ONE_IN)
        if len(seqs) > wanted:
            reached = np.cumsum(np.bincount(distances))
            seqs = seqs[np.flatnonzero(distances <= np.searchsorted(reached, wanted))]
        listed = np.unique(seqs)
        cosines = self.of(listed)
        return listed[np.argsort(-cosines, kind="stable")[:count]].tolist()

    def of(self, seqs: NDArray[np.int64]) -> NDArray[np.float64]:
        """The cosine of each of these notes, by its nearest window; NaN for one without a vector."""
        import numpy as np

        names: list[int] = seqs.tolist()
        if missing := [seq for seq in names if seq not in self._known]:
            found, vectors = self._nearest.measured(missing)
            exact = Cosines(found, _products(vectors, self._query)).of(np.array(missing, np.int64))
            self._known.update(zip(missing, exact.tolist(), strict=True))
        return np.array([self._known[seq] for seq in names], np.float64)


def _joined(held: list[tuple[NDArray[Any], ...]]) -> tuple[NDArray[Any], ...]:
    import numpy as np

    return held[0] if len(held) == 1 else tuple(np.concatenate(each) for each in zip(*held, strict=True))


def _single(half: NDArray[np.uint16]) -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    """float16 numbers, given as their bits, as unit vectors in float32, and which of them are vectors at all: finite
    and not zero. By shifting the bits, since numpy's own conversion takes four times as long."""
    import numpy as np

    bits = half.view(np.int16).astype(np.int32)  # the sign is carried into the upper half
    bits <<= 13
    bits &= -0x70000001
    vectors = bits.view(np.float32)
    vectors *= np.float32(2.0**112)  # what lies between the two formats' exponents; tiny numbers come out right too
    lengths = np.sqrt(np.einsum("ij,ij->i", vectors, vectors))
    good = ((half & 0x7FFF).max(axis=1) < 0x7C00) & (lengths > 0)
    vectors /= np.where(lengths > 0, lengths, 1)[:, None]  # a part of a vector is no unit vector, and float16 rounds
    return vectors, good


def _bits(vectors: NDArray[np.float32]) -> NDArray[np.uint64]:
    """Whether each number is above zero, as bits: shape (n, dim / 64, rounded up)."""
    import numpy as np

    two = np.atleast_2d(vectors)
    packed = np.packbits(two > 0, axis=1)
    padded = np.zeros((len(two), -(-two.shape[1] // 64) * 8), np.uint8)
    padded[:, : packed.shape[1]] = packed
    return padded.view(np.uint64)


def _distances(planes: Sequence[NDArray[np.uint64]], asked: NDArray[np.uint64]) -> NDArray[np.uint16]:
    """How many bits of each window differ from those asked for. `planes`: for each word of 64 bits that of all."""
    import numpy as np

    found = np.zeros(len(planes[0]), np.uint16)
    differ, ones = np.empty(_BLOCK, np.uint64), np.empty(_BLOCK, np.uint8)
    for start in range(0, len(found), _BLOCK):
        block = found[start : start + _BLOCK]
        for plane, word in zip(planes, asked, strict=True):
            np.bitwise_xor(plane[start : start + _BLOCK], word, out=differ[: len(block)])
            np.bitwise_count(differ[: len(block)], out=ones[: len(block)])
            block += ones[: len(block)]
    return found
