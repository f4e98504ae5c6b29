"""What the cosines of an embedder are worth. Each has a scale of its own: .3 is near for one, and for another any two
texts reach .8. `measure` finds it on ninety facts and questions of everyday life, in three languages.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from . import Embedder, checked, clean, emphasised

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Scale:
    """Where an embedder's cosines begin to say something."""

    mean: float = 0.2
    """Of the cosines between a question and notes that do not answer it. The defaults are a cautious guess, for an
    embedder that says nothing of itself and was never measured."""
    spread: float = 0.25
    """Their standard deviation."""
    same: float = 0.8
    """The cosine from which two notes say nearly the same."""

    @property
    def background(self) -> tuple[float, float]:
        return self.mean, self.spread


UNKNOWN = Scale()
# How far from the usual cosine of two notes to 1 a pair must come that says the same. With the bundled pair of models,
# where any two of these notes reach .1, that is .8. From .7 on, neighbours of one passage count as the same: first hits
# fell by 3 of 100 there.
_SAME_OF_THE_WAY = 0.78
_FEWEST = 10  # pairs
_LEAST_SPREAD = 0.005  # all cosines alike, as of a model that is not one: no scale is made of rounding


@dataclass(frozen=True, slots=True)
class Measured:
    """What `measure` found."""

    scale: Scale
    questions: int
    first: float
    """The share of the questions whose own note is nearest, of thirty."""
    apart: float
    """How far the notes that answer stand above those that do not, in `spread`s: below 1.5 the embedder hardly knows
    them apart."""


def everyday() -> list[dict[str, str]]:
    """The facts and questions: `lang`, `note`, `question`. No question repeats what its note says."""
    text = Path(__file__).with_name("everyday.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def own(embedder: Embedder) -> Scale | None:
    """What an embedder says of itself; None if it does not."""
    background: tuple[float, float] | None = getattr(embedder, "background", None)
    if background is None:
        return None
    return Scale(*background, getattr(embedder, "same", UNKNOWN.same))


def measure(embedder: Embedder, pairs: Sequence[tuple[str, str]] | None = None) -> Measured:
    """Embeds facts and questions, and looks at the cosines of those that do not belong together.

    `pairs`: (note, question) of your own, at least ten, each answered by its own note only; without them the everyday
    ones. One embedding for each note and each question. EmbedderError if the embedder is down, ValueError for fewer.
    """
    import numpy as np

    groups: list[list[tuple[str, str]]]
    if pairs is None:
        held = everyday()
        langs = dict.fromkeys(each["lang"] for each in held)
        groups = [[(each["note"], each["question"]) for each in held if each["lang"] == lang] for lang in langs]
    else:
        groups = [list(pairs)]
    if min(len(group) for group in groups) < _FEWEST:
        raise ValueError(f"{len(groups[0])} pairs of a note and its question are too few; give {_FEWEST} or more")
    answers: list[NDArray[np.float32]] = []
    others: list[NDArray[np.float32]] = []
    notes_apart: list[NDArray[np.float32]] = []
    right = 0
    for group in groups:
        notes, questions = _vectors(embedder, group)
        cosines = questions @ notes.T
        own_note = np.eye(len(group), dtype=bool)
        answers.append(cosines[own_note])
        others.append(cosines[~own_note])
        notes_apart.append((notes @ notes.T)[~own_note])
        right += int((cosines.argmax(axis=1) == np.arange(len(group))).sum())
    far = np.concatenate(others)
    mean, spread = float(far.mean()), max(_LEAST_SPREAD, float(far.std()))
    usual = float(np.concatenate(notes_apart).mean())
    count = sum(map(len, groups))
    apart = (float(np.concatenate(answers).mean()) - mean) / spread
    return Measured(Scale(mean, spread, usual + _SAME_OF_THE_WAY * (1 - usual)), count, right / count, apart)


def _vectors(embedder: Embedder, group: Sequence[tuple[str, str]]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    import numpy as np

    texts = [clean(note) for note, _ in group]
    notes = checked(embedder.embed_notes(texts), len(texts), embedder.dim, embedder.id)
    asked = [checked([embedder.embed_query(clean(each))], 1, embedder.dim, embedder.id)[0] for _, each in group]
    return notes, np.stack([emphasised(each, embedder, "note") for each in asked])
