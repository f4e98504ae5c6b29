"""`diarist serve`: a memory behind HTTP. Here it is put together, started and stopped.

`gate.py` says who and what may come in, `routes.py` has the routes, `live.py` the events, `worker.py` makes vectors
that are owed, `inspector.py` serves the page in `web/`. The core stays synchronous: routes run in threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator
from types import FrameType
from typing import Any

import anyio.to_thread
import uvicorn
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from ..errors import DiaristError
from ..memory import Memory
from . import routes, shapes
from .gate import Gate, Refused, fault, refusal
from .inspector import Inspector
from .live import Live
from .protocol import LARGEST_HEADERS, Protocol
from .tokens import Tokens
from .worker import Worker

MOST_CONNECTIONS = 512
THREADS = 64  # requests at once, over all callers
_FINISH_WITHIN = 3  # seconds, for requests under way when the server is told to stop


class Server:
    """A memory as an ASGI application: the gate, and the routes behind it."""

    def __init__(
        self, memory: Memory, tokens: Tokens, *, log: Callable[[str], object] | None = None, **options: Any
    ) -> None:
        """`log` takes lines for the operator, stderr if None; they hold no content. `options` are those of `Gate`."""
        self.log = log or _to_stderr
        self.live, self.worker = Live(), Worker(memory, everyone=True)
        self.routes = _routes(routes.Served(memory, self.live, self.worker))
        self.gate = Gate(self.routes, tokens, log=self.log, **options)
        self.routes.state.log = self.log

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.gate(scope, receive, send)

    def stop(self) -> None:
        """Lets nobody in any more; who is inside finishes."""
        self.gate.stopping = True
        self.live.stopping.set()
        self.worker.stop()


def _routes(served: routes.Served) -> FastAPI:
    from importlib.metadata import version

    app = FastAPI(
        title="Diarist",
        version=version("diarist"),
        description="Long-term memory for agents: one diary for each owner, searched by meaning.",
        docs_url=None,  # the pages that come with it load scripts from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        # It would hand messages of errors, which may hold what somebody wrote, to whatever traces this process.
        telemetry={
            "tracing": False,
            "metrics": False,
            "logs": False,
            "operation_spans": False,
            "auto_configure": False,
        },
    )
    app.state.served = served
    app.include_router(routes.router)
    app.include_router(routes.of_owner)
    for kind in (Refused, DiaristError, ValueError, TypeError):
        app.add_exception_handler(kind, _refused)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(Exception, _fault)

    @app.get("/healthz", response_model=shapes.HealthOut)
    async def healthz() -> Response:  # in no thread: it answers also when all of them are taken
        """The process lives."""
        return routes.Json({"status": "ok"})

    @app.get("/readyz", response_model=shapes.HealthOut, responses={503: {"model": shapes.TroubleOut}})
    def readyz() -> Response:
        """The memory can be read."""
        served.memory.owners()
        return routes.Json({"status": "ready"})

    inspector = Inspector()

    def web(request: Request) -> Response:
        data, kind = inspector.read(request.url.path.removeprefix("/"))
        return Response(data, media_type=kind, headers={"cache-control": "no-cache"})

    for path in inspector.paths:
        app.add_api_route(f"/{path}", web, include_in_schema=False, response_class=Response)

    original = app.openapi

    def described() -> dict[str, Any]:
        document = original()
        document.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in document["paths"].items():
            for each in methods.values():
                each["security"] = [{"token": []}] if path.startswith("/v1") else []
        return document

    app.openapi = described
    return app


async def _refused(request: Request, error: Exception) -> Response:
    refused = refusal(error)
    if refused.status >= 500:
        request.app.state.log(f"{type(error).__name__} {request.state.request_id}")
    return routes.Json(refused.data, refused.status, headers=dict(refused.headers))


async def _fault(request: Request, _: Exception) -> Response:
    return routes.Json(fault(request.state.request_id).data, 500)  # and the gate logs where it was


async def _invalid(_: Request, error: Exception) -> Response:
    """What is wrong where, without what was sent."""
    assert isinstance(error, RequestValidationError)
    wrong = [
        f"{'.'.join(str(part) for part in each['loc'] if part != 'body') or 'the body'}: {each['msg']}"
        for each in error.errors()[:5]
    ]
    refused = Refused(400, "bad_request", "; ".join(wrong) + ".", "See /openapi.json for what may be sent.")
    return routes.Json(refused.data, 400)


async def _no_route(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        refused = Refused(405, "method_not_allowed", "Not with this method.", "See /openapi.json.")
    elif error.status_code == 404:
        refused = Refused(404, "not_found", "There is no such route.", "A slash in a name? Write it as ~BASE64URL.")
    else:
        refused = Refused(error.status_code, "bad_request", "The request cannot be answered.", "See /openapi.json.")
    return routes.Json(refused.data, refused.status, headers=dict(error.headers or {}))


# -- started and stopped ----------------------------------------------------------------------------------------------


def run(server: Server, listener: socket.socket) -> None:
    """Serves until SIGTERM or SIGINT, or `server.stop()` from another thread. In the main thread the process ends
    within 5 s of a signal, whatever is under way, and a second signal ends it at once."""
    logging.getLogger("uvicorn").setLevel(logging.CRITICAL)  # it would log what clients send
    config = uvicorn.Config(
        server,
        http=Protocol,
        ws="none",
        loop="asyncio",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MOST_CONNECTIONS,
        timeout_graceful_shutdown=_FINISH_WITHIN,
        h11_max_incomplete_event_size=LARGEST_HEADERS,
    )
    server.worker.start()
    before = threading.enumerate()
    asyncio.run(_until_stopped(_Runner(config, server), server, listener))
    left = [each for each in threading.enumerate() if each not in before and not each.daemon]
    for each in left:
        each.join(0.2)
    if _in_main_thread() and any(each.is_alive() for each in left):
        os._exit(
            0
        )  # nothing can end them, such as one that waits for an embedder; what was acknowledged is on the disk


async def _until_stopped(runner: _Runner, server: Server, listener: socket.socket) -> None:
    anyio.to_thread.current_default_thread_limiter().total_tokens = THREADS
    await runner.serve(sockets=[listener])
    server.stop()
    await asyncio.sleep(0.05)  # those that were broken off tell their clients


class _Runner(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, served: Server) -> None:
        super().__init__(config)
        self._served = served

    async def on_tick(self, counter: int) -> bool:
        return await super().on_tick(counter) or self._served.gate.stopping

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self.should_exit:  # what was acknowledged is on the disk
            os._exit(128 + sig)
        self._served.stop()
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        """As the base does, but a stop that was asked for is no failure: the signal is not raised again."""
        if not _in_main_thread():
            yield
            return
        before = {each: signal.signal(each, self.handle_exit) for each in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for each, handler in before.items():
                signal.signal(each, handler)


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


def _to_stderr(line: str) -> None:
    sys.stderr.write(f"diarist: {line}\n")
    sys.stderr.flush()
