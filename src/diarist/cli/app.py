"""What the commands share: the app and its options, arguments that mean the same everywhere, opening the memory."""

from __future__ import annotations

import os
import sys
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from . import NOTHING_OR_REFUSED
from .importing import when
from .show import print_line, say, seen

if TYPE_CHECKING:
    from ..memory import Memory

app = typer.Typer(
    name="diarist",
    help="Long-term memory for agents: one diary for each person, searched by meaning.",
    epilog="DIARIST_EMBEDDER names the embedder: bundled (the default), use, e5 or openai:MODEL@BASE_URL."
    " DIARIST_SECRETS says what is done about keys and card numbers in a text: keep, mask or refuse.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Owner = Annotated[str, typer.Argument(metavar="OWNER", help="Whose diary: any id of yours, such as c-2291.")]
NoteId = Annotated[str, typer.Argument(metavar="ID", help="The note's id, as notes and recall show it.")]
Text = Annotated[str, typer.Argument(metavar="TEXT", help="One fact, in a sentence. - reads it from stdin.")]
Tags = Annotated[list[str] | None, typer.Option("--tag", help="A label. Give it again for more than one.")]
Source = Annotated[str | None, typer.Option(help="Only notes that came from there.")]
Zone = Annotated[
    str,
    typer.Option("--timezone", metavar="ZONE", help="Where times given without an offset are meant: Europe/Paris."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
AsJsonLines = Annotated[bool, typer.Option("--json", help="Print JSON, one object a line.")]


def time_option(about: str) -> Any:
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


def place_of(context: typer.Context) -> str:
    """Where the memory is that this call is about."""
    if context.obj:
        return context.obj
    from platformdirs import user_data_dir

    return user_data_dir("diarist", appauthor=False)


def open_memory(context: typer.Context, place: str | None = None, *, in_background: bool = False) -> Memory:
    """The memory that this call is about, or one at another place. `in_background`: for a server, whose worker loads
    the embedder."""
    from ..memory import Memory

    embedder: Any = os.environ.get("DIARIST_EMBEDDER") or "bundled"
    if in_background:
        from ..embedders import open_embedder
        from ..servers.worker import Loading

        embedder = Loading(open_embedder(embedder))
    secrets = os.environ.get("DIARIST_SECRETS") or "keep"
    return Memory(place or place_of(context), embedder=embedder, secrets=cast("Any", secrets))  # it checks them


def placed(value: str | None, zone: tzinfo, option: str) -> datetime | None:
    """The time that an option gave."""
    return None if value is None else when(value, zone, option)


def text_or_stdin(text: str) -> str:
    return sys.stdin.read().rstrip("\r\n") if text == "-" else text


def refuse(why: str) -> typer.Exit:
    """Says why; raise what it returns."""
    say(why)
    return typer.Exit(NOTHING_OR_REFUSED)


def confirm(name: str, about: str) -> None:
    """Goes on only if the person types the name."""
    sys.stderr.write(f"{seen(about)} Type {seen(name)} to go on: ")
    sys.stderr.flush()
    typed = sys.stdin.readline()
    if not sys.stdin.isatty():
        sys.stderr.write("\n")
    if typed.rstrip("\r\n") not in (name, seen(name)):
        raise refuse("Nothing was changed: that is not the name. --yes does not ask.")
