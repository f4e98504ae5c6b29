"""A question becomes hits: words and meaning find candidates, one score judges each, time orders what says the same.

It reads like a recipe; `recall` is the whole of it. Where a note is kept is the store's business, what a word is
`analysis.py`'s, what evidence is worth `calibration.py`'s, and what a question says about time `when.py`'s.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING

from . import analysis, calibration, suspicion, when
from .calibration import Evidence
from .focus import MOST, focus
from .note import Hit, Note, Part
from .scan import EXACT
from .stores import Counts, Entry, Filter, Posting, Shelf
from .surroundings import surroundings
from .when import Days

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .embedders.scale import Scale
    from .outline import Outline
    from .scan import Cosines, Nearest, Roughly

# BM25 (Robertson and Zaragoza 2009): how soon repetition saturates, and how much a long note's words count less.
K1, B = 1.2, 0.5
UNWRITTEN = 16  # notes as if without any of the words: a diary of three does not know yet which words are rare
LIGHT_WEIGHT = 0.1  # what a word of grammar counts beside a word of content
MOST_WORDS = 64  # words of a long question that are looked up: the rarest
MOST_PLACES = 20_000  # places of one word that are read: the newest. Its cost is bounded however common it is
ALL = EXACT  # notes up to which each is judged; above, those that either way proposes
CANDIDATES = 400  # notes that each way then proposes
POOL = 12  # hits wanted at the least, among which time sets the order
EQUAL_WITHIN = 0.35  # log-odds within which two such notes answer equally well, and the newer goes first
# Where the newer one says that something has changed it is not hidden behind the older: from this cosine on, and within
# the more log-odds the more it is like it.
CHANGED_FROM, CHANGED_WITHIN = 0.28, 1.4
LATEST = 8  # notes that a question about the last time may mean: the newest
NEWEST = 200  # among which these are looked for


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked, made ready once."""

    terms: Mapping[str, float]
    """Its words and what each weighs before rarity."""
    vector: NDArray[np.float32] | None
    scale: Scale
    said: Mapping[str, str] = field(default_factory=dict[str, str])
    """A term's word as it was said, see `analysis.words_of`."""
    last_time: bool = False
    """It asks for the last time or the usual."""
    days: Days | None = None
    """The days that it names."""


def question(text: str, vector: NDArray[np.float32] | None, scale: Scale, now: datetime, zone: tzinfo) -> Question:
    asked, context = focus(text)
    last_time = when.is_about_last_time(asked)
    about = when.without_last_time(asked) if last_time else asked
    terms = _weighed(about)
    if context:
        around = {term: weight for term, weight in _weighed(context).items() if term not in terms}
        # The words before a long text's end weigh no more together than those that are asked.
        share = 1.0 if len(text) <= MOST else min(1.0, sum(terms.values()) / (sum(around.values()) or 1.0))
        terms = {**terms, **{term: share * weight for term, weight in around.items()}}
    return Question(
        terms, vector, scale, analysis.words_of(context or asked), last_time, when.days_named(asked, now, zone)
    )


def _weighed(text: str) -> dict[str, float]:
    return {term: LIGHT_WEIGHT if term in analysis.LIGHT else 1.0 for term in analysis.terms(text)}


def recall(
    store: Shelf, outline: Outline, nearest: Nearest | None, asked: Question, filter: Filter, limit: int
) -> list[Hit]:
    """The best `limit` notes that hold, best first. `nearest` is None where there is no vector for the question."""
    allowed = store.select(filter) if filter.narrow else None
    words = _Words(store, asked.terms, store.counts(), outline)
    cosines = None if nearest is None or asked.vector is None else nearest.cosines(asked.vector)
    timely = _timely(store, asked, filter, allowed)
    evidence = _evidence(store, outline, words, cosines, asked, allowed, timely)
    told = calibration.columns(evidence, store.kind)
    odds = calibration.odds(told)
    held = _holding(store, evidence, odds, filter, max(limit, POOL))
    places = {entry.seq: at for entry, at in held}
    # A question about other days does not want today's; and what was said in a conversation stays said.
    facts = store.kind == "note" and asked.days is None
    ranked = [_Ranked(entry, float(odds[at])) for entry, at in held]
    best = _newest_first(ranked, nearest if facts else None, asked.scale.same)[:limit]
    named = [[asked.said.get(term, term) for term in terms] for terms in words.named([each.entry.seq for each in best])]
    return [
        each.hit(calibration.parts(evidence, told, places[each.entry.seq], holds, asked.scale.background))
        for each, holds in zip(best, named, strict=True)
    ]


def _evidence(
    store: Shelf,
    outline: Outline,
    words: _Words,
    cosines: Cosines | Roughly | None,
    asked: Question,
    allowed: NDArray[np.int64] | None,
    timely: Mapping[int, Part],
) -> Evidence:
    """What speaks for each candidate."""
    messages = store.kind == "message"
    if messages or len(outline.seqs) <= ALL:
        seqs = outline.seqs
    else:
        seqs = _candidates(words, cosines, allowed, timely, outline)
    coverage, rarity = words.of(seqs)
    meaning = None
    if cosines is not None:
        mean, spread = asked.scale.background
        meaning = (cosines.of(seqs) - mean) / spread
    evidence = Evidence(seqs, coverage, rarity, meaning, speaker=_speakers(outline, asked, seqs), timely=timely)
    if messages:
        evidence = replace(evidence, **surroundings(outline, evidence))
    return evidence if allowed is None else evidence.of(_among(allowed, seqs))


def _among(listed: NDArray[np.int64], seqs: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the seqs are among those listed, which are ascending."""
    import numpy as np

    if not len(listed):
        return np.zeros(len(seqs), bool)
    return listed[np.minimum(np.searchsorted(listed, seqs), len(listed) - 1)] == seqs


def _candidates(
    words: _Words,
    cosines: Cosines | Roughly | None,
    allowed: NDArray[np.int64] | None,
    timely: Mapping[int, Part],
    outline: Outline,
) -> NDArray[np.int64]:
    """Notes found by either way, and the newest."""
    import numpy as np

    if allowed is not None and len(allowed) <= CANDIDATES:
        return allowed
    newest = outline.seqs[-POOL:] if allowed is None else allowed[-POOL:]
    by_meaning = np.array([] if cosines is None else cosines.best(CANDIDATES, allowed), np.int64)
    of_time = np.array(sorted(timely), np.int64)
    found = np.unique(np.concatenate([words.best(CANDIDATES, allowed), by_meaning, newest, of_time]))
    return found[_among(outline.seqs, found)]


def _speakers(outline: Outline, asked: Question, seqs: NDArray[np.int64]) -> NDArray[np.float64] | None:
    """1 for what was said by somebody whom the question names, -1 for what was said by another, else 0."""
    import numpy as np

    named = outline.named(asked.terms)
    if not named:
        return None
    speakers = outline.speakers if len(seqs) == len(outline.seqs) else outline.speakers[outline.places(seqs)]
    return np.where(speakers < 0, 0.0, np.where(np.isin(speakers, named), 1.0, -1.0))


def _timely(store: Shelf, asked: Question, filter: Filter, allowed: NDArray[np.int64] | None) -> Mapping[int, Part]:
    """Notes that what the question says of time speaks for, by their seqs: the newest, or those of the days named."""
    found: dict[int, Part] = {}
    if asked.days is not None:
        days = asked.days
        of_days = store.select(replace(filter, since=days.first, before=days.end))
        part = Part("time", calibration.OF_THE_DAYS, f'dated within "{days.said}"')
        inside = of_days if allowed is None else of_days[_among(allowed, of_days)]
        found = dict.fromkeys(inside.tolist(), part)
    if asked.last_time and not found:
        newest = store.newest(NEWEST) if allowed is None else allowed[-NEWEST:].tolist()
        held = (each for each in store.entries(newest) if filter.holds(each) and not _to_be_read_first(each.note))
        entries = sorted(held, key=lambda each: each.order)
        part = Part("time", calibration.LATEST, "among the newest notes, and the question is about the last time")
        found = {each.seq: part for each in entries[-LATEST:]}
    return found


def _holding(
    store: Shelf, evidence: Evidence, odds: NDArray[np.float64], filter: Filter, wanted: int
) -> list[tuple[Entry, int]]:
    """The best that held at the moment asked for, each with its place in the evidence."""
    import numpy as np

    held: list[tuple[Entry, int]] = []
    start, size = 0, wanted + 4
    # Rounded, and the newest first among equals, so that a rounding of the last bit does not set the order.
    rough = np.round(odds, 9)
    while start < len(odds) and len(held) < wanted:
        end = min(len(odds), start + size)
        if end < len(odds):
            first = np.argpartition(-rough, end - 1)[:end]
            order = first[np.lexsort((-evidence.seqs[first], -rough[first]))][start:]
        else:
            order = np.lexsort((-evidence.seqs, -rough))[start:]
        entries = {entry.seq: entry for entry in store.entries(evidence.seqs[order].tolist())}
        for at, seq in zip(order.tolist(), evidence.seqs[order].tolist(), strict=True):
            entry = entries.get(seq)
            if entry is not None and filter.holds(entry) and not _to_be_read_first(entry.note):
                held.append((entry, at))
        start, size = end, size * 8  # the best were replaced or have expired: look further down
    return held[:wanted]


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


@dataclass(slots=True)
class _Ranked:
    """A note on its way to be a hit."""

    entry: Entry
    odds: float
    lift: float = 0.0
    """What it takes over from an older note that says nearly the same."""
    older_than: str | None = None

    @property
    def place(self) -> tuple[float, tuple[datetime, int]]:
        """Newest first among equals; a stable order whatever way a note was found."""
        return round(self.odds + self.lift, 9), self.entry.order

    def hit(self, why: tuple[Part, ...]) -> Hit:
        if self.lift > 0:
            why = (*why, Part("newer", self.lift, "newer than a note that says nearly the same"))
        return Hit(self.entry.note, calibration.score(why), why, older_than=self.older_than)


def _newest_first(ranked: Iterable[_Ranked], nearest: Nearest | None, same: float) -> list[_Ranked]:
    """Best first. Where two notes say nearly the same and answer about equally well, the newer goes first, as sure as
    the older, and the older is marked: it may be out of date."""
    ranked = sorted(ranked, key=lambda each: each.place, reverse=True)
    if nearest is None:
        return ranked
    first = ranked[:POOL]  # however many are asked for, so that a hit and its place do not depend on the limit
    like = nearest.likeness([each.entry.seq for each in first], min(same, CHANGED_FROM))
    by_seq = {each.entry.seq: each for each in first}
    for each in sorted(first, key=lambda each: each.entry.order):  # oldest first, so that a lift is handed on
        newer = [
            other
            for other, likeness in ((by_seq[seq], value) for seq, value in like.get(each.entry.seq, ()))
            if other.entry.order > each.entry.order
            and _goes_first(other.entry.note, likeness, abs(each.odds - other.odds), same)
        ]
        if newer:
            newest = max(newer, key=lambda other: other.entry.order)
            each.older_than = newest.entry.note.id
            newest.lift = max(newest.lift, each.odds + each.lift - newest.odds)
    return sorted(ranked, key=lambda each: each.place, reverse=True)


def _goes_first(newer: Note, likeness: float, gap: float, same: float) -> bool:
    """Whether it is told before an older note that it is as like as this and whose odds are as far from its own."""
    if likeness >= same and gap <= EQUAL_WITHIN:
        return True
    alike = likeness >= CHANGED_FROM and gap <= CHANGED_WITHIN * likeness
    return alike and when.says_it_changed(newer.text)


class _Words:
    """The question's words in this diary: who holds them, how rare they are."""

    def __init__(self, store: Shelf, terms: Mapping[str, float], counts: Counts, outline: Outline) -> None:
        postings = store.postings(list(terms), MOST_PLACES)
        notes = counts.notes + UNWRITTEN
        self._store, self._rarest = store, math.log(1 + (notes + 0.5) / 0.5)

        def idf(holders: int) -> float:
            return math.log(1 + (max(0, notes - holders) + 0.5) / (holders + 0.5))

        weights = {
            term: weight * idf(postings[term].notes if term in postings else 0) for term, weight in terms.items()
        }
        rarest = sorted(weights.items(), key=lambda each: -each[1])[:MOST_WORDS]
        self._weights = dict(sorted(rarest, key=lambda each: (-each[1], each[0])))
        self._total = sum(self._weights.values()) or 1.0
        self._held = [term for term in self._weights if term in postings]
        self._add_up([(self._weights[term], postings[term]) for term in self._held], outline)

    def _add_up(self, postings: Sequence[tuple[float, Posting]], outline: Outline) -> None:
        """For each note: coverage, which is BM25 over the most that any note could score, and how rare its words are;
        0 where it holds none of the words."""
        import numpy as np

        self._every, count = outline.seqs, len(outline.seqs)
        self._coverage, self._rarity = np.zeros(count), np.zeros(count)
        self._seqs, self._terms, self._whole = np.zeros(0, np.int64), np.zeros(0, np.intp), True
        if not postings or not count:
            return
        seqs = np.concatenate([posting.seqs for _, posting in postings])
        terms = np.repeat(np.arange(len(postings)), [len(posting.seqs) for _, posting in postings])
        places = np.minimum(np.searchsorted(self._every, seqs), count - 1)
        there = self._every[places] == seqs  # one written a moment ago may not be outlined yet
        times = np.concatenate([posting.times for _, posting in postings])
        if not there.all():
            seqs, terms, places, times = seqs[there], terms[there], places[there], times[there]
        weights = np.array([weight for weight, _ in postings])[terms]
        length = outline.lengths[places] / outline.usual_length
        gains = weights * (1 + K1) * times / (times + K1 * (1 - B + B * length))
        self._coverage = np.minimum(1.0, np.bincount(places, weights=gains, minlength=count) / self._total)
        self._rarity = np.bincount(places, weights=weights, minlength=count) / self._rarest
        self._seqs, self._terms = seqs, terms
        self._whole = all(len(posting.seqs) == posting.notes for _, posting in postings)

    def best(self, count: int, allowed: NDArray[np.int64] | None) -> NDArray[np.int64]:
        """Seqs of the notes whose words of the question weigh most, the newest first among equals."""
        import numpy as np

        holders = np.flatnonzero(self._coverage)
        found, gains = self._every[holders], self._coverage[holders]
        if allowed is not None:
            inside = _among(allowed, found)
            found, gains = found[inside], gains[inside]
        if len(found) > 2 * count:  # drop most of them before sorting
            least = np.partition(gains, -count)[-count]
            found, gains = found[gains >= least], gains[gains >= least]
        return found[np.lexsort((found, gains))[::-1][:count]]

    def of(self, seqs: NDArray[np.int64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Coverage and rarity of these notes, all of which are outlined."""
        import numpy as np

        if seqs is self._every:
            return self._coverage, self._rarity
        places = np.searchsorted(self._every, seqs)
        return self._coverage[places], self._rarity[places]

    def named(self, seqs: Sequence[int]) -> list[list[str]]:
        """The words of the question that each of these notes holds, the weightiest first."""
        import numpy as np

        if not self._whole:  # of a very common word only the newest places were read
            held = self._store.words_of(seqs)
            return [[term for term in self._weights if term in held.get(seq, ())] for seq in seqs]
        found: dict[int, list[str]] = {seq: [] for seq in seqs}
        some = _among(np.sort(np.array(seqs, np.int64)), self._seqs)
        terms: list[int] = self._terms[some].tolist()
        for seq, term in sorted(zip(self._seqs[some].tolist(), terms, strict=True)):
            found[seq].append(self._held[term])
        return [found[seq] for seq in seqs]
