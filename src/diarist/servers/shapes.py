"""What requests and answers look like: for the check of what comes in, and for `/openapi.json`.

What the values may be is checked where it always is, in the diary: here only what JSON type they are.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from ..erasure import ErasureReport
from ..note import plain
from ..page import Page
from ..session import SessionInfo

Origin = Literal["owner_said", "agent_inferred", "operator", "third_party"]
Time = Annotated[str, Field(description="ISO 8601 with an offset", examples=["2026-03-01T09:00:00+01:00"])]


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class NewNote(_Body):
    text: str
    replaces: list[str] | None = None
    happened_at: Time | None = None
    expires_at: Time | None = None
    source: str | None = None
    origin: Origin = "owner_said"
    tags: list[str] | None = None
    key: str | None = Field(None, description="A retry with the same key makes no second note.")
    session: str | None = None


class NewNotes(_Body):
    notes: list[str | NewNote]
    defer: bool = Field(False, description="Answer once the texts are saved; the vectors are made later.")


class Correction(_Body):
    text: str


class Ids(_Body):
    ids: list[str]


class Confirmation(_Body):
    confirm: str = Field(description="The owner's name, typed.")


class Question(_Body):
    question: str
    limit: int = Field(8, ge=1)
    where: Literal["notes", "sessions", "all"] = "notes"
    since: Time | None = None
    before: Time | None = None
    as_of: Time | None = None
    now: Time | None = None
    tags: list[str] | None = None
    source: str | None = None
    include_replaced: bool = False
    min_score: float | None = Field(None, ge=0, le=1)
    ids: bool = Field(False, description="Name the notes' ids in `context`.")


class PageText(_Body):
    text: str
    version: str | None = Field(None, description="The version that was read: a change since is not overwritten.")


class Line(_Body):
    text: str


class NewMessages(_Body):
    messages: list[dict[str, Any]]
    expires_at: Time | None = Field(None, description="For a new session: it is erased from then on.")


# -- answers ----------------------------------------------------------------------------------------------------------


class NoteOut(BaseModel):
    id: str
    owner: str
    text: str
    created_at: str
    kind: Literal["note", "message"]
    happened_at: str | None
    expires_at: str | None
    source: str | None
    origin: Origin
    tags: list[str]
    flagged: bool
    flagged_for: list[str]
    released: bool
    quarantined: bool
    session: str | None
    replaces: list[str]
    replaced_by: str | None
    times: int
    pending: bool


class NotesOut(BaseModel):
    notes: list[NoteOut]


class NotesPage(NotesOut):
    total: int
    limit: int
    offset: int


class PartOut(BaseModel):
    name: str
    value: float
    text: str


class HitOut(BaseModel):
    score: float
    note: NoteOut
    older_than: str | None
    why: list[PartOut]


class RecallOut(BaseModel):
    question: str
    verdict: Literal["strong", "weak", "nothing"]
    notices: list[str]
    hits: list[HitOut]
    context: str


class ReportOut(BaseModel):
    at: str
    notes: int
    messages: int
    checked: list[str]
    residue: list[str]
    pending: bool
    complete: bool


class PageOut(BaseModel):
    text: str
    rendered: str
    tokens: int
    budget: int
    version: str


class SessionOut(BaseModel):
    id: str
    created_at: str
    last_at: str
    ended_at: str | None
    expires_at: str | None
    messages: int


class SessionsOut(BaseModel):
    sessions: list[SessionOut]
    total: int


class MessageOut(BaseModel):
    id: str
    message: dict[str, Any]


class MessagesOut(BaseModel):
    id: str
    messages: list[MessageOut]
    total: int
    damaged: list[int]


class IdsOut(BaseModel):
    ids: list[str]


class OwnersOut(BaseModel):
    owners: list[str]
    total: int


class DiaryOut(BaseModel):
    owner: str
    notes: int
    all_notes: int
    quarantined: int
    pending: int
    sessions: int
    page_tokens: int
    page_budget: int
    timezone: str
    retention_days: int | None


class ImportedOut(BaseModel):
    notes: int
    new: int


class TokenOut(BaseModel):
    scope: Literal["admin", "write", "read"]
    owner: str | None
    id: str | None
    expires_at: str | None


class WorkerOut(BaseModel):
    working: bool
    made: int
    waiting: int
    failing: bool


class StatusOut(BaseModel):
    version: str
    worker: WorkerOut


class HealthOut(BaseModel):
    status: str


class Trouble(BaseModel):
    code: str
    message: str
    hint: str


class TroubleOut(BaseModel):
    error: Trouble


# -- facts as JSON ----------------------------------------------------------------------------------------------------


def report_data(report: ErasureReport) -> dict[str, Any]:
    return asdict(report) | {"at": report.at.isoformat(), "complete": report.complete}


def page_data(page: Page) -> dict[str, Any]:
    from hashlib import blake2b

    from ..analysis import estimate_tokens

    text = page.read()
    return {
        "text": text,
        "rendered": page.render(),
        "tokens": estimate_tokens(text),
        "budget": page.budget,
        "version": blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest(),
    }


def session_data(session: SessionInfo) -> dict[str, Any]:
    return plain(session)
