"""R62, TRUST P-1 to P-4: what was erased is in no file any more, and the report of it is true.

Every file below the memory is read as bytes, whatever its name. Each test first sees the words there, so that not to
see them later means something.
"""

from __future__ import annotations

import itertools
import random
import shutil
import sys
from datetime import timedelta

import apsw
import pytest

from diarist import NotFound, StoreError
from diarist.stores import file, migrate, word_index
from diarist.testing import FixedClock
from support import OWNER, Child, Dense, assert_whole, deaths, diary_file, elsewhere, left_of, opened, quick_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be read or removed there")
_LETTERS = "bcdfghjklmnpqrstvwxz"
_RNG = random.Random(62)


def sentinel(words=6):
    """A text of words that nobody ever wrote, with capitals, so that lower case is a form of its own."""
    return " ".join("".join(_RNG.choices(_LETTERS, k=_RNG.randint(9, 14))).capitalize() for _ in range(words))


def dense(place, **options):
    return opened(place, embedder=Dense(), **options)


# How many notes are around the one in question, and of how many words; theirs sort before and after its own.
SIZES = {"small": (0, 0), "filed in the word index": (300, 5), "over many pages": (40, 300)}
TEXT = sentinel(12)


def filled(diary, size):
    many, words = SIZES[size]
    diary.remember_many([sentinel(words) for _ in range(many)])


@pytest.fixture(scope="module")
def templates():
    """For each size a closed memory in which TEXT is the note in question."""
    with quick_folder() as place:
        for size in SIZES:
            with dense(place / size, clock=FixedClock("2026-03-01T09:00:00Z")) as memory:
                diary = memory.diary(OWNER)
                filled(diary, size)
                diary.remember(TEXT, key=sentinel(1), source="whatsapp", tags=["a"])
                diary.remember(TEXT.upper())  # the same note, said again
                filled(diary, size)
        yield place


def forget(memory, id):
    return memory.diary(OWNER).forget(id)


def edit(memory, id):
    memory.diary(OWNER).edit(id, "Corrected.")


def expire(memory, id):
    memory._clock.advance(timedelta(days=31))
    return memory.diary(OWNER).expire()


def forget_after_replacement(memory, id):
    newer = memory.diary(OWNER).remember("What holds now.", replaces=[id])
    report = memory.diary(OWNER).forget(id)
    assert memory.diary(OWNER).note(newer.id).replaces == (id,)
    return report


def forget_a_correction(memory, id):
    memory.diary(OWNER).edit(id, "Corrected.")
    return memory.diary(OWNER).forget(id)


def erase(memory, id):
    return memory.erase(OWNER)


VERBS = [forget, edit, expire, forget_after_replacement, forget_a_correction, erase]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("verb", VERBS)
def test_p_1_p_2_nothing_of_it_is_in_any_file(verb, size, templates, quick, clock):
    """P-1, P-2, R62: words, in every encoding and case, and vectors; checked against a twin in which it stays."""
    shutil.copytree(templates / size, quick / "m")
    with dense(quick / "m", clock=clock, retention_days=30) as memory:
        diary = memory.diary(OWNER)
        diary.remember("Likes tea.")  # some of it is in the log too
        note = next(note for note in diary.notes() if note.text == TEXT)
        before = elsewhere(left_of, quick / "m", TEXT)
        assert sum("utf-8" in each for each in before) > 12, "the search finds what is there"
        assert any("<f2 vector" in each for each in before)
        report = verb(memory, note.id)
        assert elsewhere(left_of, quick / "m", TEXT) == []
        assert report is None or report.complete
    assert left_of(quick / "m", TEXT) == []
    assert left_of(templates / size, TEXT), "and in the twin it stays"
    if verb is not erase:
        assert_whole(diary_file(quick / "m"))


def test_p_1_also_when_it_was_written_a_moment_before(quick, clock):
    """P-1: it was never anywhere but in the log."""
    text = sentinel(12)
    with dense(quick, clock=clock) as memory:
        note = memory.diary(OWNER).remember(text)
        assert elsewhere(left_of, quick, text)
        assert memory.diary(OWNER).forget(note.id).complete
        assert elsewhere(left_of, quick, text) == []


@pytest.mark.parametrize("what", ["secure_delete", "the log", "the row alone"])
def test_the_tests_above_can_fail(what, quick, clock, monkeypatch):
    """Controls: without overwriting, without emptying the log, or with the row alone gone, something is found."""
    from diarist.stores import folder

    monkeypatch.setattr(folder.FolderDiary, "_rewrite", lambda *_: None)  # the second net, which would mend it
    if what == "secure_delete":
        monkeypatch.setattr(
            file, "_EVERY_CONNECTION", file._EVERY_CONNECTION.replace("secure_delete = ON", "secure_delete = OFF")
        )
    elif what == "the log":
        monkeypatch.setattr(folder.FolderDiary, "_settle", lambda *_: True)
    else:
        monkeypatch.setattr(word_index, "unfile", lambda *_: None)
    gone = [sentinel(12) for _ in range(20)]  # a page may be packed anew and lose one or the other by chance
    with dense(quick, clock=clock) as memory:
        diary = memory.diary(OWNER)
        filled(diary, "filed in the word index")
        notes = diary.remember_many(gone)
        filled(diary, "filed in the word index")
        for note in notes:
            diary.forget(note.id)
        assert elsewhere(left_of, quick, *gone)


def test_p_2_a_key_that_says_something_goes_with_its_note(quick):
    """P-2: idempotency keys are the caller's words and may hold some of the text; each that led to the note goes."""
    keys = [sentinel(1) for _ in range(3)]
    with dense(quick) as memory:
        diary = memory.diary(OWNER)
        for key in keys:
            note = diary.remember("Buys 1 kg of Colombia.", key=key, source=keys[0], tags=[keys[1]])
        assert len(elsewhere(left_of, quick, *keys)) >= 3
        assert diary.forget(note.id).complete
        assert elsewhere(left_of, quick, *keys) == []
        assert diary.remember("Anything else.", key=keys[0]).text == "Anything else."


def test_p_2_a_page_that_is_written_anew_leaves_nothing_of_the_old(quick):
    """P-2: the page is a file of its own, replaced whole."""
    text = sentinel()
    with dense(quick) as memory:
        page = memory.diary(OWNER).page
        page.add(text)
        assert elsewhere(left_of, quick, text)
        page.write("Something else.\n")
        assert elsewhere(left_of, quick, text) == []
        page.add(text)
        page.read()
        page.write("")
        assert elsewhere(left_of, quick, text) == []


def test_p_2_erased_means_the_page_too_and_other_owners_stay(quick):
    """P-2: erasing removes the folder; what it was called is not kept in clear either."""
    text, owner = sentinel(), "Zelmira.Quarenghi@example.org"
    with dense(quick) as memory:
        memory.diary(owner).remember(text)
        memory.diary(owner).page.add(text)
        memory.diary("other").remember("Likes tea.")
        report = memory.erase(owner)
        assert (report.complete, report.notes, report.messages) == (True, 1, 0)
        assert memory.owners() == ["other"]
        assert [note.text for note in memory.diary("other").notes()] == ["Likes tea."]
        assert elsewhere(left_of, quick, text, owner) == []
        assert not any("uarenghi" in str(path) for path in quick.rglob("*"))


@pytest.mark.parametrize("seed", [1, 2])
def test_p_1_whatever_was_done_in_whatever_order(seed, quick, clock):
    """P-1, P-2: pages that split, merge, are freed and used again keep no copy of what has left them."""
    rng, alive, gone = random.Random(seed), {}, []
    with dense(quick, clock=clock) as memory:
        diary = memory.diary(OWNER)
        for _ in range(40):
            act = rng.random()
            if act < 0.6 or len(alive) < 20:
                many = [sentinel(rng.choice([2, 3, 8, 40])) for _ in range(rng.choice([1, 1, 50, 150]))]
                alive |= {note.id: note.text for note in diary.remember_many(many)}
            elif act < 0.8:
                ids = rng.sample(sorted(alive), rng.choice([1, 5, 20]))
                assert diary.forget(ids).complete
                gone += [alive.pop(id) for id in ids]
            else:
                id = rng.choice(sorted(alive))
                gone.append(alive[id])
                alive[id] = diary.edit(id, sentinel(rng.choice([2, 8, 300]))).text
        assert len(gone) > 20
        one_string = "\n".join(elsewhere(words_in, quick))
        left = [word for text in gone for word in text.split() if word.lower() in one_string]
        assert left == []
        assert all(word.lower() in one_string for text in alive.values() for word in text.split())
        assert vectors_in(quick, alive.values()) == len(alive)
        assert vectors_in(quick, gone) == 0
    assert_whole(diary_file(quick))


def words_in(place):
    """Every run of letters in any file, in lower case, once."""
    import re

    runs = (re.findall(rb"[a-z]{8,}", path.read_bytes().lower()) for path in place.rglob("*") if path.is_file())
    return sorted({run.decode() for found in runs for run in found})


def vectors_in(place, texts):
    """Of how many texts some piece of the vector is in a file."""
    made = [vector.astype("<f2").tobytes() for vector in Dense().embed_notes(list(texts))]
    return elsewhere(_count_of, place, [[data[at : at + 16] for at in range(0, len(data), 16)] for data in made])


def _count_of(place, every):
    data = b"".join(path.read_bytes() for path in place.rglob("*") if path.is_file())
    return sum(any(piece in data for piece in pieces) for pieces in every)


# -- a reader in the way -------------------------------------------------------------------------------------------


def read_on(talk, place):
    """Another process in the middle of reading, for as long as it is not told to stop."""
    db = apsw.Connection(str(diary_file(place)), flags=apsw.SQLITE_OPEN_READWRITE)
    db.execute("BEGIN")
    talk.send(db.execute("SELECT count(*) FROM notes").fetchall()[0][0])
    talk.recv()
    db.execute("COMMIT")
    db.close()
    talk.send("done")
    talk.recv()


@pytest.mark.parametrize("where", ["another process", "another connection"])
@pytest.mark.parametrize("then", ["write", "forget", "doctor", "reopen"])
def test_p_3_a_reader_of_the_state_before_makes_it_pending_and_the_next_write_cleans(where, then, quick):
    """P-3: honest at once (`pending`, `complete` false), and finished by the next write or `doctor`."""
    text, other = sentinel(), sentinel()
    with dense(quick) as memory:
        diary = memory.diary(OWNER)
        note, second = diary.remember_many([text, other])
        if where == "another process":
            reader = Child(read_on, quick)
            assert reader.hear() == 2
        else:
            db = apsw.Connection(str(diary_file(quick)), flags=apsw.SQLITE_OPEN_READWRITE)
            db.execute("BEGIN")
            db.execute("SELECT count(*) FROM notes").fetchall()
        report = diary.forget(note.id)
        assert (report.pending, report.complete) == (True, False)
        assert note.id not in {each.id for each in diary.notes()}, "it is out of sight all the same"
        assert next(found for found in diary.doctor() if found.subject == "erasures").well is False
        assert elsewhere(left_of, quick, text), "the reader needs it: it is still there, as the report says"
        if where == "another process":
            assert reader.ask("stop") == "done"
            reader.talk.send("end")
            assert reader.ended() == 0
        else:
            db.execute("COMMIT")
            db.close()
        if then == "write":
            diary.remember("Likes tea.")
        elif then == "forget":
            assert diary.forget(second.id).complete
            assert elsewhere(left_of, quick, other) == []
        elif then == "doctor":
            assert next(found for found in diary.doctor() if found.subject == "erasures").well
        else:
            memory.close()
        assert elsewhere(left_of, quick, text) == []


def test_p_3_erasing_an_owner_does_not_wait_for_a_reader(quick):
    """P-3: the files go from the folder though somebody still has them open; their space follows when he ends."""
    text = sentinel()
    with dense(quick) as memory:
        memory.diary(OWNER).remember(text)
        reader = Child(read_on, quick)
        reader.hear()
        assert memory.erase(OWNER).complete
        assert elsewhere(left_of, quick, text) == []
        reader.kill()
        reader.ended()


# -- interrupted ---------------------------------------------------------------------------------------------------


def forget_and_tell(talk, place, id):
    dense(place).diary(OWNER).forget(id)
    talk.send("forgotten")
    talk.recv()


def test_p_4_killed_when_the_answer_was_given(quick):
    """P-4: forgotten means forgotten, whatever becomes of the process that said so."""
    text = sentinel()
    with dense(quick) as memory:
        note = memory.diary(OWNER).remember(text)
        memory.diary(OWNER).remember("Likes tea.")
    child = Child(forget_and_tell, quick, note.id)
    assert child.hear() == "forgotten"
    child.kill()
    child.ended()
    assert left_of(quick, text) == []
    with dense(quick) as memory:
        assert [each.text for each in memory.diary(OWNER).notes()] == ["Likes tea."]
    assert left_of(quick, text) == []


def forget_in(place, id):
    with dense(place) as memory:
        memory.diary(OWNER).forget(id)


def edit_in(place, id):
    with dense(place) as memory:
        memory.diary(OWNER).edit(id, "Corrected.")


@pytest.mark.parametrize("act", [forget_in, edit_in])
def test_p_4_killed_before_any_step_of_forgetting_it_is_all_there_or_all_gone(act, quick):
    """P-4, R62: an interrupted deletion finishes when the diary is next used, also by one who only reads."""
    text = sentinel()
    with dense(quick / "source") as memory:
        note = memory.diary(OWNER).remember(text)
        memory.diary(OWNER).remember("Likes tea.")
    kept = gone = 0
    for place in deaths(quick / "source", quick, act, note.id, every=2):
        shutil.copytree(place, quick / "again")
        for copy, next_one in ((place, "reads"), (quick / "again", "writes")):
            with dense(copy) as memory:
                there = text in {each.text for each in memory.diary(OWNER).notes()}
                if next_one == "writes":
                    memory.diary(OWNER).remember("Another day.")
                else:
                    memory.diary(OWNER).recall("tea")
            assert bool(left_of(copy, text)) == there, f"{place.name} {next_one}"
            assert_whole(diary_file(copy))
            shutil.rmtree(copy)
        kept, gone = kept + there, gone + (not there)
    assert kept > 5
    assert gone > 1


def erase_in(place):
    with dense(place) as memory:
        memory.erase(OWNER)


@pytest.mark.parametrize("next_one", ["reads", "writes", "erases", "lists"])
def test_p_4_killed_before_any_step_of_erasing_it_is_finished_by_whoever_comes_next(next_one, quick):
    """P-4, R62: the diary is whole, or empty for everybody, and then all of its files go, and its folder."""
    text = sentinel()
    with dense(quick / "source") as memory:
        memory.diary(OWNER).remember(text)
        memory.diary(OWNER).page.add(text)
        memory.diary("other").remember("Likes tea.")
    kept = gone = 0
    for place in deaths(quick / "source", quick, erase_in):
        folder = diary_file(place).parent
        with dense(place) as memory:
            there = OWNER in memory.owners()
            notes = memory.diary(OWNER).notes()
            assert [note.text for note in notes] == [text] * there
            if next_one == "writes" and not there:
                memory.diary(OWNER).remember("A new life.")
                assert memory.diary(OWNER).page.read() == ""
            if next_one == "erases":
                assert memory.erase(OWNER).complete
                there = False
        kept, gone = kept + there, gone + (not there)
        if not there:
            assert left_of(place, text) == [], place.name
        if not there and next_one != "writes":
            assert not folder.exists(), f"{place.name}: what is left, {list(folder.iterdir())}, names a person"
        shutil.rmtree(place)
    assert gone > 3
    assert kept > 3 or next_one == "erases"


def restore_in(place):
    with dense(place / "memory") as memory:
        memory.restore(place / "backup", overwrite=True)


def test_p_4_what_an_interrupted_restore_left_behind_is_erased_with_its_owner(quick):
    """P-4, R62: a copy that a restore had prepared is a copy like any other; erasing reaches it, or says so."""
    text = sentinel()
    with dense(quick / "source" / "memory") as memory:
        memory.diary(OWNER).remember(text)
        memory.backup(quick / "source" / "backup")
    for place in deaths(quick / "source", quick, restore_in, every=3):
        with dense(place / "memory") as memory:
            report = memory.erase(OWNER)
        left = left_of(place / "memory", text)
        assert left == [] or not report.complete, "the report says that nothing is left"
        assert left == [], place.name
        shutil.rmtree(place)


def migrate_in(place, scripts):
    migrate.scripts = lambda: scripts
    with dense(place) as memory:
        memory.diary(OWNER).notes()


def test_p_4_the_copy_of_an_interrupted_change_of_schema_does_not_keep_what_is_forgotten(quick, monkeypatch):
    """P-4, R62: the copy beside the file goes when the change is done; if a kill left it, then not much later."""
    text = sentinel()
    with dense(quick / "source") as memory:
        note = memory.diary(OWNER).remember(text)
    scripts = {**migrate.scripts(), 2: "CREATE TABLE extra (a)"}
    places = list(deaths(quick / "source", quick, migrate_in, scripts))
    monkeypatch.setattr(migrate, "scripts", lambda: scripts)
    for place in places:
        with dense(place) as memory:
            report = memory.diary(OWNER).forget(note.id)
            assert elsewhere(left_of, place, text) == [] or report.residue, "the report is not true"
        assert left_of(place, text) == [], place.name


# -- the report ----------------------------------------------------------------------------------------------------


def test_the_report_says_where_it_looked_and_what_is_left(quick, clock):
    """R62: `checked` are the files there are; a page on which a person wrote the same is named, not touched."""
    text = sentinel()
    with dense(quick, clock=clock) as memory:
        diary = memory.diary(OWNER)
        first, second, third = diary.remember_many([text, "Likes tea.", sentinel()])
        diary.page.add(text)
        report = diary.forget([first.id, second.id])
        assert (report.at, report.notes, report.messages, report.pending) == (clock(), 2, 0, False)
        assert (report.residue, report.complete) == (("page.md",), False)
        there = {path.name for path in diary_file(quick).parent.iterdir() if not path.name.endswith("-shm")}
        assert set(report.checked) == there
        assert text in diary.page.read()
        assert diary.forget(third.id).complete
        assert text not in repr(report), "a report holds no content"


@pytest.mark.parametrize("text", ["7", "猫", "tea", "é", "Lives in Rosario."])
def test_the_report_raises_no_false_alarm(text, quick):
    """RW-018 and R62: what other notes say, or a byte like any other, is no trace of the note that is gone."""
    with dense(quick) as memory:
        diary = memory.diary(OWNER)
        note = diary.remember(text)
        diary.remember(f"Said once: {text}, and that was that.")
        assert diary.forget(note.id).complete


def test_the_report_says_when_a_file_is_too_large_to_be_read_through(quick, monkeypatch):
    """R62: what was not looked at is named with the reason."""
    monkeypatch.setattr(file, "_SCANNED_AT_MOST", 20_000)
    with dense(quick) as memory:
        note = memory.diary(OWNER).remember("Likes tea.")
        report = memory.diary(OWNER).forget(note.id)
        assert any(each.startswith("diary.db (not read through") for each in report.checked)


def test_nothing_to_forget_and_nobody_to_erase(quick):
    """R62: reports of nothing are true too, and make no files. Deleting twice is a clear 'not found' (RW-034)."""
    with dense(quick / "m") as memory:
        assert memory.diary(OWNER).forget([]).notes == 0
        assert memory.erase(OWNER).notes == 0
        assert memory.diary(OWNER).expire().notes == 0
        assert not (quick / "m").exists()
        note = memory.diary(OWNER).remember("Likes tea.")
        memory.diary(OWNER).forget(note.id)
        with pytest.raises(NotFound, match="no note with id"):
            memory.diary(OWNER).forget(note.id)
        assert memory.erase(OWNER).notes == 0
        assert memory.erase(OWNER).complete


def test_a_disk_that_fails_while_forgetting_is_told_and_then_nothing_is_half_gone(quick, monkeypatch):
    """R62, R35: if nothing was erased that is an error; if it was but the log could not be emptied it is `pending`."""
    text = sentinel()
    with dense(quick) as memory:
        diary = memory.diary(OWNER)
        note = diary.remember(text)
        from diarist.stores import folder

        def broken(*_):
            raise apsw.IOError("as this test wants it")

        monkeypatch.setattr(folder.FolderDiary, "_take_out", broken)
        with pytest.raises(StoreError):
            diary.forget(note.id)
        assert diary.note(note.id).text == text
        monkeypatch.undo()
        assert diary.forget(note.id).complete


# -- RW-034: ghosts in the indexes; RW-031: one owner only ---------------------------------------------------------


def reads(place, question):
    with opened(place) as memory:
        return [hit.note.text for hit in memory.diary(OWNER).recall(question, limit=1)]


@pytest.mark.parametrize("filed", [False, True])
def test_rw_034_a_deleted_note_takes_no_place_from_a_living_one(filed, quick, monkeypatch):
    """RW-034: B at once with limit 1, and A nowhere: not in recall, notes, export, page, context, another process."""
    if filed:
        monkeypatch.setattr(word_index, "FILE_AT", 1)
    a, b = "Drinks strong black coffee at dawn.", "Drinks strong black coffee."
    with opened(quick) as memory:
        diary = memory.diary(OWNER)
        first = diary.remember(a)
        diary.remember(b)
        assert diary.recall(a, limit=1)[0].note.text == a
        diary.forget(first.id)
        for _ in range(2):
            answer = diary.recall(a, limit=1)
            assert [hit.note.text for hit in answer] == [b]
            assert "dawn" not in answer.context()
            assert [note.text for note in diary.notes(include_replaced=True)] == [b]
            assert "dawn" not in str(diary.export())
            assert elsewhere(reads, quick, a) == [b]
            memory.close()
            memory = opened(quick)
            diary = memory.diary(OWNER)
        diary.reembed()
        assert [hit.note.text for hit in diary.recall(a, limit=1)] == [b]
        again = diary.remember(a)
        assert again.id != first.id
        assert again.times == 1
        assert diary.recall(a, limit=1)[0].note.text == a
        memory.close()


@pytest.mark.parametrize("filed", [False, True])
def test_rw_034_the_old_wording_of_a_corrected_note_no_longer_matches(filed, quick, monkeypatch):
    """RW-034: neither by words nor by meaning."""
    if filed:
        monkeypatch.setattr(word_index, "FILE_AT", 1)
    with opened(quick) as memory:
        diary = memory.diary(OWNER)
        note = diary.remember("Works as a veterinarian.")
        diary.remember("Likes tea.")
        before = diary.recall("a veterinarian who works")[0].score
        diary.edit(note.id, "Works as a plumber.")
        after = diary.recall("a veterinarian who works")
        assert before > 0.5 > max(hit.score for hit in after)
        assert after.verdict == "nothing"
        assert diary.recall("plumber", limit=1)[0].note.id == note.id


def test_rw_031_erasing_one_owner_empties_no_other(quick):
    """RW-031: the count is returned; a missing or empty owner is refused, '*' and '%' are somebody's plain names."""
    with opened(quick) as memory:
        for owner in ("ana", "ben", "cleo"):
            memory.diary(owner).remember_many([f"{owner} likes tea.", f"{owner} has a dog."])
        for nobody in ("*", "%", "be_", "BEN", "ben ", "all"):
            assert memory.erase(nobody).notes == 0
        for blank in ("", "   "):
            with pytest.raises(ValueError, match="owner is blank"):
                memory.erase(blank)
        for wrong in (None, 1, ["ben"]):
            with pytest.raises(TypeError):
                memory.erase(wrong)
        with pytest.raises(TypeError):
            memory.erase()
        assert memory.owners() == ["ana", "ben", "cleo"]
        assert memory.erase("ben").notes == 2
        assert memory.owners() == ["ana", "cleo"]
        assert all(memory.diary(owner).count() == 2 for owner in ("ana", "cleo"))
        with pytest.raises(NotFound):
            memory.diary("ben").forget("*")


def test_the_ledger_says_that_somebody_was_erased_and_not_who(quick, clock):
    """P-2: a keyed hash, a time, a count; readable by its user only."""
    with dense(quick, clock=clock) as memory:
        for number in itertools.count(1):
            memory.diary(OWNER).remember_many([sentinel() for _ in range(number)])
            memory.erase(OWNER)
            if number == 2:
                break
    ledger = (quick / "erased.jsonl").read_text()
    assert ledger.count("\n") == 2
    assert OWNER not in ledger
    assert {path.stat().st_mode & 0o777 for path in quick.glob("erased.*")} == {0o600}
