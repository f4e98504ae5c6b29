"""The loop: over real HTTP on loopback, with a server that refuses whatever any server was seen to refuse."""

from __future__ import annotations

import ast
import asyncio
import contextvars
import json
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import diarist.agent
from diarist import Agent, ChatModel, EndpointError, Tool, events, history, tool
from diarist.model import ModelReply, ToolCall
from diarist.testing import ScriptedModel, call
from diarist.testing.chat import refusal


@tool
def recall(query: str = "", limit: int = 8) -> str:
    """Search the notes."""
    return f"0.82 2026-03-01 {query}"


@tool
def remember(note: str) -> str:
    """Save a note."""
    return f"Saved: {note}"


class Session:
    """A session in memory, as `diary.session` gives one."""

    def __init__(self, *messages):
        self.id = "order-17"
        self._kept = [json.dumps(message) for message in messages]
        self.fails_at = None

    @property
    def messages(self):
        return [json.loads(message) for message in self._kept]

    def append(self, message):
        if len(self._kept) == self.fails_at:
            raise OSError("disk full")
        self._kept.append(json.dumps(message))
        return f"m{len(self._kept)}"


def agent(server, *steps, tools=(recall, remember), instructions="You sell coffee.", **more):
    server.will_say(*steps)
    return Agent(ChatModel("m", base_url=server.base_url), instructions, tools, **more)


def told(reply):
    return [message["content"] for message in reply.messages if message["role"] == "tool"]


def of(one, kind):
    heard = []
    one.events.subscribe(lambda event: heard.append(event) if isinstance(event, kind) else None)
    return heard


class TestTheShape:
    def test_r20_the_loop_imports_no_memory_module(self):
        allowed = {"errors", "events", "history", "model", "tool", ""}
        for module in (diarist.agent, diarist.history):
            for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.level:
                    names = {node.module or ""} if node.module else {alias.name for alias in node.names}
                    # `analysis` counts tokens, and knows nothing of notes.
                    assert names <= allowed | {"analysis"}, ast.dump(node)
                if isinstance(node, ast.Import):
                    assert not any("diarist" in alias.name for alias in node.names)

    def test_r1_a_run_begins_with_system_and_user_and_nothing_else(self, server):
        one = agent(server, "Hello.", "Again.")
        one.run("hi")
        one.run("hi again")
        assert [message["role"] for message in server.chats[0]["messages"]] == ["system", "user"]
        assert server.chats[1]["messages"] == [
            {"role": "system", "content": "You sell coffee."},
            {"role": "user", "content": "hi again"},
        ]

    def test_no_instructions_no_system_message_no_tools_no_tools(self, server):
        agent(server, "Hello.", tools=(), instructions=" \n").run("hi")
        assert server.chats[0] == {"model": "m", "messages": [{"role": "user", "content": "hi"}]}

    def test_the_reply_holds_the_whole_transcript(self, server):
        reply = agent(server, ["Wait. ", call("recall", query="x")], "Done.").run("hi")
        assert (reply.text, reply.turns, reply.stop_reason, reply.remarks) == ("Done.", 2, "stop", ())
        assert reply.messages == [
            {"role": "system", "content": "You sell coffee."},
            {"role": "user", "content": "hi"},
            {
                "role": "assistant",
                "content": "Wait. ",
                "tool_calls": [
                    {
                        "id": "call-0-0",
                        "type": "function",
                        "function": {"name": "recall", "arguments": '{"query": "x"}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call-0-0", "content": "0.82 2026-03-01 x"},
            {"role": "assistant", "content": "Done."},
        ]
        assert server.chats[1]["messages"] == reply.messages[:-1]
        assert reply.usage.input_tokens > 0

    def test_plain_functions_become_tools_and_names_are_unique(self, server):
        def now() -> str:
            """The time."""
            return "12:00"

        assert told(agent(server, call("now"), "ok", tools=[now]).run("hi")) == ["12:00"]
        with pytest.raises(ValueError, match="'recall'"):
            Agent(ScriptedModel(), tools=[recall, recall])

    @pytest.mark.parametrize("bad", ["", " \n", None, 3])
    def test_a_prompt_is_text(self, bad):
        one = Agent(ScriptedModel())
        for ask in (one.run, one.stream):
            with pytest.raises((ValueError, TypeError), match="prompt"):
                ask(bad)

    @pytest.mark.parametrize("settings", [{"max_turns": 0}, {"token_budget": 0}])
    def test_bad_settings_are_refused_at_once(self, settings):
        with pytest.raises(ValueError, match="at least 1"):
            Agent(ScriptedModel(), **settings)

    def test_lone_surrogates_never_reach_the_server(self, server):
        @tool
        def bad() -> str:
            return "half \ud83d pair"

        server.fail("lone surrogate")
        one = agent(server, ["x", call("bad"), call("recall", query="\ud83d")], "ok", tools=[bad, recall])
        one.instructions = "a \ud83d b"
        assert one.run("c \ud83d d").text == "ok"


@pytest.mark.parametrize("way", ["run", "stream"])
class TestEveryQuirk:
    """What servers do, through the loop: whatever it is, the next request is one that the strictest takes."""

    def go(self, one, way, prompt="hi", session=None):
        if way == "run":
            return one.run(prompt, session)
        *_, last = one.stream(prompt, session)
        return last.reply

    @pytest.mark.parametrize(
        "quirk",
        [
            "stop with calls",
            "no ids",
            "null ids",
            "same ids",
            "flat calls",
            "arguments object",
            "content missing",
            "content newlines",
            "reasoning_content",
            "think",
            "extra keys",
            "stream: index 0",
            "stream: changing ids",
        ],
    )
    def test_r21_r22_r24_calls_are_carried_out_once_each(self, server, way, quirk):
        server.fail(quirk)
        one = agent(server, ["Wait. ", call("recall", query="a"), call("recall", query="b")], "Done.")
        reply = self.go(one, way)
        assert told(reply) == ["0.82 2026-03-01 a", "0.82 2026-03-01 b"]
        assert reply.text == "Done."

    @pytest.mark.parametrize("quirk", ["cut call", "length"])
    def test_r23_cut_off_calls_are_not_carried_out(self, server, way, quirk):
        server.fail(quirk)
        reply = self.go(agent(server, call("recall", query="abc"), "Done."), way)
        assert told(reply) == ["Not done: the call was cut off at the length limit. Call again, with less text."]
        assert reply.stop_reason == "stop"
        assert "cut off" in reply.remarks[0]

    def test_r23_partial_text_is_marked(self, server, way):
        server.fail("length")
        reply = self.go(agent(server, "Once upon a"), way)
        assert (reply.text, reply.stop_reason) == ("Once upon a", "length")
        assert reply.remarks == ("the answer was cut off",)

    @pytest.mark.parametrize(
        ("quirk", "told_of"),
        [
            ("cut call, relabelled", "not valid JSON"),
            ("arguments quoted wrongly", "not valid JSON"),
            ("arguments bare", "a text, not an object"),
            ("arguments list", "a list, not an object"),
            ("arguments echo the schema", "'required'"),
        ],
    )
    def test_r25_rw_049_bad_arguments_are_told_and_the_history_stays_valid(self, server, way, quirk, told_of):
        session = Session()
        server.fail(quirk)
        one = agent(server, call("recall", query="a 'b'"), call("recall", query="right"), "Done.", "Later.")
        reply = self.go(one, way, session=session)
        first, second = told(reply)
        assert first.startswith("recall: ")
        assert told_of in first
        assert "recall takes query (string), limit (integer)." in first
        assert second == "0.82 2026-03-01 right"
        assert self.go(one, way, session=session).text == "Later."

    def test_r24_an_error_in_a_200(self, server, way):
        server.fail("error in 200")
        with pytest.raises(EndpointError, match="model crashed"):
            self.go(agent(server, "never"), way)

    @pytest.mark.parametrize("quirk", ["text: bare", "text: fenced", "text: tool_call", "text: tools", "text: list"])
    def test_r24_rw_050_a_call_written_as_text_is_reported_and_not_carried_out(self, server, way, quirk):
        one = agent(server, call("remember", note="locker is 52"))
        seen, started = of(one, events.TextCallSeen), of(one, events.ToolStarted)
        server.fail(quirk)
        reply = self.go(one, way, "Remember that my locker is 52")
        assert reply.stop_reason == "text_call"
        assert "remember written as text; it was not carried out" in reply.remarks[0]
        assert [(event.names, event.rescued) for event in seen] == [(("remember",), False)]
        assert started == []

    @pytest.mark.parametrize("quirk", ["text: bare", "text: fenced", "text: tool_call", "text: tools", "text: list"])
    def test_rw_050_or_carried_out_once_if_that_is_wanted(self, server, way, quirk):
        one = agent(server, call("remember", note="locker is 52"), "Noted.", rescue_text_calls=True)
        server.fail(quirk)
        reply = self.go(one, way)
        assert (told(reply), reply.text) == (["Saved: locker is 52"], "Noted.")

    @pytest.mark.parametrize("quirk", ["text: prose around", "text: quoted"])
    def test_rw_050_what_is_quoted_in_an_answer_is_never_carried_out(self, server, way, quirk):
        one = agent(server, call("remember", note="locker is 52"), rescue_text_calls=True)
        server.fail(quirk)
        reply = self.go(one, way)
        assert (told(reply), reply.stop_reason) == ([], "stop")
        assert "not carried out" in reply.remarks[0]

    def test_r30_an_empty_answer_is_asked_for_once_more(self, server, way):
        reply = self.go(agent(server, "", "Hello."), way)
        assert (reply.text, reply.stop_reason, reply.turns) == ("Hello.", "stop", 2)
        assert server.chats[0]["messages"] == server.chats[1]["messages"]

    def test_r30_two_empty_answers_are_a_result_that_says_so(self, server, way):
        session = Session()
        one = agent(server, "", " \n", "Hello.")
        reply = self.go(one, way, session=session)
        assert (reply.text, reply.stop_reason, reply.turns) == ("", "empty", 2)
        assert "no text and no call" in reply.remarks[0]
        assert [message["role"] for message in session.messages] == ["user"]
        assert self.go(one, way, session=session).text == "Hello."

    def test_r24_reasoning_goes_back_only_by_setting(self, server, way):
        for keep in (False, True):
            server.requests.clear()
            server.fail("reasoning_content")
            one = agent(server, call("recall", query="x"), "Done.")
            one.model = ChatModel("m", base_url=server.base_url, keep_reasoning=keep)
            server.strict = not keep
            self.go(one, way)
            server.strict = True
            assert ("reasoning_content" in server.chats[1]["messages"][2]) is keep


class TestCalls:
    def test_r21_they_run_at_the_same_time_and_are_answered_in_order(self, server):
        gate = threading.Barrier(3, timeout=10)
        order = threading.Event()

        @tool
        def meet(name: str) -> str:
            gate.wait()
            if name == "a":
                order.wait(10)
            else:
                order.set()
            return name

        one = agent(server, [call("meet", name=name) for name in "abc"], "Done.", tools=[meet])
        ended = of(one, events.ToolEnded)
        assert told(one.run("hi")) == ["a", "b", "c"]
        assert [event.result for event in ended] == ["a", "b", "c"]

    def test_r21_many_in_one_turn(self, server):
        reply = agent(server, [call("recall", query=str(n)) for n in range(100)], "Done.").run("hi")
        assert told(reply) == [f"0.82 2026-03-01 {n}" for n in range(100)]

    def test_tools_see_the_callers_context(self, server):
        who = contextvars.ContextVar("who", default="nobody")

        @tool
        def ask() -> str:
            return who.get()

        one = agent(server, [call("ask"), call("recall")], "Done.", tools=[ask, recall])
        who.set("ana")
        assert told(one.run("hi"))[0] == "ana"

    def test_r25_unknown_tools(self, server):
        odd = ToolCall("1", "no such/töol" * 20, {}, "{}")
        reply = agent(server, [call("forget_all"), odd], "Done.").run("hi")
        assert told(reply)[0] == "There is no tool 'forget_all': the tools are recall, remember."
        assert len(told(reply)[1]) < 200
        assert told(agent(server, call("x"), "Done.", tools=()).run("hi")) == [
            "There is no tool 'x': there are no tools."
        ]

    def test_r25_r55_unknown_arguments_are_refused(self, server):
        reply = agent(server, call("remember", note="x", owner="someone else"), "Done.").run("hi")
        assert told(reply) == ["remember: no argument 'owner' is known. remember takes note (string, required)."]

    def test_what_a_tool_raises_is_told_and_the_loop_goes_on(self, server):
        @tool
        def breaks(how: str) -> str:
            if how == "exit":
                raise SystemExit(3)
            raise KeyError(how)

        one = agent(server, [call("breaks", how="x"), call("breaks", how="exit")], "Done.", tools=[breaks])
        ended = of(one, events.ToolEnded)
        assert told(one.run("hi")) == ["breaks failed: KeyError: 'x'", "breaks failed: SystemExit: 3"]
        assert [event.ok for event in ended] == [False, False]

    def test_async_tools_and_results_that_are_no_text(self, server):
        @tool
        async def order() -> dict:
            await asyncio.sleep(0)
            return {"città": "Córdoba", "kg": 1}

        @tool
        def nothing() -> None:
            pass

        reply = agent(server, [call("order"), call("nothing")], "Done.", tools=[order, nothing]).run("hi")
        assert told(reply) == ['{"città": "Córdoba", "kg": 1}', "(no output)"]

    def test_r27_three_remember_in_one_turn(self, server):
        reply = agent(server, [call("remember", note=note) for note in "abc"], "Done.").run("hi")
        assert told(reply) == ["Saved: a", "Saved: b", "Saved: c"]

    def test_ids_that_a_server_gives_again_are_made_unique(self, server):
        same = [ToolCall("call_0", "recall", {"query": query}, f'{{"query": "{query}"}}') for query in "ab"]
        reply = agent(server, same[0], same[1], "Done.").run("hi")
        ids = [message["tool_call_id"] for message in reply.messages if message["role"] == "tool"]
        assert ids[0] == "call_0"
        assert len(ids[1]) == 9
        assert ids[1].isalnum()


class TestApproval:
    @tool(needs_approval=True)
    @staticmethod
    def place_order(product: str) -> str:
        """Order."""
        return f"ordered {product}"

    def test_r66_without_anybody_to_ask_it_is_not_done(self, server):
        reply = agent(server, call("place_order", product="x"), "Ok.", tools=[self.place_order]).run("hi")
        assert told(reply) == ["Not done: place_order needs a person's approval, and nobody can be asked here."]

    @pytest.mark.parametrize("answer", [False, None, 0, "yes", 1])
    def test_r66_anything_but_true_is_a_no(self, server, answer):
        one = agent(server, call("place_order", product="x"), "Ok.", tools=[self.place_order], approve=lambda _: answer)
        assert told(one.run("hi")) == ["Not done: a person refused this call of place_order."]

    def test_r66_the_call_is_shown_and_done_after_a_yes(self, server):
        asked = []

        async def approve(wanted):
            asked.append((wanted.name, wanted.arguments))
            return True

        one = agent(server, call("place_order", product="x"), "Ok.", tools=[self.place_order], approve=approve)
        assert told(one.run("hi")) == ["ordered x"]
        assert asked == [("place_order", {"product": "x"})]

    def test_r66_a_tool_may_decide_by_its_arguments_and_fails_closed(self, server):
        def big(arguments):
            return 1 / (10 - arguments["kg"]) < 0.2

        made = []
        order = Tool(
            "order",
            "",
            {"type": "object", "properties": {"kg": {"type": "number"}}, "required": ["kg"]},
            lambda kg: made.append(kg) or "ordered",
            big,
        )
        one = agent(server, [call("order", kg=9), call("order", kg=1), call("order", kg=10)], "Ok.", tools=[order])
        first, second, third = told(one.run("hi"))
        assert first == "ordered"
        assert "approval" in second
        assert "ZeroDivisionError" in third
        assert made == [9]


class TestBounds:
    def test_r28_max_turns_keeps_the_transcript(self, server):
        one = agent(server, *[["Wait. ", call("recall", query=str(n))] for n in range(3)], max_turns=3)
        session = Session()
        reply = one.run("hi", session)
        assert (reply.stop_reason, reply.turns, reply.text) == ("max_turns", 3, "Wait. ")
        assert "max_turns" in reply.remarks[0]
        assert len(told(reply)) == 3
        assert len(server.chats) == 3
        assert [system := reply.messages[0], *session.messages] == reply.messages
        assert system["role"] == "system"

    def test_r28_rw_051_the_same_call_again_and_again_is_stopped_and_said(self, server):
        ran = []

        @tool
        def look(query: str) -> str:
            ran.append(query)
            return "0.3 silver spoon"

        one = agent(server, *[call("look", query="silver")] * 10, tools=[look])
        reply = one.run("Why is silver getting dearer?")
        assert ran == ["silver", "silver"]
        assert (
            told(reply)[2:]
            == ["Already done, same result as before. Do not call look like this again: answer now."] * 2
        )
        assert (reply.stop_reason, reply.turns) == ("repeating", 4)
        assert "look" in reply.remarks[0]

    def test_rw_051_it_may_still_answer_after_it_was_told(self, server):
        reply = agent(server, *[call("recall", query="x")] * 3, "Here is what I have.").run("hi")
        assert (reply.stop_reason, reply.text) == ("stop", "Here is what I have.")

    def test_rw_051_five_of_a_kind_in_one_turn_are_not_a_loop_yet(self, server):
        reply = agent(server, [call("recall", query="x")] * 5, "Done.").run("hi")
        assert reply.stop_reason == "stop"
        assert [text.startswith("Already") for text in told(reply)] == [False, False, True, True, True]

    def test_rw_051_other_arguments_in_another_order_or_another_run_count_anew(self, server):
        one = agent(server, *[call("recall", query="x"), call("recall", query="x", limit=3)] * 2, "Done.", "Hi.")
        assert "Already" not in "".join(told(one.run("hi")))
        one = agent(server, *[call("recall", query="x")] * 2, "Done.")
        one.run("hi")
        assert "Already" not in "".join(told(one.run("hi")))

    def test_rw_049_the_same_fault_again_and_again_is_stopped_too(self, server):
        bad = ToolCall("", "recall", None, '{"query": "x')
        reply = agent(server, *[bad] * 10).run("hi")
        assert (reply.stop_reason, reply.turns) == ("repeating", 4)
        assert told(reply)[2].startswith("Already tried, same error as before. recall: the arguments are not valid")

    def test_rw_054_a_prompt_that_the_server_cut_is_remarked(self):
        model = ScriptedModel([ModelReply("ok", usage=diarist.agent.Usage(100, 1))])
        assert "may have cut" in Agent(model).run("many words " * 2000).remarks[0]


class TestSessions:
    def test_r6_what_comes_back_is_byte_equal_plus_the_new(self, server):
        session = Session()
        one = agent(server, ["Wait. ", call("recall", query="größer")], "Fine ☕", "Yes.")
        one.run("hi", session)
        one.run("and?", session)
        last_of_day_1, first_of_day_2 = server.chats[1]["messages"], server.chats[2]["messages"]
        told_before = json.dumps([*last_of_day_1, {"role": "assistant", "content": "Fine ☕"}])
        assert json.dumps(first_of_day_2[:-1]) == told_before
        assert first_of_day_2[-1] == {"role": "user", "content": "and?"}

    def test_every_message_is_safe_before_the_next_request_leaves(self, server):
        session = Session()
        seen = []

        def step(messages):
            seen.append(([message["role"] for message in session.messages], len(messages)))
            return call("recall", query=str(len(seen))) if len(seen) < 3 else "Done."

        agent(server, step, step, step).run("hi", session)
        assert seen == [
            (["user"], 2),
            (["user", "assistant", "tool"], 4),
            (["user", "assistant", "tool", "assistant", "tool"], 6),
        ]
        assert session.messages[-1] == {"role": "assistant", "content": "Done."}

    def test_a_call_is_safe_before_the_tool_runs(self, server):
        session = Session()

        @tool
        def look() -> str:
            return session.messages[-1]["tool_calls"][0]["function"]["name"]

        assert told(agent(server, call("look"), "Done.", tools=[look]).run("hi", session)) == ["look"]

    def test_a_message_that_cannot_be_saved_ends_the_run_before_anything_is_sent(self, server):
        session = Session()
        session.fails_at = 0
        with pytest.raises(OSError, match="disk full"):
            agent(server, "never").run("hi", session)
        assert server.chats == []

    def test_r8_what_resuming_costs_is_said(self, server):
        one = agent(server, "Hello.", "Again.")
        started, saved = of(one, events.RunStarted), of(one, events.SessionSaved)
        session = Session()
        one.run("hi", session)
        one.run("hi again", session)
        assert [(event.session, event.messages) for event in started] == [("order-17", 0), ("order-17", 2)]
        assert started[1].tokens > 0
        assert [(event.message, event.role) for event in saved][:2] == [("m1", "user"), ("m2", "assistant")]

    def test_r9_an_unanswered_call_at_the_end_is_repaired_where_it_is_saved_too(self, server):
        calls = [
            {"id": str(n), "type": "function", "function": {"name": "recall", "arguments": "{}"}} for n in range(2)
        ]
        session = Session(
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "0", "content": "found"},
        )
        one = agent(server, "Hello.")
        repaired = of(one, events.SessionRepaired)
        assert one.run("still there?", session).text == "Hello."
        assert [(event.calls, event.dropped) for event in repaired] == [(("1",), 0)]
        assert session.messages[3] == {"role": "tool", "tool_call_id": "1", "content": history.INTERRUPTED}
        server.will_say("Again.")
        one.run("and now?", session)
        assert len(repaired) == 1

    @pytest.mark.parametrize(
        "saved",
        [
            [{"role": "tool", "tool_call_id": "x", "content": "orphan"}],
            [{"role": "system", "content": "old instructions"}, {"role": "developer", "content": "x"}],
            [{"role": "user", "content": None}, {"role": "assistant", "content": None}],
            [{"role": "assistant", "content": "", "tool_calls": []}, {"role": "function", "content": "x"}],
            [{"role": "assistant", "content": [{"type": "text", "text": "parts"}], "audio": None, "refusal": None}],
            [
                {"role": "user", "content": "a", "created_at": "2026-01-01T00:00:00Z", "id": "m1"},
                {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [
                        {"id": None, "function": {"name": "a b", "arguments": '{"note": "'}},
                        {"id": "1", "type": "function", "function": {"name": "b", "arguments": {"x": 1}}},
                        {"id": "1", "name": "c", "arguments": ""},
                        "nonsense",
                    ],
                },
                {"role": "tool", "tool_call_id": "1", "content": {"a": 1}},
                {"role": "tool", "tool_call_id": "2", "content": None},
                {"role": "user", "content": "next"},
                {
                    "role": "assistant",
                    "content": "x",
                    "tool_calls": [{"id": "1", "function": {"name": "b", "arguments": "[]"}}],
                },
                {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "ok"}]},
            ],
        ],
    )
    def test_r9_whatever_was_saved_every_server_takes_what_is_sent(self, server, saved):
        assert agent(server, "Hello.").run("hi", Session(*saved)).text == "Hello."
        assert history.rebuilt(history.rebuilt(saved).messages).messages == history.rebuilt(saved).messages


class TestInterrupted:
    def interrupted_in_a_tool(self, server, error):
        """Three calls: the first is done, the second is under way, when the main thread is interrupted."""
        release = threading.Event()

        @tool
        def work(n: int) -> str:
            if n == 2:
                release.wait(10)
            return f"done {n}"

        one = agent(server, [call("work", n=1), call("work", n=2), call("nothing")], "Back.", tools=[work])
        session = Session()

        def interrupt(event):
            if isinstance(event, events.ToolEnded) and event.result == "done 1":
                raise error

        one.events.subscribe(interrupt)
        return one, session, release

    def test_r29_ctrl_c_leaves_every_call_answered_and_the_session_resumable(self, server):
        one, session, release = self.interrupted_in_a_tool(server, KeyboardInterrupt())
        ended = of(one, events.RunEnded)
        with pytest.raises(KeyboardInterrupt):
            one.run("hi", session)
        release.set()
        results = [message["content"] for message in session.messages if message["role"] == "tool"]
        assert results[-2:] == [history.INTERRUPTED, "There is no tool 'nothing': the tools are work."]
        assert "done 1" in results
        assert ended[0].stop_reason == "interrupted"
        assert one.run("where were we?", session).text == "Back."

    def test_r29_a_real_interrupt_while_a_tool_runs(self, server):
        release = threading.Event()

        @tool
        def work() -> str:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            release.wait(10)
            return "late"

        session = Session()
        one = agent(server, call("work"), "Back.", tools=[work])
        with pytest.raises(KeyboardInterrupt):
            one.run("hi", session)
        release.set()
        assert session.messages[-1]["content"] == history.INTERRUPTED
        assert one.run("hi", session).text == "Back."

    def test_r29_a_real_interrupt_while_the_model_thinks(self, server):
        release = threading.Event()

        def step(messages):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
            release.wait(10)
            return "late"

        session = Session()
        one = agent(server, step, "Back.")
        with pytest.raises(KeyboardInterrupt):
            one.run("hi", session)
        release.set()
        assert [message["role"] for message in session.messages] == ["user"]
        assert one.run("hi", session).text == "Back."

    def test_r29_leaving_a_stream_does_too(self, server):
        release = threading.Event()

        @tool
        def work(n: int) -> str:
            release.wait(10)
            return f"done {n}"

        one = agent(server, [call("work", n=1), call("work", n=2)], "Back.", tools=[work])
        ended, session = of(one, events.RunEnded), Session()
        for event in one.stream("hi", session):
            if isinstance(event, events.ToolStarted):
                break
        del event
        release.set()
        results = [message["content"] for message in session.messages if message["role"] == "tool"]
        assert results == [history.INTERRUPTED, history.INTERRUPTED]
        assert ended[0].stop_reason == "interrupted"
        assert one.run("hi", session).text == "Back."

    def test_r29_an_interrupt_while_a_person_is_asked(self, server):
        ran = []

        def approve(wanted):
            raise KeyboardInterrupt

        @tool(needs_approval=True)
        def order() -> str:
            ran.append(1)
            return "ordered"

        session = Session()
        with pytest.raises(KeyboardInterrupt):
            agent(server, [call("order"), call("order")], tools=[order], approve=approve).run("hi", session)
        assert [message["content"] for message in session.messages[2:]] == [history.NOT_BEGUN] * 2
        assert ran == []

    def test_r29_a_retry_of_the_request_never_runs_a_tool_twice(self, server, monkeypatch):
        monkeypatch.setattr("diarist.wire._sleep", lambda _: None)
        ran = []

        @tool
        def order() -> str:
            ran.append(1)
            return "ordered"

        server.fail("busy", "ok", "unavailable", "bad gateway", "ok")
        assert agent(server, call("order"), "Done.", tools=[order]).run("hi").text == "Done."
        assert ran == [1]
        assert len(server.chats) == 5

    def test_r29_a_failing_endpoint_leaves_a_resumable_session(self, server):
        session = Session()
        one = agent(server, call("recall", query="x"), "Back.")
        server.fail("ok", "broken")
        with pytest.raises(EndpointError, match="division by zero"):
            one.run("hi", session)
        assert one.run("again", session).text == "Back."


def long_session(turns=30):
    """Single and parallel calls, words, and nothing that a server would refuse."""
    told = []
    for n in range(turns):
        told.append({"role": "user", "content": f"question {n} " + "lorem " * (n % 7)})
        if n % 3:
            calls = [
                {
                    "id": f"c{n}x{k}",
                    "type": "function",
                    "function": {"name": "recall", "arguments": json.dumps({"query": "x" * n})},
                }
                for k in range(n % 3)
            ]
            told.append({"role": "assistant", "content": "", "tool_calls": calls})
            told += [{"role": "tool", "tool_call_id": each["id"], "content": "found " * n} for each in calls]
        told.append({"role": "assistant", "content": f"answer {n}"})
    return told


class TestTheBudget:
    def fixed(self):
        return history.tokens([history.system("Sell.")]) + history.tokens_of([recall.schema])

    def test_r8_rw_052_for_every_budget_the_request_is_valid(self):
        saved = long_session()
        whole = history.tokens(saved) + self.fixed()
        for budget in range(self.fixed() + 96, whole + 40, 7):
            model = ScriptedModel(["ok"])
            session = Session(*saved)
            one = Agent(model, "Sell.", [recall], token_budget=budget)
            trimmed = of(one, events.SessionTrimmed)
            one.run("the newest question", session)
            ((messages, tools),) = model.requests
            assert refusal({"messages": messages, "tools": tools}) is None
            assert [messages[0]["role"], messages[1]["role"]] == ["system", "user"]
            assert messages[-1] == {"role": "user", "content": "the newest question"}
            assert history.tokens(messages) + history.tokens_of(tools) <= budget
            assert bool(trimmed) is (len(messages) < len(saved) + 2)
            if trimmed:
                assert trimmed[0].messages == len(saved) + 2 - len(messages)
                assert trimmed[0].tokens > 0
            assert len(session.messages) == len(saved) + 2
        assert not trimmed

    def test_rw_054_giants_are_shortened_with_a_mark_and_the_session_stays_whole(self):
        giant = "word " * 20_000
        saved = [*long_session(200), {"role": "user", "content": giant}, {"role": "assistant", "content": giant}]

        @tool
        def recall_50(query: str) -> str:
            return "\n".join(f"0.8 2026-03-01 note {n} " + "long " * 60 for n in range(50))

        for budget in (4096, 2000):
            session = Session(*saved)
            model = ScriptedModel([call("recall_50", query="x"), call("recall_50", query="y"), "ok"])
            one = Agent(model, "system " * 510, [recall_50], token_budget=budget)
            trimmed = of(one, events.SessionTrimmed)
            assert one.run("hi", session).text == "ok"
            for messages, tools in model.requests:
                assert refusal({"messages": messages, "tools": tools}) is None
                assert history.tokens(messages) + history.tokens_of(tools) <= budget
                assert {"role": "user", "content": "hi"} in messages
            assert "characters left out" in model.requests[-1].messages[-1]["content"]
            assert trimmed[0].messages > 300
            assert session.messages[: len(saved)] == saved

    def test_rw_054_a_giant_prompt_is_shortened_and_giant_arguments_stay_json(self):
        model = ScriptedModel([call("remember", note="note " * 9_000), "ok"])
        one = Agent(model, "Sell.", [remember], token_budget=1_000)
        assert one.run("word " * 9_000).text == "ok"
        for messages, tools in model.requests:
            assert refusal({"messages": messages, "tools": tools}) is None
            assert history.tokens(messages) + history.tokens_of(tools) <= 1_000
        assert "left out" in model.requests[0].messages[-1]["content"]

    def test_rw_054_many_calls_in_one_turn_let_go_of_the_oldest_with_their_results(self):
        steps = [[call("remember", note=f"{n} {k} " + "x" * 400) for k in range(3)] for n in range(9)]
        model = ScriptedModel([*steps, "ok"])
        one = Agent(model, "Sell.", [remember], token_budget=700)
        assert one.run("go").text == "ok"
        for messages, tools in model.requests:
            assert refusal({"messages": messages, "tools": tools}) is None
            assert history.tokens(messages) + history.tokens_of(tools) <= 700
            assert messages[1] == {"role": "user", "content": "go"}

    def test_rw_054_what_does_not_fit_at_all_is_one_clear_error_with_the_numbers(self):
        one = Agent(ScriptedModel(), "system " * 900, [recall], token_budget=1_000)
        with pytest.raises(ValueError, match=r"token_budget=1000 leaves 0 tokens .* takes 1\d+ \(instructions 15\d\d"):
            one.run("hi")


class TestThreadsAndLoops:
    def test_rw_039_inside_running_loops_and_in_two_one_after_the_other(self, server):
        @tool
        async def later() -> str:
            await asyncio.sleep(0)
            return "later"

        one = agent(server, *[call("later"), "Done."] * 4, tools=[later])

        async def inside():
            return one.run("hi").text

        async def beside():
            return (await asyncio.to_thread(one.run, "hi")).text

        assert [asyncio.run(run()) for run in (inside, beside, inside, beside)] == ["Done."] * 4

    def test_one_agent_in_eight_threads(self, server):
        def answer(messages):
            asked = messages[1]["content"]
            return f"answer to {asked}" if len(messages) > 2 else call("recall", query=asked)

        one = agent(server, *[answer] * 64)
        with ThreadPoolExecutor(8) as pool:
            replies = list(pool.map(one.run, [f"q{n}" for n in range(32)]))
        assert [reply.text for reply in replies] == [f"answer to q{n}" for n in range(32)]
        assert [told(reply) for reply in replies] == [[f"0.82 2026-03-01 q{n}"] for n in range(32)]

    def test_r69_a_stream_tells_what_run_tells_and_ends_with_the_reply(self, server):
        one = agent(server, ["Let me look. ", call("recall", query="x")], "It is here.")
        heard = []
        one.events.subscribe(heard.append)
        streamed = list(one.stream("hi"))
        assert streamed == heard
        assert isinstance(streamed[-1], events.RunEnded)
        assert streamed[-1].reply.text == "It is here."
        deltas = [event.text for event in streamed if isinstance(event, events.TextDelta)]
        assert "".join(deltas) == "Let me look. It is here."
        assert len(deltas) > 4

    def test_a_listener_that_fails_at_the_end_does_not_come_after_the_end(self, server):
        one = agent(server, "Hello.")

        def bad(event):
            raise RuntimeError

        one.events.subscribe(bad)
        assert isinstance(list(one.stream("hi"))[-1], events.RunEnded)


class TestScripted:
    def test_it_fails_when_a_step_is_left_or_missing(self):
        with pytest.raises(AssertionError, match="1 of 2 steps were not used"), ScriptedModel(["a", "b"]) as model:
            Agent(model).run("hi")
        with pytest.raises(AssertionError, match="request 1 to a model with 0 steps"):
            Agent(ScriptedModel()).run("hi")

    def test_it_raises_and_computes_what_it_is_told_to(self):
        model = ScriptedModel([lambda messages: f"{len(messages)} messages", EndpointError("as wanted")])
        assert Agent(model).run("hi").text == "1 messages"
        with pytest.raises(EndpointError, match="as wanted"):
            Agent(model).run("hi")
        assert [len(asked.messages) for asked in model.requests] == [1, 1]


@pytest.mark.parametrize(
    "body",
    [
        {"messages": []},
        {"messages": [{"role": "user", "content": "x"}], "tools": []},
        {"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "x"}]},
        {"messages": [{"role": "system", "content": "x"}, {"role": "system", "content": "x"}]},
        {"messages": [{"role": "user", "content": None}]},
        {"messages": [{"role": "user", "content": "\ud83d"}]},
        {"messages": [{"role": "tool", "tool_call_id": "1", "content": "x"}]},
        {"messages": [{"role": "user", "content": "x"}, {"role": "assistant", "content": "x"}]},
        {"messages": [{"role": "function", "content": "x"}]},
    ],
)
def test_the_strict_server_is_strict(body):
    assert refusal(body)
