"""An OpenAI-compatible `/embeddings` endpoint as an embedder. Not for chat: that is `model.py`.

Two rules. No vector that the endpoint did not truly give for that text gets through: order, count, size and numbers
are checked. And no call lasts longer than its limit: each request, with its retries, ends within `timeout` seconds,
whatever the server does.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from ..errors import EmbedderError
from ..wire import TRIES, TRIES_TO_CONNECT, Answer, GaveUp, TooSlow, Tries, Wire, address, library, object_of
from . import checked, clean, partial, shown

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_REFUSED = frozenset({400, 413, 422, 500})  # may be one text's fault, or the batch's size: halves may pass
_SIZE = re.compile(r"context|exceed|too (long|large|many|big)|maximum|batch size|token|length|payload", re.I)
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
        self.base_url = address(base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1")
        self.timeout = timeout
        self.max_batch, self.max_batch_chars = max_batch, max_batch_chars
        self.query_prefix = known.query_prefix if query_prefix is None else query_prefix
        self.note_prefix = known.note_prefix if note_prefix is None else note_prefix
        self.window = window or known.window or 2_000
        self._dim = dim
        self._dimensions = dim if known.takes_dimensions else None
        self._room = max_batch  # texts in the next request: halved when one takes too long, doubled when it does not
        self._wire = Wire("embeddings", self.base_url, api_key)
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
        library()  # its import takes a second, which is not the endpoint's fault
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
        """One request and its retries: a vector or an error for each text. Raises `_Refused` or `GaveUp`."""
        tries = Tries(self.timeout)
        fields: dict[str, Any] = {"model": self.model, "input": texts, "encoding_format": "float"}
        if self._dimensions is not None:
            fields["dimensions"] = self._dimensions
        while True:
            try:
                answer = self._wire.post(fields, tries.left, 1_000_000 + 200_000 * len(texts))
                if 200 <= answer.status < 300:
                    rows = _rows(answer, len(texts))
                    self._room = min(self.max_batch, max(self._room, 2 * len(texts)))
                    return [self._vector(row) for row in rows]
                raise answer
            except Answer as answer:
                reason = answer.reason(self._wire)
                if not answer.may_retry():
                    raise _verdict(answer, reason, len(texts)) from None
                asked, most = answer.retry_after(), TRIES
            except ConnectionError as error:
                reason, asked, most = str(error), None, TRIES_TO_CONNECT
            except TooSlow:
                self._room = max(1, len(texts) // 2)
                raise GaveUp(
                    f"no answer to {len(texts)} texts within the limit of {self.timeout:g} s (timeout=)"
                ) from None
            tries.wait(reason, asked, most)

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

    def close(self) -> None:
        """Close the idle connections. A later call opens new ones."""
        self._wire.close()


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
        except GaveUp as error:
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
        with contextlib.suppress(_Refused, GaveUp):
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


class _Refused(Exception):
    """These texts were refused; fewer, shorter or others may pass."""

    def __init__(self, reason: str, size: bool) -> None:
        super().__init__(reason)
        self.size = size


def _rows(answer: Answer, count: int) -> list[object]:
    """One entry for each text, in the order sent. Raises `GaveUp` if that cannot be told for sure."""
    told = object_of(answer.json())
    data = told.get("data")
    if not isinstance(data, list):
        if told.get("error"):
            code = object_of(told["error"]).get("code")
            raise Answer(code if isinstance(code, int) and 400 <= code < 600 else 400, answer.headers, answer.body)
        begins = f"{answer.body[:80].decode(errors='replace')!r}" if answer.body else "an empty body"
        raise GaveUp(f"the answer holds no list of vectors: {begins}; is this an /embeddings endpoint?")
    items = [object_of(item) for item in cast("list[object]", data)]
    if len(items) != count:
        raise GaveUp(f"{len(items)} vectors came for {count} texts")
    if any(item.get("index") is not None for item in items):
        order = {item.get("index"): item for item in items if type(item.get("index")) is int}
        if set(order) != set(range(count)):
            indices = shown([item.get("index") for item in items])
            raise GaveUp(f"the vectors are numbered {indices}, not 0 to {count - 1}: which is whose?")
        items = [order[i] for i in range(count)]
    return [item.get("embedding") for item in items]


def _verdict(answer: Answer, reason: str, count: int) -> _Refused | GaveUp:
    """What a status that is not to be retried means for the texts sent."""
    size = bool(_SIZE.search(answer.text()))
    if answer.status == 413 or (answer.status in _REFUSED and (answer.status != 500 or size)):
        limits = f" ({count} texts in this request)" if count > 1 else ""
        return _Refused(reason + limits, size or answer.status == 413)
    return GaveUp(reason)


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
