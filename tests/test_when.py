"""What a question says about time, in the languages of the bundled models."""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from diarist import Memory, when
from diarist.testing import FixedClock

NOW = datetime(2026, 12, 1, 10, tzinfo=UTC)  # a Tuesday


@pytest.mark.parametrize(
    "question",
    [
        "Hi again! Send me the same as last time.",
        "As usual, please",
        "my usual",
        "What was my previous order?",
        "ce que le client a commandé la dernière fois",
        "Comme d'habitude !",
        "Lo de siempre, por favor",
        "lo que el cliente pidió la última vez",
        "Como sempre",
        "Wie immer, bitte",
        "das Gleiche wie beim letzten Mal",
        "il solito",
        "zoals altijd",
        "как обычно",
        "to co ostatnim razem",
        "her zamanki gibi",
        "كالعادة من فضلك",
        "前回と同じものをください",
        "她上次订了什么",
        "지난번에 주문한 것",
    ],
)
def test_it_is_about_the_last_time(question):
    assert when.is_about_last_time(question)


@pytest.mark.parametrize(
    "question",
    [
        "What is her last name?",
        "How long does it last?",
        "Which grinder?",
        "on the same day",
        "la même rue",
        "la suite",
    ],
)
def test_it_is_not(question):
    assert not when.is_about_last_time(question)


@pytest.mark.parametrize(
    ("question", "first", "end"),
    [
        ("What did she order last Tuesday?", "2026-11-24", "2026-11-25"),
        ("Qu'a-t-elle pris mardi dernier ?", "2026-11-24", "2026-11-25"),
        ("el martes pasado", "2026-11-24", "2026-11-25"),
        ("last Friday", "2026-11-27", "2026-11-28"),
        ("in March", "2026-03-01", "2026-04-01"),
        ("en marzo", "2026-03-01", "2026-04-01"),
        ("in December", "2026-12-01", "2027-01-01"),
        ("What happened on 8 May 2023?", "2023-05-08", "2023-05-09"),
        ("May 8th, 2023", "2023-05-08", "2023-05-09"),
        ("le 1er mai 2023", "2023-05-01", "2023-05-02"),
        ("2023-05-08", "2023-05-08", "2023-05-09"),
        ("昨日何を買った", "2026-11-30", "2026-12-01"),
        ("3月に", "2026-03-01", "2026-04-01"),
        ("2025年3月5日", "2025-03-05", "2025-03-06"),
        ("先月", "2026-11-01", "2026-12-01"),
        ("hier", "2026-11-30", "2026-12-01"),
        ("two weeks ago", "2026-11-14", "2026-11-21"),
        ("il y a 3 jours", "2026-11-28", "2026-11-29"),
        ("3日前", "2026-11-28", "2026-11-29"),
        ("last month", "2026-11-01", "2026-12-01"),
        ("last year", "2025-01-01", "2026-01-01"),
        ("в прошлом месяце", "2026-11-01", "2026-12-01"),
        ("in 2022", "2022-01-01", "2023-01-01"),
    ],
)
def test_it_names_days(question, first, end):
    days = when.days_named(question, NOW, UTC)
    assert days is not None
    assert (days.first.date(), days.end.date()) == (date.fromisoformat(first), date.fromisoformat(end))


@pytest.mark.parametrize(
    "question", ["What may she want?", "31 February", "Who marches on?", "hi there", "9999 9999", ""]
)
def test_it_names_none(question):
    assert when.days_named(question, NOW, UTC) is None


def test_days_begin_at_the_owners_midnight():
    late = datetime(2026, 12, 1, 3, tzinfo=UTC)  # still Monday in New York
    days = when.days_named("yesterday", late, ZoneInfo("America/New_York"))
    assert days is not None
    assert days.first.isoformat() == "2026-11-29T00:00:00-05:00"


@given(st.text(max_size=200))
def test_any_text_is_read_without_fault(text):
    when.is_about_last_time(text)
    when.days_named(text, NOW, UTC)


@pytest.mark.parametrize("unit", ["last ", "the same ", "1 ", "a ", "在", "la ", "may 1 "])
def test_a_long_question_takes_linear_time(unit):
    began = time.perf_counter()
    when.is_about_last_time(unit * 8_000)
    when.days_named(unit * 8_000, NOW, UTC)
    assert time.perf_counter() - began < 2


class Indifferent:
    """Everything means the same, so that only time and words tell notes apart."""

    id, dim = "indifferent", 2

    def embed_notes(self, texts):
        return np.tile(np.float32([1, 0]), (len(texts), 1))

    def embed_query(self, text):
        return np.float32([0.25, 0.97])


@pytest.fixture
def diary(tmp_path):
    clock = FixedClock(datetime(2026, 3, 2, 10, tzinfo=UTC))
    with Memory(tmp_path / "memory", embedder=Indifferent(), clock=clock) as memory:
        diary = memory.diary("c-2291")
        for day in range(20):
            diary.remember(f"Fact number {day:02} about nothing in particular.")
            clock.advance(timedelta(days=1))
        yield diary


def test_the_last_time_brings_the_newest_notes_and_says_so(diary):
    found = diary.recall("the same as last time")
    assert [hit.note.text[12:14] for hit in found] == ["19", "18", "17", "16", "15", "14", "13", "12"]
    assert found.verdict == "weak"
    assert all("the last time" in part.text for hit in found for part in hit.why if part.name == "time")
    assert all(any(part.name == "time" for part in hit.why) for hit in found)


def test_what_was_replaced_is_not_the_last_time(diary):
    newest = diary.notes(limit=1)[0]
    diary.remember("Fact number 19 was wrong: it is 20.", replaces=[newest.id])
    found = diary.recall("as usual")
    assert newest.id not in [hit.note.id for hit in found]
    assert found[0].note.text == "Fact number 19 was wrong: it is 20."


def test_days_that_are_named_come_first(diary):
    found = diary.recall("What was the fact on 5 March 2026?", limit=3)
    assert found[0].note.text == "Fact number 03 about nothing in particular."
    assert "5 march 2026" in next(part.text for part in found[0].why if part.name == "time")


def test_the_days_named_do_not_widen_what_was_asked_for(diary):
    found = diary.recall("5 March 2026", since="2026-03-10T00:00:00+00:00")
    assert all(hit.note.created_at >= datetime(2026, 3, 10, tzinfo=UTC) for hit in found)
