"""A diary as plain data: `export` and `load`, and the JSON diaries of the programs that came before.

The form (version 1) is a dict that `json` can write: owner, time zone, page, and one dict a note with every field that
`Note` has, and `first_at`, `replaced_at`, `order_at` and `keys`, which only the store knows. No vectors: they are made
again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, cast

from . import checks
from .note import Note
from .stores import MessageDraft, SessionRow, Stored

if TYPE_CHECKING:
    from .session import Session

FORM = 1
_TIMES = ("created_at", "happened_at", "expires_at")
_FLAGS = ("flagged_for", "released")  # written only for a note that is flagged
_KEPT = tuple(field.name for field in fields(Note) if field.name not in {"owner", "pending", "kind", *_FLAGS})


def as_data(stored: Stored) -> dict[str, Any]:
    """One note as plain data, the same for the same note wherever and whenever it is exported."""
    note = stored.note
    data: dict[str, Any] = {name: getattr(note, name) for name in _KEPT}
    for name in _TIMES:
        data[name] = data[name] and data[name].isoformat()
    data |= {"tags": list(note.tags), "replaces": list(note.replaces)}
    if note.flagged:
        data |= {"flagged_for": list(note.flagged_for), "released": note.released}
    data["first_at"] = stored.first_at.isoformat()
    data["replaced_at"] = stored.replaced_at and stored.replaced_at.isoformat()
    return data | {"order_at": stored.order_at.isoformat(), "keys": list(stored.keys)}


def as_stored(data: object, owner: str, number: int) -> Stored:
    """Plain data back to a note. ValueError or TypeError, naming the note's position, for what no export writes."""
    where = f"note {number} (counting from 0) of the export"
    if not isinstance(data, Mapping):
        raise TypeError(f"{where} is a {type(data).__name__}, not a dict")
    held = cast("Mapping[str, Any]", data)
    try:
        unknown = set(held) - {*_KEPT, *_FLAGS, "first_at", "replaced_at", "order_at", "keys"}
        if unknown:
            raise ValueError(f"has unknown fields {sorted(unknown)}; a later version of diarist may have written it")
        created = checks.checked_time(held["created_at"], "created_at")
        if created is None:
            raise ValueError("has no created_at")
        note = Note(
            id=_id(held["id"]),
            owner=owner,
            text=checks.checked_text(held["text"], "text", checks.LONGEST_TEXT),
            created_at=created,
            happened_at=checks.checked_time(held.get("happened_at"), "happened_at"),
            expires_at=checks.checked_time(held.get("expires_at"), "expires_at"),
            source=checks.checked_short(held.get("source"), "source"),
            origin=checks.checked_origin(held.get("origin", "owner_said")),
            tags=checks.checked_list(held.get("tags"), "tags"),
            flagged=bool(held.get("flagged", False)),
            flagged_for=checks.checked_list(held.get("flagged_for"), "flagged_for"),
            released=held.get("released", False) is True,
            session=checks.checked_short(held.get("session"), "session"),
            replaces=_ids(held.get("replaces")),
            replaced_by=None if held.get("replaced_by") is None else _id(held["replaced_by"]),
            times=_times(held.get("times", 1)),
        )
        replaced_at = checks.checked_time(held.get("replaced_at"), "replaced_at")
        order_at = checks.checked_time(held.get("order_at"), "order_at") or note.dated
        first_at = checks.checked_time(held.get("first_at"), "first_at") or created
        return Stored(note, first_at, replaced_at, order_at, checks.checked_list(held.get("keys"), "keys"))
    except KeyError as e:
        raise ValueError(f"{where} has no {e.args[0]}; nothing was loaded") from None
    except (ValueError, TypeError) as e:
        raise type(e)(f"{where}: {e}; nothing was loaded") from None


def session_data(row: SessionRow, messages: Iterable[tuple[str, str, datetime]]) -> dict[str, Any]:
    """One session as plain data; `messages` as its store gives them. `dates` says when each was written."""
    held = list(messages)
    return {
        "id": row.id,
        "created_at": row.created_at.isoformat(),
        "ended_at": row.ended_at and row.ended_at.isoformat(),
        "expires_at": row.expires_at and row.expires_at.isoformat(),
        "messages": [json.loads(message) for _, message, _ in held],
        "dates": [at.isoformat() for _, _, at in held],
    }


def as_session(data: object, number: int, session: Callable[[str], Session]) -> tuple[SessionRow, list[MessageDraft]]:
    """Plain data back to a session and its messages, `session` being the one of that id. Errors as `as_stored` has."""
    where = f"session {number} (counting from 0) of the export"
    if not isinstance(data, Mapping):
        raise TypeError(f"{where} is a {type(data).__name__}, not a dict")
    held = cast("Mapping[str, Any]", data)
    try:
        if unknown := set(held) - {"id", "created_at", "ended_at", "expires_at", "messages", "dates"}:
            raise ValueError(f"has unknown fields {sorted(unknown)}; a later version of diarist may have written it")
        into = session(held["id"])
        created, ended, expires = (
            checks.checked_time(held.get(name), name) for name in ("created_at", "ended_at", "expires_at")
        )
        messages, dates = held["messages"], held.get("dates") or ()
        if not isinstance(messages, list) or not isinstance(dates, list | tuple):
            raise TypeError("messages and dates are not lists")
        said = [checks.checked_time(each, "dates") for each in cast("Sequence[Any]", dates)]
        when = [each for each in (said or [created]) if each is not None]
        if said and len(when) != len(cast("list[Any]", messages)):
            raise ValueError(f"has {len(cast('list[Any]', messages))} messages and {len(when)} dates")
        drafts = into.drafts(cast("list[Any]", messages), when)
        first = min((each.created_at for each in drafts), default=created)
        if first is None:
            raise ValueError("has neither a date nor a message")
        last = max((each.created_at for each in drafts), default=first)
        return SessionRow(into.id, created or first, ended, expires, len(drafts), last), drafts
    except KeyError as e:
        raise ValueError(f"{where} has no {e.args[0]}; nothing was loaded") from None
    except (ValueError, TypeError) as e:
        raise type(e)(f"{where}: {e}; nothing was loaded") from None


def _id(value: object) -> str:
    """An id as this or any other program may have given it; it is only ever compared whole."""
    if not isinstance(value, str):
        raise TypeError(f"id must be text, not {type(value).__name__}")
    if not value.isascii() or not value.isprintable() or len(value) > 256:
        raise ValueError(f"id {value!a} is not printable ASCII of at most 256 characters")
    return checks.checked_text(value, "id", 256)


def _ids(value: object) -> tuple[str, ...]:
    if isinstance(value, str) or not isinstance(value, Iterable | None):
        raise TypeError(f"replaces must be a list of ids, not {type(value).__name__}")
    return tuple(_id(each) for each in cast("Iterable[object]", value or ()))


def _times(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 2**31:
        raise ValueError(f"times must be a whole number from 1, not {value!r}")
    return value


def seed_notes(data: object) -> list[dict[str, str]] | None:
    """The texts of a JSON diary of the older kind, a list of {text, vector} or {id, text, vector}, as arguments for
    `Diary.remember_many`; None if `data` is no such list. Their vectors are left behind: nothing says which model made
    them."""
    if not isinstance(data, list) or not data:
        return None
    notes: list[dict[str, str]] = []
    for each in cast("list[object]", data):
        if not isinstance(each, Mapping):
            return None
        held = cast("Mapping[str, Any]", each)
        if not {"text", "vector"} <= held.keys() <= {"id", "text", "vector"} or not isinstance(held["text"], str):
            return None
        notes.append({"text": held["text"]})
    return notes


def as_markdown(owner: str, notes: Sequence[Note], page: str, zone: Any = UTC) -> str:
    """A diary for a person to read: the page, then the notes by day, newest first."""
    lines = [f"# {_plain(owner)}", ""]
    if page.strip():
        lines += ["## Page", "", page.strip(), ""]
    day = None
    for note in notes:
        on = note.dated.astimezone(zone)
        if on.date() != day:
            day = on.date()
            lines += [f"## {on:%Y-%m-%d}", ""]
        about = "; ".join(_about(note))
        lines.append(f"- {_plain(note.text)}{f' ({about})' if about else ''}")
    return "\n".join(lines).rstrip() + "\n"


def _about(note: Note) -> Iterable[str]:
    if note.source:
        yield f"from {_plain(note.source)}"
    if note.origin != "owner_said":
        yield note.origin.replace("_", " ")
    if note.flagged:
        yield "reads like instructions" + (", kept out of recall" if note.quarantined else "")
    if note.tags:
        yield "tags: " + ", ".join(map(_plain, note.tags))
    if note.replaced_by:
        yield "replaced since"
    if note.expires_at:
        yield f"until {note.expires_at:%Y-%m-%d}"


def _plain(text: str) -> str:
    return " ".join(text.split())
