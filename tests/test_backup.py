"""R38, TRUST R-15 and P-5: a backup holds all that was acknowledged, and what was erased since does not come back."""

from __future__ import annotations

import shutil
import sys
import time
from datetime import timedelta

import pytest

from diarist import StoreError
from support import OWNER, Child, assert_whole, deaths, diary_file, opened, texts


def write_on(talk, place, name, size):
    """Writes until it is told to stop; each text is told once it was acknowledged."""
    with opened(place) as memory:
        number = 0
        while not talk.poll():
            text = f"{name} {number} {'word ' * size}".strip()
            memory.diary(OWNER).remember(text)
            talk.send(text)
            number += 1
        talk.send(None)


def told(child, until=0.0):
    """What it has said so far, and for so many seconds more."""
    said, end = [], time.monotonic() + until
    while child.talk.poll(max(0, end - time.monotonic())):
        said.append(child.hear())
    return said


@pytest.mark.parametrize("size", [3, 400], ids=["small", "over many pages"])
def test_r_15_a_backup_while_two_processes_write_holds_all_that_was_acknowledged(size, quick):
    """R-15: and it is whole, and done in reasonable time though the diary changes all the while."""
    with opened(quick / "m") as memory:
        if size > 3:  # more than one step of the copying
            memory.diary(OWNER).remember_many([f"{number} {'word ' * 1_000}" for number in range(400)], defer=True)
        before = texts(memory.diary(OWNER))
        children = [Child(write_on, quick / "m", name, size) for name in ("ana", "ben")]
        acknowledged = [child.hear() for child in children]
        for child in children:
            acknowledged += told(child, 0.2)
        start = time.monotonic()
        assert memory.backup(quick / "backup") == [OWNER]
        assert time.monotonic() - start < 20
        for child in children:
            child.talk.send("stop")
        after = [text for child in children for text in iter(child.hear, None)]
        for child in children:
            assert child.ended() == 0
    assert after, "they wrote while the copy was made"
    assert_whole(diary_file(quick / "backup"))
    with opened(quick / "new") as new:
        new.restore(quick / "backup")
        back = set(texts(new.diary(OWNER)))
        assert back >= {*before, *acknowledged}
        assert back <= {*before, *acknowledged, *after}
    assert_whole(diary_file(quick / "new"))


def test_r_15_a_backup_and_what_comes_back_are_the_same(quick, clock):
    """R-15: every owner, every note, page and setting; the memory itself is unchanged by it."""
    owners = ["ana", "Ana", "x" * 300, "a/b", "猫"]
    with opened(quick / "m", clock=clock) as memory:
        for owner in owners:
            diary = memory.diary(owner, timezone="Europe/Paris")
            first = diary.remember(f"{owner} lives here.", key="k", tags=["home"])
            diary.remember(f"{owner} lives there.", replaces=[first.id])
            diary.page.add(f"{owner}'s page")
        exported = {owner: memory.diary(owner).export() for owner in owners}
        assert memory.backup(quick / "backup") == sorted(owners)
        assert {owner: memory.diary(owner).export() for owner in owners} == exported
        assert memory.owners() == sorted(owners)
    with opened(quick / "new", clock=clock) as new:
        assert new.restore(quick / "backup") == dict.fromkeys(owners, 0)
        assert {owner: new.diary(owner).export() for owner in owners} == exported
    if sys.platform != "win32":
        for place in (quick / "backup", quick / "new"):
            wide = [path for path in (place, *place.rglob("*")) if path.stat().st_mode & 0o077]
            assert wide == [], "others can read a backup, or what came back from one"


def test_r_15_a_backup_is_a_memory_that_can_be_read(quick, clock):
    """R-15: by the same library, in place."""
    with opened(quick / "m", clock=clock) as memory:
        memory.diary(OWNER).remember("Likes tea.")
        memory.backup(quick / "backup")
    with opened(quick / "backup", clock=clock) as backup:
        assert backup.owners() == [OWNER]
        assert backup.diary(OWNER).recall("tea")[0].note.text == "Likes tea."


def contents(place):
    return {path: path.read_bytes() for path in place.rglob("*") if path.is_file() and not path.name.endswith("-shm")}


def test_r_15_a_backup_is_written_over_nothing(quick):
    """R-15, R38: not over a backup, not over a file, not over a folder in which something is."""
    with opened(quick / "m") as memory:
        memory.diary(OWNER).remember("Likes tea.")
        memory.backup(quick / "backup")
        (quick / "file").write_text("mine")
        (quick / "folder").mkdir()
        (quick / "folder" / "mine").write_text("mine")
        for place in ("backup", "file", "folder"):
            before = contents(quick)
            with pytest.raises(StoreError, match="is there already"):
                memory.backup(quick / place)
            assert contents(quick) == before
        (quick / "empty").mkdir()
        assert memory.backup(quick / "empty") == [OWNER]


def test_r_15_restoring_over_somebody_is_refused_and_then_nothing_changes(quick):
    """R-15: not even the owners who are not here come back; with `overwrite` all do."""
    with opened(quick / "m") as memory:
        memory.diary("ana").remember("Likes tea.")
        memory.diary("ben").remember("Likes coffee.")
        memory.backup(quick / "backup")
        shutil.rmtree(quick / "m" / "ana")
        memory.diary("ben").remember("Written since.")
        with pytest.raises(StoreError, match="already has the diary of 'ben'"):
            memory.restore(quick / "backup")
        assert memory.owners() == ["ben"]
        assert texts(memory.diary("ben")) == ["Likes coffee.", "Written since."]
        memory.restore(quick / "backup", overwrite=True)
        assert memory.owners() == ["ana", "ben"]
        assert texts(memory.diary("ben")) == ["Likes coffee."]


def test_r_15_what_is_no_backup_is_refused(quick):
    """R-15, R38: a memory, an empty folder, nothing at all, one that was not finished."""
    with opened(quick / "m") as memory:
        memory.diary(OWNER).remember("Likes tea.")
        memory.backup(quick / "backup")
        (quick / "empty").mkdir()
        shutil.copytree(quick / "backup", quick / "unfinished")
        for path in (quick / "unfinished").glob("backup*"):
            path.unlink()
        for place in ("m", "empty", "nothing", "unfinished"):
            with pytest.raises(StoreError, match="is no backup"):
                memory.restore(quick / place, overwrite=True)
            assert texts(memory.diary(OWNER)) == ["Likes tea."]


def test_r_15_a_damaged_backup_replaces_nothing(quick):
    """R-15, R38: all copies are made ready before the first is put in place."""
    with opened(quick / "m") as memory:
        for owner in ("ana", "ben"):
            memory.diary(owner).remember("Then.")
        memory.backup(quick / "backup")
        for owner in ("ana", "ben"):
            memory.diary(owner).remember("Now.")
        diary_file(quick / "backup", "ben").write_bytes(b"x" * 8192)
        with pytest.raises(StoreError, match="ben"):
            memory.restore(quick / "backup", overwrite=True)
        assert all(texts(memory.diary(owner)) == ["Now.", "Then."] for owner in ("ana", "ben"))
        assert not (quick / "m" / ".restoring").exists()


# -- P-5 -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def since(quick, clock):
    """A memory, a backup of it, and what happened since: forgotten, corrected, replaced, erased, come back."""
    memory = opened(quick / "m", clock=clock)
    diary = memory.diary(OWNER)
    notes = diary.remember_many(["Kept.", "Forgotten later.", "Wrong name.", "Replaced later."])
    memory.diary("gone").remember("Erased later.")
    memory.diary("gone").page.add("Erased later too.")
    memory.diary("page only").page.add("Erased later as well.")
    memory.diary("back").remember("Erased later, and somebody new.")
    memory.diary("emptied").remember("Forgotten, then erased.")
    clock.advance(timedelta(hours=1))
    memory.backup(quick / "backup")
    clock.advance(timedelta(hours=1))
    diary.forget(notes[1].id)
    diary.edit(notes[2].id, "Right name.")
    diary.remember("Replacing.", replaces=[notes[3].id])
    memory.erase("gone")
    memory.erase("page only")
    memory.erase("back")
    memory.diary("back").remember("Somebody new.")
    memory.diary("emptied").forget(memory.diary("emptied").notes()[0].id)
    memory.erase("emptied")
    yield memory, notes
    memory.close()


def test_p_5_what_was_forgotten_corrected_and_erased_since_stays_so(since, quick):
    """P-5: and the answer says for how many notes that was; twice is as good as once."""
    memory, notes = since
    for _ in range(2):
        assert memory.restore(quick / "backup", overwrite=True) == {OWNER: 1}
        assert memory.owners() == ["back", OWNER]
        assert texts(memory.diary(OWNER)) == ["Kept.", "Replaced later.", "Right name."]
        assert memory.diary(OWNER).note(notes[2].id).text == "Right name."
        assert memory.diary(OWNER).recall("Wrong", limit=3).verdict == "nothing"
        assert texts(memory.diary("back")) == ["Somebody new."]
        assert memory.diary("gone").page.read() == memory.diary("page only").page.read() == ""
        assert_whole(diary_file(quick / "m"))
    files = [path for path in (quick / "m").rglob("*") if path.is_file() and not path.name.endswith("-shm")]
    memory.close()
    for word in (b"Forgotten", b"Wrong", b"Erased later"):
        assert not any(word in path.read_bytes() for path in files if path.exists()), word


@pytest.mark.parametrize("step", [timedelta(0), timedelta(hours=-3)], ids=["standing clock", "clock set back"])
def test_p_5_k_1_whatever_the_clock_says(step, quick, clock):
    """P-5, K-1: the order of things is the memory's own; a clock that jumps brings nobody back."""
    with opened(quick / "m", clock=clock) as memory:
        memory.diary("gone").remember("Erased later.")
        note = memory.diary(OWNER).remember("Forgotten later.")
        memory.backup(quick / "backup")
        clock.advance(step)
        memory.erase("gone")
        memory.diary(OWNER).forget(note.id)
        memory.restore(quick / "backup", overwrite=True)
        assert memory.owners() == [OWNER]
        assert texts(memory.diary(OWNER)) == []


def test_p_5_one_who_was_erased_before_the_backup_and_came_back_is_in_it(quick, clock):
    """P-5: an old erasure does not keep a new life from being restored, also with the clock standing still."""
    with opened(quick / "m", clock=clock) as memory:
        memory.diary(OWNER).remember("First life.")
        memory.erase(OWNER)
        memory.diary(OWNER).remember("Second life.")
        memory.backup(quick / "backup")
        shutil.rmtree(quick / "m" / OWNER)
        memory.restore(quick / "backup")
        assert texts(memory.diary(OWNER)) == ["Second life."]


def test_p_5_a_second_backup_restored_after_an_older_one(quick, clock):
    """P-5: what was forgotten is remembered as forgotten through a restore of a copy that never knew it."""
    with opened(quick / "m", clock=clock) as memory:
        diary = memory.diary(OWNER)
        diary.remember("Kept.")
        memory.backup(quick / "first")
        note = diary.remember("Forgotten in the end.")
        memory.backup(quick / "second")
        diary.forget(note.id)
        memory.restore(quick / "first", overwrite=True)
        memory.restore(quick / "second", overwrite=True)
        assert texts(memory.diary(OWNER)) == ["Kept."]


def test_p_5_a_page_written_since_stays(quick, clock):
    """P-5: a page holds what a person took off it; an older one is not put in its place."""
    with opened(quick / "m", clock=clock) as memory:
        memory.diary(OWNER).page.add("Then, and wrong.")
        memory.backup(quick / "backup")
        memory.diary(OWNER).page.read()
        memory.diary(OWNER).page.write("Now.\n")
        memory.restore(quick / "backup", overwrite=True)
        assert memory.diary(OWNER).page.read() == "Now.\n"


def test_p_5_a_page_emptied_since_stays_empty(quick, clock):
    """P-5: to empty a page is to erase what was on it."""
    with opened(quick / "m", clock=clock) as memory:
        memory.diary(OWNER).remember("Likes tea.")
        memory.diary(OWNER).page.add("Then, and wrong.")
        memory.backup(quick / "backup")
        memory.diary(OWNER).page.read()
        memory.diary(OWNER).page.write("")
        memory.restore(quick / "backup", overwrite=True)
        assert memory.diary(OWNER).page.read() == ""


# -- interrupted, and while others are there -----------------------------------------------------------------------


def restore_in(place):
    with opened(place / "m") as memory:
        memory.restore(place / "backup", overwrite=True)


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_r_15_an_interrupted_restore_leaves_the_one_or_the_other(quick):
    """R-15, P-5: killed before any step, each diary is the one of now or the one of then, never nothing, never with
    what was forgotten; and the next restore brings all back."""
    source = quick / "source"
    with opened(source / "m") as memory:
        diary = memory.diary(OWNER)
        note = diary.remember("Forgotten later.")
        diary.remember("Then.")
        memory.backup(source / "backup")
        diary.forget(note.id)
        diary.remember("Now.")
    seen = []
    for place in deaths(source, quick, restore_in, every=2):
        with opened(place / "m") as memory:
            assert memory.owners() == [OWNER], place.name
            seen.append(texts(memory.diary(OWNER)))
            assert_whole(diary_file(place / "m"))
            memory.diary(OWNER).remember("After.")
            memory.restore(place / "backup", overwrite=True)
            assert texts(memory.diary(OWNER)) == ["Then."], place.name
        shutil.rmtree(place)
    assert [each for each in seen if each not in (["Now.", "Then."], ["Then."])] == []
    assert seen == sorted(seen)
    assert len({str(each) for each in seen}) == 2


def backup_in(place):
    with opened(place / "m") as memory:
        memory.backup(place / "backup")


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_r_15_an_interrupted_backup_is_none(quick):
    """R-15: it cannot be restored, and does not look finished."""
    with opened(quick / "source" / "m") as memory:
        memory.diary("ana").remember("Likes tea.")
        memory.diary("ben").remember("Likes coffee.")
    for place in deaths(quick / "source", quick, backup_in, every=3):
        with opened(place / "new") as new:
            try:
                new.restore(place / "backup")
                owners = ["ana", "ben"]
            except StoreError:
                owners = []
            assert new.owners() == owners
        shutil.rmtree(place)
    assert owners


def follow(talk, place):
    """A process that had the diary in memory before it was restored."""
    with opened(place) as memory:
        while (what := talk.recv()) != ("stop",):
            hits = memory.diary(OWNER).recall(what[0], limit=1)
            means = any(part.name == "meaning" for part in hits[0].why) if len(hits) else False
            talk.send((hits[0].note.text if len(hits) else "", means))


def test_r_15_who_had_the_old_diary_in_memory_searches_the_restored_one(quick):
    """R-15, RW-037: seqs that mean another note now, in this process and in another, are not mixed up."""
    with opened(quick / "m") as memory:
        diary = memory.diary(OWNER)
        diary.remember_many(["Plays the bandoneon.", "Drinks coffee.", "Owns a canoe."])
        memory.backup(quick / "backup")
        diary.forget([note.id for note in diary.notes()])
        diary.remember_many(["Sings in a choir.", "Hates celery.", "Runs marathons.", "Keeps bees."])
        other = Child(follow, quick / "m")
        assert other.ask("bees keeps") == ("Keeps bees.", True)
        assert diary.recall("bees keeps", limit=1)[0].note.text == "Keeps bees."
        shutil.rmtree(quick / "m" / OWNER)  # a loss without a record of what was forgotten
        memory.restore(quick / "backup")
        for question, answer in [("canoe owns", "Owns a canoe."), ("bandoneon", "Plays the bandoneon.")]:
            assert other.ask(question) == (answer, True)
            assert diary.recall(question, limit=1)[0].note.text == answer
        diary.remember("Sells tea.")
        memory.restore(quick / "backup", overwrite=True)
        diary.remember("Paints boats.")
        for question, answer in [("tea sells", False), ("paints boats", True)]:
            assert (other.ask(question)[0] in ("Paints boats.", "Sells tea.")) is answer
        assert diary.recall("paints boats", limit=1)[0].note.text == "Paints boats."
        other.talk.send(("stop",))
        assert other.ended() == 0


def restore_now(talk, place):
    with opened(place / "m") as memory:
        talk.send(memory.restore(place / "backup", overwrite=True))


def test_r_15_a_restore_while_others_write_tears_nothing(quick):
    """R-15, R37: whoever writes meanwhile gets no error; the diary is whole, and later writes are kept."""
    with opened(quick / "m") as memory:
        memory.diary(OWNER).remember("Then.")
        memory.backup(quick / "backup")
    writer = Child(write_on, quick / "m", "ana", 3)
    writer.hear()
    restorer = Child(restore_now, quick)
    assert restorer.hear() == {OWNER: 0}
    restorer.ended()
    told(writer)
    late = [writer.hear() for _ in range(5)]
    writer.talk.send("stop")
    late += list(iter(writer.hear, None))
    assert writer.ended() == 0
    with opened(quick / "m") as memory:
        assert set(texts(memory.diary(OWNER))) >= {"Then.", *late[1:]}
    assert_whole(diary_file(quick / "m"))
