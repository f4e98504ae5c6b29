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
        self._before: NDArray[np.int64] | None = None
        self._after: NDArray[np.int64] | None = None

    @property
    def lengths(self) -> NDArray[np.float32]:
        """Of the index terms, in bytes."""
        return self._held[1]

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

        found = self._store.outline(seqs)
        return (
            np.array([each.seq for each in found], np.int64),
            np.array([each.length for each in found], np.float32),
            np.array([self._speaker(each.speaker) for each in found], np.int32),
            np.array([self._sessions.setdefault(each.session, len(self._sessions)) for each in found], np.int32),
            np.array([each.number for each in found], np.int64),
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
