"""What a server does about vectors in the background: it loads the embedder, and makes the vectors still owed.

A client waits seconds for its server to start, and an embedder may take a minute to load or be down for an hour. Until
it answers, texts are kept and found by their words, as everywhere; here nobody waits for it either.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ..embedders import Embedder, arrived
from ..errors import DiaristError, EmbedderError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from ..memory import Memory

T = TypeVar("T")

_log = logging.getLogger("diarist.pending")
_PATIENCE = 0.5  # seconds that a call waits for an embedder that is just loading
_TRY_AGAIN = 5.0  # seconds after a failure, doubled each time up to:
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
            raise
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


class Pending:
    """The one worker, in a thread of its own. It says on the log what it made, and for whom nothing more is owed."""

    def __init__(self, memory: Memory, embedder: Loading) -> None:
        self._memory, self._embedder = memory, embedder
        self._owners: set[str] = set()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, name="diarist-pending", daemon=True)

    def start(self) -> None:
        """Begins, if it has not yet. Call it from one thread."""
        if self._thread.ident is None:
            self._thread.start()

    def end(self, timeout: float = 1.0) -> bool:
        """Ends it; whether it has ended in time. It may be loading a model, which cannot be interrupted."""
        self._end.set()
        self._embedder.failed.set()
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def look_after(self, owner: str) -> None:
        """This diary too, from now on."""
        self._owners.add(owner)

    def _work(self) -> None:
        wait = _TRY_AGAIN
        while not self._end.is_set():
            if not self._embedder.ready:
                try:
                    self._embedder.load()
                except Exception as error:
                    # Its text may hold a note or an address.
                    _log.warning("the embedder does not answer (%s); trying again in %d s", type(error).__name__, wait)
                    self._embedder.failed.set()
                    self._end.wait(wait)
                    wait = min(2 * wait, _LOOK_AGAIN)
                    continue
                _log.info("the embedder is ready")
            wait = _TRY_AGAIN
            self._embedder.failed.clear()
            self._catch_up()
            if self._embedder.ready:
                self._embedder.failed.wait(_LOOK_AGAIN)

    def _catch_up(self) -> None:
        for owner in list(self._owners):
            try:
                made, _ = self._memory.diary(owner).catch_up()
            except DiaristError as error:
                _log.warning("vectors are still owed (%s)", type(error).__name__)
                continue
            if made:
                _log.info("made the vectors of %d texts that were owed them", made)
