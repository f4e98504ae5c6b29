"""MCP over streamable HTTP: the same server behind an address, with tokens, and the SDK's check of Host and Origin.

Whose diary a request is about, and whether it may be written to, is settled by its token: one for one owner, or those
of `tokens.py`, which `diarist serve` takes too.
"""

from __future__ import annotations

import hmac
import logging
import os
import secrets
import signal
import socket
import stat
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import StoreError
from ..memory import Memory
from . import body
from .limits import Rate, retry_after, strict_json
from .mcp import CALLER, server
from .protocol import LARGEST_HEADERS, Protocol
from .stdio import LONGEST_LINE
from .tokens import Caller, Tokens, bearer
from .worker import Worker

PATH = "/mcp"
_SHORTEST_TOKEN = 16  # characters

CallerOf = Callable[[str | None], Caller | None]
"""Whom a bearer token stands for, or no token at all; None if it stands for nobody."""


def no_token(owner: str) -> CallerOf:
    """Whoever sends no token is let in to this diary."""
    return lambda sent: Caller("write", owner) if sent is None else None


def one_token(token: str, owner: str) -> CallerOf:
    """One token for one owner."""
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"the token must be at least {_SHORTEST_TOKEN} characters of ASCII without spaces")
    known, caller = token.encode(), Caller("write", owner)
    return lambda sent: caller if sent is not None and hmac.compare_digest(sent.encode(), known) else None


def also(first: CallerOf, tokens: Tokens) -> CallerOf:
    """Whom `first` knows, and each owner with a token that counts now. StoreError if those cannot be read."""

    def caller_of(sent: str | None) -> Caller | None:
        return first(sent) or (None if sent is None else tokens.caller(sent, datetime.now(UTC)))

    return caller_of


def token_in(path: Path) -> str:
    """The token in a file that nobody else can read; a new one is made there if there is no file.
    ValueError if others can read it."""
    try:
        with os.fdopen(os.open(path, os.O_RDONLY), encoding="utf-8", errors="replace") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            if os.name == "posix" and mode & 0o077:
                raise ValueError(f"{path} holds a token and others can read it (mode {mode:o}): chmod 600 it")
            return file.read(4_096).strip()
    except FileNotFoundError:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        token = secrets.token_urlsafe(32)
        try:
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                file.write(token + "\n")
        except FileExistsError:  # another server made it in this moment
            return token_in(path)
        return token


def app(
    memory: Memory,
    worker: Worker,
    caller_of: CallerOf,
    port: int,
    names: Iterable[str],
    *,
    a_second: float = 100.0,
    ticks: Callable[[], float] = time.monotonic,
) -> ASGIApp:
    """The ASGI app. `names`: what `Host` may say, without the port; `address.names_for` gives them. `a_second`:
    requests of one token; twice that at once. `ticks` counts seconds."""
    names = sorted(names)
    addresses = [f"{name}:{port}" for name in names] + ([*names] if port in (80, 443) else [])
    guarded = server(memory, None, worker).streamable_http_app(
        streamable_http_path=PATH,
        # An answer is one piece of JSON, and no client holds a session here that a restart could lose.
        json_response=True,
        stateless_http=True,
        transport_security=TransportSecuritySettings(
            allowed_hosts=addresses,
            allowed_origins=[f"{scheme}://{each}" for each in addresses for scheme in ("http", "https")],
        ),
    )
    logging.getLogger("sse_starlette").setLevel(logging.INFO)  # below that it writes out what it sends

    rate = Rate(a_second)

    async def by_token(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            caller = _caller(scope, caller_of)
            if not isinstance(caller, Caller):
                await caller(scope, receive, send)
                return
            if (wait := rate.wait(caller.id or "", ticks())) > 0:  # the one token for one owner has no id
                too_many = f"Too many requests with this token: wait {wait:.2f} s, then go on more slowly.\n"
                await PlainTextResponse(too_many, 429, retry_after(wait))(scope, receive, send)
                return
            scope[CALLER] = caller
            try:
                receive = await _body(scope, receive)
            except Refused as refused:
                await refused.answer(scope, receive, send)
                return
        await guarded(scope, receive, send)

    return by_token


class Refused(Exception):
    """An answer that is given in the server's place."""

    def __init__(self, status: int, about: str) -> None:
        self.answer = PlainTextResponse(f"{about}\n", status)


async def _body(scope: Scope, receive: Receive) -> Receive:
    """What gives the body again, once it has been read and looked at."""
    if scope["method"] == "GET":
        raise Refused(405, "There is no stream to listen to: each answer comes with its request.")
    try:
        data, again = await body.whole(receive, scope["headers"], LONGEST_LINE)
        if data:
            strict_json(data)
    except body.TooLarge:
        raise Refused(413, f"The body is larger than {LONGEST_LINE:,} bytes.") from None
    except body.TooSlow:
        raise Refused(408, f"The body did not come within {body.BODY_WITHIN:g} s.") from None
    except (body.EndedEarly, ValueError) as error:
        raise Refused(400, str(error) or "The body ended early.") from None
    return again


def _caller(scope: Scope, caller_of: CallerOf) -> Caller | Response:
    """Who is calling, or what they are told."""
    try:
        caller = caller_of(bearer(scope["headers"]))
    except StoreError:
        return PlainTextResponse("The list of tokens cannot be read: `diarist token --list` says why.\n", 503)
    if caller is None:
        about = "A valid bearer token is needed: Authorization: Bearer TOKEN\n"
        return PlainTextResponse(about, 401, {"WWW-Authenticate": "Bearer"})
    if caller.owner is None:
        return PlainTextResponse(
            "The admin token opens no diary here: `diarist token OWNER` makes one that does.\n", 403
        )
    return caller


def settings(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http=Protocol,
        log_config=None,  # nothing of ours goes to stdout
        access_log=False,
        ws="none",
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=30,
        limit_concurrency=1_000,
        h11_max_incomplete_event_size=LARGEST_HEADERS,
    )


def over_http(app: ASGIApp, sock: socket.socket) -> None:
    """Serves until SIGTERM or Ctrl-C; calls under way are finished."""

    def ended(*_: Any) -> None:
        raise SystemExit(0)

    # uvicorn ends well on the first signal and then hands it on; asked to end, this has done what it should.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, ended)
    with suppress(SystemExit):
        uvicorn.Server(settings(app)).run(sockets=[sock])
