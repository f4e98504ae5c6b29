"""`Outline`: what recall knows of every note before it reads one: how long it is, who said it and, for a message, in
which conversation and what was said before and after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import analysis
from .following import Following

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .stores import Shelf

NOBODY = -1


class Outline(Following):
    """One array each, in the order of `seqs`."""

    def __init__(self, store: Shelf) -> None:
        super().__init__(store)
        self._numbers: dict[str, int] = {}  # of speakers
        self._speakers: list[frozenset[str]] = []  # the words of their names
        self._sessions: dict[str, int] = {}
        self._usual_length = 1.0
        self._before: NDArray[np.int64] | None = None
        self._after: NDArray[np.int64] | None = None

    @property
    def lengths(self) -> NDArray[np.float32]:
        """Of the index terms, in bytes."""
        return self._held[1]

    @property
    def usual_length(self) -> float:
        """The mean of the lengths, at least 1."""
        return self._usual_length

    @property
    def speakers(self) -> NDArray[np.int32]:
        """Who said it, as a number; `NOBODY` where that is not known."""
        return self._held[2]

    @property
    def sessions(self) -> NDArray[np.int32]:
        return self._held[3]

    @property
    def before(self) -> NDArray[np.int64]:
        """The place in these arrays of the message before it in its session; -1 for the first."""
        self._order()
        assert self._before is not None
        return self._before

    @property
    def after(self) -> NDArray[np.int64]:
        self._order()
        assert self._after is not None
        return self._after

    def named(self, terms: Iterable[str]) -> list[int]:
        """The speakers whose name is among these words: all of it, or a part that no other speaker bears."""
        asked = set(terms)
        parts = [each & asked for each in self._speakers]
        return [
            number
            for number, (part, name) in enumerate(zip(parts, self._speakers, strict=True))
            if part and (part == name or sum(bool(part & other) for other in self._speakers) == 1)
        ]

    def places(self, seqs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where these notes stand in the arrays; they must be there."""
        import numpy as np

        return np.searchsorted(self.seqs, seqs)

    def _load(self, seqs: list[int] | None) -> tuple[NDArray[Any], ...]:
        import numpy as np

        # By columns: what is done for each of a million notes is done in C.
        found, lengths, names, sessions, numbers = list(zip(*self._store.outline(seqs), strict=True)) or [()] * 5
        speaker = {name: self._speaker(name) for name in dict.fromkeys(names)}
        session = {each: self._sessions.setdefault(each, len(self._sessions)) for each in dict.fromkeys(sessions)}
        return (
            np.array(found, np.int64),
            np.array(lengths, np.float32),
            np.array([speaker[name] for name in names], np.int32),
            np.array([session[each] for each in sessions], np.int32),
            np.array(numbers, np.int64),
        )

    def _speaker(self, name: str | None) -> int:
        if name is None:
            return NOBODY
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self._numbers)
            self._speakers.append(frozenset(analysis.terms(name)))
        return number

    def _settled(self) -> None:
        self._before = self._after = None
        self._usual_length = max(1.0, float(self.lengths.mean())) if len(self.lengths) else 1.0

    def _order(self) -> None:
        import numpy as np

        if self._before is not None:
            return
        numbers = self._held[4]
        order = np.lexsort((numbers, self.sessions))
        follows = self.sessions[order[1:]] == self.sessions[order[:-1]]
        before, after = np.full(len(order), -1, np.int64), np.full(len(order), -1, np.int64)
        before[order[1:][follows]] = order[:-1][follows]
        after[order[:-1][follows]] = order[1:][follows]
        self._before, self._after = before, after
