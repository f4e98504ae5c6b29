"""What stands around a message speaks for it: "Both of them, on Friday" answers a question that only the message before
it repeats. A note stands alone; a message has a place in a conversation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .calibration import Evidence
    from .outline import Outline

TOP = 3  # messages by which a conversation is judged: the best of it


def surroundings(outline: Outline, evidence: Evidence) -> dict[str, Any]:
    """The fields of `Evidence` that are about messages, for all messages of the outline: what the one before it says
    in words, what both beside it mean, how much the conversation is about the question, and how short it is itself."""
    import numpy as np

    words = evidence.words
    around: dict[str, Any] = {
        "words_before": _at(words, outline.before),
        "conversation_words": _best_of(words, outline.sessions),
        "length": outline.lengths,
    }
    if (near := evidence.near) is not None:
        meaning = np.nan_to_num(near)
        around["meaning_around"] = (_at(meaning, outline.before) + _at(meaning, outline.after)) / 2
        around["conversation_meaning"] = _best_of(meaning, outline.sessions)
    return around


def _at(values: NDArray[np.float64], places: NDArray[np.int64]) -> NDArray[np.float64]:
    """The values at these places, 0 where there is none (-1)."""
    import numpy as np

    return np.append(values, 0.0)[places]


def _best_of(values: NDArray[np.float64], groups: NDArray[np.int32]) -> NDArray[np.float64]:
    """For each value the mean of the `TOP` largest of its group."""
    import numpy as np

    if not len(values):
        return values
    order = np.lexsort((-values, groups))
    sorted_groups = groups[order]
    starts = np.flatnonzero(np.append(True, sorted_groups[1:] != sorted_groups[:-1]))
    sizes = np.diff(np.append(starts, len(order)))
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    taken = np.where(rank < TOP, values[order], 0.0)
    means = np.add.reduceat(taken, starts) / np.minimum(sizes, TOP)
    found = np.empty(len(values))
    found[order] = np.repeat(means, sizes)
    return found
