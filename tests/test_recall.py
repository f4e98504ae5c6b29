"""From a question to hits: what may be a candidate, what the score may depend on, in which order, and at what price."""

from __future__ import annotations

import itertools
import math
import time
from datetime import UTC, datetime, timedelta

import apsw
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from diarist import EmbedderError, Memory
from diarist.calibration import STRONG_AT, WEAK_AT
from diarist.embedders import bundled
from diarist.embedders.bundled import PAIR_ID, USE_ID
from diarist.embedders.endpoint import Endpoint
from diarist.testing import FixedClock, HashEmbedder, LoopbackEndpoint

pytestmark = pytest.mark.timeout(60)

DAY = timedelta(days=1)
T0 = datetime(2025, 3, 1, 9, tzinfo=UTC)
MANY = 20_000


class Headless(HashEmbedder):
    """A fake that does not look at what stands before a text: who said it, and when."""

    def embed_notes(self, texts, /):
        return super().embed_notes([text.rpartition(": ")[2] for text in texts])


class Meaning(Headless):
    """A fake that knows two facts of meaning: a hound is a dog, and it has never heard of Zanzibar."""

    def embed_notes(self, texts, /):
        return super().embed_notes([text.lower().replace("hound", "dog").replace("zanzibar", "…") for text in texts])


class Bad(HashEmbedder):
    """Gives `self.row` instead of a right vector wherever a text holds "bad"."""

    row: float | list[float] = float("nan")

    def embed_notes(self, texts, /):
        vectors = super().embed_notes(texts)
        for i, text in enumerate(texts):
            if "bad" in text:
                vectors[i] = self.row
        return vectors


@pytest.fixture
def embedder():
    return Headless()


@pytest.fixture
def clock():
    return FixedClock(T0)


@pytest.fixture
def memory(tmp_path, embedder, clock):
    with Memory(tmp_path / "memory", embedder=embedder, clock=clock) as memory:
        yield memory


@pytest.fixture
def diary(memory):
    return memory.diary("c-2291")


@pytest.fixture(scope="module")
def huge(tmp_path_factory):
    """20,000 notes, the ones to be found the oldest among them."""
    with Memory(tmp_path_factory.mktemp("huge") / "memory", embedder=Meaning(), clock=FixedClock(T0)) as memory:
        diary = memory.diary("c-2291")
        diary.remember_many(
            [
                {"text": "Their hound.", "tags": ["pet"], "source": "vet", "happened_at": "2020-05-05T12:00:00Z"},
                {"text": "Zanzibar.", "tags": ["travel"]},
            ]
        )
        diary.remember_many(f"the tea of shelf w{i % 5003}" for i in range(MANY))
        yield diary


def found(recall):
    return [hit.note.text for hit in recall]


def scores(recall):
    return {hit.note.text: hit.score for hit in recall}


def parts(hit):
    return {part.name for part in hit.why}


class TestCost:
    def test_r14_one_embedding_for_each_new_note_and_each_question_at_a_real_endpoint(self, tmp_path):
        with LoopbackEndpoint() as server:
            embedder = Endpoint("m", server.base_url)
            with Memory(tmp_path / "m", embedder=embedder) as memory:
                diary = memory.diary("c")
                diary.recall("Anything?")
                assert server.texts == [], "R51: an empty diary pays no embedding"
                diary.remember("Buys Colombia.")
                asked = server.texts.count("Buys Colombia.")
                diary.remember("buys colombia. ")
                diary.remember("Ground for a moka pot.")
                diary.recall("What does she buy?")
                diary.recall("What does she buy?", limit=1)
                diary.notes()
                assert asked == 1
                assert server.texts.count("Buys Colombia.") == 1
                assert "buys colombia. " not in server.texts
                assert server.texts.count("Ground for a moka pot.") == 1
                assert server.texts.count("What does she buy?") == 2

    def test_r14_counted_at_the_embedder(self, diary, embedder):
        for i in range(5):
            diary.remember(f"fact {i}")
        assert (embedder.calls, len(embedder.texts)) == (5, 5)
        diary.recall("fact 1?")
        assert (embedder.calls, embedder.texts[-1]) == (6, "fact 1?")

    def test_r51_no_embedding_when_there_is_nothing_to_find(self, diary, embedder):
        assert diary.recall("tea?").verdict == "nothing"
        note = diary.remember("tea")
        diary.forget(note.id)
        embedder.calls = 0
        assert diary.recall("tea?").hits == ()
        assert embedder.calls == 0

    def test_common_words_cost_no_more_than_a_bound_in_a_huge_diary(self, huge):
        """Measured: 0.04 s on a quiet machine of two cores, 0.10 s on a busy one."""

        def seconds(question):
            took = []
            for _ in range(3):
                start = time.perf_counter()
                huge.recall(question)
                took.append(time.perf_counter() - start)
            return min(took)

        huge.recall("warm")
        assert seconds("the tea of the shelf, the tea of the shelf") < 0.5


class TestArguments:
    @pytest.mark.parametrize("bad", ["", " \n", "\u200b", "\0"])
    def test_a_blank_question_is_refused(self, diary, embedder, bad):
        with pytest.raises(ValueError, match="blank"):
            diary.recall(bad)
        assert embedder.calls == 0

    @pytest.mark.parametrize(
        ("asked", "error"),
        [
            ({"limit": 0}, ValueError),
            ({"limit": -1}, ValueError),
            ({"limit": 2.0}, TypeError),
            ({"limit": True}, TypeError),
            ({"where": "everywhere"}, ValueError),
            ({"min_score": 1.01}, ValueError),
            ({"min_score": -0.1}, ValueError),
            ({"min_score": float("nan")}, ValueError),
            ({"min_score": "0.5"}, TypeError),
        ],
    )
    def test_a_bad_argument_is_refused(self, diary, asked, error):
        diary.remember("tea")
        with pytest.raises(error):
            diary.recall("tea", **asked)

    def test_a_question_that_is_no_text_is_refused(self, diary):
        for bad in (None, 7, b"tea"):
            with pytest.raises(TypeError):
                diary.recall(bad)

    def test_a_question_with_half_a_character_or_a_nul_fails_no_turn(self, diary):
        diary.remember("party at eight")
        assert found(diary.recall("party \ud83d")) == found(diary.recall("\0party")) == ["party at eight"]

    def test_a_long_question_is_cut_and_that_is_said(self, diary, embedder):
        """The end stays: that is where the question stands."""
        diary.remember_many(["likes tea", "has a dog"])
        asked = "x" * 31_982 + "\n\nWhat of the tea?"
        assert diary.recall(asked).notices == ()
        cut = diary.recall("y" + asked)
        assert "cut to its last 32,000" in cut.notices[0]
        assert cut[0].note.text == "likes tea"
        assert embedder.texts[-2] == "What of the tea?"

    def test_r48_eight_facts_by_default(self, diary):
        diary.remember_many(f"fact {i}" for i in range(12))
        assert len(diary.recall("fact")) == 8
        assert [len(diary.recall("fact", limit=limit)) for limit in (3, 12, 5000)] == [3, 12, 12]

    def test_notes_below_every_floor_are_still_returned(self, diary):
        """Only min_score drops a hit: the verdict says what they are worth."""
        diary.remember_many(["likes tea", "has a dog"])
        answer = diary.recall("quantum chromodynamics")
        assert (len(answer), answer.verdict) == (2, "nothing")


WORDS = ("tea", "coffee", "the", "of", "rosario", "Córdoba", "花生", "過敏", "7")
ODD_WORDS = (*WORDS, "sync-7b", "'; DROP", '"*', "👩‍👩‍👧", "moka")
question = st.lists(st.sampled_from(ODD_WORDS) | st.text(max_size=6), max_size=9).map(
    lambda words: " ".join(["tea", *words])
)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Notes that share words in every way, so that scores are close and often equal."""
    with Memory(tmp_path_factory.mktemp("mixed") / "memory", embedder=HashEmbedder(), clock=FixedClock(T0)) as memory:
        diary = memory.diary("c")
        for first, second in itertools.combinations(WORDS, 2):
            diary.remember(f"{first} {second} tea" if first < second else f"{second} and {first}")
        yield diary


class TestScore:
    @settings(max_examples=60, deadline=None)
    @given(asked=question)
    def test_r43_why_adds_up_to_the_log_odds_of_the_score(self, mixed, asked):
        for hit in mixed.recall(asked, limit=40):
            assert 0 < hit.score < 1
            assert math.isclose(
                sum(part.value for part in hit.why), math.log(hit.score / (1 - hit.score)), abs_tol=1e-6
            )
            assert all(part.text and math.isfinite(part.value) for part in hit.why)

    @settings(max_examples=40, deadline=None)
    @given(asked=question)
    def test_the_score_is_the_same_whatever_the_limit(self, mixed, asked):
        every = mixed.recall(asked, limit=100)
        for limit in (1, 2, 5, 8):
            some = mixed.recall(asked, limit=limit)
            assert [(hit.note.id, hit.score) for hit in some] == [
                (hit.note.id, hit.score) for hit in every.hits[:limit]
            ]
            assert some.verdict == every.verdict

    def test_the_score_hardly_depends_on_unrelated_notes(self, diary):
        """From 30 notes to 330: words grow rarer, and with more to choose from the best of them says less."""
        diary.remember_many([f"kettle number {i} in the shed" for i in range(28)])
        diary.remember_many(["Buys Colombia every month.", "Allergic to hazelnuts."])
        asked = ("Buys Colombia?", "hazelnuts allergic", "Which dog?")
        before = [scores(diary.recall(each, limit=40)) for each in asked]
        diary.remember_many([f"kettle number {i} in the shed" for i in range(100, 400)])
        after = [scores(diary.recall(each, limit=400)) for each in asked]
        for one, other in zip(before, after, strict=True):
            moved = {text: other[text] - score for text, score in one.items()}
            assert max(map(abs, moved.values())) < 0.15, moved

    def test_unrelated_notes_do_not_change_who_is_before_whom(self, diary):
        mine = ["Buys Colombia every month.", "Colombia is where she was born.", "Every month she pays."]
        diary.remember_many(mine)
        asked = "Buys Colombia every month"
        before = found(diary.recall(asked))
        diary.remember_many([f"kettle number {i} in the shed" for i in range(300)])
        assert [text for text in found(diary.recall(asked, limit=400)) if text in mine] == before

    def test_r42_the_length_of_a_vector_does_not_count(self, tmp_path, clock):
        class Scaled(HashEmbedder):
            factor = 1.0

            def embed_notes(self, texts, /):
                return super().embed_notes(texts) * self.factor

        told = []
        for factor in (1.0, 1e-20, 1e20):
            embedder = Scaled()
            embedder.factor = factor
            with Memory(tmp_path / f"m{factor}", embedder=embedder, clock=clock) as memory:
                diary = memory.diary("c")
                diary.remember_many(["likes green tea", "likes coffee"])
                told.append(scores(diary.recall("green tea")))
        assert told[1] == pytest.approx(told[0], abs=1e-3)
        assert told[2] == pytest.approx(told[0], abs=1e-3)

    def test_r42_note_and_question_may_change_places_and_a_cosine_is_at_most_one(self, memory):
        def cosine(note, asked):
            diary = memory.diary(note)
            diary.remember(note)
            (part,) = [part for part in diary.recall(asked)[0].why if part.name == "meaning"]
            return part.text.split(",")[0]

        assert cosine("likes green tea", "green tea or coffee") == cosine("green tea or coffee", "likes green tea")
        assert cosine("the very same text", "the very same text") == "cosine 1.00"

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), 0.0])
    def test_r44_a_bad_vector_is_not_kept_and_hurts_no_other_note(self, tmp_path, clock, bad):
        embedder = Bad()
        embedder.row = bad
        with Memory(tmp_path / "m", embedder=embedder, clock=clock) as memory:
            diary = memory.diary("c")
            kept = diary.remember_many(["likes tea", "bad coffee", "has a dog"])
            assert [note.pending for note in kept] == [False, True, False]
            assert diary.remember("bad cake").pending
            answer = diary.recall("coffee")
            assert found(answer)[0] == "bad coffee"
            assert all(0 < hit.score < 1 for hit in answer)
            assert any("await" in notice for notice in answer.notices)
            words_only = diary.recall("bad coffee")
            assert any("words only" in notice for notice in words_only.notices)

    def test_r44_vectors_of_a_wrong_size_are_not_kept(self, tmp_path, clock):
        embedder = HashEmbedder(64)
        with Memory(tmp_path / "m", embedder=embedder, clock=clock) as memory:
            diary = memory.diary("c")
            diary.remember("likes tea")
            embedder.dim = 32
            embedder.embed_notes = lambda texts: np.ones((len(texts), 64), np.float32)
            assert diary.remember("likes coffee").pending
            assert sorted(found(diary.recall("likes"))) == ["likes coffee", "likes tea"]

    @pytest.mark.parametrize(
        "stored",
        [np.full(64, np.nan), np.full(64, np.inf), np.zeros(64), np.ones(63), np.ones(0), None],
        ids=["nan", "infinite", "zero", "short", "empty", "odd number of bytes"],
    )
    def test_r45_a_bad_vector_in_the_file_hurts_no_other_note(self, tmp_path, clock, stored):
        place = tmp_path / "m"
        with Memory(place, embedder=HashEmbedder(), clock=clock) as memory:
            diary = memory.diary("c")
            damaged = diary.remember("has a dog")
            diary.remember_many(["likes tea", "likes coffee"])
            before = scores(diary.recall("likes tea"))
        db = apsw.Connection(str(next(place.glob("*/diary.db"))))
        blob = b"\x00" * 127 if stored is None else stored.astype("<f2").tobytes()
        of_it = "place / 4096 = (SELECT seq FROM notes WHERE id = ?)"
        db.execute(f"UPDATE vectors SET vector = ? WHERE {of_it}", (blob, damaged.id))
        db.close()
        with Memory(place, embedder=HashEmbedder(), clock=clock) as memory:
            answer = memory.diary("c").recall("likes tea")
            after = scores(answer)
            assert all(0 < score < 1 for score in after.values())
            assert {text: after[text] for text in ("likes tea", "likes coffee")} == pytest.approx(
                {text: before[text] for text in ("likes tea", "likes coffee")}
            )
            assert found(answer)[-1] == "has a dog"
            assert found(memory.diary("c").recall("dog"))[0] == "has a dog"


class TestVerdictAndFloor:
    def test_r63_r64_the_best_score_decides(self, diary):
        diary.remember_many([f"kettle number {i} in the shed" for i in range(30)])
        diary.remember("Buys Colombia every month.")
        seen = set()
        for asked in (
            "Buys Colombia every month",
            "Colombia, monthly",
            "quantum physics",
            "number",
        ):
            answer = diary.recall(asked)
            best = max(hit.score for hit in answer)
            assert answer.verdict == (
                "strong" if best >= STRONG_AT else "weak" if best >= WEAK_AT["note"] else "nothing"
            )
            seen.add(answer.verdict)
        assert seen == {"strong", "weak", "nothing"}

    def test_r47_min_score_is_inclusive_and_a_higher_one_only_drops_hits(self, diary):
        diary.remember_many(["likes green tea", "likes tea", "likes coffee", "has a dog"])
        every = diary.recall("likes green tea")
        assert len({hit.score for hit in every}) == 4
        for kept, hit in enumerate(every, 1):
            assert diary.recall("likes green tea", min_score=hit.score).hits == every.hits[:kept]
            above = math.nextafter(hit.score, 1)
            assert diary.recall("likes green tea", min_score=above).hits == every.hits[: kept - 1]
        assert diary.recall("likes green tea", min_score=0).hits == every.hits
        assert diary.recall("likes green tea", min_score=1).verdict == "nothing"


class TestOrder:
    def test_best_first(self, diary):
        diary.remember_many(["has a dog", "likes green tea", "likes coffee"])
        answer = diary.recall("green tea")
        assert found(answer)[0] == "likes green tea"
        assert [hit.score for hit in answer] == sorted((hit.score for hit in answer), reverse=True)

    def test_r49_equal_scores_newest_first_by_when_it_happened(self, diary):
        """Written from the newest to the oldest, so that the order of writing is the wrong one."""
        for day, words in enumerate(itertools.islice(itertools.permutations(("rose", "mint", "sage", "dill")), 12)):
            diary.remember(" ".join(words), happened_at=T0 - day * DAY)
        answer = diary.recall("rose mint", limit=12)
        assert max(hit.score for hit in answer) == pytest.approx(min(hit.score for hit in answer))
        days = [hit.note.happened_at for hit in answer]
        assert days == sorted(days, reverse=True)

    def test_r49_the_newest_of_equals_whatever_the_limit(self, diary):
        for day, words in enumerate(itertools.islice(itertools.permutations(("rose", "mint", "sage", "dill")), 12)):
            diary.remember(" ".join(words), happened_at=T0 - day * DAY)
        firsts = [diary.recall("rose mint", limit=limit)[0].note.happened_at for limit in (1, 2, 12)]
        assert firsts == [T0, T0, T0]

    def test_r49_the_same_again_and_in_another_process_s_memory(self, tmp_path, diary):
        diary.remember_many([f"likes tea {i}" for i in range(20)])
        first = [(hit.note.id, hit.score) for hit in diary.recall("likes tea")]
        assert [(hit.note.id, hit.score) for hit in diary.recall("likes tea")] == first
        with Memory(tmp_path / "memory", embedder=HashEmbedder()) as other:
            again = [(hit.note.id, hit.score) for hit in other.diary("c-2291").recall("likes tea")]
        assert [id for id, _ in again] == [id for id, _ in first]
        assert [score for _, score in again] == pytest.approx([score for _, score in first])

    def test_r60_a_newer_note_that_says_nearly_the_same_is_as_sure_as_the_older(self, diary, clock):
        older = diary.remember("home city of the customer is Rosario")
        clock.advance(DAY)
        newer = diary.remember("home city of the customer is Cordoba nowadays indeed")
        first, second = diary.recall("home city of the customer")
        assert [first.note.id, second.note.id] == [newer.id, older.id]
        assert first.score == pytest.approx(second.score)
        assert ("newer" in parts(first), second.older_than) == (True, newer.id)


class TestCandidates:
    def test_by_meaning_only_among_twenty_thousand(self, huge):
        first = huge.recall("dog")[0]
        assert first.note.text == "Their hound."
        assert "words" not in parts(first)

    def test_by_words_only_among_twenty_thousand(self, huge):
        """Every other note is nearer by meaning: they share "the" with the question, this one shares nothing."""
        hit = huge.recall("the shop in zanzibar", limit=1)[0]
        assert hit.note.text == "Zanzibar."
        (meaning,) = [part for part in hit.why if part.name == "meaning"]
        assert "cosine 0.00" in meaning.text or "cosine -0.00" in meaning.text

    @pytest.mark.parametrize(
        "narrow",
        [
            {"tags": ["pet"]},
            {"source": "vet"},
            {"before": "2021-01-01T00:00:00Z"},
            {"since": "2020-05-05T12:00:00Z", "before": "2020-05-05T12:00:01Z"},
            {"as_of": "2021-01-01T00:00:00Z"},
        ],
    )
    def test_rw_023_a_narrow_filter_brings_the_one_match(self, huge, narrow):
        for asked in ("the tea of shelf", "zanzibar"):
            assert found(huge.recall(asked, **narrow)) == ["Their hound."]

    def test_rw_023_a_filter_that_lets_nothing_through_ends(self, huge):
        assert found(huge.recall("tea", tags=["nobody has this"])) == []

    def test_rw_023_a_very_large_limit_is_served(self, huge):
        assert len(huge.recall("the tea", limit=5000)) == 1000

    def test_a_filter_that_lets_some_of_a_small_diary_through_ends(self, diary):
        diary.remember_many([{"text": "likes tea", "tags": ["a"]}, "likes coffee", "likes cake"])
        assert found(diary.recall("likes", tags=["a"])) == ["likes tea"]
        assert found(diary.recall("likes", since=T0 + DAY)) == []

    def test_the_one_that_holds_is_found_under_a_thousand_that_expired(self, diary):
        diary.remember("The kettle.")
        diary.remember_many({"text": f"tea {i}", "expires_at": T0 - DAY} for i in range(1500))
        assert found(diary.recall("tea")) == ["The kettle."]


class TestEmbedders:
    def test_r53_embedder_down_and_back(self, diary, embedder):
        diary.remember("likes green tea")
        embedder.down = True
        pending = diary.remember("likes black coffee")
        assert pending.pending
        answer = diary.recall("green tea")
        assert found(answer)[0] == "likes green tea"
        assert any("words only" in notice for notice in answer.notices)
        assert all("meaning" not in parts(hit) for hit in answer)
        assert found(diary.recall("black coffee"))[0] == "likes black coffee"
        embedder.down = False
        back = diary.recall("black coffee")
        assert back.notices == ()
        assert all("meaning" in parts(hit) for hit in back)
        assert not diary.note(pending.id).pending

    def test_r53_any_error_of_a_users_own_embedder_is_survived_and_told(self, tmp_path):
        class Mine(HashEmbedder):
            def embed_notes(self, texts, /):
                raise ZeroDivisionError("in my code")

        with Memory(tmp_path / "m", embedder=Mine()) as memory:
            diary = memory.diary("c")
            assert diary.remember("likes tea").pending
            answer = diary.recall("tea")
            assert found(answer) == ["likes tea"]
            assert any("in my code" in notice for notice in answer.notices)

    def test_r53_notes_that_were_kept_but_not_the_question(self, diary, embedder, monkeypatch):
        diary.remember("likes tea")

        def down(text):
            raise EmbedderError("no question today")

        monkeypatch.setattr(embedder, "embed_query", down)
        answer = diary.recall("tea")
        assert found(answer) == ["likes tea"]
        assert any("no question today" in notice for notice in answer.notices)

    @pytest.mark.parametrize("dim", [64, 32])
    def test_r46_vectors_of_another_embedder_are_never_compared(self, tmp_path, clock, dim):
        """The other one has the same size, or not: what differs is its id."""
        place = tmp_path / "m"
        with Memory(place, embedder=HashEmbedder(64, "old-model"), clock=clock) as memory:
            memory.diary("c").remember_many(["likes green tea", "has a dog"])
        with Memory(place, embedder=HashEmbedder(dim, "new-model"), clock=clock) as memory:
            diary = memory.diary("c")
            answer = diary.recall("green tea")
            assert found(answer)[0] == "likes green tea", "its words still find it"
            assert all("meaning" not in parts(hit) for hit in answer)
            assert any("old-model" in notice and "new-model" in notice for notice in answer.notices)
            new = diary.remember("likes green apples")
            hits = {hit.note.text: hit for hit in diary.recall("green")}
            assert "meaning" in parts(hits[new.text])
            assert "meaning" not in parts(hits["likes green tea"])
            diary.edit(answer[0].note.id, "likes green tea leaves")
            hits = {hit.note.text: hit for hit in diary.recall("green")}
            assert "meaning" in parts(hits["likes green tea leaves"])
            diary.forget([note.id for note in diary.notes() if note.text == "has a dog"])
            assert diary.recall("green").notices == ()

    @pytest.mark.skipif(not bundled._e5_runs(), reason="needs the pair")
    def test_use_reads_the_vectors_that_the_pair_made(self, tmp_path):
        place = tmp_path / "m"
        with Memory(place, embedder="bundled") as memory:
            assert memory.embedder.id == PAIR_ID
            memory.diary("c").remember_many(["Her dog is called Pipoca.", "The invoice is due on Friday."])
        with Memory(place, embedder="use") as memory:
            assert memory.embedder.id == USE_ID
            answer = memory.diary("c").recall("What is the name of the pet?")
            assert answer.notices == ()
            assert found(answer)[0] == "Her dog is called Pipoca."
            assert all("meaning" in parts(hit) for hit in answer)

    def test_the_pair_does_not_read_the_vectors_of_use_alone(self):
        assert USE_ID not in getattr(bundled.Pair(), "reads", {})
