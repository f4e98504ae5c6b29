"""R38, R39, TRUST R-22 to R-25: from an older schema to this one, and never half the way.

There is one schema so far, so the machinery is tried with steps made up here; and a diary that this schema wrote is
kept in `fixtures/`, to be read by every later version.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from datetime import UTC, datetime
from pathlib import Path

import apsw
import pytest

from diarist import SchemaTooNew, StoreError
from diarist.stores import migrate
from diarist.testing import FixedClock, HashEmbedder
from support import OWNER, Child, assert_whole, deaths, diary_file, opened, texts

FIXTURES = Path(__file__).parent / "fixtures"
ONE = migrate.scripts()
LAST = max(ONE)
TWO = {**ONE, LAST + 1: "ALTER TABLE notes ADD COLUMN extra TEXT; UPDATE notes SET extra = upper(text)"}
THREE = {**TWO, LAST + 2: "CREATE TABLE more (id TEXT); INSERT INTO more SELECT id FROM notes"}
BROKEN = {**TWO, LAST + 2: "CREATE TABLE more (id TEXT); INSERT INTO nowhere VALUES (1)"}
TEXTS = ["Has a dog.", "Likes tea.", "Lives in Rosario."]


@pytest.fixture
def old(quick):
    """A closed memory of the present schema."""
    with opened(quick / "old") as memory:
        memory.diary(OWNER).remember_many(TEXTS)
        memory.diary(OWNER).page.add("A page.")
    return quick / "old"


@pytest.fixture
def version(monkeypatch):
    """Makes this process one of a version that knows these schemas."""
    return lambda scripts: monkeypatch.setattr(migrate, "scripts", lambda: scripts)


def schema(place):
    """(the number, and which of the steps can be seen in the file)"""
    db = apsw.Connection(str(diary_file(place)), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        number = db.execute("PRAGMA user_version").fetchall()[0][0]
        columns = {name for _, name, *_ in db.execute("PRAGMA table_info(notes)")}
        extra = "extra" in columns and db.execute("SELECT count(*) FROM notes WHERE extra = upper(text)").fetchall()
        more = db.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'more'").fetchall()[0][0]
        rows = more and db.execute("SELECT count(*) FROM more").fetchall()[0][0]
        return number - LAST, bool(extra) and extra[0][0], rows
    finally:
        db.close()


STATES = {(0, False, 0), (1, 3, 0), (2, 3, 3)}


def left_beside(place):
    return sorted(path.name for path in diary_file(place).parent.iterdir() if ".db." in path.name)


@pytest.mark.parametrize("reads", ["notes", "note", "count", "recall", "export", "doctor", "remember", "timezone"])
def test_whoever_comes_first_brings_it_up_to_date(reads, old, version):
    """R39: also one who only reads; and nothing is lost, and no copy is left."""
    with opened(old) as memory:
        exported, ids = memory.diary(OWNER).export(), [note.id for note in memory.diary(OWNER).notes()]
    version(THREE)
    with opened(old) as memory:
        diary = memory.diary(OWNER)
        {
            "note": lambda: diary.note(ids[0]),
            "recall": lambda: diary.recall("tea"),
            "remember": lambda: diary.remember(TEXTS[0].upper()),
            "timezone": lambda: diary.timezone,
        }.get(reads, lambda: getattr(diary, reads)())()
        assert schema(old) == (2, 3, 3)
        if reads != "remember":
            assert diary.export() == exported
        assert len(diary.recall("tea")) == 3
    assert left_beside(old) == []
    assert_whole(diary_file(old))


def test_a_new_diary_is_of_the_newest_schema_at_once(quick, version):
    """R39: by the same scripts."""
    version(THREE)
    with opened(quick) as memory:
        memory.diary(OWNER).remember("Likes tea.")
    assert schema(quick)[0] == 2


def read_as(place, scripts):
    migrate.scripts = lambda: scripts
    with opened(place) as memory:
        assert len(memory.diary(OWNER).notes()) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_r_23_killed_before_any_step_it_is_of_one_schema_or_another_whole(old, quick, version):
    """R-23: never between; a copy of what it was is there as long as it may be needed; the next one finishes."""
    seen = []
    for place in deaths(old, quick, read_as, THREE):
        state = schema(place)
        seen.append(state)
        assert state in STATES, place.name
        version(THREE)
        with opened(place) as memory:
            assert texts(memory.diary(OWNER)) == TEXTS
            assert memory.diary(OWNER).page.read() == "- A page.\n"
        assert schema(place) == (2, 3, 3)
        assert_whole(diary_file(place))
        assert left_beside(place) == [], f"{place.name}: a copy of every note is left for good"
        shutil.rmtree(place)
    assert set(seen) == STATES
    assert seen == sorted(seen)


@pytest.mark.parametrize("reads", ["notes", "recall", "remember"])
def test_r_23_a_step_that_fails_leaves_the_schema_before_and_a_copy(reads, old, version):
    """R-23: an error of ours; nothing is lost; the copy is as the file was; the right step goes on from there."""
    before = diary_file(old).read_bytes()
    version(BROKEN)
    for _ in range(2):
        with opened(old) as memory:
            diary = memory.diary(OWNER)
            with pytest.raises(StoreError, match=r"diary\.db"):
                diary.remember("New.") if reads == "remember" else diary.notes() if reads == "notes" else diary.recall(
                    "x"
                )
        assert schema(old) in STATES
        assert_whole(diary_file(old))
    copies = [diary_file(old).with_name(name) for name in left_beside(old)]
    assert any(copy.name.endswith(f".schema-{LAST}") for copy in copies)
    if sys.platform != "win32":
        assert all(copy.stat().st_mode & 0o777 == 0o600 for copy in copies)
    as_it_was = next(copy for copy in copies if copy.name.endswith(f".schema-{LAST}"))
    assert len(as_it_was.read_bytes()) == len(before)
    assert_whole(as_it_was)
    version(THREE)
    with opened(old) as memory:
        assert texts(memory.diary(OWNER)) == TEXTS
    assert schema(old) == (2, 3, 3)
    assert left_beside(old) == [], "a copy of every note is left for good"


def test_r_23_the_copy_is_of_the_file_as_it_was_this_time(old, version):
    """R-23: not of an earlier attempt, after which the old version was used on."""
    wrong = {**ONE, LAST + 1: "INSERT INTO nowhere VALUES (1)"}
    version(wrong)
    with opened(old) as memory, pytest.raises(StoreError):
        memory.diary(OWNER).notes()
    version(ONE)
    with opened(old) as memory:
        memory.diary(OWNER).remember("Written in between.")
    version(wrong)
    with opened(old) as memory, pytest.raises(StoreError):
        memory.diary(OWNER).notes()
    copy = diary_file(old).with_name(f"diary.db.schema-{LAST}")
    assert b"Written in between." in copy.read_bytes()


def read_and_tell(talk, place, scripts):
    migrate.scripts = lambda: scripts
    talk.send("ready")
    talk.recv()
    with opened(place) as memory:
        talk.send(texts(memory.diary(OWNER)))


def test_r_23_two_processes_that_come_first_at_once(old):
    """R-23: one does it, the other waits; both see every note."""
    children = [Child(read_and_tell, old, THREE) for _ in range(4)]
    assert [child.hear() for child in children] == ["ready"] * 4
    for child in children:
        child.talk.send("go")
    assert [child.hear() for child in children] == [TEXTS] * 4
    assert [child.ended() for child in children] == [0] * 4
    assert schema(old) == (2, 3, 3)
    assert left_beside(old) == []


def obey_as(talk, place, scripts):
    """A process of one version, with the diary open all along."""
    migrate.scripts = lambda: scripts
    with opened(place) as memory:
        diary = memory.diary(OWNER)
        while (what := talk.recv())[0] != "stop":
            try:
                done = diary.remember(what[1]).text if what[0] == "remember" else len(diary.recall(what[1]))
            except SchemaTooNew as e:
                done = str(e)
            talk.send(done)


@pytest.mark.parametrize("verb", ["remember", "recall"])
def test_r_25_an_older_version_that_has_it_open_refuses_after_the_change(verb, old, version):
    """R-25: two versions at once on one file: the older one writes nothing more into it."""
    older = Child(obey_as, old, ONE)
    assert older.ask("remember", "Before.") == "Before."
    version(THREE)
    with opened(old) as memory:
        assert "Before." in texts(memory.diary(OWNER))
        assert schema(old)[0] == 2
        assert "upgrade diarist" in str(older.ask(verb, "After, and of the old kind."))
        assert "After, and of the old kind." not in texts(memory.diary(OWNER))
    older.talk.send(("stop",))
    assert older.ended() == 0


@pytest.mark.parametrize("act", ["notes", "remember", "recall", "export", "count"])
def test_r_22_a_newer_file_is_refused_with_both_numbers_and_left_alone(act, old, version):
    """R-22, R38: not a byte changes, whatever is asked."""
    version(THREE)
    with opened(old) as memory:
        memory.diary(OWNER).notes()
    before = diary_file(old).read_bytes()
    version(ONE)
    with opened(old) as memory:
        diary = memory.diary(OWNER)
        with pytest.raises(SchemaTooNew, match=f"schema {LAST + 2}, this diarist knows up to {LAST}; upgrade"):
            getattr(diary, act)(*["tea"] * (act in ("remember", "recall")))
    assert diary_file(old).read_bytes() == before


# -- what earlier versions wrote -----------------------------------------------------------------------------------


@pytest.mark.parametrize("fixture", sorted(path.name for path in FIXTURES.glob("schema-*")))
def test_r39_what_each_released_schema_wrote_is_read_whole(fixture, quick, monkeypatch):
    """R39, R-23: opened, read, recalled and exported as it was then; and it lives on."""
    monkeypatch.syspath_prepend(str(FIXTURES))
    import make

    shutil.copytree(FIXTURES / fixture / "memory", quick / "m")
    expected = json.loads((FIXTURES / fixture / "seen.json").read_text(encoding="utf-8"))
    clock = FixedClock(datetime(2026, 5, 1, 12, tzinfo=UTC))
    with opened(quick / "m", embedder=HashEmbedder(16), clock=clock) as memory:
        assert memory.owners() == sorted(make.OWNERS)
        found = json.loads(json.dumps(make.seen(memory)))
        for owner, what in itertools.product(make.OWNERS, ("export", "holds", "held")):
            assert found[owner][what] == expected[owner][what]
        for owner in make.OWNERS:  # how they are ranked is not the schema's
            counts = [{asked: len(hits) for asked, hits in each[owner]["found"].items()} for each in (found, expected)]
            assert counts[0] == counts[1]
            kept = {note["id"] for note in found[owner]["export"]["notes"]}
            assert {id for hits in found[owner]["found"].values() for id in hits} <= kept
        diary = memory.diary(make.OWNERS[0])
        assert diary.remember("has a dog called pipoca.").times == 3
        assert diary.forget(diary.notes()[0].id).complete
        assert [found.subject for found in diary.doctor() if not found.well] in ([], ["free space"], ["rights"])
    for owner in make.OWNERS:
        assert_whole(diary_file(quick / "m", owner))


def test_every_schema_has_a_fixture():
    """R39: the one that is released next is made with `python tests/fixtures/make.py`."""
    assert {f"schema-{number}" for number in ONE} == {path.name for path in FIXTURES.glob("schema-*")}
