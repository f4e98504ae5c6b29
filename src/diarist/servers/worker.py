"""The one visible worker: it makes the vectors of notes that were saved while the embedder was down."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

from ..errors import DiaristError
from ..memory import Memory

_EVERY = 5.0  # seconds between two rounds
_LONGEST_WAIT = 300.0  # seconds, while the embedder stays down


class Worker:
    """A thread, `diarist-vectors`. It loads the bundled embedder and walks every diary once, then those that are named
    to it."""

    def __init__(self, memory: Memory, every: float = _EVERY) -> None:
        self._memory, self._every = memory, every
        self._named = set[str]()
        self._owed: dict[str, int] = {}
        self._made, self._failing = 0, False
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="diarist-vectors", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops it after the batch it is at. What is done stays done."""
        self._stopped.set()

    def look_at(self, owner: str) -> None:
        """Somebody wrote to this diary."""
        self._named.add(owner)

    def forget(self, owner: str) -> None:
        """The owner was erased."""
        self._named.discard(owner)
        self._owed.pop(owner, None)

    @property
    def state(self) -> dict[str, Any]:
        """`made`: vectors since the start. `waiting`: notes without. `failing`: the embedder does not answer."""
        return {
            "working": self._thread.is_alive(),
            "made": self._made,
            "waiting": sum(self._owed.copy().values()),
            "failing": self._failing,
        }

    def _run(self) -> None:
        from ..embedders.bundled import E5, Pair, Use

        if isinstance(self._memory.embedder, Use | E5 | Pair):  # the first request need not wait until it is loaded
            with suppress(DiaristError):
                self._memory.embedder.embed_query("ready?")
        with suppress(DiaristError):
            self._named.update(self._memory.owners())
        pause = self._every
        while not self._stopped.is_set():
            for owner in sorted(self._named.copy()):
                if self._stopped.is_set():
                    return
                self._named.discard(owner)
                self._complete(owner)
            self._failing = bool(self._owed)
            self._named.update(self._owed.copy())
            pause = min(_LONGEST_WAIT, pause * 2) if self._failing else self._every
            self._stopped.wait(pause)

    def _complete(self, owner: str) -> None:
        try:
            while not self._stopped.is_set():
                made, owed = self._memory.diary(owner).catch_up(1.0)
                self._made += made
                if owed:
                    self._owed[owner] = owed
                else:
                    self._owed.pop(owner, None)
                if not made or not owed:
                    return
        except DiaristError:  # busy or damaged: `doctor` says which, and whoever uses that diary is told
            self._owed.pop(owner, None)
