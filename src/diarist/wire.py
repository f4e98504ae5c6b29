"""Speaking to an OpenAI-compatible server: one exchange inside a limit, and when to try again. What is said in it is
for `model.py` and `embedders/endpoint.py`.

No call lasts longer than its limit, whatever the server does: a read timeout alone has no end that one can rely on,
for a server that sends one byte a second never runs into it, and neither has a name look-up. So each exchange runs in a
thread of its own, the caller waits, and cuts the connection when the time is over.
"""

from __future__ import annotations

import contextlib
import contextvars
import email.utils
import ipaddress
import json
import operator
import os
import random
import re
import socket
import threading
import time
import unicodedata
from collections.abc import Generator, Iterator, Mapping
from queue import Empty, SimpleQueue
from typing import Any, cast
from urllib.parse import urlsplit

from .errors import MissingExtra

TRIES = 6
TRIES_TO_CONNECT = 3  # a server that is down should not cost each request the whole limit

_sleep = time.sleep
_now = time.monotonic

_BACKOFF = 0.25  # seconds before the second try, doubled each time, times 0.5 to 1.5 at random
_RETRY = frozenset({429, 502, 503, 504})
_LOADING = re.compile(r"loading|warming|starting", re.I)
_ERROR_BODY = 65_536  # bytes read of an error
_AHEAD = 256  # pieces of a stream that wait to be taken
_GRACE = 0.02  # seconds for a stream that has said its last to end by itself, so that its connection can be used again


class TooSlow(Exception):
    """No answer within the limit."""


class GaveUp(Exception):
    """No use in asking again now."""


def now() -> float:
    """Seconds, on the clock that limits are counted by."""
    return _now()


class Tries:
    """Counts the tries of one request, and waits between them, inside `limit` seconds."""

    def __init__(self, limit: float) -> None:
        self.limit = limit
        self._end = _now() + limit
        self._tried = 0

    @property
    def left(self) -> float:
        """Seconds."""
        return self._end - _now()

    def wait(self, reason: str, asked: float | None = None, tries: int = TRIES) -> None:
        """Until it is time for another try: `asked` seconds, or ever longer. Raises `GaveUp` if there is no more."""
        self._tried += 1
        wait = _BACKOFF * 2 ** (self._tried - 1) * (0.5 + random.random()) if asked is None else max(asked, 0.0)  # noqa: S311
        if wait >= self.left or self._tried >= tries:
            wants = f" and it asks to wait {asked:.0f} s" if asked is not None else ""
            raise GaveUp(f"{reason}; gave up at try {self._tried} of {tries}: the limit is {self.limit:g} s{wants}")
        _sleep(wait)


class Wire:
    """The connections to one server, used again, and safe in threads. `path` is as the openai library names it."""

    def __init__(self, path: str, base_url: str, key: str | None) -> None:
        self.path, self.base_url, self._key = path, base_url, key
        self._lines: list[_Line] = []
        self._pid = os.getpid()

    @property
    def secret(self) -> str:
        return self._key if self._key is not None else os.environ.get("OPENAI_API_KEY", "")

    def post(self, fields: Mapping[str, Any], limit: float, most: int) -> Answer:
        """One HTTP exchange in at most `limit` seconds of wall clock, by cutting the connection if need be.

        At most `most` bytes are read. Raises `TooSlow`, `ConnectionError` or `GaveUp`.
        """
        body = bytearray()
        with contextlib.closing(self.stream(fields, limit, limit, most, limit)) as pieces:
            answer = next(pieces)
            for piece in pieces:
                body += cast("bytes", piece)
        assert isinstance(answer, Answer)
        return answer if answer.body else Answer(answer.status, answer.headers, bytes(body))

    def stream(
        self, fields: Mapping[str, Any], limit: float, total: float, most: int, between: float
    ) -> Generator[Answer | bytes, None, None]:
        """The same, but an `Answer` without its body first, then the body as it comes, if the status is below 300.

        At most `limit` seconds until the `Answer`, `between` until each piece, and `total` in all. Leaving off early
        cuts the connection.
        """
        if self._pid != os.getpid():  # a forked child must not speak on its parent's connections
            self._lines, self._pid = [], os.getpid()
        try:
            line = self._lines.pop()
        except IndexError:
            line = _Line(self.path, self.base_url, self.secret)
        box: SimpleQueue[Answer | bytes | BaseException | None] = SimpleQueue()
        room = threading.Semaphore(_AHEAD)
        ended = left = clean = False
        lock = threading.Lock()  # who comes last, the one who waits or the one who works, sees to the line

        def exchange() -> None:
            nonlocal ended, clean
            try:
                for piece in line.exchange(fields, max(limit, between), most):
                    room.acquire()
                    box.put(piece)
                clean = True
                box.put(None)
            except BaseException as error:  # raised again by the thread that waits
                box.put(error)
            with lock:
                ended = True
                if left:
                    line.close()

        thread = threading.Thread(
            target=contextvars.copy_context().run, args=(exchange,), name="diarist-endpoint", daemon=True
        )
        end = _now() + total
        thread.start()
        most_wait = limit
        try:
            while True:
                try:
                    item = box.get(timeout=max(min(most_wait, end - _now()), 0.01))
                except Empty:
                    raise TooSlow from None
                if item is None:
                    return
                if isinstance(item, BaseException) and not isinstance(item, Answer):
                    raise item
                room.release()
                most_wait = between
                yield item
        finally:
            thread.join(_GRACE)
            with lock:
                left = True
                if ended and clean:
                    self._lines.append(line)
                elif ended:
                    line.close()
                else:
                    line.cut()
                    room.release(_AHEAD)

    def close(self) -> None:
        """Close the idle connections. A later call opens new ones."""
        while self._lines and self._pid == os.getpid():
            self._lines.pop().close()

    def __del__(self) -> None:
        if hasattr(self, "_lines"):
            self.close()


class Answer(Exception):
    """What the server said. Raised out of the HTTP client for a status of 300 and above."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(status)
        self.status, self.headers, self.body = status, headers, body

    def may_retry(self) -> bool:
        """429 (but for a quota that is used up), 502, 503, 504, and 500 only where a model is loading."""
        text = self.text()
        if self.status == 429:
            return "insufficient_quota" not in text
        return self.status in _RETRY or (self.status == 500 and bool(_LOADING.search(text)))

    def retry_after(self) -> float | None:
        """Seconds to wait, from a Retry-After of seconds or of a date; None if there is none that can be read."""
        value = self.headers.get("retry-after", "").strip()
        try:
            seconds = float(value)
            return seconds if seconds == seconds else None
        except ValueError:
            pass
        try:
            return email.utils.parsedate_to_datetime(value).timestamp() - time.time()
        except (ValueError, TypeError, OverflowError):
            return None

    def reason(self, wire: Wire) -> str:
        """The status and what to do, without the key, whatever the server repeats of it."""
        secret = wire.secret
        if self.status in {401, 403}:
            return f"refused with {self.status}: check OPENAI_API_KEY, or api_key="
        if 300 <= self.status < 400:
            to = _shown(self.headers.get("location", "nowhere"))
            return f"redirected ({self.status}) to {to}: not followed; if you trust that address, make it the base_url"
        text = " ".join(self.text().split())[:200]
        if len(secret) >= 4:
            text = text.replace(secret, "***")
        path = wire.path.replace(".", "/")
        known = f"; check the model's name, and that base_url ends where /{path} follows" if self.status == 404 else ""
        return f"status {self.status}{known}" + (f": {text}" if text else "")

    def text(self) -> str:
        """The message in an error body, in the shapes that servers use."""
        told = object_of(self.json())
        error = told.get("error") or told.get("detail") or told.get("message")
        if not error:
            return self.body[:2_000].decode(errors="replace")
        parts = object_of(error)
        return " ".join(str(parts[k]) for k in ("message", "code", "type") if parts.get(k)) or str(error)

    def json(self) -> object:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class _Line:
    """One HTTP client with one connection, which can be cut from another thread."""

    def __init__(self, path: str, base_url: str, key: str) -> None:
        openai = library()
        self._openai = openai
        self._sockets: list[socket.socket] = []
        self._cut = False
        http = openai.DefaultHttpxClient(
            follow_redirects=False,
            trust_env=not _is_loopback(base_url),  # a proxy cannot reach this machine's own loopback
            event_hooks={"request": [self._watch], "response": [self._stop_at_errors]},
        )
        self._has_key = bool(key)
        # The library insists on a key; `_watch` takes it out again where there is none.
        self._client = openai.OpenAI(api_key=key or "none", base_url=base_url, max_retries=0, http_client=http)
        self._create = operator.attrgetter(path)(self._client).with_streaming_response.create

    def exchange(self, fields: Mapping[str, Any], limit: float, most: int) -> Iterator[Answer | bytes]:
        """Send and read, at most `most` bytes: an `Answer`, then its body if its status is below 300.

        `limit` is for the connection and for each read. Raises `TooSlow`, `ConnectionError` or `GaveUp`.
        """
        openai = self._openai
        try:
            with self._create(
                **fields,
                # Half for the connection, so that one lost packet leaves time for a second try.
                timeout=openai.Timeout(limit, connect=limit / 2),
                extra_headers={"Accept-Encoding": "identity"},  # no small body that unfolds into a huge one
            ) as response:
                yield Answer(response.status_code, response.headers, b"")
                size = 0
                for chunk in response.iter_bytes():
                    size += len(chunk)
                    if size > most:
                        raise GaveUp(f"the answer is larger than {most:,} bytes")
                    yield chunk
        except Exception as error:
            # openai 2 wraps what the hooks raise, openai 3 does not.
            for cause in _chain(error):
                if isinstance(cause, Answer):
                    yield cause
                    return
                if isinstance(cause, GaveUp):
                    raise cause from None
            if isinstance(error, openai.APITimeoutError) and not _is_connect(error):
                raise TooSlow from error
            last = list(_chain(error))[-1]
            said = f"{type(last).__name__}: {last}" if str(last) else type(last).__name__
            raise ConnectionError(f"the connection failed ({said})") from error

    def cut(self) -> None:
        """End whatever the connection is doing. For use from another thread; the line is then dead."""
        self._cut = True
        for held in self._sockets:
            with contextlib.suppress(OSError):
                # Not the TLS socket's own shutdown: that would pull its state from under the reading thread.
                socket.socket.shutdown(held, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection. For use by the thread that uses it."""
        self._client.close()

    def _watch(self, request: Any) -> None:
        request.extensions["trace"] = self._trace
        if not self._has_key:
            request.headers.pop("Authorization", None)

    def _trace(self, event: str, info: Mapping[str, Any]) -> None:
        if not event.endswith(("connect_tcp.complete", "start_tls.complete")):
            return
        held = info["return_value"].get_extra_info("socket")
        if isinstance(held, socket.socket):
            self._sockets = [held]
            with contextlib.suppress(OSError, ValueError):
                peer = held.getpeername()[0]
                if _is_metadata(ipaddress.ip_address(peer.partition("%")[0])):
                    held.close()
                    raise GaveUp(f"its name leads to {peer}, a link-local address: refused")
            if self._cut:
                self.cut()

    def _stop_at_errors(self, response: Any) -> None:
        """Read an error ourselves, and not whole: the library would read 200 MB of it."""
        if response.status_code >= 300:
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > _ERROR_BODY:
                    break
            raise Answer(response.status_code, dict(response.headers), bytes(body[:_ERROR_BODY]))


def library() -> Any:
    """The openai library. Raises `MissingExtra`."""
    try:
        import openai
    except ImportError as error:
        raise MissingExtra(f"an endpoint needs the openai library ({error}): pip install 'openai>=2'") from error
    return openai


def object_of(value: object) -> dict[str, Any]:
    """A JSON object, or an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _shown(value: object) -> str:
    text = re.sub(r"//[^/@\s'\"]*@", "//***@", repr(value))
    return text if len(text) <= 80 else text[:79] + "…"


def address(base_url: str) -> str:
    """The base URL without its final slash, host in lower case. Raises `ValueError` if it is not safe to call."""
    try:
        parts = urlsplit(base_url.strip())
        host, port = unicodedata.normalize("NFKC", parts.hostname or ""), parts.port
    except ValueError as error:
        raise ValueError(f"base_url {_shown(base_url)} is not a URL: {error}") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError(f"base_url {_shown(base_url)} must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"base_url {_shown(base_url)} holds a user or password; give the key as OPENAI_API_KEY")
    if parts.query or parts.fragment:
        raise ValueError(f"base_url {_shown(base_url)} must end with its path, without ? or #")
    address = _literal(host)
    if address is not None and _is_metadata(address):
        raise ValueError(f"base_url {_shown(base_url)} is a link-local address ({address}), where no model is served")
    if ":" in host:
        host = f"[{host}]"
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"


_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


def _literal(host: str) -> _Address | None:
    """The address that a host spells out, also as one number or in octal; None for a name. Asks no DNS."""
    host = host.partition("%")[0].rstrip(".")
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        pass
    if re.fullmatch(r"[0-9a-fx.]+", host, re.I):
        with contextlib.suppress(OSError):
            return ipaddress.IPv4Address(socket.inet_aton(host))
    return None


def _is_metadata(address: _Address) -> bool:
    """Link-local, also inside IPv6 (mapped, NAT64), and the one address of cloud metadata that is not."""
    if isinstance(address, ipaddress.IPv6Address):
        if address in ipaddress.ip_network("64:ff9b::/96"):
            address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
        elif address.ipv4_mapped is not None:
            address = address.ipv4_mapped
    return address.is_link_local or str(address) == "fd00:ec2::254"


def _is_loopback(base_url: str) -> bool:
    host = urlsplit(base_url).hostname or ""
    address = _literal(host)
    return host == "localhost" or (address is not None and address.is_loopback)


def _chain(error: BaseException) -> Iterator[BaseException]:
    at: BaseException | None = error
    while at is not None:
        yield at
        at = at.__cause__ or at.__context__


def _is_connect(error: BaseException) -> bool:
    return any(type(cause).__name__ == "ConnectTimeout" for cause in _chain(error))
