"""`Session`: a history of messages under an id, saved as it grows, loaded to resume. Way 1.

A message is a dict of the chat-completions shape, with optional `name` and `created_at`. What is appended is on the
disk before `append` returns, and comes back exactly as it was given; only secrets are masked, where the memory's policy
says so.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from . import analysis, checks
from .guard import without_blocks
from .note import ASK_INSTEAD, NOTHING_SAVED
from .redaction import Policy, masked_message
from .stores import MessageDraft

if TYPE_CHECKING:
    from .stores import MessageStore

Message = dict[str, Any]
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_LONGEST = 1_000_000  # characters of a message as JSON


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session in a list. Times are aware and in UTC."""

    id: str
    created_at: datetime
    last_at: datetime
    """When its last message was written."""
    ended_at: datetime | None
    expires_at: datetime | None
    """From this moment it is erased, at the next chance; None keeps it."""
    messages: int


class Session:
    """One session, from `Diary.session`. Nothing is stored before the first message."""

    def __init__(
        self,
        store: MessageStore,
        id: str,
        now: Callable[[], datetime],
        expires_at: datetime | None,
        embed: Callable[[], object],
        secrets: Policy = "keep",
    ) -> None:
        self._store = store
        self.id = id
        self._now = now
        self._expires_at = expires_at
        self._embed = embed
        self._secrets = secrets

    @property
    def messages(self) -> list[Message]:
        """All messages that can be read, in order, as they were given. What cannot be read is named in `damaged`."""
        return [json.loads(message) for _, message, _ in self._store.messages(self.id)[0]]

    @property
    def ids(self) -> list[str]:
        """The ids of `messages`, in the same order."""
        return [id for id, _, _ in self._store.messages(self.id)[0]]

    @property
    def damaged(self) -> list[int]:
        """The numbers (from 1) of messages that cannot be read; the others are there."""
        return self._store.messages(self.id)[1]

    def append(self, message: Mapping[str, Any]) -> str:
        """Keeps one message at the end; when this returns it is on the disk. Returns its id."""
        return self._store.append(self.id, [self._draft(message, 0)], self._expires_at)[0]

    def extend(self, messages: Iterable[Mapping[str, Any]]) -> list[str]:
        """Keeps many, all or none, such as a past conversation; returns their ids. They can then be searched by meaning
        too, if the embedder is there. ValueError or TypeError names the position of a bad one."""
        drafts = self.drafts(messages)
        if not drafts:
            return []
        ids = self._store.append(self.id, drafts, self._expires_at)
        self._embed()
        return ids

    def drafts(self, messages: Iterable[Mapping[str, Any]], dates: Sequence[datetime] = ()) -> list[MessageDraft]:
        """The messages as they will be kept, checked; nothing is written. `dates`: when each was said, where it does
        not say so itself; without one it is of the moment of the one before it, not of the import."""
        drafts: list[MessageDraft] = []
        for number, message in enumerate(messages):
            before = dates[number] if number < len(dates) else drafts[-1].created_at if drafts else None
            drafts.append(self._draft(message, number, before))
        return drafts

    def end(self) -> None:
        """Marks the session as ended. It stays, and appending to it takes it up again."""
        self._store.end(self.id, self._now())

    def __repr__(self) -> str:
        return f"Session({self.id!r})"

    def _draft(self, message: Mapping[str, Any], number: int, before: datetime | None = None) -> MessageDraft:
        if not isinstance(message, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"message {number} (counting from 0) is a {type(message).__name__}, not a dict")
        if message.get("role") not in _ROLES:
            raise ValueError(f"message {number} has role {message.get('role')!r}; one of {', '.join(_ROLES)}")
        if self._secrets != "keep":  # also where notes are refused: a conversation cannot take back what was said
            message = masked_message(message)
        try:
            data = json.dumps(dict(message), ensure_ascii=True, allow_nan=False)
        except (TypeError, ValueError) as e:
            raise ValueError(f"message {number} cannot be written as JSON: {e}") from e
        if len(data) > _LONGEST:
            raise ValueError(f"message {number} has {len(data):,} characters as JSON; at most {_LONGEST:,} are kept")
        created = (
            checks.checked_time(message.get("created_at"), f"created_at of message {number}") or before or self._now()
        )
        text = searchable(message)[: checks.LONGEST_TEXT]
        name = message.get("name")
        speaker = name if isinstance(name, str) and name.strip() else None
        words = tuple(analysis.terms(f"{speaker or ''} {text}")) if text else ()
        return MessageDraft(data, text, words, speaker, created)


def searchable(message: Mapping[str, Any]) -> str:
    """The text of a message that a search goes by: what was said, without system text, calls and their results, nor
    notes that were recalled for it."""
    if message.get("role") not in {"user", "assistant"}:
        return ""
    content = message.get("content")
    if isinstance(content, list):
        parts = cast("list[object]", content)
        content = "\n".join(
            str(cast("Mapping[str, Any]", part).get("text") or "") for part in parts if isinstance(part, Mapping)
        )
    text = content if isinstance(content, str) else ""
    text = without_blocks(text).removesuffix(f"{NOTHING_SAVED} {ASK_INSTEAD}")
    return text.replace("\0", " ").encode("utf-8", "replace").decode() if text.strip() else ""
