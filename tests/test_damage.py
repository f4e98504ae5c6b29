"""What is no diary, or no longer whole, or of a later version, is named in an error and left exactly as it was."""

from __future__ import annotations

import hashlib
import os
import random
import sys
from pathlib import Path

import apsw
import pytest

from diarist import NotFound, SchemaTooNew, StoreCorrupt, StoreError
from diarist.stores import word_index
from diarist.stores.names import folder_name
from support import OWNER, diary_file, opened, texts

NOTES = [f"Fact {number} about coffee, moka pots and {number * 7919}." for number in range(60)]
DOG = "Her dog is called Pipoca."

links = pytest.mark.skipif(sys.platform == "win32", reason="making symbolic links needs rights on Windows")


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A closed diary of some notes, with words that are filed and words that wait."""
    monkeypatch.setattr(word_index, "FILE_AT", 40)
    with opened(tmp_path / "memory") as memory:
        memory.diary(OWNER).remember_many([DOG, *NOTES])
        memory.diary(OWNER).remember("Lives in Rosario.")
    return tmp_path / "memory"


ALL = sorted([DOG, *NOTES, "Lives in Rosario."])


def snapshot(place):
    """Every file by name, as the hash of its bytes. The lock is no data, and an empty log none either."""
    return {
        path.relative_to(place): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in place.rglob("*")
        if path.is_file() and path.suffix != ".lock" and not path.name.endswith("-shm")
        if not (path.name.endswith("-wal") and not path.stat().st_size)
    }


UNKNOWN = "0" * 32
USES = {  # every way to read and to write
    "notes": lambda diary: diary.notes(),
    "note": lambda diary: diary.note(UNKNOWN),
    "recall": lambda diary: diary.recall("Pipoca"),
    "remember": lambda diary: diary.remember("Has a cat."),
    "remember_many": lambda diary: diary.remember_many(["Has a cat."]),
    "edit": lambda diary: diary.edit(UNKNOWN, "Has a cat."),
    "forget": lambda diary: diary.forget(UNKNOWN),
}


def assert_refused_and_left_alone(place, kind, *words):
    before = snapshot(place)
    for name, use in USES.items():
        with opened(place) as memory, pytest.raises(kind) as told:
            use(memory.diary(OWNER))
        assert type(told.value) is kind, name
        assert str(diary_file(place)) in str(told.value), name
        for word in words:
            assert word in str(told.value), name
    assert snapshot(place) == before


def overwrite(path, at, data):
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


# -- damaged -------------------------------------------------------------------------------------------------------


DAMAGES = {
    "empty": lambda path: path.write_bytes(b""),
    "one byte": lambda path: path.write_bytes(b"S"),
    "100 random bytes": lambda path: path.write_bytes(random.Random(1).randbytes(100)),
    "random bytes of the same size": lambda path: path.write_bytes(random.Random(1).randbytes(path.stat().st_size)),
    "zeros of the same size": lambda path: path.write_bytes(bytes(path.stat().st_size)),
    "text": lambda path: path.write_text("Dear diary, today it rained.\n" * 20),
    "cut to its header": lambda path: os.truncate(path, 100),
    "cut to a quarter": lambda path: os.truncate(path, path.stat().st_size // 4),
    "cut to half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "without its last page": lambda path: os.truncate(path, path.stat().st_size - 4096),
    "without its last byte": lambda path: os.truncate(path, path.stat().st_size - 1),
    "header changed": lambda path: overwrite(path, 3, b"?"),
    "page size changed": lambda path: overwrite(path, 16, b"\x03\x01"),
    "first page zeroed": lambda path: overwrite(path, 100, bytes(3996)),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_damaged_file_is_named_and_left_alone(place, damage):
    """R38 (R-20): by every verb; it is never taken for an empty diary and never overwritten."""
    damage(diary_file(place))
    assert_refused_and_left_alone(place, StoreCorrupt)


def test_a_zeroed_page_is_told_or_hurts_no_answer(place):
    """R38 (R-20): whichever page it is, no reading gives fewer notes or other notes without an error."""
    path = diary_file(place)
    whole = path.read_bytes()
    pages = len(whole) // 4096
    refused = 0
    for page in range(1, pages):
        path.write_bytes(whole[: page * 4096] + bytes(4096) + whole[(page + 1) * 4096 :])
        before = snapshot(place)
        with opened(place) as memory:
            diary = memory.diary(OWNER)
            for read, right in (
                (lambda d=diary: texts(d), ALL),
                (lambda d=diary: d.recall("Pipoca")[0].note.text, DOG),
            ):
                try:
                    assert read() == right, f"page {page + 1} of {pages}"
                except StoreCorrupt as e:
                    refused += 1
                    assert str(path) in str(e)  # noqa: PT017
        assert snapshot(place) == before, f"page {page + 1} of {pages}"
    assert refused > 5


def test_a_log_of_garbage_is_not_read(place):
    """R36 (R-20): a log that is not of this file holds nothing; the file is what it was."""
    log = Path(f"{diary_file(place)}-wal")
    log.write_bytes(random.Random(2).randbytes(20_000))
    with opened(place) as memory:
        assert texts(memory.diary(OWNER)) == ALL
        memory.diary(OWNER).remember("Has a cat.")
    with opened(place) as memory:
        assert texts(memory.diary(OWNER)) == sorted([*ALL, "Has a cat."])


UNREADABLE = {
    "a time that is none": "UPDATE notes SET created_at = 'yesterday' WHERE text = ?",
    "an order that is none": "UPDATE notes SET order_at = '' WHERE text = ?",
    "tags that are no list": "UPDATE notes SET tags = '[\"order\"' WHERE text = ?",
    "text that is no UTF-8": "UPDATE notes SET text = CAST(x'ff41fe' AS TEXT) WHERE text = ?",
}


@pytest.mark.parametrize("change", UNREADABLE.values(), ids=UNREADABLE)
def test_one_unreadable_note_is_an_error_of_ours_and_the_others_can_be_recalled(place, change):
    """R-21: one bad row is told as damage of that file, and does not take the other notes with it."""
    with opened(place) as memory:
        dog = memory.diary(OWNER).recall("Pipoca")[0].note
        cut = memory.diary(OWNER).recall("Fact 7 about coffee")[0].note
    db = apsw.Connection(str(diary_file(place)))
    db.execute(change, (cut.text,))
    db.close()
    with opened(place) as memory:
        diary = memory.diary(OWNER)
        assert diary.note(dog.id) == dog
        with pytest.raises(StoreCorrupt, match=OWNER):
            diary.note(cut.id)
        try:
            assert dog in diary.notes()
        except StoreCorrupt as e:
            assert cut.id in str(e)  # noqa: PT017
        assert diary.recall("Pipoca", limit=1)[0].note == dog


def test_a_damaged_diary_harms_no_other(place):
    """R38: the diaries beside it are used and listed as before."""
    with opened(place) as memory:
        memory.diary("other").remember("Has a garden.")
    DAMAGES["100 random bytes"](diary_file(place))
    with opened(place) as memory:
        assert memory.owners() == [OWNER, "other"]
        memory.diary("other").remember("Has a cat.")
        assert texts(memory.diary("other")) == ["Has a cat.", "Has a garden."]


# -- foreign -------------------------------------------------------------------------------------------------------


def as_png(path):
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + random.Random(3).randbytes(4096))


def as_another_programs_database(path):
    path.unlink()
    db = apsw.Connection(str(path))
    db.execute("PRAGMA application_id = 0x47504b47; CREATE TABLE notes (id, text); INSERT INTO notes VALUES (1, 'x')")
    db.close()


def as_a_database_without_a_name(path):
    path.unlink()
    db = apsw.Connection(str(path))
    db.execute("CREATE TABLE diary (name, value); INSERT INTO diary VALUES ('owner', 'c-2291')")
    db.close()


@pytest.mark.parametrize("change", [as_png, as_another_programs_database, as_a_database_without_a_name])
def test_another_programs_file_is_named_and_left_alone(place, change):
    """R38 (R-24)."""
    change(diary_file(place))
    assert_refused_and_left_alone(place, StoreCorrupt)


def test_a_folder_in_the_place_of_the_file_is_named_and_left_alone(place):
    """R38 (R-12, R-24)."""
    diary_file(place).unlink()
    diary_file(place).mkdir()
    (diary_file(place) / "keep").write_text("this")
    assert_refused_and_left_alone(place, StoreCorrupt)


def test_a_file_in_the_place_of_the_memory_or_of_a_diary_is_named_and_left_alone(tmp_path):
    """R38 (R-12): a file where a folder should be."""
    for place in (tmp_path / "memory", diary_file(tmp_path / "other").parent):
        place.parent.mkdir(exist_ok=True)
        place.write_text("precious")
    for memory_place, named in (("memory", "memory"), ("other", f"other/{OWNER}")):
        with opened(tmp_path / memory_place) as memory:
            with pytest.raises(StoreError, match=named):
                memory.diary(OWNER).remember("Has a dog.")
            with pytest.raises(StoreError, match=named):
                memory.diary(OWNER).notes()
    assert (tmp_path / "memory").read_text() == "precious"
    assert diary_file(tmp_path / "other").parent.read_text() == "precious"


def test_another_owners_diary_in_the_folder_is_named_and_left_alone(place):
    """R56: a file that was moved into the wrong folder shows its notes to nobody."""
    with opened(place) as memory:
        memory.diary("other").remember("The secret is salmon.")
    os.replace(diary_file(place, "other"), diary_file(place))
    assert_refused_and_left_alone(place, StoreCorrupt, "another owner")


# -- newer ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("schema", [2, 3, 1000])
def test_a_diary_of_a_later_version_is_named_and_left_alone(place, schema):
    """R38 (R-22): both numbers and what to do are said, for reading and for writing."""
    overwrite(diary_file(place), 60, schema.to_bytes(4, "big"))
    assert_refused_and_left_alone(place, SchemaTooNew, f"schema {schema}", "1", "upgrade")


# -- links ---------------------------------------------------------------------------------------------------------


def linked(at, to):
    at.parent.mkdir(parents=True, exist_ok=True)
    os.symlink(to, at)


@links
@pytest.mark.parametrize("dangling", [False, True], ids=["to something", "to nothing"])
@pytest.mark.parametrize("what", ["file", "folder"])
def test_no_diary_is_reached_through_a_symbolic_link(place, tmp_path, what, dangling):
    """R58 (R-12): neither read nor written, whether or not something is at its end; what is there stays as it was."""
    outside = tmp_path / "outside"
    os.rename(place, outside)
    target = diary_file(outside) if what == "file" else diary_file(outside).parent
    linked(
        diary_file(place) if what == "file" else diary_file(place).parent, tmp_path / "nothing" if dangling else target
    )
    before = snapshot(outside)
    for name, use in USES.items():
        with opened(place) as memory, pytest.raises(StoreError) as told:
            use(memory.diary(OWNER))
        assert not isinstance(told.value, NotFound), name
        assert str(diary_file(place).parent) in str(told.value), name
        assert "symbolic link" in str(told.value), name
    assert snapshot(outside) == before
    assert not (tmp_path / "nothing").exists()


@links
@pytest.mark.parametrize("name", ["diary.lock", "diary.db.new", "diary.db-wal", "diary.db-shm", "diary.db-journal"])
def test_no_other_file_of_a_diary_is_written_through_a_symbolic_link(tmp_path, name):
    """R58: a link that somebody put there leads nobody out of the folder."""
    place, precious = tmp_path / "memory", tmp_path / "precious"
    precious.write_text("precious")
    linked(diary_file(place).with_name(name), precious)
    with opened(place) as memory:
        try:
            memory.diary(OWNER).remember("Has a dog.")
            assert texts(memory.diary(OWNER)) == ["Has a dog."]
        except StoreError as e:
            assert str(diary_file(place).parent) in str(e)  # noqa: PT017
    assert precious.read_text() == "precious"


@links
def test_the_memory_itself_may_be_a_link(tmp_path):
    """Where the memory is, the user says; only what is inside must not lead out."""
    (tmp_path / "real").mkdir()
    os.symlink(tmp_path / "real", tmp_path / "memory")
    with opened(tmp_path / "memory") as memory:
        memory.diary(OWNER).remember("Has a dog.")
    assert (tmp_path / "real" / folder_name(OWNER)).is_dir()
