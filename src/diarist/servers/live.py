"""What happens to a diary, as it happens, to whoever listens over HTTP: a bus for each owner, and a stream of it.

What goes through this server is told in full. What other programs do is seen by the diary's position, which grows with
every change, and told as `Changed`.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

from ..diary import Diary
from ..errors import DiaristError
from ..events import EventBus, Source, as_data

LISTENERS, LISTENERS_EACH = 64, 8  # streams at once: over all owners, and of one
_WAITING = 256  # events that a slow reader may be behind
_LOOK_EVERY = 1.0  # seconds
_SIGN_OF_LIFE = 15.0  # seconds


class Live:
    """The streams that are open."""

    def __init__(self) -> None:
        self._buses: dict[str, tuple[Source, int]] = {}
        self._mutex = threading.Lock()
        self._count = 0
        self.stopping = threading.Event()

    def full(self, owner: str) -> bool:
        """Whether there can be no more streams, or no more of this owner."""
        with self._mutex:
            return self._count >= LISTENERS or self._buses.get(owner, (None, 0))[1] >= LISTENERS_EACH

    def tell(self, owner: str, kind: type[Any], fields: Callable[[], dict[str, Any]]) -> None:
        """Tells who listens to this owner. What it is, is only worked out if somebody does."""
        with self._mutex:
            source, _ = self._buses.get(owner, (None, 0))
        if source is not None:
            source.emit(kind, **fields())

    async def stream(self, diary: Diary) -> AsyncIterator[bytes]:
        """Server-sent events of one diary, until the reader leaves, is too slow, or the server stops."""
        loop, owner = asyncio.get_running_loop(), diary.owner
        queue: asyncio.Queue[dict[str, Any] | None] = asyncio.Queue(_WAITING)

        def put(data: dict[str, Any] | None) -> None:
            with suppress(asyncio.QueueFull):
                queue.put_nowait(data)

        def heard(event: Any) -> None:  # in whatever thread it happens
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(put, as_data(event))

        leave = self._join(owner, heard)
        try:
            position, number, silent = -1, 0, 0.0
            while not self.stopping.is_set() and not queue.full():
                now = await asyncio.to_thread(_position, diary, position)
                if now != position:
                    position, number, silent = now, number + 1, 0.0
                    yield _sent("Changed", number, {"position": now})
                try:
                    async with asyncio.timeout(_LOOK_EVERY):
                        data = await queue.get()
                except TimeoutError:
                    silent += _LOOK_EVERY
                    if silent >= _SIGN_OF_LIFE:
                        silent = 0.0
                        yield b": still here\n\n"
                    continue
                while data is not None:
                    number, silent = number + 1, 0.0
                    yield _sent(data["event"], number, data)
                    data = None if queue.empty() else queue.get_nowait()
        finally:
            leave()

    def _join(self, owner: str, listener: Callable[[Any], object]) -> Callable[[], None]:
        with self._mutex:
            source, listeners = self._buses.get(owner) or (Source(EventBus(), ""), 0)
            self._buses[owner] = source, listeners + 1
            self._count += 1
        unsubscribe = source.bus.subscribe(listener)

        def leave() -> None:
            unsubscribe()
            with self._mutex:
                source, listeners = self._buses.pop(owner)
                if listeners > 1:
                    self._buses[owner] = source, listeners - 1
                self._count -= 1

        return leave


def _position(diary: Diary, last: int) -> int:
    try:
        return diary.position
    except DiaristError:  # busy, or damaged: who asks for the notes is told
        return last


def _sent(name: str, number: int, data: dict[str, Any]) -> bytes:
    """JSON has no line break in it, so no text can begin an event of its own."""
    return f"event: {name}\nid: {number}\ndata: {json.dumps(data)}\n\n".encode()
