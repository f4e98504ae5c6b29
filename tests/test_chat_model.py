"""`ChatModel` over real HTTP on loopback, whole and streamed, against what servers were seen to do."""

from __future__ import annotations

import json
import time

import pytest

from diarist import ChatModel, EndpointError, wire
from diarist.model import ModelReply, ToolCall, Usage, calls_in_text, with_unique_ids
from diarist.testing import FAULTS, Fault, LoopbackEndpoint, call
from diarist.testing.endpoint import QUIRKS

KEY = "sk-very-secret-0123456789"
HI = [{"role": "user", "content": "hi"}]
RECALL = {
    "type": "function",
    "function": {"name": "recall", "description": "", "parameters": {"type": "object", "properties": {}}},
}
TWO = ["Let me look. ", call("recall", query="the same as last time"), call("recall", query="größer, 猫")]


@pytest.fixture
def server():
    with LoopbackEndpoint() as running:
        yield running


@pytest.fixture
def waits(monkeypatch):
    """The seconds that would have been slept. Time itself moves by them."""
    slept: list[float] = []
    monkeypatch.setattr(wire, "_sleep", slept.append)
    monkeypatch.setattr(wire, "_now", lambda: time.monotonic() + sum(slept))
    return slept


@pytest.fixture(autouse=True)
def no_settings(monkeypatch):
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "DIARIST_MODEL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["whole", "streamed"])
def ask(request, server):
    """Ask the server's model, in both ways."""

    def asked(messages=HI, tools=(RECALL,), **more):
        model = ChatModel("m", base_url=server.base_url, **more)
        if request.param == "whole":
            return model.complete(messages, tools)
        *_, reply = model.stream(messages, tools)
        return reply

    asked.way = request.param
    return asked


class TestWhatIsSent:
    def test_r5_model_address_and_key_come_from_arguments_or_the_environment(self, server, monkeypatch):
        server.will_say(*["ok"] * 3)
        ChatModel("m", base_url=server.base_url + "/").complete(HI)
        monkeypatch.setenv("DIARIST_MODEL", "from-environment")
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url + "/")
        monkeypatch.setenv("OPENAI_API_KEY", "key-from-environment")
        ChatModel().complete(HI)
        ChatModel("n", api_key=KEY).complete(HI)
        assert [chat["model"] for chat in server.chats] == ["m", "from-environment", "n"]
        sent = [request.headers.get("authorization") for request in server.requests]
        assert sent == [None, "Bearer key-from-environment", f"Bearer {KEY}"]
        assert {request.path for request in server.requests} == {"/v1/chat/completions"}

    def test_only_what_was_asked_for_is_sent(self, server):
        server.will_say(*["ok"] * 4)
        model = ChatModel("m", base_url=server.base_url)
        model.complete(HI, [])
        list(model.stream(HI, [RECALL]))
        ChatModel("m", base_url=server.base_url, temperature=0, max_tokens=9, extra={"top_k": 1}).complete(HI)
        list(ChatModel("m", base_url=server.base_url, extra={"stream_options": None}).stream(HI))
        assert server.chats[0] == {"model": "m", "messages": HI}
        streamed = {"stream": True, "stream_options": {"include_usage": True}}
        assert server.chats[1] == {"model": "m", "messages": HI, "tools": [RECALL], **streamed}
        assert server.chats[2] == {"model": "m", "messages": HI, "temperature": 0, "max_tokens": 9, "top_k": 1}
        assert server.chats[3] == {"model": "m", "messages": HI, "stream": True}

    def test_a_connection_is_used_again(self, server):
        server.will_say(*["ok"] * 3)
        model = ChatModel("m", base_url=server.base_url)
        for _ in range(3):
            model.complete(HI)
        assert len(server._server.connections) == 1
        model.close()

    @pytest.mark.parametrize(
        ("settings", "told"),
        [
            ({"model": ""}, "DIARIST_MODEL"),
            ({"model": "m", "timeout": 0}, "timeout"),
            ({"model": "m", "base_url": "file:///etc/passwd"}, "http"),
            ({"model": "m", "base_url": "http://169.254.169.254/v1"}, "link-local"),
            ({"model": "m", "base_url": "http://user:pw@localhost/v1"}, "password"),
        ],
    )
    def test_bad_settings_are_refused_at_once(self, settings, told):
        with pytest.raises(ValueError, match=told):
            ChatModel(**settings)


class TestWhatIsUnderstood:
    def test_text_calls_and_usage(self, server, ask):
        server.will_say(TWO)
        reply = ask()
        assert reply.text == "Let me look. "
        assert [(each.name, each.arguments) for each in reply.calls] == [
            ("recall", {"query": "the same as last time"}),
            ("recall", {"query": "größer, 猫"}),
        ]
        assert reply.finish_reason == "tool_calls"
        assert reply.usage.input_tokens > 0
        assert reply.usage.output_tokens > 0

    @pytest.mark.parametrize(
        "quirk",
        [
            "stop with calls",
            "length",
            "no ids",
            "null ids",
            "empty ids",
            "same ids",
            "flat calls",
            "arguments object",
            "content missing",
            "content parts",
            "content newlines",
            "reasoning_content",
            "reasoning",
            "think",
            "think closed only",
            "extra keys",
            "scaffolding",
            "no usage",
            "stream: index 0",
            "stream: no index",
            "stream: changing ids",
            "stream: name in every piece",
            "stream: no usage",
            "stream: usage null",
            "stream: no finish_reason",
            "stream: comments",
            "stream: not streamed",
            "stream: no [DONE]",
        ],
    )
    def test_r22_r24_the_calls_are_the_same_whatever_the_server_makes_of_the_form(self, server, ask, quirk):
        server.will_say(TWO)
        server.fail(quirk)
        reply = ask()
        assert [(each.name, each.arguments, each.fault) for each in reply.calls] == [
            ("recall", {"query": "the same as last time"}, None),
            ("recall", {"query": "größer, 猫"}, None),
        ]
        ids = [each.id for each in reply.calls]
        assert all(ids)
        assert len(set(ids)) == 2
        if quirk not in {"content missing", "content newlines"}:
            assert reply.text == "Let me look. "
        if "think" in quirk or "reasoning" in quirk:
            assert reply.reasoning == "The user is back."

    def test_r24_ids_of_our_own_are_nine_letters_and_digits(self, server, ask):
        server.will_say(TWO)
        server.fail("no ids")
        assert all(len(each.id) == 9 and each.id.isalnum() for each in ask().calls)

    @pytest.mark.parametrize("quirk", ["tool_calls null", "tool_calls empty", "tool_calls without calls"])
    def test_r22_no_calls_are_no_calls(self, server, ask, quirk):
        server.will_say("Hello.")
        server.fail(quirk)
        reply = ask()
        assert (reply.text, reply.calls) == ("Hello.", ())

    @pytest.mark.parametrize("quirk", ["arguments null", "arguments empty"])
    def test_r24_no_arguments_are_an_empty_object(self, server, ask, quirk):
        server.will_say(call("now"))
        server.fail(quirk)
        assert ask().calls[0].arguments == {}

    @pytest.mark.parametrize(
        "quirk", ["cut call", "arguments bare", "arguments list", "arguments quoted wrongly", "arguments NaN"]
    )
    def test_r25_rw_049_arguments_that_are_none_are_kept_as_they_came_with_what_is_wrong(self, server, ask, quirk):
        server.will_say(call("remember", note="abc 'd'"))
        server.fail(quirk)
        (made,) = ask().calls
        assert made.arguments is None
        assert made.raw
        assert "the arguments are" in made.fault

    def test_half_a_surrogate_pair_comes_out_whole(self, server, ask):
        server.will_say(["x", call("recall", query="a \ud83d b 😀")])
        server.fail("lone surrogate")
        reply = ask()
        assert reply.text == "x \ufffd"
        assert reply.calls[0].arguments == {"query": "a \ufffd b 😀"}

    @pytest.mark.parametrize("depth", [60, 5_000, 20_000])
    def test_deeply_nested_arguments_are_refused(self, server, ask, depth):
        raw = '{"a":' * depth + "1" + "}" * depth
        server.will_say(ModelReply("", (ToolCall("1", "recall", None, raw),), "tool_calls"))
        assert "the arguments are n" in ask().calls[0].fault

    def test_r24_the_call_of_old(self, server, ask):
        server.will_say(call("recall", query="x"))
        server.fail("old function_call")
        assert [(each.name, each.arguments) for each in ask().calls] == [("recall", {"query": "x"})]

    def test_r30_no_content_is_empty_text(self, server, ask):
        server.will_say("")
        assert ask().text == ""

    def test_the_pieces_of_a_stream_are_its_text_without_thoughts(self, server):
        server.will_say("One two\n three.", "Four five.")
        server.fail("ok", "think")
        for said in ("One two\n three.", "Four five."):
            *pieces, reply = ChatModel("m", base_url=server.base_url).stream(HI)
            assert "".join(pieces) == reply.text == said
            assert len(pieces) > 1

    def test_rw_050_a_server_without_usage_says_nothing_of_tokens(self, server, ask):
        server.will_say("ok")
        server.fail("no usage")
        assert ask().usage == Usage(0, 0)


class TestWhatFails:
    @pytest.mark.parametrize(
        "fault", ["busy", "loading", "loading 500", "bad gateway", "unavailable", "gateway timeout"]
    )
    def test_r29_rw_047_what_passes_is_tried_again(self, server, ask, waits, fault):
        server.will_say("ok")
        server.fail(fault, fault)
        assert ask().text == "ok"
        assert len(server.chats) == 3
        assert all(0.1 < wait < 1 for wait in waits)

    def test_r29_a_broken_connection_is_tried_again(self, server, ask, waits):
        server.will_say("lost", "ok")
        server.fail(Fault(drop=True, body="x" * 50))
        assert ask().text == "lost"
        assert len(server.chats) == 2

    def test_r29_retry_after_is_kept_to(self, server, ask, waits):
        server.will_say("ok")
        server.fail("busy 2 s")
        assert ask().text == "ok"
        assert waits == [2.0]

    def test_r29_rw_047_what_never_passes_ends_within_the_limit_and_says_so(self, server, ask, waits):
        server.always = FAULTS["loading"]
        with pytest.raises(EndpointError, match=r"asking m at http://127.*Loading model; gave up at try 6 of 6.*60 s"):
            ask()
        assert sum(waits) < 60
        server.always = FAULTS["busy for ever"]
        with pytest.raises(EndpointError, match="asks to wait 1000000000 s"):
            ask()

    @pytest.mark.parametrize(
        ("fault", "told"),
        [
            ("no quota", "quota"),
            ("broken", "status 500: division"),
            ("unauthorized", "OPENAI_API_KEY"),
            ("not found", "/chat/completions"),
            ("error in 200", "model crashed"),
            ("html", "no choices"),
            ("empty body", "an empty body"),
            ("null", "no choices"),
            ("cut json", "no choices"),
            ("choices missing", "choices"),
            ("choices empty", "choices"),
            ("no tools (Ollama)", "does not support tools"),
            ("parser gave up (llama.cpp)", "Failed to parse input"),
            ("stream: empty", "no choices"),
        ],
    )
    def test_r24_r29_what_will_not_pass_is_told_at_once(self, server, ask, waits, fault, told):
        if fault == "stream: empty" and ask.way == "whole":
            return
        server.will_say("never")
        server.fail(fault)
        with pytest.raises(EndpointError, match=told) as error:
            ask(api_key=KEY)
        assert waits == []
        assert len(server.chats) == 1
        assert error.value.overflow is False

    def test_r24_an_error_in_200_with_a_passing_status_is_tried_again(self, server, ask, waits):
        server.will_say("first", "second")
        server.fail("choices null")  # it says 502
        assert ask().text == "second"

    @pytest.mark.parametrize(
        "fault",
        ["overflow (llama.cpp)", "overflow (vLLM)", "overflow (500)", "overflow (413)", "error text in 200"],
    )
    def test_rw_054_an_overflow_is_told_apart(self, server, ask, waits, fault):
        server.will_say("never")
        server.fail(fault)
        with pytest.raises(EndpointError) as error:
            ask()
        assert error.value.overflow is True
        assert "token_budget" in error.value.__notes__[0]
        assert waits == []

    def test_the_key_is_in_no_error(self, server, ask, waits):
        for fault in (
            Fault(400, {}, json.dumps({"error": {"message": f"bad key {KEY}"}})),
            Fault(200, {}, f"your key is {KEY}"),
            Fault(302, {"Location": f"http://x/{KEY}"}, ""),
            Fault(200, {"Content-Type": "text/event-stream"}, f"data: {KEY}\n\n"),
        ):
            server.fail(fault)
            with pytest.raises(EndpointError) as error:
                ask(api_key=KEY)
            assert KEY not in str(error.value)

    @pytest.mark.parametrize("fault", ["silent", "dripping", "endless"])
    def test_r29_rw_048_no_server_keeps_a_call_for_longer_than_its_limit(self, server, ask, fault):
        server.will_say("a" * 10_000)
        server.always = FAULTS[fault] if fault != "dripping" else Fault(drip=0.2)
        began = time.monotonic()
        with pytest.raises(EndpointError, match=r"limit of 0\.5 s|larger than") as error:
            ask(timeout=0.5)
        assert time.monotonic() - began < 15
        assert "asking m at http://127.0.0.1" in str(error.value)

    def test_nobody_listens(self, waits):
        with LoopbackEndpoint() as server:
            gone = server.base_url
        with pytest.raises(EndpointError, match=r"connection failed .*gave up at try 3 of 3"):
            ChatModel("m", base_url=gone).complete(HI)


class TestAStreamThatBreaks:
    @pytest.mark.parametrize("quirk", ["stream: cut", "stream: error midway", "stream: broken JSON"])
    def test_r29_it_is_never_asked_again_once_text_was_given(self, server, waits, quirk):
        server.will_say("One two three four.", "again")
        server.fail(quirk)
        given = []
        with pytest.raises(EndpointError):
            given.extend(ChatModel("m", base_url=server.base_url).stream(HI))
        assert all(isinstance(piece, str) for piece in given)
        assert len(server.chats) == 1
        assert waits == []

    def test_r29_a_connection_that_drops_midway(self, server, waits):
        server.will_say("One two three four five six.", "again")
        server.fail(Fault(drop=True))
        given = []
        with pytest.raises(EndpointError, match="in the midst of the answer"):
            given.extend(ChatModel("m", base_url=server.base_url).stream(HI))
        assert len(server.chats) == 1

    def test_r29_it_is_asked_again_while_nothing_was_given(self, server, waits):
        server.will_say(call("recall", query="x"), call("recall", query="x"))
        server.fail("stream: cut")
        *pieces, reply = ChatModel("m", base_url=server.base_url).stream(HI)
        assert pieces == []
        assert reply.calls[0].arguments == {"query": "x"}
        assert len(server.chats) == 2

    def test_leaving_it_early_cuts_the_connection(self, server):
        server.will_say("word " * 1000, "ok")
        model = ChatModel("m", base_url=server.base_url)
        stream = model.stream(HI)
        assert next(stream) == "word "
        stream.close()
        assert model.complete(HI).text == "ok"


class TestCallsWrittenAsText:
    ONE = '{"name": "remember", "arguments": {"note": "locker is 52"}}'

    @pytest.mark.parametrize(
        "text",
        [
            ONE,
            f"\n {ONE} \n",
            f"```json\n{ONE}\n```",
            f"```\n{ONE}```",
            f"<tool_call>\n{ONE}\n</tool_call>",
            f"<tools>{ONE}</tools>",
            f"<functions>{ONE}</functions>",
            f"[{ONE}]",
            f"[TOOL_CALLS][{ONE}]",
            "{" + ONE + "}",
            '{"tool_calls": [' + ONE + "]}",
            '{"type": "function", "function": ' + ONE + "}",
            ONE.replace("arguments", "parameters"),
            '{"name": "remember", "arguments": "{\\"note\\": \\"locker is 52\\"}"}',
        ],
    )
    def test_rw_050_the_whole_answer_is_a_call(self, text):
        found = calls_in_text(text, {"remember"})
        assert found.whole
        assert [(each.name, each.arguments) for each in found.calls] == [("remember", {"note": "locker is 52"})]
        assert not calls_in_text(text, {"recall"}).calls

    def test_several_on_lines_and_no_arguments(self):
        text = '{"name": "a", "arguments": null}\n{"name": "b", "arguments": {}}'
        found = calls_in_text(text, {"a", "b"})
        assert [each.name for each in found.calls] == ["a", "b"]
        assert len({each.id for each in found.calls}) == 2
        assert not calls_in_text(text, {"a"}).whole

    @pytest.mark.parametrize(
        "text",
        [f"I will do that.\n{ONE}", f"{ONE}\nDone!", f"A program would send `{ONE}`.", f"See:\n```json\n{ONE}\n```"],
    )
    def test_rw_050_what_stands_in_an_answer_may_be_quoted(self, text):
        found = calls_in_text(text, {"remember"})
        assert not found.whole
        assert [each.name for each in found.calls] == ["remember"]

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "remember",
            '{"name": "remember"}',
            '{"name": "remember", "description": "x", "parameters": {"type": "object", "properties": {}}}',
            '{"name": "remember", "arguments": [1]}',
            '<tool_call>{"name": "remember", "arguments": {"note": "lock',
            '{"name": "remember", "arguments": {"kg": NaN}}',
        ],
    )
    def test_what_is_no_call(self, text):
        assert calls_in_text(text, {"remember"}) == ((), False)

    def test_hostile_texts_take_no_time(self):
        began = time.monotonic()
        for text in ('{"remember":' * 5_000, "remember" + "{" * 60_000, "remember" + "[" * 60_000, "x" * 10**7):
            assert calls_in_text(text, {"remember"}).calls == ()
        assert time.monotonic() - began < 2


def test_ids_are_unique_among_themselves_and_those_taken():
    made = [call("a"), call("b"), call("c")]
    ids = [each.id for each in with_unique_ids(made, {"call00001", "call00002"})]
    assert len({*ids, "call00001", "call00002"}) == 5


def test_the_quirks_are_all_of_the_lists_and_none_is_there_twice():
    assert not FAULTS.keys() & QUIRKS.keys()
