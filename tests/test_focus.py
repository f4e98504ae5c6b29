"""What is asked at the end of a long text: instructions, pages and conversations before it do not drown it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diarist.focus import CONTEXT, MOST, WHOLE, focus

RULES = "You are the assistant of a roastery. Always be polite! Never promise a date? Ask first. " * 6


def test_a_short_question_is_taken_whole():
    for text in ("What does she drink?", "Hello. I am back from Lyon. What did I order the last time I was here?"):
        assert focus(text) == (text, "")


@pytest.mark.parametrize(
    ("end", "asked"),
    [
        ("\n\nWhat does she drink?", "What does she drink?"),
        ("\nWhat does she drink?", "What does she drink?"),
        (" What does she drink?", "What does she drink?"),
        ("\n\n¿Qué bebe la clienta?\n", "¿Qué bebe la clienta?"),
        ("\n\n彼女はいつもコーヒーに何を入れますか？", "彼女はいつもコーヒーに何を入れますか？"),
        ('\n\nUser: "What does she drink?"', 'User: "What does she drink?"'),
        ("\n\nwhat does she drink", "what does she drink"),
    ],
)
def test_the_last_question_is_what_is_asked(end, asked):
    assert focus(RULES + end) == (asked, (RULES + end).strip()[-CONTEXT:])


def test_a_short_remark_at_the_end_is_read_with_what_it_is_about():
    text = RULES + "I would like the same coffee as in March. Please be quick. Thanks!"
    assert focus(text)[0] == "I would like the same coffee as in March. Please be quick. Thanks!"


def test_a_remark_after_a_blank_line_is_not_read_with_the_instructions():
    assert focus(RULES + "\n\nThe same as last time")[0] == "The same as last time"


def test_without_any_sentence_the_end_is_taken():
    assert focus("word " * 400)[0] == ("word " * 400).strip()[-MOST:]


@given(st.text(max_size=3000))
def test_it_always_gives_something_of_bounded_length(text):
    asked, context = focus(text)
    assert (
        (asked == text and not context) if len(text) <= WHOLE else asked in (text, text.strip()) or len(asked) <= MOST
    )
    assert context.strip() or not context
    assert len(context) <= CONTEXT
    assert asked.strip() or not text.strip()


def test_a_pathological_text_takes_no_time():
    for text in ("?" * 32_000, "\n" * 32_000, "。" * 32_000, "a." * 16_000, "a. " * 10_000, "\n\n \n\n" * 6_000):
        assert len(focus(text)[0]) <= len(text)


def test_a_text_that_ends_in_signs_is_asked_whole():
    text = "tea 4 " + "\u202e" * 400
    assert focus(text) == (text, "")
