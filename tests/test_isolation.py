"""One owner's notes reach no other: hostile names, ids of others, a removed check, many owners at random."""

from __future__ import annotations

import os
import random
import re
import stat
import sys
import unicodedata
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from diarist import NotFound
from diarist.stores import Filter, folder, waiting, word_index
from diarist.stores.names import folder_name
from diarist.testing import FixedClock
from support import OWNER, diary_file, opened, quick_folder, texts

# -- names ---------------------------------------------------------------------------------------------------------

HOSTILE = [
    "c-2291", "C-2291", "c-2291 ", " c-2291", "c-2291\n", "c-2291.", "c-229", "c-22911",
    "c_2291", "c-229%", "c-2291#", "c\u200b-2291", "ｃ-2291", "c:2291", "c|id",
    "c-2291?owner=c-1001", "c-2291;owner=c-1001", "c-2291/../c-1001", "c-2291/page",
    "../../x", "../../etc/passwd", "..\\..\\windows\\win.ini", "/etc/passwd",
    "%2e%2e%2fetc%2fpasswd", "....//....//etc/passwd", "C:\\tmp", "\\\\server\\share",
    "//evil.example/x", "file:///etc/passwd", "~", "~root", ".", "..", "...", ".hidden",
    "-rf", "--help", "*", "%", "_", "?", "a_b", "axb", "a*", "100%", "x;y", "'", '"',
    "' OR '1'='1", "c-2291'; DROP TABLE notes;--", "$(id)", "`id`", "{owner}",
    '{"$ne":null}', '["c-1","c-2"]', "c-1001,c-2291", "null", "None", "true", "0", "-1",
    "1", "10", "1.0", "oak", "oak-labs", "oak/x", "oak\\x", "OAK", "CON", "con",
    "NUL.txt", "nul", "aux", "COM1", "com1", "lpt9", "diary.db", "diary.lock",
    "page.md", "=2e", "=", "==", "=41", "A", "a", "é", "e\u0301", "Á", "A\u0301", "İ",
    "i", "ı", "I", "ß", "ss", "SS", "ﬃ", "ffi", "K", "\u212a", "k", "Ω", "\u2126", "🦊",
    "\u202ec-2291", "\ufeffc-2291", "日本", "x" * 300, "x" * 299 + "y", "X" * 300,
    "x" * 1024, "é" * 1024, "x" * 120, "x" * 121, "\U0010ffff", "a\tb", "a b", "a\r\nb",
]  # fmt: skip

REFUSED = [
    "",
    "   ",
    "\n",
    "\x01\x7f",
    "\u200b",
    "c-2291\0",
    "\0",
    "c-2291\0.json",
    "\ud83d",
    "c\ude00",
    "x" * 1025,
    "x" * 10_000,
]


def outside(place):
    return sorted(path for path in place.parent.rglob("*") if place not in (path, *path.parents))


def test_owners_of_any_name_are_apart_pairwise(tmp_path):
    """R58, RW-029, RW-032 (T-ISO-2, T-ISO-3): each finds its own sentence and no other, also after a restart."""
    assert len(set(HOSTILE)) == len(HOSTILE)
    place, said = tmp_path / "root" / "memory", {}
    place.parent.mkdir()
    before = outside(place)
    with opened(place) as memory:
        for number, owner in enumerate(HOSTILE):
            said[owner] = f"The secret budget is word{number}."
            assert memory.diary(owner).owner == owner
            assert memory.diary(owner).remember(said[owner]).owner == owner
    with opened(place) as memory:
        assert memory.owners() == sorted(HOSTILE)
        for owner in HOSTILE:
            diary = memory.diary(owner)
            assert texts(diary) == [said[owner]]
            assert [(hit.note.owner, hit.note.text) for hit in diary.recall("secret budget", limit=99)] == [
                (owner, said[owner])
            ]
    assert outside(place) == before
    assert [path.name for path in place.parent.iterdir()] == ["memory"]


def test_folders_of_owners_are_distinct_on_every_file_system():
    """R58: also where case, Unicode form, and dots or spaces at the end make no difference."""
    names = {owner: folder_name(owner) for owner in HOSTILE}
    seen = {unicodedata.normalize("NFKC", name).casefold().rstrip(". ") for name in names.values()}
    assert len(seen) == len(HOSTILE)
    assert all(re.fullmatch(r"[a-z0-9_=-]{1,120}", name) for name in names.values())
    devices = {"con", "prn", "aux", "nul"} | {f"{port}{n}" for port in ("com", "lpt") for n in range(10)}
    assert not devices & set(names.values())


@pytest.mark.parametrize("owner", REFUSED, ids=ascii)
def test_what_is_no_name_is_refused_and_makes_nothing(tmp_path, owner):
    """R58, RW-031 (T-ISO-4): with a message that says what is wrong with the owner."""
    with opened(tmp_path / "memory") as memory, pytest.raises(ValueError, match="owner"):
        memory.diary(owner)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "owner",
    [None, 1, True, b"c-2291", ["c-1", "c-2"], {"$ne": None}, Path("x"), pytest.param(object(), id="object()")],
    ids=repr,
)
def test_what_is_no_text_is_no_owner(tmp_path, owner):
    """R58, RW-031 (T-ISO-4): never everybody."""
    with opened(tmp_path / "memory") as memory, pytest.raises(TypeError, match="owner"):
        memory.diary(owner)
    assert list(tmp_path.iterdir()) == []


def test_a_strangers_folder_in_the_memory_is_nobody(tmp_path):
    """R58: only what an owner's name would have made is listed as an owner."""
    for name in ("Upper", "a b", "x.y", "=zz", "=41=", "=ff", "x" * 121, "a==" + "0" * 63):
        (tmp_path / name).mkdir()
        (tmp_path / name / "diary.db").write_bytes(b"")
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    with opened(tmp_path) as memory:
        assert memory.owners() == []


@pytest.mark.skipif(sys.platform == "win32", reason="modes of POSIX")
@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077])
def test_what_is_written_is_for_its_user_only(tmp_path, umask):
    """R40 (T-FS-1): folders 0700 and files 0600, whatever the umask; while open, too."""
    before = os.umask(umask)
    try:
        with opened(tmp_path / "memory") as memory:
            memory.diary(OWNER).remember("Has a dog.")
            memory.diary("x" * 1024).remember_many(["Has a cat.", "Has a garden."])
            modes = {path: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
            kinds = {path: 0o700 if path.is_dir() else 0o600 for path in modes}
    finally:
        os.umask(before)
    assert modes == kinds
    assert {path.name for path in modes} >= {"diary.db", "diary.db-wal", "diary.db-shm", "diary.lock"}


# -- ids, keys, texts ----------------------------------------------------------------------------------------------


def test_the_same_text_and_the_same_key_are_two_notes_for_two_owners(quick):
    """R41, RW-030 (T-ISO-11): ids are 128 random bits, and what one does with its note leaves the other's."""
    with opened(quick) as memory:
        ana, ben = memory.diary("ana"), memory.diary("ben")
        hers = ana.remember("Has a passport.", key="passport")
        his = ben.remember("Has a passport.", key="passport")
        assert ben.remember("Has a passport.", key="passport").id == his.id
        assert re.fullmatch("[0-9a-f]{32}", hers.id)
        assert hers.id != his.id
        ben.remember("Lost it.", key="loss", replaces=[his.id])
        assert ana.notes() == [hers]
        ben.forget(his.id)
        assert ana.note(hers.id) == hers
        ana.edit(hers.id, "Has two passports.")
        assert texts(ben) == ["Lost it."]


ON_AN_ID = {
    "note": lambda diary, each: diary.note(each),
    "edit": lambda diary, each: diary.edit(each, "Mine now."),
    "forget": lambda diary, each: diary.forget(each),
    "forget several": lambda diary, each: diary.forget([diary.notes()[0].id, each]),
    "replaces": lambda diary, each: diary.remember("Mine now.", replaces=[each]),
    "replaces in many": lambda diary, each: diary.remember_many(["One.", {"text": "Mine now.", "replaces": [each]}]),
}


@pytest.mark.parametrize("use", ON_AN_ID.values(), ids=ON_AN_ID)
def test_anothers_id_looks_like_an_unknown_one_and_does_nothing(quick, use):
    """R55, R56, RW-032 (T-ISO-6): the same error, the same words; nothing of this owner's or the other's changes."""
    with opened(quick) as memory:
        ana, ben = memory.diary("ana"), memory.diary("ben")
        hers, his = ana.remember("Has a dog."), ben.remember("Has a cat.")
        said = {}
        for id in (
            hers.id,
            "0" * 32,
            "%",
            "*",
            "_" + his.id[1:],
            his.id[:-1] + "_",
            his.id.upper() + "x",
            his.id[:8],
            "",
            " ",
        ):
            with pytest.raises((NotFound, ValueError)) as told:
                use(ben, id)
            said[id] = (type(told.value), str(told.value).replace(repr(id), "ID"))
        assert said[hers.id] == said["0" * 32]
        assert said[hers.id][0] is NotFound
        assert ana.notes() == [hers]
        assert ben.notes() == [his]


def test_forgetting_everything_of_one_leaves_the_others_files_as_they_were(quick):
    """RW-031 (T-ISO-7): byte for byte."""
    with opened(quick) as memory:
        for owner in ("ana", "ben", "cleo"):
            memory.diary(owner).remember_many([f"{owner} has a dog.", f"{owner} has a cat."])
    others = {owner: diary_file(quick, owner).read_bytes() for owner in ("ana", "cleo")}
    with opened(quick) as memory:
        ben = memory.diary("ben")
        ben.forget([note.id for note in ben.notes()])
        ben.forget([])
        assert ben.notes() == []
        assert list(ben.recall("dog")) == []
    assert {owner: diary_file(quick, owner).read_bytes() for owner in others} == others


# -- without the check ---------------------------------------------------------------------------------------------

SECRET = "The secret ingredient is salmon."
EVERYTHING = Filter(FixedClock()(), include_replaced=True)


@pytest.fixture
def intruded(quick):
    """A diary of `OWNER` in whose file somebody has put a note of another owner, with its words and vector."""
    with opened(quick) as memory:
        memory.diary(OWNER).remember("Has a dog.")
        stranger = memory.diary(OWNER).remember(SECRET)
    db = apsw.Connection(str(diary_file(quick)))
    db.execute("UPDATE notes SET owner = 'stranger' WHERE id = ?", (stranger.id,))
    db.close()
    with opened(quick) as memory:
        yield memory.diary(OWNER), stranger


def attempt(act):
    try:
        return act()
    except NotFound:
        return None


def is_twin(diary, _):
    return diary._store.twin(diary._draft(SECRET)) is not None


def is_pending(diary, note):
    db = apsw.Connection(str(diary._store._path))
    db.execute("UPDATE notes SET pending = 1 WHERE id = ?", (note.id,))
    db.execute("UPDATE diary SET value = 1 WHERE name = 'pending'")
    db.close()
    return SECRET in [each.text for each in diary._store.pending(99)]


# Each tells whether the stranger's note shows (or changes).
REACHES = {
    "notes": lambda d, note: SECRET in texts(d),
    "note": lambda d, note: attempt(lambda: d.note(note.id)) is not None,
    "recall": lambda d, note: SECRET in [hit.note.text for hit in d.recall("secret ingredient salmon")],
    "context": lambda d, note: "salmon" in d.recall("secret ingredient salmon").context(),
    "recall within dates": lambda d, note: len(d.recall("secret", since="2000-01-01T00:00:00Z")) == 2,
    "remember the same": lambda d, note: d.remember(SECRET).id == note.id,
    "edit": lambda d, note: attempt(lambda: d.edit(note.id, "Mine now.")) is not None,
    "forget": lambda d, note: attempt(lambda: d.forget(note.id) or "gone") is not None,
    "replaces": lambda d, note: attempt(lambda: d.remember("Mine now.", replaces=[note.id])) is not None,
    "store.entries": lambda d, note: len(d._store.entries(range(99))) == 2,
    "store.words_of": lambda d, note: len(d._store.words_of(range(99))) == 2,
    "store.newest": lambda d, note: len(d._store.newest(99)) == 2,
    "store.select": lambda d, note: len(d._store.select(EVERYTHING)) == 2,
    "store.pending": is_pending,
    "store.postings": lambda d, note: "salmon" in d._store.postings(["salmon"], 99),
    "store.twin": is_twin,
}


@pytest.mark.parametrize("reach", REACHES.values(), ids=REACHES)
def test_a_note_of_another_owner_in_the_file_is_not_there(intruded, reach):
    """R56: the owner is checked at every call, not only by the place of the file."""
    assert not reach(*intruded)


@pytest.mark.parametrize("reach", REACHES.values(), ids=REACHES)
def test_the_test_above_fails_without_the_check(intruded, reach, monkeypatch):
    """R56, the mutation: the same with every `owner = ?` always true. If this fails, the test above is blind."""
    for module in (folder, waiting, word_index):
        for name in ("run", "rows", "row"):
            if (said := getattr(module, name, None)) is None:
                continue
            monkeypatch.setattr(module, name, lambda db, sql, values=(), said=said: said(db, unchecked(sql), values))
    assert reach(*intruded)


def unchecked(sql):
    return re.sub(r"owner = (\?|:owner)", r"coalesce(owner = \1, 1) IN (0, 1)", sql)


def test_every_statement_about_notes_names_the_owner(quick, monkeypatch):
    """R56 (T-ISO-9): all SQL of a day's use; counting how many notes wait to be filed is the one exception."""
    monkeypatch.setattr(word_index, "FILE_AT", 3)
    seen = set()

    def trace(cursor, sql, bindings):
        seen.add(sql)
        return True

    hook = lambda db: db.set_exec_trace(trace)  # noqa: E731
    apsw.connection_hooks.append(hook)
    try:
        with opened(quick) as memory:
            use_everything(memory.diary(OWNER))
    finally:
        apsw.connection_hooks.remove(hook)
    about_notes = {sql for sql in seen if re.search(r"\b(FROM|INTO|UPDATE|JOIN) (notes|messages|sessions)\b", sql)}
    assert len(about_notes) > 15
    unowned = {sql for sql in about_notes if not re.search(r"\bowner\b(?! TEXT)", sql.partition("WHERE")[2] or sql)}
    assert unowned <= {"SELECT count(*) FROM notes WHERE seq > ?"}


def use_everything(diary):
    dog, cat = diary.remember_many(["Has a dog.", {"text": "Has a cat.", "tags": ["pet"], "key": "k"}])
    diary.remember("Has a dog.")
    diary.remember("Has two cats.", replaces=[cat.id], source="mail", key="two")
    diary.recall("pets", tags=["pet"], since="2000-01-01T00:00:00Z", source="mail", include_replaced=True)
    diary.recall("pets")
    diary.notes(before="2100-01-01T00:00:00Z")
    diary.edit(dog.id, "Has a horse.")
    diary.note(dog.id)
    diary.forget(dog.id)


# -- at random -----------------------------------------------------------------------------------------------------

CROWD = ["oak", "oak-labs", "OAK", "oak/x", "o_k", "%"]
WORDS = ["coffee", "tea", "dog", "cat", "Lyon", "Rosario"]


class Owners(RuleBasedStateMachine):
    """Several owners whose diaries are used in any order; what each should hold is kept beside in plain dicts."""

    def __init__(self):
        super().__init__()
        self._folder = quick_folder()
        self.place = self._folder.__enter__()
        self.memory = opened(self.place)
        self.held = {owner: {} for owner in CROWD}  # owner -> id -> text
        self.said = 0

    def teardown(self):
        self.memory.close()
        self._folder.__exit__(None, None, None)

    def text(self, owner, word):
        self.said += 1
        return f"{owner} says {word} as number {self.said}"

    @rule(owner=st.sampled_from(CROWD), word=st.sampled_from(WORDS))
    def remember(self, owner, word):
        text = self.text(owner, word)
        self.held[owner][self.memory.diary(owner).remember(text, tags=[word]).id] = text

    @rule(owners=st.lists(st.sampled_from(CROWD), min_size=2, max_size=3), word=st.sampled_from(WORDS))
    def remember_the_same(self, owners, word):
        self.said += 1
        text = f"Everybody says {word} as number {self.said}"
        for owner in owners:
            self.held[owner][self.memory.diary(owner).remember(text, key=text).id] = text

    @precondition(lambda self: any(self.held.values()))
    @rule(owner=st.sampled_from(CROWD), data=st.data(), verb=st.sampled_from(["note", "edit", "forget", "replace"]))
    def use_any_id(self, owner, data, verb):
        id = data.draw(st.sampled_from([id for held in self.held.values() for id in held]))
        diary, mine = self.memory.diary(owner), self.held[owner]
        text = self.text(owner, "changed")
        act = {
            "note": lambda: diary.note(id),
            "edit": lambda: diary.edit(id, text),
            "forget": lambda: diary.forget(id),
            "replace": lambda: diary.remember(text, replaces=[id]),
        }[verb]
        if id not in mine:
            with pytest.raises(NotFound):
                act()
            return
        note = act()
        if verb == "forget":
            del mine[id]
        else:
            assert note.owner == owner
            mine[note.id] = note.text

    @rule(owner=st.sampled_from(CROWD), question=st.sampled_from([*WORDS, "Everybody says", *CROWD[:3]]))
    def recall(self, owner, question):
        for hit in self.memory.diary(owner).recall(question, limit=50):
            assert self.held[owner][hit.note.id] == hit.note.text

    @rule()
    def restart(self):
        self.memory.close()
        self.memory = opened(self.place)

    @invariant()
    def each_holds_its_own(self):
        for owner, held in self.held.items():
            assert {n.id: n.text for n in self.memory.diary(owner).notes(include_replaced=True)} == held
        assert set(self.memory.owners()) <= set(CROWD)


def test_owners_stay_apart_whatever_is_done_in_whatever_order():
    """R57 (T-ISO-1): 600 random steps; nightly many more."""
    run_state_machine_as_test(Owners, settings=steps(15, 40))


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_owners_stay_apart_over_20_000_steps():
    """R57 (T-ISO-1)."""
    run_state_machine_as_test(Owners, settings=steps(400, 50))


def steps(examples, each):
    return settings(
        max_examples=examples, stateful_step_count=each, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip


def at_random_in_threads(place, threads, operations):
    """Every thread uses every owner's diary; nobody ever sees a text that begins with another owner's name."""

    def work(number):
        rng = random.Random(number)
        for turn in range(operations):
            owner = rng.choice(CROWD)
            diary, verb = memory.diary(owner), rng.randrange(4)
            if verb == 0:
                diary.remember(f"<{owner}> {rng.choice(WORDS)} {number}.{turn}")
            elif verb == 1:
                found = [hit.note for hit in diary.recall(rng.choice(WORDS), limit=20)]
                assert all(note.text.startswith(f"<{owner}>") and note.owner == owner for note in found)
            elif verb == 2:
                assert all(note.text.startswith(f"<{owner}>") for note in diary.notes())
            elif notes := memory.diary(rng.choice(CROWD)).notes():
                use_an_id(diary, owner, rng.choice(notes), rng)

    with opened(place) as memory, ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))


def use_an_id(diary, owner, note, rng):
    try:
        if rng.randrange(2):
            diary.forget(note.id)
        else:
            diary.edit(note.id, f"<{owner}> edited {rng.random()}")
    except NotFound:
        return  # another owner's, or forgotten by another thread meanwhile
    assert note.owner == owner


def test_owners_stay_apart_in_many_threads(quick):
    """R57: 1,600 random operations in 8 threads; nightly 10,000 and more."""
    at_random_in_threads(quick, 8, 200)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_owners_stay_apart_in_many_threads_for_long(quick):
    """R57."""
    at_random_in_threads(quick, 16, 1000)
