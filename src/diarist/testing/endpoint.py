"""An OpenAI-compatible server on loopback, over real HTTP, with every fault on request."""

from __future__ import annotations

import base64
import contextlib
import json
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from ..model import ModelReply, Usage
from . import chat
from .fakes import HashEmbedder
from .scripted import Step, as_reply

Json = Any


@dataclass(frozen=True)
class Fault:
    """What a `LoopbackEndpoint` does to one request instead of answering it well."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: str | bytes | None = None
    """Sent in place of the right answer; None keeps that."""
    edit: Callable[[Json], Json] | None = None
    """Changes the right answer before it is sent."""
    chunks: Callable[[list[Json]], list[Json]] | None = None
    """Changes the chunks of a streamed answer, after `edit`. A chunk that is text is sent as it is."""
    unstreamed: bool = False
    """Answers whole where a stream was asked for."""
    undone: bool = False
    """Ends a stream without [DONE]."""
    delay: float = 0
    """Seconds before anything is sent."""
    drip: float = 0
    """Seconds between two bytes, headers and all."""
    endless: bool = False
    """A body that never ends, as fast as it is read."""
    silent: bool = False
    """Takes the request and never answers."""
    drop: bool = False
    """Breaks the connection in the middle of the answer."""


def _each(change: Callable[[list[float]], Any]) -> Fault:
    def edit(answer: Json) -> Json:
        return {**answer, "data": [{**item, "embedding": change(item["embedding"])} for item in answer["data"]]}

    return Fault(edit=edit)


def _data(change: Callable[[list[Json]], Any]) -> Fault:
    return Fault(edit=lambda answer: {**answer, "data": change(answer["data"])})


def _error(status: int, message: str, **headers: str) -> Fault:
    return Fault(
        status,
        {key.replace("_", "-"): value for key, value in headers.items()},
        json.dumps({"error": {"message": message}}),
    )


FAULTS: dict[str, Fault] = {
    "down": Fault(drop=True),
    "silent": Fault(silent=True),
    "dripping": Fault(drip=0.05),
    "endless": Fault(endless=True),
    "loading": _error(503, "Loading model"),
    "loading 500": _error(500, "model is loading, try again"),
    "busy": _error(429, "Too many requests"),
    "busy 2 s": _error(429, "Too many requests", Retry_After="2"),
    "busy for ever": _error(429, "Too many requests", Retry_After="1000000000"),
    "no quota": Fault(
        429, {}, json.dumps({"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}})
    ),
    "bad gateway": Fault(502, {}, "<html>Bad Gateway</html>"),
    "broken": _error(500, "division by zero"),
    "unauthorized": _error(401, "Incorrect API key provided"),
    "forbidden": _error(403, "Forbidden"),
    "not found": Fault(404, {}, '{"detail":"Not Found"}'),
    "error in 200": Fault(200, {}, '{"error": {"message": "model crashed"}}'),
    "html": Fault(200, {"Content-Type": "text/html"}, "<!doctype html><title>Welcome</title>"),
    "empty body": Fault(200, {}, ""),
    "null": Fault(200, {}, "null"),
    "cut json": Fault(200, {}, '{"data": [{"embedding": [0.1, '),
    "null data": _data(lambda _: None),
    "no data": _data(lambda _: []),
    "one less": _data(lambda items: items[:-1]),
    "one more": _data(lambda items: [*items, {**items[-1], "index": len(items)}]),
    "shuffled": _data(lambda items: items[::-1]),
    "no index": _data(lambda items: [{"embedding": item["embedding"]} for item in items]),
    "same index": _data(lambda items: [{**item, "index": 0} for item in items]),
    "base64": _each(lambda row: base64.b64encode(struct.pack(f"<{len(row)}f", *row)).decode()),
    "NaN": _each(lambda row: [float("nan"), *row[1:]]),
    "infinite": _each(lambda row: [float("inf"), *row[1:]]),
    "zero": _each(lambda row: [0.0] * len(row)),
    "denormal": _each(lambda row: [x * 1e-310 for x in row]),
    "huge": _each(lambda row: [x * 1e300 for x in row]),
    "words": _each(lambda row: ["much", *row[1:]]),
    "empty vectors": _each(lambda _: []),
    "other size": _each(lambda row: [*row, 0.5]),
    "per token": _each(lambda row: [row, row]),
    "last one NaN": _data(
        lambda items: [*items[:-1], {**items[-1], "embedding": [float("nan")] * len(items[-1]["embedding"])}]
    ),
}
"""Faults by name, for `LoopbackEndpoint.fail`; all were seen on real servers and gateways."""


QUIRKS: dict[str, Fault] = {
    **{name: Fault(edit=edit) for name, edit in chat.EDITS.items()},
    **{name: Fault(chunks=edit) for name, edit in chat.CHUNK_EDITS.items()},
    "stream: not streamed": Fault(unstreamed=True),
    "stream: no [DONE]": Fault(undone=True),
    "stream: empty": Fault(chunks=lambda _: [], undone=True),
    "stream: cut": Fault(chunks=lambda chunks: chunks[:3], undone=True),
    "unavailable": _error(503, "Service unavailable"),
    "gateway timeout": Fault(504, {}, "<html>Gateway Timeout</html>"),
    "overflow (llama.cpp)": Fault(
        400,
        {},
        json.dumps(
            {
                "error": {
                    "code": 400,
                    "message": "the request exceeds the available context size",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 5000,
                    "n_ctx": 4096,
                }
            }
        ),
    ),
    "overflow (vLLM)": _error(400, "This model's maximum context length is 4096 tokens, you sent at least 4097"),
    "overflow (500)": _error(500, "Context size has been exceeded."),
    "overflow (413)": _error(413, "prompt too long"),
    "no tools (Ollama)": _error(400, "registry.ollama.ai/library/gemma does not support tools"),
    "parser gave up (llama.cpp)": _error(500, "Failed to parse input at pos 12: <tool_call>{"),
}
"""What chat servers were seen to do, by name, for `LoopbackEndpoint.fail`."""


@dataclass(frozen=True)
class Request:
    """What a `LoopbackEndpoint` was sent. Header names are in lower case."""

    path: str
    headers: dict[str, str]
    body: Json


class LoopbackEndpoint:
    """A real HTTP server on 127.0.0.1 for embeddings, chat completions and `/v1/models`, which misbehaves as told.

    `with LoopbackEndpoint() as server: Endpoint("m", server.base_url)`. `server.fail("busy", Fault(delay=1))` queues
    faults, one for each request to come; `server.always = Fault(...)` applies when the queue is empty. The limits
    make it refuse as servers do. `server.requests` is what it was sent. A chat says what `server.will_say(...)` was
    given, step by step as for `ScriptedModel`; with `strict` it refuses what any server was seen to refuse.
    """

    def __init__(
        self,
        dim: int = 64,
        *,
        max_items: int | None = None,
        max_tokens: int | None = None,
        max_text_tokens: int | None = None,
        refuses: str | None = None,
        strict: bool = True,
    ) -> None:
        self.embedder = HashEmbedder(dim)
        self.max_items, self.max_tokens, self.max_text_tokens = max_items, max_tokens, max_text_tokens
        self.refuses = refuses
        """A text that holds this is answered 400, and with it its whole batch."""
        self.strict = strict
        self.requests: list[Request] = []
        self._steps: deque[Step] = deque()
        self.always: Fault | None = None
        self.closing = threading.Event()
        self._queue: deque[Fault] = deque()
        # A later change adds a line here for each path it speaks.
        self.routes: dict[tuple[str, str], Callable[[Json], Json | Fault]] = {
            ("POST", "/v1/embeddings"): self._embeddings,
            ("POST", "/v1/chat/completions"): self._chat,
            ("GET", "/v1/models"): lambda _: {"object": "list", "data": [{"id": "loopback", "object": "model"}]},
        }

    def fail(self, *faults: str | Fault) -> None:
        """Queue faults, by name from `FAULTS` or `QUIRKS`, or as they are. "ok" lets one request through."""
        for fault in faults:
            named = {"ok": Fault(), **FAULTS, **QUIRKS}
            self._queue.append(named[fault] if isinstance(fault, str) else fault)

    def will_say(self, *steps: Step) -> None:
        """Queue what the chat answers, one step for each request that is answered well."""
        self._steps.extend(steps)

    def clear(self) -> None:
        """As new: nothing more to say, no fault to come, and nothing was asked."""
        self._steps.clear()
        self._queue.clear()
        self.requests.clear()
        self.always = None

    @property
    def chats(self) -> list[Json]:
        """The body of every chat request it was sent, in order, refused or not."""
        return [request.body for request in self.requests if request.path == "/v1/chat/completions"]

    @property
    def texts(self) -> list[str]:
        """Every text it was sent, in order, refused or not."""
        inputs = [request.body.get("input", []) for request in self.requests if request.body]
        return [text for sent in inputs for text in ([sent] if isinstance(sent, str) else sent)]

    @property
    def base_url(self) -> str:
        """Where it listens: give this to whatever is tested."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> LoopbackEndpoint:
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.hang_up()
        self._server.server_close()
        self._thread.join()

    def answer(self, method: str, path: str, headers: dict[str, str], body: Json) -> Fault:
        """What to send: the right answer, as the fault whose turn it is has changed it."""
        self.requests.append(Request(path, headers, body))
        fault = self._queue.popleft() if self._queue else self.always or Fault()
        if fault.body is not None or fault.silent or fault.endless or fault.status >= 300:
            return fault
        route = self.routes.get((method, path))
        told = route(body) if route else _error(404, f"no {path} here")
        if isinstance(told, Fault):
            return told
        told = fault.edit(told) if fault.edit else told
        if "messages" in (body or {}) and body.get("stream") and not fault.unstreamed:
            chunks = chat.pieces(told)
            events = chat.as_events(fault.chunks(chunks) if fault.chunks else chunks)
            events = events.removesuffix("data: [DONE]\n\n") if fault.undone else events
            headers = {"Content-Type": "text/event-stream", **fault.headers}
            return Fault(fault.status, headers, events, None, delay=fault.delay, drip=fault.drip, drop=fault.drop)
        return Fault(
            fault.status, fault.headers, json.dumps(told), None, delay=fault.delay, drip=fault.drip, drop=fault.drop
        )

    def _embeddings(self, body: Json) -> Json | Fault:
        texts: list[str] = [body["input"]] if isinstance(body["input"], str) else body["input"]
        tokens = [len(text) // 4 + 1 for text in texts]
        if self.max_items is not None and len(texts) > self.max_items:
            return _error(400, f"input array has {len(texts)} items, maximum {self.max_items}")
        if self.max_tokens is not None and sum(tokens) > self.max_tokens:
            return _error(400, f"requested {sum(tokens)} tokens, maximum {self.max_tokens} tokens per request")
        if self.max_text_tokens is not None and max(tokens) > self.max_text_tokens:
            return _error(500, "input is too large to process. increase the physical batch size")
        if self.refuses is not None and any(self.refuses in text for text in texts):
            return _error(400, "invalid input")
        rows = self.embedder.embed_notes(texts).tolist()
        data = [{"object": "embedding", "index": i, "embedding": row} for i, row in enumerate(rows)]
        return {"object": "list", "model": body["model"], "data": data, "usage": {"total_tokens": sum(tokens)}}

    def _chat(self, body: Json) -> Json | Fault:
        fault = chat.refusal(body) if self.strict else None
        if fault:
            return _error(400, fault)
        if not self._steps:
            return _error(400, "nothing more is scripted")
        try:
            reply = as_reply(self._steps.popleft(), body["messages"])
        except Exception as error:  # a step that fails is a server that fails
            return _error(500, f"{type(error).__name__}: {error}")
        if reply.usage == Usage():
            size = len(json.dumps([body["messages"], body.get("tools", [])])) // 4
            reply = ModelReply(reply.text, reply.calls, reply.finish_reason, Usage(size, len(reply.text) // 4 + 1))
        return chat.completion(reply, body["model"])


class _Server(ThreadingHTTPServer):
    daemon_threads = False  # so that closing waits for them, and nothing outlives the test

    def __init__(self, endpoint: LoopbackEndpoint) -> None:
        self.endpoint = endpoint
        self.connections: set[socket.socket] = set()
        super().__init__(("127.0.0.1", 0), _Handler)

    def hang_up(self) -> None:
        for connection in list(self.connections):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up in the middle of things here: that is what the tests are about."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server  # pyright: ignore[reportIncompatibleVariableOverride]

    def setup(self) -> None:
        self.server.connections.add(self.request)
        super().setup()

    def finish(self) -> None:
        self.server.connections.discard(self.request)
        super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        endpoint, length = self.server.endpoint, int(self.headers.get("Content-Length") or 0)
        body = json.loads(self.rfile.read(length)) if length else None
        headers = {name.lower(): value for name, value in self.headers.items()}
        fault = endpoint.answer(self.command, self.path, headers, body)
        endpoint.closing.wait(fault.delay)
        if fault.silent:
            endpoint.closing.wait()
            return
        content = fault.body.encode() if isinstance(fault.body, str) else fault.body or b""
        lines = {"Content-Type": "application/json", **fault.headers}
        if not fault.endless:
            lines.setdefault("Content-Length", str(len(content)))
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        answer = f"HTTP/1.1 {fault.status} x\r\n{head}\r\n".encode() + content
        self._send(fault, answer[: len(answer) // 2] if fault.drop else answer)
        if fault.drop or fault.endless:
            self.close_connection = True

    do_POST = do_GET  # noqa: N815

    def _send(self, fault: Fault, answer: bytes) -> None:
        if not fault.drip:
            self.wfile.write(answer)
        for at in range(len(answer) if fault.drip else 0):
            self.wfile.write(answer[at : at + 1])
            if self.server.endpoint.closing.wait(fault.drip):
                return
        while fault.endless and not self.server.endpoint.closing.is_set():
            self.wfile.write(b" " * 65_536)
