"""R61, R62 and what comes with years: merging, sharing, retention, paging, filters, and what the doctor finds."""

from __future__ import annotations

import itertools
import os
import shutil
import sys
from datetime import timedelta

import apsw
import pytest

from diarist import EmbedderError, PageFull
from diarist.testing import HashEmbedder
from support import OWNER, assert_whole, deaths, diary_file, opened, texts


@pytest.fixture
def memory(quick, clock):
    with opened(quick, clock=clock) as memory:
        yield memory


# -- merge ---------------------------------------------------------------------------------------------------------


def test_merge_keeps_every_note_of_both_and_erases_the_source(memory, clock):
    """P-6: ids, dates, chains and keys as they were; searched at once; the other is nobody any more."""
    guest, ana = memory.diary("guest", timezone="America/Lima"), memory.diary("ana", timezone="Europe/Paris")
    old = guest.remember("Lives in Rosario.", key="k")
    clock.advance(60)
    new = guest.remember("Lives in Córdoba.", replaces=[old.id], tags=["home"])
    ana.remember("Likes tea.")
    guest.page.write("- Guest.\n- Both.\n")
    ana.page.write("- Ana.\n- Both.\n")
    was = guest.export()["notes"]
    assert memory.merge("guest", "ana") == 2
    assert memory.owners() == ["ana"]
    assert [note for note in ana.export()["notes"] if note["text"] != "Likes tea."] == was
    assert ana.page.read() == "- Ana.\n- Both.\n- Guest.\n"
    assert ana.timezone == "Europe/Paris"
    assert ana.recall("Córdoba", limit=1)[0].note.id == new.id
    assert {note.owner for note in ana.notes(include_replaced=True)} == {"ana"}
    assert ana.remember("Lives in Rosario.", key="k").id == old.id
    assert_whole(diary_file(memory_place(memory), "ana"))


def memory_place(memory):
    from pathlib import Path

    return Path(memory._store.path)


def test_merge_changes_nothing_if_the_pages_do_not_fit_together(memory):
    """R12: said as it is, and both are as they were."""
    for owner, letter in (("guest", "a"), ("ana", "b")):
        memory.diary(owner).remember(f"I am {owner}.")
        memory.diary(owner).page.write(letter * 2_400)
    before = {owner: memory.diary(owner).export() for owner in ("guest", "ana")}
    with pytest.raises(PageFull):
        memory.merge("guest", "ana")
    assert {owner: memory.diary(owner).export() for owner in ("guest", "ana")} == before


def test_merge_of_nobody_and_of_oneself(memory):
    """R57: nobody has no notes; into oneself is a mistake that loses nothing."""
    memory.diary("ana").remember("Likes tea.")
    assert memory.merge("nobody", "ana") == 0
    with pytest.raises(ValueError, match="into itself"):
        memory.merge("ana", "ana")
    assert texts(memory.diary("ana")) == ["Likes tea."]
    assert memory.merge("ana", "new") == 1
    assert memory.owners() == ["new"]


def merge_in(place):
    with opened(place) as memory:
        memory.merge("guest", "ana")


@pytest.mark.skipif(sys.platform == "win32", reason="kill -9")
def test_merge_can_be_killed_at_any_step_and_called_again(quick):
    """R62, R36: no note is ever in neither diary."""
    with opened(quick / "source") as memory:
        memory.diary("guest").remember("Guest's.", key="k")
        memory.diary("guest").page.add("Guest's page.")
        memory.diary("ana").remember("Ana's.")
    for place in deaths(quick / "source", quick, merge_in, every=3):
        with opened(place) as memory:
            assert {*texts(memory.diary("guest")), *texts(memory.diary("ana"))} == {"Guest's.", "Ana's."}, place.name
            memory.merge("guest", "ana")
            assert texts(memory.diary("ana")) == ["Ana's.", "Guest's."], place.name
            assert memory.diary("ana").page.read() == "- Guest's page.\n"
            assert memory.owners() == ["ana"]
        shutil.rmtree(place)


# -- shared reading ------------------------------------------------------------------------------------------------


def bytes_of(place, owner):
    folder = diary_file(place, owner).parent
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.endswith(("-shm", "-wal"))}


def test_a_shared_diary_is_read_and_never_written_to(quick, clock):
    """T-ISO: whatever is done through the reader's diary, the shop's own is the same to the byte; and each hit says
    whose note it is."""
    with opened(quick, clock=clock) as memory:
        memory.diary("shop").remember_many(["Opens at nine.", "Sells beans from Colombia."])
        memory.diary("shop").remember_many(["Its third fact waits for a vector."], defer=True)
        memory.diary("shop").page.add("The shop's page.")
    before = bytes_of(quick, "shop")
    with opened(quick, clock=clock) as memory:
        ana = memory.diary("ana", shared=["shop"], timezone="Europe/Paris")
        assert {hit.note.owner for hit in ana.recall("Colombia")} == {"shop"}, "also while nothing is kept of Ana"
        note = ana.remember("Buys beans from Colombia.")
        found = ana.recall("beans from Colombia", limit=2)
        assert {(hit.note.owner, hit.note.text) for hit in found} == {
            ("ana", "Buys beans from Colombia."),
            ("shop", "Sells beans from Colombia."),
        }
        assert len(ana.recall("beans", limit=1)) == 1
        ana.retention_days = 1
        clock.advance(timedelta(days=100))
        ana.recall("anything")
        ana.remember("Sells beans from Colombia.")
        ana.expire()
        ana.reembed()
        ana.page.add("Ana's page.")
        ana.doctor()
        assert "shop" not in str(ana.export())
        assert [each.owner for each in ana.notes(include_replaced=True)] == ["ana"]
        assert note.id not in {hit.note.id for hit in ana.recall("beans")}
        memory.erase("ana")
    assert bytes_of(quick, "shop") == before


def test_a_note_of_the_shop_cannot_be_changed_through_a_reader(memory):
    """T-ISO-6: its id is an unknown one there."""
    from diarist import NotFound

    note = memory.diary("shop").remember("Opens at nine.")
    ana = memory.diary("ana", shared=["shop"])
    for act in (ana.note, ana.forget, lambda it: ana.edit(it, "x"), lambda it: ana.remember("x", replaces=[it])):
        with pytest.raises(NotFound):
            act(note.id)
    assert texts(memory.diary("shop")) == ["Opens at nine."]


def test_what_is_shared_is_shared_one_way_and_once(memory):
    """T-ISO: the shop does not see Ana; a diary that is named twice, or is one's own, brings each note once."""
    memory.diary("shop").remember("Sells tea.")
    memory.diary("ana").remember("Likes tea.")
    assert [hit.note.owner for hit in memory.diary("shop").recall("tea")] == ["shop"]
    twice = memory.diary("ana", shared=["shop", "shop", "ana"]).recall("tea")
    assert sorted(hit.note.owner for hit in twice) == ["ana", "shop"]
    with pytest.raises(TypeError):
        memory.diary("ana", shared="shop")
    with pytest.raises(ValueError, match="blank"):
        memory.diary("ana", shared=[""])


def test_a_shared_diary_that_is_not_there_makes_nothing(quick):
    """R34: reading nobody's diary makes no file."""
    with opened(quick / "m") as memory:
        assert len(memory.diary("ana", shared=["nobody"]).recall("tea")) == 0
        assert not (quick / "m").exists()


# -- retention -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", ["the memory", "the diary", "the diary, shorter than the memory's"])
@pytest.mark.parametrize("by", ["expire", "remember", "recall"])
def test_retention_erases_what_was_last_said_too_long_ago(of, by, quick, clock):
    """R62 (P-2): by the clock, to the second; what was said again is young; and it survives a restart."""
    days = {"the memory": 30, "the diary": None, "the diary, shorter than the memory's": 90}[of]
    with opened(quick, clock=clock, retention_days=days) as memory:
        diary = memory.diary(OWNER)
        diary.remember_many(["Old.", "Old, but said again."])
        if of != "the memory":
            diary.retention_days = 30
        clock.advance(timedelta(days=1))
        diary.remember("Old, but said again.")
        memory.diary("other").remember("Another's.")
    with opened(quick, clock=clock, retention_days=days) as memory:
        diary = memory.diary(OWNER)
        assert diary.retention_days == 30
        act = {
            "expire": diary.expire,
            "remember": lambda: diary.remember("Now."),
            "recall": lambda: diary.recall("anything"),
        }[by]
        clock.advance(timedelta(days=29))
        act()
        assert "Old." in texts(diary), "exactly as old as may be"
        clock.advance(timedelta(hours=2))
        act()
        assert "Old." not in texts(diary)
        assert "Old, but said again." in texts(diary)
        assert texts(memory.diary("other")) == ["Another's."]


def test_retention_is_for_good_unless_somebody_says_otherwise(memory, clock):
    """R62: nothing is erased by default; and what is no number of days is refused."""
    diary = memory.diary(OWNER)
    diary.remember("Old.")
    clock.advance(timedelta(days=36_000))
    assert diary.expire().notes == 0
    diary.recall("anything")
    assert texts(diary) == ["Old."]
    for bad, error in [(0, ValueError), (-1, ValueError), (36_501, ValueError), (1.5, TypeError), (True, TypeError)]:
        with pytest.raises(error):
            diary.retention_days = bad
        with pytest.raises(error):
            opened(memory_place(memory), retention_days=bad)
    diary.retention_days = 3
    diary.retention_days = None
    assert diary.retention_days is None
    assert texts(diary) == ["Old."]


def test_k_1_a_clock_that_jumps_back_erases_nothing(memory, clock):
    """K-1: and one that jumped forward erases what the new time says, as it must."""
    diary = memory.diary(OWNER)
    diary.retention_days = 30
    diary.remember("Young.")
    clock.advance(timedelta(days=-400))
    diary.remember("Written in the past.")
    assert diary.expire().notes == 0
    assert diary.count() == 2


# -- paging, counts, filters ---------------------------------------------------------------------------------------


@pytest.fixture
def many(memory, clock):
    diary = memory.diary(OWNER)
    ids = []
    for number in range(60):
        clock.advance(3600)
        note = diary.remember(
            f"Fact {number} about tea.",
            tags=["even" if number % 2 == 0 else "odd", f"by {number % 5}"],
            source=["whatsapp", "mail", None][number % 3],
            happened_at=clock() - timedelta(days=number) if number % 4 == 0 else None,
            expires_at=clock() + timedelta(hours=1) if number % 7 == 0 else None,
            replaces=[ids[-1]] if number % 10 == 9 else None,
        )
        ids.append(note.id)
    return diary


FILTERS = {
    "none": {},
    "all": {"include_replaced": True},
    "one tag": {"tags": ["even"]},
    "both tags": {"tags": ["odd", "by 3"]},
    "no such tag": {"tags": ["EVEN"]},
    "a source": {"source": "mail"},
    "no such source": {"source": "MAIL"},
    "since": {"since": "2026-03-02T12:00:00+03:00"},
    "before": {"before": "2026-03-02T12:00:00+03:00"},
    "a day": {"since": "2026-03-02T00:00:00Z", "before": "2026-03-03T00:00:00Z", "include_replaced": True},
    "as of": {"as_of": "2026-03-02T09:00:00Z"},
    "everything": {"since": "2026-02-01T00:00:00Z", "tags": ["odd"], "source": "mail", "as_of": "2026-03-03T00:00:00Z"},
}


@pytest.mark.parametrize("asked", FILTERS.values(), ids=FILTERS)
def test_pages_of_any_size_are_the_whole_and_the_count_is_true(asked, many):
    """R61: no note twice, none left out; `count` is what `notes` would give; `recall` lets the same through."""
    every = [note.id for note in many.notes(**asked)]
    assert many.count(**asked) == len(every) == len(set(every))
    for size in (1, 7, 60, 1_000):
        pages = [many.notes(**asked, limit=size, offset=offset) for offset in range(0, 61, size)]
        assert [note.id for note in itertools.chain(*pages)] == every
    assert {hit.note.id for hit in many.recall("tea", limit=1_000, **asked)} == set(every)
    if "such" not in str(asked).lower() and asked not in (FILTERS["no such tag"], FILTERS["no such source"]):
        assert every


def test_what_the_filters_let_through(many):
    """R61: checked note by note, not against another query."""
    every = {note.id: note for note in many.notes(include_replaced=True)}
    assert len(every) == 60
    got = many.notes(tags=["odd", "by 3"], include_replaced=True)
    assert {note.id for note in got} == {id for id, note in every.items() if {"odd", "by 3"} <= set(note.tags)}
    got = many.notes(source="mail", include_replaced=True)
    assert {note.id for note in got} == {id for id, note in every.items() if note.source == "mail"}
    since = sorted(note.dated for note in every.values())[30]
    got = many.notes(since=since, include_replaced=True)
    assert {note.id for note in got} == {id for id, note in every.items() if note.dated >= since}
    got = many.notes(before=since, include_replaced=True)
    assert {note.id for note in got} == {id for id, note in every.items() if note.dated < since}


@pytest.mark.parametrize("bad", [{"limit": 0}, {"limit": -1}, {"offset": -1}, {"limit": 1.5}, {"tags": "even"}])
def test_a_page_of_nothing_is_refused(bad, many):
    """R26: said in words."""
    with pytest.raises((ValueError, TypeError)):
        many.notes(**bad)


# -- what the doctor finds -----------------------------------------------------------------------------------------


def findings(diary):
    return {found.subject: found for found in diary.doctor()}


def ill(diary):
    return {found.subject for found in diary.doctor() if not found.well}


def test_the_doctor_of_a_diary_that_is_well(memory):
    """R38, R62: every finding is good, none advises anything; also of a diary in which nothing is."""
    diary = memory.diary(OWNER)
    assert ill(diary) == set()
    assert memory.owners() == []
    diary.remember("Likes tea.")
    diary.page.add("Likes tea.")
    before = diary.export()
    assert ill(diary) - {"free space"} == set()
    assert {"file", "integrity", "engine", "rights", "erasures", "pending vectors", "page"} <= set(findings(diary))
    assert all(not found.advice for found in diary.doctor() if found.well)
    assert diary.export() == before


def test_the_doctor_finds_vectors_that_are_owed(memory):
    """E-1: with their number; and none after they were made."""
    diary = memory.diary(OWNER)
    memory.embedder.down = True
    diary.remember_many(["One.", "Two."])
    found = findings(diary)["pending vectors"]
    assert (found.well, found.advice) == (False, "diarist reembed")
    assert "2 notes" in found.text
    with pytest.raises(EmbedderError):
        diary.reembed()
    memory.embedder.down = False
    diary.reembed()
    assert ill(diary) - {"free space"} == set()


def test_the_doctor_finds_vectors_of_another_embedder(quick):
    """E-7: with the names of both."""
    with opened(quick, embedder=HashEmbedder(64, "a")) as memory:
        memory.diary(OWNER).remember("Likes tea.")
    with opened(quick, embedder=HashEmbedder(48, "b")) as memory:
        found = findings(memory.diary(OWNER))["embedder"]
        assert not found.well
        assert "vectors of a, which b cannot read" in found.text
        memory.diary(OWNER).reembed()
        assert "embedder" not in ill(memory.diary(OWNER))


@pytest.mark.skipif(os.name != "posix", reason="file modes")
@pytest.mark.parametrize("what", ["folder", "diary.db", "page.md"])
def test_the_doctor_finds_what_others_can_read(what, memory, quick):
    """R40: names it, and says how to close it."""
    diary = memory.diary(OWNER)
    diary.remember("Likes tea.")
    diary.page.add("Likes tea.")
    folder = diary_file(quick).parent
    path = folder if what == "folder" else folder / what
    path.chmod(0o755)
    found = findings(diary)["rights"]
    assert not found.well
    assert path.name in found.text
    assert found.advice.startswith("chmod")


def test_the_doctor_finds_damage_and_still_looks_at_the_rest(quick):
    """R38: a page of the file that is not what it was; the finding says to restore a backup."""
    with opened(quick) as memory:
        memory.diary(OWNER).remember_many([f"Fact {number} about tea." for number in range(300)])
    path = diary_file(quick)
    data = bytearray(path.read_bytes())
    for start in range(4096 * 8, len(data), 4096 * 7):
        data[start : start + 200] = os.urandom(200)
    path.write_bytes(data)
    with opened(quick) as memory:
        found = memory.diary(OWNER).doctor()
    assert any(not each.well and "backup" in f"{each.text} {each.advice}".lower() for each in found)
    assert any(each.subject == "page" for each in found)
    assert path.read_bytes() == bytes(data), "it was left as it was"


def test_the_doctor_finds_an_erasure_that_is_not_finished(memory, quick):
    """P-3: and finishes it, once it can."""
    diary = memory.diary(OWNER)
    note = diary.remember("Likes tea.")
    db = apsw.Connection(str(diary_file(quick)), flags=apsw.SQLITE_OPEN_READWRITE)
    db.execute("BEGIN")
    db.execute("SELECT count(*) FROM notes").fetchall()
    diary.forget(note.id)
    assert "erasures" in ill(diary)
    db.execute("COMMIT")
    db.close()
    assert "erasures" not in ill(diary)


def test_the_doctor_finds_a_page_that_is_too_full(memory, quick):
    """R12: with both numbers."""
    diary = memory.diary(OWNER)
    diary.remember("Likes tea.")
    diary_file(quick).with_name("page.md").write_text("word " * 1_000)
    found = findings(diary)["page"]
    assert (found.well, found.text) == (False, "1,250 of 1,000 tokens")
    assert "shorten" in found.advice


def test_the_doctor_finds_that_the_embedder_is_down(memory):
    """E-1: a doctor that cannot look says so and goes on."""
    memory.diary(OWNER).remember("Likes tea.")
    memory.embedder.down = True
    assert "page" in findings(memory.diary(OWNER))
