"""HTTP/1.1 as uvicorn speaks it, with an end to waiting: for the headers of a request, and for the rest of a body that
has been refused already. How long the body of a request may take, each server says itself."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

LARGEST_HEADERS = 16_384  # bytes
HEADERS_WITHIN = 10.0  # seconds


class Protocol(H11Protocol):
    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._watch()

    def _watch(self) -> None:
        answered = self.cycle is None or self.cycle.response_complete  # pyright: ignore[reportUnnecessaryComparison]
        waiting = answered and self.conn.their_state in (h11.IDLE, h11.SEND_BODY)
        if not waiting and self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        elif waiting and self._deadline is None:
            self._deadline = self.loop.call_later(HEADERS_WITHIN, self.transport.close)
