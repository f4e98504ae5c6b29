"""`Memory`: where diaries live, plus one embedder. It opens diaries and lists owners; the verbs are in `diary.py`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from .checks import checked_days, checked_list, checked_owner, checked_place, checked_zone
from .diary import Diary
from .embedders import Embedder, open_embedder, scale
from .embedders.scale import Measured, Scale
from .erasure import ErasureReport
from .errors import StoreError
from .held import Held
from .outline import Outline
from .redaction import POLICIES, Policy
from .scan import Nearest
from .stores import Shelf, open_store

_SCALES = "scales"  # the memory's setting with what each embedder's cosines are worth, by its id


def _system_clock() -> datetime:
    return datetime.now(UTC)


class Memory:
    """A place that keeps a diary for each owner: a folder, made when the first note is written.

    >>> memory = Memory("memory")
    >>> diary = memory.diary("c-2291")
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        embedder: str | Embedder = "bundled",
        clock: Callable[[], datetime] = _system_clock,
        busy_timeout: float = 30.0,
        retention_days: int | None = None,
        secrets: Policy = "keep",
    ) -> None:
        """`path`: the folder. `embedder`: see `open_embedder`; no model is loaded before the first text.
        `clock`: returns an aware datetime. `busy_timeout`: seconds to wait for another process that is writing
        before `StoreBusy`. `retention_days`: notes last said longer ago are erased; a diary may have its own.
        `secrets`: what is done about keys, passwords and card numbers in a text, before it is embedded or kept: "keep"
        them, "mask" them, or "refuse" the text (ValueError). Opening creates and reads nothing."""
        place = os.fspath(path)
        if not isinstance(place, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the memory's path must be text or a Path, not {type(path).__name__}")
        checked_place(place)
        if not isinstance(busy_timeout, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"busy_timeout must be a number of seconds, not {type(busy_timeout).__name__}")
        if not 0 <= busy_timeout < float("inf"):
            raise ValueError(f"busy_timeout must be a number of seconds, not {busy_timeout!r}")
        self._store = open_store(place, busy_timeout=busy_timeout)
        self._embedder = open_embedder(embedder)
        self._scale: Scale | None = None
        self._clock = clock
        self.retention_days = checked_days(retention_days)
        """Notes last said longer ago than this are erased; None keeps them for good."""
        if secrets not in POLICIES:
            raise ValueError(f"secrets must be one of {', '.join(map(repr, POLICIES))}, not {secrets!r}")
        self.secrets: Policy = secrets
        """What is done about secrets in a text that is to be kept."""
        self.held = Held()
        """What is in memory of the diaries, within a budget."""
        self._done: dict[str, datetime] = {}

    def diary(self, owner: str, *, timezone: str | None = None, shared: Iterable[str] = ()) -> Diary:
        """The diary of one owner; every call on it is about that owner and can be about no other.

        `owner`: any text but blank, NUL, lone surrogates or over 1,024 characters, taken literally ("A" is not "a").
        `timezone`: an IANA name such as "Europe/Paris", in which dates are shown; remembered with the diary.
        `shared`: owners whose diaries `recall` reads too, such as the shop's own; nothing is ever written to them.
        """
        names = [checked_owner(other) for other in checked_list(shared, "shared")]
        others = [self._store.diary(name) for name in names if name != owner]
        return Diary(self, self._store.diary(checked_owner(owner)), checked_zone(timezone), others)

    def owners(self) -> list[str]:
        """Everyone of whom something is kept."""
        return self._store.owners()

    def erase(self, owner: str) -> ErasureReport:
        """Erases everything about an owner: notes, words, vectors, history, sessions and page. The report says what
        was checked; the memory's ledger keeps that it happened, under a keyed hash of the owner."""
        report = self._store.erase(checked_owner(owner), self.now())
        self.held.forget(owner)
        assert report is not None
        return report

    def merge(self, source: str, into: str) -> int:
        """Makes two owners one, such as a guest who became a customer: every note of `source` is kept in the diary of
        `into` under its id, the page is joined, and `source` is erased. Returns how many notes moved.

        PageFull if the two pages together do not fit; nothing then changes. If it is interrupted, call it again. What
        somebody writes to `source` meanwhile moves too.
        """
        old, new = self.diary(source), self.diary(into)
        if old.owner == new.owner:
            raise ValueError(f"{source!r} cannot be merged into itself")
        store, moved = self._store.diary(old.owner), 0
        while True:
            position = store.position()
            new.page.join(old.page.read())
            moved += new.take_over(old.export() | {"page": "", "timezone": None, "retention_days": None})
            report = self._store.erase(old.owner, self.now(), unchanged_since=position)
            if report is None:
                continue  # somebody wrote to it meanwhile
            if report.pending:
                raise StoreError(
                    f"the notes moved to {into!r}, but a file of {source!r} is held open and could not be removed yet:"
                    " end the other program and erase it"
                )
            return moved

    def backup(self, to: str | os.PathLike[str]) -> list[str]:
        """Copies the whole memory to a new folder while others go on writing; returns the owners. It holds every note
        that was acknowledged before the call. StoreError if something is at `to` already."""
        return self._store.back_up(Path(to), self.now())

    def restore(self, backup: str | os.PathLike[str], *, overwrite: bool = False) -> dict[str, int]:
        """Brings the diaries of a backup back; returns for each owner how many later deletions were applied again.

        An owner who is here already is refused unless `overwrite`; with it their diary is put back as it was then, and
        notes remembered since are gone. What was forgotten, corrected by `edit` or erased since stays so all the same,
        and a page that is here stays. All diaries are made ready before the first is put in place.
        StoreError if it is no backup, or would overwrite; nothing then changes.
        """
        back = self._store.restore(
            Path(backup), overwrite=overwrite, draft_of=lambda stored: self.diary(stored.note.owner).draft_of(stored)
        )
        self.held.clear()
        return back

    def calibrate(self, pairs: Sequence[tuple[str, str]] | None = None) -> Measured:
        """Measures what the embedder's cosines are worth, and keeps it with this memory: every score made here from
        now on goes by it. For an embedder of your own, behind an endpoint or an object; the bundled ones are measured.

        `pairs`: at least ten (note, question) of your own, each answered by its own note only; without them ninety
        everyday ones in English, French and Spanish are embedded. EmbedderError if the embedder is down; nothing then
        changes. Other processes that have the memory open go by it once they open it again."""
        found = scale.measure(self._embedder, pairs)
        known: dict[str, Any] = self._store.setting(_SCALES) or {}
        self._store.set_setting(_SCALES, {**known, self._embedder.id: asdict(found.scale)})
        self._scale = found.scale
        return found

    def close(self) -> None:
        """Lets every file go. What was acknowledged was on the disk before."""
        self._store.close()
        self.held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Memory({self._store.path!r})"

    # -- for Diary ----------------------------------------------------------------------------------------------

    @property
    def embedder(self) -> Embedder:
        """What turns texts into vectors here."""
        return self._embedder

    @property
    def scale(self) -> Scale:
        """What the embedder's cosines are worth: as it was calibrated here, else as it says itself, else a guess."""
        if self._scale is None:
            known: dict[str, Any] = self._store.setting(_SCALES) or {}
            held = known.get(self._embedder.id)
            self._scale = (Scale(**held) if held else scale.own(self._embedder)) or scale.UNKNOWN
        return self._scale

    def now(self) -> datetime:
        """The clock's time in UTC."""
        moment = self._clock()
        if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the memory's clock gave {moment!r}, not a datetime; return datetime.now(UTC)")
        if moment.utcoffset() is None:
            raise ValueError(f"the memory's clock gave {moment!r}, which has no UTC offset; return datetime.now(UTC)")
        return moment.astimezone(UTC)

    def due(self, chore: str, now: datetime) -> bool:
        """Whether a chore was not done within the last hour; if so it counts as done now."""
        last = self._done.get(chore)
        if last is not None and last <= now < last + timedelta(hours=1):
            return False
        self._done[chore] = now
        return True

    def nearest(self, store: Shelf) -> Nearest:
        """A diary's vectors, in step with the store. Loaded on first use, let go when memory is needed."""
        return self.held.get(("vectors", store.owner, store.kind), lambda: Nearest(store, self._embedder))

    def outline(self, store: Shelf) -> Outline:
        """What is known of a diary's notes before they are read, in step with the store."""
        return self.held.get(("outline", store.owner, store.kind), lambda: Outline(store))
