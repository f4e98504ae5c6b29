"""Talk, and look back at what was said: chat and sessions."""

from __future__ import annotations

import io
import secrets
import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from zoneinfo import ZoneInfo

import typer

from . import NOTHING_OR_REFUSED
from .app import AsJsonLines, Owner, Yes, app, confirm, open_memory, refuse
from .show import count, print_json, say, session_data, show_messages, show_sessions

if TYPE_CHECKING:
    from ..diary import Diary
    from ..session import SessionInfo


@app.command()
def chat(
    context: typer.Context,
    owner: Owner,
    session: Annotated[
        str | None, typer.Option(metavar="ID", help="Go on with this session, or begin one under this id.")
    ] = None,
    last: Annotated[bool, typer.Option("--last", help="Go on with the session written to last.")] = False,
    instructions: Annotated[
        str | None,
        typer.Option(metavar="TEXT", help="What the model is told to be. @FILE reads it from a file."),
    ] = None,
    token_budget: Annotated[
        int | None, typer.Option(help="What a request may hold, estimated. Older messages are then left out.", min=1)
    ] = None,
    timeout: Annotated[float, typer.Option(help="Seconds to wait for the model to begin, and between pieces.")] = 60.0,
) -> None:
    """Talk with a model that keeps this diary.

    DIARIST_MODEL names the model, OPENAI_BASE_URL where it is served, OPENAI_API_KEY the key, if it wants one. Without
    a terminal, each line of stdin is a prompt.
    """
    if session is not None and last:
        raise ValueError("--session and --last do not go together: give one of them.")
    from .chatting import INSTRUCTIONS, Chat, chat_model

    told = INSTRUCTIONS if instructions is None else _text_or_file(instructions)
    stdin: object = sys.stdin
    if isinstance(stdin, io.TextIOWrapper):
        stdin.reconfigure(errors="replace")  # a byte that is no text must not end a conversation
    with closing(chat_model(timeout)) as model, open_memory(context) as memory:
        diary = memory.diary(owner)
        if last:
            every = diary.sessions()
            if not every:
                raise refuse(f"No sessions about {owner}.")
            session = every[0].id
        now = memory.now().astimezone(ZoneInfo(diary.timezone))
        held = diary.session(session or f"chat-{now:%Y-%m-%d-%H%M}-{secrets.token_hex(2)}")
        talk = Chat(diary, held, model, told, token_budget)
        past = len(held.messages)
        if talk.asks:
            say(f"{model.model} at {model.base_url}, {count(diary.count(), 'note')} about {owner}. /help for help.")
        say(f"Session {held.id} {'begins' if not past else 'goes on after ' + count(past, 'message')}.")
        well = talk.run()
        if talk.asks and held.messages:
            say(f"The session is kept: --last or --session {held.id} goes on with it.")
    if not well and not talk.asks:
        raise typer.Exit(NOTHING_OR_REFUSED)


def _text_or_file(given: str) -> str:
    return Path(given[1:]).read_text(encoding="utf-8-sig") if given.startswith("@") else given


@app.command()
def sessions(
    context: typer.Context,
    owner: Owner,
    show: Annotated[str | None, typer.Option(metavar="ID", help="Show what was said in this session.")] = None,
    forget: Annotated[str | None, typer.Option(metavar="ID", help="Erase this session for good.")] = None,
    yes: Yes = False,
    as_json: AsJsonLines = False,
) -> None:
    """List the sessions with someone, the one written to last first; show one, or erase one."""
    if show is not None and forget is not None:
        raise ValueError("--show and --forget do not go together: give one of them.")
    with open_memory(context) as memory:
        diary = memory.diary(owner)
        every = diary.sessions()
        if not every:
            raise refuse(f"No sessions about {owner}.")
        wanted = show if show is not None else forget
        one = next((each for each in every if each.id == wanted), None)
        if wanted is not None and one is None:
            raise refuse(f"No session {wanted} about {owner}.")
        if show is not None:
            _show(diary, show, as_json)
        elif forget is not None and one is not None:
            if not yes:
                confirm(forget, f"{count(one.messages, 'message')} of this session with {owner} will be gone for good.")
            _forget(diary, one, as_json)
        elif as_json:
            for each in every:
                print_json(session_data(each))
        else:
            show_sessions(every, ZoneInfo(diary.timezone))


def _show(diary: Diary, id: str, as_json: bool) -> None:
    session = diary.session(id)
    if as_json:
        for key, message in zip(session.ids, session.messages, strict=True):
            print_json({"id": key, "message": message})
    else:
        show_messages(session.messages)
    if damaged := session.damaged:
        say(f"diarist: {count(len(damaged), 'message')} cannot be read: number {', '.join(map(str, damaged))}.")
        raise typer.Exit(NOTHING_OR_REFUSED)


def _forget(diary: Diary, one: SessionInfo, as_json: bool) -> None:
    report = diary.forget_session(one.id)
    if as_json:
        gone = {"forgotten": one.id, "messages": one.messages}
        print_json({**gone, "residue": report.residue, "pending": report.pending})
    say(f"Forgotten: session {one.id} with {count(one.messages, 'message')}.")
    for name in report.residue:
        say(f"The same text is still in {name}: a note, another session or the page may hold it.")
    if report.pending:
        say("Another process still reads the state before: the log is emptied with the next write, or doctor.")
