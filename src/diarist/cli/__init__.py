"""The command line: one command for each verb of `Diary`. Data goes to stdout, everything else to stderr.

Here: how it starts and how it ends. `commands.py` names the files that the commands are in, `app.py` has what they
share, and what they print is in `show.py`.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import NoReturn

from ..errors import DiaristError

NOTHING_OR_REFUSED, WRONG_USE, INTERRUPTED = 1, 2, 130


def main() -> NoReturn:
    """The `diarist` command."""

    def command() -> None:
        from .commands import app

        app(prog_name="diarist")

    run(command)


def run(command: Callable[[], int | None]) -> NoReturn:
    """Runs it and leaves with its exit code. An error is one line on stderr; with DIARIST_DEBUG=1, a traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a narrow console shows ? for what it has no letter for
    try:
        code = command()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:
        code = NOTHING_OR_REFUSED
    except (DiaristError, ValueError, TypeError, OSError) as error:
        if os.environ.get("DIARIST_DEBUG"):
            raise
        from .show import reason, say

        say(f"diarist: {reason(error)}")
        code = WRONG_USE if isinstance(error, ValueError | TypeError) else NOTHING_OR_REFUSED
    except Exception as error:  # not one of ours: a fault of the program, but still not a page of it for the person
        if os.environ.get("DIARIST_DEBUG"):
            raise
        from .show import say

        say(f"diarist: {type(error).__name__}: {error}. This should not happen; DIARIST_DEBUG=1 shows where it did.")
        code = NOTHING_OR_REFUSED
    try:
        sys.stdout.flush()
    except OSError as error:
        # Python would flush once more on its way out, and complain. A reader that has left, as `head` does, is no
        # error; a full disk is.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = NOTHING_OR_REFUSED
        if not isinstance(error, BrokenPipeError):
            sys.stderr.write(f"diarist: the output could not be written: {error.strerror}\n")
    sys.exit(code)
