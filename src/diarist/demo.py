"""`diarist demo`: the two days of a coffee roaster's agent, in two processes, and a diary that outlives the first.

Day 1 a customer orders. Day 2 another process, with nothing but the folder, is told "the same as last time". Without
OPENAI_BASE_URL the model is a few rules in this file that read what the tools answer, as a model would; everything else
is real. What is claimed on the screen is checked: if day 2's order is not day 1's, the demo fails.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from .agent import Agent
from .cli import run as quit_with
from .cli.show import count, print_line, say
from .events import (
    DayClosed,
    EventBus,
    Listener,
    ModelReplied,
    Recalled,
    RunEnded,
    RunStarted,
    ToolEnded,
    ToolStarted,
    recorder,
)
from .model import ChatModel, Messages, Model, ModelReply, Schemas, ToolCall
from .note import NOTHING_SAVED
from .tool import Tool, tool

if TYPE_CHECKING:
    from .diary import Diary

OWNER = "c-2291"
DAY_1 = datetime(2026, 3, 2, 10, 30, tzinfo=UTC)
DAY_2 = datetime(2026, 3, 23, 9, 15, tzinfo=UTC)

SAID = ("Hi! A kilo of Colombia, ground for a moka pot, shipped to Rosario.",)
SAME_AGAIN = "Hi again! Send me the same as last time."
UNANSWERED = "What is the name of my dentist?"
WHICH = "Which order number did you give me?"
ON_THE_PAGE = "Her name is Lucía."

SHOP = (
    "You are the shop assistant of a coffee roaster. Save product, grind and city as separate notes with remember. "
    "When you know all three, place the order at once, in the words of the customer or of the notes; do not ask twice."
)
SCRIPTED = (
    "Diarist demo with a scripted model (OPENAI_BASE_URL names a real one). Diary, embedder, recall, orders are real:"
    " no key, no server, no network. Everything stays on this machine."
)


def run(keep: str | None, record: str | None = None) -> int:
    """Plays both days; 0 if day 2's order was day 1's and everything was found as shown. `record`: a new file that
    takes the events of both."""
    began = time.perf_counter()
    real = _real()
    if real:
        print_line(f"Diarist demo with {real.model} at {real.base_url}; diary, embedder, recall and orders are here.")
        real.close()
    else:
        print_line(SCRIPTED)
    with tempfile.TemporaryDirectory(prefix="diarist-demo-") as scratch:
        folder = Path(scratch) / "memory" if keep is None else Path(keep)
        if keep is not None and folder.exists():
            raise ValueError(f"--keep {keep} exists already. Name a new folder for the demo's memory.")
        if record is not None and Path(record).exists():
            raise ValueError(f"--record {record} exists already. Name a new file for the demo's events.")
        for day in ("day-1", "day-2"):
            sys.stdout.flush()
            given = [day, str(folder), *([record] if record else [])]
            code = subprocess.run([sys.executable, "-P", "-m", __name__, *given], check=False).returncode
            if code:
                say(f"diarist: the demo failed on {day.replace('-', ' ')}.")
                return 1
    print_line("")
    print_line(
        f"Both days took {time.perf_counter() - began:.1f} seconds, most of them to load the language models twice."
    )
    if keep is None:
        print_line("The diary lay in a temporary folder, which is gone. `diarist demo --keep FOLDER` leaves it to you.")
    else:
        print_line(f'The diary is in {folder}. Ask it: diarist --memory "{folder}" recall {OWNER} "moka"')
    if record is not None:
        print_line(f'Both days are in {record}. See them: diarist replay "{record}"')
    return 0


def day_1(folder: str, record: str | None = None) -> int:
    """A session: the customer orders, the agent keeps what will matter next time."""
    from . import Memory

    _title(f"Day 1, {DAY_1:%d %B %Y} (process {os.getpid()}). A customer writes.")
    with Memory(folder, clock=lambda: DAY_1) as memory, _recording(record) as listener:
        diary = memory.diary(OWNER)
        agent, model, told = _hired(diary, Books(Path(folder)), "day-1", listener)
        with closing(model):
            for said in SAID:
                agent.run(said, session=diary.session("day-1"))
        diary.page.add(ON_THE_PAGE)
        _line("A person", f"adds a line to the customer's page: {ON_THE_PAGE}")
        told.night(agent, diary, "day-1", model)
        told.events()
    _on_disk(Path(folder))
    return 0


def day_2(folder: str, record: str | None = None) -> int:
    """A new process that knows nothing but the folder."""
    from . import Memory

    _title(f"Day 2, {DAY_2:%d %B %Y} (process {os.getpid()}). Another process, which has nothing but the folder.")
    books, wrong = Books(Path(folder)), list[str]()
    with Memory(folder, clock=lambda: DAY_2) as memory, _recording(record) as listener:
        diary = memory.diary(OWNER)
        agent, model, told = _hired(diary, books, "day-2", listener)
        with closing(model):
            _line("Way 2", f"the page, whole in the system prompt of each new session: {diary.page.read().strip()}")
            _line("Way 3", "search by meaning: the history is empty, the diary is not.")
            agent.run(SAME_AGAIN, session=diary.session("day-2"))
            wrong += _compared(books, model)
            if not wrong:
                again = agent.tools["place_order"](**books.last("day-2"))
                _line("The shop", f"asks once more, as after a broken connection: {again}")
            print_line("")
            _line("Way 1", "resume a session: nothing is lost, and all of it is sent again. For unfinished business.")
            agent.run(WHICH, session=diary.session("day-1"))
            print_line("")
            _line("And", "a question that nothing answers, back in the session of today.")
            agent.run(UNANSWERED, session=diary.session("day-2"))
            if model.scripted and told.verdicts[-1:] != ["nothing"]:
                wrong.append(f"Expected {NOTHING_SAVED!r} for {UNANSWERED!r}, found {told.verdicts[-1:]}.")
            told.night(agent, diary, "day-2", model)
        told.events()
    _on_disk(Path(folder))
    print_line("")
    for day in ("day-1", "day-2"):
        placed = [", ".join(order.values()) for order in books.orders(day)]
        _line(day.replace("-", " ").capitalize(), "; ".join(placed) or "no order")
    for line in wrong:
        say(f"diarist: {line}")
    return 1 if wrong else 0


def _compared(books: Books, model: Listening) -> list[str]:
    """What is not as it must be: the first request of day 2, and its order."""
    wrong: list[str] = []
    if model.first != ["system", "user"]:
        wrong.append(f"Expected day 2 to begin with [system, user], it began with {model.first}.")
    before, now = books.last("day-1"), books.last("day-2")
    if not before or not now:
        return [*wrong, f"Expected an order on both days, found {before or 'none'} and {now or 'none'}."]
    for name, value in before.items():
        if _plain(now[name]) != _plain(value):
            wrong.append(f"Expected the same {name} again, {value!r}; day 2 ordered {now[name]!r}.")
    return wrong


def _plain(text: str) -> str:
    """Without what does not make it another order: case, spaces, articles."""
    words = re.sub(r"[^\w\s]", " ", text.casefold()).split()
    return " ".join(word for word in words if word not in {"a", "an", "the"})


def _recording(path: str | None) -> AbstractContextManager[Listener | None]:
    """What takes a day's events, after those of the day before."""
    return recorder(path) if path else nullcontext()


def _hired(diary: Diary, books: Books, session: str, listener: Listener | None) -> tuple[Agent, Listening, Transcript]:
    """The shop's agent for one day."""
    model, told = Listening(_real() or Shopkeeper()), Transcript()
    tools = [order_tool(books, session), *diary.tools()]
    day, began = {"day-1": DAY_1, "day-2": DAY_2}[session], time.monotonic()
    bus = EventBus(lambda: day + timedelta(seconds=time.monotonic() - began))
    agent = Agent(model, SHOP + diary.briefing(), tools, auto_recall=diary.auto_recall, events=bus)
    agent.events.subscribe(told)
    if listener is not None:
        agent.events.subscribe(listener)
    return agent, model, told


def _real() -> ChatModel | None:
    return ChatModel() if os.environ.get("OPENAI_BASE_URL") else None


# -- the roaster: your code, and none of diarist's --------------------------------------------------------------------


class Books:
    """The roaster's orders, in a database of his own."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._path = folder / "orders.db"
        self._do(
            "CREATE TABLE IF NOT EXISTS orders (key TEXT PRIMARY KEY, day TEXT, product TEXT, grind TEXT, city TEXT)"
        )

    def place(self, day: str, **order: str) -> str:
        """The key makes a retry harmless: the same order in the same conversation is placed once. The program makes
        it; a model that asks again would make another."""
        key = json.dumps([OWNER, day, {name: _plain(value) for name, value in order.items()}], sort_keys=True)
        new = self._do("INSERT OR IGNORE INTO orders VALUES (?, ?, ?, ?, ?)", key, day, *order.values())[1]
        [(number,)] = self._do("SELECT rowid FROM orders WHERE key = ?", key)[0]
        return f"Order {number} is placed." if new else f"Order {number} was placed already; nothing was done."

    def orders(self, day: str) -> list[dict[str, str]]:
        rows = self._do("SELECT product, grind, city FROM orders WHERE day = ? ORDER BY rowid", day)[0]
        return [dict(zip(("product", "grind", "city"), row, strict=True)) for row in rows]

    def last(self, day: str) -> dict[str, str]:
        return (self.orders(day) or [{}])[-1]

    def _do(self, sql: str, *values: str) -> tuple[list[Any], int]:
        """What it found, and how many rows it changed. A connection each: tools run in threads."""
        with closing(sqlite3.connect(self._path, timeout=30)) as db, db:
            cursor = db.execute(sql, values)
            return cursor.fetchall(), cursor.rowcount


def order_tool(books: Books, session: str) -> Tool:
    """place_order, for one conversation."""

    @tool
    def place_order(
        product: Annotated[str, "Which coffee and how much."],
        grind: Annotated[str, "What it is ground for."],
        city: Annotated[str, "Where it is shipped."],
    ) -> str:
        """Place an order with the roaster."""
        return books.place(session, product=product, grind=grind, city=city)

    return place_order


# -- the model --------------------------------------------------------------------------------------------------------

_FACTS = {
    "product": re.compile(r"\b(?:a|one|\d+) ?(?:kilo|kg) of \w+", re.I),
    "grind": re.compile(r"(?<=\bground for )[^,.;]+", re.I),
    "city": re.compile(r"(?<=\bshipped to )[^,.;]+", re.I),
}
_NOTES = {
    "product": "Ordered {} coffee.",
    "grind": "Wants the coffee ground for {}.",
    "city": "Has the coffee shipped to {}.",
}
_RECALLED = re.compile(r'^\d\.\d\d \[[^\]]*\] (".*")$', re.M)


def _facts(text: str) -> dict[str, str]:
    """Product, grind and city, as far as a text tells them."""
    found = {name: pattern.search(text) for name, pattern in _FACTS.items()}
    return {
        name: match[0][0].lower() + match[0][1:] if name == "product" else match[0]
        for name, match in found.items()
        if match
    }


class Shopkeeper:
    """Rules in the place of a model, for a machine that has none: it calls tools and reads what they answer. It knows
    how people order coffee; about this customer it knows what is in the messages, and nothing else."""

    model = "scripted"

    def complete(self, messages: Messages, tools: Schemas) -> ModelReply:  # noqa: ARG002  # as models have it
        start = max(at for at, each in enumerate(messages) if each["role"] == "user")
        asked, _, brought = str(messages[start]["content"]).partition("\n\n")  # after it, notes that came by themselves
        earlier, since = messages[:start], messages[start + 1 :]
        called = [call["function"]["name"] for each in since for call in each.get("tool_calls", ())]
        told = [brought, *(str(each["content"]) for each in since if each["role"] == "tool")]
        if "place_order" in called:
            sent = _facts(asked) or self._order(told)
            way = "{product}, ground for {grind}, is on its way to {city}.".format(**sent)
            return self._says(messages, f"{way} {told[-1]}")
        ordered = _facts(asked)
        if len(ordered) == len(_FACTS):
            if len(called) < len(_NOTES):
                name = list(_NOTES)[len(called)]
                return self._calls(len(messages), "remember", note=_NOTES[name].format(ordered[name]))
            return self._calls(len(messages), "place_order", **ordered)
        if "order number" in asked and (numbers := re.findall(r"Order (\d+)", json.dumps(list(earlier)))):
            return self._says(messages, f"it was order {numbers[-1]}.")
        again = re.search(r"last time|as usual|the same", asked)
        if "recall" not in called and not (again and brought):
            return self._calls(len(messages), "recall", query=asked)
        order = self._order(told)
        if again and len(order) == len(_FACTS):
            guess = "I take it that you mean this. " if "The match is weak" in told[-1] else ""
            said = f"{guess}Last time: {order['product']}, ground for {order['grind']}, to {order['city']}. I send it."
            return self._calls(len(messages), "place_order", said, **order)
        return self._says(
            messages, "what shall I send?" if again else "I have nothing about that. Tell me, and I will."
        )

    def stream(self, messages: Messages, tools: Schemas) -> Iterator[str | ModelReply]:
        yield self.complete(messages, tools)

    @staticmethod
    def _order(told: Sequence[str]) -> dict[str, str]:
        """The order in what recall answered, each fact from the note that came first."""
        notes = [json.loads(text) for text in _RECALLED.findall("\n".join(told))]
        return {name: value for note in reversed(notes) for name, value in _facts(note).items()}

    @staticmethod
    def _says(messages: Messages, text: str) -> ModelReply:
        name = re.search(r"Her name is (\w+)", str(messages[0]["content"]))  # the page is in the system prompt
        return ModelReply(f"{name[1]}, {text}" if name else text[0].upper() + text[1:])

    @staticmethod
    def _calls(number: int, name: str, text: str = "", /, **arguments: str) -> ModelReply:
        call = ToolCall(f"call{number:05}", name, dict(arguments), json.dumps(arguments, ensure_ascii=False))
        return ModelReply(text, (call,), "tool_calls")


class Listening:
    """A model, and what it was first sent: that a day begins empty is checked, not claimed."""

    def __init__(self, model: Model) -> None:
        self._inner = model
        self.model = str(getattr(model, "model", ""))
        self.scripted = isinstance(model, Shopkeeper)
        self.first: list[str] = []

    def complete(self, messages: Messages, tools: Schemas) -> ModelReply:
        self.first = self.first or [each["role"] for each in messages]
        return self._inner.complete(messages, tools)

    def stream(self, messages: Messages, tools: Schemas) -> Iterator[str | ModelReply]:
        self.first = self.first or [each["role"] for each in messages]
        return self._inner.stream(messages, tools)

    def close(self) -> None:
        if isinstance(self._inner, ChatModel):
            self._inner.close()


# -- what is printed --------------------------------------------------------------------------------------------------


class Transcript:
    """A listener that prints who says and does what. The agent does not know of it."""

    def __init__(self) -> None:
        self.verdicts: list[str] = []
        self._happened: list[str] = []
        self._arguments: dict[str, str] = {}
        self._in_tools: set[str] = set()  # the calls that are being carried out

    def __call__(self, event: Any) -> None:
        self._happened.append(type(event).__name__)
        match event:
            case RunStarted():
                print_line("")
                if event.messages:
                    cost = f"{count(event.messages, 'message')}, about {count(event.tokens, 'token')}"
                    _line("", f"(session {event.session} goes on: all of it is sent again, {cost})")
                _line("Customer", event.prompt)
            case ToolStarted():
                self._arguments[event.call] = json.dumps(event.arguments, ensure_ascii=False)
                self._in_tools.add(event.call)
            case ToolEnded():
                self._in_tools.discard(event.call)
                arguments = self._arguments.get(event.call, "")
                _line(event.name, arguments, *(f"-> {line}" for line in _shortened(event.result).splitlines()))
            case ModelReplied():
                # As the model wrote them: a call that is refused unseen is never started.
                self._arguments |= {call.id: call.arguments for call in event.calls}
                if event.calls and event.text:
                    _line("Assistant", *event.text.splitlines())
            case Recalled():
                self.verdicts.append(event.verdict)
                if not self._in_tools:  # auto-recall: nobody called for it
                    found = [each for each in event.candidates if each.note in event.handed_on]
                    lines = [f"{each.score:.2f} {json.dumps(each.text, ensure_ascii=False)}" for each in found]
                    _line("Diary", *(lines or [NOTHING_SAVED]))
            case RunEnded():
                _line("Assistant", *(event.text or event.error).splitlines())
            case _:
                pass

    def night(self, agent: Agent, diary: Diary, session: str, model: Listening) -> None:
        """The session ends, and with it the history. A real model reads it once more: what it did not think of
        remembering is picked up."""
        kept = diary.session(session)
        kept.end()
        if model.scripted:
            agent.events.emit(DayClosed, session=session, messages=len(kept.messages))
        else:
            facts = [note.text for note in diary.close_day(kept, model, events=agent.events).kept]
            _line("close_day", *(facts or ["found nothing more to keep."]))
        print_line("")
        _line(
            "Night",
            f"The session ends: {count(len(kept.messages), 'message')} leave the agent's head; the diary stays.",
        )

    def events(self) -> None:
        """What happened in order, a line for each request to the model."""
        lines: list[list[str]] = [[]]
        for name in self._happened:
            if name in {"RunStarted", "TurnStarted", "RunEnded"}:
                lines.append([])
            lines[-1].append(name)
        told = [(" ".join(line), len(list(same))) for line, same in itertools.groupby(lines[1:])]
        _line("Events", *(line if times == 1 else f"{line} ({times} times)" for line, times in told))


def _shortened(text: str) -> str:
    """Without most of each id and boundary: they are for machines."""
    return re.sub(r"\b([0-9a-f]{6})(?:[0-9a-f]{10}|[0-9a-f]{26})\b", r"\1…", text)


def _on_disk(folder: Path) -> None:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    _line("On disk", *(f"{path.relative_to(folder.parent).as_posix()} {path.stat().st_size:,} bytes" for path in files))


def _title(text: str) -> None:
    print_line("")
    print_line(text)


def _line(who: str, *lines: str) -> None:
    for number, line in enumerate(lines):
        print_line(f"  {'' if number else who:<12}{line}")


_DAYS: dict[str, Callable[..., int]] = {"day-1": day_1, "day-2": day_2}

if __name__ == "__main__":
    quit_with(lambda: _DAYS[sys.argv[1]](*sys.argv[2:]))
