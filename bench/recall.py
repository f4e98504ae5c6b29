"""How well recall finds: a file of conversations with labelled questions, through the public surface.

    python bench/recall.py DATA.jsonl [--as notes|sessions] [--owners 0,2] [--embedder bundled|use|e5]
                           [--cache FILE] [--out RUNS.jsonl] [--ways fused,words,meaning,bm25,newest]

DATA has one owner a line: `notes` [{id, text, speaker, time, session}] and `questions` [{id, text, evidence, kind,
asked_at, meta}]. As sessions, each note is a message of its session; as notes, a note with its speaker as source and
its time as date. Vectors are kept in `--cache`, by embedder and text, so that the next run is quick; neither it nor the
data belongs into the repository. Times without a zone are read as UTC.

Printed for each way: recall@1/5/10 (share of the evidence found), hit@5/10 (any of it), all@10, MRR, how often the
first hit is right at each verdict, expected calibration error (ten bins) of its score, AUC of that score for
questions with and without an answer (traps), and put to another owner's diary (easy), tokens given, and milliseconds.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import sqlite3
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from diarist import Memory, analysis
from diarist.analysis import estimate_tokens
from diarist.checks import LONGEST_TEXT, checked_text
from diarist.embedders import checked, clean, emphasised, open_embedder

DEPTH = 50  # hits asked for, so that ten sessions can be told apart


class Cached:
    """An embedder that remembers, in a file, what it was once asked."""

    def __init__(self, inner: Any, path: str) -> None:
        self._inner, self.id, self.dim = inner, inner.id, inner.dim
        for name in ("window", "background", "same", "reads"):
            if hasattr(inner, name):
                setattr(self, name, getattr(inner, name))
        self._db = sqlite3.connect(path, check_same_thread=False)
        self._db.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB)")

    def embed_notes(self, texts: list[str], /) -> Any:
        return np.stack([self._vector("note", text) for text in texts])

    def embed_query(self, text: str, /) -> Any:
        return self._vector("query", text)

    def _vector(self, role: str, text: str) -> Any:
        key = hashlib.blake2b(f"{self.id}\0{role}\0{text}".encode(), digest_size=16).digest()
        found = self._db.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
        if found is None:
            made = self._inner.embed_query(text) if role == "query" else self._inner.embed_notes([text])[0]
            self._db.execute("INSERT OR REPLACE INTO vectors VALUES (?,?)", (key, made.astype("<f2").tobytes()))
            self._db.commit()
            return made
        return np.frombuffer(found[0], "<f2").astype(np.float32)


class Mute:
    """No embedder: recall by words alone."""

    id, dim = "none", 1

    def embed_notes(self, _texts: list[str], /) -> Any:
        raise OSError("no embedder in this run")

    def embed_query(self, _text: str, /) -> Any:
        raise OSError("no embedder in this run")


@dataclass
class Measured:
    """What came of one way to search."""

    rows: list[dict[str, float]] = field(default_factory=list)
    firsts: list[tuple[float, bool, str]] = field(default_factory=list)  # (score, right, verdict)
    answerable: list[float] = field(default_factory=list)
    traps: list[float] = field(default_factory=list)
    foreign: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)

    def summary(self) -> dict[str, float | None]:
        mean = {name: float(np.mean([row[name] for row in self.rows])) for name in self.rows[0]} if self.rows else {}
        scores = np.array([score for score, _, _ in self.firsts])
        right = np.array([float(ok) for _, ok, _ in self.firsts])
        by_verdict = {
            f"right if {verdict}": float(np.mean([ok for _, ok, told in self.firsts if told == verdict] or [math.nan]))
            for verdict in ("strong", "weak", "nothing")
        }
        share = Counter(told for _, _, told in self.firsts)
        return {
            **mean,
            "ECE": _ece(scores, right),
            **by_verdict,
            "share strong": share["strong"] / max(1, len(self.firsts)),
            "AUC traps": _auc(self.answerable, self.traps),
            "AUC easy": _auc(self.answerable, self.foreign),
            "tokens": float(np.mean(self.tokens)) if self.tokens else None,
            "p50 ms": float(np.percentile(self.seconds, 50)) * 1000 if self.seconds else None,
            "p95 ms": float(np.percentile(self.seconds, 95)) * 1000 if self.seconds else None,
        }


def _ece(scores: Any, right: Any) -> float | None:
    if not len(scores):
        return None
    bins = np.minimum((scores * 10).astype(int), 9)
    gaps = [abs(scores[bins == each].mean() - right[bins == each].mean()) * (bins == each).mean() for each in set(bins)]
    return float(sum(gaps))


def _auc(better: Sequence[float], worse: Sequence[float]) -> float | None:
    if not better or not worse:
        return None
    a, b = np.array(better)[:, None], np.array(worse)[None, :]
    return float((a > b).mean() + (a == b).mean() / 2)


def when(text: str | None) -> datetime | None:
    if text is None:
        return None
    moment = datetime.fromisoformat(text)
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


Search = Callable[[str, datetime | None, int | None], tuple[list[str], float, str, str]]
"""(question, now, how many notes are there yet) -> ids best first, first score, verdict, what a model reads."""


def diarists(memory: Memory, owner: dict[str, Any], kind: str) -> tuple[Any, dict[str, str]]:
    """The owner's diary, filled, and its ids to the file's. A blank note is nothing to keep."""
    diary, names = memory.diary(owner["owner"]), dict[str, str]()
    said = [note for note in owner["notes"] if not _is_blank(note["text"])]
    if kind == "notes":
        fields = [
            {"text": note["text"], "source": note["speaker"] or None, "happened_at": when(note["time"])}
            for note in said
        ]
        for note, kept in zip(said, diary.remember_many(fields), strict=True):
            names[kept.id] = note["id"]
        return diary, names
    by_session: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for note in said:
        by_session[str(note["session"])].append(note)
    for session, notes in by_session.items():
        messages = [
            {"role": "user", "content": note["text"]}
            | ({"name": note["speaker"]} if note["speaker"] else {})
            | ({"created_at": moment.isoformat()} if (moment := when(note["time"])) else {})
            for note in notes
        ]
        for id, note in zip(diary.session(session).extend(messages), notes, strict=True):
            names[id] = note["id"]
    return diary, names


def _is_blank(text: str) -> bool:
    try:
        checked_text(text, "the note", LONGEST_TEXT)
    except ValueError:
        return True
    return False


def by_diary(memory: Memory, owner: dict[str, Any], kind: str) -> Search:
    diary, names = diarists(memory, owner, kind)
    order = {note["id"]: number for number, note in enumerate(owner["notes"])}

    def search(question: str, now: datetime | None, visible: int | None) -> tuple[list[str], float, str, str]:
        found = diary.recall(question[:32_000], limit=DEPTH, where=kind, now=now)
        hits = [hit for hit in found if visible is None or order[names[hit.note.id]] < visible]
        shown = diary.recall(question[:32_000], where=kind, now=now).context() if visible is None else ""
        ids = [names[hit.note.id] for hit in hits]
        return ids, (hits[0].score if hits else 0.0), found.verdict if hits else "nothing", shown

    return search


def by_meaning(memory: Memory, owner: dict[str, Any], kind: str) -> Search:
    """The nearest vectors, as a plain vector store gives them: the same texts, windows and headings as the diary's."""
    diary, names = diarists(memory, owner, kind)
    shelf = diary._store if kind == "notes" else diary._store.messages
    nearest = memory.nearest(shelf)
    named = {entry.seq: names[entry.note.id] for entry in shelf.entries(nearest.seqs.tolist())}
    order = {note["id"]: number for number, note in enumerate(owner["notes"])}

    def search(question: str, _now: Any, visible: int | None) -> tuple[list[str], float, str, str]:
        embedder = memory.embedder
        vector = checked([embedder.embed_query(clean(question[:32_000]))], 1, embedder.dim, embedder.id)[0]
        cosines = nearest.cosines(emphasised(vector, embedder, shelf.kind))
        best = cosines.best(len(named) if visible else DEPTH)
        first = float(cosines.of(np.array(best[:1]))[0]) if best else 0.0
        ids = [named[seq] for seq in best]
        return [id for id in ids if visible is None or order[id] < visible][:DEPTH], max(0.0, first), "", ""

    return search


def by_bm25(owner: dict[str, Any]) -> Search:
    """Forty lines of BM25, as everybody writes them: the baseline."""
    words = [analysis.terms(f"{note['speaker'] or ''} {note['text']}") for note in owner["notes"]]
    counts, holders = [Counter(each) for each in words], Counter(term for each in words for term in set(each))
    average = sum(map(len, words)) / max(1, len(words))

    def search(question: str, _now: Any, visible: int | None) -> tuple[list[str], float, str, str]:
        scores = np.zeros(len(words))
        for term in set(analysis.terms(question)):
            if term not in holders:
                continue
            idf = math.log(1 + (len(words) - holders[term] + 0.5) / (holders[term] + 0.5))
            for number, held in enumerate(counts):
                if times := held[term]:
                    scores[number] += idf * 2.2 * times / (times + 1.2 * (0.25 + 0.75 * len(words[number]) / average))
        scores[visible or len(words) :] = -1
        order = np.argsort(-scores, kind="stable")[:DEPTH]
        best = float(scores[order[0]])
        return [owner["notes"][number]["id"] for number in order], 1 - math.exp(-best / 10), "", ""

    return search


def by_newest(owner: dict[str, Any]) -> Search:
    def search(_question: str, _now: Any, visible: int | None) -> tuple[list[str], float, str, str]:
        notes = owner["notes"][: visible or len(owner["notes"])]
        return [note["id"] for note in notes[::-1][:DEPTH]], 0.5, "", ""

    return search


def measured(owners: Sequence[dict[str, Any]], searches: Sequence[Search]) -> Measured:
    came = Measured()
    for number, (owner, search) in enumerate(zip(owners, searches, strict=True)):
        session = {note["id"]: note["session"] for note in owner["notes"]}
        for question in owner["questions"]:
            meta = question.get("meta") or {}
            began = time.perf_counter()
            ids, score, verdict, shown = search(
                question["text"], when(question.get("asked_at")), meta.get("visible_notes")
            )
            came.seconds.append(time.perf_counter() - began)
            evidence = set(question["evidence"])
            came.firsts.append((score, bool(ids) and ids[0] in evidence, verdict))
            if not evidence:
                came.traps.append(score)
                continue
            came.answerable.append(score)
            if shown:
                came.tokens.append(estimate_tokens(shown))
            came.rows.append(_row(ids, evidence, session))
        stranger = owners[(number + 1) % len(owners)]
        if stranger is not owner:
            asked = [each for each in stranger["questions"] if each["evidence"]][:60]
            came.foreign += [search(each["text"], when(each.get("asked_at")), None)[1] for each in asked]
    return came


def _row(ids: list[str], evidence: set[str], session: dict[str, str]) -> dict[str, float]:
    def share(found: list[Any], wanted: set[Any], count: int) -> float:
        return len(set(found[:count]) & wanted) / len(wanted)

    sessions = list(dict.fromkeys(session[id] for id in ids))
    wanted = {session[id] for id in evidence if id in session}
    first = next((rank for rank, id in enumerate(ids, 1) if id in evidence), None)
    return {
        **{f"recall@{count}": share(ids, evidence, count) for count in (1, 5, 10)},
        **{f"hit@{count}": float(share(ids, evidence, count) > 0) for count in (5, 10)},
        "all@10": float(share(ids, evidence, 10) == 1),
        "MRR": 1 / first if first else 0.0,
        **{f"sessions any@{count}": float(share(sessions, wanted, count) > 0) for count in (5, 10) if wanted},
        **{f"sessions share@{count}": share(sessions, wanted, count) for count in (5, 10) if wanted},
    }


def ways(args: argparse.Namespace, owners: Sequence[dict[str, Any]]) -> Iterator[tuple[str, Measured]]:
    for way in args.ways.split(","):
        if way in ("bm25", "newest"):
            made = [by_bm25(owner) if way == "bm25" else by_newest(owner) for owner in owners]
            yield way, measured(owners, made)
            continue
        embedder = Mute() if way == "words" else Cached(open_embedder(args.embedder), args.cache)
        made_by = by_meaning if way == "meaning" else by_diary
        with tempfile.TemporaryDirectory() as folder, Memory(folder, embedder=embedder) as memory:
            searches = [made_by(memory, owner, args.kind) for owner in owners]
            yield way, measured(owners, searches)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--as", dest="kind", choices=("notes", "sessions"), default="notes")
    parser.add_argument("--owners", help="their numbers, from 0, such as 1,3,5")
    parser.add_argument("--questions", type=int, help="the most of each owner")
    parser.add_argument("--embedder", default="bundled")
    parser.add_argument("--cache", default=str(Path(tempfile.gettempdir()) / "diarist-bench-vectors.db"))
    parser.add_argument("--ways", default="fused,words,meaning,bm25,newest")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    owners = [json.loads(line) for line in args.data.read_text(encoding="utf-8").splitlines() if line.strip()]
    if args.owners:
        owners = [owners[int(number)] for number in args.owners.split(",")]
    for owner in owners:
        owner["questions"] = owner["questions"][: args.questions]
    for way, came in ways(args, owners):
        summary = {name: value if value is None else round(value, 4) for name, value in came.summary().items()}
        print(f"\n{args.data.stem} as {args.kind}, {way}: {len(owners)} owners, {len(came.firsts)} questions")
        for name, value in summary.items():
            print(f"  {name:<20}{'-' if value is None else value}")
        if args.out:
            told = {
                "at": datetime.now(UTC).isoformat(timespec="seconds"), "data": args.data.stem, "as": args.kind,
                "way": way, "embedder": args.embedder, "owners": [owner["owner"] for owner in owners], **summary,
            }  # fmt: skip
            with args.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    sys.exit(main())
