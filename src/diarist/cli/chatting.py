"""A conversation in the terminal: the answer as it comes on stdout; what the tools do, and all else, on stderr.

Lines that begin with / are commands, for the person only: the model never hears of them.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import closing, redirect_stdout, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast
from zoneinfo import ZoneInfo

from ..agent import Agent
from ..errors import DiaristError, NotFound
from ..events import ModelReplied, Recalled, RunEnded, SessionTrimmed, TextDelta, ToolEnded, ToolStarted
from ..model import ChatModel, ToolCall
from .show import (
    as_plain_text,
    count,
    print_text,
    reason,
    say,
    say_forgotten,
    seen,
    show_notes,
    show_recall,
    write,
)

if TYPE_CHECKING:
    from ..diary import Diary
    from ..events import Event
    from ..session import Session

INSTRUCTIONS = "You are a helpful assistant who remembers this person from one conversation to the next."
_COMMANDS = """\
/notes       what is saved
/why         what the last recall found, and what each score is made of
/forget ID   erase a note for good; more than one id is fine
/page        the page about this person
/help        this
/quit        leave; so do Ctrl-D, and Ctrl-C at the prompt. During an answer, Ctrl-C ends the answer"""


def chat_model(timeout: float) -> ChatModel:
    """The model that the environment names. ValueError, with what to set, if it names none."""
    name, address, key = (
        os.environ.get(each, "").strip() for each in ("DIARIST_MODEL", "OPENAI_BASE_URL", "OPENAI_API_KEY")
    )
    if not name or not (address or key):
        missing = [] if name else ["DIARIST_MODEL to the model's name, such as llama3.1,"]
        if not (address or key):
            missing.append(
                "OPENAI_BASE_URL to where it is served, such as http://localhost:11434/v1"
                " (or, for OpenAI itself, only OPENAI_API_KEY)"
            )
        raise ValueError(f"no model to talk to: set {' and '.join(missing).rstrip(',')}")
    return ChatModel(timeout=timeout)


class Chat:
    """One conversation about one owner. `asks` is whether a person sits at the keyboard, who can be asked."""

    def __init__(
        self, diary: Diary, session: Session, model: ChatModel, instructions: str, token_budget: int | None
    ) -> None:
        self.diary, self.session = diary, session
        self.asks, self.streams = sys.stdin.isatty(), sys.stdout.isatty()
        today = datetime.now(ZoneInfo(diary.timezone))
        self.agent = Agent(
            model,
            f"{instructions}\nToday is {today:%Y-%m-%d}.{diary.briefing()}",
            diary.tools(),
            approve=self.approve if self.asks else None,
            token_budget=token_budget,
            auto_recall=diary.auto_recall,
        )
        self.arguments: dict[str, dict[str, Any]] = {}
        self.recalled: Recalled | None = None
        self.midline = self.begun = False
        self.commands: dict[str, Callable[[list[str]], None]] = {
            "/notes": self.notes,
            "/why": self.why,
            "/forget": self.forget,
            "/page": self.page,
            "/help": lambda _: print_text(_COMMANDS),
        }

    def run(self) -> bool:
        """Until the person leaves or the input ends. False if a prompt got no answer."""
        if self.asks:
            with suppress(ImportError):  # where it is there, input() has line editing, and a history until we leave
                import readline  # noqa: F401  # pyright: ignore[reportUnusedImport]
        every = True
        while (line := self.next_line()) is not None:
            if not line.strip():
                continue
            if line.split() == ["/quit"]:
                break
            try:
                if line.startswith("/"):
                    self.command(line)
                else:
                    every = self.answer(line) and every
            except KeyboardInterrupt:
                if not self.asks:
                    raise
                self.end_line()
                say("")  # the terminal has shown ^C
                say("Interrupted. What was said is kept.")
        return every

    def next_line(self) -> str | None:
        """What is typed or piped in next; None at the end."""
        if not self.asks:
            return sys.stdin.readline() or None
        try:
            return typed("> ")
        except (EOFError, KeyboardInterrupt):
            sys.stderr.write("\n")
            return None

    # -- an answer ----------------------------------------------------------------------------------------------------

    def answer(self, prompt: str) -> bool:
        """Asks the model and shows what happens; False if no answer came."""
        self.begun = False
        try:
            with closing(cast("Any", self.agent.stream(prompt.rstrip("\r\n"), self.session))) as happening:
                for event in happening:
                    self.show(event)
        except (DiaristError, ValueError) as error:
            self.end_line()
            say(f"diarist: {reason(error)}")
            if getattr(error, "overflow", False):
                say("The conversation is longer than the model can take: begin a new one, or give --token-budget.")
            return False
        return True

    def show(self, event: Event) -> None:
        match event:
            case TextDelta() if self.streams:
                text = event.text.replace("\r", "")
                text = text if self.begun else text.lstrip("\n")
                if text:
                    self.begun, self.midline = True, not text.endswith("\n")
                    write(as_plain_text(text))
                    sys.stdout.flush()
            case ModelReplied() if event.calls:
                self.end_line()
                if event.text.strip() and not self.streams:  # not yet the answer, which is all that goes into a pipe
                    say_dim(event.text.strip())
            case ToolStarted():
                self.arguments[event.call] = event.arguments
            case Recalled():
                self.recalled = event
            case ToolEnded():
                self.end_line()
                say_dim(self.told(event))
            case SessionTrimmed():
                cut = f"{count(event.messages, 'message')} left out, {event.shortened} shortened"
                say_dim(f"(too long for {event.budget:,} tokens: {cut}. The session is kept whole)")
            case RunEnded():
                self.end_line()
                if event.text.strip() and not self.streams:
                    print_text(event.text.strip("\n"))
                    sys.stdout.flush()
                for remark in event.remarks:
                    say(f"diarist: {remark}")
            case _:
                pass

    def end_line(self) -> None:
        if self.midline:
            write("\n")
            sys.stdout.flush()
        self.midline = False

    def told(self, event: ToolEnded) -> str:
        """A call and what came of it, on one line."""
        arguments = self.arguments.get(event.call, {})
        width = shutil.get_terminal_size().columns
        given = [f'"{_short(each, width // 2 - 6)}"' for each in arguments.values() if isinstance(each, str)]
        called = " ".join([event.name, *given])
        outcome = _short((event.result.strip().splitlines() or [""])[0], max(20, width - len(called) - 5))
        found = self.recalled
        if event.name == "recall" and event.ok and found is not None and found.query == arguments.get("query"):
            notes = count(len(found.handed_on), "note")
            outcome = "nothing" if found.verdict == "nothing" else f"{notes}, {found.verdict}"
        return f"{called} -> {outcome}"

    def approve(self, call: ToolCall) -> bool:
        """Asks the person; only a yes lets the call be carried out."""
        self.end_line()
        ids: Any = (call.arguments or {}).get("ids")
        say(f"The model wants to {call.name}, which cannot be undone:")
        for id in cast("list[Any]", ids) if isinstance(ids, list) else [ids]:
            try:
                note = self.diary.note(id)
                say(f"  {note.dated:%Y-%m-%d} {note.id} {note.text}")
            except (NotFound, TypeError):
                say(f"  {id}: there is no such note")
        try:
            return typed("Let it? [y/N] ").strip().casefold() in {"y", "yes"}
        except EOFError:
            sys.stderr.write("\n")
            return False

    # -- commands -----------------------------------------------------------------------------------------------------

    def command(self, line: str) -> None:
        name, *words = line.split()
        act = self.commands.get(name)
        if act is None:
            say(f"There is no command {name}. /help lists them.")
            return
        with redirect_stdout(sys.stderr):  # stdout is for answers
            try:
                act(words)
            except (DiaristError, ValueError) as error:
                say(f"diarist: {reason(error)}")

    def notes(self, _: list[str]) -> None:
        kept = self.diary.notes()
        if kept:
            show_notes(kept, now=datetime.now(UTC), zone=ZoneInfo(self.diary.timezone))
        else:
            say(f"No notes about {self.diary.owner}.")

    def why(self, _: list[str]) -> None:
        """The last recall once more, with its reasons; only what it found then."""
        last = self.recalled
        if last is None:
            say("Nothing was recalled yet.")
            return
        none: dict[str, Any] = {}
        given = next((each for each in self.arguments.values() if each.get("query") == last.query), none)
        found = self.diary.recall(
            last.query,
            limit=1000,
            since=given.get("since"),
            before=given.get("before"),
            where="all" if given.get("past_sessions") else "notes",
        )
        then = {each.note for each in last.candidates}
        hits = tuple(hit for hit in found if hit.note.id in then)
        say(f'Asked for: "{last.query}"')
        if not hits:
            say("No notes were there to be found.")
            return
        show_recall(
            replace(found, hits=hits, verdict=cast("Any", last.verdict)),
            self.diary.owner,
            why=True,
            now=datetime.now(UTC),
        )

    def forget(self, ids: list[str]) -> None:
        if not ids:
            say("Which? /forget ID, with an id that /notes shows.")
        for id in ids:
            try:
                say_forgotten(self.diary.owner, id, self.diary.forget(id))
            except NotFound as error:
                say(f"diarist: {reason(error)}")

    def page(self, _: list[str]) -> None:
        text = self.diary.page.read()
        if text.strip():
            print_text(text)
        else:
            say(f"No page about {self.diary.owner}.")


def typed(prompt: str) -> str:
    """A line from the person at the keyboard. EOFError at the end."""
    sys.stderr.flush()
    if sys.stdout.isatty():
        return input(prompt)
    sys.stderr.write(prompt)  # stdout goes elsewhere, and a prompt is no answer
    sys.stderr.flush()
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def say_dim(text: str) -> None:
    """A line on stderr that stands back, where the terminal can show it so."""
    able = sys.stderr.isatty() and os.name == "posix" and os.environ.get("TERM") != "dumb"
    dim = able and not os.environ.get("NO_COLOR")
    sys.stderr.write(f"\x1b[2m{seen(text)}\x1b[0m\n" if dim else f"{seen(text)}\n")


def _short(text: str, most: int) -> str:
    text, most = " ".join(text.split()), max(10, most)
    return text if len(text) <= most else f"{text[: most - 3]}..."
