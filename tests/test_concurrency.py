"""Many at once on one diary: processes, threads and forks lose nothing, wait fairly, and see each other's writes."""

from __future__ import annotations

import os
import random
import shutil
import signal
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from diarist import NotFound, StoreBusy, StoreError
from diarist.stores import file, folder, word_index
from diarist.testing import HashEmbedder
from support import OWNER, Child, assert_whole, diary_file, opened, texts

posix = pytest.mark.skipif(sys.platform == "win32", reason="signals and fork are of POSIX")


# -- processes -----------------------------------------------------------------------------------------------------


def write(talk, place, name, count):
    """Remembers, once told to begin; then says what was acknowledged and the seconds that each call took."""
    with opened(place) as memory:
        diary = memory.diary(OWNER)
        talk.send("ready")
        talk.recv()
        kept, waits = {}, []
        for number in range(count):
            text, began = f"Writer w{name} tells fact {number} about coffee.", time.perf_counter()
            kept[diary.remember(text).id] = text
            waits.append(time.perf_counter() - began)
        talk.send((kept, waits))


def written_at_once(place, processes, each):
    children = [Child(write, place, name, each) for name in range(processes)]
    assert [child.hear() for child in children] == ["ready"] * processes
    for child in children:
        child.talk.send("begin")
    said = [child.hear(timeout=580) for child in children]
    assert [child.ended() for child in children] == [0] * processes
    kept = {id: text for ids, _ in said for id, text in ids.items()}
    return kept, sorted(wait for _, waits in said for wait in waits)


def assert_all_there(place, kept, count):
    assert len(kept) == count, "two notes were given one id"
    with opened(place) as memory:
        diary = memory.diary(OWNER)
        assert {note.id: note.text for note in diary.notes()} == kept
        newest = diary.notes()[0]
        assert diary.recall(newest.text)[0].note.text == newest.text
    assert_whole(diary_file(place))


def test_8_processes_write_200_notes_each_into_one_diary(quick):
    """R33, R37, RW-036: no error, distinct ids, every acknowledged note is there, on a diary that none had made."""
    kept, _ = written_at_once(quick, 8, 200)
    assert_all_there(quick, kept, 1600)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_16_processes_write_1000_notes_each_into_one_diary(tmp_path):
    """R37 (R-3), on the disk: and nobody waits for longer than two seconds."""
    kept, waits = written_at_once(tmp_path, 16, 1000)
    assert_all_there(tmp_path, kept, 16_000)
    assert waits[-1] < 2


def change(talk, place, number):
    """Edits and forgets the notes it is told, all in a race with its twin; says how each ended."""
    with opened(place) as memory:
        diary = memory.diary(OWNER)
        ids = talk.recv()
        ended = []
        for turn, note_id in enumerate(ids):
            try:
                if (turn + number) % 2:
                    diary.forget(note_id)
                    ended.append("forgotten")
                else:
                    ended.append(diary.edit(note_id, f"Edited by {number}: {note_id}.").text)
            except NotFound:
                ended.append("not found")
        talk.send(ended)


def test_two_processes_that_change_the_same_note_take_turns(quick):
    """RW-036: one edits what the other forgets; the edit counts, or is told that the note is gone. Never both."""
    with opened(quick) as memory:
        ids = [note.id for note in memory.diary(OWNER).remember_many([f"Fact {number}." for number in range(60)])]
    children = [Child(change, quick, number) for number in range(2)]
    for child in children:
        child.talk.send(ids)
    first, second = (child.hear() for child in children)
    assert [child.ended() for child in children] == [0, 0]
    for pair in zip(first, second, strict=True):
        assert "forgotten" in pair
        assert pair.count("forgotten") == 1
    with opened(quick) as memory:
        assert memory.diary(OWNER).notes() == []
    assert_whole(diary_file(quick))


def obey(talk, place):
    """Does to the diary what it is told, and says "done" with the id."""
    word_index.FILE_AT = 4
    with opened(place) as memory:
        diary = memory.diary(OWNER)
        while order := talk.recv():
            verb, *rest = order
            note = getattr(diary, verb)(*rest)
            talk.send(note.id if verb in ("remember", "edit") else None)


def found(diary, question):
    return [hit.note.text for hit in diary.recall(question)]


def test_the_next_recall_sees_what_another_process_changed(quick):
    """R33, RW-037: added, edited and forgotten by another process; count and search agree, without reopening."""
    child = Child(obey, quick)
    with opened(quick) as memory:
        diary = memory.diary(OWNER)
        assert found(diary, "anything") == []
        for number in range(12):  # more than are filed together: words come from the index and from the rows
            child.ask("remember", f"Fact {number} about coffee.")
            assert found(diary, f"Fact {number} about coffee.")[0] == f"Fact {number} about coffee."
        dog = child.ask("remember", "Her dog is called Pipoca.")
        assert found(diary, "Pipoca")[0] == "Her dog is called Pipoca."
        child.ask("edit", dog, "Her cat is called Milonga.")
        assert found(diary, "Milonga")[0] == "Her cat is called Milonga."
        hit = diary.recall("Her dog is called Pipoca.")[0]
        assert hit.note.text != "Her dog is called Pipoca."
        child.ask("forget", dog)
        assert len(found(diary, "Milonga")) == len(diary.notes(include_replaced=True)[:8]) == 8
        assert "Her cat is called Milonga." not in found(diary, "Milonga")
        assert len(diary.notes()) == 12
        with pytest.raises(NotFound):
            diary.note(dog)
        mine = diary.remember("Drinks tea.")
        child.ask("forget", mine.id)
        assert "Drinks tea." not in texts(diary)
    child.talk.send(None)
    assert child.ended() == 0


def rewrite(talk, place):
    """Erases the whole diary and begins another, with as many changes as before and more."""
    shutil.rmtree(diary_file(place).parent)
    with opened(place) as memory:
        for text in ("Plays the cello.", "Has a garden.", "Lives in Lyon.", "Rides a bicycle."):
            memory.diary(OWNER).remember(text)
    talk.send("done")


@posix
def test_a_diary_that_was_erased_and_begun_anew_is_not_mixed_with_the_old(quick):
    """RW-037, R62: neither the open file nor the vectors in memory of an erased diary live on in another process."""
    with opened(quick) as memory, opened(quick) as fresh:
        diary = memory.diary(OWNER)
        for text in ("Her dog is called Pipoca.", "Drinks tea.", "Ships to Rosario."):
            diary.remember(text)
        assert found(diary, "Pipoca")[0] == "Her dog is called Pipoca."
        child = Child(rewrite, quick)
        assert child.hear() == "done"
        assert child.ended() == 0
        assert texts(diary) == ["Has a garden.", "Lives in Lyon.", "Plays the cello.", "Rides a bicycle."]
        for question in ("Her dog is called Pipoca.", "Drinks tea.", "Plays the cello."):
            there = {hit.note.id: hit.score for hit in diary.recall(question)}
            assert there == {hit.note.id: hit.score for hit in fresh.diary(OWNER).recall(question)}, question


def die_while_writing(talk, place):
    diary = opened(place).diary(OWNER)
    diary.notes()
    file_newest = word_index.file_newest

    def stop(*about):
        file_newest(*about)
        talk.send("in the middle of a write")
        signal.pause()

    word_index.file_newest = stop
    diary.remember("Never acknowledged.")


@posix
def test_a_writer_killed_in_the_middle_holds_nobody_up(quick):
    """R36, RW-036: its lock dies with it, and its half write is not there."""
    with opened(quick, busy_timeout=20) as memory:
        diary = memory.diary(OWNER)
        diary.remember("Before.")
        child = Child(die_while_writing, quick)
        assert child.hear() == "in the middle of a write"
        assert texts(diary) == ["Before."], "a reader waits for no writer"
        child.kill()
        diary.remember("After.")
        assert child.ended() == -signal.SIGKILL
        assert texts(diary) == ["After.", "Before."]
    assert_whole(diary_file(quick))


@posix
def test_a_writer_that_holds_the_lock_for_too_long_is_told_as_busy(quick):
    """R35, R37: StoreBusy after the time asked for, with the folder's name; "database is locked" reaches nobody."""
    with opened(quick, busy_timeout=0.2) as memory:
        diary = memory.diary(OWNER)
        diary.remember("Before.")
        child = Child(die_while_writing, quick)
        assert child.hear() == "in the middle of a write"
        with pytest.raises(StoreBusy, match=OWNER) as told:
            diary.remember("Too late.")
        assert "database is locked" not in str(told.value)
        assert found(diary, "Before")[0] == "Before."
        child.kill()
        child.ended()
        assert texts(diary) == ["Before."]


@posix
def test_recall_waits_for_no_writer_even_while_vectors_are_owed(quick):
    """R53, R37: vectors that cannot be written now are made later; the question is answered by words."""
    embedder = HashEmbedder()
    with opened(quick, embedder=embedder, busy_timeout=0.2) as memory:
        diary = memory.diary(OWNER)
        embedder.down = True
        diary.remember("Before.")
        embedder.down = False
        child = Child(die_while_writing, quick)
        assert child.hear() == "in the middle of a write"
        assert found(diary, "Before") == ["Before."]
        child.kill()
        child.ended()


def test_the_lock_is_never_held_around_an_embedding(quick):
    """A slow embedder of one process does not keep another from writing to the same diary."""
    asked, go_on = threading.Event(), threading.Event()

    class Slow(HashEmbedder):
        def embed_notes(self, texts):
            asked.set()
            assert go_on.wait(30)
            return super().embed_notes(texts)

    with opened(quick, embedder=Slow()) as slow, opened(quick, busy_timeout=5) as quicker:
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(slow.diary(OWNER).remember, "Slow.")
            assert asked.wait(30)
            quicker.diary(OWNER).remember("Quick.")
            assert texts(slow.diary(OWNER)) == ["Quick."]
            go_on.set()
            writing.result(30)
        assert texts(quicker.diary(OWNER)) == ["Quick.", "Slow."]


# -- between two statements ----------------------------------------------------------------------------------------


@pytest.fixture
def meanwhile(monkeypatch):
    """`meanwhile(act)`: does that once, as another process would, before the next note is read by its seq."""
    read = folder.FolderDiary._entries
    waiting = []

    def entries(self, db, seqs):
        while waiting:
            waiting.pop()()
        return read(self, db, seqs)

    monkeypatch.setattr(folder.FolderDiary, "_entries", entries)
    return waiting.append


def test_a_note_forgotten_while_it_is_read_is_not_found(quick, meanwhile):
    """R33, RW-036: another process forgets it between finding its place and reading it."""
    with opened(quick) as memory, opened(quick) as other:
        note = memory.diary(OWNER).remember("Has a dog.")
        meanwhile(lambda: other.diary(OWNER).forget(note.id))
        with pytest.raises(NotFound, match=note.id):
            memory.diary(OWNER).note(note.id)


def test_a_text_forgotten_while_it_is_said_again_is_a_new_note(quick, meanwhile):
    """R33, RW-036: the note it would have been is gone by then; that loses nothing."""
    with opened(quick) as memory, opened(quick) as other:
        old = memory.diary(OWNER).remember("Has a dog.")
        meanwhile(lambda: other.diary(OWNER).forget(old.id))
        new = memory.diary(OWNER).remember("Has a dog.")
        assert new.id != old.id
        assert [note.id for note in other.diary(OWNER).notes()] == [new.id]
        assert found(memory.diary(OWNER), "dog") == ["Has a dog."]


@pytest.mark.timeout(30)
def test_a_recall_ends_though_notes_are_forgotten_while_it_looks(quick, monkeypatch):
    """R33, RW-036: fewer notes are there than were counted a moment ago; that is no reason to look for ever."""
    with opened(quick) as memory, opened(quick) as other:
        ids = [note.id for note in memory.diary(OWNER).remember_many(["Has a dog.", "Has a cat.", "Drinks tea."])]
        newest = folder.FolderDiary.newest

        def late(self, limit):
            if ids:
                other.diary(OWNER).forget(ids.pop())
            return newest(self, limit)

        monkeypatch.setattr(folder.FolderDiary, "newest", late)
        assert found(memory.diary(OWNER), "dog")[0] == "Has a dog."


# -- threads -------------------------------------------------------------------------------------------------------


def at_once(work, count):
    """Runs `work(n)` in `count` threads that begin together; raises what any of them raised."""
    begin = threading.Barrier(count)

    def begun(number):
        begin.wait(30)
        return work(number)

    with ThreadPoolExecutor(count) as pool:
        return list(pool.map(begun, range(count)))


def test_32_threads_write_into_one_diary_and_read_it(quick):
    """R37 (R-6): every note of every thread, and each thread finds its own at once."""
    with opened(quick) as memory:
        diary = memory.diary(OWNER)

        def work(number):
            ids = []
            for turn in range(12):
                note = diary.remember(f"Thread t{number} tells fact {turn}.")
                ids.append(note.id)
                assert diary.note(note.id) == note
            assert f"Thread t{number} tells fact 3." in found(diary, f"Thread t{number} tells fact 3.")
            return ids

        ids = [each for several in at_once(work, 32) for each in several]
        assert len(set(ids)) == 384
        assert {note.id for note in diary.notes()} == set(ids)
    assert_whole(diary_file(quick))


def test_more_diaries_than_may_be_open_are_used_by_threads_at_once(quick, monkeypatch):
    """R57: files are let go while others work; no thread waits for ever, and no text goes astray."""
    monkeypatch.setattr(folder, "_MOST_OPEN", 3)
    owners = [f"owner {number}" for number in range(9)]
    with opened(quick) as memory:

        def work(number):
            rng, mine = random.Random(number), []
            for turn in range(40):
                owner = rng.choice(owners)
                memory.diary(owner).remember(f"{owner}: thread {number}, turn {turn}")
                mine.append((owner, f"{owner}: thread {number}, turn {turn}"))
                assert all(text.startswith(f"{owner}:") for text in found(memory.diary(owner), "thread turn"))
            return mine

        kept = [each for several in at_once(work, 8) for each in several]
        for owner in owners:
            assert texts(memory.diary(owner)) == sorted(text for whose, text in kept if whose == owner)


def test_closing_while_threads_write_loses_nothing_acknowledged(quick):
    """R35: a write ends well or is told that the memory was closed."""
    memory = opened(quick)
    diary = memory.diary(OWNER)
    diary.remember("First.")
    kept, wrote = ["First."], threading.Event()

    def work(number):
        if number == 0:
            assert wrote.wait(30)
            memory.close()
            return
        for turn in range(100_000):
            text = f"Thread {number}, turn {turn}."
            try:
                diary.remember(text)
            except StoreError as e:
                assert "closed" in str(e)  # noqa: PT017
                return
            kept.append(text)
            if turn == 3:
                wrote.set()

    at_once(work, 4)
    with opened(quick) as again:
        assert texts(again.diary(OWNER)) == sorted(kept)
    assert_whole(diary_file(quick))


# -- fork ----------------------------------------------------------------------------------------------------------


def fork_and_write(talk, place):
    """Writes, forks four times, and all five write on."""
    memory = opened(place)
    diary = memory.diary(OWNER)
    diary.remember("Before the forks.")
    assert found(diary, "forks")
    children = []
    for number in range(4):
        if not (pid := os.fork()):
            write_in_fork(diary, number)
        children.append(pid)
    for turn in range(10):
        diary.remember(f"Parent, turn {turn}.")
    codes = [os.waitpid(pid, 0)[1] for pid in children]
    talk.send((codes, texts(diary)))
    memory.close()


def write_in_fork(diary, number):
    code = 1
    try:
        for turn in range(10):
            diary.remember(f"Fork f{number}, turn {turn}.")
            assert f"Fork f{number}, turn {turn}." in found(diary, f"Fork f{number}, turn {turn}.")
        code = 0
    finally:
        os._exit(code)


@posix
def test_a_memory_works_on_both_sides_of_a_fork(quick):
    """R-7: parent and forks write into the diary that was open when they parted."""
    child = Child(fork_and_write, quick)
    codes, there = child.hear()
    assert child.ended() == 0
    assert codes == [0, 0, 0, 0]
    assert there == sorted(
        ["Before the forks."]
        + [f"Parent, turn {turn}." for turn in range(10)]
        + [f"Fork f{number}, turn {turn}." for number in range(4) for turn in range(10)]
    )
    assert_whole(diary_file(quick))


def fork_during_a_write(talk, place):
    """Forks while a thread is in the middle of a write, with every lock in its hands."""
    memory = opened(place)
    diary = memory.diary(OWNER)
    diary.remember("Before.")
    inside, go_on = threading.Event(), threading.Event()
    checkpoint = file.checkpoint

    def stop(*about):
        inside.set()
        go_on.wait(30)
        checkpoint(*about)

    file.checkpoint = stop
    thread = threading.Thread(target=diary.remember, args=("In the thread.",))
    thread.start()
    inside.wait(30)
    pid = os.fork()
    if not pid:
        file.checkpoint = checkpoint
        signal.alarm(10)  # a fork that waits for a thread which it does not have would wait for ever
        code = 1
        try:
            assert texts(diary) == ["Before.", "In the thread."]
            code = 0
        finally:
            os._exit(code)
    code = os.waitpid(pid, 0)[1]
    go_on.set()
    thread.join()
    talk.send(code)
    memory.close()


@posix
def test_a_fork_in_the_middle_of_another_threads_write_works(quick):
    """R-7: the locks of a thread that the fork does not have hold nobody up."""
    child = Child(fork_during_a_write, quick)
    code = child.hear()
    child.ended()
    assert code == 0
    assert_whole(diary_file(quick))
