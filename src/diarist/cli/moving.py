"""The commands that bring notes in and out: import and export, backup and restore, copy and merge."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from zoneinfo import ZoneInfo

import typer

from ..checks import checked_zone
from ..errors import DiaristError, StoreError
from . import NOTHING_OR_REFUSED
from .app import AsJson, AsJsonLines, Owner, Yes, Zone, app, confirm, open_memory, place_of, refuse
from .importing import keep_all, opened, recognised
from .show import as_json_line, as_plain_text, count, is_wide, print_json, progress_bar, reason, say, write

if TYPE_CHECKING:
    from ..diary import Diary
    from .importing import Content
    from .show import Progress

_VECTORS = 20  # on the bar, one part is for saving the texts and the others are for their vectors, about as it takes


@app.command("import")
def import_(
    context: typer.Context,
    owner: Owner,
    file: Annotated[
        str,
        typer.Argument(metavar="FILE", help="An export, a JSON array, or JSON lines, one note a line. - is stdin."),
    ],
    rename: Annotated[bool, typer.Option("--rename", help="Take over the export of another owner.")] = False,
    forgotten_too: Annotated[
        bool, typer.Option("--forgotten-too", help="Bring back notes of an export that were forgotten here.")
    ] = False,
    timezone: Zone = "UTC",
    as_json: AsJson = False,
) -> None:
    """Save many notes from a file. The same file again adds nothing twice."""
    zone = checked_zone(timezone) or UTC
    refused: list[dict[str, Any]] = []
    with open_memory(context) as memory, opened(file) as stream, progress_bar() as report:
        diary = memory.diary(owner)
        content = recognised(stream)
        if content.export is not None:
            saved, new, pending = _take(diary, content.export, rename, forgotten_too, report)
        else:

            def refuse_line(line: int, why: str) -> None:
                refused.append({"line": line, "reason": why})
                say(f"diarist: {content.part} {line}: {why}")

            before = diary.count(include_replaced=True)
            saved, pending = _save(diary, content, zone, refuse_line, report)
            new = diary.count(include_replaced=True) - before
    if as_json:
        print_json({"saved": saved, "new": new, "refused": refused})
    lost = f" {count(len(refused), content.part)} refused." if content.export is None else ""
    say(f"Saved {count(saved, 'note')} about {owner}, {new:,} of them new.{lost}")
    if pending:
        say(f"The embedder did not answer: {count(pending, 'text')} found by their words only, until it does.")
    if refused:
        raise typer.Exit(NOTHING_OR_REFUSED)


def _save(diary: Diary, content: Content, zone: Any, refuse_line: Any, report: Progress) -> tuple[int, int]:
    """The notes of all lines, and then their vectors, on one bar; (how many notes, how many texts wait for vectors)."""
    saved, whole = 0, content.size and content.size * _VECTORS
    try:
        for batch in keep_all(
            diary, content, zone, refuse_line, lambda done, notes: report(done, whole, f"{notes:,} notes saved")
        ):
            saved += len(batch)
    except (DiaristError, OSError):
        say(f"Stopped after {count(saved, 'note')}, which are saved. Run it again to go on from there.")
        raise

    def made(done: int, owed: int) -> None:
        report(owed + done * (_VECTORS - 1), owed * _VECTORS, f"{saved:,} notes saved, {done:,} of {owed:,} vectors")

    try:
        return saved, diary.catch_up(progress=made)[1]
    except (DiaristError, KeyboardInterrupt):
        say(f"Stopped. {count(saved, 'note')} saved; diarist reembed makes the vectors that are missing.")
        raise


class _Taken(NamedTuple):
    saved: int
    new: int
    pending: int


def _take(diary: Diary, exported: dict[str, Any], rename: bool, forgotten_too: bool, report: Progress) -> _Taken:
    """Loads an export, and says what of it was not taken."""
    whose = exported.get("owner")
    if whose != diary.owner and not rename:
        raise DiaristError(f"this is the diary of {whose!r}, not of {diary.owner!r}; --rename takes it over")
    try:
        new = diary.load(
            exported,
            rename=rename,
            forgotten_too=forgotten_too,
            progress=lambda done, total: report(done, total, f"{done:,} of {total:,} notes of {diary.owner}"),
        )
    except (ValueError, TypeError) as error:
        raise DiaristError(reason(error)) from error
    held = {note.id: note for note in diary.notes(include_replaced=True, include_quarantined=True)}
    ids = {note["id"] for note in exported["notes"]}
    if gone := len(ids - held.keys()):
        say(f"{count(gone, 'note')} of {diary.owner} forgotten here stay so. import --forgotten-too brings them back.")
    if exported.get("page") and diary.page.read() != exported["page"]:
        say(f"There is a page about {diary.owner} already: it was kept, and the other one was not taken.")
    return _Taken(len(ids & held.keys()), new, sum(held[id].pending for id in ids & held.keys()))


@app.command()
def export(
    context: typer.Context,
    owner: Owner,
    form: Annotated[
        str, typer.Option("--format", metavar="FORMAT", help="json, which import reads, or markdown, for people.")
    ] = "json",
    to: Annotated[str | None, typer.Option(metavar="FILE", help="Write a file that only you can read.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
) -> None:
    """Write everything kept about someone: a header, then one note a line."""
    if form not in ("json", "markdown") or (as_json and form != "json"):
        raise ValueError(f"--format {form}: give json or markdown." if not as_json else "--json is --format json.")
    with open_memory(context) as memory:
        diary = memory.diary(owner)
        exported = diary.export()
        if not any(exported[part] for part in ("notes", "page", "sessions") if part in exported):
            raise refuse(f"Nothing is kept about {owner}.")
        if form == "markdown":
            from ..portable import as_markdown

            notes = diary.notes(include_replaced=True, include_quarantined=True)
            zone = ZoneInfo(diary.timezone)
            text = as_plain_text(as_markdown(owner, notes, exported["page"], zone))
        else:
            lines = [exported | {"notes": len(exported["notes"])}, *exported["notes"]]
            text = "".join(as_json_line(line, ascii_only=to is None and not is_wide(sys.stdout)) for line in lines)
    if to is None:
        write(text)
        return
    write_file(Path(to), text, force)
    say(f"Wrote {count(len(exported['notes']), 'note')} about {owner} to {to}.")


def write_file(path: Path, text: str, force: bool) -> None:
    """A file of the person's own, 0600, whole or not at all."""
    if path.exists() and not force:
        raise DiaristError(f"{path}: is there already; --force writes over it")
    building = path.with_name(path.name + ".new")
    building.unlink(missing_ok=True)
    try:
        with os.fdopen(os.open(building, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
            out.write(text.encode())
            out.flush()
            os.fsync(out.fileno())
        building.replace(path)
    except BaseException:
        building.unlink(missing_ok=True)
        raise


@contextmanager
def _about_the_backup() -> Generator[None]:
    """An error about the other place: that --memory names another memory is then no help."""
    try:
        yield
    except StoreError as error:
        if type(error) is StoreError:
            raise DiaristError(str(error)) from error
        raise


@app.command()
def backup(
    context: typer.Context,
    dest: Annotated[str, typer.Argument(metavar="DEST", help="A new folder.")],
    as_json: AsJson = False,
) -> None:
    """Copy the whole memory to a new folder, while others go on writing."""
    with open_memory(context) as memory:
        if not memory.owners():
            raise refuse(f"No diaries in {place_of(context)}.")
        with _about_the_backup():
            owners = memory.backup(dest)
    if as_json:
        print_json({"to": dest, "owners": owners})
    say(f"Copied {_diaries(len(owners))} to {dest}.")


@app.command()
def restore(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="BACKUP", help="A folder that backup made.")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Put the backup's diaries in the place of those that are here.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Bring a backup back. What was forgotten, corrected or erased since stays so."""
    with open_memory(context) as memory, open_memory(context, source) as held:
        if not overwrite and (both := sorted(set(memory.owners()) & set(held.owners()))):
            raise refuse(
                f"There is a diary of {both[0]} already{' and of others' if len(both) > 1 else ''}."
                " Nothing was restored; --overwrite puts those of the backup in their place."
            )
        with _about_the_backup():
            back = memory.restore(source, overwrite=overwrite)
        left_out = sorted(set(held.owners()) - back.keys())
    if as_json:
        print_json(
            {
                "restored": [{"owner": owner, "forgotten_again": again} for owner, again in back.items()],
                "left_out": left_out,
            }
        )
    for owner, again in back.items():
        if again:
            say(f"{owner}: {count(again, 'note')} forgotten since the backup stayed forgotten.")
    for owner in left_out:
        say(f"{owner}: was erased after the backup was made, and was left out.")
    say(f"Restored {_diaries(len(back))}.")
    if not back:
        raise typer.Exit(NOTHING_OR_REFUSED)


@app.command()
def copy(
    context: typer.Context,
    dest: Annotated[str, typer.Argument(metavar="DEST", help="Another memory, new or not.")],
    as_json: AsJsonLines = False,
) -> None:
    """Load every diary into another memory. Notes that are there already stay as they are."""
    here = place_of(context)
    if os.path.realpath(here) == os.path.realpath(dest):
        raise ValueError(f"{dest} is the memory itself. Name another place.")
    failed = new = 0
    with open_memory(context) as memory, open_memory(context, dest) as other, progress_bar() as report:
        owners = memory.owners()
        if not owners:
            raise refuse(f"No diaries in {here}.")
        for owner in owners:
            try:
                taken = _take(other.diary(owner), memory.diary(owner).export(), False, False, report)
            except DiaristError as error:
                failed += 1
                say(f"diarist: {owner}: {reason(error)}")
                continue
            new += taken.new
            if as_json:
                print_json({"owner": owner, "new": taken.new})
    say(f"Copied {_diaries(len(owners) - failed)} to {dest}: {count(new, 'new note')}.")
    if failed:
        raise typer.Exit(NOTHING_OR_REFUSED)


@app.command()
def merge(
    context: typer.Context,
    source: Annotated[str, typer.Argument(metavar="FROM", help="The owner who goes, such as a guest.")],
    into: Annotated[str, typer.Argument(metavar="INTO", help="The owner who stays.")],
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Make two owners one: the notes of FROM go to INTO, and FROM is erased."""
    with open_memory(context) as memory:
        if source != into and source not in memory.owners():
            raise refuse(f"Nothing is kept about {source}.")
        if source != into and not yes:
            number = memory.diary(source).count(include_replaced=True)
            confirm(source, f"{count(number, 'note')} about {source} will be notes about {into}.")
        moved = memory.merge(source, into)
    if as_json:
        print_json({"from": source, "into": into, "moved": moved})
    say(f"Moved {count(moved, 'note')} from {source} to {into}.")


def _diaries(number: int) -> str:
    return f"{number:,} {'diary' if number == 1 else 'diaries'}"
