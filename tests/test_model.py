"""A diary is a dictionary that survives: whatever is done to it in whatever order, it is what a plain dictionary is.

R35, R36, R50, R60 to R62 and P-6 at once: remember, say again, replace, correct, forget, expire, page, export and load,
erase and restart, for two owners who never meet. What a plain dictionary would do is written down here, once.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from diarist import NotFound
from diarist.stores import word_index
from diarist.testing import FixedClock
from support import assert_whole, diary_file, opened, quick_folder

OWNERS = st.sampled_from(["ana", "ben"])
TEXTS = st.sampled_from(["Likes tea.", "likes  TEA.", "Has a dog.", "Lives in Rosario.", "Lives in Córdoba.", "猫"])
KEYS = st.sampled_from(["k1", "k2", "k3"])
TAGS = st.lists(st.sampled_from(["home", "taste"]), max_size=2, unique=True)


def same(text):
    return " ".join(text.casefold().split())


@dataclass
class Kept:
    """A note in the dictionary."""

    text: str
    created_at: datetime
    said: int
    tags: tuple[str, ...]
    expires_at: datetime | None = None
    times: int = 1
    replaces: tuple[str, ...] = ()
    replaced_by: str | None = None

    def holds(self, now):
        return self.replaced_by is None and (self.expires_at is None or self.expires_at > now)


@dataclass
class Book:
    """One owner's diary, as a dictionary: ids to notes in the order in which they were first kept."""

    notes: dict[str, Kept] = field(default_factory=dict)
    keys: dict[str, tuple[str, str | None]] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    page: str = ""
    said: int = 0

    def next(self):
        self.said += 1
        return self.said

    def forget(self, ids):
        for id in ids:
            del self.notes[id]
        self.keys = {key: about for key, about in self.keys.items() if about[0] not in ids}
        self.forgotten |= set(ids)


class Diaries(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self.folder = quick_folder()
        self.place = self.folder.__enter__()
        self.clock = FixedClock("2026-03-01T09:00:00Z")
        self.at = 0
        self.open()
        self.books = {"ana": Book(), "ben": Book()}
        self.number = 0
        self.exported: dict[str, tuple[dict, Book]] = {}

    def open(self):
        self.memory = opened(self.place / str(self.at), clock=self.clock)

    def teardown(self):
        self.memory.close()
        self.folder.__exit__(None, None, None)

    def unique(self, what):
        self.number += 1
        return f"{what} number {self.number}."

    def some(self, owner, data):
        return data.draw(st.sampled_from(sorted(self.books[owner].notes)))

    @rule(owner=OWNERS, text=TEXTS, tags=TAGS, hours=st.sampled_from([None, None, 1, 30]), data=st.data())
    def remember(self, owner, text, tags, hours, data):
        book, now = self.books[owner], self.clock.advance(1)
        old = data.draw(st.lists(st.sampled_from(sorted(book.notes)), max_size=2, unique=True)) if book.notes else []
        key = data.draw(st.none() | KEYS)
        expires = None if hours is None else now + timedelta(hours=hours)
        asked = {"tags": tags, "expires_at": expires, "replaces": old, "key": key}
        if key in book.keys and book.keys[key][1] not in (None, same(text)):
            with pytest.raises(ValueError, match="used before"):
                self.memory.diary(owner).remember(text, **asked)
            return
        note = self.memory.diary(owner).remember(text, **asked)
        if key in book.keys:  # the same request again
            assert note.id == book.keys[key][0]
            return
        twins = [id for id, kept in book.notes.items() if same(kept.text) == same(text) and kept.holds(now)]
        if twins:
            kept = book.notes[twins[-1]]
            assert note.id == twins[-1]
            kept.times, kept.created_at, kept.expires_at, kept.said = kept.times + 1, now, expires, book.next()
            kept.tags = tuple(dict.fromkeys([*kept.tags, *tags]))
        else:
            assert note.id not in book.notes
            kept = book.notes[note.id] = Kept(text, now, book.next(), tuple(tags), expires)
        if key is not None:
            book.keys[key] = (note.id, same(text))
        for id in old:
            if id != note.id:
                book.notes[id].replaced_by = note.id
                kept.replaces = tuple(dict.fromkeys([*kept.replaces, id]))

    @rule(owner=OWNERS, many=st.integers(2, 6))
    def remember_many(self, owner, many):
        book, now = self.books[owner], self.clock.advance(1)
        for note in self.memory.diary(owner).remember_many([self.unique("Fact") for _ in range(many)]):
            book.notes[note.id] = Kept(note.text, now, book.next(), ())

    @precondition(lambda self: self.books["ana"].notes or self.books["ben"].notes)
    @rule(owner=OWNERS, data=st.data())
    def edit(self, owner, data):
        if not self.books[owner].notes:
            return
        id, text = self.some(owner, data), self.unique("Corrected")
        assert self.memory.diary(owner).edit(id, text).id == id
        self.books[owner].notes[id].text = text
        self.books[owner].keys = {
            k: (of, None if of == id else text) for k, (of, text) in self.books[owner].keys.items()
        }

    @precondition(lambda self: self.books["ana"].notes or self.books["ben"].notes)
    @rule(owner=OWNERS, data=st.data())
    def forget(self, owner, data):
        book = self.books[owner]
        if not book.notes:
            return
        ids = data.draw(st.lists(st.sampled_from(sorted(book.notes)), min_size=1, max_size=3, unique=True))
        report = self.memory.diary(owner).forget(ids)
        assert report.notes == len(ids)
        assert not report.pending
        book.forget(ids)
        with pytest.raises(NotFound):
            self.memory.diary(owner).note(ids[0])

    @rule(hours=st.sampled_from([1, 24, 24 * 20]))
    def time_passes(self, hours):
        self.clock.advance(timedelta(hours=hours))

    @rule(owner=OWNERS)
    def expire(self, owner):
        book, diary = self.books[owner], self.memory.diary(owner)
        if not book.notes:
            return
        diary.retention_days = 30
        old = [id for id, kept in book.notes.items() if kept.created_at < self.clock() - timedelta(days=30)]
        assert diary.expire().notes == len(old)
        book.forget(old)
        diary.retention_days = None

    @rule(owner=OWNERS, line=st.sampled_from(["Tea.", "Dog.", "猫"]))
    def add_to_the_page(self, owner, line):
        self.memory.diary(owner).page.add(line)
        if f"- {line}" not in self.books[owner].page.splitlines():
            self.books[owner].page += f"- {line}\n"

    @rule(owner=OWNERS, text=st.sampled_from(["", "# Page\n", "Other.\n"]))
    def write_the_page(self, owner, text):
        page = self.memory.diary(owner).page
        assert page.read() == self.books[owner].page
        page.write(text)
        self.books[owner].page = text

    @rule(owner=OWNERS)
    def export(self, owner):
        book = self.books[owner]
        copied = {id: replace(kept) for id, kept in sorted(book.notes.items(), key=lambda each: each[1].said)}
        self.exported[owner] = (
            json.loads(json.dumps(self.memory.diary(owner).export())),
            Book(copied, dict(book.keys), set(), book.page),
        )

    @precondition(lambda self: self.exported)
    @rule(owner=OWNERS)
    def load(self, owner):
        """An export of before, into what the diary has become since."""
        if owner not in self.exported:
            return
        exported, then = self.exported[owner]
        book = self.books[owner]
        new = {id: kept for id, kept in then.notes.items() if id not in book.notes and id not in book.forgotten}
        assert self.memory.diary(owner).load(exported) == len(new)
        for id, kept in new.items():
            book.notes[id] = replace(kept, said=book.next())
        for key, about in then.keys.items():
            if about[0] in new:
                book.keys.setdefault(key, about)
        book.page = book.page or then.page

    @rule()
    def move(self):
        """Everything is exported, and goes on in another place."""
        moved = {owner: json.loads(json.dumps(self.memory.diary(owner).export())) for owner in self.books}
        self.memory.close()
        self.at += 1
        self.open()
        for owner, book in self.books.items():
            self.memory.diary(owner).load(moved[owner])
            book.notes = dict(sorted(book.notes.items(), key=lambda each: each[1].said))
            book.forgotten = set()

    @rule(owner=OWNERS)
    def erase(self, owner):
        assert self.memory.erase(owner).notes == len(self.books[owner].notes)
        self.books[owner] = Book()

    @rule()
    def restart(self):
        self.memory.close()
        self.open()

    @rule(owner=OWNERS, question=TEXTS)
    def recall(self, owner, question):
        now, book = self.clock(), self.books[owner]
        held = {id for id, kept in book.notes.items() if kept.holds(now)}
        found = [hit.note.id for hit in self.memory.diary(owner).recall(question, limit=1_000)]
        assert len(found) == len(set(found))
        assert set(found) <= held
        exact = {id for id in held if same(book.notes[id].text) == same(question)}
        assert set(found[: len(exact)]) == exact

    @invariant()
    def the_same_as_the_dictionary(self):
        for owner, book in self.books.items():
            diary, now = self.memory.diary(owner), self.clock()
            every = diary.notes(include_replaced=True)
            assert {note.id: self.seen(note) for note in every} == {
                id: (k.text, k.created_at, frozenset(k.tags), k.expires_at, k.times, k.replaces, k.replaced_by)
                for id, k in book.notes.items()
            }
            assert all(note.owner == owner and not note.pending for note in every)
            newest = sorted(book.notes, key=lambda it: (book.notes[it].created_at, book.notes[it].said), reverse=True)
            assert [note.id for note in every] == newest
            held = [id for id in newest if book.notes[id].holds(now)]
            assert [note.id for note in diary.notes()] == held
            assert diary.count() == len(held)
            assert diary.page.read() == book.page
            if (path := diary_file(self.place / str(self.at), owner)).exists():
                assert_whole(path)

    @staticmethod
    def seen(note):
        return (
            note.text, note.created_at, frozenset(note.tags), note.expires_at, note.times, note.replaces,
            note.replaced_by,
        )  # fmt: skip


def steps(examples, each):
    return settings(
        max_examples=examples, stateful_step_count=each, deadline=None, database=None, derandomize=True,
        suppress_health_check=list(HealthCheck), phases=[Phase.generate],
    )  # fmt: skip


@pytest.mark.parametrize("filed", [2, 256])
def test_a_diary_is_what_a_dictionary_would_be(filed, monkeypatch):
    """R35 and the rest: 600 random steps with the word index in use almost at once, and 600 without."""
    monkeypatch.setattr(word_index, "FILE_AT", filed)
    run_state_machine_as_test(Diaries, settings=steps(20, 30))


@pytest.mark.nightly
@pytest.mark.timeout(1200)
def test_a_diary_is_what_a_dictionary_would_be_for_long(monkeypatch):
    """R35 and the rest, 10,000 steps."""
    monkeypatch.setattr(word_index, "FILE_AT", 3)
    run_state_machine_as_test(Diaries, settings=steps(200, 50))
