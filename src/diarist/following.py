"""`Following`: something about every note of a shelf, in memory as arrays, loaded at the first question and kept in
step with what this and other processes write since.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from .forks import renew_after_fork

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .stores import Shelf


class Following:
    """Arrays of one length; the first is the notes' seqs, ascending, and a note may stand several times.

    What was handed out stays as it was: a new note is written behind the end of the arrays, where there is room for it,
    and any other change makes new arrays.
    """

    def __init__(self, store: Shelf) -> None:
        self._store = store
        self._lock = threading.RLock()
        renew_after_fork(self, "_lock", threading.RLock)
        self._position: int | None = None
        self._diary: object = None
        self._held: tuple[NDArray[Any], ...] = ()
        self._room: tuple[NDArray[Any], ...] = ()  # what `held` are the beginnings of

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return sum(each.nbytes for each in self._room)

    @property
    def seqs(self) -> NDArray[np.int64]:
        return self._held[0]

    def sync(self) -> None:
        """Takes in what was written since the last call, by anyone."""
        import numpy as np

        with self._lock:
            diary, position = (self._store.secret, self._store.setting("edition")), self._store.position()
            if self._position is None or diary != self._diary:  # first use; or erased and begun anew, or restored
                self._held = self._room = self._load(None)
                self._settled()
            elif position > self._position:
                changed = np.array(sorted(set(self._store.changed(self._position))), np.int64)
                self._take_in(self._load(changed.tolist()), changed)
                self._settled()
            self._diary, self._position = diary, position

    def _take_in(self, fresh: tuple[NDArray[Any], ...], changed: NDArray[np.int64]) -> None:
        import numpy as np

        first, last = np.searchsorted(self.seqs, changed), np.searchsorted(self.seqs, changed, side="right")
        known = bool((last > first).any())
        if not known and not len(fresh[0]):
            return
        if not known and (not len(self.seqs) or fresh[0][0] > self.seqs[-1]):
            self._append(fresh)
            return
        stays = np.ones(len(self.seqs), bool)
        for start, end in zip(first.tolist(), last.tolist(), strict=True):
            stays[start:end] = False
        both = tuple(np.concatenate([old[stays], new]) for old, new in zip(self._held, fresh, strict=True))
        order = np.argsort(both[0], kind="stable")
        self._held = self._room = tuple(each[order] for each in both)

    def _append(self, fresh: tuple[NDArray[Any], ...]) -> None:
        import numpy as np

        count, end = len(self.seqs), len(self.seqs) + len(fresh[0])
        if end > len(self._room[0]):
            room = end + max(_LEAST_ROOM, end // 4)
            self._room = tuple(np.empty((room, *each.shape[1:]), each.dtype) for each in self._held)
            for old, new in zip(self._held, self._room, strict=True):
                new[:count] = old
        for each, new in zip(self._room, fresh, strict=True):
            each[count:end] = new
        self._held = tuple(each[:end] for each in self._room)

    def _load(self, seqs: list[int] | None) -> tuple[NDArray[Any], ...]:
        """The arrays for these notes, or for all."""
        raise NotImplementedError

    def _settled(self) -> None:
        """Called when the arrays have changed."""


_LEAST_ROOM = 64  # notes
