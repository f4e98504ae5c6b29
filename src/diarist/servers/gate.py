"""Who and what may come in: every request passes here before any route sees it.

In this order: is the server stopping, is the name it was called by its own, does it come from another site's page, is
there a token that counts, is it too often, is the body small, quick, JSON, and JSON that means one thing only. Whose
diary a token opens is decided in `routes.py`, where the diary is opened. What goes out gets its headers here.
"""

from __future__ import annotations

import asyncio
import json
import re
import secrets
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime
from typing import Any

from ..errors import DiaristError, StoreError
from . import body
from .address import LOCAL_NAMES
from .body import Message, Receive
from .limits import Rate, retry_after, strict_json
from .tokens import Tokens, bearer

Send = Callable[[Message], Awaitable[None]]
App = Callable[[Message, Receive, Send], Awaitable[None]]

LARGEST, LARGEST_IMPORT = 2**20, 64 * 2**20  # bytes of a body
ANSWER_WITHIN, IMPORT_WITHIN = 60.0, 1_800.0  # seconds
AT_ONCE = 16  # requests of one owner's token; there are more threads than that
OPEN = ("/healthz", "/readyz", "/openapi.json")  # without a token, as are the inspector's own files

HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:;"
        " frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
}
"""What every answer says."""
_HEADERS = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
_IMPORT = re.compile(r"/v1/owners/[^/]+/import")
_EVENTS = re.compile(r"/v1/owners/[^/]+/events")
_LINES = ("application/x-ndjson", "application/jsonl", "application/json")


class Refused(Exception):
    """An answer that is an error: status, code, what happened, what to do."""

    def __init__(
        self, status: int, code: str, message: str, hint: str, headers: Iterable[tuple[str, str]] = ()
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.hint, self.headers = status, code, message, hint, tuple(headers)

    @property
    def data(self) -> dict[str, Any]:
        return {"error": {"code": self.code, "message": self.message, "hint": self.hint}}


class Gate:
    """An ASGI application around another one."""

    def __init__(
        self,
        app: App,
        tokens: Tokens,
        *,
        names: Iterable[str] = LOCAL_NAMES,
        a_second: float = 100.0,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        ticks: Callable[[], float] = time.monotonic,
        log: Callable[[str], object],
        log_each: bool = False,
    ) -> None:
        """`names`: what `Host` may say, without a port. `a_second`: requests of one token; twice that at once. `clock`
        says whether a token has ended, `ticks` counts seconds. `log` takes lines for the operator, with no content in
        them; of every request if `log_each`, else of faults only."""
        self._app, self._tokens, self._clock, self._ticks = app, tokens, clock, ticks
        self._names = {name.lower() for name in names}
        self._rate = Rate(a_second)
        self._log, self._log_each = log, log_each
        self._running = set[asyncio.Task[None]]()  # so that none is collected before it is done
        self._inside = Counter[str]()
        self.stopping = False

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)  # the start and the end of the server
            return
        answer = _Answer(send, scope)
        try:
            self._let_in(scope)
            await self._within(scope, await self._body(scope, receive), answer)
        except Refused as refused:
            await answer.refuse(refused)
        if self._log_each:
            # The route, never the path: it has the owner in it.
            route = getattr(scope.get("route"), "path", "-")
            took = f"{(time.monotonic() - answer.began) * 1000:.0f} ms"
            self._log(f"{_method(scope)} {route} {answer.status} {took} {answer.id}")

    # -- before the body is read ---------------------------------------------------------------------------------

    def _let_in(self, scope: Message) -> None:
        if self.stopping:
            raise _stopping()
        headers: list[tuple[bytes, bytes]] = scope["headers"]
        hosts = [value.decode("latin-1") for name, value in headers if name == b"host"]
        if len(hosts) != 1 or not scope["raw_path"].startswith(b"/") or _name(hosts[0]) not in self._names:
            raise Refused(
                421, "wrong_host", "This server does not go by that name.",
                "Call it by the address that it printed; `diarist serve --host-name NAME` allows another name.",
            )  # fmt: skip
        for name, value in headers:
            origin = value.decode("latin-1").lower()
            if name == b"origin" and origin not in (f"http://{hosts[0].lower()}", f"https://{hosts[0].lower()}"):
                raise Refused(
                    403, "wrong_origin", "The request comes from a page of another site.",
                    "Call the server from a program, or from the page that it serves itself.",
                )  # fmt: skip
        if scope["path"] == "/v1" or scope["path"].startswith("/v1/"):
            self._know(scope, headers)

    def _know(self, scope: Message, headers: Iterable[tuple[bytes, bytes]]) -> None:
        token = bearer(headers)
        try:
            caller = None if token is None else self._tokens.caller(token, self._clock())
        except StoreError:
            raise Refused(
                503, "store", "The list of tokens cannot be read.", "`diarist token --list` says why."
            ) from None
        if caller is None:
            raise Refused(
                401, "unauthorized", "There is no token with the request that counts.",
                "Send Authorization: Bearer TOKEN; `diarist token OWNER` makes one.", [("WWW-Authenticate", "Bearer")],
            )  # fmt: skip
        wait = self._rate.wait(caller.id or "admin", self._ticks())
        if wait > 0:
            raise Refused(
                429, "too_many_requests", "Too many requests with this token.", "Wait, then go on more slowly.",
                retry_after(wait).items(),
            )  # fmt: skip
        scope.setdefault("state", {})["caller"] = caller

    # -- the body ------------------------------------------------------------------------------------------------

    async def _body(self, scope: Message, receive: Receive) -> Receive:
        """Reads all of it, looks at it, and gives what gives it again."""
        if scope["method"] in ("GET", "HEAD", "OPTIONS"):
            return receive
        is_import = _IMPORT.fullmatch(scope["path"]) is not None
        largest = LARGEST_IMPORT if is_import else LARGEST
        try:
            data, again = await body.whole(receive, scope["headers"], largest)
        except body.TooLarge:
            raise Refused(
                413, "too_large", f"The body is larger than {largest:,} bytes.", "Send it in parts."
            ) from None
        except body.EndedEarly:
            raise Refused(400, "bad_request", "The body ended early.", "Send the whole of it.") from None
        except body.TooSlow:
            raise Refused(
                408, "too_slow", f"The body did not come within {body.BODY_WITHIN:g} s.", "Send it at once.",
                [("Connection", "close")],
            ) from None  # fmt: skip
        about = {name: value.decode("latin-1") for name, value in scope["headers"]}
        kind = about.get(b"content-type", "").partition(";")[0].strip().lower()
        if (data or kind) and kind not in (_LINES if is_import else ("application/json",)):
            raise Refused(415, "not_json", "The body is not said to be JSON.", "Send Content-Type: application/json.")
        if data and not is_import:
            try:
                strict_json(data)
            except ValueError as error:
                raise Refused(400, "bad_request", _sentence(error), "Send JSON, as RFC 8259 has it.") from None
        return again

    # -- the answer ----------------------------------------------------------------------------------------------

    async def _within(self, scope: Message, receive: Receive, answer: _Answer) -> None:
        """Runs what answers. It is not broken off when it takes too long, since a write half done helps nobody: who
        asked is told, and it goes on."""
        caller = scope.get("state", {}).get("caller")
        busy = caller.id if caller is not None and not _EVENTS.fullmatch(scope["path"]) else None
        if busy is not None:
            if self._inside[busy] >= AT_ONCE:
                raise Refused(
                    429,
                    "too_many_requests",
                    f"{AT_ONCE} requests with this token are under way.",
                    "Wait for one of them.",
                    [("Retry-After", "1")],
                )
            self._inside[busy] += 1
        task = asyncio.create_task(self._answered(scope, receive, answer))
        self._running.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            self._running.discard(task)
            if busy is not None:
                self._inside[busy] -= 1
                if not self._inside[busy]:
                    del self._inside[busy]

        task.add_done_callback(ended)
        longest = None
        if not _EVENTS.fullmatch(scope["path"]):
            longest = IMPORT_WITHIN if _IMPORT.fullmatch(scope["path"]) else ANSWER_WITHIN
        try:
            done, _ = await asyncio.wait({task}, timeout=longest)
        except asyncio.CancelledError:  # the server has waited for long enough
            await answer.refuse(_stopping())
            task.cancel()
            raise
        if not done:
            raise Refused(
                504, "too_slow", f"The answer took over {longest:g} s.",
                "What was asked may still be done: look before you ask again, or ask with the same key.",
            )  # fmt: skip

    async def _answered(self, scope: Message, receive: Receive, answer: _Answer) -> None:
        try:
            await self._app(scope, receive, answer.send)
        except Exception as error:
            # Where, never what: the message of an error may hold what somebody wrote.
            place = traceback.extract_tb(error.__traceback__)[-1]
            name = place.filename.replace("\\", "/").rpartition("/")[2]
            self._log(f"fault {answer.id}: {type(error).__name__} in {name}, line {place.lineno}")
            await answer.refuse(fault(answer.id))


class _Answer:
    """What goes out to one request: its headers are added, and nothing goes out twice."""

    def __init__(self, send: Send, scope: Message) -> None:
        self._send, self._no_store = send, scope["path"].startswith(("/v1", *OPEN))
        self.id, self.began = secrets.token_hex(6), time.monotonic()
        self.status = 0
        self._closed = False
        scope.setdefault("state", {})["request_id"] = self.id

    async def send(self, message: Message) -> None:
        if self._closed:
            return  # a refusal has gone out in its place
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = [*message.get("headers", ()), *_HEADERS, (b"x-request-id", self.id.encode())]
            if self._no_store:
                headers.append((b"cache-control", b"no-store"))
            message = {**message, "headers": headers}
        await self._send(message)

    async def refuse(self, refused: Refused) -> None:
        if self.status or self._closed:
            return
        body = as_json(refused.data)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        headers += [(name.lower().encode(), value.encode()) for name, value in refused.headers]
        await self.send({"type": "http.response.start", "status": refused.status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})
        self._closed = True


def as_json(data: object) -> bytes:
    """UTF-8, but for half a surrogate pair: only escaped does it go over a wire."""
    try:
        return json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:
        return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


def _name(host: str) -> str:
    """The name in a `Host` header, without the port, which a container or proxy may have changed."""
    found = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[^:\[\]]*)(:[0-9]{1,5})?", host)
    return found[1].lower() if found else ""


def fault(request: str) -> Refused:
    """The answer to what should not happen."""
    return Refused(500, "internal", "The server failed.", f"Its log has more, under {request}.")


def _stopping() -> Refused:
    return Refused(503, "stopping", "The server is stopping.", "Try again soon.", [("Retry-After", "5")])


def _method(scope: Message) -> str:
    return scope["method"] if scope["method"].isalpha() and len(scope["method"]) < 12 else "?"


def _sentence(error: Exception) -> str:
    text = " ".join(str(error).split())
    return text[:1].upper() + text[1:] + "."


def refusal(error: Exception) -> Refused:
    """The answer to an error that a diary raised. None of it names a file, or tells another owner's id from none."""
    from ..errors import EmbedderError, NotFound, PageFull, SchemaTooNew, StoreBusy, StoreCorrupt

    match error:
        case Refused():
            return error
        case NotFound():
            return Refused(
                404, "not_found", "No note or session with that id is in this diary.",
                "List them to see the ids that there are.",
            )  # fmt: skip
        case PageFull():
            return Refused(409, "page_full", _sentence(error), "Shorten the page, or keep it as a note.")
        case StoreBusy():
            return Refused(
                503, "busy", "Another program is writing to this diary.", "Try again.", [("Retry-After", "1")]
            )
        case StoreCorrupt():
            return Refused(
                500, "diary_damaged", "This diary is damaged; it was left as it is.",
                "Run `diarist doctor` on the server's machine.",
            )  # fmt: skip
        case SchemaTooNew():
            return Refused(500, "schema_too_new", "A later version of diarist wrote this diary.", "Upgrade the server.")
        case EmbedderError():
            return Refused(503, "embedder", "The embedder does not answer.", "Try again later.")
        case StoreError() | DiaristError():
            return Refused(
                503, "store", "The diary could not be read or written.", "Try again; the server's log has more."
            )
        case _:
            return Refused(400, "bad_request", _sentence(error), "See /openapi.json for what may be sent.")
