"""How fast Diarist is beside what people use instead: the same notes, vectors and questions, in one run.

    python bench/peers.py [--sizes 1000,10000,100000] [--who diarist,chroma,...] [--owners 200] [--kept FOLDER]
                          [--out RUNS.jsonl]

Notes and vectors are those of `bench/speed.py`: nothing is embedded here. The others are installed by hand, beside
numpy and diarist (`pip install chromadb lancedb sqlite-vec`); one that is not there is left out, and said to be. They
search by meaning alone, Diarist by words and meaning.

- `diarist`     a SQLite file an owner, scan of all vectors; a write is on the disk when it returns
- `chroma`      its defaults, cosine: an approximate index (HNSW), a collection an owner; a write is on the disk
- `lancedb`     without an index, which is exact, a table an owner; it does not wait for the disk (no fsync)
- `sqlite-vec`  `vec0`, which is exact, a file an owner, WAL and synchronous=FULL as Diarist has them
- `json`        the textbook's program: one JSON file an owner, written anew with each note, cosines in plain Python; it
                does not wait for the disk either

Each part of each system is a process of its own: writing all notes, asking, writing while asking, and opening, five
times. Printed for each system and size, as JSON lines, what `bench/speed.py` prints. `memory_mb` is what the process
grew by from opening to after the first answers, its imports left out. `agreement_at_10` is the share of the ten
nearest, of all exactly, that it finds. Slow things are done less often: each measure stops after 20 seconds.
With `--kept`, what is built stays; where a million notes of ours are there (`speed.py --kept`), they are asked too.
"""

from __future__ import annotations

import argparse
import gc
import importlib.util
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import speed
from speed import DIM, OWNER, QUESTIONS, Given, Notes, milliseconds, resident

LONGEST = 20.0  # seconds for one measure
OPENINGS = 5
WRITES = 60


class Diarist:
    most = 1_000_000
    needs = "diarist"

    def __init__(self, place: Path) -> None:
        from diarist import Memory

        self.given = Given()
        self.memory = Memory(place, embedder=self.given)

    def add(self, owner: str, texts: list[str], vectors: np.ndarray) -> None:
        self.given.vectors = dict(zip(texts, vectors, strict=True))
        self.memory.diary(owner).remember_many(texts)

    def remember(self, owner: str, text: str, vector: np.ndarray) -> None:
        self.given.vectors = {text: vector}
        self.memory.diary(owner).remember(text)

    def recall(self, owner: str, question: str, vector: np.ndarray) -> list[str]:
        self.given.vectors = {question: vector}
        return [hit.note.text for hit in self.memory.diary(owner).recall(question, limit=10)]

    def close(self) -> None:
        self.memory.close()


class Chroma:
    most = 100_000
    needs = "chromadb"

    def __init__(self, place: Path) -> None:
        import chromadb

        self.client = chromadb.PersistentClient(str(place), chromadb.Settings(anonymized_telemetry=False))
        self.collections: dict[str, Any] = {}

    def of(self, owner: str) -> Any:
        if owner not in self.collections:
            self.collections[owner] = self.client.get_or_create_collection(
                owner, configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
            )
        return self.collections[owner]

    def add(self, owner: str, texts: list[str], vectors: np.ndarray) -> None:
        most = self.client.get_max_batch_size()
        for at in range(0, len(texts), most):
            part = texts[at : at + most]
            self.of(owner).add(
                ids=[str(number_of(text)) for text in part], embeddings=vectors[at : at + most], documents=part
            )

    def remember(self, owner: str, text: str, vector: np.ndarray) -> None:
        self.of(owner).add(ids=[str(number_of(text))], embeddings=[vector], documents=[text])

    def recall(self, owner: str, question: str, vector: np.ndarray) -> list[str]:  # noqa: ARG002
        return self.of(owner).query(query_embeddings=[vector], n_results=10, include=["documents"])["documents"][0]

    def close(self) -> None:
        pass


class LanceDB:
    most = 100_000
    needs = "lancedb"

    def __init__(self, place: Path) -> None:
        import lancedb
        import pyarrow as pa

        self.db = lancedb.connect(str(place))
        self.tables: dict[str, Any] = {}
        self.pa = pa
        self.schema = pa.schema([("text", pa.string()), ("vector", pa.list_(pa.float32(), DIM))])

    def of(self, owner: str) -> Any:
        if owner not in self.tables:
            self.tables[owner] = self.db.create_table(owner, schema=self.schema, exist_ok=True)
        return self.tables[owner]

    def add(self, owner: str, texts: list[str], vectors: np.ndarray) -> None:
        flat = self.pa.array(np.ascontiguousarray(vectors, np.float32).ravel())
        rows = self.pa.table([texts, self.pa.FixedSizeListArray.from_arrays(flat, DIM)], schema=self.schema)
        self.of(owner).add(rows)

    def remember(self, owner: str, text: str, vector: np.ndarray) -> None:
        self.add(owner, [text], vector[None])

    def recall(self, owner: str, question: str, vector: np.ndarray) -> list[str]:  # noqa: ARG002
        found = self.of(owner).search(vector).distance_type("cosine").limit(10).select(["text", "_distance"])
        return [row["text"] for row in found.to_list()]

    def close(self) -> None:
        pass


class SqliteVec:
    most = 100_000
    needs = "sqlite_vec"

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.place = place
        self.files: dict[str, Any] = {}

    def of(self, owner: str) -> Any:
        if owner not in self.files:
            import apsw
            import sqlite_vec

            db = self.files[owner] = apsw.Connection(str(self.place / f"{owner}.db"))
            db.enable_load_extension(True)
            db.load_extension(sqlite_vec.loadable_path())
            for sql in (
                "PRAGMA journal_mode = WAL",
                "PRAGMA synchronous = FULL",
                "CREATE TABLE IF NOT EXISTS notes (id INTEGER PRIMARY KEY, text TEXT NOT NULL)",
                f"""CREATE VIRTUAL TABLE IF NOT EXISTS vectors
                    USING vec0(id INTEGER PRIMARY KEY, vector FLOAT[{DIM}] distance_metric=cosine)""",
            ):
                list(db.execute(sql))
        return self.files[owner]

    def add(self, owner: str, texts: list[str], vectors: np.ndarray) -> None:
        db = self.of(owner)
        rows = [(number_of(text), text, vector.tobytes()) for text, vector in zip(texts, vectors, strict=True)]
        with db:
            db.executemany("INSERT INTO notes VALUES (?, ?)", ((id, text) for id, text, _ in rows))
            db.executemany("INSERT INTO vectors VALUES (?, ?)", ((id, vector) for id, _, vector in rows))

    def remember(self, owner: str, text: str, vector: np.ndarray) -> None:
        self.add(owner, [text], vector[None])

    def recall(self, owner: str, question: str, vector: np.ndarray) -> list[str]:  # noqa: ARG002
        found = self.of(owner).execute(
            "SELECT text FROM vectors JOIN notes USING (id) WHERE vector MATCH ? AND k = 10 ORDER BY distance",
            (vector.tobytes(),),
        )
        return [text for (text,) in found]

    def close(self) -> None:
        for db in self.files.values():
            db.close()


class Json:
    """As it stands in the chapter on memory that Diarist began with, but for the ten notes that it gives, not two, and
    the bulk writing, for which it has nothing."""

    most = 10_000
    needs = "json"

    def __init__(self, place: Path) -> None:
        place.mkdir(parents=True, exist_ok=True)
        self.place = place
        self.diaries: dict[str, list[dict[str, Any]]] = {}

    def of(self, owner: str) -> list[dict[str, Any]]:
        if owner not in self.diaries:
            file = self.place / f"{owner}.json"
            self.diaries[owner] = json.loads(file.read_text()) if file.exists() else []
        return self.diaries[owner]

    def add(self, owner: str, texts: list[str], vectors: np.ndarray) -> None:
        self.of(owner).extend({"text": text, "vector": row.tolist()} for text, row in zip(texts, vectors, strict=True))
        (self.place / f"{owner}.json").write_text(json.dumps(self.of(owner)))

    def remember(self, owner: str, text: str, vector: np.ndarray) -> None:
        self.add(owner, [text], vector[None])

    def recall(self, owner: str, question: str, vector: np.ndarray) -> list[str]:  # noqa: ARG002
        q = vector.tolist()
        hits = sorted(
            ({"text": n["text"], "score": cosine(q, n["vector"])} for n in self.of(owner)), key=lambda h: -h["score"]
        )
        return [hit["text"] for hit in hits[:10]]

    def close(self) -> None:
        pass


def cosine(a: list[float], b: list[float]) -> float:
    dot = sum(x * y for x, y in zip(a, b))  # noqa: B905
    return dot / (math.sqrt(sum(x * x for x in a)) * math.sqrt(sum(y * y for y in b)))


SYSTEMS: dict[str, Any] = {
    "diarist": Diarist,
    "chroma": Chroma,
    "lancedb": LanceDB,
    "sqlite-vec": SqliteVec,
    "json": Json,
}


def number_of(text: str) -> int:
    """Which note it is: the texts end in it."""
    return int(text.rsplit(" ", 1)[1].rstrip("."))


def times(call: Callable[..., object], each: Iterable[Any]) -> dict[str, float]:
    """Milliseconds, as p50 and p95, of calls with each in turn, for at most so long."""
    took: list[float] = []
    end = time.perf_counter() + LONGEST
    for one in each:
        took.append(milliseconds(lambda one=one: call(one)))
        if time.perf_counter() > end and len(took) >= 3:
            break
    return speed.spread(took)


# -- each of these is a process ----------------------------------------------------------------------------------------


def build(who: str, size: int, place: Path) -> dict[str, Any]:
    if who == "diarist":
        return speed.built(place, Notes(), size)
    told = place / "built.json"
    if told.exists():
        return json.loads(told.read_text())
    system, took = SYSTEMS[who](place / "memory"), 0.0
    for texts, vectors in Notes().blocks(size):
        took += milliseconds(lambda texts=texts, vectors=vectors: system.add(OWNER, texts, vectors)) / 1000
    system.close()
    facts = {"bulk_notes_per_s": None if who == "json" else round(size / took)}
    facts["bytes_per_note"] = round(bytes_in(place) / size)
    told.write_text(json.dumps(facts))
    return facts


def ask(who: str, size: int, place: Path) -> dict[str, Any]:
    notes = Notes()
    asked, vectors = notes.questions(QUESTIONS, size)
    system = SYSTEMS[who](place / "memory")
    for at in range(5 if who != "json" else 1):
        system.recall(OWNER, asked[at], vectors[at])
    pairs = list(zip(asked, vectors, strict=True))
    facts: dict[str, Any] = {"recall_ms": times(lambda pair: system.recall(OWNER, *pair), pairs)}
    if who == "diarist":  # by words and meaning it finds others; what is compared is the search by meaning
        facts["agreement_at_10"] = round(speed.agreement(notes, size, vectors[:100], system.memory), 4)
    else:
        some = pairs[: 100 if who != "json" else 5]
        expected = speed.exact(notes, size, np.array([vector for _, vector in some]), np.float32)
        same = sum(
            len({number_of(text) for text in system.recall(OWNER, *pair)} & set(best))
            for pair, best in zip(some, expected.tolist(), strict=True)
        )
        facts["agreement_at_10"] = round(same / (10 * len(some)), 4)
    system.close()
    return facts


def write(who: str, size: int, place: Path) -> dict[str, Any]:
    """Single notes, each followed by a recall and by a bare commit of as many bytes as a note of ours."""
    notes = Notes()
    asked, vectors = notes.questions(WRITES, size)
    texts, held = notes.block(10_000)
    note, after, bare = [], [], []
    with speed.copied(place / "memory") as copy:
        os.sync()  # what was copied must not wait to be written while commits are timed
        system = SYSTEMS[who](Path(copy))
        system.recall(OWNER, asked[0], vectors[0])
        commits = iter(speed.bare_commits(Path(copy, "bare.db"), len(texts[0]) * 2 + 2 * DIM + 300, WRITES))
        end = time.perf_counter() + 2 * LONGEST
        for at in range(WRITES):
            note.append(milliseconds(lambda at=at: system.remember(OWNER, texts[at], held[at])))
            after.append(milliseconds(lambda at=at: system.recall(OWNER, asked[at], vectors[at])))
            bare.append(next(commits))
            if time.perf_counter() > end and len(note) >= 3:
                break
        system.close()
    facts = {"note_ms": note, "recall_after_write_ms": after, "bare_commit_ms": bare}
    ratio = round(statistics.median(note) / statistics.median(bare), 2)
    return {name: speed.spread(took) for name, took in facts.items()} | {"note_over_bare": ratio}


def imported(who: str) -> None:
    """Has the system do everything once, elsewhere: what it imports on first use is then there."""
    texts, vectors = Notes().block(0)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        system = SYSTEMS[who](Path(place, "memory"))
        system.add(OWNER, texts[:20], vectors[:20])
        system.recall(OWNER, texts[0], vectors[0])
        system.close()
    gc.collect()


def opening(who: str, size: int, place: Path) -> dict[str, Any]:
    asked, vectors = Notes().questions(10, size)
    imported(who)
    before, start = resident(), time.perf_counter()
    system = SYSTEMS[who](place / "memory")
    system.recall(OWNER, asked[0], vectors[0])
    cold = (time.perf_counter() - start) * 1000
    for at in range(1, 10 if who != "json" else 2):
        system.recall(OWNER, asked[at], vectors[at])
    return {"cold_ms": cold, "memory_mb": round((resident() - before) / 2**20)}


def build_owners(who: str, owners: int, place: Path) -> dict[str, Any]:
    texts, vectors = Notes().block(0)
    system = SYSTEMS[who](place / "memory")
    start = time.perf_counter()
    for number in range(owners):
        part = slice(number * 50 % (len(texts) - 50), number * 50 % (len(texts) - 50) + 50)
        system.add(f"owner{number}", texts[part], vectors[part])
    took = time.perf_counter() - start
    system.close()
    return {"bulk_notes_per_s": round(owners * 50 / took), "bytes_per_note": round(bytes_in(place) / owners / 50)}


def open_owners(who: str, owners: int, place: Path) -> dict[str, Any]:
    asked, vectors = Notes().questions(50, 5_000)
    imported(who)
    before = resident()
    system = SYSTEMS[who](place / "memory")
    facts: dict[str, Any] = {
        "cold_ms": times(
            lambda number: system.recall(f"owner{number}", asked[number % 50], vectors[number % 50]), range(owners)
        )
    }
    return facts | {"memory_mb": round((resident() - before) / 2**20)}


PARTS: dict[str, Callable[[str, int, Path], dict[str, Any]]] = {
    each.__name__: each for each in (build, ask, write, opening, build_owners, open_owners)
}

# -- and this is the one that starts them ------------------------------------------------------------------------------


def bytes_in(place: Path) -> int:
    return sum(each.stat().st_size for each in place.rglob("*") if each.is_file())


def apart(part: str, who: str, count: int, place: Path) -> dict[str, Any]:
    """A part in a process of its own; what it prints last. CalledProcessError if it fails, and it says why."""
    command = [sys.executable, __file__, "--part", part, "--who", who, "--sizes", str(count), "--kept", str(place)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(run.stdout.splitlines()[-1])


def measured(who: str, size: int, place: Path) -> dict[str, Any]:
    place.mkdir(parents=True, exist_ok=True)
    facts = apart("build", who, size, place) | apart("ask", who, size, place) | apart("write", who, size, place)
    opened = [apart("opening", who, size, place) for _ in range(OPENINGS)]
    cold = speed.spread([each["cold_ms"] for each in opened])
    return facts | {"cold_ms": cold, "memory_mb": statistics.median(each["memory_mb"] for each in opened)}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--sizes", default="1000,10000,100000")
    options.add_argument("--who", default=",".join(SYSTEMS))
    options.add_argument("--owners", type=int, default=200)
    options.add_argument("--kept", type=Path)
    options.add_argument("--out", type=Path)
    options.add_argument("--part", choices=PARTS, help=argparse.SUPPRESS)
    given = options.parse_args()
    sizes = [int(each) for each in given.sizes.split(",") if each]
    if given.part:
        print(json.dumps(PARTS[given.part](given.who, sizes[0], given.kept)))
        return
    systems = [who for who in given.who.split(",") if importlib.util.find_spec(SYSTEMS[who].needs)]
    for who in set(given.who.split(",")) - {*systems}:
        print(f"{who}: {SYSTEMS[who].needs} is not installed, left out", file=sys.stderr)
    about = {"commit": speed.commit(), "machine": platform.machine(), "cpus": os.cpu_count()}

    def tell(**facts: Any) -> None:
        line = json.dumps({**about, "load": round(os.getloadavg()[0], 2), **facts})
        print(line, flush=True)
        if given.out:
            with given.out.open("a") as out:
                out.write(line + "\n")

    with tempfile.TemporaryDirectory() as spare:
        kept: Path = given.kept or Path(spare)
        if (kept / "1000000" / "built.json").exists():
            sizes.append(1_000_000)
        for size in sizes:
            for who in systems:
                if size <= SYSTEMS[who].most:
                    place = kept / str(size) if who == "diarist" else kept / who / str(size)
                    tell(who=who, notes=size, **measured(who, size, place))
        for who in systems if given.owners else []:
            place = Path(spare, who, "owners")
            place.mkdir(parents=True)
            facts = apart("build_owners", who, given.owners, place) | apart("open_owners", who, given.owners, place)
            tell(who=who, owners=given.owners, notes=50, **facts)


if __name__ == "__main__":
    main()
