"""`diarist demo`: two days in two processes, with the scripted model and with a real ChatModel over real HTTP."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from diarist import Agent, Memory, demo
from diarist.events import DayClosed, NoteRemembered, Recalled, replay
from diarist.note import NOTHING_SAVED
from diarist.testing import LoopbackEndpoint, ScriptedModel, call

ORDER = {"product": "a kilo of Colombia", "grind": "a moka pot", "city": "Rosario"}


def played(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """`diarist demo` in a process of its own, without what this machine has set."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "DIARIST_"))}
    return subprocess.run(
        [sys.executable, "-m", "diarist", "demo", *map(str, arguments)],
        env={**kept, "PYTHONUTF8": "1", "NO_PROXY": "127.0.0.1", **environment},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )


def shopkeepers(server: LoopbackEndpoint) -> None:
    """The server's model is the demo's rules."""
    keeper = demo.Shopkeeper()
    server.will_say(*[lambda messages: keeper.complete(messages, ())] * 30)


@pytest.fixture(scope="module")
def scripted(tmp_path_factory):
    """One run for all that is asked of it: what it printed, and the folder that it left."""
    folder = tmp_path_factory.mktemp("demo") / "memory"
    before = os.times()
    run = played("--keep", folder, "--record", folder.with_name("run.jsonl"))
    after = os.times()
    used = after.children_user + after.children_system - before.children_user - before.children_system
    return run, folder, used


def test_r76_the_two_days_play_offline_and_day_2_orders_what_day_1_did(scripted):
    run, folder, _ = scripted
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
    books = demo.Books(folder)
    assert books.orders("day-1") == books.orders("day-2") == [ORDER]


def test_r69_both_days_are_recorded_in_one_file(scripted):
    """R69: with the days' own dates, and only in a new file."""
    run, folder, _ = scripted
    record = folder.with_name("run.jsonl")
    events = list(replay(record))
    assert [event.at.date() for event in events if isinstance(event, DayClosed)] == [
        demo.DAY_1.date(),
        demo.DAY_2.date(),
    ]
    assert sum(isinstance(event, NoteRemembered) for event in events) == 3
    assert "diarist replay" in run.stdout
    before = record.read_bytes()
    assert played("--record", record).returncode == 2
    assert record.read_bytes() == before


def test_the_first_line_says_that_the_model_is_scripted(scripted):
    first = scripted[0].stdout.splitlines()[0]
    assert "scripted model" in first
    assert "OPENAI_BASE_URL" in first


def test_it_takes_less_than_20_seconds(scripted):
    """Of work: what else the machine has to do is not the demo's."""
    assert scripted[2] < 20


def test_the_transcript_shows_the_tools_the_scores_the_dates_the_events_and_the_disk(scripted):
    out = scripted[0].stdout
    for shown in (
        demo.SAID[0],
        demo.SAME_AGAIN,
        "Saved. 3 notes about this customer.",
        "Ordered a kilo of Colombia coffee.",
        "Order 2 is placed.",
        "Order 2 was placed already; nothing was done.",
        "RunStarted",
        "DayClosed",
        "Recalled",
        "diary.db",
        "page.md",
        "session day-1 goes on",
        "seconds",
        NOTHING_SAVED,
    ):
        assert shown in out, shown
    assert sum(line.startswith("Day ") and "process" in line for line in out.splitlines()) == 2


def test_r1_r17_day_2_begins_with_what_is_said_and_its_notes_and_nothing_else_of_day_1(scripted):
    with Memory(scripted[1]) as memory:
        first = memory.diary(demo.OWNER).session("day-2").messages[0]["content"]
    said, notes, *rest = first.split("\n\n")
    assert (said, rest) == (demo.SAME_AGAIN, [])
    assert notes.startswith("Notes saved about this person")
    assert demo.SAID[0] not in first


def test_r2_the_three_facts_are_notes_of_their_own(scripted):
    with Memory(scripted[1]) as memory:
        texts = [note.text for note in memory.diary(demo.OWNER).notes()]
    assert len(texts) == 3
    assert {name: value for text in texts for name, value in demo._facts(text).items()} == ORDER
    assert all(len(demo._facts(text)) == 1 for text in texts)


def test_r1_r2_r76_with_an_endpoint_the_real_chat_model_plays(tmp_path):
    with LoopbackEndpoint() as server:
        shopkeepers(server)
        run = played(
            "--keep", tmp_path / "m", OPENAI_BASE_URL=server.base_url, DIARIST_MODEL="small", OPENAI_API_KEY="k"
        )
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stdout.splitlines()[0].startswith("Diarist demo with small at http://127.0.0.1")
    assert "scripted" not in run.stdout
    asked, nights = [], []
    for chat in server.chats:
        closing = [each["function"]["name"] for each in chat["tools"]] == ["keep_facts"]
        (nights if closing else asked).append(chat["messages"])
    assert len(nights) == 2  # what the model did not think of remembering is picked up
    days = [messages for messages in asked if len(messages) == 2]
    assert [[message["role"] for message in day] for day in days] == [["system", "user"]] * 2
    first, second = days
    assert "Lucía" not in first[0]["content"]
    assert "Lucía" in second[0]["content"]  # the page
    assert demo.SAID[0] not in json.dumps(second, ensure_ascii=False)
    assert second[1]["content"].startswith(f"{demo.SAME_AGAIN}\n\nNotes saved about this person")  # recalled by itself
    books = demo.Books(tmp_path / "m")
    assert books.orders("day-1") == books.orders("day-2") == [ORDER]


def test_a_model_that_cannot_be_reached_is_named_and_the_demo_fails(tmp_path):
    with LoopbackEndpoint() as server:
        server.fail("unauthorized")
        run = played(OPENAI_BASE_URL=server.base_url, DIARIST_MODEL="small")
    assert run.returncode == 1
    assert "the demo failed on day 1" in run.stderr
    assert "Traceback" not in run.stderr


def test_an_endpoint_without_a_models_name_is_wrong_use():
    run = played(OPENAI_BASE_URL="http://127.0.0.1:9/v1")
    assert run.returncode == 2
    assert "DIARIST_MODEL" in run.stderr


def test_another_order_on_day_2_fails_and_is_told(tmp_path, monkeypatch, capsys):
    folder = str(tmp_path / "memory")
    monkeypatch.setattr(demo, "SAID", ("A kilo of Colombia, ground for a moka pot, shipped to Rosario.",))
    assert demo.day_1(folder) == 0
    with closing(sqlite3.connect(tmp_path / "memory" / "orders.db")) as db, db:
        db.execute("UPDATE orders SET city = 'Lima'")
    assert demo.day_2(folder) == 1
    assert "Expected the same city again, 'Lima'; day 2 ordered 'Rosario'." in capsys.readouterr().err


def test_r1_a_first_request_that_holds_more_is_told(tmp_path):
    books = demo.Books(tmp_path)
    for day in ("day-1", "day-2"):
        books.place(day, **ORDER)
    model = demo.Listening(demo.Shopkeeper())
    for asked in (["system", "user", "user"], ["system", "user"]):  # only the first request counts
        model.complete([{"role": role, "content": "Hi!"} for role in asked], ())
    assert demo._compared(books, model) == [
        "Expected day 2 to begin with [system, user], it began with ['system', 'user', 'user']."
    ]


def test_a_weak_match_is_said_before_it_is_sent():
    weak = "Notes. The match is weak: ask the person before acting on it.\n" + "\n".join(
        f'0.20 [Mon 2026-03-02] "{text}"'
        for text in (
            "Ordered a kilo of Colombia coffee.",
            "Has it ground for a moka pot.",
            "Has it shipped to Rosario.",
        )
    )
    messages = [
        {"role": "system", "content": "A shop."},
        {"role": "user", "content": demo.SAME_AGAIN},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "recall"}}]},
        {"role": "tool", "content": weak},
    ]
    reply = demo.Shopkeeper().complete(messages, ())
    assert reply.text.startswith("I take it that you mean this.")
    assert reply.calls[0].arguments == ORDER


def test_the_scripted_model_has_no_order_of_its_own():
    """Nothing saved, nothing sent: it asks."""
    messages = [
        {"role": "system", "content": "A shop."},
        {"role": "user", "content": demo.SAME_AGAIN},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "recall"}}]},
        {"role": "tool", "content": NOTHING_SAVED},
    ]
    reply = demo.Shopkeeper().complete(messages, ())
    assert not reply.calls
    assert reply.text == "What shall I send?"


def test_a_retry_of_an_order_places_one(tmp_path):
    books = demo.Books(tmp_path)
    assert books.place("day-1", **ORDER) == "Order 1 is placed."
    assert (
        books.place("day-1", **{**ORDER, "product": "A kilo of colombia "})
        == "Order 1 was placed already; nothing was done."
    )
    assert books.place("day-2", **ORDER) == "Order 2 is placed."
    assert len(books.orders("day-1")) == 1


def test_the_transcript_shows_a_call_that_is_refused_as_the_model_wrote_it(capsys):
    told = demo.Transcript()
    agent = Agent(ScriptedModel([call("no_such", city="Rosario"), "Hm."]))
    agent.events.subscribe(told)
    agent.run("Hi!")
    assert 'no_such     {"city": "Rosario"}' in capsys.readouterr().out
    agent.events.emit(Recalled, query="later", verdict="nothing")
    assert NOTHING_SAVED in capsys.readouterr().out  # a refused call is over: this was nobody's call
