"""A page in the person's own editor: a private copy goes there, and what comes back is kept, come what may."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import DiaristError
from ..stores.names import folder_name
from .show import reason, say

if TYPE_CHECKING:
    from ..diary import Diary


def edit_page(diary: Diary) -> bool:
    """Opens the page in the editor and writes what comes back. False if that was refused: the person's text is then
    in a file that was named to them."""
    editor = _editor()
    before = diary.page.read()
    with tempfile.TemporaryDirectory(prefix="diarist-") as folder:  # 0700: what the editor leaves beside it goes too
        copy = Path(folder) / "page.md"
        _new_file(copy, before.encode())
        with _interrupts_for_the_editor():
            out = None if sys.stdout.isatty() else 2  # in a pipe, stdout is for the data that follows
            code = subprocess.run([*editor, str(copy)], stdout=out, check=False).returncode
        try:
            raw = copy.read_bytes()
        except FileNotFoundError:
            say("The editor removed the file: the page was left as it was.")
            return False
    if code == 0 and raw == before.encode():
        say("Nothing was changed.")
        return True
    try:
        if code:
            raise DiaristError(f"{editor[0]} ended with {code}; the page was left as it was")
        text = raw.decode("utf-8-sig").replace("\r\n", "\n")
        diary.page.write(text if text.strip() else "")
    except (DiaristError, ValueError) as error:
        say(f"diarist: {'what came back is not UTF-8 text' if isinstance(error, UnicodeError) else reason(error)}")
        if raw != before.encode():
            say(f"Your text is in {_kept(diary.owner, raw)}: nothing of it is lost.")
        return False
    return True


def _editor() -> list[str]:
    """The words of the command that edits a file."""
    wanted = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if wanted:
        words = shlex.split(wanted, posix=os.name == "posix")
    else:
        words = [found for name in ("nano", "vi", "notepad") if (found := shutil.which(name))][:1]
    if not words or shutil.which(words[0]) is None:
        missing = f"the editor {words[0]!r} is not there" if words else "there is no editor"
        raise DiaristError(f"{missing}; name one in VISUAL or EDITOR, such as EDITOR=nano")
    return words


@contextmanager
def _interrupts_for_the_editor() -> Generator[None]:
    """Ctrl-C is the editor's while it runs: it must not end us with the text unsaved."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, _pass_over)  # a handler, unlike SIG_IGN, is not inherited
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _pass_over(*_: object) -> None: ...


def _kept(owner: str, raw: bytes) -> Path:
    """Puts the text where the person will find it: in the folder they are in, else in the temporary one."""
    name = f"page-{folder_name(owner)}"
    for folder in (Path.cwd(), Path(tempfile.gettempdir())):
        for number in range(1, 100):
            path = folder / (f"{name}.md" if number == 1 else f"{name}-{number}.md")
            try:
                _new_file(path, raw)
            except FileExistsError:
                continue
            except OSError:
                break
            return path
    raise DiaristError("the text could be written neither here nor in the temporary folder")


def _new_file(path: Path, data: bytes) -> None:
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
        out.write(data)
