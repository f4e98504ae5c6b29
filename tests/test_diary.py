"""The life of one note: kept, said again, replaced, corrected, expired, erased; and what every verb refuses."""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime, timedelta, timezone

import apsw
import numpy as np
import pytest

from diarist import Memory, NotFound, StoreError
from diarist.stores import folder
from diarist.testing import FixedClock, HashEmbedder

pytestmark = pytest.mark.timeout(30)  # a recall that never ends is a fault that was seen

DAY = timedelta(days=1)
T0 = datetime(2025, 3, 1, 9, tzinfo=UTC)


class Picky(HashEmbedder):
    """Gives no number for a text that says "poison", as some servers do; counts what it was asked as ever."""

    def embed_notes(self, texts, /):
        vectors = super().embed_notes(texts)
        vectors[["poison" in text for text in texts]] = np.nan
        return vectors


@pytest.fixture
def clock():
    return FixedClock(T0)


@pytest.fixture
def embedder():
    return HashEmbedder()


@pytest.fixture
def memory(tmp_path, clock, embedder):
    with Memory(tmp_path / "memory", embedder=embedder, clock=clock) as memory:
        yield memory


@pytest.fixture
def diary(memory):
    return memory.diary("c-2291")


def texts(notes):
    return [note.text for note in notes]


def found(recall):
    return [hit.note.text for hit in recall]


class TestRemember:
    def test_r59_what_was_kept_comes_back_with_its_times_in_utc(self, diary):
        note = diary.remember(
            "Buys 1 kg of Colombia.",
            happened_at="2025-02-27T23:30:00-05:00",
            expires_at=datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=2))),
            source="whatsapp",
            origin="operator",
            tags=["order", "coffee", "order"],
        )
        assert note == diary.note(note.id)
        assert (note.owner, note.kind, note.text) == ("c-2291", "note", "Buys 1 kg of Colombia.")
        assert note.created_at == T0
        assert note.happened_at == datetime(2025, 2, 28, 4, 30, tzinfo=UTC)
        assert note.expires_at == datetime(2025, 12, 31, 22, tzinfo=UTC)
        assert all(at.utcoffset() == timedelta(0) for at in (note.created_at, note.happened_at, note.expires_at))
        assert (note.source, note.origin, note.tags) == ("whatsapp", "operator", ("order", "coffee"))
        assert (note.times, note.pending, note.replaces, note.replaced_by) == (1, False, (), None)

    def test_r59_a_clock_without_an_offset_is_refused_and_nothing_is_kept(self, tmp_path):
        memory = Memory(tmp_path / "m", embedder=HashEmbedder(), clock=lambda: datetime(2025, 3, 1))
        with pytest.raises(ValueError, match="offset"):
            memory.diary("a").remember("tea")
        assert memory.owners() == []

    @pytest.mark.parametrize(
        ("text", "error", "says"),
        [
            ("", ValueError, "blank"),
            (" \n\t\u3000", ValueError, "blank"),
            ("\u200b\u2060", ValueError, "blank"),
            ("x" * 64_001, ValueError, "64,001"),
            ("tea\0", ValueError, "NUL"),
            ("party \ud83d", ValueError, "surrogate"),
            (None, TypeError, "NoneType"),
            (7, TypeError, "int"),
            (b"tea", TypeError, "bytes"),
        ],
    )
    def test_r26_what_is_no_note_is_refused_before_any_embedding_is_paid(
        self, memory, diary, embedder, text, error, says
    ):
        with pytest.raises(error, match=says):
            diary.remember(text)
        with pytest.raises(error, match=says):
            diary.remember_many(["tea", text])
        assert (embedder.calls, memory.owners()) == (0, [])

    @pytest.mark.parametrize(
        ("argument", "error"),
        [
            ({"happened_at": datetime(2025, 3, 1)}, ValueError),
            ({"expires_at": "2025-03-01"}, ValueError),
            ({"happened_at": "tomorrow"}, ValueError),
            ({"happened_at": 1740819600}, TypeError),
            ({"tags": "order"}, TypeError),
            ({"tags": [""]}, ValueError),
            ({"tags": ["t" * 257]}, ValueError),
            ({"tags": [f"t{i}" for i in range(65)]}, ValueError),
            ({"replaces": "abc"}, TypeError),
            ({"replaces": [7]}, TypeError),
            ({"origin": "me"}, ValueError),
            ({"source": " "}, ValueError),
            ({"key": ""}, ValueError),
        ],
    )
    def test_r26_a_bad_argument_is_refused_before_any_embedding_is_paid(self, diary, embedder, argument, error):
        with pytest.raises(error):
            diary.remember("tea", **argument)
        assert (embedder.calls, diary.notes()) == (0, [])

    def test_r26_the_longest_text_is_kept_as_given(self, diary):
        text = "  tea\r\n" + "x" * 63_991 + "\t "
        assert len(text) == 64_000
        assert diary.note(diary.remember(text).id).text == text

    def test_r27_three_notes_have_three_ids_and_the_count_is_true(self, diary):
        ids = {diary.remember(text).id for text in ("Colombia", "ground for a moka pot", "Rosario")}
        assert len(ids) == len(diary.notes()) == 3

    def test_r33_another_memory_on_the_same_folder_sees_it_at_once(self, tmp_path, memory, diary):
        with Memory(tmp_path / "memory", embedder=HashEmbedder()) as other:
            assert found(other.diary("c-2291").recall("tea")) == []
            note = diary.remember("green tea")
            assert other.diary("c-2291").note(note.id) == note
            assert found(other.diary("c-2291").recall("tea")) == ["green tea"]
            assert other.owners() == ["c-2291"]

    def test_r34_folders_are_made_by_the_first_note_and_by_nothing_else(self, tmp_path):
        place = tmp_path / "a" / "b" / "memory"
        with Memory(place, embedder=HashEmbedder()) as memory:
            diary = memory.diary("c-2291")
            assert (diary.notes(), found(diary.recall("tea")), memory.owners()) == ([], [], [])
            with pytest.raises(NotFound):
                diary.note("0" * 32)
            with pytest.raises(NotFound):
                diary.edit("0" * 32, "tea")
            assert not (tmp_path / "a").exists()
            diary.remember("tea")
            assert place.is_dir()

    def test_r35_a_write_that_fails_raises_and_leaves_nothing_half_kept(self, diary, monkeypatch):
        kept = diary.remember("Buys Colombia.")

        def full(*_):
            raise apsw.FullError("database or disk is full")

        with monkeypatch.context() as broken:
            broken.setattr(folder, "put_vectors", full)
            with pytest.raises(StoreError, match="full"):
                diary.remember("Moved to Porto.", replaces=[kept.id])
            with pytest.raises(StoreError, match="full"):
                diary.edit(kept.id, "Buys Kenya.")
        assert diary.notes(include_replaced=True) == [kept]
        assert [(hit.note.text, hit.note.replaced_by) for hit in diary.recall("Porto Kenya Colombia")] == [
            ("Buys Colombia.", None)
        ]
        assert diary.remember("Moved to Porto.").text == "Moved to Porto."

    def test_r35_a_first_note_that_is_refused_leaves_no_owner_behind(self, memory, diary):
        with pytest.raises(NotFound):
            diary.remember("Moved to Porto.", replaces=["0" * 32])
        assert (diary.notes(include_replaced=True), memory.owners()) == ([], [])

    def test_r41_an_id_is_never_given_twice(self, diary):
        seen = set()
        for _ in range(5):
            note = diary.remember("The same fact.")
            assert note.id not in seen
            seen.add(note.id)
            diary.forget(note.id)
        for id in seen:
            with pytest.raises(NotFound):
                diary.note(id)

    def test_r27_threads_that_write_at_once_lose_nothing(self, diary):
        def write(number):
            for i in range(10):
                diary.remember(f"fact {number}-{i}")

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        notes = diary.notes()
        assert {note.text for note in notes} == {f"fact {a}-{b}" for a in range(4) for b in range(10)}
        assert len({note.id for note in notes}) == 40


class TestTheSameTextAgain:
    def test_r50_three_times_is_one_note_with_the_latest_date_and_a_true_count(self, diary, clock, embedder):
        first = diary.remember("Buys Colombia.", tags=["order"])
        for same in ("  buys   COLOMBIA.\n", "Ｂｕｙｓ Colombia."):
            clock.advance(DAY)
            again = diary.remember(same, tags=["coffee"])
        assert (again.id, again.times, again.created_at) == (first.id, 3, T0 + 2 * DAY)
        assert again.text == "Buys Colombia."
        assert again.tags == ("order", "coffee")
        assert diary.notes() == [again]
        assert [hit.note for hit in diary.recall("Colombia")] == [again]
        assert embedder.texts == ["Buys Colombia.", "Colombia"], "R14: what is kept already is not embedded again"

    def test_r50_in_one_import_too(self, diary):
        notes = diary.remember_many(["tea", "Tea ", "coffee"])
        assert notes[0].id == notes[1].id != notes[2].id
        assert sorted((note.text, note.times) for note in diary.notes()) == [("coffee", 1), ("tea", 2)]

    def test_a_similar_text_is_another_note(self, diary):
        assert diary.remember("Buys Colombia.").id != diary.remember("Buys Colombia").id

    def test_a_fact_that_was_replaced_and_is_so_again_is_current(self, diary, clock):
        lyon = diary.remember("Lives in Lyon.")
        clock.advance(DAY)
        porto = diary.remember("Lives in Porto.", replaces=[lyon.id])
        clock.advance(DAY)
        back = diary.remember("Lives in Lyon.", replaces=[porto.id])
        assert back.id != lyon.id
        assert diary.notes() == [back]
        assert found(diary.recall("Where does she live?", as_of=T0 + DAY)) == ["Lives in Porto."]

    def test_a_fact_that_has_expired_and_is_so_again_is_current(self, diary, clock):
        diary.remember("On holiday.", expires_at=T0 + DAY)
        clock.advance(2 * DAY)
        again = diary.remember("On holiday.")
        assert diary.notes() == [again]

    def test_said_again_it_still_held_before(self, diary, clock):
        """as_of asks what held at a moment: repeating a fact must not unsay it for the time before."""
        diary.remember("Lives in Lyon.")
        clock.advance(60 * DAY)
        diary.remember("Lives in Lyon.")
        assert texts(diary.notes(as_of=T0 + 20 * DAY)) == ["Lives in Lyon."]
        assert found(diary.recall("Lyon", as_of=T0 + 20 * DAY)) == ["Lives in Lyon."]

    def test_who_said_it_is_the_most_trusted_of_those_who_did(self, diary):
        diary.remember("Allergic to nuts.", origin="third_party")
        assert diary.remember("Allergic to nuts.", origin="owner_said").origin == "owner_said"
        assert diary.remember("Allergic to nuts.", origin="agent_inferred").origin == "owner_said"


class TestKey:
    def test_a_retry_makes_no_second_note_and_pays_no_second_embedding(self, diary, clock, embedder):
        first = diary.remember("Paid order 17.", key="evt-1")
        clock.advance(DAY)
        assert diary.remember("Paid order 17.", key="evt-1") == first
        assert (diary.notes(), embedder.calls) == ([first], 1)

    def test_the_key_of_another_text_is_refused(self, diary):
        diary.remember("Paid order 17.", key="evt-1")
        with pytest.raises(ValueError, match="evt-1"):
            diary.remember("Paid order 18.", key="evt-1")
        assert texts(diary.notes()) == ["Paid order 17."]

    def test_the_key_of_another_owner_is_free(self, memory):
        ana, ben = memory.diary("ana"), memory.diary("ben")
        first = ana.remember("Passport X1.", key="passport")
        second = ben.remember("Passport Z9.", key="passport")
        ana.forget(first.id)
        assert (ana.notes(), ben.notes()) == ([], [second])

    def test_a_retry_after_replacement_does_not_bring_the_old_fact_back(self, diary):
        first = diary.remember("Lives in Lyon.", key="evt-1")
        porto = diary.remember("Lives in Porto.", replaces=[first.id])
        assert diary.remember("Lives in Lyon.", key="evt-1").id == first.id
        assert diary.notes() == [porto]

    def test_a_retry_after_a_correction_gives_the_corrected_note(self, diary):
        """A message that is delivered twice, with an operator's correction in between, is still one note."""
        note = diary.remember("Paid order 17.", key="evt-1")
        diary.edit(note.id, "Paid order 71.")
        again = diary.remember("Paid order 17.", key="evt-1")
        assert (again.id, again.text) == (note.id, "Paid order 71.")
        assert len(diary.notes()) == 1

    def test_r14_a_retry_completes_a_note_whose_vector_was_owed_and_pays_once(self, diary, embedder):
        embedder.down = True
        assert diary.remember("Paid order 17.", key="evt-1").pending
        embedder.down, embedder.texts = False, []
        again = diary.remember("Paid order 17.", key="evt-1")
        assert embedder.texts == ["Paid order 17."]
        assert not again.pending
        assert again == diary.notes()[0]


class TestReplaces:
    def test_r60_rosario_then_cordoba(self, diary, clock):
        rosario = diary.remember("Ships to Rosario, the city where she lives.")
        clock.advance(DAY)
        cordoba = diary.remember("Ships to Córdoba, the city where she lives.", replaces=[rosario.id])
        assert cordoba.replaces == (rosario.id,)
        assert diary.note(rosario.id).replaced_by == cordoba.id
        assert [hit.note.id for hit in diary.recall("Which city does she live in?")] == [cordoba.id]
        every = diary.recall("Which city does she live in?", include_replaced=True)
        assert [hit.note.id for hit in every] == [cordoba.id, rosario.id]
        lines = every.context().splitlines()[2:4]
        assert "replaced since" not in lines[0]
        assert "replaced since" in lines[1]

    def test_r60_similar_facts_without_replaces_newer_first_and_the_older_marked(self, diary, clock):
        rosario = diary.remember("Ships to Rosario, the city where she lives.")
        clock.advance(DAY)
        cordoba = diary.remember("Ships to Córdoba, the city where she lives.")
        newer, older = diary.recall("Which city does she live in?")
        assert (newer.note.id, newer.older_than) == (cordoba.id, None)
        assert (older.note.id, older.older_than) == (rosario.id, cordoba.id)
        assert newer.score >= older.score

    def test_r60_the_current_fact_is_first_whatever_the_limit(self, diary, clock):
        diary.remember("home city of the customer is Rosario")
        clock.advance(DAY)
        diary.remember("home city of the customer is Cordoba nowadays indeed")
        firsts = {diary.recall("home city of the customer", limit=limit)[0].note.text for limit in (1, 2, 8)}
        assert firsts == {"home city of the customer is Cordoba nowadays indeed"}

    def test_a_chain_shows_at_each_moment_what_held_then(self, diary, clock):
        held, last = [], []
        for city in ("Lyon", "Porto", "Turin"):
            note = diary.remember(f"Lives in {city}.", replaces=last)
            held.append(note)
            last = [note.id]
            clock.advance(10 * DAY)
        assert texts(diary.notes()) == ["Lives in Turin."]
        assert texts(diary.notes(include_replaced=True)) == ["Lives in Turin.", "Lives in Porto.", "Lives in Lyon."]
        assert [diary.note(note.id).replaced_by for note in held] == [held[1].id, held[2].id, None]
        for moment, city in ((0, "Lyon"), (9, "Lyon"), (10, "Porto"), (19, "Porto"), (20, "Turin"), (400, "Turin")):
            assert found(diary.recall("Lives where?", as_of=T0 + moment * DAY)) == [f"Lives in {city}."]
            assert texts(diary.notes(as_of=T0 + moment * DAY)) == [f"Lives in {city}."]
        assert found(diary.recall("Lives where?", as_of=T0 - DAY)) == []

    def test_one_note_may_take_the_place_of_several(self, diary):
        old = diary.remember_many(["Likes tea.", "Likes coffee."])
        new = diary.remember("Drinks only water.", replaces=[note.id for note in old])
        assert new.replaces == tuple(note.id for note in old)
        assert diary.notes() == [new]

    def test_a_note_does_not_replace_itself(self, diary):
        note = diary.remember("Likes tea.")
        again = diary.remember("likes tea.", replaces=[note.id])
        assert (again.id, again.replaces, again.replaced_by) == (note.id, (), None)
        assert diary.notes() == [again]

    def test_an_unknown_id_or_another_owners_is_refused_and_nothing_changes(self, memory, diary):
        theirs = memory.diary("other").remember("Lives in Lyon.")
        kept = diary.remember("Likes tea.")
        for bad in (theirs.id, "0" * 32, "%", "_" * 32):
            with pytest.raises(NotFound):
                diary.remember("Lives in Porto.", replaces=[kept.id, bad])
            with pytest.raises(NotFound):
                diary.remember_many(["Has a dog.", {"text": "Lives in Porto.", "replaces": [kept.id, bad]}])
        assert diary.notes(include_replaced=True) == [kept]
        assert memory.diary("other").notes() == [theirs]

    def test_when_it_happened_decides_from_when_the_old_one_no_longer_holds(self, diary, clock):
        lyon = diary.remember("Lives in Lyon.", happened_at=T0 - 100 * DAY)
        diary.remember("Lives in Porto.", happened_at=T0 - 10 * DAY, replaces=[lyon.id])
        assert texts(diary.notes(as_of=T0 - 11 * DAY)) == ["Lives in Lyon."]
        assert texts(diary.notes(as_of=T0 - 10 * DAY)) == ["Lives in Porto."]

    def test_what_is_replaced_from_a_day_to_come_holds_until_then(self, diary, clock):
        lyon = diary.remember("Lives in Lyon.")
        diary.remember("Lives in Porto.", happened_at=T0 + 30 * DAY, replaces=[lyon.id])
        assert "Lives in Lyon." in texts(diary.notes())
        assert "Lives in Lyon." in found(diary.recall("Lives where?"))
        clock.advance(30 * DAY)
        assert texts(diary.notes()) == ["Lives in Porto."]

    def test_forgetting_the_newer_leaves_the_older_to_be_seen(self, diary):
        lyon = diary.remember("Lives in Lyon.")
        porto = diary.remember("Lives in Porto.", replaces=[lyon.id])
        diary.forget(porto.id)
        assert texts(diary.notes(include_replaced=True)) == ["Lives in Lyon."]
        assert diary.note(lyon.id).text == "Lives in Lyon."


class TestEdit:
    def test_the_new_text_takes_the_place_and_the_old_is_gone(self, tmp_path, diary, clock):
        note = diary.remember("Likes jasmine tea.", source="phone", tags=["taste"], happened_at=T0 - DAY)
        clock.advance(DAY)
        edited = diary.edit(note.id, "Likes roasted barley.")
        assert edited == diary.note(note.id)
        assert (edited.id, edited.text) == (note.id, "Likes roasted barley.")
        for same in ("created_at", "happened_at", "source", "tags", "origin", "times"):
            assert getattr(edited, same) == getattr(note, same), same
        (hit,) = diary.recall("jasmine")
        assert "words" not in {part.name for part in hit.why}
        assert "cosine 0.00" in next(part.text for part in hit.why if part.name == "meaning")
        assert diary.recall("roasted barley")[0].score > hit.score
        held = b"".join((place / name).read_bytes() for place in _folders(tmp_path) for name in os.listdir(place))
        assert b"jasmine" not in held

    def test_what_cannot_be_a_note_is_refused_before_any_embedding_is_paid(self, diary, embedder):
        note = diary.remember("Likes tea.")
        embedder.calls = 0
        for bad, error in (("", ValueError), (None, TypeError), ("x" * 64_001, ValueError)):
            with pytest.raises(error):
                diary.edit(note.id, bad)
        with pytest.raises(NotFound):
            diary.edit("0" * 32, "Likes coffee.")
        with pytest.raises(TypeError):
            diary.edit(7, "Likes coffee.")
        assert (embedder.calls, diary.notes()) == (0, [note])

    def test_r53_with_the_embedder_down_the_correction_is_kept_and_its_vector_owed(self, diary, embedder):
        note = diary.remember("Likes jasmine.")
        embedder.down = True
        assert diary.edit(note.id, "Likes barley.").pending
        assert found(diary.recall("barley")) == ["Likes barley."]
        embedder.down = False
        (hit,) = diary.recall("barley")
        assert not hit.note.pending
        assert "meaning" in {part.name for part in hit.why}

    def test_a_replaced_note_can_be_corrected_and_stays_replaced(self, diary):
        old = diary.remember("Lives in Lyn.")
        new = diary.remember("Lives in Porto.", replaces=[old.id])
        assert diary.edit(old.id, "Lives in Lyon.").replaced_by == new.id
        assert texts(diary.notes()) == ["Lives in Porto."]


def _folders(tmp_path):
    return [place for place in (tmp_path / "memory").iterdir() if place.is_dir()]


class TestForget:
    def test_r62_it_is_nowhere_and_may_be_said_anew(self, diary):
        kept, gone = diary.remember("Likes coffee."), diary.remember("Likes tea.")
        assert "Likes tea." in found(diary.recall("tea"))
        diary.forget(gone.id)
        with pytest.raises(NotFound):
            diary.note(gone.id)
        assert diary.notes(include_replaced=True) == [kept]
        assert found(diary.recall("tea", include_replaced=True)) == ["Likes coffee."]
        with pytest.raises(NotFound):
            diary.forget(gone.id)
        assert diary.remember("Likes tea.").times == 1

    def test_several_at_once_all_or_none(self, diary):
        notes = diary.remember_many(["one", "two", "three"])
        with pytest.raises(NotFound):
            diary.forget([notes[0].id, "0" * 32])
        assert len(diary.notes()) == 3
        diary.forget([notes[0].id, notes[2].id, notes[0].id])
        assert texts(diary.notes()) == ["two"]

    def test_an_id_is_taken_literally_and_for_this_owner_only(self, memory, diary):
        mine, theirs = diary.remember("tea"), memory.diary("other").remember("tea")
        for bad in (theirs.id, "%", "*", mine.id[:-1] + "_", mine.id[:-1], ""):
            with pytest.raises(NotFound):
                diary.forget(bad)
        for bad in (7, None, [7]):
            with pytest.raises(TypeError):
                diary.forget(bad)
        assert (diary.notes(), memory.diary("other").notes()) == ([mine], [theirs])

    def test_no_ids_forget_nothing(self, diary):
        note = diary.remember("tea")
        diary.forget([])
        assert diary.notes() == [note]


class TestTime:
    def test_expired_from_the_very_moment_and_seen_as_of_before(self, diary, clock):
        diary.remember("On holiday.", expires_at=T0 + DAY)
        clock.set(T0 + DAY - timedelta(microseconds=1))
        assert found(diary.recall("holiday")) == texts(diary.notes()) == ["On holiday."]
        clock.set(T0 + DAY)
        assert found(diary.recall("holiday")) == texts(diary.notes()) == []
        before = T0 + DAY - timedelta(seconds=1)
        for asked in ({"as_of": before}, {"now": before}):
            assert found(diary.recall("holiday", **asked)) == texts(diary.notes(**asked)) == ["On holiday."]

    def test_include_replaced_brings_expired_notes_too(self, diary, clock):
        """As `notes` and `recall` say of themselves."""
        diary.remember("On holiday.", expires_at=T0 + DAY)
        clock.advance(2 * DAY)
        assert texts(diary.notes(include_replaced=True)) == ["On holiday."]
        assert found(diary.recall("holiday", include_replaced=True)) == ["On holiday."]

    def test_as_of_knows_nothing_of_later_notes(self, diary, clock):
        diary.remember("Likes tea.")
        clock.advance(DAY)
        diary.remember("Likes coffee.")
        assert texts(diary.notes(as_of=T0)) == found(diary.recall("likes", as_of=T0)) == ["Likes tea."]

    def test_a_day_to_come_is_fine(self, diary):
        diary.remember("Dentist on Friday.", happened_at=T0 + 6 * DAY)
        assert found(diary.recall("dentist")) == ["Dentist on Friday."]

    def test_newest_first_by_when_it_happened_not_by_when_it_was_written(self, diary, clock):
        diary.remember("second", happened_at=T0 - 5 * DAY)
        clock.advance(DAY)
        diary.remember("first", happened_at=T0 - 9 * DAY)
        clock.advance(DAY)
        diary.remember("third")
        assert texts(diary.notes()) == ["third", "second", "first"]

    def test_a_clock_that_goes_back_does_not_make_a_later_note_older(self, diary, clock):
        diary.remember("written first")
        clock.set(T0 - 30 * DAY)
        diary.remember("written second")
        assert texts(diary.notes()) == ["written second", "written first"]

    @pytest.mark.parametrize("argument", ["since", "before", "as_of", "now"])
    @pytest.mark.parametrize("bad", [datetime(2025, 3, 1), "2025-03-01T09:00:00", "soon"])
    def test_a_time_without_an_offset_is_refused(self, diary, argument, bad):
        diary.remember("tea")
        with pytest.raises(ValueError, match=argument):
            diary.recall("tea", **{argument: bad})
        with pytest.raises(ValueError, match=argument):
            diary.notes(**{argument: bad})


class TestFilters:
    @pytest.fixture
    def filled(self, diary, clock):
        diary.remember("likes tea", tags=["drink"], source="phone")
        clock.advance(DAY)
        diary.remember("likes coffee", tags=["drink", "order"], source="phone call")
        clock.advance(DAY)
        diary.remember("likes cake", tags=["order", "Drink"], happened_at=T0 - 10 * DAY)
        return diary

    @pytest.mark.parametrize(
        ("asked", "expected"),
        [
            ({}, {"tea", "coffee", "cake"}),
            ({"tags": ["drink"]}, {"tea", "coffee"}),
            ({"tags": ["drink", "order"]}, {"coffee"}),
            ({"tags": ["dri"]}, set()),
            ({"tags": ["%"]}, set()),
            ({"tags": []}, {"tea", "coffee", "cake"}),
            ({"source": "phone"}, {"tea"}),
            ({"source": "PHONE"}, set()),
            ({"since": T0}, {"tea", "coffee"}),
            ({"since": T0 + timedelta(microseconds=1)}, {"coffee"}),
            ({"before": T0}, {"cake"}),
            ({"before": T0 + timedelta(microseconds=1)}, {"tea", "cake"}),
            ({"since": "2025-03-01T11:00:00+02:00", "before": "2025-03-01T09:00:01Z"}, {"tea"}),
            ({"since": T0, "tags": ["order"]}, {"coffee"}),
            ({"since": T0 + DAY, "before": T0}, set()),
        ],
    )
    def test_notes_and_recall_let_the_same_through(self, filled, asked, expected):
        assert {text.split()[-1] for text in texts(filled.notes(**asked))} == expected
        assert {text.split()[-1] for text in found(filled.recall("likes", **asked))} == expected

    @pytest.mark.parametrize(("asked", "error"), [({"tags": "drink"}, TypeError), ({"source": ""}, ValueError)])
    def test_a_bad_filter_is_refused(self, filled, asked, error):
        with pytest.raises(error):
            filled.recall("likes", **asked)
        with pytest.raises(error):
            filled.notes(**asked)


class TestRememberMany:
    def test_in_the_order_given_with_every_argument(self, diary):
        notes = diary.remember_many(
            each
            for each in (
                "tea",
                {"text": "coffee", "tags": ["drink"], "source": "phone", "happened_at": "2025-01-01T00:00:00Z"},
                "cake",
            )
        )
        assert texts(notes) == ["tea", "coffee", "cake"]
        assert notes == [diary.note(note.id) for note in notes]
        assert not any(note.pending for note in notes)
        assert (notes[1].tags, notes[1].source) == (("drink",), "phone")

    @pytest.mark.parametrize(
        ("bad", "error"),
        [
            ({"tags": ["x"]}, ValueError),
            ({"text": "x", "owner": "other"}, ValueError),
            ({"text": "x", "happened_at": "soon"}, ValueError),
            (None, TypeError),
            (["x"], TypeError),
        ],
    )
    def test_one_bad_note_is_named_and_none_is_saved(self, memory, diary, embedder, bad, error):
        with pytest.raises(error, match="note 2 "):
            diary.remember_many(["tea", "coffee", bad])
        assert (embedder.calls, memory.owners()) == (0, [])

    @pytest.mark.parametrize("single", ["tea", {"text": "tea"}])
    def test_a_single_note_is_a_mistake_and_not_taken_letter_by_letter(self, diary, single):
        with pytest.raises(TypeError):
            diary.remember_many(single)
        assert diary.notes() == []

    def test_nothing_to_keep_asks_nothing(self, memory, diary, embedder):
        assert diary.remember_many([]) == []
        assert (embedder.calls, memory.owners()) == (0, [])

    def test_r14_vectors_come_in_batches_and_progress_grows_to_the_end(self, diary, embedder):
        told = []
        notes = diary.remember_many((f"fact {i}" for i in range(150)), progress=lambda *each: told.append(each))
        assert len({note.id for note in notes}) == 150
        assert (embedder.calls, len(embedder.texts)) == (3, 150)
        assert told == sorted(told)
        assert (told[0], told[-1]) == ((0, 150), (150, 150))

    def test_progress_ends_at_the_total_when_a_text_is_given_twice(self, diary):
        told = []
        diary.remember_many(["tea", "tea", "coffee"], progress=lambda *each: told.append(each))
        assert told[-1] == (3, 3)

    def test_progress_counts_no_older_notes_whose_vectors_were_owed(self, diary):
        diary.remember_many([f"older {i}" for i in range(70)], defer=True)
        told = []

        def progress(done, total):
            told.append((done, total, sum(not note.pending for note in diary.notes(tags=["mine"]))))

        diary.remember_many([{"text": f"newer {i}", "tags": ["mine"]} for i in range(3)], progress=progress)
        assert told[-1] == (3, 3, 3)
        assert [each for each in told if each[0] > each[2]] == []

    def test_deferred_notes_are_found_by_words_at_once_and_by_meaning_later(self, diary, embedder):
        notes = diary.remember_many(["green tea", "black coffee"], defer=True)
        assert [note.pending for note in notes] == [True, True]
        assert embedder.calls == 0
        embedder.down = True
        assert found(diary.recall("coffee"))[0] == "black coffee"
        embedder.down = False
        assert [hit.note.pending for hit in diary.recall("coffee")] == [False, False]

    def test_a_note_without_a_vector_hurts_no_other(self, tmp_path):
        with Memory(tmp_path / "m", embedder=Picky()) as memory:
            diary = memory.diary("a")
            notes = diary.remember_many(["tea", "poison", "coffee"])
            assert [note.pending for note in notes] == [False, True, False]
            assert found(diary.recall("poison"))[0] == "poison"

    def test_notes_that_never_get_a_vector_do_not_keep_the_others_waiting(self, tmp_path):
        with Memory(tmp_path / "m", embedder=Picky()) as memory:
            diary = memory.diary("a")
            diary.remember_many([*(f"poison {i}" for i in range(70)), "tea"], defer=True)
            diary.recall("tea")
            diary.remember_many(["coffee"])
            assert [note.text for note in diary.notes() if not note.pending] == ["coffee", "tea"]

    def test_r53_an_embedder_that_fails_leaves_pending_notes_and_no_error(self, diary, embedder):
        embedder.down = True
        notes = diary.remember_many(["tea", "coffee"])
        assert [note.pending for note in notes] == [True, True]
        embedder.down = False
        assert not diary.remember("cake").pending
        assert [note.pending for note in diary.notes()] == [False] * 3


class TestZone:
    def test_r59_dates_are_shown_in_the_owners_zone_and_it_is_remembered(self, tmp_path, clock):
        clock.set("2026-03-16T02:30:00Z")
        place = tmp_path / "m"
        with Memory(place, embedder=HashEmbedder(), clock=clock) as memory:
            assert memory.diary("c").timezone == "UTC"
            memory.diary("c", timezone="America/Lima").remember("Dentist called.")
        with Memory(place, embedder=HashEmbedder(), clock=clock) as memory:
            diary = memory.diary("c")
            assert diary.timezone == "America/Lima"
            assert "[Sun 2026-03-15]" in diary.recall("dentist").context()
            assert "[Mon 2026-03-16]" in memory.diary("c", timezone="Asia/Tokyo").recall("dentist").context()
            assert diary.timezone == "America/Lima", "a diary that was only read keeps its zone"
            assert memory.diary("other").timezone == "UTC"

    @pytest.mark.parametrize(
        ("zone", "error"), [("Mars/Base", ValueError), ("", ValueError), ("../etc", ValueError), (1, TypeError)]
    )
    def test_an_unknown_zone_is_refused(self, memory, zone, error):
        with pytest.raises(error, match="timezone"):
            memory.diary("c", timezone=zone)
