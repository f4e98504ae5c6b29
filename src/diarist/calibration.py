"""How sure a score is: the evidence for one note and one question, added up in log-odds.

The constants below were fitted by logistic regression (see `docs/decisions/0006-one-score.md`): each says how much one
unit of its evidence moves the odds that the note answers the question. What the rest of the diary says goes in as one
number, the same for every note: the background.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from .note import Hit, Part, Verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Weights:
    """Log-odds before looking, and for one unit of each kind of evidence."""

    start: float
    words_elsewhere: float
    """For one unit of the words that the also-rans hold, see `_also_rans`: where many notes hold some words of the
    question, some say nothing."""
    meaning_elsewhere: float
    """The same for meaning: to a vague question everything is a little near."""
    words: float
    """Coverage + log(1 + rarity): coverage 1 is a note that holds every word of the question, as often as counts;
    rarity is the summed idf of the words found over the largest idf this diary could give, and the second rare word
    says less than the first."""
    meaning: float
    """Cosine above the usual for notes that do not answer, in standard deviations."""
    speaker: float
    """Said by somebody whom the question names; as much less if said by another."""
    another: float = 0.0
    """How much more of the question's words (coverage + log(1 + rarity), from -1 to 1) the best note of another has
    than the best of whom it names: to "What did Ana win?", where only Luis told of a prize, nothing is an answer."""
    words_before: float = 0.0
    meaning_around: float = 0.0
    conversation_words: float = 0.0
    conversation_meaning: float = 0.0
    length: float = 0.0
    """log(bytes of its words / 90), at most that of 180 bytes: "Thanks!" seldom answers anything."""


NOTES = Weights(
    -2.12, words_elsewhere=-3.17, meaning_elsewhere=-0.38, words=1.24, meaning=0.62, speaker=0.78, another=-0.69
)
MESSAGES = Weights(
    -4.184, words_elsewhere=-0.817, meaning_elsewhere=-0.182, words=0.675, meaning=0.211, speaker=0.492, another=-1.41,
    words_before=0.214, meaning_around=0.0395, conversation_words=0.368, conversation_meaning=0.237, length=0.276,
)  # fmt: skip
# Where the question has no vector.
NOTES_BY_WORDS = Weights(
    -2.74, words_elsewhere=-2.26, meaning_elsewhere=0.0, words=2.01, meaning=0.0, speaker=1.26, another=-1.0
)
MESSAGES_BY_WORDS = Weights(
    -3.705, words_elsewhere=-0.748, meaning_elsewhere=0.0, words=1.022, meaning=0.0, speaker=0.741, another=-1.46,
    words_before=0.325, conversation_words=0.557, length=0.417,
)  # fmt: skip
# For the newest notes, where the last time is asked for: this, and at least as much as makes it even odds. That is
# "weak", not "strong": whoever asks for the usual has not said what it is.
LATEST = 1.0
OF_THE_DAYS = 0.8  # for a note of the days that are named

STRONG_AT = 0.8  # from here on about nine of ten first hits answer the question
# Below, nothing is said to be saved. With the answer taken out of a diary of facts, four of ten first hits still reach
# .4; with it there, one or two of ten do not. Put to other people's conversations, questions reach .1: there is always
# a closest note, and much more often one that is near a message.
WEAK_AT = {"note": 0.4, "message": 0.2}

# The also-rans: the notes from the ninth to the twenty-fourth that hold most words, and so for meaning. Where there are
# fewer, the rest is as if filled up with notes that have little to say.
_ALSO_FROM, _ALSO_TO = 8, 24
_USUAL_WORDS, _USUAL_MEANING = 0.1, 0.6

# Standard deviations: below the first a cosine says no more; above the second each further one says less, so that the
# nearest is still told from the next. (Cut off there, first hits fell from .55 to .43 on passages.)
_LEAST_NEAR, _STRAIGHT_TO, _BEND = -1.0, 5.0, 1.5
_SHORT, _LONG_ENOUGH = 90.0, 180.0  # bytes of index terms: the usual message, and from where longer says no more


@dataclass(frozen=True)
class Evidence:
    """What speaks for each of the notes, in arrays of one length; None where there is no such evidence at all."""

    seqs: NDArray[np.int64]
    coverage: NDArray[np.float64]
    rarity: NDArray[np.float64]
    meaning: NDArray[np.float64] | None
    """Cosine in standard deviations above the usual; NaN for a note without a vector."""
    speaker: NDArray[np.float64] | None = None
    words_before: NDArray[np.float64] | None = None
    meaning_around: NDArray[np.float64] | None = None
    conversation_words: NDArray[np.float64] | None = None
    conversation_meaning: NDArray[np.float64] | None = None
    length: NDArray[np.float32] | None = None
    timely: Mapping[int, Part] = field(default_factory=dict[int, Part])
    """By seq: what its date says."""

    @cached_property
    def near(self) -> NDArray[np.float64] | None:
        """`meaning` as far as it says something."""
        import numpy as np

        if self.meaning is None:
            return None
        near = np.maximum(self.meaning, _LEAST_NEAR)
        beyond = np.maximum(near - _STRAIGHT_TO, 0.0)
        return near - beyond + _BEND * np.log1p(beyond / _BEND)

    @cached_property
    def words(self) -> NDArray[np.float64]:
        import numpy as np

        # Most notes hold none of the words, and a logarithm costs more than all else that is done with a note.
        return self.coverage + np.log1p(self.rarity, out=np.zeros(len(self.rarity)), where=self.rarity > 0)

    def of(self, mask: NDArray[np.bool_]) -> Evidence:
        """That of some of the notes."""
        kept: dict[str, Any] = {
            each.name: value[mask]
            for each in fields(self)
            if each.name != "timely" and (value := getattr(self, each.name)) is not None
        }
        return replace(self, **kept)


def columns(evidence: Evidence, kind: str) -> dict[str, NDArray[np.float64]]:
    """Each kind of evidence in log-odds, in the order in which it is told. They add up to those of the score."""
    import numpy as np

    by_words = MESSAGES_BY_WORDS if kind == "message" else NOTES_BY_WORDS
    if evidence.meaning is None:
        return _columns(evidence, by_words)
    told = _columns(evidence, MESSAGES if kind == "message" else NOTES)
    alone = np.isnan(evidence.meaning)
    if alone.any():  # a note that awaits its vector is judged as if there were no meaning
        of_words = _columns(replace(evidence, meaning=None, meaning_around=None, conversation_meaning=None), by_words)
        none = np.zeros(len(evidence.seqs))
        told = {name: np.where(alone, of_words.get(name, none), values) for name, values in told.items()}
    return told


def _columns(evidence: Evidence, weights: Weights) -> dict[str, NDArray[np.float64]]:
    import numpy as np

    none = np.zeros(len(evidence.seqs))
    told = {"start": none + weights.start, "words": weights.words * evidence.words}
    if (near := evidence.near) is not None:
        told["meaning"] = weights.meaning * np.nan_to_num(near)
    if evidence.speaker is not None:
        told["speaker"] = weights.speaker * evidence.speaker
    if evidence.words_before is not None:
        told["around"] = weights.words_before * evidence.words_before
        if evidence.meaning_around is not None:
            told["around"] = told["around"] + weights.meaning_around * evidence.meaning_around
    if evidence.conversation_words is not None:
        told["conversation"] = weights.conversation_words * evidence.conversation_words
        if evidence.conversation_meaning is not None:
            told["conversation"] = told["conversation"] + weights.conversation_meaning * evidence.conversation_meaning
    if evidence.length is not None:
        told["length"] = weights.length * np.log((np.minimum(evidence.length, _LONG_ENOUGH) + 1) / _SHORT)
    elsewhere = weights.words_elsewhere * _also_rans(evidence.words, _USUAL_WORDS)
    if near is not None:
        elsewhere += weights.meaning_elsewhere * _also_rans(near, _USUAL_MEANING)
    if evidence.speaker is not None:
        elsewhere += weights.another * _of_another(evidence.words, evidence.speaker)
    told["background"] = none + elsewhere
    if evidence.timely:
        time = none.copy()
        without = odds(told)
        for at in np.flatnonzero(np.isin(evidence.seqs, list(evidence.timely))).tolist():
            part = evidence.timely[int(evidence.seqs[at])]
            time[at] = max(part.value, -without[at]) if part.value == LATEST else part.value
        told["time"] = time
    return told


def _also_rans(values: NDArray[np.float64], usual: float) -> float:
    """What notes reach that are not the answer: the mean of those that come after the first few."""
    import numpy as np

    values = values[~np.isnan(values)]
    most = min(len(values), _ALSO_TO)
    best = np.sort(np.partition(values, len(values) - most)[len(values) - most :])[::-1]
    return float(np.append(best, np.full(_ALSO_TO - most, usual))[_ALSO_FROM:].mean())


def _of_another(words: NDArray[np.float64], speaker: NDArray[np.float64]) -> float:
    named, another = words[speaker > 0], words[speaker < 0]
    return float(max(-1.0, min(1.0, another.max() - named.max()))) if len(named) and len(another) else 0.0


def odds(told: Mapping[str, NDArray[np.float64]]) -> NDArray[np.float64]:
    """What the columns add up to."""
    import numpy as np

    return np.sum(list(told.values()), axis=0)


def parts(
    evidence: Evidence,
    told: Mapping[str, NDArray[np.float64]],
    at: int,
    words: Sequence[str],
    background: tuple[float, float],
) -> tuple[Part, ...]:
    """The reasons for the score of the note at this place, in log-odds. `words`: those of the question it holds."""
    found = ((name, float(values[at])) for name, values in told.items() if name == "start" or values[at])
    return tuple(Part(name, value, _text(name, value, evidence, at, words, background)) for name, value in found)


def _text(
    name: str, value: float, evidence: Evidence, at: int, words: Sequence[str], background: tuple[float, float]
) -> str:
    match name:
        case "start":
            return "how often a note answers a question, before looking"
        case "words":
            return f"holds {', '.join(words[:8])}"
        case "meaning":
            assert evidence.meaning is not None
            mean, spread = background
            return f"cosine {mean + spread * float(evidence.meaning[at]):.2f}, where {mean:.2f} is usual"
        case "speaker":
            return "said by somebody the question names" if value > 0 else "said by another than the question names"
        case "around":
            return "what was said just before and after it"
        case "conversation":
            return "the conversation it is from"
        case "background":
            return "what other notes reach, that do not answer"
        case "length":
            return "longer than most messages" if value > 0 else "shorter than most messages"
        case _:
            return evidence.timely[int(evidence.seqs[at])].text


def score(why: Sequence[Part]) -> float:
    """1 / (1 + exp(-sum)): from 0 to 1, never exactly either for finite parts within reason."""
    total = sum(part.value for part in why)
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, total))))


def verdict(hits: Sequence[Hit]) -> Verdict:
    if any(hit.score >= STRONG_AT for hit in hits):
        return "strong"
    return "weak" if any(hit.score >= WEAK_AT[hit.note.kind] for hit in hits) else "nothing"
