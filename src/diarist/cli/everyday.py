"""Keep, find, show, correct, forget. Each command opens the memory, calls one verb and shows what came of it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any, cast
from zoneinfo import ZoneInfo

import typer

from ..checks import checked_zone
from ..errors import DiaristError, NotFound
from ..note import note_data, recall_data
from . import NOTHING_OR_REFUSED
from .app import (
    AsJson,
    AsJsonLines,
    NoteId,
    Owner,
    Source,
    Tags,
    Text,
    Zone,
    app,
    open_memory,
    place_of,
    placed,
    refuse,
    text_or_stdin,
    time_option,
)
from .show import (
    count,
    print_json,
    print_line,
    print_text,
    reason,
    say,
    say_forgotten,
    show_notes,
    show_recall,
)


@app.command()
def remember(
    context: typer.Context,
    owner: Owner,
    text: Text,
    replaces: Annotated[
        list[str] | None,
        typer.Option(metavar="ID", help="A note that this one takes the place of. Give it again for more than one."),
    ] = None,
    happened_at: Annotated[str | None, time_option("When it happened, or began to hold.")] = None,
    expires_at: Annotated[str | None, time_option("When it stops holding.")] = None,
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
    with open_memory(context) as memory:
        diary = memory.diary(owner)
        note = diary.remember(
            text_or_stdin(text),
            replaces=replaces or (),
            happened_at=placed(happened_at, zone, "--happened-at"),
            expires_at=placed(expires_at, zone, "--expires-at"),
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
    if note.quarantined:
        say(f"It reads like instructions and is kept out of recall: diarist release {owner} {note.id}")
    if note.pending:
        say("The embedder did not answer: until it does, the note is found by its words only.")


@app.command()
def recall(
    context: typer.Context,
    owner: Owner,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="The question, in any words.")],
    limit: Annotated[int, typer.Option(help="The most notes to show.", min=1)] = 8,
    since: Annotated[str | None, time_option("Only notes dated then or later.")] = None,
    before: Annotated[str | None, time_option("Only notes dated earlier.")] = None,
    as_of: Annotated[str | None, time_option("What held at that time.")] = None,
    tag: Tags = None,
    source: Source = None,
    shared: Annotated[
        list[str] | None,
        typer.Option(metavar="OWNER2", help="Search this diary too. Give it again for more than one."),
    ] = None,
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
    with open_memory(context) as memory:
        found = memory.diary(owner, shared=shared or ()).recall(
            query,
            limit=limit,
            since=placed(since, zone, "--since"),
            before=placed(before, zone, "--before"),
            as_of=placed(as_of, zone, "--as-of"),
            tags=tag,
            source=source,
            include_replaced=include_replaced,
            min_score=min_score,
        )
    for notice in found.notices:
        say(notice)
    if as_json:
        print_json(recall_data(found))
    else:
        show_recall(found, owner, why=why, now=datetime.now(UTC))
    if found.verdict == "nothing":
        raise typer.Exit(NOTHING_OR_REFUSED)


@app.command()
def notes(
    context: typer.Context,
    owner: Owner,
    limit: Annotated[int | None, typer.Option(help="The most notes to show. Without it, all.", min=1)] = None,
    offset: Annotated[int, typer.Option(help="Leave out so many of the newest.", min=0)] = 0,
    since: Annotated[str | None, time_option("Only notes dated then or later.")] = None,
    before: Annotated[str | None, time_option("Only notes dated earlier.")] = None,
    tag: Tags = None,
    source: Source = None,
    every: Annotated[bool, typer.Option("--all", help="Also notes that were replaced or have expired.")] = False,
    timezone: Zone = "UTC",
    as_json: AsJsonLines = False,
) -> None:
    """List what is saved about someone, newest first."""
    given = checked_zone(timezone) or UTC
    wanted: dict[str, Any] = {
        "include_replaced": every,
        "since": placed(since, given, "--since"),
        "before": placed(before, given, "--before"),
        "tags": tag,
        "source": source,
        "include_quarantined": True,
    }
    with open_memory(context) as memory:
        diary = memory.diary(owner)
        kept, zone = diary.notes(limit=limit, offset=offset, **wanted), ZoneInfo(diary.timezone)
        total = diary.count(**wanted) if limit is not None or offset else len(kept)
    if not kept:
        such = "such notes" if since or before or tag or source else "notes"
        raise refuse(f"No more notes: there are {total:,} about {owner}." if total else f"No {such} about {owner}.")
    if as_json:
        for note in kept:
            print_json(note_data(note))
    else:
        show_notes(kept, now=datetime.now(UTC), zone=zone)
    if len(kept) < total:
        say(f"Notes {offset + 1:,} to {offset + len(kept):,} of {total:,}.")


@app.command()
def edit(context: typer.Context, owner: Owner, note_id: NoteId, text: Text, as_json: AsJson = False) -> None:
    """Correct a note. The old text is erased: when a fact changed, use remember --replaces."""
    with open_memory(context) as memory:
        note = memory.diary(owner).edit(note_id, text_or_stdin(text))
    if as_json:
        print_json(note_data(note))
    say(f"Corrected {note.id}.")


@app.command()
def release(
    context: typer.Context,
    owner: Owner,
    note_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids, as notes shows them.")],
    as_json: AsJsonLines = False,
) -> None:
    """Let notes be recalled that read like instructions, after you have read them."""
    with open_memory(context) as memory:
        diary = memory.diary(owner)
        for note_id in note_ids:
            note = diary.release(note_id)
            if as_json:
                print_json(note_data(note))
            say(f"Released: {note.id}" if note.released else f"Nothing to release: {note.id} is not flagged.")


@app.command()
def forget(
    context: typer.Context,
    owner: Owner,
    note_ids: Annotated[list[str], typer.Argument(metavar="ID...", help="Ids, as notes and recall show them.")],
    as_json: AsJsonLines = False,
) -> None:
    """Erase notes for good. Those that are there go, even if another id is unknown."""
    unknown = 0
    with open_memory(context) as memory:
        diary = memory.diary(owner)
        for note_id in note_ids:
            try:
                report = diary.forget(note_id)
            except NotFound as error:
                unknown += 1
                say(f"diarist: {reason(error)}")
                continue
            if as_json:
                print_json({"forgotten": note_id, "residue": report.residue, "pending": report.pending})
            say_forgotten(owner, note_id, report)
    if unknown:
        raise typer.Exit(NOTHING_OR_REFUSED)


@app.command()
def page(
    context: typer.Context,
    owner: Owner,
    edit: Annotated[bool, typer.Option("--edit", help="Open it in your editor: VISUAL, else EDITOR.")] = False,
    add: Annotated[str | None, typer.Option(metavar="TEXT", help="Append a line. - reads it from stdin.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show the page that goes whole into the system prompt, add a line to it, or edit it."""
    if edit and add is not None:
        raise ValueError("--edit and --add do not go together: give one of them.")
    with open_memory(context) as memory:
        diary = memory.diary(owner)
        if add is not None:
            diary.page.add(text_or_stdin(add))
        elif edit:
            from .editing import edit_page

            if not edit_page(diary):
                raise typer.Exit(NOTHING_OR_REFUSED)
        text, tokens, budget = diary.page.read(), diary.page.tokens, diary.page.budget
    if as_json:
        print_json({"owner": owner, "page": text, "tokens": tokens, "budget": budget})
    elif not edit and add is None:
        print_text(text)
    if text.strip():
        say(f"The page about {owner} holds {tokens:,} of {budget:,} tokens.")
    elif edit:
        say(f"The page about {owner} is empty.")
    else:
        raise refuse(f"No page about {owner}.")


@app.command()
def owners(context: typer.Context, as_json: AsJsonLines = False) -> None:
    """List whose diaries there are."""
    with open_memory(context) as memory:
        known = memory.owners()
        if not known:
            raise refuse(f"No diaries in {place_of(context)}.")
        unopened = 0
        for owner in known:
            try:
                _ = memory.diary(owner).timezone  # read from its file, which is then known to be a diary of this owner
            except DiaristError as error:
                unopened += 1
                say(f"diarist: {owner} cannot be opened: {reason(error)}")
                continue
            if as_json:
                print_json({"owner": owner})
            else:
                print_line(owner)
    if unopened:
        raise typer.Exit(NOTHING_OR_REFUSED)


@app.command()
def demo(
    keep: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Leave the demo's memory in this folder, which must be new.")
    ] = None,
    record: Annotated[
        str | None, typer.Option(metavar="RUN.jsonl", help="Write what happens to this new file, for replay.")
    ] = None,
) -> None:
    """See a diary outlive its session: two processes, no key, no server, no network.

    The model is a few rules. For a real one set OPENAI_BASE_URL and DIARIST_MODEL, and OPENAI_API_KEY if it wants one.
    """
    from ..demo import run

    raise typer.Exit(run(keep, record))
