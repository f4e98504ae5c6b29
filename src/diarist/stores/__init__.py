"""Where diaries are kept: what a store must do, and which store a name opens.

A store returns facts about one owner; Python ranks them. `StoreContract` in `testing.py` says in tests what the
protocol means: a new store is a class that passes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from ..erasure import ErasureReport
from ..note import Note, Origin

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class Draft:
    """A note on its way into a store: validated, analysed, embedded where the embedder was there."""

    text: str
    words: tuple[str, ...]
    """What it is found by: the terms of `analysis.terms`, in order, with repetition."""
    fingerprint: bytes
    """Equal for two texts that are the same after folding case, space and width."""
    created_at: datetime
    vectors: NDArray[np.float32] | None = None
    """Shape (windows, dim), unit length; None where the embedder was down: the note is then pending."""
    embedder: str = ""
    happened_at: datetime | None = None
    expires_at: datetime | None = None
    source: str | None = None
    origin: Origin = "owner_said"
    tags: tuple[str, ...] = ()
    replaces: tuple[str, ...] = ()
    key: str | None = None
    session: str | None = None
    flagged_for: tuple[str, ...] = ()
    """Why it reads like instructions; () if it does not."""
    released: bool = False


@dataclass(frozen=True, slots=True)
class Entry:
    """A stored note with what its place in time needs."""

    seq: int
    """The store's own number for it: never given twice, larger for later notes."""
    note: Note
    first_at: datetime
    """When the same text was first written."""
    replaced_at: datetime | None
    """From when the note that replaced it holds: its `happened_at`, else when it was written."""
    replaced_from: datetime | None
    """The `happened_at` alone: until a date yet to come the old note still holds, whatever the clocks say."""
    order: tuple[datetime, int]
    """Newest is largest: its date (never before the note written before it), then the store's sequence."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A note with what only its store knows of it."""

    note: Note
    first_at: datetime
    replaced_at: datetime | None
    order_at: datetime
    keys: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which notes are asked for. The defaults are those that hold now."""

    now: datetime
    since: datetime | None = None
    """At or after this moment."""
    before: datetime | None = None
    """Earlier than this moment."""
    as_of: datetime | None = None
    """Those that held at this moment."""
    tags: tuple[str, ...] = ()
    """Bearing all of these."""
    source: str | None = None
    include_replaced: bool = False
    """Those that no longer hold too: replaced or expired."""
    include_quarantined: bool = False
    """Those that are kept out of recall too, see `Note.quarantined`."""

    @property
    def narrow(self) -> bool:
        """Whether it can leave out most of a diary, so that a search must look only at what it lets through."""
        return bool(self.since or self.before or self.tags or self.source is not None)

    def holds(self, entry: Entry) -> bool:
        """Whether the note is let through and held at that moment: written by then, not replaced, not expired."""
        note, moment = entry.note, self.as_of or self.now
        if note.quarantined and not self.include_quarantined:
            return False
        if self.as_of is not None and (note.happened_at or entry.first_at) > moment:
            return False
        if self.include_replaced:
            return True
        if note.expires_at is not None and note.expires_at <= moment:
            return False
        until = entry.replaced_from if self.as_of is None else entry.replaced_at
        return note.replaced_by is None or (until is not None and until > moment)


@dataclass(frozen=True, slots=True)
class Posting:
    """Where one word stands."""

    notes: int
    """How many notes hold it, in the whole diary."""
    seqs: NDArray[np.int64]
    """Some of them, the newest always among them: all, where they are fewer than was asked for."""
    times: NDArray[np.int64]
    """How often it stands in each of these."""


class Outlined(NamedTuple):
    """What is known of a note, or message, before it is read."""

    seq: int
    length: int
    """Of its words, in bytes."""
    speaker: str | None
    """A note's source, a message's `name`."""
    session: str = ""
    """Of a message only, as its number."""
    number: int = 0


class Owed(NamedTuple):
    """A text that waits for its vector."""

    seq: int
    text: str
    heading: str
    """What stands before it when it is embedded."""


@dataclass(frozen=True, slots=True)
class Counts:
    notes: int
    """Notes stored, replaced and expired ones included."""
    words: int
    """Words in all of them together."""
    pending: int
    """Notes that wait for a vector."""


@dataclass(frozen=True, slots=True)
class MessageDraft:
    """A message on its way into a session."""

    message: str
    """JSON, as it is sent to a model."""
    text: str
    """What is searched; "" where there is nothing to search."""
    words: tuple[str, ...]
    speaker: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True)
class SessionRow:
    id: str
    created_at: datetime
    ended_at: datetime | None
    expires_at: datetime | None
    messages: int
    last_at: datetime


class Shelf(Protocol):
    """What recall searches: the notes of a diary, or the messages of its sessions."""

    @property
    def owner(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def secret(self) -> bytes: ...
    def snapshot(self) -> AbstractContextManager[None]: ...
    def setting(self, name: str) -> str | int | bytes | None: ...
    def counts(self) -> Counts: ...
    def words_of(self, seqs: Iterable[int]) -> dict[int, list[str]]: ...
    def entries(self, seqs: Iterable[int]) -> list[Entry]: ...
    def newest(self, limit: int) -> list[int]: ...
    def select(self, filter: Filter) -> NDArray[np.int64]: ...
    def postings(self, words: Sequence[str], most: int) -> dict[str, Posting]: ...
    def outline(self, seqs: Sequence[int] | None = None) -> Iterable[Outlined]: ...
    def pending(self, limit: int, after: int = 0) -> list[Owed]: ...
    def attach(self, embedder: str, vectors: Sequence[tuple[int, str, NDArray[np.float32]]], at: datetime) -> None: ...
    def owe_vectors(self, embedder: str, *, anew: bool = False) -> int: ...
    def position(self) -> int: ...
    def changed(self, since: int) -> list[int]: ...
    def vectors(self, seqs: Sequence[int] | None = None) -> Iterable[tuple[int, str, bytes]]: ...


class MessageStore(Shelf, Protocol):
    """The sessions of a diary. See `Shelf` for how their messages are searched."""

    def append(self, session: str, drafts: Sequence[MessageDraft], expires_at: datetime | None) -> list[str]:
        """Keeps messages in order at the end of a session, which is made or taken up; returns their ids."""
        ...

    def messages(self, session: str) -> tuple[list[tuple[str, str, datetime]], list[int]]:
        """(id, JSON, when it was written) of each message in order, and the numbers of those that are damaged."""
        ...

    def sessions(self) -> list[SessionRow]:
        """The one written to last first."""
        ...

    def end(self, session: str, at: datetime) -> None: ...
    def forget(self, session: str, at: datetime) -> list[str]:
        """Removes a session; returns the text of each message that is gone, "" for one that was not searched. NotFound
        if there is none."""
        ...


class DiaryStore(Protocol):
    """What is kept about one owner. No call can reach another owner's notes; each sees all finished writes."""

    @property
    def owner(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def messages(self) -> MessageStore: ...
    @property
    def secret(self) -> bytes:
        """Random bytes of this diary's own; b"" while nothing is stored."""
        ...

    def snapshot(self) -> AbstractContextManager[None]:
        """Within it the calls of this thread see one state, and cost less. Nothing may be written there; other threads
        wait."""
        ...

    def setting(self, name: str) -> str | int | bytes | None:
        """A small fact about the diary as a whole, such as its "timezone"; None if it was never set."""
        ...

    def set_setting(self, name: str, value: str | int | bytes | None) -> None: ...

    def write(self, drafts: Sequence[Draft]) -> list[Note]:
        """Keeps all of them or none, in one durable transaction: text, words, vectors and history.

        A draft whose key was used before gives that note back (ValueError if the text is another one). One whose
        text is the same as a current note's refreshes that note. NotFound if `replaces` names an unknown id. A note
        that is quarantined replaces nothing until it is released, corrected or said by someone who may say it.
        """
        ...

    def edit(self, id: str, draft: Draft) -> Note:
        """Puts the draft's text, words and vectors in the place of the old, which are gone."""
        ...

    def release(self, id: str, at: datetime, flagged_for: Sequence[str] = ()) -> Note:
        """Marks a flagged note as one that a person has read, and writes that into the history, once. `flagged_for`:
        why it is flagged, where the store does not know yet. A note with no flag stays as it is."""
        ...

    def forget(self, ids: Sequence[str], at: datetime) -> None:
        """Removes all of them or, if one is unknown, none (NotFound). Their ids stay in the history."""
        ...

    def settled(self) -> bool:
        """Whether everything that was erased so far is gone from the files. Tries to bring it about; False while
        another process still reads the state before."""
        ...

    def sample(self, embedder: str) -> tuple[str, bytes] | None:
        """Text and float16 numbers of the first window of the oldest note that was embedded without a heading, by this
        embedder."""
        ...

    def residue(
        self, texts: Sequence[str], vectors: Sequence[bytes], words: Sequence[str] = ()
    ) -> tuple[list[str], list[str]]:
        """(where it looked, where one of these is still to be found). What it can remove, it removes."""
        ...

    def forgotten(self) -> set[str]:
        """Ids of all notes that were ever forgotten here."""
        ...

    def keep_forgotten(self, ids: Iterable[str], at: datetime) -> None:
        """Adds ids that were forgotten in another copy of this diary."""
        ...

    def older(self, than: datetime) -> list[str]:
        """Ids of the notes last said before that moment."""
        ...

    def dump(self) -> list[Stored]:
        """Every note with all that is needed to keep it elsewhere, in the order in which they were last said."""
        ...

    def load(
        self,
        notes: Sequence[tuple[Stored, Draft]],
        sessions: Sequence[tuple[SessionRow, Sequence[MessageDraft]]] = (),
    ) -> int:
        """Keeps notes of a dump under their own ids, and sessions with their messages, all or none; those that are
        there already stay as they are. Returns how many notes were new."""
        ...

    def inspect(self) -> list[tuple[str, str, str]]:
        """(subject, what was found, what to do or "") of the files: integrity, engine, rights, free space."""
        ...

    def owe_vectors(self, embedder: str, *, anew: bool = False) -> int:
        """Marks every note without a vector of this embedder as pending, in one transaction; returns how many are.
        With `anew` its vectors are removed first, so that every note is."""
        ...

    def attach(self, embedder: str, vectors: Sequence[tuple[int, str, NDArray[np.float32]]], at: datetime) -> None:
        """Gives pending notes their vectors: (seq, the text that was embedded, array (windows, dim)).
        Passes over notes that were edited or forgotten meanwhile."""
        ...

    def note(self, id: str) -> Note: ...
    def seq(self, id: str) -> int:
        """The store's number of a note."""
        ...

    def notes(self, filter: Filter, *, limit: int | None = None, offset: int = 0) -> list[Note]:
        """Newest first; of those that the filter lets through, `limit` after the first `offset`."""
        ...

    def count(self, filter: Filter) -> int:
        """How many notes hold, without reading them."""
        ...

    def twin(self, draft: Draft) -> Note | None:
        """The note that `write` would give back for this draft instead of making a new one."""
        ...

    def counts(self) -> Counts: ...
    def words_of(self, seqs: Iterable[int]) -> dict[int, list[str]]:
        """What these notes are found by; only those that exist."""
        ...

    def entries(self, seqs: Iterable[int]) -> list[Entry]:
        """Those of them that exist, in no particular order."""
        ...

    def newest(self, limit: int) -> list[int]:
        """Seqs of the notes written last, newest first."""
        ...

    def select(self, filter: Filter) -> NDArray[np.int64]:
        """Seqs, ascending, of the notes within the filter's dates, tags and source, whether or not they hold now."""
        ...

    def postings(self, words: Sequence[str], most: int) -> dict[str, Posting]:
        """Where each word stands; for a common word only about the newest `most` places are read."""
        ...

    def outline(self, seqs: Sequence[int] | None = None) -> Iterable[Outlined]:
        """Of all notes, or of those among these that exist, by ascending seq."""
        ...

    def pending(self, limit: int, after: int = 0) -> list[Owed]:
        """The notes that wait for a vector, oldest first, with a seq above `after`."""
        ...

    def page(self) -> str:
        """The page beside the diary, as anybody last left it; "" if there is none."""
        ...

    def change_page(self, change: Callable[[str], str]) -> str:
        """Puts change(page) in the page's place, durably, while nobody else can write it; returns the new page."""
        ...

    def position(self) -> int:
        """Grows with every change: who remembers it can ask later what changed since."""
        ...

    def changed(self, since: int) -> list[int]:
        """Seqs of the notes that were written, edited, embedded or forgotten after that position."""
        ...

    def vectors(self, seqs: Sequence[int] | None = None) -> Iterable[tuple[int, str, bytes]]:
        """(seq, embedder id, little-endian float16 numbers) of every window, or of those notes', by ascending seq."""
        ...


class Store(Protocol):
    """Where a memory's diaries live."""

    @property
    def path(self) -> str:
        """How a person would name the place."""
        ...

    def diary(self, owner: str) -> DiaryStore:
        """The owner's part. Nothing is created until something is written."""
        ...

    def owners(self) -> list[str]: ...
    def setting(self, name: str) -> Any:
        """Something about the memory as a whole, as plain JSON data; None if it was never set."""
        ...

    def set_setting(self, name: str, value: Any) -> None: ...
    def back_up(self, to: Path, at: datetime) -> list[str]:
        """Copies everything to a new place while others write; returns the owners."""
        ...

    def restore(self, backup: Path, *, overwrite: bool, draft_of: Callable[[Stored], Draft]) -> dict[str, int]:
        """Brings a backup back, and applies again what was erased since; for each owner how many notes that were."""
        ...

    def erase(self, owner: str, at: datetime, unchanged_since: int | None = None) -> ErasureReport | None:
        """Removes everything about an owner, the page too; an interrupted erasure is finished by whoever comes next.
        With `unchanged_since` only if the diary is still at that position, else None and nothing is removed."""
        ...

    def close(self) -> None: ...


def open_store(place: str | Path, *, busy_timeout: float) -> Store:
    """The store that a path names. Nothing is read or created yet."""
    from .folder import FolderStore

    return FolderStore(Path(place), busy_timeout=busy_timeout)
