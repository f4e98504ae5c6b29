"""What a server does about vectors in the background: it loads the embedder, and makes the vectors still owed.

A client waits seconds for its server to start, and an embedder may take a minute to load or be down for an hour. Until
it answers, texts are kept and found by their words, as everywhere; here nobody waits for it either.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from ..embedders import Embedder, arrived
from ..errors import DiaristError, EmbedderError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..memory import Memory

T = TypeVar("T")

_log = logging.getLogger("diarist.worker")
_PATIENCE = 0.5  # seconds that a call waits for an embedder that is just loading
_EVERY = 5.0  # seconds between two rounds; while the embedder is down doubled each time, up to:
_LONGEST_WAIT = 60.0  # seconds
_LOOK_AGAIN = 60.0  # seconds; another process may have left vectors owed


class Loading:
    """An embedder that is loaded in the background, and left alone after a failure until it answers again. Meanwhile
    it raises `EmbedderError` at once."""

    def __init__(self, inner: Embedder) -> None:
        self._inner = inner
        self._ready = threading.Event()
        self._why = f"{inner.id} is still being loaded"
        self.failed = threading.Event()
        """Set when a call failed: whoever waits for this should try `load`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # window, background, drifts and the like, where it has them

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def dim(self) -> int:
        return self._inner.dim

    @property
    def ready(self) -> bool:
        """Whether it answered when it was last asked."""
        return self._ready.is_set()

    def load(self) -> None:
        """Asks it for a first vector, however long that takes. EmbedderError if there is none."""
        try:
            self._inner.embed_query("ready")
        except Exception as error:
            self._why = f"{self.id} does not answer ({error})"
            self.failed.set()
            raise
        self.failed.clear()
        self._ready.set()

    def embed_notes(self, texts: list[str], /) -> NDArray[np.float32]:
        return self._asked(self._inner.embed_notes, texts)

    def embed_query(self, text: str, /) -> NDArray[np.float32]:
        return self._asked(self._inner.embed_query, text)

    def _asked(self, ask: Callable[[Any], T], what: Any) -> T:
        if not self._ready.wait(0 if self.failed.is_set() else _PATIENCE):
            raise EmbedderError(self._why)
        try:
            return ask(what)
        except ValueError:
            raise  # the text's fault
        except Exception as error:
            if not isinstance(error, EmbedderError) or arrived(error) is None:
                self._why = f"{self.id} does not answer ({error})"
                self._ready.clear()
                self.failed.set()
            raise


class Worker:
    """The one worker, a thread `diarist-vectors`. It loads the memory's embedder if that is `Loading`, and completes
    the diaries that are named to it; with `everyone` all that there are at the start, too. The log says how it goes,
    without names or texts."""

    def __init__(self, memory: Memory, *, everyone: bool = False, every: float | None = None) -> None:
        self._memory, self._everyone, self._every = memory, everyone, every or _EVERY
        self._used, self._named = set[str](), set[str]()
        self._owed: dict[str, int] = {}
        self._made, self._failing = 0, False
        self._stopped = threading.Event()
        embedder = memory.embedder
        self._failed = embedder.failed if isinstance(embedder, Loading) else threading.Event()
        self._thread = threading.Thread(target=self._run, name="diarist-vectors", daemon=True)

    def start(self) -> None:
        """Begins, if it has not yet. Call it from one thread."""
        if self._thread.ident is None:
            self._thread.start()

    def stop(self, timeout: float = 0.0) -> bool:
        """Stops it after the batch it is at; whether it has ended in time. What is done stays done. It may be loading a
        model, which cannot be interrupted."""
        self._stopped.set()
        self._failed.set()
        if timeout and self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def look_at(self, owner: str) -> None:
        """Somebody uses this diary."""
        self._used.add(owner)
        self._named.add(owner)

    def forget(self, owner: str) -> None:
        """The owner was erased."""
        self._used.discard(owner)
        self._named.discard(owner)
        self._owed.pop(owner, None)

    @property
    def state(self) -> dict[str, Any]:
        """`made`: vectors since the start. `waiting`: texts without. `failing`: the embedder does not answer."""
        return {
            "working": self._thread.is_alive(),
            "made": self._made,
            "waiting": sum(self._owed.copy().values()),
            "failing": self._failing,
        }

    def _run(self) -> None:
        if self._everyone:
            with suppress(DiaristError):
                self._named.update(self._memory.owners())
        pause, looked = self._every, time.monotonic()
        while not self._stopped.is_set():
            if time.monotonic() - looked > _LOOK_AGAIN:
                looked = time.monotonic()
                self._named.update(self._used.copy())
            self._failing = not self._loaded(pause) or not self._all_made()
            if self._failing:
                self._stopped.wait(pause)
                pause = min(_LONGEST_WAIT, 2 * pause)
            else:
                pause = self._every
                self._failed.wait(pause)

    def _loaded(self, pause: float) -> bool:
        embedder = self._memory.embedder
        if not isinstance(embedder, Loading) or embedder.ready:
            return True
        try:
            embedder.load()
        except Exception as error:
            # Its text may hold a note or an address.
            _log.warning("the embedder does not answer (%s); trying again in %d s", type(error).__name__, pause)
            return False
        _log.info("the embedder is ready")
        return True

    def _all_made(self) -> bool:
        """One round; whether nothing is owed after it."""
        for owner in sorted(self._named.copy()):
            if self._stopped.is_set():
                break
            self._named.discard(owner)
            self._complete(owner)
        self._named.update(self._owed.copy())
        return not self._owed

    def _complete(self, owner: str) -> None:
        before = self._made
        try:
            while not self._stopped.is_set():
                made, owed = self._memory.diary(owner).catch_up(1.0)
                self._made += made
                if owed:
                    self._owed[owner] = owed
                else:
                    self._owed.pop(owner, None)
                if not made or not owed:
                    break
        except DiaristError as error:  # busy or damaged: `doctor` says which, and whoever uses that diary is told
            self._owed.pop(owner, None)
            _log.warning("vectors are still owed (%s)", type(error).__name__)
        if self._made > before:
            _log.info("made the vectors of %d texts that were owed them", self._made - before)
