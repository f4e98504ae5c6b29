"""The commands. Each opens the memory, calls one verb and shows what came of it."""

from __future__ import annotations

import os
import sys
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Annotated, Any, cast
from zoneinfo import ZoneInfo

import typer

from ..checks import checked_zone
from ..errors import DiaristError, NotFound
from . import NOTHING_OR_REFUSED
from .importing import keep_all, opened, progress_bar, when
from .show import count, note_data, print_json, print_line, reason, recall_data, say, show_notes, show_recall

if TYPE_CHECKING:
    from ..memory import Memory

app = typer.Typer(
    name="diarist",
    help="Long-term memory for agents: one diary for each person, searched by meaning.",
    epilog="DIARIST_EMBEDDER names the embedder: bundled (the default), use, e5 or openai:MODEL@BASE_URL.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Owner = Annotated[str, typer.Argument(metavar="OWNER", help="Whose diary: any id of yours, such as c-2291.")]
NoteId = Annotated[str, typer.Argument(metavar="ID", help="The note's id, as notes and recall show it.")]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="One fact, in a sentence. - reads it from stdin.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A label. Give it again for more than one.")]
Zone = Annotated[
    str,
    typer.Option("--timezone", metavar="ZONE", help="Where times given without an offset are meant: Europe/Paris."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def _time(about: str) -> Any:
    return typer.Option(metavar="TIME", help=about)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print_line(f"diarist {version('diarist')}")
        raise typer.Exit


@app.callback()
def options(
    context: typer.Context,
    memory: Annotated[
        str | None,
        typer.Option(
            envvar="DIARIST_MEMORY",
            metavar="PATH_OR_URL",
            help="Where the diaries are. Without it, your user data folder.",
        ),
    ] = None,
    version: Annotated[  # noqa: ARG001 - its callback does it
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and leave.")
    ] = False,
) -> None:
    if memory is not None and not memory.strip():
        raise ValueError("--memory is empty. Give a folder, or leave it out for your user data folder.")
    context.obj = memory


def _place(context: typer.Context) -> str:
    if context.obj:
        return context.obj
    from platformdirs import user_data_dir

    return user_data_dir("diarist", appauthor=False)


def _open(context: typer.Context) -> Memory:
    from ..memory import Memory

    return Memory(_place(context), embedder=os.environ.get("DIARIST_EMBEDDER") or "bundled")


def _when(value: str | None, zone: tzinfo, option: str) -> datetime | None:
    return None if value is None else when(value, zone, option)


def _text(text: str) -> str:
    return sys.stdin.read().rstrip("\r\n") if text == "-" else text


@app.command()
def remember(
    context: typer.Context,
    owner: Owner,
    text: Text,
    replaces: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="A note that this one takes the place of. Give it again for more than one."),
    ] = None,
    happened_at: Annotated[str | None, _time("When it happened, or began to hold.")] = None,
    expires_at: Annotated[str | None, _time("When it stops holding.")] = None,
    source: Annotated[str | None, typer.Option(help="Where it came from: whatsapp, order 17.")] = None,
    origin: Annotated[
        str, typer.Option(help="Who said it: owner_said, agent_inferred, operator or third_party.")
    ] = "owner_said",
    tag: Tags = None,
    key: Annotated[
        str | None, typer.Option(help="A name for this request: made again, it saves nothing twice.")
    ] = None,
    timezone: Zone = "UTC",
    as_json: AsJson = False,
) -> None:
    """Save one note. Prints its id."""
    zone = checked_zone(timezone) or UTC
    with _open(context) as memory:
        diary = memory.diary(owner)
        note = diary.remember(
            _text(text),
            replaces=replaces or (),
            happened_at=_when(happened_at, zone, "--happened-at"),
            expires_at=_when(expires_at, zone, "--expires-at"),
            source=source,
            origin=cast("Any", origin),  # the diary checks it, and names the four there are
            tags=tag or (),
            key=key,
        )
        total = diary.count()
    if as_json:
        print_json(note_data(note))
    else:
        print_line(note.id)
    say(f"Saved. {count(total, 'note')} about {owner}.")
    if note.pending:
        say("The embedder did not answer: until it does, the note is found by its words only.")


@app.command()
def recall(
    context: typer.Context,
    owner: Owner,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The question, in any words.")],
    limit: Annotated[int, typer.Option(help="The most notes to show.", min=1)] = 8,
    since: Annotated[str | None, _time("Only notes dated then or later.")] = None,
    before: Annotated[str | None, _time("Only notes dated earlier.")] = None,
    as_of: Annotated[str | None, _time("What held at that time.")] = None,
    tag: Tags = None,
    include_replaced: Annotated[
        bool, typer.Option("--include-replaced", help="Also notes that were replaced or have expired.")
    ] = False,
    min_score: Annotated[float | None, typer.Option(help="Leave out notes that score lower, 0 to 1.")] = None,
    why: Annotated[bool, typer.Option("--why", help="Show what each score is made of.")] = False,
    timezone: Zone = "UTC",
    as_json: AsJson = False,
) -> None:
    """Find notes by meaning, best first. Exits 1 when nothing saved answers."""
    zone = checked_zone(timezone) or UTC
    with _open(context) as memory:
        found = memory.diary(owner).recall(
            query,
            limit=limit,
            since=_when(since, zone, "--since"),
            before=_when(before, zone, "--before"),
            as_of=_when(as_of, zone, "--as-of"),
            tags=tag,
            include_replaced=include_replaced,
            min_score=min_score,
        )
    for notice in found.notices:
        say(notice)
    if as_json:
        print_json(recall_data(found))
    else:
        show_recall(found, why=why, now=datetime.now(UTC))
    if found.verdict == "nothing":
        raise typer.Exit(NOTHING_OR_REFUSED)


@app.command()
def notes(
    context: typer.Context,
    owner: Owner,
    every: Annotated[bool, typer.Option("--all", help="Also notes that were replaced or have expired.")] = False,
    as_json: AsJsonLines = False,
) -> None:
    """List what is saved about someone, newest first."""
    with _open(context) as memory:
        diary = memory.diary(owner)
        kept, zone = diary.notes(include_replaced=every), ZoneInfo(diary.timezone)
    if not kept:
        say(f"No notes about {owner}.")
        raise typer.Exit(NOTHING_OR_REFUSED)
    if as_json:
        for note in kept:
            print_json(note_data(note))
    else:
        show_notes(kept, now=datetime.now(UTC), zone=zone)


@app.command()
def edit(context: typer.Context, owner: Owner, note_id: NoteId, text: Text, as_json: AsJson = False) -> None:
    """Correct a note. The old text is erased: when a fact changed, use remember --replaces."""
    with _open(context) as memory:
        note = memory.diary(owner).edit(note_id, _text(text))
    if as_json:
        print_json(note_data(note))
    say(f"Corrected {note.id}.")


@app.command()
def forget(
    context: typer.Context,
    owner: Owner,
    note_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids, as notes and recall show them.")],
    as_json: AsJsonLines = False,
) -> None:
    """Erase notes for good. Those that are there go, even if another id is unknown."""
    unknown = 0
    with _open(context) as memory:
        diary = memory.diary(owner)
        for note_id in note_ids:
            try:
                diary.forget(note_id)
            except NotFound as error:
                unknown += 1
                say(f"diarist: {reason(error)}")
                continue
            if as_json:
                print_json({"forgotten": note_id})
            say(f"Forgotten: {note_id}")
    if unknown:
        raise typer.Exit(NOTHING_OR_REFUSED)


@app.command()
def owners(context: typer.Context, as_json: AsJsonLines = False) -> None:
    """List whose diaries there are."""
    with _open(context) as memory:
        known = memory.owners()
    if not known:
        say(f"No diaries in {_place(context)}.")
        raise typer.Exit(NOTHING_OR_REFUSED)
    for owner in known:
        if as_json:
            print_json({"owner": owner})
        else:
            print_line(owner)


@app.command("import")
def import_(
    context: typer.Context,
    owner: Owner,
    file: Annotated[str, typer.Argument(metavar="FILE", help="JSON lines in UTF-8, one note a line. - is stdin.")],
    timezone: Zone = "UTC",
    as_json: AsJson = False,
) -> None:
    """Save many notes from a file. The same file again adds nothing twice."""
    zone = checked_zone(timezone) or UTC
    refused: list[dict[str, Any]] = []
    saved = pending = 0

    def refuse(line: int, why: str) -> None:
        refused.append({"line": line, "reason": why})
        say(f"diarist: line {line}: {why}")

    with _open(context) as memory, opened(file) as stream, progress_bar(stream) as report:
        diary = memory.diary(owner)
        before = len(diary.notes(include_replaced=True))
        try:
            for batch in keep_all(diary, stream, zone, refuse, report):
                saved += len(batch)
                pending += sum(note.pending for note in batch)
        except (DiaristError, OSError):
            say(f"Stopped after {count(saved, 'note')}, which are saved. Run it again to go on from there.")
            raise
        new = len(diary.notes(include_replaced=True)) - before
    if as_json:
        print_json({"saved": saved, "new": new, "refused": refused})
    say(f"Saved {count(saved, 'note')} about {owner}, {new:,} of them new. {count(len(refused), 'line')} refused.")
    if pending:
        say(f"The embedder did not answer: {count(pending, 'note')} found by their words only, until it does.")
    if refused:
        raise typer.Exit(NOTHING_OR_REFUSED)


@app.command()
def demo(
    keep: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Leave the demo's memory in this folder, which must be new.")
    ] = None,
) -> None:
    """See a diary outlive its session: two processes, no key, no server, no network."""
    from ..demo import run

    raise typer.Exit(run(keep))
