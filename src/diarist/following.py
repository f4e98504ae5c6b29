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
    """Arrays of one length; the first is the notes' seqs, ascending, and a note may stand several times."""

    def __init__(self, store: Shelf) -> None:
        self._store = store
        self._lock = threading.RLock()
        renew_after_fork(self, "_lock", threading.RLock)
        self._position: int | None = None
        self._diary: object = None
        self._held: tuple[NDArray[Any], ...] = ()

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return sum(each.nbytes for each in self._held)

    @property
    def seqs(self) -> NDArray[np.int64]:
        return self._held[0]

    def sync(self) -> None:
        """Takes in what was written since the last call, by anyone."""
        import numpy as np

        with self._lock:
            diary, position = (self._store.secret, self._store.setting("edition")), self._store.position()
            if self._position is None or diary != self._diary:  # first use; or erased and begun anew, or restored
                self._held = self._load(None)
                self._settled()
            elif position > self._position:
                changed = np.array(sorted(set(self._store.changed(self._position))), np.int64)
                self._held = _merged(self._held, self._load(changed.tolist()), changed)
                self._settled()
            self._diary, self._position = diary, position

    def _load(self, seqs: list[int] | None) -> tuple[NDArray[Any], ...]:
        """The arrays for these notes, or for all."""
        raise NotImplementedError

    def _settled(self) -> None:
        """Called when the arrays have changed."""


def _merged(
    held: tuple[NDArray[Any], ...], fresh: tuple[NDArray[Any], ...], changed: NDArray[np.int64]
) -> tuple[NDArray[Any], ...]:
    import numpy as np

    stays = ~np.isin(held[0], changed)
    if not stays.all():
        held = tuple(each[stays] for each in held)
    both = tuple(np.concatenate(pair) for pair in zip(held, fresh, strict=True))
    if len(held[0]) and len(fresh[0]) and fresh[0][0] <= held[0][-1]:
        order = np.argsort(both[0], kind="stable")
        both = tuple(each[order] for each in both)
    return both
