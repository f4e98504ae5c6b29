"""A question becomes hits: words and meaning find candidates, one score judges each, time orders what says the same.

It reads like a recipe; `recall` is the whole of it. Where a note is kept is the store's business, what a word is
`analysis.py`'s, and what a score is worth `calibration.py`'s.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from . import analysis, calibration, suspicion, when
from .calibration import Evidence
from .note import Hit, Note, Part
from .stores import Counts, Entry, Filter, Shelf
from .when import Days

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .scan import Cosines, Nearest

# BM25 (Robertson and Zaragoza 2009): how soon repetition saturates, and how much a long note's words count less.
K1, B = 1.2, 0.5
LIGHT_WEIGHT = 0.1  # what a word of grammar counts beside a word of content
MOST_WORDS = 64  # words of a long question that are looked up: the rarest
MOST_PLACES = 20_000  # places of one word that are read: the newest. Its cost is bounded however common it is
CANDIDATES = 200  # notes that each way may propose
FINALISTS = 16  # of these, notes that are judged one by one, beside four for each hit wanted
POOL = 12  # hits wanted at the least, among which time sets the order
SAME_FROM = 0.5  # cosine from which two notes say nearly the same (an embedder may say its own: `same`)
EQUAL_WITHIN = 1.5  # log-odds within which two such notes answer equally well, and the newer goes first
LATEST = 8  # notes that a question about the last time may mean: the newest


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, made ready once."""

    terms: Mapping[str, float]
    """Its words and what each weighs before rarity."""
    vector: NDArray[np.float32] | None
    background: tuple[float, float]
    same: float = SAME_FROM
    last_time: bool = False
    """It asks for the last time or the usual."""
    days: Days | None = None
    """The days that it names."""


def question(text: str, vector: NDArray[np.float32] | None, embedder: object, now: datetime, zone: tzinfo) -> Question:
    last_time = when.is_about_last_time(text)
    about = when.without_last_time(text) if last_time else text
    terms = {term: LIGHT_WEIGHT if term in analysis.LIGHT else 1.0 for term in analysis.terms(about)}
    background: tuple[float, float] = getattr(embedder, "background", calibration.UNKNOWN_BACKGROUND)
    same: float = getattr(embedder, "same", SAME_FROM)
    return Question(terms, vector, background, same, last_time, when.days_named(text, now, zone))


def recall(store: Shelf, nearest: Nearest | None, asked: Question, filter: Filter, limit: int) -> list[Hit]:
    """The best `limit` notes that hold, best first. `nearest` is None where there is no vector for the question."""
    counts = store.counts()
    allowed = store.select(filter) if filter.narrow else None
    words = _Words(store, asked.terms, counts)
    cosines = None if nearest is None or asked.vector is None else nearest.cosines(asked.vector)

    reachable = counts.notes if allowed is None else len(allowed)
    wanted = max(limit, POOL)
    judged_at_most = FINALISTS + 4 * wanted
    while True:
        candidates = _candidates(store, words, cosines, allowed, max(CANDIDATES, judged_at_most))
        finalists = _promising(words, cosines, asked, candidates, judged_at_most)
        timely = _timely(store, asked, filter, allowed)
        judged = _judge(store, words, cosines, asked, sorted({*finalists, *timely}), timely)
        held = _holding(store, judged, filter, wanted)
        if len(held) >= wanted or judged_at_most >= reachable:
            # A question about other days does not want today's.
            return _newest_first(held, None if asked.days else nearest, asked.same)[:limit]
        judged_at_most *= 8  # the best were replaced or have expired: look further down


def _candidates(
    store: Shelf, words: _Words, cosines: Cosines | None, allowed: NDArray[np.int64] | None, wanted: int
) -> NDArray[np.int64]:
    """Notes found by either way, and the newest, so that a small diary is always judged whole."""
    import numpy as np

    if allowed is not None and len(allowed) <= wanted:
        return allowed
    newest = np.array(store.newest(wanted), np.int64) if allowed is None else allowed[-wanted:]
    by_meaning = np.array([] if cosines is None else cosines.best(wanted, allowed), np.int64)
    return np.unique(np.concatenate([words.best(wanted, allowed), by_meaning, newest]))


def _promising(
    words: _Words, cosines: Cosines | None, asked: Question, candidates: NDArray[np.int64], count: int
) -> list[int]:
    """The candidates worth a closer look: all at once and a little roughly, since a note's length is not looked at."""
    import numpy as np

    if len(candidates) <= count:
        return candidates.tolist()
    coverage, rarity = words.rough(candidates)
    odds = calibration.rough_odds(
        coverage, rarity, None if cosines is None else cosines.of(candidates), asked.background
    )
    return candidates[np.argsort(-odds, kind="stable")[:count]].tolist()


def _timely(store: Shelf, asked: Question, filter: Filter, allowed: NDArray[np.int64] | None) -> Mapping[int, Part]:
    """Notes that what the question says of time speaks for, by their seqs: the newest, or those of the days named."""
    import numpy as np

    found: dict[int, Part] = {}
    if asked.days is not None:
        days = asked.days
        of_days = store.select(replace(filter, since=days.first, before=days.end))[-CANDIDATES:]
        part = Part("time", calibration.OF_THE_DAYS, f'dated within "{days.said}"')
        inside = of_days if allowed is None else of_days[np.isin(of_days, allowed)]
        found = dict.fromkeys(inside.tolist(), part)
    if asked.last_time and not found:
        newest = store.newest(CANDIDATES) if allowed is None else allowed[-CANDIDATES:].tolist()
        held = (each for each in store.entries(newest) if filter.holds(each) and not _to_be_read_first(each.note))
        entries = sorted(held, key=lambda each: each.order)
        part = Part("time", calibration.LATEST, "among the newest notes, and the question is about the last time")
        found = {each.seq: part for each in entries[-LATEST:]}
    return found


def _judge(
    store: Shelf,
    words: _Words,
    cosines: Cosines | None,
    asked: Question,
    finalists: Sequence[int],
    timely: Mapping[int, Part],
) -> list[tuple[int, tuple[Part, ...]]]:
    """Each finalist with the reasons for its score, best first."""
    import numpy as np

    near: dict[int, float] = {}
    if cosines is not None:
        found = cosines.of(np.array(finalists, np.int64)).tolist()
        near = {seq: cosine for seq, cosine in zip(finalists, found, strict=True) if not math.isnan(cosine)}
    told = [
        (seq, calibration.parts(words.evidence(held, near.get(seq)), asked.background, timely.get(seq)))
        for seq, held in store.words_of(finalists).items()
    ]
    return sorted(told, key=lambda each: (sum(part.value for part in each[1]), each[0]), reverse=True)


def _holding(
    store: Shelf, judged: Sequence[tuple[int, tuple[Part, ...]]], filter: Filter, limit: int
) -> list[tuple[Entry, Hit]]:
    """The first `limit` of them that held at the moment asked for."""
    held: list[tuple[Entry, Hit]] = []
    for start in range(0, len(judged), 4 * limit):
        chunk = dict(judged[start : start + 4 * limit])
        entries = {entry.seq: entry for entry in store.entries(chunk)}
        for seq, why in chunk.items():
            entry = entries.get(seq)
            if entry is not None and filter.holds(entry) and not _to_be_read_first(entry.note):
                held.append((entry, Hit(entry.note, calibration.score(why), why)))
        if len(held) >= limit:
            break
    # Newest first among equals; a stable order whatever way a note was found.
    held.sort(key=lambda each: (round(each[1].score, 9), each[0].order), reverse=True)
    return held[:limit]


def _to_be_read_first(note: Note) -> bool:
    """Whether a person must read it first. The rules grow: those of today are asked too, not only those under which it
    was kept."""
    if note.origin != "third_party" or note.released:
        return False
    return note.flagged or suspicion.reads_like_instructions(note.text)


def marked(hit: Hit) -> Hit:
    """The hit, with its note flagged where today's rules, or the rules at all for a message, say so."""
    if hit.note.flagged or not (why := suspicion.reasons(hit.note.text)):
        return hit
    return replace(hit, note=replace(hit.note, flagged=True, flagged_for=why))


def _newest_first(held: list[tuple[Entry, Hit]], nearest: Nearest | None, same: float) -> list[Hit]:
    """Where two hits say nearly the same and answer about equally well, the newer goes first, as sure as the older,
    and the older is marked: it may be out of date."""
    first = held[:POOL]  # however many are asked for, so that a hit and its place do not depend on the limit
    like = {} if nearest is None else nearest.likeness(entry.seq for entry, _ in first)
    odds = {entry.seq: sum(part.value for part in hit.why) for entry, hit in held}
    order = {entry.note.id: entry.order for entry, _ in held}
    lifted = dict(odds)
    older_than: dict[int, str] = {}
    for entry, _ in sorted(first, key=lambda each: each[0].order):  # oldest first, so that a lift is handed on
        newer = [
            other
            for other, _ in first
            if other.order > entry.order
            and like.get((entry.seq, other.seq), 0.0) >= same
            and abs(odds[entry.seq] - odds[other.seq]) <= EQUAL_WITHIN
        ]
        if newer:
            newest = max(newer, key=lambda other: other.order)
            older_than[entry.seq] = newest.note.id
            lifted[newest.seq] = max(lifted[newest.seq], lifted[entry.seq])
    hits = [_placed(hit, lifted[entry.seq] - odds[entry.seq], older_than.get(entry.seq)) for entry, hit in held]
    return sorted(hits, key=lambda hit: (round(hit.score, 9), order[hit.note.id]), reverse=True)


def _placed(hit: Hit, lift: float, older_than: str | None) -> Hit:
    if lift > 0:
        why = (*hit.why, Part("newer", lift, "newer than a note that says nearly the same"))
        hit = replace(hit, why=why, score=calibration.score(why))
    return replace(hit, older_than=older_than) if older_than else hit


class _Words:
    """The question's words in this diary: who holds them, how rare they are."""

    def __init__(self, store: Shelf, terms: Mapping[str, float], counts: Counts) -> None:
        postings = store.postings(list(terms), MOST_PLACES)
        self._average = counts.words / counts.notes if counts.notes else 1.0
        rarest = math.log(1 + (counts.notes + 0.5) / 0.5)

        def idf(holders: int) -> float:
            return math.log(1 + (max(0, counts.notes - holders) + 0.5) / (holders + 0.5))

        weights = {
            term: weight * idf(postings[term].notes if term in postings else 0) for term, weight in terms.items()
        }
        self._weights = dict(sorted(weights.items(), key=lambda each: -each[1])[:MOST_WORDS])
        self._postings = {term: postings[term] for term in self._weights if term in postings}
        self._total = sum(self._weights.values()) or 1.0
        self._rarest = rarest
        self._found, self._gains, self._rarities = self._add_up()

    def _add_up(self) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
        """Seqs, ascending, of the notes that hold any of the words, with what each gains and how rare its words are."""
        import numpy as np

        if not self._postings:
            return np.zeros(0, np.int64), np.zeros(0), np.zeros(0)
        seqs = np.concatenate([posting.seqs for posting in self._postings.values()])
        weights = np.repeat([self._weights[t] for t in self._postings], [len(p.seqs) for p in self._postings.values()])
        times = np.concatenate([posting.times for posting in self._postings.values()])
        found, places = np.unique(seqs, return_inverse=True)
        gains = np.bincount(places, weights=weights * times / (times + K1)).astype(np.float64)
        return found, gains, np.bincount(places, weights=weights).astype(np.float64)

    def best(self, count: int, allowed: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Seqs of the notes whose words of the question weigh most, the newest first among equals."""
        import numpy as np

        found, gains = self._found, self._gains
        if allowed is not None:
            inside = np.isin(found, allowed)
            found, gains = found[inside], gains[inside]
        if len(found) > 2 * count:  # drop most of them before sorting
            least = np.partition(gains, -count)[-count]
            found, gains = found[gains >= least], gains[gains >= least]
        return found[np.lexsort((found, gains))[::-1][:count]]

    def rough(self, seqs: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coverage and rarity of these notes as if all were of average length."""
        import numpy as np

        if not len(self._found):
            return np.zeros(len(seqs)), np.zeros(len(seqs))
        places = np.minimum(np.searchsorted(self._found, seqs), len(self._found) - 1)
        there = self._found[places] == seqs
        coverage = np.minimum(1.0, self._gains[places] * (1 + K1) / self._total)
        return np.where(there, coverage, 0.0), np.where(there, self._rarities[places] / self._rarest, 0.0)

    def evidence(self, held: Sequence[str], cosine: float | None) -> Evidence:
        """What the words of one note say. Coverage is BM25 over the most that any note could score."""
        common = self._postings.keys() & held
        if not common:
            return Evidence(0.0, 0.0, (), cosine)
        times = Counter(word for word in held if word in common)
        length = K1 * (1 - B + B * len(held) / self._average)
        gained = {term: self._weights[term] * (1 + K1) * n / (n + length) for term, n in times.items()}
        return Evidence(
            coverage=min(1.0, sum(gained.values()) / self._total),
            rarity=sum(self._weights[term] for term in common) / self._rarest,
            words=tuple(sorted(gained, key=lambda term: (-gained[term], term))),
            cosine=cosine,
        )
