"""Servers for tests: the real ones, on loopback, in a thread. No tests here."""

from __future__ import annotations

import http.client
import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from diarist.servers.address import listening
from diarist.servers.http import Server, run
from diarist.servers.names import segment
from diarist.servers.tokens import Tokens
from support import opened


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        return self.json["error"]["code"]


@dataclass
class Serving:
    """A server that runs, and the tokens to call it with."""

    server: Server
    tokens: Tokens
    port: int
    admin: str
    log: list[str] = field(default_factory=list)

    def token(self, owner: str, **options: Any) -> str:
        return self.tokens.make(owner, datetime.now(UTC), **options)[0]

    def call(self, method: str, path: str, body: Any = None, *, token: str | None = "admin", **headers: str) -> Answer:
        """One request; `body` is sent as JSON unless it is bytes. `token` is the admin's unless given; None sends none.
        Headers: `content_type="..."`."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            named["Authorization"] = f"Bearer {self.admin if token == 'admin' else token}"
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
        if body is not None:
            named.setdefault("content-type", "application/json")
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, body, named)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def raw(self, data: bytes, timeout: float = 10) -> bytes:
        """What comes back for these bytes, until the server closes or says nothing more."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as connection:
            connection.sendall(data)
            return read_all(connection)


def read_all(connection: socket.socket) -> bytes:
    got = bytearray()
    try:
        while piece := connection.recv(65_536):
            got += piece
            head, _, rest = bytes(got).partition(b"\r\n\r\n")
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length:") and len(rest) >= int(line.split(b":")[1]):
                    return bytes(got)
    except (TimeoutError, ConnectionResetError):
        pass
    return bytes(got)


def of(owner: str) -> str:
    """The path of an owner."""
    return f"/v1/owners/{segment(owner)}"


@contextmanager
def serving(place: Any, *, memory: Any = None, **options: Any) -> Iterator[Serving]:
    tokens, log = Tokens(place), []
    admin = tokens.make_admin()
    with memory or opened(place) as kept:
        server = Server(kept, tokens, log=log.append, **{"a_second": 100_000, **options})
        listener = listening("127.0.0.1", 0)
        thread = threading.Thread(target=run, args=(server, listener))
        thread.start()
        try:
            yield Serving(server, tokens, listener.getsockname()[1], admin, log)
        finally:
            server.stop()
            thread.join(20)
            assert not thread.is_alive()


@dataclass
class ServingMcp:
    """`diarist mcp --http` that runs, and the tokens to call it with."""

    tokens: Tokens
    port: int

    def token(self, owner: str, **options: Any) -> str:
        return self.tokens.make(owner, datetime.now(UTC), **options)[0]

    def post(self, token: str | None, method: str, **params: Any) -> Answer:
        """One request, as a client without a session sends it."""
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request("POST", "/mcp", body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def call(self, token: str, tool: str, **arguments: Any) -> Any:
        """The result of a tool."""
        answer = self.post(token, "tools/call", name=tool, arguments=arguments)
        assert answer.status == 200, answer.body
        return answer.json["result"]


@contextmanager
def serving_mcp(
    place: Any, *, memory: Any = None, single: str = "one-token-for-one-owner", owner: str = "ana", **options: Any
) -> Iterator[ServingMcp]:
    import uvicorn

    from diarist.servers import mcp_http
    from diarist.servers.address import names_for
    from diarist.servers.worker import Worker

    tokens, listener = Tokens(place), listening("127.0.0.1", 0)
    port = listener.getsockname()[1]
    with memory or opened(place) as kept:
        worker = Worker(kept)
        caller_of = mcp_http.also(mcp_http.one_token(single, owner), tokens)
        app = mcp_http.app(kept, worker, caller_of, port, names_for("127.0.0.1", ()), **options)
        server = uvicorn.Server(mcp_http.settings(app))
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield ServingMcp(tokens, port)
        finally:
            server.should_exit = True
            thread.join(20)
            assert not thread.is_alive()
            worker.stop(5)
