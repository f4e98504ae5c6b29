"""The examination of a diary: each finding says whether all is well, in a sentence, and what to do if not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .embedders.scale import UNKNOWN
from .errors import DiaristError
from .scan import Nearest

if TYPE_CHECKING:
    from .diary import Diary
    from .memory import Memory
    from .stores import DiaryStore


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    subject: str
    well: bool
    text: str
    advice: str = ""
    """What to do; "" where all is well."""


def examine(diary: Diary, store: DiaryStore, memory: Memory) -> list[Finding]:
    """Every finding about one diary; one that cannot be made is a finding too."""
    findings: list[Finding] = []
    for look in (_files, _erasures, _vectors, _model, _page, _quarantine, _calibration):
        try:
            findings += look(diary, store, memory)
        except DiaristError as e:
            if all(each.text != str(e) for each in findings):  # a file that cannot be opened fails every look
                findings.append(Finding(look.__name__.strip("_"), False, str(e), "see the message"))
    return findings


def _files(diary: Diary, store: DiaryStore, memory: Memory) -> list[Finding]:  # noqa: ARG001
    return [Finding(subject, not advice, text, advice) for subject, text, advice in store.inspect()]


def _erasures(diary: Diary, store: DiaryStore, memory: Memory) -> list[Finding]:  # noqa: ARG001
    if store.settled():
        return [Finding("erasures", True, "everything that was erased is gone from the files")]
    text = "the log still holds what was erased: another process reads the state before"
    return [Finding("erasures", False, text, "end the process that still reads this diary, then run this again")]


def _vectors(diary: Diary, store: DiaryStore, memory: Memory) -> list[Finding]:  # noqa: ARG001
    pending = store.counts().pending
    found = [Finding("pending vectors", True, "none: every note is found by its meaning")]
    if pending:
        found = [Finding("pending vectors", False, f"{pending} notes are found by their words only", "diarist reembed")]
    if store.counts().notes > pending:
        nearest = Nearest(store, memory.embedder)
        nearest.sync()
        if nearest.foreign:
            others = ", ".join(sorted(set(nearest.foreign.values())))
            text = f"{len(nearest.foreign)} notes have vectors of {others}, which {memory.embedder.id} cannot read"
            found.append(Finding("embedder", False, text, "diarist reembed, or open the memory with that embedder"))
    return found


def _model(diary: Diary, store: DiaryStore, memory: Memory) -> list[Finding]:
    cosine = diary.drift() if store.counts().notes else None
    if cosine is None:
        return []
    text = f"{memory.embedder.id} is not the model it was: a fixed text has moved to cosine {cosine:.2f}"
    return [Finding("model", False, text, "diarist reembed")]


def _page(diary: Diary, store: DiaryStore, memory: Memory) -> list[Finding]:  # noqa: ARG001
    tokens, budget = diary.page.tokens, diary.page.budget
    advice = "" if tokens <= budget else "shorten it: diarist page OWNER --edit"
    return [Finding("page", not advice, f"{tokens:,} of {budget:,} tokens", advice)]


def _quarantine(diary: Diary, store: DiaryStore, memory: Memory) -> list[Finding]:  # noqa: ARG001
    kept_out = diary.count(include_quarantined=True) - diary.count()
    if not kept_out:
        return []
    text = f"{kept_out} notes of third parties read like instructions and are never recalled"
    return [Finding("quarantine", True, f"{text}; after reading: diarist release OWNER ID")]


def _calibration(diary: Diary, store: DiaryStore, memory: Memory) -> list[Finding]:  # noqa: ARG001
    if memory.scale != UNKNOWN:
        return []
    text = f"nobody measured what the cosines of {memory.embedder.id} are worth: scores and verdicts are a guess"
    return [Finding("calibration", True, f"{text}; to measure it: diarist calibrate")]
