"""The body of a request, read whole before anything looks at it: it may be neither too large nor too slow."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

BODY_WITHIN = 30.0  # seconds


class TooLarge(Exception): ...


class TooSlow(Exception): ...


class EndedEarly(Exception): ...


async def whole(receive: Receive, headers: Iterable[tuple[bytes, bytes]], largest: int) -> tuple[bytes, Receive]:
    """(the body, what gives it again to whom this request is handed on to). TooLarge beyond `largest` bytes, at once
    where the headers say so; TooSlow if it takes more than `BODY_WITHIN`; EndedEarly if its sender has gone."""
    if int(dict(headers).get(b"content-length", b"0")) > largest:
        raise TooLarge
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_WITHIN):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise EndedEarly
                data += message.get("body", b"")
                if len(data) > largest:
                    raise TooLarge
                if not message.get("more_body"):
                    break
    except TimeoutError:
        raise TooSlow from None
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": bytes(data), "more_body": False}

    return bytes(data), again
