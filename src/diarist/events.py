"""What happened in a run, in order: frozen facts on a bus. The log, the panel, the replay and tracing only listen.

The order is fixed. Of one run, with `[x]` at most once, `x*` any number of times, `x+` at least once:

    RunStarted [SessionRepaired] SessionSaved*
    ( TurnStarted [SessionTrimmed] ModelRequested TextDelta* ModelReplied [TextCallSeen] [SessionSaved]
      ToolStarted* ( what tools emit | [SessionSaved] ToolEnded )* )+
    RunEnded

Every `RunStarted` has its `RunEnded`, also when the run raises. `ToolStarted` and `ToolEnded` come in the order of the
calls, whatever order they finish in. What tools emit (`NoteRemembered`, `Recalled`) comes when it happens. `DayClosed`
comes when a session ends, after its runs. `ListenerFailed` may come anywhere, right after the event that was not heard.

Events hold texts of the conversation, never a vector, a key or a header.
"""

from __future__ import annotations

import contextvars
import dataclasses
import json
import os
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar, cast, get_args

from .errors import MissingExtra

if TYPE_CHECKING:
    from .agent import Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class _Happened:
    at: datetime
    """Aware, UTC, from the bus's clock."""
    run: str
    """The run that it belongs to; "" outside of any."""
    number: int
    """1, 2, 3... within the run."""


class Called(NamedTuple):
    """A tool call as the model made it."""

    id: str
    name: str
    arguments: str
    """JSON, or whatever the model wrote in its place."""


class Candidate(NamedTuple):
    """A note that was ranked for a question."""

    note: str
    text: str
    score: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted(_Happened):
    """`messages` and `tokens` (estimated) are what resuming the session costs: 0 without one."""

    model: str
    prompt: str
    session: str | None = None
    messages: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted(_Happened):
    """One request to the model, and what follows from its reply. Turns count from 1."""

    turn: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRequested(_Happened):
    """How much is sent: messages, estimated tokens (tools included), and the names of the tools offered."""

    turn: int
    messages: int
    tokens: int
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta(_Happened):
    """A piece of the answer, as it comes. Only `Agent.stream` makes them; `ModelReplied` has the whole."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied(_Happened):
    """The whole reply. `finish_reason` is what the server said; the loop goes by `calls`."""

    turn: int
    text: str
    calls: tuple[Called, ...] = ()
    finish_reason: str = ""
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted(_Happened):
    """A call that is really carried out; those that are refused unseen have a `ToolEnded` only."""

    turn: int
    call: str
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolEnded(_Happened):
    """What the model is told. `ok` is False for an error, a refusal, an interruption."""

    turn: int
    call: str
    name: str
    result: str
    ok: bool
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TextCallSeen(_Happened):
    """The model wrote a call as text. It was carried out only if `rescued`."""

    turn: int
    names: tuple[str, ...]
    text: str
    rescued: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRepaired(_Happened):
    """The history could not be sent as it was saved: `calls` without a result, `dropped` results without a call."""

    calls: tuple[str, ...]
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTrimmed(_Happened):
    """What was not sent, to stay within the budget. The saved session is whole. Said when it changes."""

    turn: int
    budget: int
    messages: int
    """Left out."""
    shortened: int
    """Sent in part, with a mark."""
    tokens: int
    """Estimated, of what was not sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSaved(_Happened):
    """One message is safe in the session."""

    message: str
    """Its id, from the session."""
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteRemembered(_Happened):
    """`total`: how many notes the diary now holds."""

    note: str
    text: str
    total: int = 0
    replaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recalled(_Happened):
    """A question, every candidate with its score, best first, and the ids of those that the model was given."""

    query: str
    verdict: str
    candidates: tuple[Candidate, ...] = ()
    handed_on: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DayClosed(_Happened):
    """A session ended; its history is not part of the next one. The rest says what `close_day` made of it."""

    session: str | None = None
    messages: int = 0
    kept: tuple[str, ...] = ()
    """Ids of the notes that came of it."""
    refused: tuple[str, ...] = ()
    """What the model wanted kept and was not, and why."""
    input_tokens: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnded(_Happened):
    """`stop_reason` is the reply's, or "error" or "interrupted" where the run raised, with what in `error`."""

    text: str
    stop_reason: str
    turns: int
    input_tokens: int = 0
    output_tokens: int = 0
    remarks: tuple[str, ...] = ()
    error: str = ""
    reply: Reply | None = field(default=None, compare=False, repr=False)
    """What `run` returns; for those who stream. Not recorded: it holds the whole transcript."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerFailed(_Happened):
    """A listener raised at an event, `missed`, which the others have heard. It stays subscribed."""

    listener: str
    missed: str
    error: str


Event = (
    RunStarted
    | TurnStarted
    | ModelRequested
    | TextDelta
    | ModelReplied
    | ToolStarted
    | ToolEnded
    | TextCallSeen
    | SessionRepaired
    | SessionTrimmed
    | SessionSaved
    | NoteRemembered
    | Recalled
    | DayClosed
    | RunEnded
    | ListenerFailed
)

_E = TypeVar("_E", bound=_Happened)
Listener = Callable[[Any], object]


class EventBus:
    """Tells every listener of every event, one after the other, in the thread in which it happens.

    The order of events is the same for all listeners. A listener that raises is left out for that event, and the
    others are told by a `ListenerFailed`. A listener must be quick, and must not wait for another thread that emits.
    `clock` gives the `at` of events; None is the machine's.
    """

    def __init__(self, clock: Callable[[], datetime] | None = None) -> None:
        self._clock = clock or _now
        self._listeners: list[Listener] = []
        self._lock = threading.RLock()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener(event)` from now on. Returns what ends that."""
        entry = partial(listener)  # so that the same function subscribed twice can be ended once
        with self._lock:
            self._listeners = [*self._listeners, entry]

        def unsubscribe() -> None:
            with self._lock:
                self._listeners = [each for each in self._listeners if each is not entry]

        return unsubscribe

    def emit(self, kind: type[_E], source: Source | None = None, /, **fields: Any) -> _E:
        """Make an event and tell it. `source` is the run that it belongs to."""
        with self._lock:
            source = source or Source(self, "")
            event = source.make(kind, self._clock().astimezone(UTC), fields)
            source.heard(event)
            listeners = self._listeners
            for listener in listeners:
                try:
                    listener(event)
                except Exception as error:  # its contract: nothing a listener does breaks a run
                    self._report(source, listener, event, error, listeners)
            return event

    def _report(
        self, source: Source, failed: Listener, event: _Happened, error: Exception, listeners: list[Listener]
    ) -> None:
        report = source.make(
            ListenerFailed,
            event.at,
            {
                "listener": _name(failed),
                "missed": type(event).__name__,
                "error": f"{type(error).__name__}: {error}",
            },
        )
        source.heard(report)
        for other in listeners:
            if other is not failed:
                try:
                    other(report)
                except Exception:  # noqa: S112  # two that fail would otherwise report each other for ever
                    continue


class Source:
    """One run's place on a bus: its id, and the count of its events. `heard` is called first, with each of them."""

    def __init__(self, bus: EventBus, run: str | None = None, heard: Callable[[Any], None] = lambda _: None) -> None:
        self.bus, self.run, self.heard = bus, uuid.uuid4().hex if run is None else run, heard
        self._number = 0

    def make(self, kind: type[_E], at: datetime, fields: Mapping[str, Any]) -> _E:
        self._number += 1
        return kind(at=at, run=self.run, number=self._number, **fields)

    def emit(self, kind: type[_E], /, **fields: Any) -> _E:
        return self.bus.emit(kind, self, **fields)


_current: contextvars.ContextVar[Source | None] = contextvars.ContextVar("diarist_run", default=None)


def emit(kind: type[_E], /, **fields: Any) -> _E | None:
    """Tell of something from inside a tool: `emit(NoteRemembered, note=note.id, text=note.text, total=3)`.

    Does nothing, and returns None, when no run is under way here. Threads that a tool starts itself are outside,
    unless it copies the context into them.
    """
    source = _current.get()
    return None if source is None else source.emit(kind, **fields)


def within(source: Source, function: Callable[..., Any], *args: Any) -> Any:
    """Call `function` so that `emit` reaches `source`."""
    token = _current.set(source)
    try:
        return function(*args)
    finally:
        _current.reset(token)


def _now() -> datetime:
    return datetime.now(UTC)


def _name(listener: Any) -> str:
    inner = listener.func if isinstance(listener, partial) else listener
    return getattr(inner, "__qualname__", None) or type(inner).__qualname__


# -- as data ----------------------------------------------------------------------------------------------------------

_KINDS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}


def as_data(event: Any) -> dict[str, Any]:
    """The event as JSON can hold it, without `RunEnded.reply`."""
    data: dict[str, Any] = {"event": type(event).__name__}
    for each in dataclasses.fields(event):
        value = getattr(event, each.name)
        if each.name != "reply":
            data[each.name] = value.isoformat() if isinstance(value, datetime) else value
    return data


def from_data(data: Mapping[str, Any]) -> Event:
    """The event that `as_data` was given. Raises `ValueError` for what is no event."""
    fields = dict(data)
    kind = _KINDS.get(str(fields.pop("event", None)))
    if kind is None:
        raise ValueError(f"{data.get('event')!r} is no event; the events are {', '.join(_KINDS)}")
    try:
        fields["at"] = datetime.fromisoformat(fields["at"])
        for name, value in fields.items():
            if isinstance(value, list):  # no field is a list; those of tuples are named in `_PARTS`
                part = _PARTS.get((kind, name))
                fields[name] = tuple(part(*item) if part else item for item in cast("list[Any]", value))
        return kind(**fields)
    except (TypeError, KeyError, ValueError) as error:
        raise ValueError(f"this is no {kind.__name__}: {error}") from None


_PARTS: dict[tuple[type[Any], str], Callable[..., Any]] = {
    (ModelReplied, "calls"): Called,
    (Recalled, "candidates"): Candidate,
}


# -- listeners --------------------------------------------------------------------------------------------------------


class Recorder:
    """Writes each event as a line of JSON, at once. Made by `recorder`."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        # It holds what was said: for its owner's eyes, as a diary is.
        self._file = os.fdopen(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb")

    def __call__(self, event: Any) -> None:
        data = as_data(event)
        try:
            line = json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError:  # half of a surrogate pair: only escaped does it come back as it was
            line = json.dumps(data).encode()
        self._file.write(line + b"\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def recorder(path: str | os.PathLike[str]) -> Recorder:
    """A listener that adds every event to a file of JSON lines, for `replay`. Close it, or use it with `with`."""
    return Recorder(path)


def replay(path: str | os.PathLike[str]) -> Iterator[Event]:
    """The events of a recording, equal to those recorded. Raises `ValueError` at a line that holds none."""
    with open(path, "rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                yield from_data(json.loads(line))
            except (ValueError, AttributeError, TypeError) as error:
                raise ValueError(f"{os.fspath(path)}, line {number}: {error}") from None


def console(file: IO[str] | None = None) -> Listener:
    """A listener that prints one line for each thing worth seeing; None is standard error."""

    def show(event: Any) -> None:
        line = _line(event)
        if line:
            # A text may hold codes that move the cursor or colour the screen: none reaches the terminal.
            plain = "".join(char if char.isprintable() else " " for char in line)
            print(plain if len(plain) <= 200 else plain[:199] + "…", file=file or sys.stderr)

    return show


def _line(event: Any) -> str:
    match event:
        case RunStarted():
            return f"> {event.prompt}"
        case ToolStarted():
            return f"  {event.name} {json.dumps(event.arguments, ensure_ascii=False)}"
        case ToolEnded():
            return f"  {event.name} {'->' if event.ok else 'failed:'} {event.result}"
        case Recalled():
            return f"  recalled {len(event.candidates)} ({event.verdict}): {event.query}"
        case NoteRemembered():
            return f"  remembered: {event.text}"
        case TextCallSeen():
            return f"  wrote a call as text{', carried out' if event.rescued else ''}: {', '.join(event.names)}"
        case SessionRepaired():
            return f"  session repaired: {len(event.calls)} calls had no result"
        case SessionTrimmed():
            return f"  {event.messages} messages left out, {event.shortened} shortened: {event.budget} tokens at most"
        case DayClosed():
            return "  the session ended"
        case RunEnded():
            said = event.error or event.text
            return f"< {said}" if event.stop_reason == "stop" else f"< ({event.stop_reason}) {said}"
        case ListenerFailed():
            return f"  listener {event.listener} failed at {event.missed}: {event.error}"
        case _:
            return ""


def otel(tracer: Any = None) -> Listener:
    """A listener that makes OpenTelemetry spans by the GenAI conventions: invoke_agent, chat, execute_tool.

    `tracer`: None is the global provider's. No text of the conversation goes into a span. Raises `MissingExtra`
    without `opentelemetry-api`.
    """
    try:
        trace = import_module("opentelemetry.trace")
    except ImportError as error:
        raise MissingExtra(f"spans need opentelemetry-api ({error}): pip install 'diarist[otel]'") from error
    return _Spans(trace, tracer or trace.get_tracer("diarist"))


class _Spans:
    # Names from https://github.com/open-telemetry/semantic-conventions-genai (development status).
    def __init__(self, trace: Any, tracer: Any) -> None:
        self._trace, self._tracer = trace, tracer
        self._open: dict[tuple[str, str], Any] = {}
        self._models: dict[str, str] = {}

    def __call__(self, event: Any) -> None:
        run = event.run
        match event:
            case RunStarted():
                self._models[run] = event.model
                about = {"gen_ai.conversation.id": event.session} if event.session else {}
                self._start(event, "", "invoke_agent", "invoke_agent", "INTERNAL", about)
            case ModelRequested():
                name = f"chat {self._models.get(run, '')}".strip()
                self._start(event, "chat", name, "chat", "CLIENT", {})
            case ModelReplied():
                self._end(event, "chat", _usage(event) | {"gen_ai.response.finish_reasons": [event.finish_reason]})
            case ToolStarted():
                about = {
                    "gen_ai.tool.name": event.name,
                    "gen_ai.tool.call.id": event.call,
                    "gen_ai.tool.type": "function",
                }
                self._start(
                    event, f"tool {event.call}", f"execute_tool {event.name}", "execute_tool", "INTERNAL", about
                )
            case ToolEnded():
                self._end(event, f"tool {event.call}", {}, "" if event.ok else "tool_error")
            case RunEnded():
                failed = event.stop_reason if event.error or event.stop_reason == "interrupted" else ""
                for key in [key for of, key in self._open if of == run and key]:
                    self._end(event, key, {}, failed)
                self._end(event, "", _usage(event), failed)
                self._models.pop(run, None)
            case _:
                pass

    def _start(self, event: Any, key: str, name: str, operation: str, kind: str, about: dict[str, Any]) -> None:
        parent = self._open.get((event.run, ""))
        about |= {"gen_ai.operation.name": operation}
        if operation != "execute_tool":
            about |= {"gen_ai.provider.name": "openai", "gen_ai.request.model": self._models.get(event.run, "")}
        self._open[event.run, key] = self._tracer.start_span(
            name,
            context=self._trace.set_span_in_context(parent) if parent else None,
            kind=self._trace.SpanKind[kind],
            attributes=about,
        )

    def _end(self, event: Any, key: str, about: dict[str, Any], failed: str = "") -> None:
        span = self._open.pop((event.run, key), None)
        if span is None:
            return
        span.set_attributes(about)
        if failed:
            span.set_attribute("error.type", failed)
            span.set_status(self._trace.StatusCode.ERROR)
        span.end()


def _usage(event: Any) -> dict[str, Any]:
    return {
        "gen_ai.usage.input_tokens": event.input_tokens,
        "gen_ai.usage.output_tokens": event.output_tokens,
    }
