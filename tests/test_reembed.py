"""RW-020, TRUST E-7: another embedder, or another model under the same name, is noticed, said, and put right."""

from __future__ import annotations

import shutil
import sys
from datetime import timedelta

import numpy as np
import pytest

from diarist import EmbedderError, Memory, diary
from diarist.testing import FixedClock, HashEmbedder
from support import OWNER, assert_whole, deaths, diary_file

TEXTS = [f"Fact {number} about {what}." for number, what in enumerate(["tea", "dogs", "boats", "bees", "rain", "jazz"])]


class Turned(HashEmbedder):
    """Another model of the same size: its numbers stand elsewhere. `turn` says how far; 0 is `HashEmbedder`."""

    drifts = True

    def __init__(self, dim=64, id="server", turn=0):
        super().__init__(dim, id)
        self.turn = turn
        self.fails_after = None

    def embed_notes(self, texts, /):
        if self.fails_after is not None and len({*self.texts} & {*TEXTS}) >= self.fails_after:
            raise EmbedderError("down, as this test wants it")
        return np.roll(super().embed_notes(texts), self.turn, axis=1)


def by_meaning(memory, question="Fact about boats."):
    """The text that comes first, and which hits were found by meaning."""
    answer = memory.diary(OWNER).recall(question, limit=50)
    near = {hit.note.text for hit in answer if any(part.name == "meaning" for part in hit.why)}
    return answer[0].note.text, near


def assert_all_near(memory):
    first, near = by_meaning(memory)
    assert first == TEXTS[2]
    assert near == set(TEXTS)
    assert memory.diary(OWNER).recall("boats").notices == ()
    assert_whole(diary_file(memory_place(memory)))


def memory_place(memory):
    from pathlib import Path

    return Path(memory._store.path)


OTHERS = [HashEmbedder(48, "b"), HashEmbedder(64, "b"), HashEmbedder(512, "b"), HashEmbedder(3, "b")]


@pytest.mark.parametrize("other", OTHERS, ids=lambda other: f"{other.dim} numbers")
def test_rw_020_another_embedder_goes_by_words_until_reembed_has_run(other, quick, clock):
    """RW-020, E-7: never compared, said with both names, nothing lost; then all are found by meaning, and said no more.
    And back again."""
    with Memory(quick, embedder=HashEmbedder(64, "a"), clock=clock) as memory:
        memory.diary(OWNER).remember_many(TEXTS)
        exported = memory.diary(OWNER).export()
    for embedder, before in ((other, "a"), (HashEmbedder(64, "a"), "b")):
        with Memory(quick, embedder=embedder, clock=clock) as memory:
            notices = " ".join(memory.diary(OWNER).recall("boats").notices)
            assert f"6 notes have vectors of another embedder ({before})" in notices
            assert "reembed" in notices
            assert by_meaning(memory) == (TEXTS[2], set())
            told = []
            assert memory.diary(OWNER).reembed(progress=lambda done, total, told=told: told.append((done, total))) == 6
            assert told[-1] == (6, 6)
            assert told == sorted(told)
            assert memory.diary(OWNER).export() == exported
            if embedder.dim > 3:
                assert_all_near(memory)
            assert memory.diary(OWNER).reembed() == 0


def test_rw_020_only_what_needs_it_is_paid_for(quick, clock):
    """E-7: pending notes and those of the other embedder; the ones that this embedder made stay."""
    with Memory(quick, embedder=HashEmbedder(64, "a"), clock=clock) as memory:
        memory.diary(OWNER).remember_many(TEXTS[:3])
    new = HashEmbedder(48, "b")
    with Memory(quick, embedder=new, clock=clock) as memory:
        memory.diary(OWNER).remember_many(TEXTS[3:5])
        memory.diary(OWNER).remember_many(TEXTS[5:], defer=True)
        new.texts.clear()
        assert memory.diary(OWNER).reembed() == 4
        assert sorted(text for text in new.texts if text in TEXTS) == sorted([*TEXTS[:3], TEXTS[5]])
        assert len(new.texts) <= 5, "and one fixed text, to know the model by"
        assert_all_near(memory)


def reembed_in(place):
    with Memory(place, embedder=HashEmbedder(48, "b")) as memory:
        memory.diary(OWNER).reembed()


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_rw_020_killed_before_any_step_it_goes_on_from_there(quick, monkeypatch):
    """E-7: meanwhile every note is found by its words; what was done stays done; the counts match in the end."""
    with Memory(quick / "source", embedder=HashEmbedder(64, "a")) as memory:
        memory.diary(OWNER).remember_many(TEXTS)
    owed = []
    for place in deaths(quick / "source", quick, reembed_in, every=3):
        with Memory(place, embedder=HashEmbedder(64, "a")) as memory:
            assert len(memory.diary(OWNER).recall("boats")) == 6, "the old embedder can go on too"
        with Memory(place, embedder=HashEmbedder(48, "b")) as memory:
            assert {note.text for note in memory.diary(OWNER).notes()} == set(TEXTS)
            owed.append(memory.diary(OWNER).reembed())
            assert_all_near(memory)
        shutil.rmtree(place)
    assert owed[0] == 6
    assert owed[-1] == 0


def test_rw_020_an_embedder_that_fails_half_way_keeps_what_was_done(quick, monkeypatch):
    """E-7: an error that says how many are still without; the next call does only those."""
    monkeypatch.setattr(diary, "_BATCH", 2)
    with Memory(quick, embedder=HashEmbedder(64, "a")) as memory:
        memory.diary(OWNER).remember_many(TEXTS)
    new = Turned(48, "b")
    with Memory(quick, embedder=new) as memory:
        new.fails_after = 4  # of six, after two batches
        with pytest.raises(EmbedderError, match="2 of 6 texts are still without vectors: down"):
            memory.diary(OWNER).reembed()
        new.fails_after = None
        answer = memory.diary(OWNER).recall("rain")
        assert answer[0].note.text == TEXTS[4]
        new.texts.clear()
        assert memory.diary(OWNER).reembed() <= 2
        assert len(set(new.texts) & set(TEXTS[:4])) <= 1, "one text, to know the model by"
        assert_all_near(memory)


def test_rw_020_writing_goes_on_meanwhile(quick):
    """E-7: new, corrected and forgotten notes of a diary that is half done."""
    with Memory(quick, embedder=HashEmbedder(64, "a")) as memory:
        notes = memory.diary(OWNER).remember_many(TEXTS)
    with Memory(quick, embedder=HashEmbedder(48, "b")) as memory:
        memory.diary(OWNER).edit(notes[0].id, "Corrected.")
        memory.diary(OWNER).forget(notes[1].id)
        new = memory.diary(OWNER).remember("New.", replaces=[notes[5].id])
        assert memory.diary(OWNER).reembed() == 4
        assert_whole(diary_file(quick))
        assert not any(note.pending for note in memory.diary(OWNER).notes(include_replaced=True))
        assert new.id in {note.id for note in memory.diary(OWNER).notes()}


def test_reembedding_nothing_makes_nothing(quick):
    """E-7: an empty diary costs nothing and makes no file."""
    embedder = HashEmbedder()
    with Memory(quick / "m", embedder=embedder) as memory:
        assert memory.diary(OWNER).reembed() == 0
        assert not (quick / "m").exists()
    assert embedder.calls == 0


# -- another model under the same name -----------------------------------------------------------------------------

EVERY = diary._ASK_MODEL_EVERY


@pytest.fixture
def known(quick, clock):
    """A diary whose model is known: it was asked once after the diary was made."""
    with Memory(quick, embedder=Turned(), clock=clock) as memory:
        memory.diary(OWNER).remember_many(TEXTS)
        clock.advance(EVERY)
        memory.diary(OWNER).recall("boats")
    return quick


def test_e_7_drift_is_noticed_when_the_time_has_come_and_not_before(known, clock):
    """E-7 (same name, other numbers: cosine under .99): by the memory's clock; then by words, with a reason."""
    with Memory(known, embedder=Turned(turn=9), clock=clock) as memory:
        clock.advance(EVERY - timedelta(seconds=1))
        assert memory.diary(OWNER).recall("boats").notices == ()
        clock.advance(1)
        for _ in range(2):
            answer = memory.diary(OWNER).recall("boats")
            assert "model" in answer.notices[0]
            assert "reembed" in answer.notices[0]
            assert answer[0].note.text == TEXTS[2]
            assert not any(part.name == "meaning" for hit in answer for part in hit.why)
        finding = next(each for each in memory.diary(OWNER).doctor() if each.subject == "model")
        assert not finding.well
        assert "0." in finding.text
        assert memory.diary(OWNER).reembed() == 6
        assert_all_near(memory)
        clock.advance(EVERY)
        assert memory.diary(OWNER).recall("boats").notices == ()


def test_e_7_a_model_that_changed_in_the_first_days_is_noticed_too(quick, clock):
    """E-7: what the model is compared with is what it was when the vectors were made, not when it was first asked."""
    with Memory(quick, embedder=Turned(), clock=clock) as memory:
        memory.diary(OWNER).remember_many(TEXTS)
    with Memory(quick, embedder=Turned(turn=9), clock=clock) as memory:
        clock.advance(EVERY)
        memory.diary(OWNER).recall("boats")
        clock.advance(EVERY)
        assert "model" in " ".join(memory.diary(OWNER).recall("boats").notices)


def test_e_7_a_model_that_is_the_same_but_for_rounding_is_the_same(known, clock, monkeypatch):
    """E-7: another machine rounds in another way; that is no drift."""

    class Rounded(Turned):
        def embed_notes(self, texts, /):
            return super().embed_notes(texts) + np.float32(0.002)

    with Memory(known, embedder=Rounded(), clock=clock) as memory:
        clock.advance(EVERY)
        assert memory.diary(OWNER).recall("boats").notices == ()


def test_e_7_a_model_of_another_size_under_the_same_name(known, clock):
    """E-7: nothing is compared, nothing fails, and it can be put right."""
    with Memory(known, embedder=Turned(48), clock=clock) as memory:
        clock.advance(EVERY)
        answer = memory.diary(OWNER).recall("boats")
        assert answer[0].note.text == TEXTS[2]
        assert answer.notices
        assert memory.diary(OWNER).reembed() == 6
        assert_all_near(memory)


def test_e_7_asking_costs_one_embedding_and_no_more_until_the_time_has_come_again(known, clock):
    """E-7, R14: one for the question, and once in a while one for the fixed text."""
    embedder = Turned()
    with Memory(known, embedder=embedder, clock=clock) as memory:
        for _ in range(3):
            clock.advance(EVERY)
            embedder.texts.clear()
            for _ in range(5):
                memory.diary(OWNER).recall("boats")
                clock.advance(60)
            assert len(embedder.texts) == 6


def test_e_7_a_server_that_is_down_when_its_model_should_be_asked_fails_nothing(known, clock):
    """E-7: the question is answered by words, and asked again later."""
    embedder = Turned(turn=9)
    with Memory(known, embedder=embedder, clock=clock) as memory:
        clock.advance(EVERY)
        embedder.fails_after = 0
        assert memory.diary(OWNER).recall("boats")[0].note.text == TEXTS[2]
        embedder.fails_after = None
        assert "model" in " ".join(memory.diary(OWNER).recall("boats").notices)


def test_e_7_the_clock_may_jump_back(known, clock):
    """E-7, K-1: then nothing is asked, and nothing fails."""
    with Memory(known, embedder=Turned(), clock=clock) as memory:
        clock.advance(timedelta(days=-400))
        assert memory.diary(OWNER).recall("boats").notices == ()


def test_e_7_an_embedder_that_cannot_drift_is_never_asked(quick, clock):
    """E-7: the bundled models are pinned packages; what does not say `drifts` costs nothing."""
    from diarist.embedders import open_embedder

    assert not getattr(open_embedder("bundled"), "drifts", False)
    assert not getattr(open_embedder("use"), "drifts", False)
    embedder = HashEmbedder()
    with Memory(quick, embedder=embedder, clock=clock) as memory:
        memory.diary(OWNER).remember_many(TEXTS)
        for _ in range(3):
            clock.advance(timedelta(days=400))
            embedder.texts.clear()
            memory.diary(OWNER).recall("boats")
            assert embedder.texts == ["boats"]


def drop_in(place):
    with Memory(place, embedder=Turned(turn=9), clock=FixedClock("2026-06-01T09:00:00Z")) as memory:
        memory.diary(OWNER).reembed()


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_e_7_putting_a_drift_right_can_be_killed_at_any_step(known, quick):
    """E-7: at no moment are vectors of two models compared, or notes without a vector taken for complete."""
    shutil.copytree(known / OWNER, quick / "source" / OWNER)
    ends = []
    for place in deaths(quick / "source", quick, drop_in, every=3):
        with Memory(place, embedder=Turned(turn=9), clock=FixedClock("2026-06-02T09:00:00Z")) as memory:
            answer = memory.diary(OWNER).recall("Fact about boats.", limit=50)
            near = [hit for hit in answer if any(part.name == "meaning" for part in hit.why)]
            assert len(answer) == 6
            assert len(near) == 6 or answer.notices, f"{place.name}: nothing is said of what is missing"
            memory.diary(OWNER).reembed()
            assert_all_near(memory)
        ends.append(len(near))
        shutil.rmtree(place)
    assert ends[0] == 0
    assert ends[-1] == 6


def test_rw_020_saying_a_note_again_after_an_interrupted_reembed_completes_it(quick):
    """E-7: its old vectors are still there, and make room for the new."""
    with Memory(quick, embedder=HashEmbedder(64, "a")) as memory:
        memory.diary(OWNER).remember("Likes tea.")
    new = HashEmbedder(64, "b")
    with Memory(quick, embedder=new) as memory:
        new.down = True
        with pytest.raises(EmbedderError):
            memory.diary(OWNER).reembed()
        new.down = False
        note = memory.diary(OWNER).remember("Likes tea.")
        assert (note.pending, note.times) == (False, 2)
        assert memory.diary(OWNER).recall("tea").notices == ()


def test_rw_020_what_was_said_in_sessions_gets_new_vectors_too(quick):
    """RW-020: counted with the notes; what fails in the middle goes on from there; what is not searched is not owed."""
    said = [{"role": "user", "content": text} for text in TEXTS[3:]]
    with Memory(quick, embedder=HashEmbedder(64, "a")) as memory:
        diary = memory.diary(OWNER)
        diary.remember_many(TEXTS[:3])
        diary.session("s").extend([*said, {"role": "tool", "content": "42", "tool_call_id": "c"}])
    new = Turned(48, "b")
    with Memory(quick, embedder=new) as memory:
        diary = memory.diary(OWNER)
        assert "vectors of another embedder (a)" in " ".join(diary.recall("rain", where="sessions").notices)
        new.fails_after, told = 3, []
        with pytest.raises(EmbedderError, match="3 of 6 texts are still without vectors: down"):
            diary.reembed(progress=lambda done, total: told.append((done, total)))
        assert told[-1] == (3, 6)
        new.fails_after = None
        assert diary.reembed(progress=lambda done, total: told.append((done, total))) == 3
        assert told[-1] == (3, 3)
        found = diary.recall("Fact about rain.", where="sessions")
        assert found.notices == ()
        assert [part.name for part in found[0].why if part.name == "meaning"]
        assert (diary.reembed(), diary.pending) == (0, 0)


def test_rw_020_of_a_model_that_has_changed_no_vector_of_a_message_stays(quick):
    """E-7: notes and messages alike."""
    with Memory(quick, embedder=Turned()) as memory:
        memory.diary(OWNER).remember_many(TEXTS[:3])
        memory.diary(OWNER).session("s").extend([{"role": "user", "content": text} for text in TEXTS[3:]])
    with Memory(quick, embedder=Turned(turn=9)) as memory:
        assert memory.diary(OWNER).reembed() == 6
        assert memory.diary(OWNER).reembed() == 0
        assert memory.diary(OWNER).recall(TEXTS[4], where="sessions")[0].note.text == TEXTS[4]
