"""An OpenAI-compatible `/embeddings` endpoint as an embedder. Not for chat: that is `model.py`.

Two rules. No vector that the endpoint did not truly give for that text gets through: order, count, size and numbers
are checked. And no call lasts longer than its limit: each request, with its retries, ends within `timeout` seconds,
whatever the server does.
"""

from __future__ import annotations

import base64
import contextlib
import contextvars
import email.utils
import ipaddress
import json
import os
import random
import re
import socket
import threading
import time
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urlsplit

from ..errors import EmbedderError, MissingExtra
from . import checked, clean, partial, shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_sleep = time.sleep
_now = time.monotonic

_TRIES = 6
_TRIES_TO_CONNECT = 3  # a server that is down should not cost each note the whole limit
_BACKOFF = 0.25  # seconds before the second try, doubled each time, times 0.5 to 1.5 at random
_RETRY = frozenset({429, 502, 503, 504})
_REFUSED = frozenset({400, 413, 422, 500})  # may be one text's fault, or the batch's size: halves may pass
_SIZE = re.compile(r"context|exceed|too (long|large|many|big)|maximum|batch size|token|length|payload", re.I)
_LOADING = re.compile(r"loading|warming|starting", re.I)
_ERROR_BODY = 65_536  # bytes read of an error
_LEAST_PART = 100  # characters: a text refused for its length is not cut finer than this


@dataclass(frozen=True)
class _Known:
    """What a model's card asks for; arguments override it."""

    pattern: str
    query_prefix: str = ""
    note_prefix: str = ""
    window: int | None = None
    takes_dimensions: bool = False


_RETRIEVE = "Represent this sentence for searching relevant passages: "
_512_TOKENS = 480  # characters; the densest text is about one token each, see docs/decisions/0002

# From the models' own cards (huggingface.co/OWNER/MODEL) and, for the last, platform.openai.com/docs/guides/embeddings.
_KNOWN = (
    _Known(r"nomic-embed-text", "search_query: ", "search_document: "),
    _Known(r"e5-(small|base|large)(?!.*instruct)", "query: ", "passage: ", _512_TOKENS),
    _Known(r"mxbai-embed-large", _RETRIEVE, "", _512_TOKENS),
    _Known(r"bge-(small|base|large)-en", _RETRIEVE, "", _512_TOKENS),
    _Known(r"bge-(small|base|large)-zh", "为这个句子生成表示以用于检索相关文章：", "", _512_TOKENS),
    _Known(r"arctic-embed.*v2", "query: "),
    _Known(r"arctic-embed", _RETRIEVE, "", _512_TOKENS),
    _Known(r"embedding-?gemma", "task: search result | query: ", "title: none | text: "),
    _Known(
        r"qwen3-embedding",
        "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:",
    ),
    _Known(r"all-minilm", window=_512_TOKENS),
    _Known(r"text-embedding-3", takes_dimensions=True),
)


class Endpoint:
    """Vectors from any server that speaks OpenAI's `/embeddings`.

    `base_url`: http or https, with or without a final slash; None means OPENAI_BASE_URL, else OpenAI itself.
    `api_key`: None means OPENAI_API_KEY; a server that wants none works without.
    `query_prefix`, `note_prefix`: put before each text; None means what the model's card asks for, if it is known.
    `timeout`: seconds for one request with all its retries. Many texts take several requests.
    `max_batch`, `max_batch_chars`: texts and characters in one request. `window`: see `Embedder`.
    `dim`: numbers in a vector; sent as `dimensions` to models known to take it, and checked on every answer.
    None means that the first answer tells.

    Raises `ValueError` for an address that is not http(s), holds a password, or is link-local (cloud metadata).
    """

    drifts = True

    def __init__(
        self,
        model: str,
        base_url: str | None = None,
        api_key: str | None = None,
        *,
        query_prefix: str | None = None,
        note_prefix: str | None = None,
        timeout: float = 10.0,
        max_batch: int = 64,
        max_batch_chars: int = 64_000,
        window: int | None = None,
        dim: int | None = None,
    ) -> None:
        if not model.strip():
            raise ValueError("an endpoint needs the name of a model")
        for name, value in {"timeout": timeout, "max_batch": max_batch, "max_batch_chars": max_batch_chars}.items():
            if not value > 0:
                raise ValueError(f"{name} is {value}; it must be above 0")
        known = next((k for k in _KNOWN if re.search(k.pattern, model, re.I)), _Known(""))
        self.model = model
        self.base_url = _address(base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1")
        self.timeout = timeout
        self.max_batch, self.max_batch_chars = max_batch, max_batch_chars
        self.query_prefix = known.query_prefix if query_prefix is None else query_prefix
        self.note_prefix = known.note_prefix if note_prefix is None else note_prefix
        self.window = window or known.window or 2_000
        self._key = api_key
        self._dim = dim
        self._dimensions = dim if known.takes_dimensions else None
        self._room = max_batch  # texts in the next request: halved when one takes too long, doubled when it does not
        self._lines: list[_Line] = []
        self._pid = os.getpid()
        self.id = f"openai:{model}@{self.base_url.partition('://')[2]}"
        if dim is not None:
            self.id += f" dim={dim}"
        if self.query_prefix or self.note_prefix:
            self.id += f" query={self.query_prefix!r} note={self.note_prefix!r}"

    @property
    def dim(self) -> int:
        """Numbers in a vector. Asks the endpoint if it has not answered yet and `dim` was not given."""
        if self._dim is None:
            self.embed_query("dimension")
        assert self._dim is not None
        return self._dim

    def embed_notes(self, texts: list[str], /) -> NDArray[np.float32]:
        """Shape (n, dim), unit vectors, in requests of at most `max_batch` texts and `max_batch_chars` characters.

        A batch that is refused is halved down to the text at fault. Raises `ValueError` for a blank text, and an
        `EmbedderError` that carries the vectors that did arrive and the cause for each text that has none.
        """
        return self._embed([self.note_prefix + clean(text) for text in texts], "notes")

    def embed_query(self, text: str, /) -> NDArray[np.float32]:
        """Shape (dim,), a unit vector. Raises as `embed_notes` does."""
        return self._embed([self.query_prefix + clean(text)], "a question")[0]

    def _embed(self, texts: list[str], what: str) -> NDArray[np.float32]:
        import numpy as np

        if not texts:
            return np.zeros((0, self._dim or 0), np.float32)  # nothing to ask, so nothing is asked
        _library()  # its import takes a second, which is not the endpoint's fault
        work = _Work(self, texts, f"embedding {what} at {self.base_url} (model {self.model})")
        done = 0
        while done < len(texts) and not work.over:
            end = self._batch_end(texts, done)
            work.embed(done, end)
            done = end
        return work.result()

    def _batch_end(self, texts: list[str], start: int) -> int:
        chars, end = 0, start
        while end < len(texts) and end - start < self._room:
            chars += len(texts[end])
            if chars > self.max_batch_chars and end > start:
                break
            end += 1
        return end

    def _ask(self, texts: list[str]) -> list[NDArray[np.float32] | EmbedderError]:
        """One request and its retries: a vector or an error for each text. Raises `_Refused` or `_GaveUp`."""
        end = _now() + self.timeout
        for attempt in range(1, _TRIES + 1):
            asked, tries = None, _TRIES
            try:
                answer = self._post(texts, end - _now())
                if 200 <= answer.status < 300:
                    rows = answer.rows(len(texts))
                    self._room = min(self.max_batch, max(self._room, 2 * len(texts)))
                    return [self._vector(row) for row in rows]
                raise answer
            except _Answer as answer:
                reason = answer.reason(self._secret())
                if not answer.may_retry():
                    raise answer.verdict(reason, len(texts)) from None
                asked = answer.retry_after()
            except ConnectionError as error:
                reason, tries = str(error), _TRIES_TO_CONNECT
            except _TooSlow:
                self._room = max(1, len(texts) // 2)
                raise _GaveUp(
                    f"no answer to {len(texts)} texts within the limit of {self.timeout:g} s (timeout=)"
                ) from None
            wait = _BACKOFF * 2 ** (attempt - 1) * (0.5 + random.random()) if asked is None else max(asked, 0.0)  # noqa: S311
            if wait >= end - _now() or attempt == tries:
                wants = f" and it asks to wait {asked:.0f} s" if asked is not None else ""
                raise _GaveUp(f"{reason}; gave up at try {attempt} of {tries}: the limit is {self.timeout:g} s{wants}")
            _sleep(wait)
        raise AssertionError("the last try returns or raises")

    def _vector(self, row: object) -> NDArray[np.float32] | EmbedderError:
        try:
            numbers = _numbers(row)
            if self._dim is None:
                vector = checked([numbers], 1, len(numbers), self.model)[0]
                self._dim = len(vector)
                return vector
            return checked([numbers], 1, self._dim, self.model)[0]
        except EmbedderError as error:
            return error

    def _secret(self) -> str:
        return self._key if self._key is not None else os.environ.get("OPENAI_API_KEY", "")

    def _post(self, texts: list[str], limit: float) -> _Answer:
        """One HTTP exchange in at most `limit` seconds of wall clock, by cutting the connection if need be."""
        if self._pid != os.getpid():  # a forked child must not speak on its parent's connections
            self._lines, self._pid = [], os.getpid()
        try:
            line = self._lines.pop()
        except IndexError:
            line = _Line(self.base_url, self._secret())
        fields: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": "float"}
        if self._dimensions is not None:
            fields["dimensions"] = self._dimensions
        box: list[_Answer | BaseException] = []

        def exchange() -> None:
            try:
                box.append(line.exchange(fields, limit, 1_000_000 + 200_000 * len(texts)))
            except BaseException as error:  # raised again by the thread that waits
                box.append(error)

        # A thread, because neither a read timeout nor a name look-up has an end that one can rely on: a server
        # that sends one byte a second never runs into the first.
        thread = threading.Thread(
            target=contextvars.copy_context().run, args=(exchange,), name="diarist-embeddings", daemon=True
        )
        thread.start()
        try:
            thread.join(max(limit, 0.01))
        finally:
            late = thread.is_alive()
            if late:
                line.cut()
        if late:
            raise _TooSlow
        if isinstance(box[0], _Answer):
            self._lines.append(line)
            return box[0]
        raise box[0]

    def close(self) -> None:
        """Close the idle connections. A later call opens new ones."""
        while self._lines and self._pid == os.getpid():
            self._lines.pop().close()

    def __del__(self) -> None:
        if hasattr(self, "_lines"):
            self.close()


@dataclass
class _Work:
    """The texts of one call, the vectors that came, and why the others did not."""

    endpoint: Endpoint
    texts: list[str]
    what: str
    vectors: dict[int, NDArray[np.float32]] = field(default_factory=dict[int, "NDArray[np.float32]"])
    causes: dict[int, str] = field(default_factory=dict[int, str])
    over: bool = False

    def embed(self, start: int, end: int) -> None:
        """Texts `start` to `end`, halved while the endpoint refuses them. Fills `vectors` and `causes`."""
        if self.over:
            return
        try:
            for i, row in enumerate(self.endpoint._ask(self.texts[start:end]), start):  # pyright: ignore[reportPrivateUsage]
                if isinstance(row, EmbedderError):
                    self.causes[i] = f"{self.what}: {row}"
                else:
                    self.vectors[i] = row
        except _GaveUp as error:
            self.over = True
            self.causes.update((i, f"{self.what}: {error}") for i in range(start, len(self.texts)))
        except _Refused as error:
            if end - start > 1:
                middle = (start + end) // 2
                self.embed(start, middle)
                self.embed(middle, end)
            elif not (error.size and self._in_parts(start)):
                self.causes.setdefault(start, f"{self.what}: {error}")
                self._probe(str(error))

    def _in_parts(self, i: int) -> bool:
        """A text too long for the model: the mean of its halves' vectors, as models do beyond their window."""
        import numpy as np

        text = self.texts[i]
        middle = text.rfind(" ", len(text) // 4, len(text) // 2) + 1 or len(text) // 2
        halves = [part for part in (text[:middle], text[middle:]) if part.strip()]
        if len(halves) < 2 or len(text) < 2 * _LEAST_PART:
            return False
        inner = _Work(self.endpoint, halves, self.what)
        inner.embed(0, 2)
        self.over = self.over or inner.over
        if inner.causes:
            self.causes[i] = next(iter(inner.causes.values()))
        else:
            mean = np.average([inner.vectors[0], inner.vectors[1]], axis=0, weights=[len(half) for half in halves])
            self.vectors[i] = checked([mean], 1, len(mean), self.what)[0]
        return True

    def _probe(self, reason: str) -> None:
        """When nothing has passed and a text alone is refused: is it the text, or would anything be refused?"""
        if self.vectors or len(self.texts) < 2 or len(self.causes) > 1:
            return
        with contextlib.suppress(_Refused, _GaveUp):
            self.endpoint._ask(["hello"])  # pyright: ignore[reportPrivateUsage]
            return
        self.over = True
        self.causes.update((i, f"{self.what}: {reason}") for i in range(len(self.texts)))

    def result(self) -> NDArray[np.float32]:
        import numpy as np

        if self.causes:
            error = partial([self.vectors.get(i) for i in range(len(self.texts))], dict(sorted(self.causes.items())))
            if self.over and not self.vectors:  # the endpoint is down: it is not the texts, and nothing is carried
                raise EmbedderError(str(error))
            raise error
        return np.stack([self.vectors[i] for i in range(len(self.texts))])


class _TooSlow(Exception):
    pass


class _GaveUp(Exception):
    """No use in asking for the other texts now."""


class _Refused(Exception):
    """These texts were refused; fewer, shorter or others may pass."""

    def __init__(self, reason: str, size: bool) -> None:
        super().__init__(reason)
        self.size = size


class _Answer(Exception):
    """What the server said. Raised out of the HTTP client for a status of 300 and above."""

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        super().__init__(status)
        self.status, self.headers, self.body = status, headers, body

    def rows(self, count: int) -> list[object]:
        """One entry for each text, in the order sent. Raises `_GaveUp` if that cannot be told for sure."""
        told = _object(self._json())
        data = told.get("data")
        if not isinstance(data, list):
            if told.get("error"):
                code = _object(told["error"]).get("code")
                raise _Answer(code if isinstance(code, int) and 400 <= code < 600 else 400, self.headers, self.body)
            begins = f"{self.body[:80].decode(errors='replace')!r}" if self.body else "an empty body"
            raise _GaveUp(f"the answer holds no list of vectors: {begins}; is this an /embeddings endpoint?")
        items = [_object(item) for item in cast("list[object]", data)]
        if len(items) != count:
            raise _GaveUp(f"{len(items)} vectors came for {count} texts")
        if any(item.get("index") is not None for item in items):
            order = {item.get("index"): item for item in items if type(item.get("index")) is int}
            if set(order) != set(range(count)):
                indices = shown([item.get("index") for item in items])
                raise _GaveUp(f"the vectors are numbered {indices}, not 0 to {count - 1}: which is whose?")
            items = [order[i] for i in range(count)]
        return [item.get("embedding") for item in items]

    def may_retry(self) -> bool:
        """429 (but for a quota that is used up), 502, 503, 504, and 500 only where a model is loading."""
        text = self._text()
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

    def verdict(self, reason: str, count: int) -> _Refused | _GaveUp:
        """What a status that is not to be retried means for the texts sent."""
        size = bool(_SIZE.search(self._text()))
        if self.status == 413 or (self.status in _REFUSED and (self.status != 500 or size)):
            limits = f" ({count} texts in this request)" if count > 1 else ""
            return _Refused(reason + limits, size or self.status == 413)
        return _GaveUp(reason)

    def reason(self, secret: str) -> str:
        """The status and what to do, without the key, whatever the server repeats of it."""
        if self.status in {401, 403}:
            return f"refused with {self.status}: check OPENAI_API_KEY, or api_key="
        if 300 <= self.status < 400:
            to = shown(self.headers.get("location", "nowhere"))
            return f"redirected ({self.status}) to {to}: not followed; if you trust that address, make it the base_url"
        text = " ".join(self._text().split())[:200]
        if len(secret) >= 4:
            text = text.replace(secret, "***")
        known = {404: "; check the model's name, and that base_url ends where /embeddings follows"}
        return f"status {self.status}{known.get(self.status, '')}" + (f": {text}" if text else "")

    def _text(self) -> str:
        """The message in an error body, in the shapes that servers use."""
        told = _object(self._json())
        error = told.get("error") or told.get("detail") or told.get("message")
        if not error:
            return self.body[:2_000].decode(errors="replace")
        parts = _object(error)
        return " ".join(str(parts[k]) for k in ("message", "code", "type") if parts.get(k)) or str(error)

    def _json(self) -> object:
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None


class _Line:
    """One HTTP client with one connection, which can be cut from another thread."""

    def __init__(self, base_url: str, key: str) -> None:
        openai = _library()
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

    def exchange(self, fields: Mapping[str, Any], limit: float, most: int) -> _Answer:
        """Send and read, at most `most` bytes. Raises `_TooSlow`, `ConnectionError` or `_GaveUp`."""
        openai = self._openai
        try:
            with self._client.embeddings.with_streaming_response.create(
                **fields,
                # Half for the connection, so that one lost packet leaves time for a second try.
                timeout=openai.Timeout(limit, connect=limit / 2),
                extra_headers={"Accept-Encoding": "identity"},  # no small body that unfolds into a huge one
            ) as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > most:
                        raise _GaveUp(f"the answer is larger than {most:,} bytes")
                return _Answer(response.status_code, response.headers, bytes(body))
        except Exception as error:
            # openai 2 wraps what the hooks raise, openai 3 does not.
            for cause in _chain(error):
                if isinstance(cause, _Answer):
                    return cause
                if isinstance(cause, _GaveUp):
                    raise cause from None
            if isinstance(error, openai.APITimeoutError) and not _is_connect(error):
                raise _TooSlow from error
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
                    raise _GaveUp(f"its name leads to {peer}, a link-local address: refused")
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
            raise _Answer(response.status_code, dict(response.headers), bytes(body[:_ERROR_BODY]))


def _library() -> Any:
    try:
        import openai
    except ImportError as error:
        raise MissingExtra(f"an endpoint needs the openai library ({error}): pip install 'openai>=2'") from error
    return openai


def _numbers(row: object) -> list[Any] | NDArray[np.float32]:
    """One vector as sent: a list of numbers, or base64 of little-endian float32, asked for or not."""
    import numpy as np

    if isinstance(row, str):
        try:
            raw = base64.b64decode(row, validate=True)
        except ValueError:
            raw = b""
        if not raw or len(raw) % 4:
            raise EmbedderError(f"text came where a vector was expected: {shown(row, 40)}")
        return np.frombuffer(raw, "<f4")
    numbers = cast("list[Any]", row) if isinstance(row, list) else []
    if not numbers:
        raise EmbedderError(f"{shown(cast('object', row), 40)} came where a vector was expected")
    if isinstance(numbers[0], list):
        raise EmbedderError(
            "one vector for each token came, not one for each text; switch on pooling at the server "
            "(llama.cpp: --pooling mean), or use an embedding model"
        )
    return numbers


def _object(value: object) -> dict[str, Any]:
    """A JSON object, or an empty one for anything else."""
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def _address(base_url: str) -> str:
    """The base URL without its final slash, host in lower case. Raises `ValueError` if it is not safe to call."""
    try:
        parts = urlsplit(base_url.strip())
        host, port = unicodedata.normalize("NFKC", parts.hostname or ""), parts.port
    except ValueError as error:
        raise ValueError(f"base_url {shown(base_url)} is not a URL: {error}") from None
    if parts.scheme not in {"http", "https"} or not host:
        raise ValueError(f"base_url {shown(base_url)} must begin with http:// or https:// and name a host")
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"base_url {shown(base_url)} holds a user or password; give the key as OPENAI_API_KEY")
    if parts.query or parts.fragment:
        raise ValueError(f"base_url {shown(base_url)} must end with its path, without ? or #")
    address = _literal(host)
    if address is not None and _is_metadata(address):
        raise ValueError(f"base_url {shown(base_url)} is a link-local address ({address}), where no model is served")
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
