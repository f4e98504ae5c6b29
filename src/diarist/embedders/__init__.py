"""Text to vector: the protocol, what every answer must satisfy, and which embedder a name opens.

Nothing here loads a model: `bundled.py` and `endpoint.py` do, on first use.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from ..errors import EmbedderError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@runtime_checkable
class Embedder(Protocol):
    """Anything with these four can be `Memory(embedder=...)`.

    Optional attributes, read with `getattr`:
    `window: int`, characters of text (a CJK character counts as two) that one vector can hold; longer notes
    are embedded in overlapping windows. Without it a text is never split.
    `background: tuple[float, float]`, mean and standard deviation of the cosine between a question and a note
    that does not answer it: the scale on which a cosine means something.
    `emphasis: Mapping[str, array]`, by what is searched, "note" or "message", factors of shape (dim,) for the numbers
    of a question's vector: where a vector has parts that are worth more for one than for the other.
    `drifts: bool`, True where another model may one day answer under the same id, as behind a server: it is then
    asked once a week for a text whose vector is known.
    `reads: Mapping[str, slice]`, ids of other embedders whose stored vectors this one can use, and which part of them.

    An `EmbedderError` raised by `embed_notes` may carry the vectors that did arrive: see `partial` and `arrived`.
    """

    @property
    def id(self) -> str:
        """Names model, version and preparation exactly: vectors of different ids are never compared."""
        ...

    @property
    def dim(self) -> int:
        """Numbers in a vector."""
        ...

    def embed_notes(self, texts: list[str], /) -> NDArray[np.float32]:
        """Vectors of stored texts, shape (n, dim), in the order given."""
        ...

    def embed_query(self, text: str, /) -> NDArray[np.float32]:
        """The vector of a question, shape (dim,)."""
        ...


ACCEPTED = (
    '"bundled", "use", "e5", "openai:MODEL@BASE_URL" (without @BASE_URL: OPENAI_BASE_URL, else OpenAI itself), '
    "or an object with id, dim, embed_notes and embed_query"
)


def open_embedder(spec: str | Embedder) -> Embedder:
    """The embedder a name stands for. Loads no model and asks no network: that happens on first use.

    `spec`: "bundled" (the best that runs on this machine), "use", "e5", "openai:MODEL@BASE_URL", or an object with
    the protocol, which is returned as it is. Raises `ValueError` for an unknown name, `TypeError` for anything else.
    """
    if not isinstance(spec, str):
        # Not isinstance(spec, Embedder): that would read the properties, and reading `dim` may ask an endpoint.
        missing = [name for name in ("id", "dim", "embed_notes", "embed_query") if not _has(spec, name)]
        if isinstance(spec, type):
            raise TypeError(f"embedder is a class: call it first; accepted: {ACCEPTED}")
        if missing:
            raise TypeError(f"embedder is a {type(spec).__name__} without {', '.join(missing)}; accepted: {ACCEPTED}")
        return spec
    if spec in {"bundled", "use", "e5"}:
        from .bundled import E5, Use, bundled

        return {"bundled": bundled, "use": Use, "e5": E5}[spec]()
    kind, _, rest = spec.partition(":")
    if kind == "openai" and rest.strip():
        from .endpoint import Endpoint

        # The first "@" before a scheme: a model's name may hold one ("text-embedding@001"), and so may a URL.
        parts = re.split(r"@(?=[A-Za-z][A-Za-z0-9+.-]*://)", rest, maxsplit=1)
        if len(parts) == 2 and parts[0].strip():
            return Endpoint(parts[0], parts[1])
        if "@" not in rest:
            return Endpoint(rest)
        raise ValueError(f"embedder {shown(spec)}: needs MODEL@BASE_URL with BASE_URL beginning http:// or https://")
    raise ValueError(f"embedder {shown(spec)} is not known; accepted: {ACCEPTED}")


def checked(vectors: object, count: int, dim: int, who: str) -> NDArray[np.float32]:
    """The one seam every vector passes: float32, shape (count, dim), each of length 1.

    `vectors`: what an embedder gave, any array-like. `who`: the embedder's id, for messages. Lengths are computed
    in float64 after dividing by the largest number, so denormal and huge values are normalised, not lost.
    Raises `EmbedderError` for a wrong count, a wrong size, no numbers, NaN, infinity or zero. Where only some rows
    are bad the error carries the others (see `partial`): a bad vector hurts no other note.
    """
    import numpy as np

    try:
        raw = np.asarray(vectors)
    except (ValueError, TypeError, OverflowError):
        raise EmbedderError(
            f"{who} gave vectors of different sizes, or no numbers; expected {count} of {dim} numbers each"
        ) from None
    if raw.size == 0 and count == 0 and (raw.ndim < 2 or raw.shape[0] == 0):
        return np.zeros((0, dim), np.float32)
    if raw.ndim == 0 or raw.size == 0:
        raise EmbedderError(f"{who} gave {shown(vectors)} for {count} texts; expected {count} vectors of {dim} numbers")
    if raw.dtype.kind not in "fiu":
        raise EmbedderError(f"{who} gave {shown(raw.flat[0:1].tolist()[0])} where a number was expected")
    if raw.ndim > 2:
        raise EmbedderError(
            f"{who} gave an array of shape {raw.shape}: one vector for each token, not for each text; "
            "switch on pooling at the server, or use an embedding model"
        )
    if raw.ndim == 1:
        raise EmbedderError(f"{who} gave one row of {raw.size} numbers; expected an array of shape ({count}, {dim})")
    if raw.shape[0] != count:
        raise EmbedderError(f"{who} gave {raw.shape[0]} vectors for {count} texts")
    if raw.shape[1] != dim:
        raise EmbedderError(
            f"{who} gave vectors of {raw.shape[1]} numbers, expected {dim}; "
            "if the model behind it has changed, run `diarist reembed`"
        )
    with np.errstate(over="ignore"):  # from a wider type: too large is infinite, and refused below
        wide = raw.astype(np.float64)
    largest = np.abs(wide).max(axis=1)  # NaN and infinity come through max
    good = np.isfinite(largest) & (largest > 0)
    unit = np.zeros((count, dim), np.float32)
    scaled = wide[good] / largest[good, None]
    unit[good] = scaled / np.linalg.norm(scaled, axis=1, keepdims=True)
    if good.all():
        return unit
    causes = {int(i): _fault(wide[i], who) for i in np.flatnonzero(~good)}
    raise partial([unit[i] if good[i] else None for i in range(count)], causes)


def emphasised(vector: NDArray[np.float32], embedder: Embedder, kind: str) -> NDArray[np.float32]:
    """A question's vector, shape (dim,), as it is held against notes or against messages."""
    factors: Mapping[str, NDArray[np.float32]] = getattr(embedder, "emphasis", {})
    return vector * factors[kind] if kind in factors else vector


def partial(vectors: Sequence[NDArray[np.float32] | None], causes: Mapping[int, str]) -> EmbedderError:
    """An `EmbedderError` that carries the vectors that did arrive.

    `.vectors`: one entry for each text in order, shape (dim,), None where it failed. `.causes`: why, by position.
    """
    first, why = next(iter(causes.items()))
    more = "" if len(vectors) == 1 else f" (text {first + 1} of {len(vectors)}; {len(causes)} failed)"
    error = EmbedderError(why + more)
    error.__dict__.update(vectors=list(vectors), causes=dict(causes))
    return error


def arrived(error: EmbedderError) -> tuple[list[NDArray[np.float32] | None], dict[int, str]] | None:
    """The `.vectors` and `.causes` of an error made with `partial`; None if it carries none."""
    held = error.__dict__
    return (held["vectors"], held["causes"]) if "vectors" in held else None


def clean(text: str) -> str:
    """The text as every model can take it: NUL becomes a space, a lone surrogate U+FFFD.

    One bad character would otherwise fail a whole batch, or hide all that follows it.
    Raises `TypeError` if it is not text and `ValueError` if it is blank: a blank text has a vector like any other,
    and would be found by everything.
    """
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"an embedder takes text, not {type(text).__name__}")
    if not text.isascii():
        text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    text = text.replace("\0", " ")
    if not text.strip():
        raise ValueError("a blank text has no meaning to embed")
    return text


def shown(value: object, limit: int = 80) -> str:
    """A value for an error message, short, and without the user and password of a URL."""
    text = re.sub(r"//[^/@\s'\"]*@", "//***@", repr(value))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def _fault(row: NDArray[np.float64], who: str) -> str:
    import numpy as np

    bad = np.flatnonzero(~np.isfinite(row))
    if bad.size:
        return f"{who} gave {row[bad[0]]} at place {int(bad[0])} of a vector; check the model and its precision"
    return f"{who} gave a vector of zeros, which is near nothing and everything; check the model and the text"


def _has(thing: object, name: str) -> bool:
    try:
        inspect.getattr_static(thing, name)
    except AttributeError:
        # Made on request by __getattr__ (a proxy): asking is then the only way to know.
        return hasattr(type(thing), "__getattr__") and hasattr(thing, name)
    return True
