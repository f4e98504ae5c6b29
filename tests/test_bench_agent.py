"""`bench/agent.py` against a server on loopback: what it counts is what happened."""

from __future__ import annotations

import json
import os
import runpy
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from diarist import ChatModel, demo
from diarist.model import ModelReply, ToolCall
from diarist.testing import HashEmbedder, LoopbackEndpoint, call

BENCH = Path(__file__).parent.parent / "bench" / "agent.py"
RIGHT = {"product": "a kilo of Colombia", "grind": "a moka pot", "city": "Rosario"}


@pytest.fixture(scope="module")
def bench():
    return SimpleNamespace(**runpy.run_path(str(BENCH)))


@pytest.fixture
def server(monkeypatch):
    for name in [name for name in os.environ if name.startswith(("OPENAI_", "DIARIST_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("DIARIST_MODEL", "small")
    with LoopbackEndpoint() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        yield server


@pytest.fixture
def play(bench, server):
    """The first customer's two days, with or without auto-recall; the model says these steps."""

    def play(*steps, brought=True, **options):
        server.will_say(*steps)
        with closing(ChatModel()) as model:
            return bench.play(bench.CUSTOMERS[0], bench.CONDITIONS[brought], model, embedder=HashEmbedder(), **options)

    return play


def test_r2_a_model_that_keeps_its_diary_scores_in_full_in_both_conditions(bench, server, tmp_path, capsys):
    keeper = demo.Shopkeeper()
    server.will_say(*[lambda messages: keeper.complete(messages, ())] * 30)
    out = tmp_path / "results.jsonl"
    assert bench.main(["1", "--out", str(out)]) == 0
    line = json.loads(out.read_text())
    assert (line["model"], line["customers"], line["rescue_text_calls"]) == ("small", 1, False)
    for name in ("tools only", "auto-recall + page"):
        got = line[name]
        assert got["remembered all three, remember"] == got["day 1: right"] == got["day 2: right"] == 1, name
        assert (got["facts kept, remember"], got["quirks"]) == (3, {}), name
    assert (line["tools only"]["day 2: called recall"], line["tools only"]["day 2: shown by recall"]) == (1, 1)
    assert line["tools only"]["day 2: brought by auto-recall"] == 0
    assert line["auto-recall + page"]["day 2: called recall"] == 0
    assert line["auto-recall + page"]["day 2: brought by auto-recall"] == 1
    shown = capsys.readouterr().out
    assert "day 2: right" in shown
    assert "Her name is Lucía" in str(server.chats[-1]["messages"][0])


def test_what_close_day_adds_is_counted_apart(play):
    fact = {"note": "Buys a kilo of Colombia, ground for a moka pot, shipped to Rosario.", "messages": [1]}
    false = {"note": "Has a dog named Fido.", "messages": [1]}
    got = play(call("place_order", **RIGHT), "Done.", call("keep_facts", facts=[fact, false]), "Which coffee?")
    assert (got["remember"], got["close_day"]) == (0, 3)
    assert (got["day 1"], got["day 2"]) == ("right", "asked")
    assert got["brought by auto-recall"]
    assert got["quirks"] == {"close_day: fact refused": 1}


def test_an_invented_order_is_wrong_and_a_claim_is_no_order(play):
    got = play("It is on its way.", "", call("place_order", **{**RIGHT, "city": "Lima"}), "Done.", brought=False)
    assert (got["day 1"], got["day 2"]) == ("none", "wrong")
    assert not got["called recall"]


@pytest.mark.parametrize(
    ("answer", "how"),
    [
        ("Which coffee do you mean?", "asked"),
        ("It is on its way.", "none"),
        ("Your order is placed! Is there anything else I can do for you?", "none"),
    ],
)
def test_only_a_question_about_the_order_is_asking(bench, answer, how):
    assert bench.ordered(bench.CUSTOMERS[0], [], answer) == how


def test_a_second_order_is_wrong_even_if_it_says_the_same(bench):
    twice = [RIGHT, {**RIGHT, "product": "1 kg Colombia"}]
    assert (
        bench.ordered(bench.CUSTOMERS[0], twice[:1], "") == bench.ordered(bench.CUSTOMERS[0], twice[1:], "") == "right"
    )
    assert bench.ordered(bench.CUSTOMERS[0], twice, "") == "wrong"


@pytest.mark.parametrize("product", ["Colombia", "2 kilos of Colombia", "10 kg Colombia", "a kilo of Kenya"])
def test_another_amount_or_coffee_is_another_order(bench, product):
    assert bench.ordered(bench.CUSTOMERS[0], [{**RIGHT, "product": product}], "") == "wrong"


def test_each_customer_says_every_part_of_the_order(bench):
    for customer in bench.CUSTOMERS:
        assert bench.held(customer, [customer.said]) == 3
        assert bench.held(customer, [customer.again]) == 0


def test_the_quirks_of_small_models_are_counted(play):
    as_text = json.dumps({"name": "place_order", "arguments": RIGHT})
    bad = ModelReply("", (ToolCall("", "remember", None, "{note: moka"),), "tool_calls")
    same = call("recall", query="order")
    got = play("", bad, call("order", city="Rosario"), as_text, "", same, same, ModelReply("On", (), "length"))
    assert got["quirks"] == {
        "empty reply": 1,
        "arguments no JSON object": 1,
        "call of no tool": 1,
        "call as text": 1,
        "ended: text_call": 1,
        "repeated call": 1,
        "cut off at the length limit": 1,
        "ended: length": 1,
    }
    assert got["day 1"] == "none"


def test_calls_written_as_text_count_when_they_are_carried_out(play):
    as_text = json.dumps({"name": "place_order", "arguments": RIGHT})
    got = play(as_text, "Done.", "", as_text, "Done.", rescue=True)
    assert (got["day 1"], got["day 2"]) == ("right", "right")
    assert got["quirks"] == {"call as text, carried out": 2}


def test_an_endpoint_that_fails_spoils_one_day_and_is_counted(play, server):
    server.fail("broken")
    got = play("", "What was it?")
    assert (got["day 1"], got["day 2"]) == ("none", "asked")
    [(quirk, times)] = got["quirks"].items()
    assert quirk.startswith("endpoint failed: ")
    assert times == 1


@pytest.mark.parametrize("n", ["0", "99"])
def test_a_number_of_customers_that_there_are_not_is_refused(bench, n):
    with pytest.raises(ValueError, match="there are 1 to 8"):
        bench.main([n])
