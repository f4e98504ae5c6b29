"""MCP over stdin and stdout: one message a line, and nothing but messages on stdout. Not for HTTP: `mcp.py`.

The SDK's own transport drops what it cannot read without an answer, gives up calls under way when stdin ends, and
cannot be stopped while it waits for a line. This one answers, finishes, and stops.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, BinaryIO, cast

import anyio
import anyio.to_thread
from mcp.shared.message import SessionMessage
from mcp.types import (
    INVALID_REQUEST,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

LONGEST_LINE = 4 * 2**20
"""Bytes in one message: what the SDK allows a body over HTTP."""
LONGEST_ID = 256
"""Characters in the id of a request; it is sent back with the answer."""
_LAST_CALLS = 5.0  # seconds without any answer after which calls under way are given up, once stdin has ended


async def serve(run: Callable[[Any, Any], Awaitable[None]], lines: BinaryIO, wire: BinaryIO) -> None:
    """Runs a server on a pair of files until the lines end or a signal comes, and what was asked for is answered."""
    to_server, read = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    write, from_server = anyio.create_memory_object_stream[SessionMessage](0)
    refusals = write.clone()
    owed: set[int | str] = set()  # ids of requests that have no answer yet
    stop, written = anyio.Event(), anyio.Event()
    last_answer = 0.0
    loop = asyncio.get_running_loop()

    async def take(line: bytes) -> None:
        try:
            message = jsonrpc_message_adapter.validate_json(line, by_name=False)
        except ValidationError as error:
            unreadable = error.errors()[0]["type"] == "json_invalid"
            await refusals.send(SessionMessage(_refusal(None if unreadable else _decoded(line))))
            return
        if isinstance(message, JSONRPCRequest):
            if not _fits(message.id):
                about = f"the id is too long: at most {LONGEST_ID} characters, or 64 bits, are sent back"
                await refusals.send(SessionMessage(_error(None, INVALID_REQUEST, about)))
                return
            owed.add(message.id)
        elif isinstance(message, JSONRPCNotification) and "id" in (_decoded(line) or ()):
            await refusals.send(SessionMessage(_refusal(_decoded(line))))  # a request, but for an id that is none
            return
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            owed.discard((message.params or {}).get("requestId", ""))  # it will have no answer
        await to_server.send(SessionMessage(message))

    def read_lines() -> None:
        try:
            while line := lines.readline(LONGEST_LINE + 1):
                if len(line) > LONGEST_LINE:
                    while line and not line.endswith(b"\n"):
                        line = lines.readline(LONGEST_LINE)
                    about = f"the message has more than {LONGEST_LINE:,} bytes"
                    refusal = refusals.send(SessionMessage(_error(None, INVALID_REQUEST, about)))
                    asyncio.run_coroutine_threadsafe(refusal, loop).result()
                elif line.strip():
                    # Waiting here is what keeps a client from filling the memory.
                    asyncio.run_coroutine_threadsafe(take(line), loop).result()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError, OSError, ValueError):
            pass  # the server or the pipe has gone
        finally:
            loop.call_soon_threadsafe(stop.set)

    async def write_answers() -> None:
        nonlocal last_answer
        async with from_server:
            async for sent in from_server:
                message = sent.message
                if isinstance(message, JSONRPCResponse | JSONRPCError) and message.id is not None:
                    owed.discard(message.id)
                    last_answer = anyio.current_time()
                try:
                    await anyio.to_thread.run_sync(_put, wire, message)
                except OSError:  # nobody listens any more
                    owed.clear()
                    stop.set()
        written.set()

    async def end() -> None:
        nonlocal last_answer
        await stop.wait()
        last_answer = max(last_answer, anyio.current_time())
        while owed and anyio.current_time() < last_answer + _LAST_CALLS:
            await anyio.sleep(0.01)
        await to_server.aclose()

    async def heed_signals() -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
            async for _ in signals:
                if stop.is_set():
                    os._exit(1)  # asked twice
                stop.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(write_answers)
        tasks.start_soon(end)
        if sys.platform != "win32":
            tasks.start_soon(heed_signals)
        threading.Thread(target=read_lines, name="diarist-stdin", daemon=True).start()
        async with refusals:
            await run(read, write)
        with anyio.move_on_after(1):
            await written.wait()
        tasks.cancel_scope.cancel()


def _put(wire: BinaryIO, message: JSONRPCMessage) -> None:
    wire.write(message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n")
    wire.flush()


def _refusal(found: Any) -> JSONRPCError:
    """What JSON-RPC answers to a line that is no message, under its id where it has one that can be sent back; `found`
    is what was read, None where it is no JSON."""
    if found is None:
        return _error(None, PARSE_ERROR, "this line is not JSON")
    if isinstance(found, list):
        return _error(None, INVALID_REQUEST, "send one message a line: batches are no longer part of MCP")
    id: Any = cast("dict[str, Any]", found).get("id") if isinstance(found, dict) else None
    known = isinstance(id, int | str) and not isinstance(id, bool) and _fits(id)
    return _error(id if known else None, INVALID_REQUEST, "this line is JSON, but no JSON-RPC 2.0 message")


def _decoded(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # such as a number of 5,000 digits, which other readers take
        return None


def _fits(id: int | str) -> bool:
    return len(id) <= LONGEST_ID if isinstance(id, str) else abs(id) < 2**63


def _error(id: int | str | None, code: int, about: str) -> JSONRPCError:
    return JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=code, message=about))
