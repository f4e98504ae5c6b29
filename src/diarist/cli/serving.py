"""The doors to a memory for other programs: a server, and the tokens that open it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ..errors import MissingExtra
from .app import AsJson, app, open_memory, place_of, refuse
from .show import count, print_json, print_line, say


@app.command()
def serve(
    context: typer.Context,
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="The address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(help="The port to listen on; 0 takes one that is free.", min=0, max=65_535)
    ] = 8787,
    host_name: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A name that clients call the server by. Give it again for more than one."),
    ] = None,
    rate: Annotated[float, typer.Option(help="Requests a second for each token; twice that at once.", min=1)] = 100.0,
    access_log: Annotated[
        bool, typer.Option("--access-log", help="Write a line about each request, without names or content.")
    ] = False,
) -> None:
    """Serve the memory over HTTP until Ctrl+C. Only this machine can reach it, unless you say so."""
    from ..servers.tokens import Tokens

    try:
        from ..servers import address, http
    except ModuleNotFoundError as error:
        raise MissingExtra(f'serve needs {error.name}: pip install "diarist[serve]"') from None
    tokens = Tokens(place_of(context))
    if not address.is_local(host) and not tokens.has_admin:
        raise refuse(
            f"Not started: {host} can be reached from other machines, and there is no token yet."
            " Make one first: diarist token --admin."
        )
    listener = address.listening(host, port)
    with open_memory(context, in_background=True) as memory:
        made = None if tokens.has_admin else tokens.make_admin()
        if made:
            say(f"The admin token, shown this once: {made}")
        names = address.names_for(host, host_name or ())
        server = http.Server(memory, tokens, names=names, a_second=rate, log=say, log_each=access_log)
        url = f"http://{address.in_url(host)}:{listener.getsockname()[1]}"
        if made and address.is_local(host):
            say(f"The inspector, opened with it: {url}/#token={made}")
        say(f"Serving on {url}. Ctrl+C stops it.")
        http.run(server, listener)
    say("Stopped.")


@app.command()
def token(
    context: typer.Context,
    owner: Annotated[
        str | None, typer.Argument(metavar="[OWNER]", help="Make a token that opens this diary only.")
    ] = None,
    days: Annotated[int | None, typer.Option(help="How long it counts: 90 days, if not given.", min=1)] = None,
    read_only: Annotated[bool, typer.Option("--read-only", help="It may read, recall and export.")] = False,
    admin: Annotated[
        bool, typer.Option("--admin", help="Make a token for every diary; the admin token before it ends.")
    ] = False,
    list_: Annotated[bool, typer.Option("--list", help="Show the tokens that were made.")] = False,
    revoke: Annotated[str | None, typer.Option(metavar="ID", help="End a token at once.")] = None,
    as_json: AsJson = False,
) -> None:
    """Make, list and revoke tokens for serve and mcp --http. A new token is shown this once."""
    from ..servers.tokens import DAYS, Tokens

    if [owner is not None, admin, list_, revoke is not None].count(True) != 1:
        raise ValueError("Give one of OWNER, --admin, --list and --revoke ID.")
    if owner is None and (days is not None or read_only):
        raise ValueError("--days and --read-only are for a token of one OWNER.")
    tokens, now = Tokens(place_of(context)), datetime.now(UTC)
    if list_:
        with open_memory(context) as memory:
            issued = tokens.issued(memory.owners())
        for each in issued:
            ended = each.expires_at <= now
            if as_json:
                print_json(_data(each) | {"ended": ended})
            else:
                print_line(each.id, each.owner or "(nothing is kept about this owner)", each.scope, _until(each, ended))
        say(f"{count(len(issued), 'token')}, and {'the' if tokens.has_admin else 'no'} admin token.")
    elif revoke is not None:
        tokens.revoke(revoke)
        if as_json:
            print_json({"revoked": revoke})
        say(f"Revoked {revoke}.")
    elif owner is None:
        made = tokens.make_admin()
        print_json({"token": made, "scope": "admin"}) if as_json else print_line(made)
        say("This opens every diary. It is shown this once; an admin token made before has ended.")
    else:
        made, each = tokens.make(owner, now, days=days or DAYS, read_only=read_only)
        print_json({"token": made} | _data(each)) if as_json else print_line(made)
        may = "read" if read_only else "read and write"
        say(f"It may {may} the diary of {owner}, {_until(each, False)}. It is shown this once; its id is {each.id}.")


def _data(each: Any) -> dict[str, Any]:
    return {
        "id": each.id,
        "owner": each.owner,
        "scope": each.scope,
        "created_at": each.created_at,
        "expires_at": each.expires_at,
    }


def _until(each: Any, ended: bool) -> str:
    return f"{'ended' if ended else 'until'} {each.expires_at:%Y-%m-%d}"
