"""`diarist demo`: two processes, one after the other, and a diary that outlives the first.

Day 1 keeps what a customer of a coffee roaster says. Day 2 is another process with nothing but the folder, and asks
in other words and other languages. What is claimed on the screen is checked: if a note is not found, the demo fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from .cli import run as quit_with
from .cli.show import bar, print_line, say
from .note import NOTHING_SAVED, Recall

OWNER = "c-2291"
DAY_1 = datetime(2026, 3, 2, 10, 30, tzinfo=UTC)
DAY_2 = datetime(2026, 3, 23, 9, 15, tzinfo=UTC)

SAID = (
    "Buys 1 kg of Colombia every month.",
    "Has a moka pot and wants the coffee ground for it.",
    "Su hija es alérgica a las nueces: nada con nueces en la caja.",
    "Prefiere que le escriban por WhatsApp, nunca por teléfono.",
)
OLD_CITY, NEW_CITY = "Vive en Rosario.", "Se mudó: ahora vive en Córdoba."


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    language: str
    answer: str | None
    """The note that must come first; None where nothing that was saved answers."""


QUESTIONS = (
    Question("Quelle mouture pour sa cafetière ?", "French", SAID[1]),
    Question("Where does she live now?", "English", NEW_CITY),
    Question("Is her daughter allergic to anything?", "English", SAID[2]),
    Question("What is the name of her dentist?", "English", None),
)

VERDICTS = {"strong": "A strong match.", "weak": "A weak match: the agent should ask before it acts on it."}


def run(keep: str | None) -> int:
    """Plays both days; 0 if everything was found as shown."""
    began = time.perf_counter()
    print_line("Diarist demo: no key, no server, no network. Everything stays on this machine.")
    with tempfile.TemporaryDirectory(prefix="diarist-demo-") as scratch:
        folder = Path(scratch) / "memory" if keep is None else Path(keep)
        if keep is not None and folder.exists():
            raise ValueError(f"--keep {keep} exists already. Name a new folder for the demo's memory.")
        for day in ("day-1", "day-2"):
            sys.stdout.flush()
            code = subprocess.run([sys.executable, "-P", "-m", __name__, day, str(folder)], check=False).returncode
            if code:
                say(f"diarist: the demo failed on {day.replace('-', ' ')}.")
                return 1
    print_line("")
    print_line(f"It took {time.perf_counter() - began:.1f} seconds, most of them to load the language models twice.")
    if keep is None:
        print_line("The diary lay in a temporary folder, which is gone. `diarist demo --keep FOLDER` leaves it to you.")
    else:
        print_line(f'The diary is in {folder}. Ask it: diarist --memory "{folder}" recall {OWNER} "moka"')
    return 0


def day_1(folder: str) -> int:
    """A session: the customer talks, the agent keeps what will matter next time."""
    from . import Memory

    _title(f"Day 1, {DAY_1:%d %B %Y} (process {os.getpid()}). A customer writes, the agent keeps what will matter.")
    with Memory(folder, clock=lambda: DAY_1) as memory:
        diary = memory.diary(OWNER)
        for note in diary.remember_many(SAID):
            print_line(f"  remember  {note.text}")
        old = diary.remember(OLD_CITY)
        print_line(f"  remember  {old.text}")
        new = diary.remember(NEW_CITY, replaces=[old.id])
        print_line(f"  remember  {new.text}  (replaces: {old.text})")
    print_line("The session ends, and with it everything the agent had in its head.")
    return 0


def day_2(folder: str) -> int:
    """A new process that knows nothing but the folder."""
    from . import Memory

    _title(f"Day 2, {DAY_2:%d %B %Y} (process {os.getpid()}). Another session, which has nothing but the folder.")
    wrong: list[str] = []
    with Memory(folder, clock=lambda: DAY_2) as memory:
        diary = memory.diary(OWNER)
        for question in QUESTIONS:
            found = diary.recall(question.text, limit=1)
            _show(question, found)
            first = found[0].note.text if found.verdict != "nothing" else None
            if first != question.answer:
                wrong.append(f"{question.text} Expected {question.answer!r}, found {first!r}.")
        everything = diary.notes(include_replaced=True)
    hidden = [note.text for note in everything if note.replaced_by]
    print_line(f"Of {len(everything)} notes, this one is out of sight, replaced but not lost: {', '.join(hidden)}")
    if hidden != [OLD_CITY]:
        wrong.append(f"Expected {OLD_CITY!r} to be replaced, and only that.")
    for line in wrong:
        say(f"diarist: {line}")
    return 1 if wrong else 0


def _show(question: Question, found: Recall) -> None:
    print_line(f"  recall    {question.text}  ({question.language})")
    if found.verdict == "nothing":
        print_line(f"            {NOTHING_SAVED}")
    else:
        for hit in found:
            day = hit.note.dated.strftime("%Y-%m-%d")
            print_line(f"            {hit.score:.2f} {bar(hit.score, sys.stdout)}  {day}  {hit.note.text}")
        print_line(f"            {VERDICTS[found.verdict]}")
    print_line("")


def _title(text: str) -> None:
    print_line("")
    print_line(text)


if __name__ == "__main__":
    day = {"day-1": day_1, "day-2": day_2}[sys.argv[1]]
    quit_with(lambda: day(sys.argv[2]))
