"""How fast recall is as a diary grows: given vectors, so that no embedder is measured, through the public surface.

    python bench/speed.py [--sizes 1000,10000,100000] [--owners 200] [--kept FOLDER] [--out RUNS.jsonl]

Each size is one diary of one owner: texts of 15 to 25 words of a Zipf vocabulary with names and numbers, unit vectors
of 384 numbers in clusters. `--kept` keeps what was built, so that a million notes are written once. `--owners` are
small diaries of 50 notes, opened in turn; 0 leaves them out.

Printed for each size: bulk notes a second, milliseconds of a recall (p50, p95), of one after a write and of the first
after opening, of one durable note beside a bare SQLite commit of the same bytes, agreement of the first ten by meaning
with exact search, bytes a note on the disk, and memory.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from diarist import Memory

DIM = 384
OWNER = "speed"
QUESTIONS = 200
MOST_BY_HAND = 200_000  # notes; a larger diary is written with its vectors at once, and its rate not told
_VOCABULARY = 30_000
_SYLLABLES = [a + b for a in "bdfgklmnprstvz" for b in ("a", "e", "i", "o", "u", "an", "er", "il", "on")]


class Notes:
    """The notes of the benchmark, the same for everyone: text and vector by number, made in blocks."""

    BLOCK = 10_000

    def __init__(self, seed: int = 7) -> None:
        rng = np.random.default_rng(seed)
        self._seed = seed
        syllables = 1 + np.arange(_VOCABULARY) % 3 + np.arange(_VOCABULARY) // 9_000
        self._words = ["".join(rng.choice(_SYLLABLES, count)) for count in syllables.tolist()]
        weights = 1 / (np.arange(_VOCABULARY) + 2.7)
        self._chance = np.cumsum(weights / weights.sum())
        # Embeddings crowd: a common direction, topics of unequal size, and fewer directions that matter than numbers.
        self._shared = unit(rng.standard_normal(DIM))
        self._topics = unit(rng.standard_normal((2_000, DIM)) * np.linspace(1.6, 0.4, DIM))
        self._spread = np.linspace(1.6, 0.4, DIM) / np.sqrt(DIM)

    def block(self, number: int) -> tuple[list[str], np.ndarray]:
        rng = np.random.default_rng((self._seed, number))
        lengths = rng.integers(15, 26, self.BLOCK)
        drawn = np.searchsorted(self._chance, rng.random(int(lengths.sum())))
        words = iter(self._words[each] for each in drawn.tolist())
        texts: list[str] = []
        for at, length in enumerate(lengths.tolist()):
            said = [next(words) for _ in range(length)]
            said[0] = said[0].capitalize()
            said[3] = said[3].capitalize()
            said[5] = str(int(rng.integers(2, 5_000)))
            texts.append(f"{' '.join(said)} {number * self.BLOCK + at}.")
        topic = (rng.random(self.BLOCK) ** 2 * len(self._topics)).astype(int)
        noise = rng.standard_normal((self.BLOCK, DIM)) * self._spread
        vectors = unit(0.6 * self._shared + self._topics[topic] + 0.8 * noise)
        return texts, vectors.astype(np.float32)

    def blocks(self, count: int) -> Iterator[tuple[list[str], np.ndarray]]:
        for number in range(-(-count // self.BLOCK)):
            texts, vectors = self.block(number)
            left = count - number * self.BLOCK
            yield texts[:left], vectors[:left]

    def questions(self, count: int, among: int) -> tuple[list[str], np.ndarray]:
        """Some words of a note, and a vector near its own."""
        rng = np.random.default_rng((self._seed, 99, among))
        asked: list[str] = []
        vectors: list[np.ndarray] = []
        at = rng.integers(0, among, count)
        for number in np.unique(at // self.BLOCK).tolist():
            texts, held = self.block(number)
            for each in (at[at // self.BLOCK == number] - number * self.BLOCK).tolist():
                words = texts[each].rstrip(".").split()[:-1]
                asked.append(" ".join(rng.choice(words, 6, replace=False)) + "?")
                vectors.append(unit(held[each] + 0.6 * rng.standard_normal(DIM) * self._spread))
        return asked, np.array(vectors, np.float32)


def unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


class Given:
    """An embedder that looks up what it was given."""

    id, dim = "given-384", DIM
    background, same = (0.35, 0.1), 0.9

    def __init__(self) -> None:
        self.vectors: dict[str, np.ndarray] = {}

    def embed_notes(self, texts: list[str], /) -> np.ndarray:
        return np.stack([self.vectors[text] for text in texts])

    def embed_query(self, text: str, /) -> np.ndarray:
        return self.vectors[text]


def milliseconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return (time.perf_counter() - start) * 1000


def spread(times: list[float]) -> dict[str, float]:
    times = sorted(times)
    return {"p50": round(statistics.median(times), 3), "p95": round(times[int(0.95 * len(times))], 3)}


def resident() -> int:
    """Bytes of memory of this process, where the system says so."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def built(place: Path, notes: Notes, size: int) -> dict[str, Any]:
    """A diary of so many notes at this place, written if it is not there."""
    if (place / "built.json").exists():
        return json.loads((place / "built.json").read_text())
    shutil.rmtree(place, ignore_errors=True)
    given = Given()
    took = 0.0
    with Memory(place / "memory", embedder=given) as memory:
        diary = memory.diary(OWNER)
        for texts, vectors in notes.blocks(size):
            if size > MOST_BY_HAND:
                store = memory.diary(OWNER)._store
                drafts = [diary._draft(text) for text in texts]
                pairs = zip(drafts, vectors, strict=True)
                store.write([replace(draft, vectors=vector[None], embedder=Given.id) for draft, vector in pairs])
                continue
            given.vectors = dict(zip(texts, vectors, strict=True))
            took += milliseconds(lambda texts=texts: diary.remember_many(texts)) / 1000
    files = sum(each.stat().st_size for each in place.rglob("*") if each.is_file())
    told = {"bulk_notes_per_s": round(size / took) if took else None, "bytes_per_note": round(files / size)}
    (place / "built.json").write_text(json.dumps(told))
    return told


def exact(notes: Notes, size: int, vectors: np.ndarray, kept_as: Any = np.float16) -> np.ndarray:
    """The numbers of the exact ten nearest to each, shape (n, 10), of notes whose vectors are kept as that type: what
    is compared is the search, not the rounding."""
    best = np.full((len(vectors), 10), -2.0)
    who = np.zeros((len(vectors), 10), np.int64)
    start = 0
    for _, held in notes.blocks(size):
        cosines = vectors @ unit(held.astype(kept_as).astype(np.float32)).T
        both = np.concatenate([best, cosines], axis=1)
        names = np.concatenate([who, np.broadcast_to(np.arange(start, start + len(held)), cosines.shape)], axis=1)
        top = np.argpartition(-both, 9, axis=1)[:, :10]
        best, who = np.take_along_axis(both, top, 1), np.take_along_axis(names, top, 1)
        start += len(held)
    return who


def agreement(notes: Notes, size: int, vectors: np.ndarray, memory: Memory) -> float:
    """Share of the exact ten nearest that the scan finds too."""
    store = memory.diary(OWNER)._store
    nearest = memory.nearest(store)
    seqs = np.sort(store.select(_everything(memory)))
    place = {seq: number for number, seq in enumerate(seqs[:size].tolist())}
    same = 0
    for vector, expected in zip(vectors, exact(notes, size, vectors), strict=True):
        found = nearest.cosines(vector).best(10)
        same += len({place.get(seq, -1) for seq in found} & set(expected.tolist()))
    return same / (10 * len(vectors))


def _everything(memory: Memory) -> Any:
    from diarist.stores import Filter

    return Filter(now=memory.now())


def bare_commits(place: Path, size: int, count: int) -> list[float]:
    """Milliseconds of a durable commit of so many bytes, with nothing else around it."""
    place.unlink(missing_ok=True)
    db = apsw.Connection(str(place))
    for sql in (
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "CREATE TABLE bare (id INTEGER PRIMARY KEY, data BLOB)",
    ):
        list(db.execute(sql))
    took = [milliseconds(lambda: _commit(db, size)) for _ in range(count)]
    db.close()
    return took


def _commit(db: apsw.Connection, size: int) -> None:
    with db:
        db.execute("INSERT INTO bare (data) VALUES (?)", (os.urandom(size),))


def measured(notes: Notes, size: int, place: Path) -> dict[str, Any]:
    told = built(place, notes, size)
    asked, vectors = notes.questions(QUESTIONS, size)
    given = Given()
    given.vectors = dict(zip(asked, vectors, strict=True))
    before = resident()
    with Memory(place / "memory", embedder=given) as memory:
        diary = memory.diary(OWNER)
        diary.recall(asked[0])
        took = [milliseconds(lambda each=each: diary.recall(each)) for each in asked * (2 if size < 500_000 else 1)]
        told["recall_ms"] = spread(took[len(asked) // 4 :])
        told["agreement_at_10"] = round(agreement(notes, size, vectors[:100], memory), 4)
    writes = 60
    with copied(place / "memory") as copy:
        texts, held = notes.block(10_000)
        given.vectors |= dict(zip(texts, held, strict=True))
        with Memory(copy, embedder=given) as memory:
            diary = memory.diary(OWNER)
            diary.recall(asked[0])
            note, after, bare = [], [], []
            commits = iter(bare_commits(Path(copy, "bare.db"), len(texts[0]) * 2 + 2 * DIM + 300, writes))
            for number in range(writes):
                note.append(milliseconds(lambda number=number: diary.remember(texts[number])))
                after.append(milliseconds(lambda number=number: diary.recall(asked[number])))
                bare.append(next(commits))
        told["note_ms"], told["recall_after_write_ms"] = spread(note), spread(after)
        told["bare_commit_ms"] = spread(bare)
        told["note_over_bare"] = round(told["note_ms"]["p50"] / told["bare_commit_ms"]["p50"], 2)
    cold = []
    for number in range(9 if size < 500_000 else 3):
        memory = Memory(place / "memory", embedder=given)
        gc.collect()
        cold.append(milliseconds(lambda memory=memory, number=number: memory.diary(OWNER).recall(asked[number])))
        told["memory_mb"] = round((resident() - before) / 2**20)
        memory.close()
    told["cold_ms"] = spread(cold)
    return told


@contextmanager
def copied(place: Path) -> Iterator[str]:
    """A copy of a memory to write to, so that what was built stays as it is."""
    with tempfile.TemporaryDirectory(dir=place.parent) as copy:
        yield shutil.copytree(place, f"{copy}/memory")


def many_owners(notes: Notes, owners: int, place: Path) -> dict[str, Any]:
    """Small diaries of 50 notes, opened in turn."""
    given = Given()
    texts, vectors = notes.block(0)
    given.vectors = dict(zip(texts, vectors, strict=True))
    asked, about = notes.questions(50, 5_000)
    given.vectors |= dict(zip(asked, about, strict=True))
    with Memory(place / "memory", embedder=given) as memory:
        start = time.perf_counter()
        for number in range(owners):
            at = number * 50 % (len(texts) - 50)
            memory.diary(f"owner{number}").remember_many(texts[at : at + 50])
        wrote = time.perf_counter() - start
    before = resident()
    with Memory(place / "memory", embedder=given) as memory:
        took = [
            milliseconds(lambda number=number: memory.diary(f"owner{number}").recall(asked[number % len(asked)]))
            for number in range(owners)
        ]
        return {
            "bulk_notes_per_s": round(owners * 50 / wrote),
            "cold_ms": spread(took),
            "memory_mb": round((resident() - before) / 2**20),
        }


def commit() -> str:
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return found.stdout.strip()


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--sizes", default="1000,10000,100000")
    options.add_argument("--owners", type=int, default=200)
    options.add_argument("--kept", type=Path)
    options.add_argument("--out", type=Path)
    asked = options.parse_args()
    notes = Notes()
    with tempfile.TemporaryDirectory() as spare:
        kept: Path = asked.kept or Path(spare)
        about = {"commit": commit(), "machine": platform.machine(), "cpus": os.cpu_count()}

        def tell(**facts: Any) -> None:
            line = json.dumps({**about, "load": round(os.getloadavg()[0], 2), **facts})
            print(line, flush=True)
            if asked.out:
                with asked.out.open("a") as out:
                    out.write(line + "\n")

        for size in [int(each) for each in asked.sizes.split(",") if each]:
            tell(who="diarist", notes=size, **measured(notes, size, kept / str(size)))
        if asked.owners:
            tell(who="diarist", owners=asked.owners, notes=50, **many_owners(notes, asked.owners, Path(spare, "many")))


if __name__ == "__main__":
    main()
