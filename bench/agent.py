"""How well a model keeps and uses a diary: the roaster's two days of the demo, with the endpoint in the environment.

    OPENAI_BASE_URL=http://127.0.0.1:8080/v1 DIARIST_MODEL=small python bench/agent.py 5 --out results.jsonl

Each customer orders on day 1 and says "the same as last time" on day 2, to an agent that has nothing but the diary of
day 1. Both days are played with the tools alone, and with auto-recall and a line on the page, as the demo has them.
What counts is in the diary, in the orders and in the events, never what the model says it did. A bad day is a figure.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from diarist import Agent, ChatModel, Embedder, EndpointError, Memory, demo
from diarist.cli import run as quit_with
from diarist.events import DayClosed, ModelReplied, ModelRequested, Recalled, RunEnded, TextCallSeen, ToolEnded
from diarist.model import Model

KILO = r"(?<!\d)(?<!\d )k(ilo|g)|\b1 ?k(ilo|g)|\b1000 ?g"


@dataclass(frozen=True)
class Customer:
    """What is said on each day, and for each part of the order the patterns that all must be found in it, in whatever
    language and spelling it is written down."""

    said: str
    again: str
    order: Mapping[str, tuple[str, ...]]


def _customer(said: str, again: str, product: Iterable[str], grind: str, city: str) -> Customer:
    return Customer(said, again, {"product": tuple(product), "grind": (grind,), "city": (city,)})


CUSTOMERS = [
    _customer(demo.SAID[0], demo.SAME_AGAIN, ["colombia", KILO], "moka", "rosario"),
    _customer(
        "¡Hola! Medio kilo de Etiopía, molido para prensa francesa, para enviar a Córdoba.",
        "¡Hola de nuevo! Mándame lo mismo que la última vez.",
        ["eth?iop", "medio k|half|500 ?g|0[.,]5 ?k"],
        "prensa|french press",
        "c[oó]rdoba",
    ),
    _customer(
        "Bonjour ! Deux kilos de Brésil, moulus pour une cafetière à filtre, à livrer à Lyon, s'il vous plaît.",
        "Rebonjour ! La même chose que la dernière fois, s'il vous plaît.",
        ["br[eé][sz]il|brazil", r"(deux|two|\b2) ?k"],
        "filt",
        "lyon",
    ),
    _customer(
        "Could you ship me two bags of Guatemala to Oslo? I make espresso, so grind it for that.",
        "The usual, please.",
        ["guatemala", r"two|\b2\b"],
        "espresso",
        "oslo",
    ),
    _customer(
        "I'd like 250 grams of decaf Peru for my Aeropress; my address is in Porto.",
        "Same order as before, thanks!",
        ["peru", "decaf", "250"],
        "aeropress",
        "porto",
    ),
    _customer(
        "A kilo of Kenya, whole beans, please, I grind them myself. It goes to Galway.",
        "Can I have what I had last time?",
        ["kenya", KILO],
        "whole|bean",
        "galway",
    ),
    _customer(
        "Need 500 g of Sumatra, coarse for cold brew, sent to Tampere.",
        "As always, please.",
        ["sumatra", r"500 ?g|half|0[.,]5 ?k"],
        "cold ?brew|coarse",
        "tampere",
    ),
    _customer(
        "Hello, three bags of Honduras for a Chemex. Delivery is in Ghent.",
        "Please repeat my last order.",
        ["honduras", r"three|\b3\b"],
        "chemex",
        "ghent|gent",
    ),
]


@dataclass(frozen=True)
class Condition:
    """What the agent is given besides the tools and the briefing."""

    name: str
    auto_recall: bool = False
    page: str = ""


CONDITIONS = [Condition("tools only"), Condition("auto-recall + page", True, demo.ON_THE_PAGE)]


class Seen:
    """A listener that keeps what the figures of one day need."""

    def __init__(self) -> None:
        self.quirks: Counter[str] = Counter()
        self.brought = self.shown = ""  # what of the diary the model was given unasked, and by the tools it called
        self.recalls = self.requests = 0
        self.answer = ""
        self._made: set[tuple[str, str]] = set()

    def __call__(self, event: Any) -> None:
        match event:
            case ModelRequested():
                self.requests += 1
            case ModelReplied():
                self._replied(event)
            case TextCallSeen():
                self.quirks["call as text, carried out" if event.rescued else "call as text"] += 1
            case Recalled() if not self.requests:  # before the model was asked: no tool was called for it
                self.brought = "\n".join(each.text for each in event.candidates if each.note in event.handed_on)
            case ToolEnded() if not event.ok:
                self.quirks[_fault(event.result)] += 1
            case ToolEnded() if event.name in {"recall", "notes"}:
                self.recalls += 1
                self.shown += event.result
            case DayClosed():
                self.quirks["close_day: fact refused"] += len(event.refused)
            case RunEnded():
                self.answer = event.text
                if event.stop_reason not in {"stop", "error"}:  # errors are counted where they are caught
                    self.quirks[f"ended: {event.stop_reason}"] += 1
            case _:
                pass

    def _replied(self, event: ModelReplied) -> None:
        for call in event.calls:
            self.quirks["repeated call"] += (call.name, call.arguments) in self._made
            self._made.add((call.name, call.arguments))
        self.quirks["empty reply"] += not event.calls and not event.text.strip()
        self.quirks["cut off at the length limit"] += event.finish_reason == "length"


def _fault(told: str) -> str:
    """What was wrong with a call, by what the model was told."""
    kinds = {
        "There is no tool": "call of no tool",
        "the arguments are": "arguments no JSON object",
        "Already": "call not repeated",
        "Not done": "call not carried out",
        " failed: ": "tool failed",
    }
    return next((kind for part, kind in kinds.items() if part in told), "arguments do not fit")


def held(customer: Customer, texts: Iterable[str]) -> int:
    """How many of product, grind and city are in one of the texts each, whole."""
    kept = list(texts)
    return sum(any(_says(patterns, text) for text in kept) for patterns in customer.order.values())


def _says(patterns: Iterable[str], text: str) -> bool:
    return all(re.search(pattern, text, re.I) for pattern in patterns)


_MORE = re.compile(
    r"[^.!?]*\b(anything|something|else|more|further|algo más|autre chose)\b[^.!?]*\?", re.I
)  # a farewell


def ordered(customer: Customer, orders: Sequence[Mapping[str, str]], answer: str) -> str:
    """What became of the order, whatever the answer claims: "right", "wrong" (invented, or more than one), "asked" in
    its place, or "none"."""
    if not orders:
        return "asked" if "?" in _MORE.sub("", answer) else "none"
    right = len(orders) == 1 and all(_says(patterns, orders[0][name]) for name, patterns in customer.order.items())
    return "right" if right else "wrong"


def play(
    customer: Customer,
    condition: Condition,
    model: Model,
    *,
    rescue: bool = False,
    show: bool = False,
    embedder: str | Embedder = "bundled",
) -> dict[str, Any]:
    """Both days, the second with nothing of the first but the folder; what came of them, as figures."""
    began, (first, second) = time.perf_counter(), (Seen(), Seen())
    with tempfile.TemporaryDirectory(prefix="diarist-bench-") as scratch:
        books = demo.Books(Path(scratch))

        def day(name: str, said: str, seen: Seen, clock: datetime) -> dict[str, int]:
            with Memory(scratch, embedder=embedder, clock=lambda: clock) as memory:
                diary = memory.diary(demo.OWNER)
                agent = Agent(
                    model,
                    demo.SHOP + diary.briefing(),
                    [demo.order_tool(books, name), *diary.tools()],
                    rescue_text_calls=rescue,
                    auto_recall=diary.auto_recall if condition.auto_recall else None,
                )
                agent.events.subscribe(seen)
                if show:
                    agent.events.subscribe(demo.Transcript())
                with _counted(seen):
                    agent.run(said, session=diary.session(name))
                kept = {"remember": held(customer, (note.text for note in diary.notes()))}
                if name == "day-1":
                    with _counted(seen):
                        diary.close_day(diary.session(name), model, events=agent.events)
                    kept["close_day"] = held(customer, (note.text for note in diary.notes()))
                    if condition.page:
                        diary.page.add(condition.page)
                if show:
                    print("  Notes:", *(f"\n    {note.text}" for note in diary.notes()), f"\n  {books.orders(name)}")
                return kept

        kept = day("day-1", customer.said, first, demo.DAY_1)
        day("day-2", customer.again, second, demo.DAY_2)
        return {
            **kept,
            "day 1": ordered(customer, books.orders("day-1"), first.answer),
            "called recall": second.recalls > 0,
            "shown by recall": held(customer, [second.shown]) == len(customer.order),
            "brought by auto-recall": held(customer, [second.brought]) == len(customer.order),
            "day 2": ordered(customer, books.orders("day-2"), second.answer),
            "requests": first.requests + second.requests,
            "seconds": time.perf_counter() - began,
            "quirks": +(first.quirks + second.quirks),
        }


@contextmanager
def _counted(seen: Seen) -> Iterator[None]:
    """An endpoint that fails spoils one day, not the measure."""
    try:
        yield
    except EndpointError as error:
        seen.quirks[f"endpoint failed: {str(error).rsplit(': ', 1)[-1][:80]}"] += 1


OUTCOMES = ("right", "wrong", "asked", "none")


def figures(played: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The sums of one condition, in the order of the table."""
    all_three = {
        f"remembered all three, {by}": sum(each[by] == 3 for each in played) for by in ("remember", "close_day")
    }
    facts = {f"facts kept, {by}": sum(each[by] for each in played) for by in ("remember", "close_day")}
    told = ("called recall", "shown by recall", "brought by auto-recall")
    return {
        **all_three,
        **facts,
        **{f"day 1: {how}": sum(each["day 1"] == how for each in played) for how in OUTCOMES},
        **{f"day 2: {what}": sum(each[what] for each in played) for what in told},
        **{f"day 2: {how}": sum(each["day 2"] == how for each in played) for how in OUTCOMES},
        "requests": sum(each["requests"] for each in played),
        "seconds": round(sum(each["seconds"] for each in played)),
        "quirks": dict(sum((each["quirks"] for each in played), Counter())),
    }


def table(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """One column for each condition; a quirk that was not met has no line."""
    columns = [{**each, **each["quirks"]} for each in measured.values()]
    names = dict.fromkeys(name for each in columns for name in each if name != "quirks")
    wide = max(map(len, names))
    lines = [f"{'':<{wide}}  " + "  ".join(measured)]
    for name in names:
        cells = (f"{each.get(name, 0):>{len(title)}}" for title, each in zip(measured, columns, strict=True))
        lines.append(f"{name:<{wide}}  " + "  ".join(cells))
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("n", nargs="?", type=int, default=5, help=f"customers, 1 to {len(CUSTOMERS)} (5)")
    asked.add_argument("--out", type=Path, help="a file to which the figures are added, as one line of JSON")
    asked.add_argument("--rescue", action="store_true", help="carry out calls that were written as text")
    asked.add_argument("--show", action="store_true", help="print every conversation")
    asked.add_argument("--timeout", type=float, default=300, help="seconds for one request (300)")
    given = asked.parse_args(arguments)
    if not 1 <= given.n <= len(CUSTOMERS):
        raise ValueError(f"{given.n} customers were asked for; there are 1 to {len(CUSTOMERS)}")
    measured: dict[str, dict[str, Any]] = {}
    with closing(ChatModel(timeout=given.timeout)) as model:
        for condition in CONDITIONS:
            played: list[dict[str, Any]] = []
            for number, customer in enumerate(CUSTOMERS[: given.n], 1):
                played.append(play(customer, condition, model, rescue=given.rescue, show=given.show))
                print(f"{condition.name}, customer {number}: {played[-1]}", flush=True)
            measured[condition.name] = figures(played)
        print(f"\n{model.model}, {given.n} customers{', text calls carried out' if given.rescue else ''}\n")
        print(table(measured))
        if given.out:
            line = {
                "date": datetime.now(UTC).date().isoformat(),
                "model": model.model,
                "customers": given.n,
                "rescue_text_calls": given.rescue,
                **measured,
            }
            with given.out.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(line) + "\n")
    return 0


if __name__ == "__main__":
    quit_with(main)
