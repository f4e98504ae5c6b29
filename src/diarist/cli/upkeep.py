"""The commands that look after a memory: erase, retention, reembed, calibrate, doctor."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import DiaristError, EmbedderError
from . import INTERRUPTED, NOTHING_OR_REFUSED
from .app import AsJson, AsJsonLines, Owner, Yes, app, confirm, open_memory, place_of, refuse
from .show import count, print_json, print_line, progress_bar, reason, say, show_facts, show_findings

if TYPE_CHECKING:
    from ..memory import Memory
    from .show import Progress

_TOO_NEAR = 1.5  # spreads: below, answers and other notes are hardly apart

SomeOwner = Annotated[str | None, typer.Argument(metavar="OWNER", help="Only this diary. Without it, all.")]


@app.command()
def erase(context: typer.Context, owner: Owner, yes: Yes = False, as_json: AsJson = False) -> None:
    """Erase everything kept about someone. Exits 1 while anything is left."""
    with open_memory(context) as memory:
        known = owner in memory.owners()
        if known and not yes:
            try:
                what = count(memory.diary(owner).count(include_replaced=True), "note")
            except DiaristError as error:  # what cannot be read can be erased
                say(f"diarist: {reason(error)}")
                what = "Everything"
            confirm(owner, f"{what} about {owner} will be gone for good.")
        report = memory.erase(owner)  # of an unknown owner it finishes an erasure that was interrupted
    if not known and report.complete:
        raise refuse(f"Nothing is kept about {owner}.")
    if as_json:
        print_json({"owner": owner, **asdict(report), "complete": report.complete})
    else:
        show_facts(
            [
                ("owner", owner),
                ("at", report.at.isoformat(timespec="seconds")),
                ("notes", f"{report.notes:,}"),
                ("messages", f"{report.messages:,}"),
                ("looked at", ", ".join(report.checked)),
                ("left", ", ".join(report.residue) or ("not known yet" if report.pending else "nothing")),
            ]
        )
    if report.pending:
        say("Another program keeps a file open: end it and run this again. Nobody can read the diary any more.")
    if not report.complete:
        raise typer.Exit(NOTHING_OR_REFUSED)
    say("Backups and exports that you made are yours to erase.")


@app.command()
def retention(
    context: typer.Context,
    owner: Owner,
    days: Annotated[str | None, typer.Argument(metavar="DAYS|off", help="Days, or off to keep notes for good.")] = None,
    now: Annotated[bool, typer.Option("--now", help="Erase at once what is too old.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show or set after how many days a note that was not said again is erased."""
    if days is not None and days != "off" and not (days.isascii() and days.isdigit()):
        raise ValueError(f"{days}: give a whole number of days, or off.")
    with open_memory(context) as memory:
        diary = memory.diary(owner)
        if days is not None:
            diary.retention_days = None if days == "off" else int(days)
        kept = diary.retention_days
        erased = diary.expire().notes if now else None
    if as_json:
        print_json({"owner": owner, "retention_days": kept} | ({} if erased is None else {"erased": erased}))
    else:
        print_line("off" if kept is None else str(kept))
    if kept is None:
        say(f"Notes about {owner} are kept until somebody forgets them.")
    else:
        say(f"Notes about {owner} last said longer than {count(kept, 'day')} ago are erased, with remember and recall.")
    if erased is not None:
        say(f"Erased {count(erased, 'note')} now.")


@app.command()
def reembed(context: typer.Context, owner: SomeOwner = None, as_json: AsJsonLines = False) -> None:
    """Make the vectors anew that the embedder cannot read, and those still owed."""
    remain = made = 0
    with open_memory(context) as memory:
        chosen = _chosen(context, memory, owner)
        try:
            with progress_bar() as report:
                for each in chosen:
                    done, why = _reembed(memory, each, report)
                    made += done
                    remain += bool(why)
                    if as_json:
                        print_json({"owner": each, "made": done, "error": why or None})
                    if why:
                        say(f"diarist: {each}: {why}")
                        if len(chosen) > 1 and _is_down(memory):
                            say("The embedder does not answer. Stopped: what is done stays done.")
                            break
        except KeyboardInterrupt:
            say("Stopped. What is done stays done: run it again to go on.")
            raise typer.Exit(INTERRUPTED) from None
    say(f"Made the vectors of {count(made, 'text')}.")
    if remain:
        say("Some texts are found by their words only. Run it again when the embedder answers.")
        raise typer.Exit(NOTHING_OR_REFUSED)


def _reembed(memory: Memory, owner: str, report: Progress) -> tuple[int, str]:
    """(how many notes got their vectors, why others did not)."""
    done = 0

    def tell(made: int, total: int) -> None:
        nonlocal done
        done = made
        report(made, total, f"{made:,} of {total:,} texts of {owner}")

    try:
        return memory.diary(owner).reembed(progress=tell), ""
    except DiaristError as error:
        return done, reason(error)


def _is_down(memory: Memory) -> bool:
    """Whether the embedder fails altogether, so that the other diaries need not be tried."""
    try:
        memory.embedder.embed_query("still there?")
    except EmbedderError:
        return True
    return False


@app.command()
def calibrate(
    context: typer.Context,
    pairs: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PAIRS.jsonl]",
            help='Your own facts and questions, one {"note": ..., "question": ...} a line. Without it, ninety of ours.',
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Measure what your embedder's cosines are worth, and score by it from now on. The bundled ones are measured."""
    own = None if pairs is None else _pairs(pairs)
    with open_memory(context) as memory:
        before, found = memory.scale, memory.calibrate(own)
        embedder = memory.embedder.id
    if as_json:
        print_json({"embedder": embedder, **asdict(found.scale), "questions": found.questions, "first": found.first,
                    "apart": found.apart, "before": asdict(before)})  # fmt: skip
    else:
        show_facts(
            [
                ("embedder", embedder),
                ("usual cosine", f"{found.scale.mean:.3f} ± {found.scale.spread:.3f}"),
                ("before", f"{before.mean:.3f} ± {before.spread:.3f}"),
                ("says the same", f"from {found.scale.same:.3f}"),
                ("right note nearest", f"{found.first:.0%} of {found.questions} questions"),
                ("answers stand out", f"{found.apart:.1f} times the spread"),
            ]
        )
    if found.apart < _TOO_NEAR:
        say("This embedder hardly tells an answer from any other note: recall will go by words. Try another model.")
    say("Kept with this memory. What runs already goes by it once it is started again.")


def _pairs(path: Path) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            each = json.loads(line)
            note, question = each["note"], each["question"]
        except (ValueError, KeyError, TypeError):
            note = question = None
        if not (isinstance(note, str) and note.strip() and isinstance(question, str) and question.strip()):
            raise ValueError(f'{path}, line {number}: give {{"note": "...", "question": "..."}}, each some text.')
        found.append((note, question))
    return found


@app.command()
def doctor(context: typer.Context, owner: SomeOwner = None, as_json: AsJson = False) -> None:
    """Examine the diaries: files, erasures, vectors, page. Exits 1 if something is not well."""
    place = os.path.abspath(place_of(context))
    with open_memory(context) as memory:
        known = len(memory.owners())
        chosen = [] if owner is None and not known else _chosen(context, memory, owner)
        found = [(each, memory.diary(each).doctor()) for each in chosen]
    ill = sum(not finding.well for _, findings in found for finding in findings)
    if as_json:
        diaries = [{"owner": each, "findings": list(map(asdict, findings))} for each, findings in found]
        print_json({"memory": place, "owners": known, "well": not ill, "diaries": diaries})
    else:
        show_facts([("memory", place), ("owners", f"{known:,}")])
        for each, findings in found:
            show_findings(each, findings)
    if ill:
        say(f"{count(ill, 'finding')} not well.")
        raise typer.Exit(NOTHING_OR_REFUSED)
    say("All is well." if found else "Nothing is kept here yet.")


def _chosen(context: typer.Context, memory: Memory, owner: str | None) -> list[str]:
    known = memory.owners()
    if owner is not None and owner not in known:
        raise refuse(f"Nothing is kept about {owner}.")
    if not known:
        raise refuse(f"No diaries in {place_of(context)}.")
    return known if owner is None else [owner]
