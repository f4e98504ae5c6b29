"""R39, TRUST P-6: a diary can be taken along whole, as plain data, and comes back equal; nothing else comes with it."""

from __future__ import annotations

import json
import string
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from diarist import PageFull
from diarist.portable import as_markdown, seed_notes
from diarist.testing import ODD_TEXTS, FixedClock
from support import OWNER, assert_whole, diary_file, opened, quick_folder

START = datetime(2026, 3, 1, 9, tzinfo=UTC)
WHEN = [None, START, START + timedelta(days=40), START - timedelta(days=400), START.replace(microsecond=1)]


def moved(exported):
    """As it is after a file: through JSON and back."""
    return json.loads(json.dumps(exported))


def lived_in(diary, clock):
    """A bit of everything that a diary can hold."""
    rosario = diary.remember("Lives in Rosario.", tags=["home"], source="whatsapp", key="k1")
    clock.advance(timedelta(days=1))
    cordoba = diary.remember("Lives in Córdoba.", replaces=[rosario.id], happened_at="2026-02-20T10:00:00-03:00")
    clock.advance(timedelta(days=1))
    diary.remember("Lives in Salta.", replaces=[cordoba.id], key="k2")
    diary.remember("Likes tea.", key="k3")
    clock.advance(timedelta(days=30))
    diary.remember("LIKES  TEA.", key="k4", tags=["taste", "hot"])
    diary.remember("Is on holiday.", expires_at=clock() + timedelta(hours=1), origin="third_party")
    gone = diary.remember("Says something to forget.", key="k5")
    edited = diary.remember("Has a cat.", key="k6")
    diary.edit(edited.id, "Has a dog.")
    diary.forget(gone.id)
    clock.advance(timedelta(days=-300))
    diary.remember("Written while the clock was wrong.", origin="agent_inferred")
    clock.advance(timedelta(days=300))
    diary.remember("猫が好き 🐈\nsecond line\ttab", origin="operator", source="o 'quoted' \\ source")
    diary.page.write("# Ana\n\n- Likes tea.\n")
    diary.retention_days = 3_650
    return gone


def everything(diary, clock):
    """What can be seen of a diary, by every way of looking at it."""
    moments = [clock() - timedelta(days=days) for days in (0, 1, 20, 29, 30, 31, 32, 300, 400)]
    return {
        "exported": diary.export(),
        "notes": diary.notes(include_replaced=True),
        "now": diary.notes(),
        "as of": [[note.id for note in diary.notes(as_of=moment)] for moment in moments],
        "found": [(hit.note.id, round(hit.score, 4)) for hit in diary.recall("lives tea dog", limit=50)],
        "timezone": diary.timezone,
        "retention": diary.retention_days,
        "page": diary.page.read(),
    }


def test_p_6_a_diary_comes_back_equal_from_json(quick, clock):
    """P-6, R39: chains, times, keys, order, page, zone, what held when, and what recall says of it."""
    with opened(quick / "a", clock=clock) as a, opened(quick / "b", clock=clock) as b:
        old, new = a.diary(OWNER, timezone="America/Argentina/Cordoba"), b.diary(OWNER)
        lived_in(old, clock)
        exported = old.export()
        assert moved(exported) == exported
        assert new.load(moved(exported)) == len(exported["notes"]) == 8
        assert everything(new, clock) == everything(old, clock)
        assert new.load(moved(exported)) == 0
        assert everything(new, clock) == everything(old, clock)
        b.close()
        assert everything(new := b_again(quick, clock), clock) == everything(old, clock)
        assert new.remember("lives in salta.").times == old.remember("lives in salta.").times == 2
    assert_whole(diary_file(quick / "b"))


def b_again(quick, clock):
    return opened(quick / "b", clock=clock).diary(OWNER)


def test_p_6_keys_still_answer_a_retry_in_the_new_place(quick, clock):
    """P-6, R-2: also the key of a text that was said twice, and of one that was corrected since."""
    with opened(quick / "a", clock=clock) as a, opened(quick / "b", clock=clock) as b:
        lived_in(a.diary(OWNER), clock)
        b.diary(OWNER).load(a.diary(OWNER).export())
        for key, text in [("k1", "Lives in Rosario."), ("k2", "Lives in Salta."), ("k3", "Likes tea."),
                          ("k4", "LIKES  TEA."), ("k6", "Has a cat.")]:  # fmt: skip
            assert b.diary(OWNER).remember(text, key=key).id == a.diary(OWNER).remember(text, key=key).id
        assert b.diary(OWNER).export() == a.diary(OWNER).export()


_TEXT = st.one_of(
    st.sampled_from([text for text in ODD_TEXTS if text.strip() and "\0" not in text and text.isprintable()]),
    st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=60).map(lambda text: f"x{text}"),
    st.text(string.printable, max_size=40).map(lambda text: f"x {text}"),
)
_ODD = st.fixed_dictionaries(
    {"text": _TEXT},
    optional={
        "happened_at": st.sampled_from(WHEN),
        "expires_at": st.sampled_from(WHEN),
        "source": _TEXT.map(lambda text: text[:200]),
        "origin": st.sampled_from(["owner_said", "agent_inferred", "operator", "third_party"]),
        "tags": st.lists(_TEXT.map(lambda text: text[:200]), max_size=3),
    },
)


@settings(max_examples=60, deadline=None, database=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_ODD, min_size=1, max_size=6), st.data())
def test_p_6_whatever_the_notes_are(notes, data):
    """P-6: any text, times, tags and chains, moved to another memory under another owner's name and back."""
    clock = FixedClock(START)
    with quick_folder() as place, opened(place, clock=clock) as memory:
        first, second, third = (memory.diary(owner) for owner in ("a", "b", "c"))
        kept = []
        for number, each in enumerate(notes):
            clock.advance(data.draw(st.sampled_from([0, 1, -3600, 86_400])))
            old = data.draw(st.lists(st.sampled_from(kept), max_size=2, unique=True)) if kept else []
            kept.append(first.remember(**each, replaces=old, key=f"key {number}").id)
            kept = list(dict.fromkeys(kept))
        exported = first.export()
        second.load(moved(exported), rename=True)
        assert second.export() == exported | {"owner": "b"}
        third.load(moved(second.export()), rename=True)
        assert third.export()["notes"] == exported["notes"]
        assert [note.id for note in third.notes()] == [note.id for note in first.notes()]


def test_p_6_two_diaries_merge_by_id(quick, clock):
    """P-6: what is here already stays as it is, also where the other copy was changed."""
    with opened(quick / "a", clock=clock) as a, opened(quick / "b", clock=clock) as b:
        here, there = a.diary(OWNER), b.diary(OWNER)
        notes = here.remember_many(["One.", "Two."])
        there.load(here.export())
        here.edit(notes[0].id, "One, corrected.")
        here.remember("Three.")
        there.remember("Four.")
        there.page.write("Theirs.\n")
        here.page.write("Mine.\n")
        assert there.load(here.export()) == 1
        assert sorted(note.text for note in there.notes()) == ["Four.", "One.", "Three.", "Two."]
        assert there.page.read() == "Theirs.\n"
        assert here.load(there.export()) == 1
        assert here.note(notes[0].id).text == "One, corrected."
        assert len({note.id for note in here.notes()} ^ {note.id for note in there.notes()}) == 0


def test_p_6_the_same_id_once_in_one_export(quick):
    """P-6: the first counts."""
    with opened(quick) as memory:
        memory.diary("a").remember("One.")
        exported = memory.diary("a").export()
        exported["notes"].append(exported["notes"][0] | {"text": "Two."})
        assert memory.diary("b").load(exported, rename=True) == 1
        assert [note.text for note in memory.diary("b").notes()] == ["One."]


def test_p_5_p_6_what_was_forgotten_here_stays_forgotten(quick):
    """P-5: an older export does not bring it back, unless that is what was asked for."""
    with opened(quick) as memory:
        diary = memory.diary(OWNER)
        first, _ = diary.remember_many(["One.", "Two."])
        exported = diary.export()
        diary.forget(first.id)
        assert diary.load(exported) == 0
        assert [note.text for note in diary.notes()] == ["Two."]
        memory.close()
        diary = opened(quick).diary(OWNER)
        assert diary.load(exported) == 0
        assert diary.load(exported, forgotten_too=True) == 1
        assert sorted(note.text for note in diary.notes()) == ["One.", "Two."]


def test_r39_another_owners_export_only_under_a_new_name(quick):
    """R39, R57: refused by default, with both names; with `rename` every note is the new owner's."""
    with opened(quick) as memory:
        memory.diary("ana").remember("Likes tea.")
        exported = memory.diary("ana").export()
        with pytest.raises(ValueError, match="diary of 'ana', not of 'ben'"):
            memory.diary("ben").load(exported)
        assert memory.owners() == ["ana"]
        assert memory.diary("ben").load(exported, rename=True) == 1
        assert [note.owner for note in memory.diary("ben").notes()] == ["ben"]
        memory.diary("ben").forget(memory.diary("ben").notes()[0].id)
        assert memory.diary("ana").count() == 1


def test_p_6_no_other_owner_and_no_vectors_inside(quick):
    """P-6: searched in the JSON."""
    with opened(quick) as memory:
        memory.diary("ana").remember("Likes tea.", key="order 1")
        memory.diary("ben").remember("The safe code is 4471.", key="order 2")
        text = json.dumps(memory.diary("ana").export() | {"shared": memory.diary("ana", shared=["ben"]).export()})
        assert not any(word in text for word in ("ben", "4471", "order 2", "vector", "embed"))
        assert memory.diary("nobody").export()["notes"] == []
        assert memory.owners() == ["ana", "ben"]


GOOD = {"id": "a1", "text": "Likes tea.", "created_at": "2026-03-01T09:00:00+00:00"}
BAD_NOTES = [
    (7, TypeError, "is a int"),
    ("text", TypeError, "is a str"),
    ({}, ValueError, "has no "),
    ({key: GOOD[key] for key in ("id", "created_at")}, ValueError, "has no text"),
    ({key: GOOD[key] for key in ("text", "created_at")}, ValueError, "has no id"),
    ({key: GOOD[key] for key in ("text", "id")}, ValueError, "has no created_at"),
    (GOOD | {"created_at": None}, ValueError, "created_at"),
    (GOOD | {"created_at": "yesterday"}, ValueError, "ISO 8601"),
    (GOOD | {"created_at": "2026-03-01T09:00:00"}, ValueError, "offset"),
    (GOOD | {"created_at": 5}, TypeError, "created_at"),
    (GOOD | {"happened_at": "x"}, ValueError, "happened_at"),
    (GOOD | {"text": ""}, ValueError, "blank"),
    (GOOD | {"text": None}, TypeError, "text"),
    (GOOD | {"text": "x" * 64_001}, ValueError, "64,000"),
    (GOOD | {"id": ""}, ValueError, "id"),
    (GOOD | {"id": 5}, TypeError, "id"),
    (GOOD | {"id": "é"}, ValueError, "id"),
    (GOOD | {"id": "a" * 257}, ValueError, "id"),
    (GOOD | {"origin": "nobody"}, ValueError, "origin"),
    (GOOD | {"tags": "home"}, TypeError, "tags"),
    (GOOD | {"tags": [1]}, TypeError, "tags"),
    (GOOD | {"keys": "k"}, TypeError, "keys"),
    (GOOD | {"replaces": "a1b2"}, TypeError, "replaces"),
    (GOOD | {"replaces": 5}, TypeError, ""),
    (GOOD | {"replaced_by": 5}, TypeError, "id"),
    (GOOD | {"times": 0}, ValueError, "times"),
    (GOOD | {"times": "many"}, ValueError, "times"),
    (GOOD | {"times": 10**30}, ValueError, "times"),
    (GOOD | {"times": float("inf")}, ValueError, "times"),
    (GOOD | {"session": 5}, TypeError, "session"),
    (GOOD | {"source": 5}, TypeError, "source"),
    (GOOD | {"vector": [1.0]}, ValueError, "unknown fields"),
]


@pytest.mark.parametrize(("note", "error", "message"), BAD_NOTES)
def test_r39_a_bad_note_is_named_by_its_position_and_nothing_is_kept(note, error, message, quick):
    """R39: all or none; not even the zone, the retention time or the page of a bad export."""
    with opened(quick / "m") as memory:
        exported = memory.diary(OWNER).export() | {
            "notes": [GOOD, note], "timezone": "Europe/Paris", "retention_days": 3, "page": "Page.\n",
        }  # fmt: skip
        with pytest.raises(error, match=f"note 1 .*{message}"):
            memory.diary(OWNER).load(exported)
        assert not (quick / "m").exists()


BAD_EXPORTS = [
    (lambda good: [], TypeError),
    (lambda good: "{}", TypeError),
    (lambda good: None, TypeError),
    (lambda good: {}, (TypeError, ValueError)),
    (lambda good: good | {"diarist": 2}, ValueError),
    (lambda good: good | {"diarist": None}, ValueError),
    (lambda good: good | {"notes": {}}, (TypeError, ValueError)),
    (lambda good: good | {"owner": "other"}, ValueError),
    (lambda good: good | {"timezone": "Mars/Olympus"}, ValueError),
    (lambda good: good | {"timezone": 5}, TypeError),
    (lambda good: good | {"retention_days": 0}, ValueError),
    (lambda good: good | {"retention_days": "3"}, TypeError),
    (lambda good: good | {"page": 5}, TypeError),
    (lambda good: good | {"page": "half \ud800"}, ValueError),
    (lambda good: good | {"page": "word " * 1_000}, PageFull),
]


@pytest.mark.parametrize(("spoil", "error"), BAD_EXPORTS)
def test_r39_what_is_no_export_is_refused_whole(spoil, error, quick):
    """R39, R38: in words, and nothing is kept of it."""
    with opened(quick / "m") as memory:
        diary = memory.diary(OWNER)
        good = diary.export() | {"notes": [GOOD], "timezone": "Europe/Paris", "page": "Page.\n"}
        with pytest.raises(error):
            diary.load(spoil(good))
        assert (diary.notes(), diary.page.read(), diary.timezone, diary.retention_days) == ([], "", "UTC", None)
        assert diary.load(good) == 1, "and the good one is none the worse"
        assert (diary.page.read(), diary.timezone) == ("Page.\n", "Europe/Paris")


def test_p_6_the_least_that_a_note_needs(quick):
    """R39: what another program wrote by hand: id, text, time."""
    with opened(quick) as memory:
        diary = memory.diary(OWNER)
        assert diary.load({"diarist": 1, "owner": OWNER, "notes": [GOOD]}) == 1
        note = diary.note("a1")
        assert (note.text, note.created_at.isoformat(), note.times) == (GOOD["text"], GOOD["created_at"], 1)
        assert not note.pending
        assert diary.forget("a1").complete


def test_p_6_a_page_that_a_person_made_too_long_is_said_and_keeps_no_note_from_coming_back(quick):
    """P-6, R12: every way to write obeys the budget; without its page the same export is taken."""
    with opened(quick / "a") as a, opened(quick / "b") as b:
        a.diary(OWNER).remember("Likes tea.")
        diary_file(quick / "a").with_name("page.md").write_text("word " * 1_000)
        exported = a.diary(OWNER).export()
        with pytest.raises(PageFull, match="1,250 tokens of 1,000"):
            b.diary(OWNER).load(exported)
        assert b.diary(OWNER).notes() == []
        assert b.diary(OWNER).load(exported | {"page": ""}) == 1


def test_r14_loading_costs_one_embedding_a_note_and_says_how_far_it_is(quick):
    """R14: vectors are made anew, once; what is here already costs nothing."""
    with opened(quick / "a") as a, opened(quick / "b") as b:
        a.diary(OWNER).remember_many([f"Fact {number}." for number in range(150)])
        told, embedder = [], b.embedder
        b.diary(OWNER).load(a.diary(OWNER).export(), progress=lambda done, total: told.append((done, total)))
        assert len(embedder.texts) == 150
        assert told == sorted(told)
        assert told[-1] == (150, 150)
        b.diary(OWNER).load(a.diary(OWNER).export())
        assert len(embedder.texts) == 150
        assert b.diary(OWNER).recall("fact 77 of all", limit=1)[0].note.text == "Fact 77."


# -- the seed's diaries, and Markdown ------------------------------------------------------------------------------

TYPESCRIPT = '[{"text": "Buys 1 kg of Colombia.", "vector": [0.1, 0.2]}, {"text": "Likes tea.", "vector": [1]}]'
ASTORLM = '[{"id": "note-1", "text": "Buys 1 kg of Colombia.", "vector": [0.1]}, {"id": "note-2", "text": "Likes tea.", "vector": []}]'  # noqa: E501


@pytest.mark.parametrize("written", [TYPESCRIPT, ASTORLM], ids=["text and vector", "id, text and vector"])
def test_r39_both_shapes_of_the_seeds_json_diaries(written, quick):
    """R39: the texts, in order, with vectors of our own making."""
    with opened(quick) as memory:
        notes = memory.diary(OWNER).remember_many(seed_notes(json.loads(written)))
        assert [note.text for note in notes] == ["Buys 1 kg of Colombia.", "Likes tea."]
        assert memory.diary(OWNER).recall("tea", limit=1)[0].note.text == "Likes tea."


@pytest.mark.parametrize(
    "data",
    [[], {}, None, "x", [1], [{"text": "x"}], [{"vector": [1]}], [{"text": 5, "vector": [1]}],
     [{"text": "x", "vector": [1]}, {"text": "y"}], [{"text": "x", "vector": [1], "owner": "ana"}]],
)  # fmt: skip
def test_r39_other_lists_are_not_taken_for_one(data):
    """R39: all records have one of the two shapes, or it is something else."""
    assert seed_notes(data) is None


def test_p_6_markdown_for_a_person_to_read(quick, clock):
    """P-6, R61: the page, then a line a note under its day, in the owner's own time."""
    from zoneinfo import ZoneInfo

    clock.set("2026-03-01T02:00:00Z")
    with opened(quick, clock=clock) as memory:
        diary = memory.diary("Ana\n# Pérez")
        first = diary.remember("Lives in\nRosario.", source="whatsapp", tags=["home"])
        diary.remember("Lives in Córdoba.", replaces=[first.id], origin="agent_inferred")
        clock.advance(timedelta(days=1))
        diary.remember("Is away.", expires_at="2026-04-01T00:00:00Z")
        text = as_markdown(diary.owner, diary.notes(include_replaced=True), "Tea.\n", ZoneInfo("America/Lima"))
    assert text == (
        "# Ana # Pérez\n\n## Page\n\nTea.\n\n"
        "## 2026-03-01\n\n- Is away. (until 2026-04-01)\n"
        "## 2026-02-28\n\n- Lives in Córdoba. (agent inferred)\n"
        "- Lives in Rosario. (from whatsapp; tags: home; replaced since)\n"
    )


def talked(diary, clock):
    """Two sessions of several days, one of them ended, with what is searched and what is not."""
    diary.remember("Likes tea.")
    order = diary.session("order")
    order.append({"role": "user", "content": "The same as last time."})
    clock.advance(timedelta(days=1))
    order.extend([{"role": "tool", "content": "42", "tool_call_id": "c"}, {"role": "assistant", "content": "Done."}])
    clock.advance(timedelta(days=1))
    order.end()
    diary.session("open", expires_at=clock() + timedelta(days=90)).append(
        {"role": "user", "content": "Hello.", "created_at": "2026-02-01T10:00:00+01:00"}
    )


def test_p_6_sessions_come_back_with_all_their_dates(quick, clock):
    """P-6: when each was begun, ended and written to, and when each message was said, wherever it is loaded."""
    with opened(quick / "a", clock=clock) as a, opened(quick / "b", clock=clock) as b:
        ours, theirs = a.diary(OWNER), b.diary(OWNER)
        talked(ours, clock)
        exported = moved(ours.export())
        clock.advance(timedelta(days=30))
        assert theirs.load(exported) == 1
        assert theirs.sessions() == ours.sessions()
        assert moved(theirs.export()) == exported
        assert theirs.pending == 0
        days = {"since": "2026-02-15T00:00:00Z", "before": "2026-03-01T12:00:00Z"}
        said = [hit.note.text for hit in theirs.recall("the same", where="sessions", **days)]
        assert said == ["The same as last time."]
        position = theirs.position
        assert (theirs.load(exported), theirs.position) == (0, position)
        for each in exported["sessions"]:  # as the first version wrote it
            del each["dates"]
        c = a.diary("c")
        c.load(exported, rename=True)
        assert {each.id: (each.created_at, each.ended_at) for each in c.sessions()} == {
            each.id: (each.created_at, each.ended_at) for each in ours.sessions()
        }


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("messages", [{"role": "user", "content": "Good."}, {"role": "nobody", "content": "Bad."}]),
        ("messages", [{"role": "user", "content": {1, 2}}]),
        ("messages", ["text"]),
        ("messages", "text"),
        ("messages", None),
        ("id", ""),
        ("id", 7),
        ("created_at", "soon"),
        ("ended_at", 5),
        ("dates", ["2026-03-01T09:00:00Z"] * 2),
        ("dates", [None]),
        ("dates", "soon"),
        ("later", 1),
    ],
)
def test_r39_a_bad_session_keeps_the_notes_out_too(quick, clock, field, value):
    """R39: all or none, the sessions and the page with the notes; the error says which session."""
    with opened(quick / "a", clock=clock) as a, opened(quick / "b", clock=clock) as b:
        talked(a.diary(OWNER), clock)
        exported = a.diary(OWNER).export() | {"page": "- Lu.\n"}
        exported["sessions"][1][field] = value
        with pytest.raises((ValueError, TypeError), match=r"session 1 \(counting from 0\) of the export.*nothing was"):
            b.diary(OWNER).load(exported)
        assert b.owners() == []
        assert not (quick / "b").exists()
        for bad in ("text", 5, {"id": "s"}):
            with pytest.raises((ValueError, TypeError), match="nothing was"):
                b.diary(OWNER).load(exported | {"sessions": bad})
        assert not (quick / "b").exists()
