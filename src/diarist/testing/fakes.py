"""A clock that moves when told, and a quick embedder that is none."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING

from ..embedders import clean
from ..errors import EmbedderError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class FixedClock:
    """A clock that moves only when told: `Memory(clock=FixedClock("2025-03-01T09:00:00Z"))`. Gives aware UTC times."""

    def __init__(self, start: datetime | str = "2025-01-01T00:00:00Z") -> None:
        self.set(start)

    def __call__(self) -> datetime:
        return self._now

    def set(self, moment: datetime | str) -> None:
        """Jump to an aware datetime or ISO 8601 text with an offset, forwards or back."""
        if isinstance(moment, str):
            moment = datetime.fromisoformat(moment)
        if moment.tzinfo is None:
            raise ValueError(f"a clock needs an offset: {moment.isoformat()} has none")
        self._now = moment.astimezone(UTC)

    def advance(self, by: float | timedelta = 1.0) -> datetime:
        """Move by seconds or a timedelta, and say the new time."""
        self._now += by if isinstance(by, timedelta) else timedelta(seconds=by)
        return self._now


# One word, or one character of a script that writes no spaces.
_WORDS = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff]|[^\W_]+")


class HashEmbedder:
    """A fake and quick embedder: each word adds one at the place its hash says. Shared words, near vectors.

    `calls` counts requests, `texts` keeps what was asked. With `down = True` every request raises `EmbedderError`.
    """

    def __init__(self, dim: int = 64, id: str | None = None) -> None:
        self.dim = dim
        self.id = id or f"hash-{dim}"
        self.calls = 0
        self.texts: list[str] = []
        self.down = False

    def embed_notes(self, texts: list[str], /) -> NDArray[np.float32]:
        """Shape (n, dim), unit vectors."""
        import numpy as np

        self.calls += 1
        self.texts += texts
        if self.down:
            raise EmbedderError(f"{self.id} is down, as this test wants it")
        out = np.zeros((len(texts), self.dim), np.float32)
        for row, text in zip(out, texts, strict=True):
            text = clean(text).casefold()
            for word in _WORDS.findall(text) or [text]:
                row[int.from_bytes(blake2b(word.encode(), digest_size=8).digest(), "big") % self.dim] += 1
            row /= np.linalg.norm(row)
        return out

    def embed_query(self, text: str, /) -> NDArray[np.float32]:
        """Shape (dim,), a unit vector."""
        return self.embed_notes([text])[0]
