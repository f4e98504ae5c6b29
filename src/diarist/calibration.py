"""How sure a score is: the evidence for one note and one question, added up in log-odds.

The constants below were fitted by logistic regression (see `docs/decisions/0006-one-score.md`): each says how much one
unit of its evidence moves the odds that the note answers the question. Nothing here depends on the other notes found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .note import Part, Verdict

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Weights:
    """Log-odds before looking, and for one unit of each kind of evidence."""

    start: float
    coverage: float
    """A note that holds every word of the question, as often as counts: 1."""
    rarity: float
    """log(1 + r), r the summed idf of the words found over the largest idf this diary could give: the second rare
    word says less than the first."""
    meaning: float = 0.0
    """Cosine above the usual for notes that do not answer, in standard deviations."""


WITH_MEANING = Weights(start=-3.8, coverage=3.2, rarity=3.2, meaning=0.7)
WORDS_ONLY = Weights(start=-3.6, coverage=2.0, rarity=2.5)

# What time says, where the question speaks of it.
LATEST = 3.0  # for the newest notes, where the last time is asked for: by itself enough for "weak", not for "strong"
OF_THE_DAYS = 1.2  # for a note of the days that are named

STRONG_AT = 0.6
WEAK_AT = 0.15

# Cosines of an embedder that does not say what its background is: until it is calibrated, a cautious guess.
UNKNOWN_BACKGROUND = (0.25, 0.15)
_STEEPEST = 6.0  # standard deviations: beyond it a cosine says no more


@dataclass(frozen=True, slots=True)
class Evidence:
    coverage: float
    rarity: float
    words: tuple[str, ...]
    """The question's words that the note holds, rarest first."""
    cosine: float | None
    """None for a note or question without a vector."""


def parts(evidence: Evidence, background: tuple[float, float], time: Part | None = None) -> tuple[Part, ...]:
    """The reasons for the score, in log-odds; `time` is what the note's date says."""
    mean, spread = background
    weights = WORDS_ONLY if evidence.cosine is None else WITH_MEANING
    told = [Part("start", weights.start, "how often a note answers a question, before looking")]
    if evidence.words:
        value = weights.coverage * evidence.coverage + weights.rarity * math.log1p(evidence.rarity)
        told.append(Part("words", value, f"holds {', '.join(evidence.words[:8])}"))
    if evidence.cosine is not None:
        steps = max(-_STEEPEST, min(_STEEPEST, (evidence.cosine - mean) / spread))
        told.append(
            Part("meaning", weights.meaning * steps, f"cosine {evidence.cosine:.2f}, where {mean:.2f} is usual")
        )
    if time is not None:
        told.append(time)
    return tuple(told)


def rough_odds(
    coverage: NDArray[np.float64],
    rarity: NDArray[np.float64],
    cosines: NDArray[np.float64] | None,
    background: tuple[float, float],
) -> NDArray[np.float64]:
    """The sum of `parts` for many notes at once, NaN in `cosines` standing for none."""
    import numpy as np

    words = WORDS_ONLY.start + WORDS_ONLY.coverage * coverage + WORDS_ONLY.rarity * np.log1p(rarity)
    if cosines is None:
        return words
    steps = np.clip((cosines - background[0]) / background[1], -_STEEPEST, _STEEPEST)
    both = WITH_MEANING.start + WITH_MEANING.coverage * coverage + WITH_MEANING.rarity * np.log1p(rarity)
    return np.where(np.isnan(cosines), words, both + WITH_MEANING.meaning * steps)


def score(why: Sequence[Part]) -> float:
    """1 / (1 + exp(-sum)): from 0 to 1, never exactly either for finite parts within reason."""
    total = sum(part.value for part in why)
    return 1 / (1 + math.exp(-max(-60.0, min(60.0, total))))


def verdict(scores: Sequence[float]) -> Verdict:
    best = max(scores, default=0.0)
    return "strong" if best >= STRONG_AT else "weak" if best >= WEAK_AT else "nothing"
