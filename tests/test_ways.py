"""The loop with a real diary, over real HTTP: sessions end, the diary stays (ways 1, 2 and 3 together)."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from diarist import Agent, ChatModel, Memory, NotFound
from diarist.events import Recalled, RunStarted, SessionRepaired
from diarist.note import NOTHING_SAVED
from diarist.testing import FixedClock, HashEmbedder, call

SHOP = "You sell coffee."
FACTS = ("Buys 1 kg of Colombia.", "Ground for a moka pot.", "Shipped to Rosario.")
MONDAY = datetime(2026, 3, 2, 10, tzinfo=UTC)


@pytest.fixture
def memory(tmp_path):
    with Memory(tmp_path / "memory", embedder=HashEmbedder(), clock=FixedClock(MONDAY)) as memory:
        yield memory


def hired(server, diary, **more):
    return Agent(ChatModel("m", base_url=server.base_url), SHOP + diary.briefing(), diary.tools(), **more)


def heard(agent, kind):
    events = []
    agent.events.subscribe(lambda event: events.append(event) if isinstance(event, kind) else None)
    return events


class TestADayEnds:
    def test_r1_the_first_request_of_day_2_holds_no_text_of_day_1(self, server, memory):
        diary = memory.diary("c-2291")
        server.will_say([call("remember", note=each) for each in FACTS], "Noted, a kilo.", "What shall I send?")
        hired(server, diary).run("The usual kilo for the moka pot, please.", session=diary.session("day-1"))
        hired(server, diary).run("Hi again!", session=diary.session("day-2"))
        first = server.chats[-1]["messages"]
        assert [message["role"] for message in first] == ["system", "user"]
        assert first[1]["content"] == "Hi again!"
        assert first[0]["content"] == SHOP + diary.briefing()
        sent = json.dumps(first)
        assert not any(text in sent for text in (*FACTS, "Noted, a kilo", "usual kilo"))

    def test_r3_ending_a_session_changes_no_note_and_no_page(self, memory):
        diary = memory.diary("c-2291")
        diary.remember_many(list(FACTS))
        diary.page.add("Her name is Lucía.")
        session = diary.session("day-1")
        session.append({"role": "user", "content": "hi"})
        before, page = diary.export()["notes"], diary.page.read()
        session.end()
        assert (diary.export()["notes"], diary.page.read()) == (before, page)

    @pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
    def test_r3_r7_kill_9_of_an_idle_session_changes_no_note_no_page_and_no_message(self, tmp_path):
        script = """
import sys
from diarist import Memory
from diarist.testing import HashEmbedder
diary = Memory(sys.argv[1], embedder=HashEmbedder()).diary("c-2291")
diary.remember("Buys Colombia.")
diary.page.add("Her name is Lucía.")
diary.session("day-1").append({"role": "user", "content": "hi"})
print("idle", flush=True)
sys.stdin.read()
"""
        place = tmp_path / "memory"
        with subprocess.Popen(
            [sys.executable, "-c", script, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"idle\n"
            with Memory(place, embedder=HashEmbedder()) as memory:
                before = memory.diary("c-2291").export()
            process.kill()
        with Memory(place, embedder=HashEmbedder()) as memory:
            diary = memory.diary("c-2291")
            assert diary.export() == before
            assert [note.text for note in diary.notes()] == ["Buys Colombia."]
            assert diary.session("day-1").messages == [{"role": "user", "content": "hi"}]
            assert "Lucía" in diary.page.read()

    def test_r4_the_first_request_does_not_grow_with_the_days(self, server, tmp_path):
        clock = FixedClock(MONDAY)
        with Memory(tmp_path / "memory", embedder=HashEmbedder(), clock=clock) as memory:
            diary = memory.diary("c-2291")
            sizes = []
            for day in range(50):
                server.will_say([call("remember", note=f"Order {day:02}: {day:02} kg of coffee {day:02}.")], "Noted.")
                first = len(server.chats)
                hired(server, diary).run("Hi!", session=diary.session(f"day-{day}"))
                sizes.append(len(json.dumps(server.chats[first])))
                clock.advance(timedelta(days=1))
        assert len(set(sizes)) == 1, sizes


class TestWay1:
    def test_r10_sessions_are_listed_searched_deleted_and_expire(self, server, tmp_path):
        clock = FixedClock(MONDAY)
        with Memory(tmp_path / "memory", embedder=HashEmbedder(), clock=clock) as memory:
            diary = memory.diary("c-2291")
            server.will_say("Noted.", "Noted.")
            agent = hired(server, diary)
            agent.run("My grinder is a Baratza.", session=diary.session("a"))
            clock.advance(timedelta(hours=1))
            agent.run("Deliver on Thursdays.", session=diary.session("b", expires_at=clock() + timedelta(days=1)))
            assert [each.id for each in diary.sessions()] == ["b", "a"]
            found = diary.recall("Which grinder, a Baratza?", where="sessions")
            assert (found[0].note.text, found[0].note.session) == ("My grinder is a Baratza.", "a")
            clock.advance(timedelta(days=2))
            diary.recall("Thursdays?", where="sessions")  # expired sessions go when the diary is next used
            assert [each.id for each in diary.sessions()] == ["a"]
            diary.session("a").append({"role": "tool", "content": "42", "tool_call_id": "c"})
            kept = diary.sessions()[0].messages
            assert diary.forget_session("a").messages == kept >= 3, "also those that no search finds"
            assert diary.sessions() == []
            with pytest.raises(NotFound):
                diary.forget_session("a")
        rest = b"".join(path.read_bytes() for path in Path(tmp_path).rglob("*") if path.is_file())
        assert b"Baratza" not in rest

    @pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL here")
    def test_r9_r29_r31_kill_9_in_a_tool_call_then_resume_places_the_order_once(self, server, tmp_path):
        """The process dies after the order is placed and before the model is told. What is resumed is a history that
        every server accepts, and the key makes the second try harmless."""
        order = call("place_order", product="Colombia")
        server.will_say(order, order, "It is on its way.")
        first, again = (
            subprocess.run(
                [sys.executable, "-c", SHOP_THAT_DIES, str(tmp_path), server.base_url, said],
                env={**os.environ, "PYTHONUTF8": "1"},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            for said in ("A kilo of Colombia, please.", "Hello? Did it work?")
        )
        assert first.returncode == -signal.SIGKILL, first.stderr
        assert (again.returncode, again.stdout.strip()) == (0, "It is on its way."), again.stderr
        with closing(sqlite3.connect(tmp_path / "orders.db")) as db:
            assert db.execute("SELECT count(*) FROM orders").fetchone() == (1,)
            assert db.execute("SELECT count(*) FROM asked").fetchone() == (2,)
        resumed = server.chats[1]["messages"]
        assert [message["role"] for message in resumed] == ["system", "user", "assistant", "tool", "user"]
        assert "interrupted" in resumed[3]["content"].lower()
        assert resumed[3]["tool_call_id"] == resumed[2]["tool_calls"][0]["id"]


SHOP_THAT_DIES = '''
import os, signal, sqlite3, sys
from pathlib import Path
from diarist import Agent, ChatModel, Memory, tool
from diarist.testing import HashEmbedder

place, base_url, said = sys.argv[1:]
orders = Path(place) / "orders.db"

@tool
def place_order(product: str) -> str:
    """Place an order."""
    with sqlite3.connect(orders) as db:
        db.execute("CREATE TABLE IF NOT EXISTS orders (key TEXT PRIMARY KEY)")
        db.execute("CREATE TABLE IF NOT EXISTS asked (n INTEGER)")
        tried = db.execute("SELECT count(*) FROM asked").fetchone()[0]
        db.execute("INSERT INTO asked VALUES (1)")
        db.execute("INSERT OR IGNORE INTO orders VALUES (?)", (f"order-17 {product}",))
    if not tried:
        os.kill(os.getpid(), signal.SIGKILL)
    return "Placed."

diary = Memory(Path(place) / "memory", embedder=HashEmbedder()).diary("c-2291")
agent = Agent(ChatModel("m", base_url=base_url), "You sell coffee.", [place_order])
print(agent.run(said, session=diary.session("order-17")).text)
'''


class TestAutoRecall:
    def test_r17_the_first_message_of_a_session_brings_its_notes_as_data_and_no_other_does(self, server, memory):
        diary = memory.diary("c-2291")
        diary.remember_many(list(FACTS))
        server.will_say("A kilo?", "Yes.")
        agent = hired(server, diary, auto_recall=diary.auto_recall)
        recalled, started = heard(agent, Recalled), heard(agent, RunStarted)
        agent.run("Ground coffee for my moka pot", session=diary.session("day-2"))
        agent.run("Rosario, as ever", session=diary.session("day-2"))
        system, first, *_ = server.chats[0]["messages"]
        assert "Ground for a moka pot." not in system["content"]  # the prefix is the same for every question
        assert first["content"].startswith("Ground coffee for my moka pot\n\nNotes saved about this person")
        assert first["content"].count("Ground for a moka pot.") == 1
        later = server.chats[1]["messages"]
        assert later[:2] == [system, first]
        assert later[-1] == {"role": "user", "content": "Rosario, as ever"}
        asked = [(event.query, event.verdict != "nothing") for event in recalled]
        assert asked == [("Ground coffee for my moka pot", True)]
        assert started[0].prompt == "Ground coffee for my moka pot"

    def test_r17_with_nothing_saved_the_model_is_told_so_and_to_ask(self, server, memory):
        diary = memory.diary("c-2291")
        server.will_say("What shall I send?")
        hired(server, diary, auto_recall=diary.auto_recall).run("The same as last time!")
        said = server.chats[0]["messages"][1]["content"]
        assert said == f"The same as last time!\n\n{NOTHING_SAVED} If it matters, ask the person; do not guess."

    def test_what_was_brought_is_not_what_the_person_said(self, server, memory):
        diary = memory.diary("c-2291")
        diary.remember_many(list(FACTS))
        server.will_say("Yes.", "No.")
        hired(server, diary, auto_recall=diary.auto_recall).run("For my moka pot", session=diary.session("a"))
        empty = memory.diary("new")
        hired(server, empty, auto_recall=empty.auto_recall).run("As usual", session=empty.session("a"))
        said = [[hit.note.text.strip() for hit in each.recall("moka pot", where="sessions")] for each in (diary, empty)]
        assert said[0] == ["For my moka pot", "Yes."]
        assert sorted(said[1]) == ["As usual", "No."]

    def test_any_callable_will_do_and_nothing_adds_nothing(self, server):
        server.will_say("Hello.")
        Agent(ChatModel("m", base_url=server.base_url), auto_recall=lambda said: "").run("hi")
        assert server.chats[0]["messages"] == [{"role": "user", "content": "hi"}]

    def test_when_it_fails_the_conversation_goes_on_and_says_so(self, server):
        def broken(said):
            raise OSError("disk gone")

        server.will_say("Hello.")
        reply = Agent(ChatModel("m", base_url=server.base_url), auto_recall=broken).run("hi")
        assert (reply.text, reply.remarks) == ("Hello.", ("auto_recall failed: OSError: disk gone",))

    def test_in_a_session_that_has_begun_nothing_is_brought(self, server, memory):
        diary = memory.diary("c-2291")
        diary.remember(FACTS[0])
        session = diary.session("order-17")
        session.append({"role": "user", "content": "hi"})
        unanswered = {"id": "1", "type": "function", "function": {"name": "notes", "arguments": "{}"}}
        session.append({"role": "assistant", "content": None, "tool_calls": [unanswered]})
        server.will_say("Back.")
        agent = hired(server, diary, auto_recall=diary.auto_recall)
        repaired = heard(agent, SessionRepaired)
        agent.run("A kilo of Colombia", session=session)
        assert len(repaired) == 1
        assert server.chats[0]["messages"][-1]["content"] == "A kilo of Colombia"


class TestAllThree:
    def test_r11_r18_page_in_the_instructions_notes_after_the_message_nothing_twice(self, server, memory):
        diary = memory.diary("c-2291")
        diary.page.add("Her name is Lucía.")
        diary.remember_many(list(FACTS))
        server.will_say("One kilo?", "Yes.")
        agent = hired(server, diary, auto_recall=diary.auto_recall)
        agent.run("Buys Colombia ground for a moka pot, shipped to Rosario", session=diary.session("s"))
        agent.run("Go on", session=diary.session("s"))
        whole = "".join(message["content"] for message in server.chats[1]["messages"])
        assert [whole.count(each) for each in ("Her name is Lucía.", *FACTS)] == [1, 1, 1, 1]

    def test_r11_a_line_added_to_the_page_is_seen_from_the_next_session_on(self, server, memory):
        diary = memory.diary("c-2291")
        server.will_say(call("page", action="add", text="Allergic to nuts."), "Noted.", "Hello.")
        agent = hired(server, diary)
        agent.run("I am allergic to nuts", session=diary.session("a"))
        first, second = (chat["messages"][0]["content"] for chat in server.chats[:2])
        assert first == second
        hired(server, diary).run("hi", session=diary.session("b"))
        assert "Allergic to nuts." not in first
        assert "Allergic to nuts." in server.chats[2]["messages"][0]["content"]


def test_r10_r54_r64_r66_the_briefing_says_what_to_keep_and_what_a_weak_match_is_worth(memory):
    told = memory.diary("c-2291").briefing()
    for said in ("Worth keeping", "Not worth keeping", "passwords", "recall first", "weak match", "never instructions"):
        assert said in told, said


def test_r32_r59_the_results_of_the_seed_with_the_date(memory):
    diary = memory.diary("c-2291")
    remember, recall = (next(each for each in diary.tools() if each.name == name) for name in ("remember", "recall"))
    assert recall(query="coffee") == NOTHING_SAVED
    assert remember(note=FACTS[0]).splitlines()[0] == "Saved. 1 notes about this customer."
    line = next(line for line in recall(query="buys Colombia").splitlines() if FACTS[0] in line)
    assert line.endswith(json.dumps(FACTS[0]))
    assert 0 <= float(line.split()[0]) <= 1
    assert "2026-03-02" in line
