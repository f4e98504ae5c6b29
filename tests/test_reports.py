"""Failures that users reported of other memory systems, each with the whole kind of it: what Diarist does instead.

One test, or a few, for each report, named after its id. Meaning is tested with the bundled embedder, the rest with a
hashing one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from zoneinfo import ZoneInfo

import pytest

from diarist import Memory, NotFound
from diarist.embedders.endpoint import Endpoint
from diarist.errors import EmbedderError
from diarist.stores.names import folder_name
from diarist.testing import FixedClock, HashEmbedder, LoopbackEndpoint

pytestmark = pytest.mark.timeout(60)

DAY = timedelta(days=1)
T0 = datetime(2025, 3, 1, 9, tzinfo=UTC)


@pytest.fixture
def clock():
    return FixedClock(T0)


@pytest.fixture
def embedder():
    return HashEmbedder()


@pytest.fixture
def memory(tmp_path, embedder, clock):
    with Memory(tmp_path / "memory", embedder=embedder, clock=clock) as memory:
        yield memory


@pytest.fixture
def diary(memory):
    return memory.diary("u1")


@pytest.fixture
def real(tmp_path, clock):
    """A diary with the bundled embedder."""
    with Memory(tmp_path / "real", clock=clock) as memory:
        yield memory.diary("u1")


def found(recall):
    return [hit.note.text for hit in recall]


# -- fact-update -------------------------------------------------------------------------------------------------------


def test_rw_001_the_opposite_of_a_fact_is_a_fact(real, clock):
    before = real.remember("I drink coffee every morning")
    clock.advance(60 * DAY)
    after = real.remember("I no longer drink coffee")
    assert len(real.notes()) == 2
    first, second = real.recall("does u1 drink coffee?")
    assert (first.note.id, second.note.id) == (after.id, before.id)
    assert "2025-04-30" in real.recall("does u1 drink coffee?").context()
    assert "2025-03-01" in real.recall("does u1 drink coffee?").context()


def test_rw_001_told_that_it_replaces_the_old_one_the_new_one_is_kept(real, clock):
    before = real.remember("I drink coffee every morning")
    clock.advance(60 * DAY)
    after = real.remember("I no longer drink coffee", replaces=[before.id])
    assert [note.id for note in real.notes()] == [after.id]
    assert found(real.recall("does u1 drink coffee?")) == ["I no longer drink coffee"]
    assert len(real.notes(include_replaced=True)) == 2


def test_rw_002_a_changed_fact_comes_with_its_dates_and_the_current_one_first(real, clock):
    lyon = real.remember("I live in Lyon")
    clock.advance(60 * DAY)
    porto = real.remember("I moved to Porto last month")
    answer = real.recall("where does u1 live?", limit=2)
    assert {hit.note.id for hit in answer} == {lyon.id, porto.id}
    lines = real.recall("I live in Lyon, moved to Porto").context()
    assert "2025-03-01" in next(line for line in lines.splitlines() if "Lyon" in line)
    assert "2025-04-30" in next(line for line in lines.splitlines() if "Porto" in line)

    milan = real.remember("I live in Milan now", replaces=[lyon.id, porto.id])
    assert [hit.note.id for hit in real.recall("where does u1 live?")] == [milan.id]
    past = real.recall("where did I live before?", include_replaced=True)
    assert {lyon.id, porto.id} <= {hit.note.id for hit in past}
    assert found(real.recall("where did I live?", as_of=T0 + DAY)) == ["I live in Lyon"]


# -- timezone ----------------------------------------------------------------------------------------------------------


def test_rw_008_times_with_and_without_an_offset_never_meet(diary):
    naive, aware = datetime(2026, 3, 1, 9), datetime(2026, 3, 1, 9, tzinfo=timezone(timedelta(hours=2)))
    diary.remember("eight in London", happened_at="2026-03-01T08:00:00Z")
    diary.remember("nine in Helsinki", happened_at=aware)
    diary.remember("nine in Tokyo", happened_at=datetime(2026, 3, 1, 9, tzinfo=ZoneInfo("Asia/Tokyo")))
    assert [note.text for note in diary.notes()] == ["eight in London", "nine in Helsinki", "nine in Tokyo"]
    assert all(note.happened_at.utcoffset() == timedelta(0) for note in diary.notes())
    assert found(diary.recall("nine", since=aware, before="2026-03-01T03:00:00-05:00")) == ["nine in Helsinki"]
    for naive_one in (naive, "2026-03-01T09:00:00"):
        with pytest.raises(ValueError, match="offset"):
            diary.remember("a", happened_at=naive_one)
        for bound in ({"since": naive_one}, {"since": aware, "before": naive_one}, {"as_of": naive_one}):
            with pytest.raises(ValueError, match="offset"):
                diary.recall("nine", **bound)
    assert len(diary.notes()) == 3


def test_rw_009_an_evening_in_lima_belongs_to_its_own_day(memory, clock):
    lima = ZoneInfo("America/Lima")
    clock.set(datetime(2026, 3, 15, 21, 30, tzinfo=lima))
    diary = memory.diary("u1", timezone="America/Lima")
    note = diary.remember("dentist called")
    assert note.created_at == datetime(2026, 3, 16, 2, 30, tzinfo=UTC)
    assert "[Sun 2026-03-15]" in diary.recall("dentist called").context()
    sunday = datetime(2026, 3, 15, tzinfo=lima)
    assert found(diary.recall("dentist", since=sunday, before=sunday + DAY)) == ["dentist called"]
    assert found(diary.recall("dentist", since=sunday + DAY)) == []


# -- aliases -----------------------------------------------------------------------------------------------------------


def test_rw_011_a_short_name_brings_both_the_alias_and_the_fact(real):
    real.remember_many(
        [
            "Bea is short for Beatriz Nunes",
            "Beatriz Nunes is allergic to peanuts",
            "The invoice is due on Friday",
            "Alex Moreau plays the cello",
            "Alex Petrov repairs bicycles",
        ]
    )
    top = found(real.recall("what is Bea allergic to?"))[:3]
    assert {"Bea is short for Beatriz Nunes", "Beatriz Nunes is allergic to peanuts"} <= set(top)
    assert {"Alex Moreau plays the cello", "Alex Petrov repairs bicycles"} == set(
        found(real.recall("What does Alex do?"))[:2]
    )
    assert len(real.notes()) == 5


# -- multilingual ------------------------------------------------------------------------------------------------------

UNSPACED = [
    ("我对花生过敏，周五去看医生", ("花生", "过敏医生", "周五", "医生")),
    ("来週は京都に出張します", ("京都", "出張", "来週")),
    ("김치찌개를 좋아합니다", ("김치", "김치찌개")),
    ("วันศุกร์มีนัดหมอฟัน", ("หมอฟัน",)),
]
OTHERS = [
    "我喜欢骑自行车上班",
    "毎朝コーヒーを飲みます",
    "강아지 이름은 콩이입니다",
    "เธออาศัยอยู่ที่เชียงใหม่",
    "Drinks tea.",
]


@pytest.mark.parametrize("down", [True, False], ids=["words only", "with vectors"])
def test_rw_012_a_word_inside_a_sentence_without_spaces_finds_it(diary, embedder, down):
    embedder.down = down
    diary.remember_many([*(text for text, _ in UNSPACED), *OTHERS])
    for text, asked in UNSPACED:
        for word in asked:
            first = diary.recall(word)[0]
            assert first.note.text == text, word
            assert "words" in {part.name for part in first.why}, word


def test_rw_012_and_with_the_bundled_embedder(real):
    real.remember_many([*(text for text, _ in UNSPACED[:3]), *OTHERS[:3]])
    for text, asked in UNSPACED[:3]:
        assert found(real.recall(asked[0]))[0] == text


@pytest.mark.parametrize("down", [True, False], ids=["words only", "with vectors"])
@pytest.mark.parametrize(
    ("text", "asked"),
    [
        ("昨天重跑sync-7b任务，共修复12条记录", ("sync-7b", "SYNC-7B", "任务", "12", "12条", "修复")),
        ("Le client veut le modèle XR-500, livré mardi", ("xr-500", "XR500", "livré", "500")),
        ("العميل يريد نسخة release-3 قبل الجمعة", ("release-3", "العميل", "الجمعة")),
        ("注文はOrder#A17で確認", ("A17", "注文", "order")),
    ],
)
def test_rw_013_where_scripts_meet_a_word_ends(diary, embedder, down, text, asked):
    embedder.down = down
    diary.remember_many(["昨天天气很好", "Le chat dort", "السماء صافية اليوم", "犬の散歩", text])
    for word in asked:
        first = diary.recall(word)[0]
        assert first.note.text == text, word
        assert "words" in {part.name for part in first.why}, word


def test_rw_015_russian_is_as_good_as_english(real):
    cats = "У меня аллергия на кошек"
    real.remember_many(
        [
            cats,
            "Работает бухгалтером в порту",
            "Живёт на пятом этаже без лифта",
            "Любит чёрный чай с лимоном",
            "Сын учится играть на скрипке",
            "Машину продал прошлой осенью",
            "Отпуск всегда берёт в сентябре",
            "Просит присылать чеки на почту",
            "Бегает по утрам вдоль реки",
            "Не ест ничего острого",
            "День рождения в феврале",
        ]
    )
    for asked in (
        "на каких животных у меня реакция?",
        "which animals am I allergic to?",
        "à quels animaux suis-je allergique ?",
    ):
        assert cats in found(real.recall(asked))[:3], asked


# -- unicode-encoding --------------------------------------------------------------------------------------------------


def test_rw_017_whole_emoji_survive_and_half_ones_are_refused_by_one_rule(tmp_path, memory, diary):
    party = "party 🎉👨‍👩‍👧 at 8 ✓ 🇫🇷 👍🏽 ❤️"
    note = diary.remember(party, source="🎉", tags=["👨‍👩‍👧"])
    with Memory(tmp_path / "memory", embedder=HashEmbedder()) as other:
        again = other.diary("u1").note(note.id)
    assert (again.text, again.source, again.tags) == (party, "🎉", ("👨‍👩‍👧",))
    for asked in ("🎉", "👨‍👩‍👧", "🇫🇷", "party"):
        assert found(diary.recall(asked)) == [party]
    line = diary.recall("party").context().splitlines()[2]
    assert json.loads(line[line.index("] ") + 2 :]) == party
    line.encode("utf-8")

    half = json.loads('"party \\ud83d"')
    for refused in (
        lambda: diary.remember(half),
        lambda: diary.remember("x", source=half),
        lambda: diary.remember("x", tags=[half]),
        lambda: diary.remember("x", key=half),
        lambda: diary.edit(note.id, half),
        lambda: memory.diary(half),
    ):
        with pytest.raises(ValueError, match="surrogate"):
            refused()
    assert diary.notes() == [again]
    assert found(diary.recall(half)) == [party], "a question fails no turn"


# -- capture-loss ------------------------------------------------------------------------------------------------------


def test_rw_018_the_shortest_fact_is_kept_and_found(real):
    texts = ["Ines 4pm", "tea", "7", "é", "水", "👍", "?!"]
    notes = [real.remember(text) for text in texts]
    assert [note.text for note in notes] == texts
    assert {note.text for note in real.notes()} == set(texts)
    assert found(real.recall("at what time is Ines coming?"))[0] == "Ines 4pm"
    for text in texts:
        assert found(real.recall(text))[0] == text
    for blank in ("", "   ", "\n\t", "\u200b"):
        with pytest.raises(ValueError, match="blank"):
            real.remember(blank)


# -- embedder-contract -------------------------------------------------------------------------------------------------


def filler(count):
    return " ".join(f"Paragraph {i} speaks of weather, gardens and long walks by the sea." for i in range(count))


def test_rw_019_three_facts_of_a_very_long_note_are_found_by_meaning(real, monkeypatch):
    """Few long windows, since each costs one real embedding."""
    text = f"The safe code is 4471. {filler(12)} Her brother is a beekeeper. {filler(12)} The boiler leaks."
    real.remember_many([text, "Likes tea.", "Has two cats."])
    for asked in ("What number opens the strongbox?", "Who keeps bees?", "Is the heating broken?"):
        first = real.recall(asked)[0]
        assert first.note.text == text
        assert "meaning" in {part.name for part in first.why}


def test_rw_019_a_server_that_takes_512_tokens_gets_no_more_and_loses_nothing(tmp_path):
    text = f"the safe code is 4471. {filler(230)} her brother is a beekeeper. {filler(230)} the boiler leaks."
    assert len(text) > 30_000
    with (
        LoopbackEndpoint(max_text_tokens=512) as server,
        Memory(tmp_path / "m", embedder=Endpoint("m", server.base_url)) as memory,
    ):
        diary = memory.diary("u1")
        diary.remember_many(["likes tea", "has two cats"])
        note = diary.remember(text)
        assert (note.text, note.pending) == (text, False)
        for asked in ("safe code 4471", "brother beekeeper", "boiler leaks"):
            assert diary.recall(asked)[0].note.id == note.id


def test_rw_019_what_no_server_takes_is_kept_found_by_words_and_said(tmp_path):
    with (
        LoopbackEndpoint(refuses="4471") as server,
        Memory(tmp_path / "m", embedder=Endpoint("m", server.base_url)) as memory,
    ):
        diary = memory.diary("u1")
        diary.remember("likes tea")
        note = diary.remember("the safe code is 4471")
        assert note.pending
        answer = diary.recall("safe code")
        assert answer[0].note.id == note.id
        assert any("await" in notice for notice in answer.notices)


@pytest.mark.parametrize("dim", [48, 64], ids=["another size", "the same size"])
def test_rw_020_a_change_of_model_is_said_and_nothing_is_lost_or_mixed(tmp_path, dim):
    place = tmp_path / "m"
    texts = [f"fact {i} of the old days" for i in range(10)]
    with Memory(place, embedder=HashEmbedder(64, "model-a")) as memory:
        old = memory.diary("u1").remember_many(texts)
    with Memory(place, embedder=HashEmbedder(dim, "model-b")) as memory:
        diary = memory.diary("u1")
        assert {note.text for note in diary.notes()} == set(texts)
        answer = diary.recall("fact 7")
        assert found(answer)[0] == texts[7]
        assert any("model-a" in notice and "model-b" in notice for notice in answer.notices)
        assert all("meaning" not in {part.name for part in hit.why} for hit in answer)
        diary.remember("a new fact")
        assert diary.edit(old[0].id, "a corrected fact").text == "a corrected fact"
        diary.forget(old[1].id)
        assert len(diary.notes()) == 10
        first = diary.recall("corrected")[0]
        assert (first.note.id, "meaning" in {part.name for part in first.why}) == (old[0].id, True)
    with Memory(place, embedder=HashEmbedder(64, "model-a")) as memory:
        assert "meaning" in {part.name for part in memory.diary("u1").recall("fact 7 of the old days")[0].why}


def test_rw_022_a_large_import_respects_the_servers_limits_and_a_bad_item_fails_alone(tmp_path):
    texts = [f"note {i}: " + "word " * 40 for i in range(200)]
    texts[77] = "note 77 is cursed"
    with (
        LoopbackEndpoint(max_items=32, max_tokens=1500, refuses="cursed") as server,
        Memory(tmp_path / "m", embedder=Endpoint("m", server.base_url)) as memory,
    ):
        diary = memory.diary("u1")
        told = []
        notes = diary.remember_many(texts, progress=lambda done, total: told.append((done, total)))
        assert [i for i, note in enumerate(notes) if note.pending] == [77]
        assert told[-1] == (199, 200)
        assert found(diary.recall("cursed"))[0] == "note 77 is cursed"
        before = len(server.texts)
        again = diary.remember_many(texts)
        assert [note.id for note in again] == [note.id for note in notes]
        assert len(diary.notes()) == 200
        assert set(server.texts[before:]) <= {"note 77 is cursed"}, "nothing is paid twice"


# -- score-semantics ---------------------------------------------------------------------------------------------------


def test_rw_025_higher_is_better_and_a_floor_only_takes_away(real):
    texts = [
        "Buys one kilo of Colombia each month",
        "Orders coffee beans regularly",
        "The gutter was painted in May",
        "Plays chess on Sundays",
    ]
    real.remember_many(texts)
    every = real.recall(texts[0])
    assert found(every)[0] == texts[0]
    assert found(every).index(texts[1]) < found(every).index(texts[2])
    assert every[0].score >= 0.9, "the identical text"
    assert all(0 <= hit.score <= 1 for hit in every)
    assert [hit.score for hit in every] == sorted((hit.score for hit in every), reverse=True)
    kept = [found(real.recall(texts[0], min_score=floor)) for floor in (0, 0.1, 0.3, 0.5, 0.7, 0.9, 1)]
    assert kept[0] == found(every)
    for looser, tighter in pairwise(kept):
        assert looser[: len(tighter)] == tighter
    assert kept[3][:1] == kept[5][:1] == [texts[0]]


# -- query-metacharacters ----------------------------------------------------------------------------------------------

OWNERS = ["a_b", "axb", "a%b", "100%", "*", "x;y", "'", '"', "a\nb", "../etc", "C:\\tmp", "o" * 300]
OWNERS += ["A_B", "a__b", "%", "_", "."]
QUERIES = ["%", "_", "*", '"', "'", "tea*", "tea OR 1=1", "NEAR(tea)", "-tea", "tea AND NOT tea", "(", "NOT", "^tea"]
QUERIES += ["text:tea", "'; DROP TABLE notes; --", "\\", "[a-z]", "tea\nAND", "{tea}", "?", "$1"]


def test_rw_032_owners_and_ids_are_taken_literally(tmp_path, memory):
    ids = {owner: memory.diary(owner).remember(f"secret number {i}").id for i, owner in enumerate(OWNERS)}
    assert memory.owners() == sorted(OWNERS)
    assert sorted(os.listdir(tmp_path)) == ["memory"]
    assert {path.name for path in (tmp_path / "memory").iterdir()} >= {folder_name(owner) for owner in OWNERS}
    for i, owner in enumerate(OWNERS):
        diary = memory.diary(owner)
        assert found(diary.recall("secret number")) == [f"secret number {i}"]
        mine = ids[owner]
        for pattern in ("%", "_" * 32, mine[:-1] + "_", "*", "' OR 1=1 --", ids[OWNERS[i - 1]]):
            for call in (diary.forget, diary.note, lambda bad, diary=diary: diary.edit(bad, "x")):
                with pytest.raises(NotFound):
                    call(pattern)
    memory.diary("%").forget(ids["%"])
    assert [len(memory.diary(owner).notes()) for owner in OWNERS] == [int(owner != "%") for owner in OWNERS]
    for bad in ("", " ", "a\0b", "o" * 1025, "\ud83d"):
        with pytest.raises(ValueError, match="owner"):
            memory.diary(bad)


@pytest.mark.parametrize("down", [True, False], ids=["words only", "with vectors"])
def test_rw_032_a_question_is_words_and_no_query_language(diary, embedder, down):
    diary.remember_many(["likes tea", "has a dog", "100% cotton, item_7 (blue)"])
    embedder.down = down
    for asked in QUERIES:
        answer = diary.recall(asked)
        assert len(answer) == 3, asked
        if "tea" in asked:
            assert answer[0].note.text == "likes tea", asked
    assert diary.recall("item_7")[0].note.text == diary.recall("100%")[0].note.text == "100% cotton, item_7 (blue)"
    assert found(diary.recall("tea", tags=["%"])) == found(diary.recall("tea", source="%")) == []
    assert len(diary.notes()) == 3


# -- stale-cache -------------------------------------------------------------------------------------------------------


def test_rw_037_what_another_memory_writes_is_found_by_the_next_recall(tmp_path, diary):
    diary.remember("likes green tea")
    assert found(diary.recall("tea")) == ["likes green tea"], "the cache is warm"
    with Memory(tmp_path / "memory", embedder=HashEmbedder()) as other:
        theirs = other.diary("u1")
        new = theirs.remember("has a tea pot")
        assert set(found(diary.recall("tea"))) == {"likes green tea", "has a tea pot"}
        assert len(diary.notes()) == 2
        theirs.edit(new.id, "has a moka pot")
        hit = next(hit for hit in diary.recall("moka") if hit.note.id == new.id)
        assert {"words", "meaning"} <= {part.name for part in hit.why}
        (stale,) = [
            part for hit in diary.recall("tea") if hit.note.id == new.id for part in hit.why if part.name == "meaning"
        ]
        assert "cosine 0.00" in stale.text
        theirs.forget(new.id)
        assert found(diary.recall("moka")) == ["likes green tea"]
        assert len(diary.notes()) == 1


def test_rw_037_and_what_another_process_writes(tmp_path, diary):
    diary.remember("likes green tea")
    diary.recall("tea")
    code = (
        "import sys; from diarist import Memory; from diarist.testing import HashEmbedder\n"
        "with Memory(sys.argv[1], embedder=HashEmbedder()) as m:\n"
        "    d = m.diary('u1'); d.forget(d.notes()[0].id); d.remember('has a tea pot')\n"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code, str(tmp_path / "memory")], check=True, timeout=50)
    (hit,) = diary.recall("tea pot")
    assert hit.note.text == "has a tea pot"
    assert "meaning" in {part.name for part in hit.why}


def test_rw_037_a_diary_that_was_removed_and_begun_anew_has_no_old_vectors(tmp_path, diary):
    diary.remember_many(["alpha bravo", "charlie"])
    assert found(diary.recall("alpha bravo"))[0] == "alpha bravo"
    place = tmp_path / "memory" / folder_name("u1")
    for path in place.iterdir():
        path.unlink()
    diary.remember_many(["delta", "echo", "foxtrot"])
    for hit in diary.recall("alpha bravo"):
        (meaning,) = [part for part in hit.why if part.name == "meaning"]
        assert "cosine 0.00" in meaning.text, hit.note.text


def test_rw_037_a_question_that_failed_once_leaves_nothing_stale(diary, embedder, monkeypatch):
    diary.remember("likes green tea")
    with monkeypatch.context() as down:

        def refuse(text):
            raise EmbedderError("away")

        down.setattr(embedder, "embed_query", refuse)
        diary.remember("has a tea pot")
        assert len(diary.recall("tea")) == 2
    assert all("meaning" in {part.name for part in hit.why} for hit in diary.recall("tea"))
