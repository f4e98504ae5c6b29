"""What every store must do, isolation first. For `stores/` and for those who write a store of their own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from ..analysis import fold, terms
from ..errors import NotFound
from ..stores import DiaryStore, Draft, Filter, Store

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NOW = Filter(now=NOON + timedelta(days=1000))


def draft(text: str, *numbers: float, at: datetime = NOON, embedder: str = "contract-2", **more: Any) -> Draft:
    """A note on its way in; with two numbers it has one vector, with four two windows, with none it is pending."""
    vectors: NDArray[np.float32] | None = None
    if numbers:
        import numpy

        vectors = numpy.array(numbers, numpy.float32).reshape(-1, 2)
        vectors /= numpy.linalg.norm(vectors, axis=1, keepdims=True)
    return Draft(
        text=text,
        words=tuple(terms(text)),
        fingerprint=fold(text).encode(),
        created_at=at,
        vectors=vectors,
        embedder=embedder if numbers else "",
        **more,
    )


class StoreContract:
    """Subclass it in a test module and give it a fixture named `store` that opens an empty store.

    class TestMine(StoreContract):
        @pytest.fixture
        def store(self, tmp_path):
            return MyStore(tmp_path)
    """

    def test_what_one_owner_writes_another_cannot_reach(self, store: Store) -> None:
        ana, ben = store.diary("ana"), store.diary("ben")
        secret = ana.write([draft("The safe code is 4471.", 1, 0, key="k", tags=("t",), source="s")])[0]
        ben.write([draft("Likes tea.", 0, 1)])
        seqs = _seqs(ana)
        assert [note.text for note in ben.notes(NOW)] == ["Likes tea."]
        assert ben.postings(terms("safe code 4471"), 100) == {}
        assert all(entry.note.owner == "ben" for entry in ben.entries(range(1000)))
        assert all("4471" not in words for words in ben.words_of(seqs).values())
        assert ben.counts().notes == 1
        assert ben.twin(draft("The safe code is 4471.", key="k")) is None
        for act in (
            lambda: ben.note(secret.id),
            lambda: ben.edit(secret.id, draft("Changed.")),
            lambda: ben.forget([secret.id], NOON),
            lambda: ben.write([draft("New.", replaces=(secret.id,))]),
        ):
            assert _raises(NotFound, act)
        assert [note.text for note in ana.notes(NOW)] == ["The safe code is 4471."]
        assert [note.text for note in ben.notes(NOW)] == ["Likes tea."]

    def test_owners_that_look_alike_are_apart(self, store: Store) -> None:
        alike = [
            "a",
            "A",
            "a ",
            "á",
            "a\u0301",
            "a_b",
            "axb",
            "a%",
            "*",
            "../a",
            "a/b",
            "con",
            "CON",
            "é" * 500,
            "é" * 501,
        ]
        for owner in alike:
            store.diary(owner).write([draft(f"Of {owner}.", 1, 0)])
        assert store.owners() == sorted(alike)
        for owner in alike:
            assert [note.text for note in store.diary(owner).notes(NOW)] == [f"Of {owner}."]

    def test_nothing_is_there_before_the_first_write(self, store: Store) -> None:
        empty = store.diary("nobody")
        assert (empty.notes(NOW), empty.postings(["x"], 9), empty.newest(9), empty.pending(9)) == ([], {}, [], [])
        assert (empty.position(), empty.counts().notes, empty.secret, empty.setting("timezone")) == (0, 0, b"", None)
        assert list(empty.vectors()) == []
        assert _raises(NotFound, lambda: empty.note("x"))
        assert store.owners() == []

    def test_a_note_comes_back_as_it_was_given(self, store: Store) -> None:
        diary, later = store.diary("o"), NOON + timedelta(days=3, microseconds=1)
        odd = "Zwölf Boxkämpfer 🎉👨‍👩‍👧 \u202emark\n\ttab"
        kept = diary.write(
            [
                draft(odd, 1, 0, happened_at=later, expires_at=later, source="web",
                      origin="third_party", tags=("b", "a"), key="k1", session="s")
            ]
        )[0]  # fmt: skip
        again = diary.note(kept.id)
        assert again == kept
        assert (again.text, again.owner) == (odd, "o")
        assert (again.created_at, again.happened_at, again.expires_at) == (NOON, later, later)
        assert (again.source, again.origin, again.tags, again.session) == ("web", "third_party", ("b", "a"), "s")
        assert (again.times, again.pending, again.replaced_by, again.replaces) == (1, False, None, ())

    def test_all_of_a_batch_or_none(self, store: Store) -> None:
        diary = store.diary("o")
        assert _raises(NotFound, lambda: diary.write([draft("One."), draft("Two.", replaces=("nobody",))]))
        assert diary.notes(NOW) == []
        assert diary.postings(terms("One Two"), 9) == {}

    def test_words_are_found_in_few_and_in_many_notes_and_after_edit_and_forget(self, store: Store) -> None:
        diary = store.diary("o")
        notes = diary.write([draft(f"Order {n} of coffee") for n in range(700)])
        notes += diary.write([draft("The last order of tea tea")])
        assert diary.postings(["coffe", *terms("coffee")], 10_000)[terms("coffee")[0]].notes == 700
        tea = diary.postings(terms("tea"), 10_000)[terms("tea")[0]]
        assert (tea.notes, tea.times.tolist()) == (1, [2])
        newest = diary.postings(terms("order"), 50)[terms("order")[0]]
        assert newest.notes == 701
        assert set(_seqs(diary, notes[-50:])) <= set(newest.seqs.tolist())
        diary.edit(notes[0].id, draft("Cocoa, not the other"))
        diary.forget([notes[1].id], NOON)
        assert diary.postings(terms("coffee"), 10_000)[terms("coffee")[0]].notes == 698
        assert diary.postings(terms("cocoa"), 9)[terms("cocoa")[0]].seqs.tolist() == _seqs(diary, notes[:1])
        assert diary.counts().words == sum(len(words) for words in diary.words_of(_seqs(diary)).values())

    def test_vectors_follow_their_notes(self, store: Store) -> None:
        diary = store.diary("o")
        one, two = diary.write([draft("One.", 1, 0), draft("Two.", 0, 1, 1, 1)])
        seqs = _seqs(diary, [one, two])
        assert [seq for seq, _, _ in diary.vectors()] == [seqs[0], seqs[1], seqs[1]]
        assert {embedder for _, embedder, _ in diary.vectors()} == {"contract-2"}
        position = diary.position()
        diary.edit(one.id, draft("Won.", 0, 1))
        diary.forget([two.id], NOON)
        assert set(diary.changed(position)) == set(seqs)
        assert [(seq, _numbers(data)) for seq, _, data in diary.vectors(seqs)] == [(seqs[0], [0.0, 1.0])]

    def test_what_is_pending_is_listed_until_its_vectors_come(self, store: Store) -> None:
        import numpy

        diary = store.diary("o")
        diary.write([draft("One."), draft("Two.", 1, 0), draft("Three.")])
        owed = diary.pending(9)
        assert [each.text for each in owed] == ["One.", "Three."]
        assert diary.counts().pending == 2
        assert [each.text for each in diary.pending(9, after=owed[0].seq)] == ["Three."]
        unit = numpy.array([[0, 1]], numpy.float32)
        position = diary.position()
        diary.attach("other-2", [(owed[0][0], "One.", unit), (owed[1][0], "It was edited meanwhile", unit)], NOON)
        assert [each.text for each in diary.pending(9)] == ["Three."]
        assert diary.changed(position) == [owed[0][0]]

    def test_the_same_text_again_is_the_same_note_with_the_later_date(self, store: Store) -> None:
        diary, day = store.diary("o"), timedelta(days=1)
        first = diary.write([draft("Likes  TEA", at=NOON, tags=("a",))])[0]
        again = diary.write([draft("likes tea", at=NOON + day, tags=("b",), source="phone")])[0]
        assert (again.id, again.text, again.times, again.created_at) == (first.id, "Likes  TEA", 2, NOON + day)
        assert (again.tags, again.source) == (("a", "b"), "phone")
        assert diary.counts().notes == 1

    def test_a_key_makes_a_retry_harmless_and_cannot_be_used_for_another_text(self, store: Store) -> None:
        diary = store.diary("o")
        first, again = (diary.write([draft("Likes tea", key="k")])[0] for _ in range(2))
        assert again == first
        assert _raises(ValueError, lambda: diary.write([draft("Likes coffee", key="k")]))

    def test_a_replaced_note_is_kept_out_of_sight(self, store: Store) -> None:
        diary = store.diary("o")
        old = diary.write([draft("Lives in Lyon")])[0]
        new = diary.write([draft("Lives in Porto", at=NOON + timedelta(days=1), replaces=(old.id,))])[0]
        assert [note.id for note in diary.notes(NOW)] == [new.id]
        assert (diary.note(old.id).replaced_by, new.replaces) == (new.id, (old.id,))
        every = diary.notes(Filter(now=NOW.now, include_replaced=True))
        assert [note.id for note in every] == [new.id, old.id]
        assert [note.id for note in diary.notes(Filter(now=NOW.now, as_of=NOON))] == [old.id]
        for filter in (NOW, Filter(now=NOW.now, include_replaced=True), Filter(now=NOW.now, as_of=NOON)):
            assert diary.count(filter) == len(diary.notes(filter))
        back = diary.write([draft("Lives in Lyon", at=NOON + timedelta(days=2), replaces=(new.id,))])[0]
        assert back.id != old.id
        assert [note.id for note in diary.notes(NOW)] == [back.id]

    def test_a_quarantined_note_is_seen_by_who_asks_and_hides_nothing_until_released(self, store: Store) -> None:
        diary, day = store.diary("o"), timedelta(days=1)
        true = diary.write([draft("Lives in Lyon")])[0]
        third = draft("Obey", at=NOON + day, origin="third_party", flagged_for=("a", "b"), replaces=(true.id,))
        held = diary.write([third])[0]
        assert (held.flagged, held.flagged_for, held.released, held.quarantined) == (True, ("a", "b"), False, True)
        everything = Filter(now=NOW.now, include_replaced=True, include_quarantined=True)
        for filter, expected in ((NOW, {true.id}), (everything, {true.id, held.id})):
            assert {note.id for note in diary.notes(filter)} == expected
            assert diary.count(filter) == len(expected)
            assert {entry.note.id for entry in diary.entries(_seqs(diary)) if filter.holds(entry)} == expected
        assert diary.write([draft("Obey", at=NOON + day, origin="agent_inferred")])[0].quarantined
        position = diary.position()
        free = diary.release(held.id, NOON + day)
        assert (free.flagged_for, free.released, free.quarantined) == (("a", "b"), True, False)
        assert diary.position() > position
        position = diary.position()
        assert (diary.release(held.id, NOON + 2 * day), diary.position()) == (free, position)
        assert [note.id for note in diary.notes(NOW)] == [held.id]
        assert diary.note(true.id).replaced_by == held.id
        assert diary.release(true.id, NOON) == diary.note(true.id)
        assert _raises(NotFound, lambda: diary.release("0" * 32, NOON))
        assert _raises(NotFound, lambda: store.diary("other").release(held.id, NOON))

    def test_newest_goes_by_what_happened_then_by_sequence_never_by_the_wall_clock_alone(self, store: Store) -> None:
        diary = store.diary("o")
        diary.write([draft("first", at=NOON)])
        diary.write([draft("second, and the clock jumped back a year", at=NOON - timedelta(days=365))])
        diary.write([draft("of long ago", at=NOON, happened_at=NOON - timedelta(days=900))])
        told = [note.text for note in diary.notes(NOW)]
        assert told == ["second, and the clock jumped back a year", "first", "of long ago"]

    def test_filters(self, store: Store) -> None:
        diary, day = store.diary("o"), timedelta(days=1)
        for n in range(4):
            diary.write([draft(f"n{n}", at=NOON + n * day, tags=("even",) if n % 2 == 0 else (), source=f"s{n}")])
        seqs = _seqs(diary)
        for narrow, expected in (
            (Filter(now=NOW.now, since=NOON + day), [1, 2, 3]),
            (Filter(now=NOW.now, before=NOON + day), [0]),
            (Filter(now=NOW.now, tags=("even",)), [0, 2]),
            (Filter(now=NOW.now, tags=("even", "odd")), []),
            (Filter(now=NOW.now, source="s3"), [3]),
        ):
            assert diary.select(narrow).tolist() == [seqs[n] for n in expected]
            assert [note.text for note in diary.notes(narrow)] == [f"n{n}" for n in reversed(expected)]

    def test_ids_are_random_and_never_given_again(self, store: Store) -> None:
        diary = store.diary("o")
        ids = [diary.write([draft("Likes tea")])[0].id for _ in range(1)]
        for _ in range(20):
            diary.forget(ids[-1:], NOON)
            ids.append(diary.write([draft("Likes tea")])[0].id)
        assert len(set(ids)) == len(ids)
        assert all(len(id) >= 31 for id in ids)  # 122 random bits at least, in hexadecimal

    def test_the_time_zone_stays(self, store: Store) -> None:
        store.diary("o").set_setting("timezone", "America/Lima")
        assert store.diary("o").setting("timezone") == "America/Lima"

    def test_it_forgets_all_or_none(self, store: Store) -> None:
        diary = store.diary("o")
        kept = diary.write([draft("Likes tea")])[0]
        assert _raises(NotFound, lambda: diary.forget([kept.id, "%"], NOON))
        assert [note.id for note in diary.notes(NOW)] == [kept.id]


def _seqs(diary: DiaryStore, notes: Sequence[Any] | None = None) -> list[int]:
    of = {entry.note.id: entry.seq for entry in diary.entries(diary.newest(10_000))}
    return sorted(of.values()) if notes is None else [of[note.id] for note in notes]


def _numbers(data: bytes) -> list[float]:
    import numpy

    return numpy.frombuffer(data, "<f2").tolist()


def _raises(kind: type[BaseException], act: Any) -> bool:
    try:
        act()
    except kind:
        return True
    return False
