"""Where the time of one `remember` and one `recall` goes, with the bundled embedder.

    python bench/parts.py [--notes 10000] [--times 90] [--embedder bundled|use|e5] [--out RUNS.jsonl]

A diary of so many notes is written with made-up vectors under the embedder's name, since to embed 10,000 texts takes
minutes. Then the facts of everyday life that come with the package are remembered, and their questions asked, through
the real embedder. Printed for each: milliseconds of the whole and of its parts, each without the parts inside it,
medians. What is measured is each part's own functions, by name: when one is renamed, this fails and is to be mended.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from speed import Notes, commit, unit

from diarist import Memory, analysis, calibration, recall, scan, suspicion
from diarist.embedders import Embedder, open_embedder, scale
from diarist.stores import folder

OWNER = "parts"
PARTS: dict[str, list[tuple[Any, str]]] = {
    "words of a text": [(analysis, "terms")],
    "reads like instructions": [(suspicion, "reasons")],
    "words of the notes": [(recall, "_Words")],
    "vectors": [(scan.Nearest, name) for name in ("cosines", "likeness")]
    + [(kind, name) for kind in (scan.Cosines, scan.Roughly) for name in ("of", "best")],
    "judging": [(calibration, name) for name in ("columns", "odds", "parts")] + [(recall, "_newest_first")],
    "reading the notes": [(folder.FolderDiary, "entries")],
    "is it there already": [(folder.FolderDiary, "twin")],
    "rows": [(folder.FolderDiary, "_write_one")],
    "lock and commit": [(folder.FolderDiary, "write")],
}


class Stopwatch:
    """Seconds by part; the time of a part within another counts for the inner one only."""

    def __init__(self) -> None:
        self.spent: dict[str, float] = defaultdict(float)
        self._inner = [0.0]

    def watch(self, where: Any, name: str, part: str) -> None:
        """From now on, calls of this function count for the part."""
        call: Callable[..., Any] = getattr(where, name)

        def timed(*args: Any, **options: Any) -> Any:
            self._inner.append(0.0)
            start = time.perf_counter()
            try:
                return call(*args, **options)
            finally:
                took = time.perf_counter() - start
                self.spent[part] += took - self._inner.pop()
                self._inner[-1] += took

        setattr(where, name, timed)

    def parts(self, call: Callable[[], object]) -> dict[str, float]:
        """Milliseconds of one call, by part."""
        self.spent.clear()
        start = time.perf_counter()
        call()
        whole = time.perf_counter() - start
        told = dict(self.spent)
        return {
            part: 1000 * took for part, took in {**told, "else": whole - sum(told.values()), "whole": whole}.items()
        }


class MadeUp:
    """Vectors of no meaning, under the name of an embedder that takes longer."""

    def __init__(self, real: Embedder) -> None:
        self.id, self.dim = real.id, real.dim
        self._rng = np.random.default_rng(7)

    def embed_notes(self, texts: list[str], /) -> np.ndarray:
        return unit(self._rng.standard_normal((len(texts), self.dim))).astype(np.float32)

    def embed_query(self, text: str, /) -> np.ndarray:
        return self.embed_notes([text])[0]


def medians(every: list[dict[str, float]]) -> dict[str, float]:
    parts = dict.fromkeys(part for each in every for part in each)
    found = {part: statistics.median(each.get(part, 0.0) for each in every) for part in parts}
    return {part: round(took, 3) for part, took in sorted(found.items(), key=lambda each: -each[1])}


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--notes", type=int, default=10_000)
    options.add_argument("--times", type=int, default=90)
    options.add_argument("--embedder", default="bundled")
    options.add_argument("--out", type=Path)
    asked = options.parse_args()
    real = open_embedder(asked.embedder)
    with tempfile.TemporaryDirectory() as place:
        with Memory(place, embedder=MadeUp(real)) as memory:
            for texts, _ in Notes().blocks(asked.notes):
                memory.diary(OWNER).remember_many(texts)
        watch = Stopwatch()
        for part, functions in PARTS.items():
            for where, name in functions:
                watch.watch(where, name, part)
        for name in ("embed_notes", "embed_query"):
            watch.watch(type(real), name, "embedding")
        with Memory(place, embedder=real) as memory:
            mine, pairs = memory.diary(OWNER), scale.everyday()[: asked.times]
            mine.remember("The first text loads the model.")
            mine.recall("And the first question the diary?")
            told = {
                "remember": medians([watch.parts(lambda each=each: mine.remember(each["note"])) for each in pairs]),
                "recall": medians([watch.parts(lambda each=each: mine.recall(each["question"])) for each in pairs]),
            }
    facts = {
        "commit": commit(),
        "load": round(os.getloadavg()[0], 2),
        "notes": asked.notes,
        "embedder": real.id,
        **told,
    }
    print(json.dumps(facts, indent=1))
    if asked.out:
        with asked.out.open("a") as out:
            out.write(json.dumps(facts) + "\n")


if __name__ == "__main__":
    main()
