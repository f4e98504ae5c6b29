"""What was acknowledged is on the disk: kill -9, retries, torn logs, disks that fail, fill up or cannot be written."""

from __future__ import annotations

import itertools
import os
import random
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import apsw
import pytest

from diarist import DiaristError, StoreError
from diarist.stores import file, word_index
from diarist.testing import HashEmbedder
from support import OWNER, Child, FaultyDisk, assert_whole, diary_file, give_up_root, opened, texts

resource = pytest.importorskip("resource", reason="limits of POSIX")
pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals, mounts and permissions of POSIX")


# -- kill -9 -------------------------------------------------------------------------------------------------------


def write_until_killed(talk, place, number, forgets):
    word_index.FILE_AT = 8  # so that words are filed within the few notes of one round
    memory = opened(place)
    diary, fresh = memory.diary(OWNER), memory.diary(f"fresh {number}")
    memory.diary("somebody else").remember("The first note of a process takes longest.")
    talk.send("ready")
    for turn in itertools.count():
        into = fresh if turn == 0 and number % 4 == 0 else diary  # so that the making of a diary is killed too
        text = f"In round {number} fact {turn} about moka pots and coffee was told"
        note = into.remember(text)
        talk.send(("kept", into.owner, note.id, text))
        if forgets and turn % 3 == 2:
            talk.send(("forgetting", into.owner, note.id, text))
            into.forget(note.id)
            talk.send(("forgotten", into.owner, note.id, text))


def test_kill_9_loses_nothing_acknowledged_and_brings_nothing_forgotten_back(quick):
    """R7, R36, R62: 50 rounds of writes, killed at a random moment; in half of them notes are forgotten too."""
    rng = random.Random(20250301)
    said = {"kept": {}, "forgetting": {}, "forgotten": {}}
    for number in range(50):
        child = Child(write_until_killed, quick, number, number % 2 == 1)
        assert child.hear() == "ready"
        time.sleep(rng.uniform(0.005, 0.120))
        child.kill()
        for what, owner, note_id, text in child.heard():
            said[what][note_id] = (owner, text)
        assert child.ended() == -signal.SIGKILL

        with opened(quick) as memory:
            for owner in (OWNER, f"fresh {number}"):
                there = {note.id: note.text for note in memory.diary(owner).notes()}
                certain = {id: text for id, (whose, text) in said["kept"].items() if whose == owner}
                certain = {id: text for id, text in certain.items() if id not in said["forgetting"]}
                assert certain.items() <= there.items()
                assert not there.keys() & said["forgotten"].keys()
                if there:
                    assert_whole(diary_file(quick, owner))
    assert len(said["kept"]) > 50, "too few writes to prove anything"
    assert len(said["forgotten"]) > 5, "too few were forgotten to prove anything"


def test_a_diary_whose_making_was_killed_can_be_made_again(tmp_path):
    """R36: what a killed process left of a new diary is no diary, and does not stand in the way of one."""
    left = diary_file(tmp_path).with_name(file.NAME + ".new")
    left.parent.mkdir(parents=True)
    left.write_bytes(b"half a diary")
    with opened(tmp_path) as memory:
        assert memory.owners() == []
        assert memory.diary(OWNER).notes() == []
        memory.diary(OWNER).remember("Has a dog.")
        assert memory.owners() == [OWNER]
    assert sorted(os.listdir(left.parent)) == ["diary.db", "diary.lock"]


# Each verb on a diary of three notes, for a child that dies in the middle and for a disk that fails in the middle.
FIRST = ["Has a dog called Pipoca.", "Lives in Rosario.", "Drinks tea."]


def remember(diary, ids):
    diary.remember("Lives in Córdoba.", replaces=[ids[1]], key="move", tags=["home"])


def repeat(diary, ids):
    diary.remember(FIRST[0].upper(), key="again")


def remember_many(diary, ids):
    diary.remember_many([f"Fact {number}." for number in range(2)])


def edit(diary, ids):
    diary.edit(ids[0], "Has a cat called Pipoca.")


def forget(diary, ids):
    diary.forget(ids[:2])


VERBS = [remember, repeat, remember_many, edit, forget]


@pytest.fixture
def template(quick):
    """A closed diary of three notes to copy, and the ids of its notes."""
    with opened(quick / "template") as memory:
        ids = [note.id for note in memory.diary(OWNER).remember_many(FIRST)]
    return quick / "template", ids


def state(place):
    """What a person would see of the diary. Texts, so that it can be compared with that of a twin."""
    with opened(place) as memory:
        notes = memory.diary(OWNER).notes(include_replaced=True)
        return sorted((note.text, note.times, note.tags, bool(note.replaced_by)) for note in notes)


def done_to_a_twin(template, place, verb):
    source, ids = template
    shutil.copytree(source, place)
    with opened(place) as memory:
        verb(memory.diary(OWNER), ids)
    return state(place)


def die_at_each_statement(talk, source, root, verb, ids):
    """Copies the diary and forks a process that dies before its nth statement, for every n; tells which is next."""
    for number in itertools.count():
        shutil.copytree(source, root / f"{number}")
        pid = os.fork()
        if pid == 0:
            die_at_statement(root / f"{number}", verb, ids, number)
            os._exit(0)
        died = os.WIFSIGNALED(os.waitpid(pid, 0)[1])
        talk.send(root / f"{number}" if died else None)
        if not died:
            return


def die_at_statement(place, verb, ids, number):
    word_index.FILE_AT = 1
    left = itertools.count(number, -1)

    def trace(*_):
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    checkpoint = file.checkpoint  # is called just after each commit
    file.checkpoint = lambda *about: trace() and checkpoint(*about)
    apsw.connection_hooks.append(lambda db: db.set_exec_trace(trace))
    verb(opened(place).diary(OWNER), ids)


@pytest.mark.parametrize(
    "verb", [pytest.param(each, marks=[pytest.mark.nightly] if each in (repeat, edit) else []) for each in VERBS]
)
def test_a_kill_before_any_statement_leaves_all_of_a_call_or_nothing(verb, template, quick):
    """R35, R36: never half a note. And R-2: the same call with the same key afterwards makes one note, counted once."""
    source, ids = template
    before, after = state(source), done_to_a_twin(template, quick / "twin", verb)
    left = []
    child = Child(die_at_each_statement, source, quick, verb, ids)
    while (place := child.hear()) is not None:
        left.append(state(place))
        assert_whole(diary_file(place))
        if verb in (remember, repeat):
            with opened(place) as memory:
                verb(memory.diary(OWNER), ids)
            assert state(place) == after
    child.ended()
    assert [each for each in left if each not in (before, after)] == []
    assert left == sorted(left, key=lambda each: each == after), "the change came and went again"
    assert left.count(before) > 10, "died too early to prove anything"
    assert left.count(after) > 0, "never died between the commit and the answer"


def test_a_retry_of_a_repeated_text_under_its_own_key_counts_once(quick):
    """R-2: the second order of the same thing has a key of its own; its retry is neither a note nor a third time."""
    with opened(quick) as memory:
        diary = memory.diary(OWNER)
        diary.remember("Buys 1 kg of Colombia.", key="order 1")
        diary.remember("Buys 1 kg of Colombia.", key="order 2")
        retried = diary.remember("Buys 1 kg of Colombia.", key="order 2")
        assert len(diary.notes()) == 1
        assert retried.times == 2


def test_a_key_of_a_repeated_text_is_taken_too(quick):
    """R-2: one key, one text, whether or not the text was new."""
    with opened(quick) as memory:
        diary = memory.diary(OWNER)
        diary.remember("Buys 1 kg of Colombia.", key="order 1")
        diary.remember("Buys 1 kg of Colombia.", key="order 2")
        with pytest.raises(ValueError, match="order 2"):
            diary.remember("Buys tea.", key="order 2")


# -- the log -------------------------------------------------------------------------------------------------------


def test_a_log_torn_anywhere_in_its_last_write_loses_at_most_that_write(quick):
    """R36 (R-8, stands in for a power cut): 500 logs cut short or with one byte changed; all others are whole."""
    rng = random.Random(8)
    source = quick / "source"
    wal = Path(f"{diary_file(source)}-wal")
    with opened(source) as memory:
        kept = [memory.diary(OWNER).remember(f"Fact {number} about coffee.").text for number in range(6)]
        start = wal.stat().st_size
        last = memory.diary(OWNER).remember("The last fact, long enough for its own pages. " * 200).text
        base, log = diary_file(source).read_bytes(), wal.read_bytes()
    assert len(log) > start + 4096, "the last write is in the log"

    def opens_to(torn):
        place = quick / "torn"
        diary_file(place).parent.mkdir(parents=True)
        diary_file(place).write_bytes(base)
        Path(f"{diary_file(place)}-wal").write_bytes(torn)
        with opened(place) as memory:
            found = texts(memory.diary(OWNER))
            assert_whole(diary_file(place))
        shutil.rmtree(place)
        return found

    assert opens_to(log) == sorted([*kept, last])
    for at in sorted(rng.sample(range(start, len(log)), 250)):
        assert opens_to(log[:at]) == kept, f"cut at {at}"
        changed = bytearray(log)
        changed[at] ^= 1 << rng.randrange(8)
        assert opens_to(bytes(changed)) == kept, f"byte {at} changed"


def test_every_acknowledged_write_was_synced(tmp_path):
    """R35 (R-9): when a call returns, no byte that it wrote waits in the system's cache."""
    with FaultyDisk() as disk, opened(tmp_path) as memory:
        diary = memory.diary(OWNER)
        calls = [lambda n=n: diary.remember(f"Fact {n}.") for n in range(10)]
        calls.append(lambda: diary.remember_many(["One.", "Two."]))
        calls.append(lambda: diary.edit(diary.notes()[0].id, "Three."))
        calls.append(lambda: diary.forget(diary.notes()[0].id))
        for call in calls:
            before = disk.syncs
            call()
            assert disk.syncs > before
            assert not disk.unsynced


SETTINGS = {
    "journal_mode": "wal", "synchronous": 2, "wal_autocheckpoint": 0, "secure_delete": 1, "foreign_keys": 1,
    "trusted_schema": 0, "cell_size_check": 1, "mmap_size": 0, "temp_store": 2, "cache_size": -16000,
}  # fmt: skip


def test_every_connection_has_the_settings_that_the_design_counts_on(quick):
    """R35, R38, R62: also one that opens a diary which was there; a PRAGMA that is written but not run is none."""
    for _ in range(2):
        with opened(quick) as memory:
            memory.diary(OWNER).remember("Has a dog.")
            db = memory.diary(OWNER)._store._connection
            assert {name: db.execute(f"PRAGMA {name}").fetchall()[0][0] for name in SETTINGS} == SETTINGS


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="the name of an open folder is read from /proc")
def test_the_folders_of_a_new_diary_are_synced(tmp_path, monkeypatch):
    """R35: a file is only as durable as its name, and its folder's name."""
    synced, fsync = set(), os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.add(os.readlink(f"/proc/self/fd/{fd}")), fsync(fd)))
    place = tmp_path / "shops" / "memory"
    with opened(place) as memory:
        memory.diary(OWNER).remember("Has a dog.")
    made = [diary_file(place).parent, place, place.parent, tmp_path]
    assert {str(folder) for folder in made} <= synced


# -- disks that fail -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("once", [True, False], ids=["once", "from then on"])
@pytest.mark.parametrize("error", [apsw.IOError, apsw.FullError])
@pytest.mark.parametrize("verb", VERBS)
def test_a_disk_that_fails_at_any_write_is_told_truly(verb, error, once, template, quick, monkeypatch):
    """R35, R36 (R-10): an error means that nothing was kept, no error that all was; and then it works again."""
    monkeypatch.setattr(file, "_CHECKPOINT_AT", 0)  # so that the log is also moved into the file each time
    monkeypatch.setattr(word_index, "FILE_AT", 1)
    source, ids = template
    before, after = state(source), done_to_a_twin(template, quick / "twin", verb)
    failed = 0
    with FaultyDisk() as disk:
        for at in itertools.count(1):
            place = quick / f"{at}"
            shutil.copytree(source, place)
            with opened(place) as memory:
                diary = memory.diary(OWNER)
                diary.notes()
                disk.breaks(at, once=once, error=error)
                try:
                    verb(diary, ids)
                    told = after
                except StoreError as e:
                    told, failed, said = before, failed + 1, str(e)
                reached = disk.done >= at
                assert len(diary.recall("Pipoca")) >= 1 or told == after, "recall works on a failing disk"
                disk.breaks(None)
                assert state(place) == told, f"at {at}"
                assert_whole(diary_file(place))
                if told == before:
                    verb(diary, ids)
                    assert state(place) == after
            shutil.rmtree(place)
            if not reached:
                break
    assert failed, "no write failed, so nothing was proved"
    assert OWNER in said
    assert "disk is full" in said or error is apsw.IOError


def owing(place, number=3):
    """A diary of notes whose vectors are still to be made."""
    embedder = HashEmbedder()
    embedder.down = True
    with opened(place, embedder=embedder) as memory:
        memory.diary(OWNER).remember_many(FIRST[:number])


def test_remember_is_not_failed_by_what_comes_after_it_is_saved(quick):
    """R35: vectors that other notes wait for and the time zone are written after the note; the note is saved then."""
    owing(quick)
    with FaultyDisk() as disk:
        for at in range(1, 40):
            with opened(quick) as memory:
                diary = memory.diary(OWNER, timezone="Europe/Paris")
                assert diary.notes()
                disk.breaks(at, error=apsw.FullError)
                text = f"Fact {at}."
                try:
                    diary.remember(text)
                    saved = True
                except StoreError:
                    saved = False
                disk.breaks(None)
                assert (text in texts(diary)) is saved, f"at {at}"


def test_recall_works_on_a_full_disk_while_vectors_are_owed(quick):
    """R36, R53 (R-11): vectors that cannot be written down now are no reason not to answer."""
    owing(quick)
    with FaultyDisk() as disk, opened(quick) as memory:
        diary = memory.diary(OWNER)
        assert diary.notes()
        disk.breaks(1, error=apsw.FullError)
        assert diary.recall("Pipoca")[0].note.text == FIRST[0]
        disk.breaks(None)


# -- disks that are full -------------------------------------------------------------------------------------------


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    mount = shutil.which("mount")
    if mount is None or os.geteuid() != 0:
        pytest.skip("only root can mount a small disk; the test with a limit on file size stands in")
    if subprocess.run([mount, "-t", "tmpfs", "-o", "size=2m", "tmpfs", place], capture_output=True).returncode:
        pytest.skip("mounting is not allowed here; the test with a limit on file size stands in")
    yield place
    subprocess.run(["umount", "-l", place], check=True)


def long_text(rng, length=8_000):
    return "".join(rng.choices("abcdefghij klmnop", k=length)) + "x"


def fill(diary):
    """Remembers until it is refused; the texts that were acknowledged, and the refusal."""
    rng, kept = random.Random(3), []
    while True:
        text = long_text(rng)
        try:
            diary.remember(text)
        except DiaristError as e:
            return kept, e
        kept.append(text)


def test_a_full_disk_is_told_and_costs_no_note(small_disk):
    """R36 (R-11): the error says so and where; recall and forget go on; with space again, so does remember."""
    place, ballast = small_disk / "memory", small_disk / "ballast"
    ballast.write_bytes(bytes(900_000))  # room to move the log into the file, once it is gone
    with opened(place) as memory:
        diary = memory.diary(OWNER)
        dog = diary.remember(FIRST[0])
        kept, error = fill(diary)
        assert isinstance(error, StoreError)
        assert "disk is full" in str(error)
        assert str(place) in str(error)
        assert len(kept) > 20
        assert texts(diary) == sorted([FIRST[0], *kept])
        assert diary.recall("Pipoca")[0].note == dog
        with pytest.raises(StoreError, match="disk is full"):
            memory.diary("another").remember(long_text(random.Random(4), 60_000))
        ballast.unlink()
        diary.remember(FIRST[1])
        diary.forget(dog.id)
        memory.diary("another").remember(FIRST[2])
        assert texts(diary) == sorted([FIRST[1], *kept])
    assert_whole(diary_file(place))


def test_a_diary_opens_for_reading_on_a_disk_without_one_free_byte(small_disk):
    """R36 (R-11): a process that starts when the disk is full already can read; what it says is true."""
    place = small_disk / "memory"
    with opened(place) as memory:
        memory.diary(OWNER).remember_many(FIRST)
    with (small_disk / "ballast").open("wb", buffering=0) as ballast:
        try:
            while ballast.write(bytes(4096)):
                pass
        except OSError:
            pass
    with opened(place) as memory:
        diary = memory.diary(OWNER)
        assert texts(diary) == sorted(FIRST)
        assert diary.recall("Pipoca")[0].note.text == FIRST[0]
        with pytest.raises(StoreError, match=r"full|read-only"):
            diary.remember("Has a cat.")
        (small_disk / "ballast").unlink()
        diary.remember("Has a cat.")
        assert texts(diary) == sorted([*FIRST, "Has a cat."])


def fill_under_a_limit(talk, place):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 2_000_000))
    with opened(place) as memory:
        diary = memory.diary(OWNER)
        kept, error = fill(diary)
        talk.send((kept, type(error).__name__, str(error), texts(diary)))
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_000, 2_000_000))
        diary.remember("Has a cat.")
        talk.send(texts(diary))


def test_a_limit_on_file_size_is_told_and_costs_no_note(tmp_path):
    """R36 (R-11), where no small disk can be mounted: the same with `ulimit -f`."""
    child = Child(fill_under_a_limit, tmp_path)
    kept, kind, error, there = child.hear()
    assert (kind, there) == ("StoreError", sorted(kept))
    assert str(tmp_path) in error
    assert child.hear() == sorted([*kept, "Has a cat."])
    assert child.ended() == 0
    assert_whole(diary_file(tmp_path))


# -- places that cannot be written ---------------------------------------------------------------------------------


def use_without_rights(talk, place):
    give_up_root()
    with opened(place) as memory:
        diary = memory.diary(OWNER)
        found = [hit.note.text for hit in diary.recall("Pipoca")] if diary.notes() else []
        try:
            diary.remember("Has a cat.")
            talk.send((found, None))
        except StoreError as e:
            talk.send((found, str(e)))


def everything_under(place):
    return sorted((path, path.stat().st_size, stat.S_IMODE(path.stat().st_mode)) for path in place.rglob("*"))


def set_modes(place, *, folders, files):
    for path in [place, *place.rglob("*")]:
        path.chmod(folders if path.is_dir() else files)


@pytest.mark.parametrize("owed", [False, True], ids=["complete", "with vectors owed"])
@pytest.mark.parametrize(("folders", "files"), [(0o555, 0o444), (0o755, 0o444), (0o555, 0o644)])
def test_a_read_only_diary_is_recalled_from_and_says_why_it_takes_nothing(tmp_path, folders, files, owed):
    """R36, R53 (R-12): read-only files, folders or both."""
    place = tmp_path / "memory"
    if owed:
        owing(place)
    else:
        with opened(place) as memory:
            memory.diary(OWNER).remember_many(FIRST)
    set_modes(place, folders=folders, files=files)
    before = everything_under(tmp_path)
    child = Child(use_without_rights, place)
    found, error = child.hear()
    child.ended()
    after = everything_under(tmp_path)
    set_modes(place, folders=0o700, files=0o600)
    assert FIRST[0] in found[:1]
    assert error is not None
    assert "read-only" in error or "Permission denied" in error
    assert str(place) in error
    inside = diary_file(place).parent  # where SQLite may leave an empty log
    assert [each for each in after if inside not in each[0].parents] == [
        e for e in before if inside not in e[0].parents
    ]
    with opened(place) as memory:
        assert texts(memory.diary(OWNER)) == sorted(FIRST)


def test_a_read_only_place_for_a_new_diary_is_named(tmp_path):
    """R36 (R-12): the error names the folder and the cause, and nothing is made."""
    tmp_path.chmod(0o555)
    child = Child(use_without_rights, tmp_path / "memory")
    found, error = child.hear()
    child.ended()
    tmp_path.chmod(0o700)
    assert found == []
    assert error is not None
    assert str(tmp_path / "memory") in error
    assert "Permission denied" in error
    assert list(tmp_path.iterdir()) == []


def read_without_rights(talk, place):
    give_up_root()
    with opened(place) as memory:
        try:
            talk.send(("read", texts(memory.diary(OWNER))))
        except StoreError as e:
            talk.send(("refused", str(e)))


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_diary_that_may_not_be_read_is_an_error_and_never_an_empty_diary(tmp_path, what):
    """R36, R38 (R-12): no permission is not the same as no notes."""
    with opened(tmp_path) as memory:
        memory.diary(OWNER).remember_many(FIRST)
    path = diary_file(tmp_path) if what == "file" else diary_file(tmp_path).parent
    path.chmod(0)
    child = Child(read_without_rights, tmp_path)
    verdict, said = child.hear()
    child.ended()
    path.chmod(0o700)
    assert verdict == "refused"
    assert str(diary_file(tmp_path).parent) in said
