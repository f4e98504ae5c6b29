"""The routes under /v1: each opens one diary, calls one verb and says what came of it.

A route gets its diary from `Reads` or `Writes`, which look at the token, or asks for `Admin`: a route that takes none
of them cannot reach anybody's notes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Query, Request
from fastapi.params import Depends as Dependency
from starlette.responses import Response, StreamingResponse

from ..diary import Diary
from ..events import Candidate, DayClosed, NoteRemembered, Recalled, SessionSaved
from ..memory import Memory
from ..note import Note, note_data, recall_data
from ..session import SessionInfo
from . import shapes
from .gate import Refused, as_json
from .live import Live
from .names import name_of
from .shapes import page_data, report_data, session_data
from .tokens import Caller
from .transfer import take
from .worker import Worker


@dataclass(frozen=True)
class Served:
    """What the routes work on."""

    memory: Memory
    live: Live
    worker: Worker


class Json(Response):
    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        return as_json(content)


# -- who asks, and whose diary ----------------------------------------------------------------------------------------


def served(request: Request) -> Served:
    return request.app.state.served


def caller(request: Request) -> Caller:
    return request.state.caller  # the gate let nobody in without


def only_known(request: Request) -> None:
    """Refuses a parameter that the route does not have: a filter misspelt would else be no filter."""
    route: Any = request.scope["route"]
    known = {each.alias for each in route.dependant.query_params}
    if unknown := sorted(set(request.query_params) - known):
        raise ValueError(f"there is no parameter {unknown[0]!r} here; known: {', '.join(sorted(known)) or 'none'}")


def admin(who: Annotated[Caller, Depends(caller)]) -> Caller:
    if who.scope != "admin":
        raise Refused(403, "forbidden", "This is for the admin.", "Use the admin token.")
    return who


def diary_to_read(
    owner: Annotated[str, Path(description="The owner, as one segment: see Names in paths.")],
    who: Annotated[Caller, Depends(caller)],
    here: Annotated[Served, Depends(served)],
) -> Diary:
    name = name_of(owner)
    if who.scope != "admin" and who.owner != name:
        raise Refused(403, "forbidden", "The token is not for this owner.", "Use the owner's token, or the admin's.")
    return here.memory.diary(name)


def diary_to_write(
    diary: Annotated[Diary, Depends(diary_to_read)],
    who: Annotated[Caller, Depends(caller)],
    here: Annotated[Served, Depends(served)],
) -> Diary:
    if who.scope == "read":
        raise Refused(403, "forbidden", "The token is read-only.", "Use one that may write.")
    here.worker.look_at(diary.owner)
    return diary


async def raw_body(request: Request) -> bytes:
    return await request.body()


def session_name(session: Annotated[str, Path(description="The session's id, as one segment.")]) -> str:
    return name_of(session)


def note_id(id: Annotated[str, Path(description="The note's id, as one segment.")]) -> str:
    return name_of(id)


Here = Annotated[Served, Depends(served)]
Admin = Annotated[Caller, Depends(admin)]
Reads = Annotated[Diary, Depends(diary_to_read)]
Writes = Annotated[Diary, Depends(diary_to_write)]
NoteId = Annotated[str, Depends(note_id)]
SessionId = Annotated[str, Depends(session_name)]
Limit = Annotated[int, Query(ge=1, le=1_000)]
Offset = Annotated[int, Query(ge=0, le=2**53)]
Moment = Annotated[str | None, Query(description="ISO 8601 with an offset")]

_AROUND: list[Dependency] = [Depends(only_known)]
_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"model": shapes.TroubleOut, "description": "Refused: the code and the message say why."},
    "5XX": {"model": shapes.TroubleOut, "description": "The server could not do it."},
}
router = APIRouter(prefix="/v1", dependencies=_AROUND, responses=_ERRORS)
of_owner = APIRouter(prefix="/v1/owners/{owner}", dependencies=_AROUND, responses=_ERRORS)

# -- the server -------------------------------------------------------------------------------------------------------


@router.get("/token", response_model=shapes.TokenOut)
def token(who: Annotated[Caller, Depends(caller)]) -> Response:
    """What the token with this request allows."""
    ends = who.expires_at and who.expires_at.isoformat()
    return Json({"scope": who.scope, "owner": who.owner, "id": who.id, "expires_at": ends})


@router.get("/status", response_model=shapes.StatusOut)
def status(_: Admin, here: Here) -> Response:
    """The version, and how the worker that makes owed vectors fares."""
    from importlib.metadata import version

    return Json({"version": version("diarist"), "worker": here.worker.state})


@router.get("/owners", response_model=shapes.OwnersOut)
def owners(_: Admin, here: Here, limit: Limit = 100, offset: Offset = 0) -> Response:
    """Everyone of whom something is kept, sorted."""
    every = here.memory.owners()
    return Json({"owners": every[offset : offset + limit], "total": len(every)})


# -- one owner --------------------------------------------------------------------------------------------------------


@of_owner.get("", response_model=shapes.DiaryOut)
def about(diary: Reads) -> Response:
    """How much is kept, and under which settings."""
    page = diary.page
    return Json(
        {
            "owner": diary.owner,
            "notes": diary.count(),
            "all_notes": diary.count(include_replaced=True),
            "quarantined": diary.count(include_quarantined=True) - diary.count(),
            "pending": diary.pending,
            "sessions": len(diary.sessions()),
            "page_tokens": page.tokens,
            "page_budget": page.budget,
            "timezone": diary.timezone,
            "retention_days": diary.retention_days,
        }
    )


@of_owner.post("/erase", response_model=shapes.ReportOut)
def erase(body: shapes.Confirmation, diary: Writes, here: Here) -> Response:
    """Erases everything about the owner: notes, sessions and page. It cannot be undone."""
    if body.confirm != diary.owner:
        raise Refused(409, "not_confirmed", "Nothing was erased.", "Give the owner's name as `confirm`.")
    report = here.memory.erase(diary.owner)
    here.worker.forget(diary.owner)
    return Json(report_data(report))


# -- notes ------------------------------------------------------------------------------------------------------------


@of_owner.get("/notes", response_model=shapes.NotesPage)
def notes(
    diary: Reads,
    limit: Limit = 50,
    offset: Offset = 0,
    since: Moment = None,
    before: Moment = None,
    as_of: Moment = None,
    tag: Annotated[list[str] | None, Query()] = None,
    source: Annotated[str | None, Query()] = None,
    include_replaced: bool = False,
    include_quarantined: bool = False,
) -> Response:
    """The notes that hold, newest first; for a person to read, those that are kept out of recall too."""
    wanted: dict[str, Any] = {
        "since": since,
        "before": before,
        "as_of": as_of,
        "tags": tag,
        "source": source,
        "include_replaced": include_replaced,
        "include_quarantined": include_quarantined,
    }
    found, total = diary.notes(limit=limit, offset=offset, **wanted), diary.count(**wanted)
    return Json({"notes": [note_data(note) for note in found], "total": total, "limit": limit, "offset": offset})


@of_owner.post("/notes", response_model=shapes.NoteOut, status_code=201)
def remember(body: shapes.NewNote, diary: Writes, here: Here) -> Response:
    """Keeps one fact; the answer comes when it is on the disk."""
    note = diary.remember(**body.model_dump())
    _tell_of(here, diary, note)
    return Json(note_data(note), 201)


@of_owner.post("/notes/batch", response_model=shapes.NotesOut, status_code=201)
def remember_many(body: shapes.NewNotes, diary: Writes, here: Here) -> Response:
    """Keeps many facts, all or none."""
    many = [each if isinstance(each, str) else each.model_dump() for each in body.notes]
    kept = diary.remember_many(many, defer=body.defer)
    for note in kept:
        _tell_of(here, diary, note)
    return Json({"notes": [note_data(note) for note in kept]}, 201)


@of_owner.post("/notes/forget", response_model=shapes.ReportOut)
def forget_many(body: shapes.Ids, diary: Writes) -> Response:
    """Erases several notes, all or none."""
    return Json(report_data(diary.forget(body.ids)))


@of_owner.get("/notes/{id}", response_model=shapes.NoteOut)
def note(id: NoteId, diary: Reads) -> Response:
    """One note, whatever became of it."""
    return Json(note_data(diary.note(id)))


@of_owner.patch("/notes/{id}", response_model=shapes.NoteOut)
def edit(body: shapes.Correction, id: NoteId, diary: Writes) -> Response:
    """Corrects a note: the old text is erased. A fact that changed is a new note that replaces it."""
    return Json(note_data(diary.edit(id, body.text)))


@of_owner.delete("/notes/{id}", response_model=shapes.ReportOut)
def forget(id: NoteId, diary: Writes) -> Response:
    """Erases a note for good."""
    return Json(report_data(diary.forget(id)))


@of_owner.post("/notes/{id}/pin", response_model=shapes.PageOut)
def pin(id: NoteId, diary: Writes) -> Response:
    """Adds the note's text to the page as a line."""
    diary.page.add(diary.note(id).text)
    return Json(page_data(diary.page))


@of_owner.post("/notes/{id}/release", response_model=shapes.NoteOut)
def release(id: NoteId, diary: Writes, _: Admin) -> Response:
    """Lets a note that was kept out of recall be recalled. For a person to decide: it takes the admin token."""
    return Json(note_data(diary.release(id)))


# -- recall -----------------------------------------------------------------------------------------------------------


@of_owner.post("/recall", response_model=shapes.RecallOut)
def recall(body: shapes.Question, diary: Reads, here: Here) -> Response:
    """The notes that answer a question best, each with its score and why, and a verdict on the whole."""
    asked = body.model_dump(exclude={"question", "ids"})
    found = diary.recall(body.question, **asked)

    def fields() -> dict[str, Any]:
        handed_on = () if found.verdict == "nothing" else tuple(hit.note.id for hit in found)
        candidates = tuple(Candidate(hit.note.id, hit.note.text, hit.score) for hit in found)
        return {"query": body.question, "verdict": found.verdict, "candidates": candidates, "handed_on": handed_on}

    here.live.tell(diary.owner, Recalled, fields)
    data = recall_data(found) | {"context": found.context(ids=body.ids)}
    embedder = here.memory.embedder.id  # of an endpoint it has the address in it, which is the operator's affair
    data["notices"] = [_ADDRESS.sub("its address", each.replace(embedder, "the embedder")) for each in found.notices]
    return Json(data)


_ADDRESS = re.compile(r"\S*https?://\S+")

# -- the page ---------------------------------------------------------------------------------------------------------


@of_owner.get("/page", response_model=shapes.PageOut)
def page(diary: Reads) -> Response:
    """The page that goes whole into the system prompt."""
    return Json(page_data(diary.page))


@of_owner.put("/page", response_model=shapes.PageOut)
def write_page(body: shapes.PageText, diary: Writes) -> Response:
    """Puts a text in the place of the whole page."""
    page = diary.page
    changed = Refused(409, "page_changed", "The page was changed since it was read.", "Read it and join the two.")
    if body.version is not None and page_data(page)["version"] != body.version:
        raise changed
    from ..errors import PageFull, StoreError

    try:
        page.write(body.text)
    except PageFull:
        raise
    except StoreError as error:
        if type(error) is StoreError and body.version is not None and page.read() != body.text:
            raise changed from error
        raise
    return Json(page_data(page))


@of_owner.post("/page/lines", response_model=shapes.PageOut)
def add_line(body: shapes.Line, diary: Writes) -> Response:
    """Adds one line to the page."""
    diary.page.add(body.text)
    return Json(page_data(diary.page))


# -- sessions ---------------------------------------------------------------------------------------------------------


@of_owner.get("/sessions", response_model=shapes.SessionsOut)
def sessions(diary: Reads, limit: Limit = 50, offset: Offset = 0) -> Response:
    """All sessions, the one written to last first."""
    every = diary.sessions()
    listed = [session_data(each) for each in every[offset : offset + limit]]
    return Json({"sessions": listed, "total": len(every)})


@of_owner.get("/sessions/{session}", response_model=shapes.MessagesOut)
def session(session: SessionId, diary: Reads, limit: Limit = 200, offset: Offset = 0) -> Response:
    """The messages of a session, in order."""
    known = _known(diary, session)
    held = diary.session(session)
    pairs = list(zip(held.ids, held.messages, strict=False))
    messages = [{"id": id, "message": message} for id, message in pairs[offset : offset + limit]]
    return Json({"id": session, "messages": messages, "total": known.messages, "damaged": held.damaged})


@of_owner.post("/sessions/{session}/messages", response_model=shapes.IdsOut, status_code=201)
def append(body: shapes.NewMessages, session: SessionId, diary: Writes, here: Here) -> Response:
    """Keeps messages at the end of a session, all or none; a new session is made."""
    ids = diary.session(session, expires_at=body.expires_at).extend(body.messages)
    for saved, message in zip(ids, body.messages, strict=True):
        fields = {"message": saved, "role": message["role"]}
        here.live.tell(diary.owner, SessionSaved, lambda fields=fields: fields)
    return Json({"ids": ids}, 201)


@of_owner.post("/sessions/{session}/end", response_model=shapes.SessionOut)
def end(session: SessionId, diary: Writes, here: Here) -> Response:
    """Marks a session as ended. Appending to it takes it up again."""
    _known(diary, session)
    diary.session(session).end()
    ended = _known(diary, session)
    here.live.tell(diary.owner, DayClosed, lambda: {"session": session, "messages": ended.messages})
    return Json(session_data(ended))


@of_owner.delete("/sessions/{session}", response_model=shapes.ReportOut)
def forget_session(session: SessionId, diary: Writes) -> Response:
    """Erases a session with all its messages."""
    return Json(report_data(diary.forget_session(session)))


# -- take along -------------------------------------------------------------------------------------------------------


@of_owner.get(
    "/export",
    response_class=Response,
    responses={200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}},
)
def export(diary: Reads) -> Response:
    """Everything kept about the owner as JSON lines: a header, then one note a line."""
    exported = diary.export()
    lines = [exported | {"notes": len(exported["notes"])}, *exported["notes"]]
    return Response(b"".join(as_json(line) + b"\n" for line in lines), media_type="application/x-ndjson")


@of_owner.post(
    "/import",
    response_model=shapes.ImportedOut,
    openapi_extra={
        "requestBody": {"required": True, "content": {"application/x-ndjson": {"schema": {"type": "string"}}}}
    },
)
def import_(
    body: Annotated[bytes, Depends(raw_body)],
    diary: Writes,
    rename: bool = False,
    forgotten_too: bool = False,
) -> Response:
    """Keeps the notes of an export, or of lines of `{"text": ...}`: all or none, and none twice."""
    found, new = take(diary, body, rename=rename, forgotten_too=forgotten_too)
    return Json({"notes": found, "new": new})


# -- events -----------------------------------------------------------------------------------------------------------


@of_owner.get(
    "/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": {"type": "string"}}}}},
)
async def events(diary: Reads, here: Here) -> Response:
    """What happens to the diary from now on, as server-sent events."""
    if here.live.full(diary.owner):
        raise Refused(503, "busy", "Too many event streams are open.", "Close one.", [("Retry-After", "30")])
    return StreamingResponse(here.live.stream(diary), media_type="text/event-stream")


# -- inside -----------------------------------------------------------------------------------------------------------


def _tell_of(here: Served, diary: Diary, note: Note) -> None:
    here.live.tell(
        diary.owner,
        NoteRemembered,
        lambda: {"note": note.id, "text": note.text, "total": diary.count(), "replaces": note.replaces},
    )


def _known(diary: Diary, session: str) -> SessionInfo:
    found = next((each for each in diary.sessions() if each.id == session), None)
    if found is None:
        from ..errors import NotFound

        raise NotFound("no such session")
    return found
