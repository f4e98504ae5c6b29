"""Events: made in order, heard by all, recorded and played again."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
import threading
from datetime import UTC, datetime
from typing import get_args, get_type_hints

import pytest

from diarist import Agent, MissingExtra, events, tool
from diarist.events import EventBus, Source
from diarist.testing import FixedClock, ScriptedModel, call

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


@tool
def recall(query: str) -> str:
    """Search."""
    events.emit(
        events.Recalled,
        query=query,
        verdict="strong",
        candidates=(events.Candidate("n1", "Buys Colombia.", 0.82), events.Candidate("n2", "Has a dog.", 0.1)),
        handed_on=("n1",),
    )
    return "0.82 Buys Colombia."


def agent(*steps, tools=(recall,), **more):
    return Agent(ScriptedModel(steps), "Sell coffee.", tools, events=EventBus(FixedClock(AT)), **more)


def names(heard):
    return [type(event).__name__ for event in heard]


EXAMPLES = {
    str: "texte à propos",
    int: 3,
    float: 0.5,
    bool: True,
    datetime: AT,
    "str | None": "s",
}


def example(kind):
    """One event of that kind with something in every field."""
    values = {}
    hints = get_type_hints(kind, vars(events) | {"Reply": object})
    for each in dataclasses.fields(kind):
        hint = hints[each.name]
        if each.name == "reply":
            continue
        if each.name == "arguments":
            values[each.name] = {"query": "the same", "tags": ["a"], "n": None}
        elif hint == tuple[events.Called, ...]:
            values[each.name] = (events.Called("1", "recall", '{"query": "x"}'),)
        elif hint == tuple[events.Candidate, ...]:
            values[each.name] = (events.Candidate("n1", "Has a dog.", 0.25),)
        elif hint == tuple[str, ...]:
            values[each.name] = ("a", "b")
        else:
            values[each.name] = EXAMPLES.get(hint, "s")
    return kind(**values)


EVERY = [example(kind) for kind in get_args(events.Event)]


class TestTheBus:
    def test_r67_recall_and_order_look_like_any_tool_on_the_bus(self):
        heard = []
        one = agent(call("recall", query="the same"), "As last time?")
        one.events.subscribe(heard.append)
        one.run("hi")
        assert names(heard) == [
            "RunStarted",
            "TurnStarted",
            "ModelRequested",
            "ModelReplied",
            "ToolStarted",
            "Recalled",
            "ToolEnded",
            "TurnStarted",
            "ModelRequested",
            "ModelReplied",
            "RunEnded",
        ]
        assert [event.number for event in heard] == list(range(1, 12))
        assert {event.run for event in heard} == {heard[0].run}
        assert {event.at for event in heard} == {AT}
        assert heard[4].arguments == {"query": "the same"}
        assert heard[5].candidates[0] == ("n1", "Buys Colombia.", 0.82)

    def test_r68_a_listener_that_fails_breaks_nothing_and_is_reported_to_the_others(self):
        first, last = [], []

        def bad(event):
            raise RuntimeError("no disk")

        bus = EventBus(FixedClock(AT))
        bus.subscribe(first.append)
        bus.subscribe(bad)
        bus.subscribe(last.append)
        one = Agent(ScriptedModel(["Hello."]), events=bus)
        assert one.run("hi").text == "Hello."
        assert names(first)[:4] == ["RunStarted", "ListenerFailed", "TurnStarted", "ListenerFailed"]
        assert sorted(names(first)) == sorted(names(last))
        assert first[1].missed == "RunStarted"
        assert first[1].error == "RuntimeError: no disk"
        assert "bad" in first[1].listener
        assert [event.number for event in first] == list(range(1, len(first) + 1))

    def test_r68_two_that_fail_do_not_report_each_other_for_ever(self):
        bus, heard = EventBus(), []

        def bad(event):
            raise RuntimeError

        bus.subscribe(bad)
        bus.subscribe(lambda event: bad(event))
        bus.subscribe(heard.append)
        bus.emit(events.DayClosed, session="s")
        assert sorted(names(heard)) == ["DayClosed", "ListenerFailed", "ListenerFailed"]

    def test_unsubscribing_ends_it_once_and_for_that_one_only(self):
        bus, heard = EventBus(), []
        end_first, _ = bus.subscribe(heard.append), bus.subscribe(heard.append)
        end_first()
        end_first()
        bus.emit(events.DayClosed)
        assert len(heard) == 1

    def test_r68_all_listeners_hear_the_same_order_whatever_the_threads(self):
        bus, a, b = EventBus(), [], []
        bus.subscribe(a.append)
        bus.subscribe(b.append)
        source = Source(bus)
        threads = [
            threading.Thread(target=lambda: [source.emit(events.DayClosed) for _ in range(50)]) for _ in range(8)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert a == b
        assert [event.number for event in a] == list(range(1, 401))

    def test_emit_outside_of_a_run_does_nothing(self):
        assert events.emit(events.DayClosed) is None

    def test_a_run_that_raises_has_its_end_too(self):
        heard = []
        one = agent(ValueError("as scripted"))
        one.events.subscribe(heard.append)
        with pytest.raises(ValueError, match="as scripted"):
            one.run("hi")
        assert (heard[-1].stop_reason, heard[-1].error) == ("error", "ValueError: as scripted")

    def test_r68_no_event_has_room_for_a_vector_or_a_secret(self):
        for kind in get_args(events.Event):
            for field in dataclasses.fields(kind):
                assert not {"vector", "embedding", "key", "headers"} & {field.name}


class TestAsData:
    @pytest.mark.parametrize("event", EVERY, ids=lambda event: type(event).__name__)
    def test_every_event_comes_back_equal_and_is_frozen(self, event):
        data = json.loads(json.dumps(events.as_data(event)))
        assert events.from_data(data) == event
        assert events.from_data(events.as_data(event)) == event
        with pytest.raises(dataclasses.FrozenInstanceError):
            event.number = 4

    @pytest.mark.parametrize(
        "data",
        [
            {},
            {"event": "Invented"},
            {"event": "DayClosed"},
            {"event": "DayClosed", "at": "yesterday", "run": "r", "number": 1},
            {"event": "DayClosed", "at": AT.isoformat(), "run": "r", "number": 1, "more": 1},
        ],
    )
    def test_what_is_no_event_is_refused(self, data):
        with pytest.raises(ValueError, match=r"no event|is no DayClosed"):
            events.from_data(data)


class TestRecorded:
    def test_r69_a_recorded_run_replays_equal(self, tmp_path):
        heard = []
        one = agent(["Let me look. ", call("recall", query="wie letztes Mal\ud83d")], "Kommt sofort! ☕")
        one.events.subscribe(heard.append)
        with events.recorder(tmp_path / "run.jsonl") as recorder:
            one.events.subscribe(recorder)
            streamed = list(one.stream("Hallo nochmal, größer"))
        assert list(events.replay(tmp_path / "run.jsonl")) == heard == streamed
        assert "TextDelta" in names(heard)
        assert (tmp_path / "run.jsonl").stat().st_mode & 0o077 == 0

    def test_r69_the_panel_of_the_replay_is_the_same(self, tmp_path):
        live, again = io.StringIO(), io.StringIO()
        one = agent(call("recall", query="x"), "Done.")
        one.events.subscribe(events.console(live))
        with events.recorder(tmp_path / "run.jsonl") as recorder:
            one.events.subscribe(recorder)
            one.run("hi")
        for event in events.replay(tmp_path / "run.jsonl"):
            events.console(again)(event)
        assert live.getvalue() == again.getvalue() != ""

    def test_a_line_that_holds_no_event_is_named(self, tmp_path):
        path = tmp_path / "run.jsonl"
        with events.recorder(path) as recorder:
            EventBus().subscribe(recorder)
            recorder(EVERY[0])
        path.write_text(path.read_text() + '{"event": "RunSt')
        played = events.replay(path)
        assert next(played) == EVERY[0]
        with pytest.raises(ValueError, match=r"run\.jsonl, line 2"):
            next(played)


def test_the_console_lets_no_control_character_through():
    out = io.StringIO()
    events.console(out)(
        events.ToolEnded(at=AT, run="r", number=1, turn=1, call="c", name="recall", result="\x1b[2J\nhi" * 99, ok=True)
    )
    assert "\x1b" not in out.getvalue()
    assert out.getvalue().count("\n") == 1
    for event in EVERY:
        events.console(out)(event)


class TestOtel:
    def test_without_the_package_it_says_what_to_install(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "opentelemetry.trace", None)
        with pytest.raises(MissingExtra, match=r"diarist\[otel\]"):
            events.otel()

    def test_spans_by_the_genai_conventions(self):
        sdk = pytest.importorskip("opentelemetry.sdk.trace")
        export = pytest.importorskip("opentelemetry.sdk.trace.export")
        memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter")
        provider, kept = sdk.TracerProvider(), memory.InMemorySpanExporter()
        provider.add_span_processor(export.SimpleSpanProcessor(kept))
        one = agent(call("recall", query="x"), call("nothing"), "Done.")
        one.events.subscribe(events.otel(provider.get_tracer("test")))
        one.run("a secret prompt")
        spans = kept.get_finished_spans()
        assert [span.name for span in spans] == [
            "chat scripted",
            "execute_tool recall",
            "chat scripted",
            "chat scripted",
            "invoke_agent",
        ]
        root = spans[-1]
        assert all(span.parent.span_id == root.context.span_id for span in spans[:-1])
        about = dict(spans[1].attributes)
        assert about["gen_ai.operation.name"] == "execute_tool"
        assert about["gen_ai.tool.name"] == "recall"
        assert spans[0].attributes["gen_ai.request.model"] == "scripted"
        assert "secret" not in "".join(span.to_json() for span in spans)
