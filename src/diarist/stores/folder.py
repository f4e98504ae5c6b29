"""The default store: a folder of diaries, each a folder with one SQLite file.

An acknowledged write is on the disk (WAL, synchronous=FULL); several processes may use one diary at once. Nothing here
ranks or embeds: it keeps facts and gives them back. What a row looks like is in `rows.py`, the word index in
`word_index.py`, and how a file is made, opened and kept safe in `file.py`.
"""

from __future__ import annotations

import json
import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakValueDictionary

import apsw

from ..erasure import ErasureReport
from ..errors import NotFound, SchemaTooNew, StoreBusy, StoreCorrupt, StoreError
from ..forks import renew_after_fork
from ..heading import heading
from ..note import Note
from . import (
    Counts,
    Draft,
    Entry,
    Filter,
    MessageDraft,
    Outlined,
    Owed,
    Posting,
    SessionRow,
    Stored,
    file,
    ledger,
    migrate,
)  # fmt: skip
from .kept import MESSAGES, NOTES, Kept, changed, drop_vectors, last_line, log, owe_vectors, put_vectors, vectors_of
from .lock import FileLock
from .messages import FolderMessages
from .names import folder_name, is_cut, owner_of
from .rows import COLUMNS, QUARANTINED, RELEASED, as_entry, as_flag, as_text, as_time, holding, within
from .sql import LISTED, Row, add_to_settings, listed, row, rows, run, set_settings, setting, settings
from .waiting import Waiting

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_MOST_OPEN = 64  # files kept open at once; the least recently opened is let go first
_SETTINGS = "settings.json"  # of the memory as a whole, such as how its embedder was calibrated
_TRUST = ("third_party", "agent_inferred", "operator", "owner_said")  # least first


class FolderStore:
    """A folder with a folder for each owner."""

    def __init__(self, root: Path, *, busy_timeout: float) -> None:
        self._root = root
        self._busy_timeout = busy_timeout
        self._diaries: WeakValueDictionary[str, FolderDiary] = WeakValueDictionary()
        self._open: OrderedDict[str, FolderDiary] = OrderedDict()
        self._mutex = threading.Lock()
        renew_after_fork(self, "_mutex", threading.Lock)
        self._closed = False

    @property
    def path(self) -> str:
        return str(self._root)

    @property
    def root(self) -> Path:
        return self._root

    def folder(self, owner: str) -> Path:
        """Where an owner's files are, or would be."""
        return self._root / folder_name(owner)

    def diary(self, owner: str) -> FolderDiary:
        with self._mutex:
            found = self._diaries.get(owner)
            if found is None:
                found = FolderDiary(self._root, owner, self._busy_timeout, self._opened)
                self._diaries[owner] = found
            return found

    def owners(self) -> list[str]:
        try:
            file.clear_erased(self._root)
            names = [entry.name for entry in os.scandir(self._root) if file.is_diary(Path(entry))]
        except FileNotFoundError:
            return []
        except OSError as e:
            raise StoreError(f"{self._root}: the memory cannot be read ({e.strerror})") from e
        found = (self._owner_inside(name) if is_cut(name) else owner_of(name) for name in names)
        return sorted(owner for owner in found if owner is not None)

    def setting(self, name: str) -> Any:
        return self._settings().get(name)

    def set_setting(self, name: str, value: Any) -> None:
        path = self._root / _SETTINGS
        with file.told(path, writing=True):
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            file.write_text(path, json.dumps({**self._settings(), name: value}, indent=1) + "\n")

    def _settings(self) -> dict[str, Any]:
        path = self._root / _SETTINGS
        with file.told(path):
            text = file.read_text(path)
        try:
            held = json.loads(text or "{}")
        except ValueError as e:
            raise StoreCorrupt(f"{path}: is not JSON ({e}); mend it, or remove it and set again what it held") from e
        if not isinstance(held, dict):
            raise StoreCorrupt(f"{path}: holds no JSON object; remove it and set again what it held")
        return cast("dict[str, Any]", held)

    def back_up(self, to: Path, at: datetime) -> list[str]:
        from .backup import back_up

        return back_up(self, to, at)

    def restore(self, backup: Path, *, overwrite: bool, draft_of: Callable[[Stored], Draft]) -> dict[str, int]:
        from .backup import restore

        return restore(self, backup, overwrite=overwrite, draft_of=draft_of)

    def erase(self, owner: str, at: datetime, unchanged_since: int | None = None) -> ErasureReport | None:
        from .backup import clear_stage

        diary = self.diary(owner)
        notes = messages = 0
        with suppress(StoreCorrupt, SchemaTooNew):  # what cannot be read can be erased
            notes, messages = diary.counts().notes, diary.messages.counts().notes

        def enter() -> None:
            ledger.enter(self._root, owner, at, notes)

        removed = diary.erase(unchanged_since, before=enter)
        if removed is None:
            return None
        clear_stage(self)
        file.clear_erased(self._root)
        looked, residue = file.residue(self._root / folder_name(owner), [], [])
        return ErasureReport(
            at, notes, messages, tuple(looked) or ("the owner's folder: gone",), tuple(residue), not removed
        )

    def close(self) -> None:
        with self._mutex:
            self._closed = True
            still_open, self._open = list(self._open.values()), OrderedDict()
        for diary in still_open:
            diary.close()

    def _opened(self, diary: FolderDiary) -> None:
        """Called when a diary is about to open its file: lets others go if there are too many."""
        with self._mutex:
            if self._closed:
                raise StoreError(
                    f"{self._root}: this memory was closed; open it again with Memory({str(self._root)!r})"
                )
            self._open[diary.owner] = diary
            self._open.move_to_end(diary.owner)
            idle = [self._open.popitem(last=False)[1] for _ in range(len(self._open) - _MOST_OPEN)]
        busy = [other for other in idle if not other.close(wait=0)]
        with self._mutex:
            self._open.update((other.owner, other) for other in busy)

    def _owner_inside(self, name: str) -> str | None:
        path = self._root / name / file.NAME
        with file.told(path):
            db = file.open_existing(path, busy_ms=1000)
            try:
                owner = setting(db, "owner", None)
            finally:
                db.close()
        return owner if owner is not None and folder_name(owner) == name else None


class FolderDiary:
    """One owner's diary file. Safe to share between threads; follows its file through erasure and fork."""

    kind = "note"

    def __init__(self, root: Path, owner: str, busy_timeout: float, opened: Callable[[FolderDiary], None]) -> None:
        self._root = root
        self._owner = owner
        self._folder = root / folder_name(owner)
        self._path = self._folder / file.NAME
        self._name = str(self._path)  # for what is asked at every call
        self._page = self._folder / file.PAGE
        self._lock = FileLock(self._folder / file.LOCK)
        self._timeout = busy_timeout
        self._opened = opened
        # Where both are needed the lock is taken before the guard, always.
        self._guard = threading.RLock()
        self._snapshot_of: int | None = None  # the thread within `snapshot`
        renew_after_fork(self, "_guard", threading.RLock)
        self.messages = FolderMessages(self)
        self._connection: apsw.Connection | None = None
        self._identity: tuple[int, int, int] | None = None
        self._secret = b""
        self._schema = 0
        self._version = -1
        self._facts: dict[str, Any] | None = None
        self._last_line = 0
        self.waiting = {kept: Waiting(kept) for kept in (NOTES, MESSAGES)}
        self._leftover = False  # copies that an interrupted change of schema left

    # -- what it is ----------------------------------------------------------------------------------------------

    @property
    def owner(self) -> str:
        return self._owner

    @property
    def secret(self) -> bytes:
        with self.reading() as db:
            return b"" if db is None else self._secret

    def setting(self, name: str) -> str | int | bytes | None:
        with self.reading() as db:
            return None if db is None else self.facts(db).get(name)

    def set_setting(self, name: str, value: str | int | bytes | None) -> None:
        with self.writing() as db:
            set_settings(db, **{name: value})

    # -- writing -------------------------------------------------------------------------------------------------

    def write(self, drafts: Sequence[Draft]) -> list[Note]:
        from . import word_index

        if not self._path.exists():
            for id in (id for draft in drafts for id in draft.replaces):
                raise _unknown(id)  # before a file is made for nothing
        with self.writing() as db:
            seqs = [self._write_one(db, draft) for draft in drafts]
            word_index.file_newest(db, self._owner)
            notes = {entry.seq: entry.note for entry in self._entries(db, set(seqs))}
        return [notes[seq] for seq in seqs]

    def edit(self, id: str, draft: Draft) -> Note:
        from . import word_index

        self.note(id)
        with self.writing() as db:
            old = self._take_out(db, self._seq_of(db, id))
            log(db, draft.created_at, "edited", old.seq)
            words = " ".join(draft.words)
            pending = draft.vectors is None
            flag = as_flag(draft.flagged_for)
            values = (draft.text, words, draft.fingerprint, flag, pending, old.seq, self._owner)
            run(
                db,
                "UPDATE notes SET text = ?, words = ?, fingerprint = ?, flagged = ?, pending = ?"
                " WHERE seq = ? AND owner = ?",
                values,
            )
            self._take_places(db, old.seq, draft.created_at)
            self._put_vectors(db, old.seq, draft)
            add_to_settings(db, words=len(draft.words) - old.words, pending=int(pending) - old.pending)
            if old.filed:
                word_index.file(db, [(old.seq, words)])
            # A retry of the request that wrote the old text is still that request; nothing of the old text stays.
            run(db, f"UPDATE keys SET fingerprint = NULL WHERE key IN ({_KEYS_OF})", (old.seq, self._owner))  # noqa: S608
            set_settings(db, unsettled=1)
            note = self._entries(db, [old.seq])[0].note
        self.settled()
        return note

    def release(self, id: str, at: datetime, flagged_for: Sequence[str] = ()) -> Note:
        note = self.note(id)
        why = note.flagged_for or tuple(flagged_for)
        if note.released or not (note.flagged or why):
            return note
        with self.writing() as db:
            seq = self._seq_of(db, id)
            flag = as_flag(why or ("marked elsewhere",), released=True)
            run(db, "UPDATE notes SET flagged = ? WHERE seq = ? AND owner = ?", (flag, seq, self._owner))
            log(db, at, "released", seq)
            self._take_places(db, seq, at)
            return self._entries(db, [seq])[0].note

    def forget(self, ids: Sequence[str], at: datetime) -> None:
        for id in ids:
            self.note(id)
        with self.writing() as db:
            for id in dict.fromkeys(ids):
                old = self._take_out(db, self._seq_of(db, id))
                run(db, f"DELETE FROM keys WHERE key IN ({_KEYS_OF})", (old.seq, self._owner))  # noqa: S608
                run(db, "DELETE FROM notes WHERE seq = ? AND owner = ?", (old.seq, self._owner))
                log(db, at, "forgotten", old.seq, id)
                add_to_settings(db, notes=-1, words=-old.words, pending=-old.pending)
            set_settings(db, unsettled=1)
        self.settled()

    def attach(self, embedder: str, vectors: Sequence[tuple[int, str, NDArray[np.float32]]], at: datetime) -> None:
        if not self._path.exists():
            return
        with self.writing() as db:
            for seq, text, windows in vectors:
                found = row(
                    db, "SELECT 1 FROM notes WHERE seq = ? AND owner = ? AND text = ?", (seq, self._owner, text)
                )
                if found is not None:
                    self._complete(db, seq, embedder, windows)
                    log(db, at, "embedded", seq)

    def erase(self, unchanged_since: int | None = None, *, before: Callable[[], None] = lambda: None) -> bool | None:
        """Removes the folder. From the moment the mark is written the diary is empty for everyone; whoever comes next
        finishes what a crash interrupted. False if a file could not be removed yet, None if the diary was written to
        after `unchanged_since`. `before` is called first, in the lock, if there is anything to remove."""
        if not self._folder.is_dir():
            return True
        file.refuse_link(self._path)
        with file.told(self._path, writing=True), self._held(), self._guard:
            if unchanged_since is not None:
                db = self._connect()
                if db is not None and last_line(db) != unchanged_since:
                    return None
            if self._connection is not None and not self._inherited():
                self._connection.close()
            self._connection, self._identity = None, None
            before()
            file.mark_erasing(self._folder)
            return file.finish_erasing(self._folder)

    def put_in_place(self, copy: Path) -> None:
        """Puts a diary file that was made ready elsewhere in the place of this one; its page too if nobody was here,
        else the page stays as it is, also where it was emptied."""
        with file.told(self._path, writing=True), self._held(), self._guard:
            db = self._connect()
            fresh = db is None
            if db is not None:
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
                if not self._inherited():
                    db.close()
            self._connection, self._identity = None, None
            # Nothing is in the log any more. Another process that has the old file open keeps to its own copies of
            # these two, and opens the new file at its next call.
            for end in ("-wal", "-shm"):
                Path(f"{self._path}{end}").unlink(missing_ok=True)
            os.replace(copy / file.NAME, self._path)
            if fresh:
                file.write_text(self._page, file.read_text(copy / file.PAGE))
            file.sync_folder(self._folder)

    # -- reading -------------------------------------------------------------------------------------------------

    def note(self, id: str) -> Note:
        with self.reading() as db:
            if db is None:
                raise _unknown(id)
            found = self._entries(db, [self._seq_of(db, id)])
            if not found:  # forgotten by another process between the two statements
                raise _unknown(id)
            return found[0].note

    def seq(self, id: str) -> int:
        with self.reading() as db:
            if db is None:
                raise _unknown(id)
            return self._seq_of(db, id)

    def notes(self, filter: Filter, *, limit: int | None = None, offset: int = 0) -> list[Note]:
        where, values = holding(filter)
        values |= {"owner": self._owner, "limit": -1 if limit is None else limit, "offset": offset}
        sql = (
            f"SELECT {COLUMNS} FROM notes WHERE owner = :owner{where}"  # noqa: S608
            " ORDER BY order_at DESC, said DESC LIMIT :limit OFFSET :offset"
        )
        with self.reading() as db:
            if db is None:
                return []
            try:
                found = list(rows(db, sql, values))
            except UnicodeError:
                for seq in self.select(filter).tolist():
                    self._entries(db, [seq])  # names the one
                raise
        return [self._readable(each).note for each in found]

    def count(self, filter: Filter) -> int:
        where, values = holding(filter)
        sql = f"SELECT count(*) FROM notes WHERE owner = :owner{where}"  # noqa: S608
        with self.reading() as db:
            found = None if db is None else row(db, sql, values | {"owner": self._owner})
            return 0 if found is None else int(found[0])

    def twin(self, draft: Draft) -> Note | None:
        with self.reading() as db:
            seq = None if db is None else self._twin(db, draft)[0]
            found = [] if db is None or seq is None else self._entries(db, [seq])
            return found[0].note if found else None

    def counts(self) -> Counts:
        with self.reading() as db:
            totals = {} if db is None else self.facts(db)
            return Counts(int(totals.get("notes", 0)), int(totals.get("words", 0)), int(totals.get("pending", 0)))

    def words_of(self, seqs: Iterable[int]) -> dict[int, list[str]]:
        sql = f"SELECT seq, words FROM notes WHERE owner = ? AND seq IN {LISTED}"  # noqa: S608
        with self.reading() as db:
            if db is None:
                return {}
            return {seq: words.split(" ") for seq, words in rows(db, sql, (self._owner, listed(seqs)))}

    def entries(self, seqs: Iterable[int]) -> list[Entry]:
        with self.reading() as db:
            return [] if db is None else self._entries(db, seqs)

    def newest(self, limit: int) -> list[int]:
        sql = "SELECT seq FROM notes WHERE owner = ? ORDER BY seq DESC LIMIT ?"
        with self.reading() as db:
            return [] if db is None else [found[0] for found in rows(db, sql, (self._owner, limit))]

    def select(self, filter: Filter) -> NDArray[np.int64]:
        import numpy as np

        where, values = within(filter)
        sql = f"SELECT seq FROM notes WHERE owner = :owner{where} ORDER BY seq"  # noqa: S608
        with self.reading() as db:
            found = [] if db is None else [each[0] for each in rows(db, sql, values | {"owner": self._owner})]
        return np.array(found, np.int64)

    def postings(self, words: Sequence[str], most: int) -> dict[str, Posting]:
        from . import word_index

        with self.reading() as db:
            if db is None:
                return {}
            return word_index.look_up(db, words, most, self.synced(db, NOTES))

    def outline(self, seqs: Sequence[int] | None = None) -> list[Outlined]:
        sql = "SELECT seq, octet_length(words), source, '', 0 FROM notes WHERE owner = ?"
        with self.reading() as db:
            if db is None:
                return []
            if seqs is None:
                found = rows(db, f"{sql} ORDER BY seq", (self._owner,))
            else:
                found = rows(db, f"{sql} AND seq IN {LISTED} ORDER BY seq", (self._owner, listed(seqs)))
            return list(map(Outlined._make, found))

    def pending(self, limit: int, after: int = 0) -> list[Owed]:
        sql = (
            "SELECT seq, text, source, happened_at FROM notes"
            " WHERE owner = ? AND pending AND seq > ? ORDER BY seq LIMIT ?"
        )
        with self.reading() as db:
            if db is None or not self.facts(db).get("pending", 0):
                return []
            found = list(rows(db, sql, (self._owner, after, limit)))
        return [Owed(seq, text, heading(source, as_time(happened))) for seq, text, source, happened in found]

    def position(self) -> int:
        with self.reading() as db:
            return 0 if db is None else self.last_line(db)

    def changed(self, since: int) -> list[int]:
        with self.reading() as db:
            return [] if db is None else changed(db, since, NOTES)

    def vectors(self, seqs: Sequence[int] | None = None) -> Generator[tuple[int, str, bytes]]:
        with self.reading() as db:
            if db is not None:
                yield from vectors_of(db, NOTES, seqs)

    def residue(
        self, texts: Sequence[str], vectors: Sequence[bytes], words: Sequence[str] = ()
    ) -> tuple[list[str], list[str]]:
        """What other notes or messages hold too is not left over; nor can a text of a few letters be looked for in a
        file of numbers. When SQLite moves a row to another page, a copy may stay in the gap: the file is then
        rewritten."""
        long = [text for text in texts if len(text.encode()) >= _LEAST_SOUGHT]
        with file.told(self._path), self._lock_if_there(), self._guard:
            looked, found = self._look(long, vectors, words)
            if file.NAME in found:
                self._rewrite()
                looked, found = self._look(long, vectors, words)
        if len(long) < len(texts):
            looked.append(f"(texts under {_LEAST_SOUGHT} bytes: removed, too short to look for)")
        return looked, found

    def _look(
        self, texts: Sequence[str], vectors: Sequence[bytes], words: Sequence[str]
    ) -> tuple[list[str], list[str]]:
        looked, found = file.residue(self._folder, texts, vectors)
        db, log = self._connect(), f"{file.NAME}-wal"
        if db is None:
            return looked, found
        if {file.NAME, log} & set(found):
            found = file.residue(self._folder, [text for text in texts if not _holds(db, text)], vectors)[1]
        if file.NAME not in found:
            seen = file.among(self._path, [word for word in words if len(word.encode()) >= _LEAST_SOUGHT])
            found += [file.NAME] if any(not _holds(db, word) for word in seen) else []
        return looked, found

    def _rewrite(self) -> None:
        """Writes the whole file anew, so that only what is kept is in it. Hold the lock."""
        db = self._connect()
        if db is not None and not db.readonly("main"):
            db.set_busy_timeout(0)  # as in `_settle`
            with suppress(apsw.Error):  # no room for a second copy, or a reader: what is left is then reported
                run(db, "VACUUM")
                db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            db.set_busy_timeout(int(self._timeout * 1000))

    @contextmanager
    def _lock_if_there(self) -> Generator[None]:
        with self._lock.held(self._timeout) if self._folder.is_dir() else nullcontext():
            yield

    def sample(self, embedder: str) -> tuple[str, bytes] | None:
        sql = (  # one with nothing before it: what stands there may change with the note, and with diarist
            "SELECT text, vector FROM notes JOIN vectors ON place = seq * 4096"
            " WHERE owner = ? AND embedder = ? AND source IS NULL AND happened_at IS NULL ORDER BY seq LIMIT 1"
        )
        with self.reading() as db:
            found = None if db is None else row(db, sql, (self._owner, embedder))
            return None if found is None else (found[0], found[1])

    def forgotten(self) -> set[str]:
        with self.reading() as db:
            sql = "SELECT note FROM history WHERE note IS NOT NULL"
            return set() if db is None else {found[0] for found in rows(db, sql)}

    def keep_forgotten(self, ids: Iterable[str], at: datetime) -> None:
        known = self.forgotten()
        with self.writing() as db:
            for id in sorted(set(ids) - known):
                log(db, at, "forgotten", 0, id)

    def older(self, than: datetime) -> list[str]:
        with self.reading() as db:
            sql = "SELECT id FROM notes WHERE owner = ? AND created_at < ? ORDER BY seq"
            return [] if db is None else [found[0] for found in rows(db, sql, (self._owner, as_text(than)))]

    # -- taken along ---------------------------------------------------------------------------------------------

    def dump(self) -> list[Stored]:
        sql = f"SELECT keys, {COLUMNS} FROM notes WHERE owner = ? ORDER BY said"  # noqa: S608
        with self.reading() as db:
            found = [] if db is None else list(rows(db, sql, (self._owner,)))
        entries = [(json.loads(each[0]), self._readable(each[1:])) for each in found]
        return [Stored(e.note, e.first_at, e.replaced_at, e.order[0], tuple(keys)) for keys, e in entries]

    def load(
        self,
        notes: Sequence[tuple[Stored, Draft]],
        sessions: Sequence[tuple[SessionRow, Sequence[MessageDraft]]] = (),
    ) -> int:
        from . import word_index

        new = 0
        with self.writing() as db:
            for stored, draft in notes:
                note = stored.note
                if row(db, "SELECT 1 FROM notes WHERE id = ? AND owner = ?", (note.id, self._owner)) is not None:
                    continue
                seq = self._insert(db, draft, as_text(note.created_at) or "", as_text(stored.order_at) or "", note.id)
                replaced_at = as_text(stored.replaced_at)
                values = (
                    as_text(note.created_at),
                    note.times,
                    note.replaced_by,
                    replaced_at,
                    json.dumps(note.replaces),
                )
                run(
                    db,
                    "UPDATE notes SET created_at = ?, times = ?, replaced_by = ?, replaced_at = ?, replaces = ?"
                    " WHERE seq = ? AND owner = ?",
                    (*values, seq, self._owner),
                )
                for key in stored.keys:
                    if row(db, "SELECT 1 FROM keys WHERE key = ?", (key,)) is None:
                        self._put_key(db, seq, replace(draft, key=key))
                        run(db, "UPDATE keys SET fingerprint = NULL WHERE key = ?", (key,))  # whatever was asked there
                latest = setting(db, "latest", "")
                set_settings(db, latest=max(as_text(note.created_at) or "", latest))
                new += 1
            word_index.file_newest(db, self._owner)
            self.messages.load(db, sessions)
        return new

    def inspect(self) -> list[tuple[str, str, str]]:
        with self.reading() as db:
            if db is None:
                return [("file", f"{self._path}: nothing is kept yet", "")]
            return file.inspect(db, self._path)

    def owe_vectors(self, embedder: str, *, anew: bool = False) -> int:
        if not self._path.exists():
            return 0
        with self.writing() as db:
            return owe_vectors(db, self._owner, NOTES, embedder, anew)

    # -- the page ------------------------------------------------------------------------------------------------

    def page(self) -> str:
        with file.told(self._page), self.reading():  # opened first: in a copied folder the page is somebody else's
            return file.read_text(self._page)

    def change_page(self, change: Callable[[str], str]) -> str:
        with self.reading():
            pass  # a folder copied from another owner is refused, before anything is written
        with file.told(self._page, writing=True), self._held():
            if not self._path.exists():  # the diary's own secret closes the block in which the page is shown
                file.create(self._path, self._owner)
            old = file.read_text(self._page)
            new = change(old)
            if new != old:
                file.write_text(self._page, new)
            return new

    # -- one note ------------------------------------------------------------------------------------------------

    def _write_one(self, db: apsw.Connection, draft: Draft) -> int:
        seq, same_request = self._twin(db, draft)
        if seq is not None and same_request:
            self._complete_if_pending(db, seq, draft)
            return seq
        latest = setting(db, "latest", "")
        created = as_text(draft.created_at) or ""
        set_settings(db, latest=max(created, latest))
        order_at = as_text(draft.happened_at) or max(created, latest)
        if seq is None:
            seq = self._insert(db, draft, created, order_at)
        else:
            self._say_again(db, seq, draft, created, order_at)
        self._replace(db, seq, draft)
        return seq

    def _insert(self, db: apsw.Connection, draft: Draft, created: str, order_at: str, id: str | None = None) -> int:
        if last_line(db) == 0:
            set_settings(db, born=created)
        seq = log(db, draft.created_at, "remembered", None)
        pending = draft.vectors is None
        flag = as_flag(draft.flagged_for, draft.released)
        row_of = {
            "seq": seq, "id": id or secrets.token_hex(16), "owner": self._owner, "text": draft.text,
            "created_at": created, "happened_at": as_text(draft.happened_at),
            "expires_at": as_text(draft.expires_at), "order_at": order_at, "said": seq, "source": draft.source,
            "origin": draft.origin, "tags": json.dumps(draft.tags), "flagged": flag, "session": draft.session,
            "times": 1,
            "replaces": "[]", "keys": "[]", "pending": pending, "words": " ".join(draft.words),
            "fingerprint": draft.fingerprint,
        }  # fmt: skip
        places = ",".join("?" * len(row_of))
        run(db, f"INSERT INTO notes ({', '.join(row_of)}) VALUES ({places})", list(row_of.values()))  # noqa: S608
        self._put_key(db, seq, draft)
        self._put_vectors(db, seq, draft)
        add_to_settings(db, notes=1, words=len(draft.words), pending=int(pending))
        return seq

    def _say_again(self, db: apsw.Connection, seq: int, draft: Draft, created: str, order_at: str) -> None:
        """The same text again: one note, said once more, with the later of the two dates."""
        log(db, draft.created_at, "repeated", seq)
        line = last_line(db)
        old = row(
            db,
            "SELECT order_at, happened_at, expires_at, source, origin, tags, flagged"
            " FROM notes WHERE seq = ? AND owner = ?",
            (seq, self._owner),
        )
        assert old is not None
        old_order, happened, expires, source, origin, tags, flag = old
        if order_at >= old_order:
            happened, expires = as_text(draft.happened_at), as_text(draft.expires_at)
            source = draft.source or source
        flag = flag or as_flag(draft.flagged_for)
        raised = max(origin, draft.origin, key=_TRUST.index)
        # An agent that says again what it read somewhere vouches for nothing: only people lift a quarantine.
        if not (flag and not flag.startswith(RELEASED) and raised == "agent_inferred"):
            origin = raised
        tags = json.dumps(list(dict.fromkeys([*json.loads(tags), *draft.tags])))
        values = (
            created, happened, expires, max(order_at, old_order), line, source, origin, tags, flag, seq, self._owner,
        )  # fmt: skip
        run(
            db,
            "UPDATE notes SET created_at = ?, happened_at = ?, expires_at = ?, order_at = ?, said = ?, source = ?,"
            " origin = ?, tags = ?, flagged = ?, times = times + 1 WHERE seq = ? AND owner = ?",
            values,
        )
        self._take_places(db, seq, draft.created_at)
        self._put_key(db, seq, draft)
        self._complete_if_pending(db, seq, draft)

    def _complete(self, db: apsw.Connection, seq: int, embedder: str, windows: NDArray[np.float32]) -> None:
        """Gives a note its vectors, in the place of those it may have of another embedder."""
        found = row(db, "SELECT pending FROM notes WHERE seq = ? AND owner = ?", (seq, self._owner))
        assert found is not None
        drop_vectors(db, seq)
        put_vectors(db, seq, embedder, windows)
        run(db, "UPDATE notes SET pending = 0 WHERE seq = ? AND owner = ?", (seq, self._owner))
        add_to_settings(db, pending=-int(found[0]))

    def _complete_if_pending(self, db: apsw.Connection, seq: int, draft: Draft) -> None:
        """The same for vectors that a repetition brought along."""
        found = row(db, "SELECT pending FROM notes WHERE seq = ? AND owner = ?", (seq, self._owner))
        if draft.vectors is not None and found is not None and found[0]:
            self._complete(db, seq, draft.embedder, draft.vectors)

    def _replace(self, db: apsw.Connection, seq: int, draft: Draft) -> None:
        if not draft.replaces:
            return
        found = row(db, "SELECT id, replaces FROM notes WHERE seq = ? AND owner = ?", (seq, self._owner))
        assert found is not None
        id, before = found
        replaced = [old for old in draft.replaces if old != id]
        for old in replaced:
            self._seq_of(db, old)  # NotFound for an unknown one
        every = json.dumps(list(dict.fromkeys([*json.loads(before), *replaced])))
        run(db, "UPDATE notes SET replaces = ? WHERE seq = ? AND owner = ?", (every, seq, self._owner))
        self._take_places(db, seq, draft.created_at, replaced, draft.happened_at or draft.created_at)

    def _take_places(
        self, db: apsw.Connection, seq: int, at: datetime, of: Sequence[str] | None = None,
        since: datetime | None = None,
    ) -> None:  # fmt: skip
        """Puts the notes that this one replaces (`of`, else those that still stand) out of sight, unless it is
        quarantined: what nobody has read cannot hide what the owner said."""
        sql = f"SELECT id, replaces, coalesce(happened_at, created_at), {QUARANTINED} FROM notes"  # noqa: S608
        found = row(db, f"{sql} WHERE seq = ? AND owner = ?", (seq, self._owner))
        assert found is not None
        id, replaces, holds_from, quarantined = found
        if quarantined:
            return
        for old in json.loads(replaces) if of is None else of:
            held = row(db, "SELECT seq, replaced_by FROM notes WHERE id = ? AND owner = ?", (old, self._owner))
            if held is not None and (of is not None or held[1] is None):
                log(db, at, "replaced", held[0])
                run(
                    db,
                    "UPDATE notes SET replaced_by = ?, replaced_at = ? WHERE id = ? AND owner = ?",
                    (id, as_text(since) or holds_from, old, self._owner),
                )

    def _twin(self, db: apsw.Connection, draft: Draft) -> tuple[int | None, bool]:
        """The seq of the note that this draft is, and whether it is the very same request."""
        if draft.key is not None:
            found = row(db, "SELECT seq, fingerprint FROM keys WHERE key = ?", (draft.key,))
            if found is not None and found[1] not in (None, draft.fingerprint):
                raise ValueError(f"key {draft.key!r} was used before for another text; a new note needs a new key")
            if found is not None:
                return found[0], True
        found = row(
            db,
            "SELECT seq FROM notes WHERE fingerprint = ? AND owner = ? AND replaced_by IS NULL"
            " AND (expires_at IS NULL OR expires_at > ?) ORDER BY seq DESC",
            (draft.fingerprint, self._owner, as_text(draft.created_at)),
        )
        return (None if found is None else found[0]), False

    def _take_out(self, db: apsw.Connection, seq: int) -> _Old:
        """Removes a note from the word and vector tables, before its row changes or goes."""
        from . import word_index

        found = row(db, "SELECT words, pending FROM notes WHERE seq = ? AND owner = ?", (seq, self._owner))
        assert found is not None
        words, pending = found
        filed = seq <= word_index.filed_through(db)
        if filed:
            word_index.unfile(db, seq, words)
        drop_vectors(db, seq)
        return _Old(seq, len(words.split(" ")), int(pending), filed)

    def _entries(self, db: apsw.Connection, seqs: Iterable[int]) -> list[Entry]:
        sql = f"SELECT {COLUMNS} FROM notes WHERE owner = ? AND seq IN {LISTED}"  # noqa: S608
        listing = list(seqs)
        try:
            found = list(rows(db, sql, (self._owner, listed(listing))))
            return [self._readable(each) for each in found]
        except (UnicodeError, StoreCorrupt) as e:
            if len(listing) == 1:
                id = row(db, "SELECT id FROM notes WHERE seq = ? AND owner = ?", (listing[0], self._owner))
                raise StoreCorrupt(f"{self._path}: the note {id and id[0]} is damaged ({e}); others can be read") from e
        readable: list[Entry] = []
        for seq in listing:  # one damaged note hides no other
            with suppress(StoreCorrupt):
                readable += self._entries(db, [seq])
        return readable

    def _readable(self, found: Row) -> Entry:
        try:
            return as_entry(found)
        except (ValueError, TypeError) as e:
            raise StoreCorrupt(f"{self._path}: the note {found[1]} is damaged ({e}); the others can be read") from e

    def _seq_of(self, db: apsw.Connection, id: str) -> int:
        found = row(db, "SELECT seq FROM notes WHERE id = ? AND owner = ?", (id, self._owner))
        if found is None:
            raise _unknown(id)
        return int(found[0])

    def _put_key(self, db: apsw.Connection, seq: int, draft: Draft) -> None:
        if draft.key is not None:
            run(db, "INSERT INTO keys VALUES (?,?,?)", (draft.key, seq, draft.fingerprint))
            sql = "UPDATE notes SET keys = json_insert(keys, '$[#]', ?) WHERE seq = ? AND owner = ?"
            run(db, sql, (draft.key, seq, self._owner))

    def _put_vectors(self, db: apsw.Connection, seq: int, draft: Draft) -> None:
        if draft.vectors is not None:
            put_vectors(db, seq, draft.embedder, draft.vectors)

    # -- the file ------------------------------------------------------------------------------------------------

    @contextmanager
    def reading(self) -> Generator[apsw.Connection | None]:
        """The open file, or None while nothing is stored. Each statement sees all finished writes, of anyone; within
        `snapshot`, those finished when it began."""
        if self._snapshot_of == threading.get_ident():
            yield self._connection
            return
        with self._guard, file.told(self._path):
            db = self._connect()
            if db is None or not (self._schema < migrate.newest() or self._leftover):
                yield db
                self._let_go_if_read_only()
                return
        with file.told(self._path, writing=True), self._lock.held(self._timeout), self._guard:
            if (db := self._connect()) is not None:
                self._update(db)
        with self._guard, file.told(self._path):
            yield self._connect()
            self._let_go_if_read_only()

    def _let_go_if_read_only(self) -> None:
        """A read-only file is opened anew each time: it cannot follow a writer."""
        if self._connection is not None and self._connection.readonly("main"):
            self._connection.close()
            self._connection = None

    def facts(self, db: apsw.Connection) -> dict[str, Any]:
        """What is true of the diary as a whole, by name: read again only when somebody has written."""
        if self._facts is None:
            self._facts, self._last_line = settings(db), last_line(db)
        return self._facts

    def last_line(self, db: apsw.Connection) -> int:
        self.facts(db)
        return self._last_line

    def synced(self, db: apsw.Connection, kept: Kept) -> Waiting:
        """The words of the notes that are not filed yet, as the database has them now."""
        waiting = self.waiting[kept]
        filed = int(self.facts(db).get(kept.filed, kept.first))
        waiting.sync(db, self._owner, self._last_line, filed)
        return waiting

    def _notice_writes(self, db: apsw.Connection) -> None:
        """Forgets the facts if another connection has written; this one's own writes forget them themselves."""
        found = row(db, "PRAGMA data_version")
        version = int(found[0]) if found else -1
        if version != self._version:
            self._version, self._facts = version, None
            self._schema = self._known_schema(db)  # another version of diarist may have changed it

    @contextmanager
    def snapshot(self) -> Generator[None]:
        with self.reading() as db:
            if db is None or db.in_transaction:
                yield
                return
            run(db, "BEGIN")
            self._notice_writes(db)  # which is also the read from which on the state stands still
            self._snapshot_of = threading.get_ident()
            try:
                yield
            finally:
                self._snapshot_of = None
                run(db, "ROLLBACK")

    @contextmanager
    def writing(self) -> Generator[apsw.Connection]:
        """One transaction, under the lock file; rolled back as a whole if anything in it fails."""
        with file.told(self._path, writing=True), self._held(), self._guard:
            if file.is_erasing(self._folder) and not file.finish_erasing(self._folder):
                raise StoreError(f"{self._folder}: is being erased, but another program keeps one of its files open")
            file.make_folder(self._root, self._folder)
            db = self._connect()
            if db is None:
                file.create(self._path, self._owner)
                db = self._connect()
            assert db is not None
            if self._schema < migrate.newest() or self._leftover:
                self._update(db)
            if db.readonly("main"):
                raise StoreError(f"{self._path}: is read-only: recall works, remember does not. Nothing was saved")
            run(db, "BEGIN IMMEDIATE")
            try:
                yield db
                run(db, "COMMIT")
                self._facts = None
            except BaseException:
                self._facts = None
                if not db.get_autocommit():
                    with suppress(apsw.Error):
                        run(db, "ROLLBACK")
                raise
            with suppress(apsw.Error):  # the write itself is done and durable; this is tried again with the next
                if setting(db, "unsettled", 0):
                    self._settle(db)  # begun by a call that was interrupted, or held up by a reader
                else:
                    file.checkpoint(db, self._path)

    @contextmanager
    def _held(self) -> Generator[None]:
        """The lock file, in a folder that is made if it is missing: again, if it was erased while we waited."""
        with ExitStack() as stack:
            for attempt in range(8):
                file.make_folder(self._root, self._folder)
                try:
                    stack.enter_context(self._lock.held(self._timeout))
                    break
                except FileNotFoundError:
                    if attempt == 7:
                        raise
            yield

    def _update(self, db: apsw.Connection) -> None:
        """Brings the file to this version's schema. Hold the lock."""
        if self._schema < migrate.newest():
            migrate.migrate(db, self._path)
            self._facts = None
            self._schema = migrate.schema_of(db)
        migrate.clear(self._path)
        self._leftover = False

    def settled(self) -> bool:
        """Freed pages were overwritten as they were freed (secure_delete); what is left is the write-ahead log."""
        with self.reading() as db:
            if db is None or not self.facts(db).get("unsettled", 0):
                return True
        with file.told(self._path), self._lock.held(self._timeout), self._guard:
            db = self._connect()
            return db is None or self._settle(db)

    def _settle(self, db: apsw.Connection) -> bool:
        """Empties the log, so that nothing of what was erased is left in it. Hold the lock."""
        db.set_busy_timeout(0)  # a reader who still needs the state before is not waited for
        try:
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
            run(db, "UPDATE diary SET value = 0 WHERE name = 'unsettled'")
            self._facts = None
        except apsw.Error:
            return False
        finally:
            db.set_busy_timeout(int(self._timeout * 1000))
        return True

    def close(self, *, wait: float = 2.0) -> bool:
        """Lets the file go; the next call opens it again. Under the lock, since the last one to close checkpoints.
        False if the diary was in use for longer than `wait` seconds: it then stays open."""
        try:
            with nullcontext() if self._connection is None else self._lock.held(wait):
                return self._let_go(wait)
        except StoreBusy:
            return False
        except OSError:  # a read-only folder has no lock file, and needs none
            return self._let_go(wait)

    def _let_go(self, wait: float) -> bool:
        if not self._guard.acquire(timeout=wait):
            return False
        try:
            if self._connection is not None and not self._inherited():
                self._connection.close()
            self._connection, self._identity = None, None
            return True
        finally:
            self._guard.release()

    def _connect(self) -> apsw.Connection | None:
        """The open file; opened anew if it was erased and made again, or if this process is a fork."""
        if file.is_erasing(self._folder):
            with suppress(StoreBusy, OSError), self._lock.held(0):
                file.finish_erasing(self._folder)
            return None
        try:
            stat = os.stat(self._name)
            identity = (stat.st_dev, stat.st_ino, os.getpid())
        except FileNotFoundError:
            file.refuse_link(self._path)
            identity = None
        if identity == self._identity and self._connection is not None:
            self._notice_writes(self._connection)
            return self._connection
        if self._connection is not None and not self._inherited():
            self._connection.close()
        self._connection, self._identity = None, None
        if identity is None:
            return None
        self._opened(self)
        db = file.open_existing(self._path, busy_ms=int(self._timeout * 1000))
        about = settings(db)
        if about.get("owner") != self._owner:
            db.close()
            raise StoreCorrupt(
                f"{self._path}: is the diary of another owner, in the wrong folder; it was left alone. If the folder"
                " was copied, remove the copy: diarist export and import --rename copy a diary to another owner"
            )
        self._secret = bytes(about["secret"])
        self._version, self._facts = -1, None
        self.waiting = {kept: Waiting(kept) for kept in (NOTES, MESSAGES)}
        self._leftover = migrate.left(self._path)
        self._connection, self._identity, self._schema = db, identity, self._known_schema(db)
        return db

    def _known_schema(self, db: apsw.Connection) -> int:
        schema = migrate.schema_of(db)
        if schema > migrate.newest():
            known = migrate.newest()
            raise SchemaTooNew(f"{self._path}: has schema {schema}, this diarist knows up to {known}; upgrade diarist")
        return schema

    def _inherited(self) -> bool:
        """In a forked child the parent's connection must not be touched, not even to close it: it is kept for good."""
        if self._identity is not None and self._identity[2] != os.getpid():
            _INHERITED.append(self._connection)
            return True
        return False


class _Old:
    """What a note was before it changed."""

    def __init__(self, seq: int, words: int, pending: int, filed: bool) -> None:
        self.seq, self.words, self.pending, self.filed = seq, words, pending, filed


_INHERITED: list[Any] = []
_LEAST_SOUGHT = 8  # bytes
_KEYS_OF = "SELECT value FROM notes, json_each(notes.keys) WHERE seq = ? AND owner = ?"


def _holds(db: apsw.Connection, text: str) -> bool:
    """Whether a note or message that is still kept holds the text within it, whatever the case, or among its words."""
    for table in ("notes", "messages"):
        sql = f"SELECT 1 FROM {table} WHERE instr(lower(text), lower(?1)) OR instr(words, ?1) LIMIT 1"  # noqa: S608
        if row(db, sql, (text,)) is not None:
            return True
    return False


def _unknown(id: str) -> NotFound:
    return NotFound(f"no note with id {id!r} in this diary")
