"""MCP over streamable HTTP: the same server behind an address, with a token, and the SDK's check of Host and Origin."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import os
import secrets
import signal
import socket
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from ..errors import DiaristError
from ..memory import Memory
from .mcp import OWNER, server
from .pending import Pending

PATH = "/mcp"
_SHORTEST_TOKEN = 16  # characters

OwnerOf = Callable[[str | None], str | None]
"""The owner that a bearer token stands for, or that no token at all does; None if it stands for nobody."""


def is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def named(host: str) -> str:
    """As it stands in a URL."""
    return f"[{host}]" if ":" in host else host


def one_token(token: str, owner: str) -> OwnerOf:
    """One token for one owner."""
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise ValueError(f"the token must be at least {_SHORTEST_TOKEN} characters of ASCII without spaces")
    return lambda sent: owner if sent is not None and hmac.compare_digest(sent.encode(), token.encode()) else None


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


def app(memory: Memory, pending: Pending, owner_of: OwnerOf, port: int, hosts: Sequence[str] = ()) -> ASGIApp:
    """The ASGI app. `hosts`: names and addresses, besides those of the loopback, that clients may know it by."""
    known = [named(host) for host in hosts if host not in ("0.0.0.0", "::")]  # noqa: S104
    names = ["127.0.0.1", "localhost", "[::1]", *known]
    addresses = [f"{name}:{port}" for name in names] + ([*names] if port in (80, 443) else [])
    guarded = server(memory, None, pending).streamable_http_app(
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

    async def by_token(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            sent = [value for name, value in scope["headers"] if name == b"authorization"]
            kind, _, token = sent[0].decode("latin-1").partition(" ") if len(sent) == 1 else ("", "", "")
            owner = owner_of(token.strip() if kind.lower() == "bearer" else None)
            if owner is None:
                refused = PlainTextResponse(
                    "A valid bearer token is needed: Authorization: Bearer TOKEN\n", 401, {"WWW-Authenticate": "Bearer"}
                )
                await refused(scope, receive, send)
                return
            scope[OWNER] = owner
        await guarded(scope, receive, send)

    return by_token


def listening(host: str, port: int) -> socket.socket:
    """A socket that listens there; port 0 takes a free one."""
    try:
        family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        return socket.create_server(where[:2], family=family, backlog=128)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or error
        raise DiaristError(f"cannot listen on {host} port {port} ({why}); give another --host or --port") from error


def over_http(app: ASGIApp, sock: socket.socket) -> None:
    """Serves until SIGTERM or Ctrl-C; calls under way are finished."""
    settings = uvicorn.Config(
        app,
        log_config=None,  # nothing of ours goes to stdout
        access_log=False,
        ws="none",
        lifespan="on",
        server_header=False,
        timeout_graceful_shutdown=5,
        timeout_keep_alive=30,
        limit_concurrency=1_000,
    )

    def ended(*_: Any) -> None:
        raise SystemExit(0)

    # uvicorn ends well on the first signal and then hands it on; asked to end, this has done what it should.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, ended)
    with suppress(SystemExit):
        uvicorn.Server(settings).run(sockets=[sock])
