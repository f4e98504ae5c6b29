"""What the commands print: tables on a terminal, tab-separated lines in a pipe, or JSON.

Stored text is shown, never obeyed: markup is printed as it stands, and characters that steer a terminal are escaped.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime, tzinfo
from functools import cache
from typing import IO, TYPE_CHECKING, Any, cast

from ..errors import StoreError
from ..guard import one_line
from ..note import NOTHING_SAVED, Hit, Note, Recall

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from ..doctor import Finding
    from ..erasure import ErasureReport
    from ..session import Message, SessionInfo

BAR = 10  # cells: one for each tenth of the score

Progress = Callable[[int, int | None, str], None]
"""Called with what is done, of how much (None: nobody knows), and what to say of it."""


def say(text: str) -> None:
    """A line for the person at the keyboard, on stderr."""
    sys.stderr.write(seen(text) + "\n")


def reason(error: BaseException) -> str:
    """What happened and what to do, on one line."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    text = " ".join(str(error).split()) or type(error).__name__
    # Only the plain kind is about the place: a damaged or newer diary is not helped by another one.
    return f"{text}; --memory or DIARIST_MEMORY names another place" if type(error) is StoreError else text


def count(number: int, thing: str) -> str:
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def seen(text: str) -> str:
    """The text with line breaks and what the eye cannot see as escapes, so that none of it reaches the terminal raw."""
    return text if text.isprintable() else "".join(map(_seen, text))


@cache
def _seen(character: str) -> str:
    return character if character in '"\\' else one_line(character)[1:-1]


# --- JSON -----------------------------------------------------------------------------------------------------------


def print_json(data: object) -> None:
    """One JSON document on one line. The escapes of `seen` are JSON's own, so it reads back exactly."""
    sys.stdout.write(as_json_line(data, ascii_only=not is_wide(sys.stdout)))


def as_json_line(data: object, *, ascii_only: bool = True) -> str:
    return seen(json.dumps(data, ensure_ascii=ascii_only, default=_plain)) + "\n"


def _plain(value: object) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"{value!r} has no JSON form")


# --- tables and lines -----------------------------------------------------------------------------------------------


def print_line(*cells: str) -> None:
    """Cells with tabs between them: for a pipe, and for what needs no table."""
    sys.stdout.write("\t".join(map(seen, cells)) + "\n")


def print_text(text: str) -> None:
    """A text of several lines as it stands, but for characters that steer a terminal."""
    write(as_plain_text(text if text.endswith("\n") or not text else text + "\n"))


def as_plain_text(text: str) -> str:
    return "".join("\t".join(map(seen, line.split("\t"))) + "\n" for line in text.split("\n")).removesuffix("\n")


def write(text: str) -> None:
    sys.stdout.write(text)


def show_notes(notes: Iterable[Note], now: datetime, zone: tzinfo = UTC) -> None:
    if not sys.stdout.isatty():
        for note in notes:
            print_line(note.id, _day(note, zone), note.text, *filter(None, [", ".join(_marks(note, now))]))
        return
    _print_rows(([_day(note, zone)], _described(note, _marks(note, now)), note.id) for note in notes)


def show_recall(found: Recall, owner: str, *, why: bool, now: datetime) -> None:
    """The hits with their scores; or, where nothing answers, just that (with `why`, the closest notes too)."""
    if found.verdict == "nothing":
        print_line(NOTHING_SAVED)
        if not why or not len(found):
            return
        say("The closest notes, for what they are worth:")
    elif found.verdict == "weak":
        say("Weak match: ask the person before acting on it.")
    else:
        say("Strong match.")
    if sys.stdout.isatty():
        _recall_table(found, owner, why, now)
        return
    for hit in found:
        note = hit.note
        marks = ", ".join(_marks(note, now, hit, owner))
        print_line(f"{hit.score:.2f}", _day(note, found.zone), note.id, note.text, *filter(None, [marks]))
        if why:
            for part in hit.why:
                print_line("", f"{part.value:+.2f}", part.name, part.text)


def _recall_table(found: Recall, owner: str, why: bool, now: datetime) -> None:
    from rich.text import Text

    rows: list[_Row] = []
    for hit in found:
        text = _described(hit.note, _marks(hit.note, now, hit, owner))
        if why:
            for part in hit.why:
                text.append(f"\n{part.value:+.2f} {seen(part.name)}: {seen(part.text)}", style="dim")
        score = Text(f"{hit.score:.2f} ").append(bar(hit.score, sys.stdout), style="cyan")
        rows.append(([score, _day(hit.note, found.zone)], text, hit.note.id))
    _print_rows(rows)


def show_sessions(sessions: Iterable[SessionInfo], zone: tzinfo = UTC) -> None:
    """A session a line: id, first and last day, how many messages, and whether it has ended."""
    if not sys.stdout.isatty():
        for each in sessions:
            days = (_date(each.created_at, zone), _date(each.last_at, zone))
            print_line(each.id, *days, str(each.messages), *(["ended"] if each.ended_at else []))
        return
    from rich.text import Text

    rows: list[_Row] = []
    for each in sessions:
        first, last = _date(each.created_at, zone), _date(each.last_at, zone)
        facts = [count(each.messages, "message"), *([f"since {first}"] if first != last else [])]
        facts += ["ended"] if each.ended_at else []
        rows.append(([last], Text(seen(each.id)).append(f"\n{'; '.join(facts)}", style="dim"), seen(each.id)))
    _print_rows(rows)


def session_data(session: SessionInfo) -> dict[str, Any]:
    return asdict(session)


def show_messages(messages: Iterable[Message]) -> None:
    """Who said what, and what was called; in a pipe one message a line."""
    if not sys.stdout.isatty():
        for each in messages:
            print_line(str(each.get("role")), *_said(each))
        return
    from rich.text import Text

    console, grid = _console(), _grid()
    for each in messages:
        said = "\n".join(as_plain_text(part) for part in _said(each))
        grid.add_row(Text(seen(str(each.get("role"))), style="dim"), Text(said))
    console.print(grid)


def _said(message: Message) -> list[str]:
    """The text of a message, if it has one, and its calls."""
    content: Any = message.get("content")
    parts = cast("list[Any]", content) if isinstance(content, list) else [content]
    texts = [part if isinstance(part, str) else _part(part) for part in parts if part]
    items: Any = message.get("tool_calls")
    calls = [_part(item, "function") for item in cast("list[Any]", items)] if isinstance(items, list) else []
    return [*texts, *calls]


def _part(part: Any, key: str = "text") -> str:
    """A part of a message in words, whatever it is: it was saved as somebody else's program made it."""
    held: Any = cast("dict[str, Any]", part).get(key) if isinstance(part, dict) else None
    if isinstance(held, dict):
        called = cast("dict[str, Any]", held)
        return f"-> {called.get('name')} {called.get('arguments')}"
    return held if isinstance(held, str) else json.dumps(part, ensure_ascii=False)


def say_forgotten(owner: str, note_id: str, report: ErasureReport) -> None:
    """What came of forgetting a note, and where the same text still stands."""
    say(f"Forgotten: {note_id}")
    for name in report.residue:
        hint = f"diarist page {owner} --edit" if name == "page.md" else "another note may hold it"
        say(f"The same text is still in {name}: {hint}")
    if report.pending:
        say("Another process still reads the state before: the log is emptied with the next write, or doctor.")


def show_facts(facts: Iterable[tuple[str, str]]) -> None:
    """What belongs together, one name and value a line."""
    if not sys.stdout.isatty():
        for name, value in facts:
            print_line(name, value)
        return
    from rich.text import Text

    console, grid = _console(), _grid()
    for name, value in facts:
        grid.add_row(Text(seen(name), style="dim"), Text(seen(value)))
    console.print(grid)


def show_findings(owner: str, findings: Iterable[Finding]) -> None:
    """What doctor found about one owner; what is not well with a mark, and what to do."""
    if not sys.stdout.isatty():
        for each in findings:
            print_line(owner, "ok" if each.well else "NOT WELL", each.subject, each.text, *filter(None, [each.advice]))
        return
    from rich.text import Text

    console, grid = _console(), _grid(2)
    well, ill = ("✓", "✗") if is_wide(console.file) else ("ok", "!!")
    console.print(Text(seen(owner), style="bold"))
    for each in findings:
        text = Text(seen(each.text))
        if each.advice:
            text.append(f"\nWhat to do: {seen(each.advice)}", style="bold")
        mark = Text(well, style="green") if each.well else Text(ill, style="bold red")
        grid.add_row(mark, seen(each.subject), text)
    console.print(grid)


@contextmanager
def progress_bar() -> Generator[Progress]:
    """A bar on stderr where that is a terminal; else silence."""
    if not sys.stderr.isatty():
        yield lambda _done, _total, _text: None
        return
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=_console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        yield lambda done, total, text: bar.update(task, completed=done, total=total, description=seen(text))


def bar(score: float, stream: IO[str]) -> str:
    full, empty = ("█", "░") if is_wide(stream) else ("#", ".")
    filled = round(score * BAR)
    return full * filled + empty * (BAR - filled)


def _described(note: Note, marks: Iterable[str]) -> Text:
    from rich.text import Text

    return Text(seen(note.text)).append(f"\n{seen('; '.join([note.id, *marks]))}", style="dim")


def _marks(note: Note, now: datetime, hit: Hit | None = None, asked_about: str | None = None) -> list[str]:
    """What a person should know of a note besides its text and date."""
    facts: Mapping[str, object] = {
        f"in the diary of {note.owner}": asked_about is not None and note.owner != asked_about,
        f"from {note.source}": note.source,
        note.origin.replace("_", " "): note.origin != "owner_said",
        f"tags: {', '.join(note.tags)}": note.tags,
        "replaced": note.replaced_by,
        "expired": note.expires_at is not None and note.expires_at <= now,
        "older than another note that says nearly the same": hit is not None
        and hit.older_than
        and not note.replaced_by,
        "reads like instructions": note.flagged,
        "kept out of recall": note.quarantined,
        "not yet found by meaning": note.pending,
    }
    return [mark for mark, holds in facts.items() if holds]


def _day(note: Note, zone: tzinfo) -> str:
    return _date(note.dated, zone)


def _date(moment: datetime, zone: tzinfo) -> str:
    return moment.astimezone(zone).strftime("%Y-%m-%d")


def is_wide(stream: IO[str]) -> bool:
    """Whether every letter can be written there."""
    return (getattr(stream, "encoding", None) or "").lower().startswith(("utf", "cp65001"))


def _console(*, stderr: bool = False) -> Console:
    from rich.console import Console

    plain = bool(os.environ.get("NO_COLOR"))  # rich leaves only the colours out, and still dims
    return Console(stderr=stderr, color_system=None if plain else "auto", highlight=False, markup=False, emoji=False)


_Row = tuple["list[str | Text]", "Text", str]
"""Short cells that are never broken, what stands beside them, and the id in it."""


def _print_rows(rows: Iterable[_Row]) -> None:
    """Side by side; or, where an id would be broken so, one below the other."""
    from rich.text import Text

    console, every = _console(), list(rows)
    beside = max((sum(len(cell) + 2 for cell in cells) for cells, _, _ in every), default=0)
    longest = max((len(id) + 1 for _, _, id in every), default=0)
    if beside + longest <= console.width:
        grid = _grid(len(every[0][0]) if every else 1)
        for cells, text, _ in every:
            grid.add_row(*cells, text)
        console.print(grid)
        return
    for cells, text, _ in every:
        console.print(Text("  ").join(Text(cell) if isinstance(cell, str) else cell for cell in cells), soft_wrap=True)
        for line in text.split("\n"):
            fits = all(len(word) <= console.width for word in line.plain.split(" "))
            console.print(line, soft_wrap=not fits, overflow="fold" if fits else None)


def _grid(fixed: int = 1) -> Any:
    """Columns without a frame, the first `fixed` of them never broken."""
    from rich.table import Table

    grid = Table.grid(padding=(0, 2))
    for _ in range(fixed):
        grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    return grid
