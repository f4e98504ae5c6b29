"""See a recorded run again: replay."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .app import app, refuse
from .moving import write_file
from .show import print_json, say


@app.command()
def replay(
    run: Annotated[
        Path, typer.Argument(metavar="RUN.jsonl", help="The recording, as demo --record or events.recorder writes it.")
    ],
    html: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="Write the farm with this run as one file of HTML.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over the file of --html.")] = False,
    text: Annotated[bool, typer.Option("--text", help="Print what happened, a line each.")] = False,
    port: Annotated[int, typer.Option(help="The port to listen on; 0 takes one that is free.", min=0, max=65_535)] = 0,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the events as JSON, one object a line.")] = False,
) -> None:
    """See a recorded run at the farm, in the browser, until Ctrl+C."""
    from ..events import as_data, console  # not before it is asked for: it costs each `--help` a twentieth
    from ..events import replay as recorded

    if [html is not None, text, as_json].count(True) > 1:
        raise ValueError("Give one of --html, --text and --json.")
    events = list(recorded(run))
    if not events:
        raise refuse(f"{run} is empty: nothing happened in this run.")
    if text:
        show = console(sys.stdout)
        for event in events:
            show(event)
        return
    if as_json:
        for event in events:
            print_json(as_data(event))
        return
    from ..servers.replay import Replay, as_lines, as_page

    if html is not None:
        write_file(html, as_page(as_lines(events)), force)
        say(f"Written: {html}. It holds what was said in the run; open it in any browser, without a network.")
        return
    served = Replay(as_lines(events), port)
    say(f"The run is at {served.url}")
    say("Ctrl+C stops it.")
    if not no_browser:
        import webbrowser

        webbrowser.open(served.url)
    served.serve()
