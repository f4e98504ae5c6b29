"""`Diary`: everything kept about one owner, and the verbs on it, top to bottom. Read this file first.

remember -> check it, turn it into words and a vector, one durable transaction
recall   -> find by words and by meaning, judge, date, say what the answer is worth
notes, note, edit, forget -> see, correct, erase
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Literal, cast
from zoneinfo import ZoneInfo

from . import analysis, calibration, checks, doctor, embedders, portable, redaction, suspicion
from . import recall as _recall
from .doctor import Finding
from .erasure import ErasureReport
from .errors import EmbedderError, NotFound, StoreError
from .focus import WEIGHT, focus
from .guard import without_blocks
from .heading import heading
from .note import Hit, Note, Origin, Recall
from .page import Page
from .scan import Nearest
from .session import Session, SessionInfo
from .stores import DiaryStore, Draft, Filter, MessageDraft, SessionRow, Shelf, Stored

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .close_day import ClosedDay
    from .events import EventBus
    from .memory import Memory
    from .model import Model
    from .tool import Tool

Where = Literal["notes", "sessions", "all"]
When = datetime | str
_BATCH = 64  # notes embedded between two writes of vectors
_ASK_MODEL_EVERY = timedelta(days=7)
_SAME_MODEL = 0.99  # cosine: rounding and batching move a vector less than this, another model more
_CATCH_UP = 0.2  # seconds that a remember or recall may spend on vectors still owed


class Diary:
    """One owner's diary, from `Memory.diary`. Cheap to make, safe to share between threads."""

    def __init__(
        self, memory: Memory, store: DiaryStore, zone: ZoneInfo | None, shared: Sequence[DiaryStore] = ()
    ) -> None:
        self._memory = memory
        self._store = store
        self._zone = zone
        self._shared = shared
        self._page = Page(store, allowed=self._allowed)

    @property
    def owner(self) -> str:
        """Whom it is about."""
        return self._store.owner

    @property
    def timezone(self) -> str:
        """The IANA name of the zone in which dates are shown; "UTC" if none was ever given."""
        return self._zone.key if self._zone else str(self._store.setting("timezone") or "UTC")

    def __repr__(self) -> str:
        return f"Diary({self.owner!r})"

    # -- remember ------------------------------------------------------------------------------------------------

    def remember(
        self,
        text: str,
        *,
        replaces: Sequence[str] | None = None,
        happened_at: When | None = None,
        expires_at: When | None = None,
        source: str | None = None,
        origin: Origin = "owner_said",
        tags: Iterable[str] | None = None,
        key: str | None = None,
        session: str | None = None,
    ) -> Note:
        """Keeps one fact; when this returns it is on the disk.

        `text`: up to 64,000 characters, kept as given. The same text again (but for case, space and width) is the
        same note with a fresh date. `replaces`: ids of notes that are no longer so; they are kept out of sight.
        `happened_at`, `expires_at`: aware datetimes or ISO 8601 text with an offset. `key`: a retry with the same
        key makes no second note. `session`: the id of the session in which it was said. If the embedder is down the
        note is kept all the same, `pending` is true, and its vector is made later.

        A block of recalled notes that is handed back is left out, and secrets as `Memory(secrets=...)` says. A text
        that reads like instructions is `flagged`; one of a third party is then kept out of recall until `release`.

        Raises ValueError or TypeError for bad input, NotFound for an unknown id in `replaces`, StoreError if it
        could not be saved; nothing is then half-kept.
        """
        draft = self._draft(
            text,
            replaces=replaces,
            happened_at=happened_at,
            expires_at=expires_at,
            source=source,
            origin=origin,
            tags=tags,
            key=key,
            session=session,
        )
        twin = self._store.twin(draft)
        if twin is None or twin.pending:
            vectors, _ = self._embed([(heading(draft.source, draft.happened_at), draft.text)])
            draft = replace(
                draft, vectors=vectors[0], embedder=self._memory.embedder.id if vectors[0] is not None else ""
            )
        note = self._store.write([draft])[0]
        with suppress(StoreError):  # the note is on the disk: what fails now must not say that it is not
            self._keep_zone()
            if draft.vectors is not None:
                self._catch_up(_CATCH_UP)
            self._retire(self.retention_days)
        return note

    def remember_many(
        self,
        notes: Iterable[str | Mapping[str, Any]],
        *,
        progress: Callable[[int, int], object] | None = None,
        defer: bool = False,
    ) -> list[Note]:
        """Keeps many facts, all or none, in the order given; each a text or a dict of `remember`'s arguments.

        The texts are saved first, in one transaction, and found by their words at once; the vectors follow in
        batches. `progress(done, total)` is called as notes become complete. `defer=True` returns after the texts;
        the vectors are then made by later calls. If the embedder fails the notes stay, marked `pending`.
        Raises as `remember` does, naming the position of a bad one; nothing is then saved.
        """
        if isinstance(notes, str | Mapping) or not isinstance(notes, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("remember_many takes a list of notes; for a single one use remember")
        drafts = [self._numbered_draft(number, each) for number, each in enumerate(notes)]
        if not drafts:
            return []
        written = self._store.write(drafts)
        with suppress(StoreError):  # the notes are on the disk: what fails now must not say that they are not
            self._keep_zone()
            return self._completed(written, progress, defer)
        return written

    def _completed(self, written: list[Note], progress: Callable[[int, int], object] | None, defer: bool) -> list[Note]:
        total, owed = len(written), len({note.id for note in written if note.pending})
        before = self._store.counts().pending - owed  # owed since earlier, and made first

        def tell(made: int) -> None:
            if progress is not None:
                progress(total - owed + min(owed, max(0, made - before)), total)

        tell(0)
        if defer or not owed:
            return written
        self._catch_up(None, tell)
        if not self._store.counts().pending:  # none failed, so none need be read again
            return [replace(note, pending=False) if note.pending else note for note in written]
        return [self._fresh(note) if note.pending else note for note in written]

    # -- recall --------------------------------------------------------------------------------------------------

    def recall(
        self,
        question: str,
        *,
        limit: int = 8,
        where: Where = "notes",
        since: When | None = None,
        before: When | None = None,
        as_of: When | None = None,
        now: When | None = None,
        tags: Iterable[str] | None = None,
        source: str | None = None,
        include_replaced: bool = False,
        min_score: float | None = None,
    ) -> Recall:
        """The notes that answer a question best, each with a score from 0 to 1 and why, and a verdict on the whole.

        `since` (inclusive) and `before` (exclusive) bound the note's date; `as_of` asks what held at a moment; `now`
        stands in for the clock. `limit` is at most 1,000. `min_score` (inclusive) drops weaker hits; nothing else does.
        Replaced and expired notes are left out unless `include_replaced` or `as_of` asks for them. With the embedder
        down the answer goes by words alone and says so in `notices`. An empty diary asks no embedder.
        """
        asked, cut = checks.checked_question(question)
        if where not in ("notes", "sessions", "all"):
            raise ValueError(f"where must be 'notes', 'sessions' or 'all', not {where!r}")
        limit, floor = checks.checked_limit(limit), checks.checked_score(min_score)
        wanted = self._filter(since, before, as_of, now, tags, source, include_replaced)
        asked = asked if self._memory.secrets == "keep" else redaction.masked(asked)
        notices = [f"the question was cut to its last {checks.LONGEST_QUESTION:,} characters"] if cut else []
        with self._store.snapshot():
            zone, secret, owed = self._shown_zone(), self._store.secret, self.pending
            retention, shelves = self.retention_days, self._shelves(self._store, where)
        for store in self._shared:
            with store.snapshot():
                shelves += self._shelves(store, where)
        hits: list[Hit] = []
        if shelves:
            vector, why_not = self._embed_question(asked)
            if vector is not None and self._drifted():
                vector, why_not = None, "the model behind the embedder has changed; run `diarist reembed`"
            if vector is None:
                notices.append(f"searched by words only: {why_not}")
            elif owed:
                self._catch_up(_CATCH_UP)
                if where != "notes":
                    self._catch_up(_CATCH_UP, shelf=self._store.messages)
            ready = _recall.question(asked, vector, self._memory.scale, wanted.now, zone)
            for shelf in shelves:
                with shelf.snapshot():
                    nearest = None if vector is None else self._memory.nearest(shelf)
                    notices += self._shortcomings(shelf, nearest)
                    asking = ready
                    if vector is not None:
                        asking = replace(ready, vector=embedders.emphasised(vector, self._memory.embedder, shelf.kind))
                    hits += _recall.recall(shelf, self._memory.outline(shelf), nearest, asking, wanted, limit)
            if len(shelves) > 1:  # each score is of the note and the question alone, so they compare
                hits = sorted(hits, key=lambda hit: (round(hit.score, 9), hit.note.dated), reverse=True)[:limit]
        with suppress(StoreError):
            self._retire(retention)
        kept = tuple(_recall.marked(hit) for hit in hits if floor is None or hit.score >= floor)
        return Recall(question, kept, calibration.verdict(kept), tuple(notices), zone, secret)

    @staticmethod
    def _shelves(store: DiaryStore, where: Where) -> list[Shelf]:
        """What of a diary is searched, where there is anything."""
        both = (*((store,) if where != "sessions" else ()), *((store.messages,) if where != "notes" else ()))
        return [shelf for shelf in both if shelf.counts().notes]

    # -- see, correct, erase -------------------------------------------------------------------------------------

    def notes(
        self,
        *,
        include_replaced: bool = False,
        since: When | None = None,
        before: When | None = None,
        as_of: When | None = None,
        now: When | None = None,
        tags: Iterable[str] | None = None,
        source: str | None = None,
        include_quarantined: bool = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> list[Note]:
        """Every note that holds, newest first; with `include_replaced` those that were replaced or have expired too,
        with `include_quarantined` those that are kept out of recall, for a person to read. `limit` and `offset` give a
        page of them; `count` says how many there are."""
        wanted = self._filter(since, before, as_of, now, tags, source, include_replaced, include_quarantined)
        if offset < 0:
            raise ValueError(f"offset {offset} is before the first note; give 0 or more")
        if limit is not None:
            checks.checked_limit(limit)
        return self._store.notes(wanted, limit=limit, offset=offset)

    def count(
        self,
        *,
        include_replaced: bool = False,
        since: When | None = None,
        before: When | None = None,
        as_of: When | None = None,
        now: When | None = None,
        tags: Iterable[str] | None = None,
        source: str | None = None,
        include_quarantined: bool = False,
    ) -> int:
        """How many notes `notes` would give, without reading them."""
        wanted = self._filter(since, before, as_of, now, tags, source, include_replaced, include_quarantined)
        return self._store.count(wanted)

    @property
    def pending(self) -> int:
        """How many notes and messages are found by their words only, since their vectors are still owed."""
        return self._store.counts().pending + self._store.messages.counts().pending

    def note(self, id: str) -> Note:
        """One note, whatever became of it. NotFound for an unknown id and for another owner's alike."""
        return self._store.note(_checked_id(id))

    def release(self, id: str) -> Note:
        """Lets a note that reads like instructions be recalled, since a person has read it: one of a third party leaves
        its quarantine, and takes the places of the notes it replaces. It stays marked where it is shown. The history
        keeps when that was; a second time changes nothing. NotFound for an unknown id. No tool of a model does this.
        """
        note = self.note(id)
        return self._store.release(id, self._memory.now(), suspicion.reasons(note.text))

    def edit(self, id: str, text: str) -> Note:
        """Corrects a note: the new text takes the old one's place, and the old text is erased. The dates stay.

        A fact that changed is not corrected but replaced: `remember(..., replaces=[id])`.
        """
        draft, old = self._draft(text), self.note(id)
        vectors, _ = self._embed([(heading(old.source, old.happened_at), draft.text)])
        embedder = self._memory.embedder.id if vectors[0] is not None else ""
        note = self._store.edit(id, replace(draft, vectors=vectors[0], embedder=embedder))
        with suppress(StoreError):  # the correction is kept; what is left of the old text goes with the next erasure
            self._store.residue([old.text], (), _words_of([old.text]))
        return note

    def forget(self, id: str | Sequence[str]) -> ErasureReport:
        """Erases a note, or several at once (all or none): text, words and vectors, in every file of the diary.

        The report names where was looked and what is left, such as a page on which the same text was written. It is
        `pending` while another process still reads the state before. NotFound if an id is unknown.
        """
        if not isinstance(id, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"forget takes an id or a list of ids, not {type(id).__name__}")
        ids = [_checked_id(each) for each in dict.fromkeys([id] if isinstance(id, str) else id)]
        return self._erase(ids) if ids else ErasureReport(self._memory.now(), 0, 0, (), (), False)

    def _erase(self, ids: Sequence[str]) -> ErasureReport:
        texts = [self._store.note(id).text for id in ids]
        at = self._memory.now()
        self._store.forget(ids, at)
        return self._report(at, texts, notes=len(ids))

    def _report(self, at: datetime, texts: Sequence[str], *, notes: int = 0, messages: int = 0) -> ErasureReport:
        """Looks for what was just erased."""
        pending = not self._store.settled()
        looked, residue = self._store.residue(texts, (), _words_of(texts))
        page = analysis.fold(self._store.page())
        if "page.md" not in residue and any(analysis.fold(text) in page for text in texts):
            residue.append("page.md")  # a person may have written it with other spaces or capitals
        return ErasureReport(at, notes, messages, tuple(looked), () if pending else tuple(residue), pending)

    @property
    def retention_days(self) -> int | None:
        """Notes last said longer ago than this are erased; None keeps them for good."""
        days = self._store.setting("retention_days")
        return days if isinstance(days, int) else self._memory.retention_days

    @retention_days.setter
    def retention_days(self, days: int | None) -> None:
        self._store.set_setting("retention_days", checks.checked_days(days))

    def expire(self) -> ErasureReport:
        """Erases what the retention time has passed for. `remember` and `recall` do it too, once an hour."""
        days = self.retention_days
        old = [] if days is None else self._store.older(self._memory.now() - timedelta(days=days))
        return self.forget(old)

    # -- take along ----------------------------------------------------------------------------------------------

    def export(self) -> dict[str, Any]:
        """Everything kept about the owner, as plain data that `json` can write; `load` brings it back unchanged."""
        messages = self._store.messages
        return {
            "diarist": portable.FORM,
            "owner": self.owner,
            "timezone": self._store.setting("timezone"),
            "retention_days": self._store.setting("retention_days"),
            "page": self._store.page(),
            "notes": [portable.as_data(stored) for stored in self._store.dump()],
            "sessions": [portable.session_data(each, messages.messages(each.id)[0]) for each in messages.sessions()],
        }

    def load(
        self,
        exported: Mapping[str, Any],
        *,
        rename: bool = False,
        forgotten_too: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> int:
        """Keeps the notes of an export under their ids, and its sessions, all or none; returns how many notes were new.

        A note or session whose id is here already stays as it is, and a note that was forgotten here stays forgotten
        unless `forgotten_too`. The page is taken if there is none yet. Another owner's export is refused unless
        `rename`.
        Texts are looked at anew for instructions and secrets; a release in the export counts.
        ValueError or TypeError, with the position, for anything no export writes; nothing is then kept.
        """
        if isinstance(exported, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            exported = self._allowed_export(exported)
        return self.take_over(exported, rename=rename, forgotten_too=forgotten_too, progress=progress)

    def take_over(
        self,
        exported: Mapping[str, Any],
        *,
        rename: bool = True,
        forgotten_too: bool = False,
        progress: Callable[[int, int], object] | None = None,
    ) -> int:
        """`load` for what this memory keeps already: `Memory.merge` may not fail at a secret that was once let in."""
        if not isinstance(exported, Mapping) or not isinstance(exported.get("notes"), list):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("load takes what export gave, a dict with a list of notes")
        if exported.get("diarist") != portable.FORM:
            found = exported.get("diarist")
            raise ValueError(f"this is no diary that diarist exported (form {found!r}, not {portable.FORM})")
        if exported.get("owner") != self.owner and not rename:
            raise ValueError(
                f"this is the diary of {exported.get('owner')!r}, not of {self.owner!r}; rename=True takes it over"
            )
        forgotten = set[str]() if forgotten_too else self._store.forgotten()
        every = [portable.as_stored(each, self.owner, number) for number, each in enumerate(exported["notes"])]
        kept = [(stored, self.draft_of(stored)) for stored in every if stored.note.id not in forgotten]
        zone, days = checks.checked_zone(exported.get("timezone")), checks.checked_days(exported.get("retention_days"))
        page = exported.get("page") or ""
        if page:
            checks.checked_text(page, "the page", checks.LONGEST_TEXT)
            if not self._store.page():
                self.page.check(page)
        sessions = self._sessions_of(exported.get("sessions") or [])
        new = self._store.load(kept, sessions) if kept or sessions else 0
        if page:
            self._store.change_page(lambda now: now or page)
        if zone:
            self._store.set_setting("timezone", zone.key)
        if days is not None:
            self._store.set_setting("retention_days", days)
        if new:
            self._catch_up(None, lambda made: progress(min(made, new), new) if progress else None)
        if sessions:
            self._catch_up(None, shelf=self._store.messages)
        return new

    def _sessions_of(self, exported: object) -> list[tuple[SessionRow, list[MessageDraft]]]:
        """The sessions of an export that have messages, checked."""
        if not isinstance(exported, list):
            raise TypeError(f"the export's sessions are a {type(exported).__name__}, not a list; nothing was loaded")
        every = enumerate(cast("list[Any]", exported))
        return [found for number, each in every if (found := portable.as_session(each, number, self.session))[1]]

    def reembed(self, *, progress: Callable[[int, int], object] | None = None) -> int:
        """Makes the vectors that this memory's embedder cannot read anew, and those still owed, of notes and of the
        messages of sessions; returns how many texts.

        Safe to interrupt: what is done stays done, and the next call goes on from there. Until it has run, they are
        found by their words. `progress(done, total)` counts texts. EmbedderError if the embedder fails; nothing is
        lost.
        """
        embedder = self._memory.embedder
        # The same id with another model behind it: none of its vectors can stay.
        changed = bool(getattr(embedder, "drifts", False)) and self.drift() is not None
        # The notes come last: that the model has changed is known by one of them.
        owed = sum(each.owe_vectors(embedder.id, anew=changed) for each in (self._store.messages, self._store))
        if self._store.setting(f"drifted {embedder.id}"):
            self._store.set_setting(f"drifted {embedder.id}", None)
        done = 0
        for shelf in (self._store, self._store.messages):
            before = done
            done += self._catch_up(
                None, lambda made, before=before: progress(before + made, owed) if progress else None, shelf
            )
        if done < owed:
            why = self._embed([("", "still there?")])[1] or "some texts were refused"
            raise EmbedderError(f"{owed - done} of {owed} texts are still without vectors: {why}. Call reembed again")
        return done

    def catch_up(
        self, seconds: float | None = None, *, progress: Callable[[int, int], object] | None = None
    ) -> tuple[int, int]:
        """Makes vectors that are still owed, of notes and messages, for about so long; returns how many were made and
        how many are still owed. `remember` and `recall` do it for 0.2 s each; this is for a worker beside them, and for
        the end of a long import. `progress(done, total)` counts texts."""
        made, owed = 0, self.pending
        for shelf in (self._store, self._store.messages):
            if shelf.counts().pending:
                before = made
                made += self._catch_up(
                    seconds, lambda done, before=before: progress(before + done, owed) if progress else None, shelf
                )
        return made, self.pending

    @property
    def position(self) -> int:
        """Grows with every change of a note or message, whoever makes it: who remembers it knows when to look anew."""
        return self._store.position()

    # -- sessions ------------------------------------------------------------------------------------------------

    def session(self, id: str, *, expires_at: When | None = None) -> Session:
        """A session of this diary, new or taken up again; `id` is any text that may be an owner. `expires_at`, for a
        new one: from then on it is erased at the next chance."""
        checked = checks.checked_text(id, "the session's id", checks.LONGEST_OWNER)
        until, messages = checks.checked_time(expires_at, "expires_at"), self._store.messages

        def embed() -> int:
            return self._catch_up(None, shelf=messages)

        return Session(messages, checked, self._memory.now, until, embed, self._memory.secrets)

    def sessions(self) -> list[SessionInfo]:
        """All sessions, the one written to last first."""
        return [
            SessionInfo(each.id, each.created_at, each.last_at, each.ended_at, each.expires_at, each.messages)
            for each in self._store.messages.sessions()
        ]

    def forget_session(self, id: str) -> ErasureReport:
        """Erases a session with all its messages. NotFound if there is none."""
        at = self._memory.now()
        texts = self._store.messages.forget(checks.checked_text(id, "the session's id", checks.LONGEST_OWNER), at)
        return self._report(at, [text for text in texts if text], messages=len(texts))

    # -- the page ------------------------------------------------------------------------------------------------

    @property
    def page(self) -> Page:
        """The one page that goes whole into the system prompt."""
        return self._page

    def doctor(self) -> list[Finding]:
        """What is well with this diary, what is not, and what to do. Reads everything; changes nothing."""
        return doctor.examine(self, self._store, self._memory)

    # -- for an agent --------------------------------------------------------------------------------------------

    def tools(self) -> list[Tool]:
        """remember, recall, notes, forget, page and sessions as tools, bound to this diary: none takes an owner."""
        from .tools import memory_tools

        return memory_tools(self)

    def briefing(self) -> str:
        """Text for an agent's instructions: what is worth keeping, when to recall, how to treat what comes back; and
        the page, in a closed block. Made once at the start of a session, so that the prompt stays cacheable."""
        from .tools import briefing

        return briefing(self)

    def auto_recall(self, said: str) -> str:
        """For `Agent(..., auto_recall=diary.auto_recall)`: what is saved about what was just said, as text for the
        model. Where nothing fits it says so, and to ask."""
        from . import tools

        return tools.auto_recall(self, said)

    def close_day(self, session: Session, model: Model, *, events: EventBus | None = None) -> ClosedDay:
        """After a session: asks the model which facts of it are worth keeping, and keeps those that really were said.
        It only adds. See `close_day.py`."""
        from .close_day import close_day

        return close_day(self, session, model, events)

    def similar(self, id: str, *, limit: int = 3) -> list[Note]:
        """Notes that hold and say nearly the same as this one, nearest first, without another embedding."""
        seq, now = self._store.seq(_checked_id(id)), Filter(now=self._memory.now())
        nearest = self._memory.nearest(self._store)
        near = [other for other, cosine in nearest.neighbours(seq, limit + 8) if cosine >= self._memory.scale.same]
        held = {entry.seq: entry for entry in self._store.entries(near)}
        return [held[other].note for other in near if other in held and now.holds(held[other])][:limit]

    # -- inside --------------------------------------------------------------------------------------------------

    def _draft(
        self,
        text: str,
        *,
        replaces: Sequence[str] | None = None,
        happened_at: When | None = None,
        expires_at: When | None = None,
        source: str | None = None,
        origin: str = "owner_said",
        tags: Iterable[str] | None = None,
        key: str | None = None,
        session: str | None = None,
    ) -> Draft:
        text = self._own(checks.checked_text(text, "the note", checks.LONGEST_TEXT))
        return self._analysed(
            text,
            created_at=self._memory.now(),
            happened_at=checks.checked_time(happened_at, "happened_at"),
            expires_at=checks.checked_time(expires_at, "expires_at"),
            source=self._allowed(checks.checked_short(source, "source"), "the source"),
            origin=checks.checked_origin(origin),
            tags=checks.checked_list(tags, "tags"),
            replaces=checks.checked_list(replaces, "replaces"),
            key=checks.checked_short(key, "key"),
            session=checks.checked_short(session, "session", checks.LONGEST_OWNER),
        )

    def _own(self, text: str) -> str:
        """The text without what was read from a diary a moment ago, and as the policy on secrets lets it be kept."""
        new = without_blocks(text)
        if not new:
            raise ValueError("the note is only a block of notes that are saved already; give the new fact alone")
        return self._allowed(new, "the note")

    def _allowed(self, text: Any, what: str) -> Any:
        return redaction.allowed(text, self._memory.secrets, what) if text else text

    def _allowed_export(self, exported: Mapping[str, Any]) -> Mapping[str, Any]:
        """An export as the policy on secrets lets it be kept. What is no export is left for `take_over` to refuse."""
        notes, page = exported.get("notes"), exported.get("page")
        if self._memory.secrets == "keep" or not isinstance(notes, list):
            return exported
        told: list[Any] = []
        for number, each in enumerate(cast("list[Any]", notes)):
            if isinstance(each, Mapping):
                held = cast("Mapping[str, Any]", each)
                texts = {name: held[name] for name in ("text", "source") if isinstance(held.get(name), str)}
                what = f"note {number} (counting from 0) of the export"
                each = {**held, **{name: self._allowed(text, what) for name, text in texts.items()}}
            told.append(each)
        return {**exported, "notes": told, "page": self._allowed(page, "the page") if isinstance(page, str) else page}

    def _analysed(self, text: str, **fields: Any) -> Draft:
        return Draft(
            text=text,
            words=tuple(analysis.terms(text)),
            fingerprint=blake2b(analysis.fold(text).encode(), digest_size=16).digest(),
            flagged_for=suspicion.reasons(text),
            **fields,
        )

    def draft_of(self, stored: Stored) -> Draft:
        """A stored note ready to be written again; its vectors are made anew."""
        note = stored.note
        draft = self._analysed(
            note.text,
            created_at=stored.first_at,
            happened_at=note.happened_at,
            expires_at=note.expires_at,
            source=note.source,
            origin=note.origin,
            tags=note.tags,
            session=note.session,
        )
        if note.flagged:  # by other rules, elsewhere or earlier: a flag is not lost on the way
            why = tuple(dict.fromkeys([*note.flagged_for, *draft.flagged_for])) or ("marked elsewhere",)
            draft = replace(draft, flagged_for=why, released=note.released)
        return draft

    def _numbered_draft(self, number: int, each: str | Mapping[str, Any]) -> Draft:
        try:
            if isinstance(each, Mapping):
                unknown = set(each) - _FIELDS
                if unknown or "text" not in each:
                    wrong = f"unknown fields {sorted(unknown)}" if unknown else "no text"
                    raise ValueError(f"has {wrong}; known: {sorted(_FIELDS)}")
                return self._draft(**each)
            return self._draft(each)
        except (ValueError, TypeError) as e:
            raise type(e)(f"note {number} (counting from 0): {e}; nothing was saved") from e

    def _filter(
        self, since: When | None, before: When | None, as_of: When | None, now: When | None, tags: Iterable[str] | None,
        source: str | None, include_replaced: bool, include_quarantined: bool = False,
    ) -> Filter:  # fmt: skip
        return Filter(
            now=checks.checked_time(now, "now") or self._memory.now(),
            since=checks.checked_time(since, "since"),
            before=checks.checked_time(before, "before"),
            as_of=checks.checked_time(as_of, "as_of"),
            tags=checks.checked_list(tags, "tags"),
            source=checks.checked_short(source, "source"),
            include_replaced=include_replaced,
            include_quarantined=include_quarantined,
        )

    def drift(self) -> float | None:
        """How near the embedder's vector of the oldest note is to the one it gave when that note was kept: None while
        it is the same model (cosine .99 or more, or nothing to compare with), else the cosine. Costs one embedding.
        EmbedderError if the embedder is down."""
        import numpy as np

        held = self._store.sample(self._memory.embedder.id)
        if held is None:
            return None
        vectors, why = self._embed([("", held[0])])
        if vectors[0] is None:
            raise EmbedderError(why or f"{self._memory.embedder.id} refused a text that it once took")
        before, now = np.frombuffer(held[1], "<f2").astype(np.float32), vectors[0][0]
        cosine = float(before @ now / np.linalg.norm(before)) if len(before) == len(now) else 0.0
        return None if cosine >= _SAME_MODEL else cosine

    def _drifted(self) -> bool:
        """Whether another model answers under the embedder's name. Looked into once a week, with one more embedding,
        where the embedder says that it may happen (`drifts`): a server can be given another model, a package cannot."""
        embedder, now = self._memory.embedder, self._memory.now()
        if not getattr(embedder, "drifts", False):
            return False
        if self._store.setting(f"drifted {embedder.id}"):
            return True
        checked_at, drifted = self._store.setting("model checked at") or self._store.setting("born"), False
        if not isinstance(checked_at, str) or now - datetime.fromisoformat(checked_at) < _ASK_MODEL_EVERY:
            return False
        with suppress(StoreError, EmbedderError):
            if drifted := self.drift() is not None:
                self._store.set_setting(f"drifted {embedder.id}", 1)
            self._store.set_setting("model checked at", now.isoformat())
        return drifted

    def _shortcomings(self, store: Shelf, nearest: Nearest | None) -> Iterable[str]:
        """What the caller should know of notes that were looked for by their words only."""
        foreign = {} if nearest is None else nearest.foreign
        if foreign:
            others = ", ".join(sorted(set(foreign.values())))
            yield (
                f"{len(foreign)} notes have vectors of another embedder ({others}) and are found by their words only,"
                f" until `diarist reembed` has made them anew with {self._memory.embedder.id}"
            )
        if pending := store.counts().pending:
            notes = (
                "1 note awaits its vector and is" if pending == 1 else f"{pending} notes await their vectors and are"
            )
            yield f"{notes} found by words only"

    def _retire(self, retention: int | None) -> None:
        """Erases what the retention time, in days, has passed for, and sessions that have expired, at most once an
        hour."""
        now = self._memory.now()
        if self._memory.due(f"sessions of {self.owner}", now):
            for each in self._store.messages.sessions():
                if each.expires_at is not None and each.expires_at <= now:
                    with suppress(StoreError, NotFound):
                        self.forget_session(each.id)
        if retention is not None and self._memory.due(f"retention of {self.owner}", now):
            with suppress(StoreError):
                self.expire()

    def _embed(self, texts: Sequence[tuple[str, str]]) -> tuple[list[NDArray[np.float32] | None], str]:
        """For each (heading, text) an array (windows, dim), or None where it failed; and, if the embedder is down, why.
        The heading stands before each window."""
        embedder = self._memory.embedder
        size: int | None = getattr(embedder, "window", None)
        windows = [_windows(head, text, size) for head, text in texts]
        flat = [embedders.clean(window) for several in windows for window in several if window.strip()]
        why = ""
        try:
            made: Sequence[NDArray[np.float32] | None] = list(
                embedders.checked(embedder.embed_notes(flat), len(flat), embedder.dim, embedder.id)
            )
        except EmbedderError as e:
            carried = embedders.arrived(e)
            made, why = (carried[0], "") if carried else ([None] * len(flat), str(e))
        except Exception as e:
            made, why = [None] * len(flat), f"{type(e).__name__}: {e}"
        return _regrouped(made, [sum(1 for window in several if window.strip()) for several in windows]), why

    def _embed_question(self, question: str) -> tuple[NDArray[np.float32] | None, str]:
        embedder = self._memory.embedder
        asked, context = focus(question)

        def vector(text: str) -> NDArray[np.float32]:
            return embedders.checked([embedder.embed_query(embedders.clean(text))], 1, embedder.dim, embedder.id)[0]

        try:
            if not context:
                return vector(asked), ""
            return embedders.checked([vector(asked) + WEIGHT * vector(context)], 1, embedder.dim, embedder.id)[0], ""
        except EmbedderError as e:
            return None, str(e)
        except Exception as e:
            return None, f"{type(e).__name__}: {e}"

    def _catch_up(
        self, seconds: float | None, made: Callable[[int], object] | None = None, shelf: Shelf | None = None
    ) -> int:
        """Makes vectors that are still owed, for so long; returns how many notes were completed."""
        shelf = shelf or self._store
        deadline = None if seconds is None else time.monotonic() + seconds
        after = done = 0
        while waiting := shelf.pending(_BATCH if deadline is None else 8, after):
            vectors, why = self._embed([(each.heading, each.text) for each in waiting])
            ready = [(each.seq, each.text, v) for each, v in zip(waiting, vectors, strict=True) if v is not None]
            try:
                shelf.attach(self._memory.embedder.id, ready, self._memory.now())
            except StoreError:
                break  # the notes are there and stay owed: no reason to fail a call that did what was asked
            done, after = done + len(ready), waiting[-1].seq
            if made is not None:
                made(done)
            if (why and not ready) or (deadline is not None and time.monotonic() > deadline):
                break
        return done

    def _fresh(self, note: Note) -> Note:
        try:
            return self._store.note(note.id)
        except NotFound:  # forgotten by someone else a moment ago
            return note

    def _keep_zone(self) -> None:
        if self._zone is not None and self._store.setting("timezone") != self._zone.key:
            with suppress(StoreError):  # the note is kept; the zone will be with the next one
                self._store.set_setting("timezone", self._zone.key)

    def _shown_zone(self) -> Any:
        name = self.timezone
        return UTC if name == "UTC" else ZoneInfo(name)


_FIELDS = {"text", "replaces", "happened_at", "expires_at", "source", "origin", "tags", "key", "session"}


def _windows(head: str, text: str, size: int | None) -> list[str]:
    """Pieces that the embedder can hold, each with the heading before it, unless that would take much of it."""
    if size is None:
        return [head + text]
    head = head if 4 * len(head) <= size else ""
    return [head + window if window.strip() else window for window in analysis.windows(text, size - len(head))]


def _words_of(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(term for text in texts for term in analysis.terms(text)))


def _checked_id(id: str) -> str:
    if not isinstance(id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a note's id is text, not {type(id).__name__}")
    if not id.isascii() or not id.isprintable():
        raise NotFound(f"no note with id {id!a} in this diary")
    return id


def _regrouped(flat: Sequence[NDArray[np.float32] | None], sizes: Sequence[int]) -> list[NDArray[np.float32] | None]:
    """Windows back to texts; a text with a window missing counts as failed, so that it is tried again whole."""
    import numpy as np

    groups: list[NDArray[np.float32] | None] = []
    start = 0
    for size in sizes:
        whole = [vector for vector in flat[start : start + size] if vector is not None]
        groups.append(np.stack(whole) if len(whole) == size and size else None)
        start += size
    return groups
