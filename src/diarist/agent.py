"""`Agent`: ask the model, run the tools that it calls, tell it the results, until it answers. No memory in here:
that comes as ordinary tools, as text in the instructions, and as a session, which is anything that has `messages` and
`append`.

The transcript is the state. Whatever happens, it can be sent again: every call has one result, right after it, in
order, and what the model wrote is rebuilt before it is kept (history.py).
"""

from __future__ import annotations

import contextlib
import contextvars
import inspect
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from . import events, history
from .errors import EndpointError
from .events import Event, EventBus, RunEnded, Source
from .model import Model, ModelReply, ToolCall, Usage, calls_in_text, with_unique_ids
from .tool import Tool, as_text, awaited, tool

StopReason = Literal["stop", "length", "content_filter", "max_turns", "repeating", "text_call", "empty"]

_AT_ONCE = 16  # tools of one turn that run at the same time
_CUT_OFF = "Not done: the call was cut off at the length limit. Call again, with less text."
_TOO_OFTEN = 3  # the same call, this many times in a run, is no longer carried out


class Session(Protocol):
    """A history that outlives the run."""

    @property
    def messages(self) -> Sequence[dict[str, Any]]: ...

    def append(self, message: dict[str, Any], /) -> str:
        """Keep a message, and return its id once it is safe."""
        ...


@dataclass(frozen=True)
class Reply:
    """How a run ended.

    `stop_reason`: "stop", the model answered; "length", its answer was cut off and `text` is its beginning;
    "content_filter", the server withheld it; "max_turns" or "repeating", it was still calling tools and `text` is what
    it last said beside them; "text_call", it wrote a call as text, which was not carried out; "empty", it said
    nothing, twice.
    """

    text: str
    turns: int
    """Requests to the model."""
    stop_reason: StopReason
    usage: Usage
    messages: list[dict[str, Any]]
    """The whole transcript, the system message first."""
    remarks: tuple[str, ...] = ()
    """What went wrong along the way, for a person to read."""


class Agent:
    """A model, what it is told, and what it may call. Holds no conversation: one agent may run in many threads.

    `tools`: `Tool`s, or plain functions, which `tool` makes into them. `max_turns`: requests to the model in a run.
    `approve`: asked, with the `ToolCall`, before a tool that needs approval runs; only True lets it.
    `rescue_text_calls`: carry out calls that the model wrote as text, if they are its whole answer.
    `events`: a bus to share; None makes one. `token_budget`: what a request may hold, estimated, answer not included.
    `auto_recall`: called once a session with its first user message; what it returns is appended to that message, as
    data, so that the beginning of every request stays as it is and can be cached. `diary.auto_recall` is one.
    """

    def __init__(
        self,
        model: Model,
        instructions: str = "",
        tools: Iterable[Tool | Callable[..., Any]] = (),
        max_turns: int = 10,
        *,
        approve: Callable[[ToolCall], object] | None = None,
        rescue_text_calls: bool = False,
        events: EventBus | None = None,
        token_budget: int | None = None,
        auto_recall: Callable[[str], str] | None = None,
    ) -> None:
        if max_turns < 1:
            raise ValueError(f"max_turns is {max_turns}; it must be at least 1")
        if token_budget is not None and token_budget < 1:
            raise ValueError(f"token_budget is {token_budget}; it must be at least 1")
        made = [each if isinstance(each, Tool) else tool(each) for each in tools]
        self.model, self.instructions, self.max_turns = model, instructions, max_turns
        self.tools = {each.name: each for each in made}
        if len(self.tools) < len(made):
            names = [each.name for each in made]
            raise ValueError(f"two tools are named {next(name for name in names if names.count(name) > 1)!r}")
        self.approve, self.rescue_text_calls, self.token_budget = approve, rescue_text_calls, token_budget
        self.events = EventBus() if events is None else events
        self.auto_recall = auto_recall

    def run(self, prompt: str, session: Session | None = None) -> Reply:
        """Ask, and return when there is an answer or a reason to stop.

        Raises `EndpointError` when the model cannot be reached or makes no sense, `ValueError` for a blank prompt or
        a `token_budget` that is too small, and what the session raises. The session can be resumed all the same.
        """
        run = _Run(self, prompt, session, streaming=False)
        with contextlib.closing(run.events()) as happening:
            for _ in happening:
                pass
        return run.reply

    def stream(self, prompt: str, session: Session | None = None) -> Iterator[Event]:
        """As `run`, event by event, with the text as it comes; `RunEnded`, which has the reply, is the last.

        The run goes on as the events are taken. Leaving the loop early ends it, as Ctrl-C would.
        """
        return _Run(self, prompt, session, streaming=True).events()


class _Done(NamedTuple):
    """What came of a call."""

    number: int
    text: str
    ok: bool
    seconds: float = 0.0


_T = TypeVar("_T")
_Steps = Generator[Event, None, _T]


class _Run:
    """One run. Its generators yield events as they happen; who runs them to the end runs the agent."""

    def __init__(self, agent: Agent, prompt: str, session: Session | None, streaming: bool) -> None:
        if not isinstance(prompt, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"a prompt is text, not {type(prompt).__name__}")
        if not prompt.strip():
            raise ValueError("the prompt is blank")
        self.agent, self.prompt, self.session, self.streaming = agent, prompt, session, streaming
        self.inbox: SimpleQueue[Event | _Done] = SimpleQueue()
        self.source = Source(agent.events, heard=self.inbox.put)
        self.emit = self.source.emit
        self.system = [history.system(agent.instructions)] if agent.instructions.strip() else []
        self.schemas = [each.schema for each in agent.tools.values()]
        self.fixed = {
            "instructions": history.tokens(self.system),
            "tools": history.tokens_of(self.schemas) if self.schemas else 0,
        }
        self.messages: list[dict[str, Any]] = []
        self.reply = Reply("", 0, "stop", Usage(), [])
        self.left_out = (0, 0)
        self.times: dict[str, int] = {}
        self.last: dict[str, _Done] = {}
        self.told: set[str] = set()  # the calls of which the model knows that they are not carried out again

    # -- the loop -----------------------------------------------------------------------------------------------------

    def events(self) -> _Steps[None]:
        try:
            yield from self.turns()
        except BaseException as error:
            failed = isinstance(error, Exception)
            self.end("error" if failed else "interrupted", f"{type(error).__name__}: {error}" if failed else "")
            raise

    def turns(self) -> _Steps[None]:
        yield from self.begin()
        asked_again = False
        for turn in range(1, self.agent.max_turns + 1):
            said = yield from self.ask(turn)
            text, calls = self.read(turn, said)
            if calls:
                self.keep(history.assistant(text, calls, self.reasoning(said)))
                repeating = yield from self.answer(turn, calls, cut_off=said.finish_reason == "length")
                if repeating:
                    self.remark(f"stopped: {repeating} was called again and again with the same arguments")
                    self.reply = replace(self.reply, stop_reason="repeating")
                    break
                continue
            if text.strip():
                self.keep(history.assistant(text, (), self.reasoning(said)))
                break
            if said.finish_reason in {"length", "content_filter"} or asked_again or turn == self.agent.max_turns:
                if self.reply.stop_reason == "stop":
                    self.reply = replace(self.reply, stop_reason="empty")
                self.remark(f"the model gave no text and no call (finish_reason {said.finish_reason!r})")
                break
            asked_again = True  # small models do it now and then, and do not do it twice
        else:
            self.remark(f"stopped after {self.agent.max_turns} requests to the model (max_turns)")
            self.reply = replace(self.reply, stop_reason="max_turns")
        self.end(self.reply.stop_reason)
        for event in self.heard():
            yield event
            if isinstance(event, RunEnded):
                return

    def begin(self) -> _Steps[None]:
        """Take up the session, mended if need be, and add what the user says."""
        saved = [] if self.session is None else list(self.session.messages)
        past = history.rebuilt(saved, keep_reasoning=self.keeps_reasoning)
        self.emit(
            events.RunStarted,
            model=self.model_name,
            prompt=self.prompt,
            session=getattr(self.session, "id", None),
            messages=len(past.messages),
            tokens=history.tokens(past.messages),
        )
        self.messages = past.messages
        if past.unanswered or past.dropped:
            self.emit(events.SessionRepaired, calls=tuple(past.unanswered), dropped=past.dropped)
        if self.session is not None:
            for message in past.missing:
                self.save(message)
        first = not any(message["role"] == "user" for message in past.messages)
        brought = self.brought() if first and self.agent.auto_recall else ""
        self.keep(history.user(f"{self.prompt}\n\n{brought}" if brought else self.prompt))
        yield from self.heard()

    def brought(self) -> str:
        """What the auto-recall has to say. The conversation does not depend on it: a failure is a remark."""
        assert self.agent.auto_recall is not None
        try:
            return str(events.within(self.source, self.agent.auto_recall, self.prompt)).strip()
        except Exception as error:  # the host's callable: whatever it raises
            self.remark(f"auto_recall failed: {type(error).__name__}: {error}")
            return ""

    def ask(self, turn: int) -> _Steps[ModelReply]:
        """One request."""
        self.emit(events.TurnStarted, turn=turn)
        messages = self.request(turn)
        sent = history.tokens(messages) + self.fixed["tools"]
        self.emit(events.ModelRequested, turn=turn, messages=len(messages), tokens=sent, tools=tuple(self.agent.tools))
        yield from self.heard()
        said: ModelReply | None = None
        if self.streaming:
            stream: Any = self.agent.model.stream(messages, self.schemas)
            with contextlib.closing(stream) as pieces:
                for piece in pieces:
                    if isinstance(piece, ModelReply):
                        said = piece
                    elif piece:
                        self.emit(events.TextDelta, turn=turn, text=piece)
                        yield from self.heard()
        else:
            said = self.agent.model.complete(messages, self.schemas)
        if said is None:
            raise EndpointError(f"{self.model_name}: the stream ended without a reply")
        self.reply = replace(self.reply, turns=turn, usage=self.reply.usage + said.usage)
        self.emit(
            events.ModelReplied,
            turn=turn,
            text=said.text,
            calls=tuple(events.Called(call.id, call.name, call.raw) for call in said.calls),
            finish_reason=said.finish_reason,
            input_tokens=said.usage.input_tokens,
            output_tokens=said.usage.output_tokens,
        )
        if sent > 2_000 and 0 < said.usage.input_tokens < sent // 2:  # Ollama cuts at num_ctx and says nothing
            self.remark(f"the server read {said.usage.input_tokens} tokens of about {sent}: it may have cut the rest")
        yield from self.heard()
        return said

    def request(self, turn: int) -> list[dict[str, Any]]:
        """What is sent: all, or what fits into the budget."""
        if self.agent.token_budget is None:
            return [*self.system, *self.messages]
        fit = history.fitted(self.messages, self.agent.token_budget, self.fixed)
        if (fit.left_out, fit.shortened) not in {self.left_out, (0, 0)}:
            self.emit(
                events.SessionTrimmed,
                turn=turn,
                budget=self.agent.token_budget,
                messages=fit.left_out,
                shortened=fit.shortened,
                tokens=fit.tokens,
            )
        self.left_out = (fit.left_out, fit.shortened)
        return [*self.system, *fit.messages]

    def read(self, turn: int, said: ModelReply) -> tuple[str, tuple[ToolCall, ...]]:
        """What was said, and what is called: calls count by being there, whatever `finish_reason` says."""
        text, calls = said.text, said.calls
        if not calls:
            written = calls_in_text(text, self.agent.tools)
            rescued = written.whole and self.agent.rescue_text_calls and said.finish_reason != "length"
            names = tuple(dict.fromkeys(call.name for call in written.calls))
            if names:
                self.emit(events.TextCallSeen, turn=turn, names=names, text=text, rescued=rescued)
            if rescued:
                text, calls = "", written.calls
            elif names:
                self.remark(f"the answer holds a call of {', '.join(names)} written as text; it was not carried out")
                if written.whole:
                    self.reply = replace(self.reply, stop_reason="text_call")
        if text.strip():
            self.reply = replace(self.reply, text=text)
        elif not calls:
            self.reply = replace(self.reply, text="")
        if said.finish_reason == "length":
            self.remark("the tool calls were cut off, and none was carried out" if calls else "the answer was cut off")
        if not calls and said.finish_reason in {"length", "content_filter"}:
            self.reply = replace(self.reply, stop_reason=said.finish_reason)
        taken = {call["id"] for message in self.messages for call in message.get("tool_calls", ())}
        return text, with_unique_ids(calls, taken)

    # -- the tools of one turn ----------------------------------------------------------------------------------------

    def answer(self, turn: int, calls: Sequence[ToolCall], cut_off: bool) -> _Steps[str]:
        """Carry the calls out, side by side, and tell the results in the order of the calls.

        Returns the name of a tool that is called again and again, or "". Whatever interrupts it, every call that has
        been kept gets its result.
        """
        done: dict[int, _Done] = {}
        begun: set[int] = set()
        told = 0
        repeating = ""
        try:
            work: deque[tuple[int, Tool, dict[str, Any]]] = deque()
            known = set(self.told)
            for number, call in enumerate(calls):
                checked = _CUT_OFF if cut_off else self.checked(call)
                if isinstance(checked, str):
                    done[number] = _Done(number, checked, ok=False)
                    repeating = repeating or (call.name if not cut_off and _same(call) in known else "")
                else:
                    work.append((number, self.agent.tools[call.name], checked))
            for number, _, _ in work:
                call = calls[number]
                begun.add(number)
                given = json.loads(json.dumps(call.arguments))  # a copy: the tool may change its own
                self.emit(events.ToolStarted, turn=turn, call=call.id, name=call.name, arguments=given)
            self.start(work)
            while told < len(calls):
                if told in done:
                    call, result = calls[told], done[told]
                    self.keep(history.result(call.id, result.text))
                    told += 1
                    self.tell(turn, call, result)
                    yield from self.heard(done)
                else:
                    item = self.inbox.get()
                    if isinstance(item, _Done):
                        done[item.number] = item
                    else:
                        yield item
        except BaseException:
            left: list[tuple[ToolCall, _Done]] = []
            for number in range(told, len(calls)):
                unknown = history.INTERRUPTED if number in begun else history.NOT_BEGUN
                left.append((calls[number], done.get(number) or _Done(number, unknown, ok=False)))
            for call, result in left:  # first what must be kept: a listener may be what was interrupted
                self.keep(history.result(call.id, result.text))
            for call, result in left:
                self.tell(turn, call, result)
            raise
        return repeating

    def checked(self, call: ToolCall) -> dict[str, Any] | str:
        """The arguments to call with, or what the model is told in place of a result."""
        same = _same(call)
        self.times[same] = self.times.get(same, 0) + 1
        if self.times[same] >= _TOO_OFTEN:
            self.told.add(same)
            last = self.last.get(same)
            if last is None or last.ok:
                return f"Already done, same result as before. Do not call {call.name} like this again: answer now."
            return f"Already tried, same error as before. {last.text}"
        made = self.agent.tools.get(call.name)
        if made is None:
            offered = f"the tools are {', '.join(self.agent.tools)}" if self.agent.tools else "there are no tools"
            return f"There is no tool {call.name[:64]!r}: {offered}."
        if call.arguments is None:
            return f"{call.name}: {call.fault}; received {call.raw[:200]!r}. {made.takes()}"
        try:
            arguments = made.check(call.arguments)
            ask = made.needs_approval
            ask = self.untrusted_read() if ask == "after_untrusted" else ask(arguments) if callable(ask) else ask
        except Exception as error:  # also from the host's `needs_approval`: what cannot be decided is not done
            return (
                str(error) if isinstance(error, ValueError) else f"{call.name} failed: {type(error).__name__}: {error}"
            )
        if not ask:
            return arguments
        if self.agent.approve is None:
            return f"Not done: {call.name} needs a person's approval, and nobody can be asked here."
        answer = self.agent.approve(call)
        answer = awaited(answer) if inspect.isawaitable(answer) else answer
        return arguments if answer is True else f"Not done: a person refused this call of {call.name}."

    def untrusted_read(self) -> bool:
        """Whether the model has read what an untrusted tool gave, also earlier in the session: the transcript says so.
        What came of a tool that this agent does not have counts as untrusted."""
        answered = {message.get("tool_call_id") for message in self.messages if message["role"] == "tool"}
        names = (
            call["function"]["name"]
            for message in self.messages
            for call in message.get("tool_calls", ())
            if call["id"] in answered
        )
        return any(name not in self.agent.tools or self.agent.tools[name].untrusted for name in names)

    def start(self, work: deque[tuple[int, Tool, dict[str, Any]]]) -> None:
        """Begin all of the work in threads, which put a `_Done` into the inbox for each."""

        def next_ones() -> None:
            while True:
                try:
                    number, made, arguments = work.popleft()
                except IndexError:
                    return
                began = time.perf_counter()
                try:
                    text, ok = events.within(self.source, made.call, arguments), True
                except BaseException as error:  # tools raise, the loop reports
                    text, ok = f"{made.name} failed: {type(error).__name__}: {error}", False
                self.inbox.put(_Done(number, as_text(text), ok, time.perf_counter() - began))

        # Threads that do not keep the process alive: Ctrl-C must not wait for a tool that hangs. The context is
        # copied, so that a tool sees the caller's context variables.
        for _ in range(min(len(work), _AT_ONCE)):
            target = contextvars.copy_context().run
            threading.Thread(target=target, args=(next_ones,), name="diarist-tool", daemon=True).start()

    def tell(self, turn: int, call: ToolCall, done: _Done) -> None:
        self.last.setdefault(_same(call), done)
        self.emit(
            events.ToolEnded,
            turn=turn,
            call=call.id,
            name=call.name,
            result=done.text,
            ok=done.ok,
            seconds=done.seconds,
        )

    # -- small things -------------------------------------------------------------------------------------------------

    def keep(self, message: dict[str, Any]) -> None:
        """Add a message to the transcript, once it is safe in the session."""
        if self.session is not None:
            self.save(message)
        self.messages.append(message)

    def save(self, message: dict[str, Any]) -> None:
        assert self.session is not None
        id = self.session.append(dict(message))
        self.emit(events.SessionSaved, message=id, role=message["role"])

    def heard(self, done: dict[int, _Done] | None = None) -> _Steps[None]:
        """The events that have happened since. What is `_Done` goes into `done`."""
        while not self.inbox.empty():
            item = self.inbox.get()
            if not isinstance(item, _Done):
                yield item
            elif done is not None:
                done[item.number] = item

    def remark(self, text: str) -> None:
        if text not in self.reply.remarks:
            self.reply = replace(self.reply, remarks=(*self.reply.remarks, text))

    def end(self, stop_reason: str, error: str = "") -> None:
        self.reply = replace(self.reply, messages=[*self.system, *self.messages])
        usage = self.reply.usage
        self.emit(
            RunEnded,
            text=self.reply.text,
            stop_reason=stop_reason,
            turns=self.reply.turns,
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            remarks=self.reply.remarks,
            error=error,
            reply=None if stop_reason in {"error", "interrupted"} else self.reply,
        )

    @property
    def model_name(self) -> str:
        return str(getattr(self.agent.model, "model", None) or type(self.agent.model).__name__)

    @property
    def keeps_reasoning(self) -> bool:
        return bool(getattr(self.agent.model, "keep_reasoning", False))

    def reasoning(self, said: ModelReply) -> str:
        return said.reasoning if self.keeps_reasoning else ""


def _same(call: ToolCall) -> str:
    """Equal for calls of the same tool with the same arguments."""
    if call.arguments is None:
        return f"{call.name} {call.raw}"
    return f"{call.name} {json.dumps(call.arguments, sort_keys=True)}"
