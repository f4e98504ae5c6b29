"""The commands that let other programs in: mcp."""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO

import typer

from ..errors import MissingExtra
from .app import app, open_memory, place_of
from .show import say

if TYPE_CHECKING:
    from ..memory import Memory
    from ..servers.mcp_http import CallerOf
    from ..servers.worker import Worker


@app.command()
def mcp(
    context: typer.Context,
    owner: Annotated[
        str | None,
        typer.Option(envvar="DIARIST_OWNER", metavar="OWNER", help="Whose diary. Without it, your user name."),
    ] = None,
    http: Annotated[bool, typer.Option("--http", help="Serve over HTTP, not over stdin and stdout.")] = False,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="With --http: where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65_535, help="With --http: 0 takes a free one.")] = 8765,
    token_file: Annotated[
        Path | None,
        typer.Option(
            envvar="DIARIST_MCP_TOKEN_FILE",
            metavar="FILE",
            help="With --http: the file with the bearer token, made if it is not there.",
        ),
    ] = None,
    no_token: Annotated[
        bool, typer.Option("--no-token", help="With --http, on this machine only: let every program in.")
    ] = False,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="With --http: a name that clients may know this machine by."),
    ] = None,
    rate: Annotated[
        float, typer.Option(help="With --http: requests a second for each token; twice that at once.", min=1)
    ] = 100.0,
) -> None:
    """Serve a diary to agents over MCP: Claude Code, Cursor and others."""
    from ..checks import checked_owner

    owner = _user() if owner is None else checked_owner(owner)
    wire = _claimed_stdout()  # before anything is imported that might print
    gc.disable()  # the SDK makes a thousand classes, and collecting meanwhile takes a quarter of the time it needs
    try:
        from ..servers import mcp
        from ..servers.worker import Worker
    except ImportError as error:
        raise MissingExtra(f"diarist mcp needs the MCP SDK ({error}): pip install 'diarist[mcp]'") from error
    gc.freeze()
    gc.enable()

    memory = open_memory(context, in_background=True)
    worker = Worker(memory)
    if http:
        from ..servers import address, mcp_http
        from ..servers.tokens import Tokens

        names = address.names_for(host, allow_host or ())
        first, about = _let_in(address.is_local(host), owner, token_file, no_token)
        caller_of = mcp_http.also(first, Tokens(place_of(context)))
        sock = address.listening(host, port)
        at = sock.getsockname()[1]
        say(f"Serving the diary of {owner} at http://{address.in_url(host)}:{at}{mcp_http.PATH}, {about}.")
        say("A token that `diarist token OWNER` made opens that owner's diary.")
        mcp_http.over_http(mcp_http.app(memory, worker, caller_of, at, names, a_second=rate), sock)
    else:
        if sys.stdin.isatty():
            say("Waiting for an MCP client on stdin. Clients start this command themselves: see docs/mcp.md.")
        mcp.over_stdio(memory, owner, worker, sys.stdin.buffer, wire)
    _leave(memory, worker)


def _let_in(here: bool, owner: str, token_file: Path | None, no_token: bool) -> tuple[CallerOf, str]:
    """Who is let in, and that in words."""
    from ..servers.mcp_http import no_token as nobody_asked
    from ..servers.mcp_http import one_token, token_in

    if no_token:
        if not here:
            raise ValueError("--no-token is for this machine only: leave it out, or listen on 127.0.0.1")
        return nobody_asked(owner), "for every program on this machine"
    held = os.environ.get("DIARIST_MCP_TOKEN")
    if token_file is None and held is not None:
        return one_token(held, owner), "with the token in DIARIST_MCP_TOKEN"
    from platformdirs import user_config_path

    path = token_file or user_config_path("diarist", appauthor=False) / "mcp-token"
    return one_token(token_in(path), owner), f"with the token in {path}"


def _user() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (OSError, KeyError, ImportError):  # no such user, as in some containers
        raise ValueError("your user name is not known here: give --owner, or set DIARIST_OWNER") from None


def _claimed_stdout() -> BinaryIO:
    """The real stdout, for the protocol alone. From here on whatever prints, in Python or below it, goes to stderr."""
    sys.stdout.flush()
    wire = os.fdopen(os.dup(1), "wb")
    try:
        os.dup2(2, 1)
    except OSError:  # started without a stderr
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.stdout = sys.stderr
    return wire


def _leave(memory: Memory, worker: Worker) -> None:
    """Ends the process: a thread in the middle of loading a model would keep it for a minute, or crash it."""
    if worker.stop(1.0):
        memory.close()
    sys.stderr.flush()
    os._exit(0)
