"""`Held`: what is in memory of each diary, within a budget. The least recently used go first, and are loaded again when
they are asked for.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar, cast

from .following import Following
from .forks import renew_after_fork

MOST_BYTES = 512 * 2**20
_BESIDES = 4_096  # bytes of the objects around a diary's arrays, about

Key = tuple[str, str, str]
"""(what, owner, notes or messages)"""
F = TypeVar("F", bound=Following)


class Held:
    """Safe to share between threads."""

    def __init__(self) -> None:
        self._held: OrderedDict[Key, Following] = OrderedDict()
        self._sizes: dict[Key, int] = {}
        self._nbytes = 0
        self._mutex = threading.Lock()
        renew_after_fork(self, "_mutex", threading.Lock)

    @property
    def nbytes(self) -> int:
        """Memory held, in bytes."""
        return self._nbytes

    def get(self, key: Key, make: Callable[[], F]) -> F:
        """What is held under this key, else made anew; in step with its store."""
        with self._mutex:
            found = cast("F", self._held.get(key) or make())
            self._held[key] = found
            self._held.move_to_end(key)
        found.sync()
        with self._mutex:
            if self._held.get(key) is found:
                size = found.nbytes + _BESIDES
                self._nbytes += size - self._sizes.get(key, 0)
                self._sizes[key] = size
            while self._nbytes > MOST_BYTES and len(self._held) > 2:  # of one diary vectors and outline always stay
                self._drop(next(iter(self._held)))
        return found

    def forget(self, owner: str) -> None:
        with self._mutex:
            for key in [key for key in self._held if key[1] == owner]:
                self._drop(key)

    def clear(self) -> None:
        with self._mutex:
            for key in list(self._held):
                self._drop(key)

    def _drop(self, key: Key) -> None:
        del self._held[key]
        self._nbytes -= self._sizes.pop(key, 0)
