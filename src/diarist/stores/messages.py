"""Sessions and their messages in a diary's file: kept as they were sent, in order, and searched like notes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Generator, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ..errors import NotFound, StoreCorrupt
from ..heading import heading
from ..note import Note, Origin
from . import Counts, Entry, Filter, MessageDraft, Outlined, Owed, Posting, SessionRow
from .kept import FIRST_MESSAGE, MESSAGES, changed, drop_vectors, log, owe_vectors, put_vectors, vectors_of
from .rows import as_text, as_time
from .sql import LISTED, Row, add_to_settings, listed, row, rows, run, set_settings

if TYPE_CHECKING:
    import apsw
    import numpy as np
    from numpy.typing import NDArray

    from .folder import FolderDiary

_COLUMNS = "messages.seq, messages.owner, session, number, messages.created_at, speaker, text, message, pending, key"
_SAID = "key, number, message, messages.created_at"
_FROM = "FROM messages JOIN sessions ON sessions.id = messages.session"
_ORIGIN: dict[str, Origin] = {"user": "owner_said", "assistant": "agent_inferred", "system": "operator"}


class FolderMessages:
    """The messages of one diary, to be searched as its notes are. Same file, same lock, same transactions."""

    kind = "message"

    def __init__(self, diary: FolderDiary) -> None:
        self._diary = diary
        self.owner = diary.owner

    # -- sessions ------------------------------------------------------------------------------------------------

    def append(self, session: str, drafts: Sequence[MessageDraft], expires_at: datetime | None) -> list[str]:
        from . import word_index

        with self._diary.writing() as db:
            found = row(db, "SELECT key FROM sessions WHERE id = ? AND owner = ?", (session, self.owner))
            if found is None:
                key, created = secrets.token_hex(16), as_text(drafts[0].created_at)
                values = (session, self.owner, key, created, as_text(expires_at))
                run(db, "INSERT INTO sessions (id, owner, key, created_at, expires_at) VALUES (?,?,?,?,?)", values)
            else:
                key = str(found[0])
                run(db, "UPDATE sessions SET ended_at = NULL WHERE id = ? AND owner = ?", (session, self.owner))
            last = row(db, "SELECT max(number) FROM messages WHERE session = ? AND owner = ?", (session, self.owner))
            number = int(last[0]) if last and last[0] is not None else 0
            self._add(db, session, number, drafts)
            word_index.file_newest(db, self.owner, MESSAGES)
        return [f"{key}-{number + n}" for n in range(1, len(drafts) + 1)]

    def load(self, db: apsw.Connection, sessions: Sequence[tuple[SessionRow, Sequence[MessageDraft]]]) -> None:
        """Keeps sessions that are not here yet, within a transaction; one that is stays as it is."""
        from . import word_index

        for each, drafts in sessions:
            if row(db, "SELECT 1 FROM sessions WHERE id = ? AND owner = ?", (each.id, self.owner)) is None:
                times = (as_text(each.created_at), as_text(each.ended_at), as_text(each.expires_at))
                values = (each.id, self.owner, secrets.token_hex(16), *times)
                columns = "id, owner, key, created_at, ended_at, expires_at"
                run(db, f"INSERT INTO sessions ({columns}) VALUES (?,?,?,?,?,?)", values)  # noqa: S608
                self._add(db, each.id, 0, drafts)
        word_index.file_newest(db, self.owner, MESSAGES)

    def _add(self, db: apsw.Connection, session: str, number: int, drafts: Sequence[MessageDraft]) -> None:
        for draft in drafts:
            number += 1
            seq = log(db, draft.created_at, "said", None, first=FIRST_MESSAGE)
            pending = bool(draft.words)
            values = (
                seq, self.owner, session, number, as_text(draft.created_at), draft.speaker, draft.text,
                draft.message, pending, " ".join(draft.words),
            )  # fmt: skip
            run(db, f"INSERT INTO messages VALUES ({','.join('?' * 10)})", values)  # noqa: S608
            totals = {MESSAGES.count: 1, MESSAGES.words: len(draft.words), MESSAGES.pending: int(pending)}
            add_to_settings(db, **totals)

    def messages(self, session: str) -> tuple[list[tuple[str, str, datetime]], list[int]]:
        sql = f"SELECT {_SAID} {_FROM} WHERE session = ? AND messages.owner = ? ORDER BY number"
        with self._diary.reading() as db:
            if db is None:
                return [], []
            try:
                found = list(rows(db, sql, (session, self.owner)))
            except UnicodeError:
                found = self._one_by_one(db, session)
        held: list[tuple[str, str, datetime]] = []
        damaged: list[int] = []
        for key, number, message, created in found:
            try:
                json.loads(message)
                held.append((f"{key}-{number}", message, _time(created)))
            except (ValueError, TypeError):
                damaged.append(number)
        return held, damaged

    def _one_by_one(self, db: apsw.Connection, session: str) -> list[Row]:
        """As above where the text of some message is no text any more: that one comes back as None."""
        numbers = "SELECT number FROM messages WHERE session = ? AND owner = ? ORDER BY number"
        one = f"SELECT {_SAID} {_FROM} WHERE session = ? AND messages.owner = ? AND number = ?"
        found: list[Row] = []
        for (number,) in list(rows(db, numbers, (session, self.owner))):
            try:
                found += rows(db, one, (session, self.owner, number))
            except UnicodeError:
                found.append(("", number, None, None))
        return found

    def sessions(self) -> list[SessionRow]:
        sql = (
            "SELECT id, created_at, ended_at, expires_at, (SELECT count(*) FROM messages WHERE session = sessions.id),"
            " (SELECT max(created_at) FROM messages WHERE session = sessions.id)"
            " FROM sessions WHERE owner = ? ORDER BY 6 DESC, id"
        )
        with self._diary.reading() as db:
            found = [] if db is None else list(rows(db, sql, (self.owner,)))
        return [
            SessionRow(id, _time(made), as_time(ended), as_time(expires), count, as_time(last) or _time(made))
            for id, made, ended, expires, count, last in found
        ]

    def end(self, session: str, at: datetime) -> None:
        with self._diary.writing() as db:
            run(db, "UPDATE sessions SET ended_at = ? WHERE id = ? AND owner = ?", (as_text(at), session, self.owner))

    def forget(self, session: str, at: datetime) -> list[str]:
        """Removes a session; returns the text of each message, "" for one that was not searched. NotFound if there is
        none."""
        from . import word_index

        with self._diary.reading() as db:
            if (
                db is None
                or row(db, "SELECT 1 FROM sessions WHERE id = ? AND owner = ?", (session, self.owner)) is None
            ):
                raise NotFound(f"no session {session!r} in this diary")
        with self._diary.writing() as db:
            sql = "SELECT seq, text, words, pending FROM messages WHERE session = ? AND owner = ?"
            found = list(rows(db, sql, (session, self.owner)))
            filed = word_index.filed_through(db, MESSAGES)
            for seq, _, words, pending in found:
                if seq <= filed:
                    word_index.unfile(db, seq, words)
                drop_vectors(db, seq)
                gone = {MESSAGES.count: -1, MESSAGES.words: -len(words.split()), MESSAGES.pending: -int(pending)}
                add_to_settings(db, **gone)
                log(db, at, "forgotten", seq)
            run(db, "DELETE FROM messages WHERE session = ? AND owner = ?", (session, self.owner))
            run(db, "DELETE FROM sessions WHERE id = ? AND owner = ?", (session, self.owner))
            set_settings(db, unsettled=1)
        self._diary.settled()
        return [text for _, text, _, _ in found]

    # -- searched ------------------------------------------------------------------------------------------------

    @property
    def secret(self) -> bytes:
        return self._diary.secret

    def snapshot(self) -> AbstractContextManager[None]:
        return self._diary.snapshot()

    def setting(self, name: str) -> str | int | bytes | None:
        return self._diary.setting(name)

    def counts(self) -> Counts:
        with self._diary.reading() as db:
            totals = {} if db is None else self._diary.facts(db)
        return Counts(*(int(totals.get(name, 0)) for name in (MESSAGES.count, MESSAGES.words, MESSAGES.pending)))

    def words_of(self, seqs: Iterable[int]) -> dict[int, list[str]]:
        sql = f"SELECT seq, words FROM messages WHERE owner = ? AND seq IN {LISTED}"  # noqa: S608
        with self._diary.reading() as db:
            found = [] if db is None else list(rows(db, sql, (self.owner, listed(seqs))))
        return {seq: words.split() for seq, words in found if words}

    def entries(self, seqs: Iterable[int]) -> list[Entry]:
        sql = f"SELECT {_COLUMNS} {_FROM} WHERE messages.owner = ? AND messages.seq IN {LISTED}"
        with self._diary.reading() as db:
            found = [] if db is None else list(rows(db, sql, (self.owner, listed(seqs))))
        return [self._entry(each) for each in found]

    def _entry(self, found: Row) -> Entry:
        seq, owner, session, number, created, speaker, text, message, pending, key = found
        try:
            at = _time(created)
            role = str(json.loads(message).get("role"))
        except (ValueError, TypeError, AttributeError) as e:
            raise StoreCorrupt(
                f"message {number} of session {session!r} is damaged ({e}); the others can be read"
            ) from e
        note = Note(
            id=f"{key}-{number}", owner=owner, text=text, created_at=at, kind="message", source=speaker or role,
            origin=_ORIGIN.get(role, "third_party"), session=session, pending=bool(pending),
        )  # fmt: skip
        return Entry(seq, note, at, None, None, (at, seq))

    def newest(self, limit: int) -> list[int]:
        sql = "SELECT seq FROM messages WHERE owner = ? ORDER BY seq DESC LIMIT ?"
        with self._diary.reading() as db:
            return [] if db is None else [found[0] for found in rows(db, sql, (self.owner, limit))]

    def select(self, filter: Filter) -> NDArray[np.int64]:
        import numpy as np

        sql = (
            "SELECT seq FROM messages WHERE owner = :owner AND (:since IS NULL OR created_at >= :since)"
            " AND (:before IS NULL OR created_at < :before) AND (:source IS NULL OR speaker = :source) ORDER BY seq"
        )
        values: dict[str, Any] = {"owner": self.owner, "source": filter.source}
        values |= {"since": as_text(filter.since), "before": as_text(filter.before)}
        with self._diary.reading() as db:
            nothing = db is None or filter.tags  # messages have no tags
            found = [] if nothing or db is None else [each[0] for each in rows(db, sql, values)]
        return np.array(found, np.int64)

    def postings(self, words: Sequence[str], most: int) -> dict[str, Posting]:
        from . import word_index

        with self._diary.reading() as db:
            if db is None:
                return {}
            return word_index.look_up(db, words, most, self._diary.synced(db, MESSAGES))

    def outline(self, seqs: Sequence[int] | None = None) -> list[Outlined]:
        sql = "SELECT seq, octet_length(words), speaker, session, number FROM messages WHERE owner = ? AND words > ''"
        with self._diary.reading() as db:
            if db is None:
                return []
            if seqs is None:
                found = rows(db, f"{sql} ORDER BY seq", (self.owner,))
            else:
                found = rows(db, f"{sql} AND seq IN {LISTED} ORDER BY seq", (self.owner, listed(seqs)))
            return list(map(Outlined._make, found))

    def pending(self, limit: int, after: int = 0) -> list[Owed]:
        sql = (
            "SELECT seq, text, speaker, created_at FROM messages"
            " WHERE owner = ? AND pending AND seq > ? ORDER BY seq LIMIT ?"
        )
        with self._diary.reading() as db:
            if db is None or not self._diary.facts(db).get(MESSAGES.pending, 0):
                return []
            found = list(rows(db, sql, (self.owner, after, limit)))
        return [Owed(seq, text, heading(speaker, as_time(at))) for seq, text, speaker, at in found]

    def attach(self, embedder: str, vectors: Sequence[tuple[int, str, NDArray[np.float32]]], at: datetime) -> None:
        with self._diary.writing() as db:
            for seq, _, windows in vectors:
                found = row(db, "SELECT pending FROM messages WHERE seq = ? AND owner = ?", (seq, self.owner))
                if found is not None:
                    drop_vectors(db, seq)
                    put_vectors(db, seq, embedder, windows)
                    run(db, "UPDATE messages SET pending = 0 WHERE seq = ? AND owner = ?", (seq, self.owner))
                    add_to_settings(db, **{MESSAGES.pending: -int(found[0])})
                    log(db, at, "embedded", seq)

    def owe_vectors(self, embedder: str, *, anew: bool = False) -> int:
        if not self.counts().notes:
            return 0
        with self._diary.writing() as db:
            return owe_vectors(db, self.owner, MESSAGES, embedder, anew)

    def position(self) -> int:
        with self._diary.reading() as db:
            return 0 if db is None else self._diary.last_line(db)

    def changed(self, since: int) -> list[int]:
        with self._diary.reading() as db:
            return [] if db is None else changed(db, since, MESSAGES)

    def vectors(self, seqs: Sequence[int] | None = None) -> Generator[tuple[int, str, bytes]]:
        with self._diary.reading() as db:
            if db is not None:
                yield from vectors_of(db, MESSAGES, seqs)


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text)
