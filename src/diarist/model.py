"""`ChatModel`: any server that speaks OpenAI's chat completions, and sense made of what it says. It runs no tools.

Servers differ in all that the schema does not pin down, and in much that it does (docs/decisions/0008-the-loop.md).
What comes out of here is always a whole `ModelReply`, or an `EndpointError`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, cast

from . import wire
from .errors import EndpointError
from .tool import clean_text

Messages = Sequence[Mapping[str, Any]]
Schemas = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the server counted them; 0 where it did not say."""

    input_tokens: int = 0
    output_tokens: int = 0

    def __add__(self, other: Usage) -> Usage:
        return Usage(self.input_tokens + other.input_tokens, self.output_tokens + other.output_tokens)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """What the model wants called."""

    id: str
    name: str
    arguments: dict[str, Any] | None
    """None if what came is no JSON object; `fault` then says what is wrong with it."""
    raw: str = ""
    """The arguments as they came, as text."""
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class ModelReply:
    """One answer, whole."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    """As the server said it. Not to be trusted about calls: servers say "stop" with calls, and the reverse."""
    usage: Usage = field(default_factory=Usage)
    reasoning: str = ""


class Model(Protocol):
    """What `Agent` needs of a model. `messages` and `tools` are those of a chat completions request.

    Optional, and used where they are there: `model`, a name for people; `keep_reasoning`, see `ChatModel`.
    """

    def complete(self, messages: Messages, tools: Schemas) -> ModelReply: ...

    def stream(self, messages: Messages, tools: Schemas) -> Iterator[str | ModelReply]:
        """Pieces of the text as they come, then the whole reply, which counts."""
        ...


# -- one answer -------------------------------------------------------------------------------------------------------


def reply_of(answer: Mapping[str, Any]) -> ModelReply | None:
    """The reply in a chat completion; None if it holds none."""
    choice = _first(answer.get("choices"))
    message: Any = choice.get("message")
    if not isinstance(message, dict):
        return None
    said = cast("dict[str, Any]", message)
    legacy = wire.object_of(said.get("function_call"))
    items: Any = said.get("tool_calls") or ([{"function": legacy}] if legacy else [])
    return _reply(
        _content(said.get("content")) or _content(said.get("refusal")),
        _content(said.get("reasoning_content")) or _content(said.get("reasoning")),
        [call for item in cast("list[Any]", items) if (call := _call(item))] if isinstance(items, list) else [],
        choice.get("finish_reason"),
        answer.get("usage"),
    )


def _first(choices: Any) -> dict[str, Any]:
    items = cast("list[Any]", choices) if isinstance(choices, list) else []
    return wire.object_of(items[0]) if items else {}


def _reply(text: str, reasoning: str, calls: Sequence[ToolCall], finish_reason: Any, usage: Any) -> ModelReply:
    thought, text = _without_thoughts(text)
    about = wire.object_of(usage)
    return ModelReply(
        text=clean_text(_without_scaffolding(text)),
        calls=with_unique_ids(calls, ()),
        finish_reason=finish_reason if isinstance(finish_reason, str) else "",
        usage=Usage(_count(about.get("prompt_tokens")), _count(about.get("completion_tokens"))),
        reasoning=reasoning or thought,
    )


def _count(value: Any) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def _content(content: Any) -> str:
    """Text, from text, a list of parts, or nothing."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = cast("list[Any]", content)
    texts = [part if isinstance(part, str) else wire.object_of(part).get("text") for part in parts]
    return "".join(text for text in texts if isinstance(text, str))


def _without_thoughts(text: str) -> tuple[str, str]:
    """What a reasoning model thought, and what it said: templates leave `<think>` in the text, or only its end."""
    start = text.lstrip()
    if start.startswith("<think>"):
        thought, _, said = start.removeprefix("<think>").partition("</think>")
    elif "</think>" in text and "<think>" not in text:
        thought, _, said = text.partition("</think>")
    else:
        return "", text
    return thought.strip(), said.lstrip()


_EMPTY_TAGS = re.compile(r"<(tools|tool_call|tool_response|functions|function_call)>\s*</\1>")
_TURN_MARK = re.compile(r"<\|(?:im_start|im_end|endoftext|eot_id|end)\|>|</s>\Z")


def _without_scaffolding(text: str) -> str:
    """Without what belongs to the chat template: empty tags, and all from where the model begins another's turn."""
    mark = _TURN_MARK.search(text)
    return _EMPTY_TAGS.sub("", text[: mark.start()] if mark else text)


def _call(item: Any) -> ToolCall | None:
    about = wire.object_of(item)
    function = wire.object_of(about.get("function")) or about
    name, id = function.get("name"), about.get("id")
    if not about:
        return None
    arguments, raw, fault = _arguments(function.get("arguments"))
    return ToolCall(id if isinstance(id, str) else "", name if isinstance(name, str) else "", arguments, raw, fault)


def _arguments(given: Any) -> tuple[dict[str, Any] | None, str, str | None]:
    """The arguments as an object, as text, and what is wrong with them."""
    if given is None or (isinstance(given, str) and not given.strip()):
        return {}, "", None
    if not isinstance(given, str):
        raw = json.dumps(given, ensure_ascii=False, default=str)
        value: Any = given
    else:
        raw = given
        try:
            value = json.loads(given, parse_constant=_no_number)
        except (ValueError, RecursionError) as error:
            return None, raw, f"the arguments are not valid JSON ({error})"
    if _too_deep(value):
        return None, raw, f"the arguments are nested more than {_DEEPEST} deep"
    if isinstance(value, dict):
        told = cast("dict[str, Any]", value)
        text = json.dumps(told, ensure_ascii=False, default=str)
        # Half a surrogate pair would be refused by the server, or by whatever the tool does with it.
        return (told if text.isascii() or text == clean_text(text) else json.loads(clean_text(text))), raw, None
    return None, raw, f"the arguments are {_KINDS.get(type(cast('object', value)), 'not an object')}, not an object"


_DEEPEST = 50  # what goes in and out of JSON again and again must not come near Python's recursion limit

_KINDS: dict[type, str] = {str: "a text", list: "a list", bool: "true or false", int: "a number", float: "a number"}


def _too_deep(value: Any) -> bool:
    level: list[Any] = [value]
    for _ in range(_DEEPEST):
        inner: list[Any] = []
        for each in level:
            if isinstance(each, dict):
                inner += cast("dict[str, Any]", each).values()
            elif isinstance(each, list):
                inner += cast("list[Any]", each)
        level = inner
    return bool(level)


def _no_number(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def spare_id(taken: Collection[str]) -> str:
    """An id that is not taken, of 9 letters and digits: Mistral's servers refuse any other."""
    number = len(taken) + 1
    while f"call{number:05}" in taken:
        number += 1
    return f"call{number:05}"


def with_unique_ids(calls: Sequence[ToolCall], taken: Collection[str]) -> tuple[ToolCall, ...]:
    """The calls, with an id of our own where theirs is missing or taken."""
    used = set(taken)
    told: list[ToolCall] = []
    for call in calls:
        id = call.id if call.id and call.id not in used and call.id.isascii() else spare_id(used)
        used.add(id)
        told.append(call if id == call.id else replace(call, id=id))
    return tuple(told)


# -- calls written as text --------------------------------------------------------------------------------------------


class Written(NamedTuple):
    """Calls of offered tools in a text."""

    calls: tuple[ToolCall, ...]
    whole: bool
    """The text is nothing but these calls."""


_AROUND = re.compile(
    r"(?:\s|,|;|```[\w-]*|</?(?:tools?|tool_calls?|functions?|function_calls?)>|\[/?TOOL_CALLS\]|<\|/?tool_calls?\|>)+"
)
_MOST_TEXT = 64_000  # characters searched
_MOST_TRIES = 100  # braces tried in an ordinary answer: each costs up to the length of the text


def calls_in_text(text: str, offered: Collection[str]) -> Written:
    """Calls that a model wrote as text: JSON with a name and arguments, bare, fenced, or in the tags of templates.

    Only of offered tools. What repeats a tool's schema is no call. `whole` is False where there is anything else in
    the text: JSON in the midst of prose may be quoted.
    """
    text = text.strip()
    if len(text) > _MOST_TEXT or not any(name in text for name in offered):
        return Written((), False)
    calls: list[ToolCall] = []
    at, whole = 0, True
    while at < len(text):
        around = _AROUND.match(text, at)
        if around:
            at = around.end()
            continue
        value, end = _json_at(text, at)
        found = _calls_of(value, offered)
        if not found:
            whole = False
            break
        calls += found
        at = end
    if whole:
        return Written(with_unique_ids(calls, ()), bool(calls))
    starts = [match.start() for match in re.finditer(r"\{", text)][:_MOST_TRIES]
    calls, end = [], 0
    for start in starts:
        if start >= end:
            value, end = _json_at(text, start)
            calls += _calls_of(value, offered)
    return Written(with_unique_ids(calls, ()), False)


def _json_at(text: str, at: int) -> tuple[Any, int]:
    """The JSON that begins there, and where it ends; None if there is none."""
    if text[at] not in "{[":
        return None, at
    for skip in (0, 1) if text.startswith("{{", at) else (0,):  # some templates double the outer braces
        try:
            value, end = json.JSONDecoder(parse_constant=_no_number).raw_decode(text, at + skip)
            return value, end + (1 if skip and text.startswith("}", end) else 0)
        except (ValueError, RecursionError):
            continue
    return None, at


def _calls_of(value: Any, offered: Collection[str]) -> list[ToolCall]:
    """The calls that a JSON value is; [] if any part of it is something else."""
    if isinstance(value, list):
        each = [_calls_of(item, offered) for item in cast("list[Any]", value)]
        return [call for calls in each for call in calls] if all(each) else []
    about = wire.object_of(value)
    if isinstance(about.get("tool_calls"), list):
        return _calls_of(about["tool_calls"], offered)
    about = wire.object_of(about.get("function")) or about
    name = about.get("name")
    given: Any = next((about[key] for key in ("arguments", "parameters") if key in about), _MISSING)
    if not isinstance(name, str) or name not in offered or given is _MISSING:
        return []
    arguments, raw, _ = _arguments(given)
    if arguments is None or (arguments.get("type") == "object" and "properties" in arguments):
        return []
    return [ToolCall("", name, arguments, raw or "{}")]


_MISSING = object()


# -- a stream ---------------------------------------------------------------------------------------------------------


class _Pieces:
    """A streamed answer as it grows."""

    def __init__(self) -> None:
        self.text = ""
        self.reasoning = ""
        self.calls: list[dict[str, Any]] = []  # index, id, name, arguments
        self.finish_reason: str | None = None
        self.usage: Any = None
        self.shown = 0
        self.any = False

    def add(self, chunk: Mapping[str, Any]) -> str:
        """Take a chunk; returns the text that may be shown now."""
        self.usage = chunk.get("usage") or self.usage
        self.any = self.any or bool(chunk.get("choices"))
        choice = _first(chunk.get("choices"))  # the last chunk has none
        delta = wire.object_of(choice.get("delta")) or wire.object_of(choice.get("message"))
        self.finish_reason = choice.get("finish_reason") or self.finish_reason
        self.text += _content(delta.get("content")) or _content(delta.get("refusal"))
        self.reasoning += _content(delta.get("reasoning_content")) or _content(delta.get("reasoning"))
        items: Any = delta.get("tool_calls")
        for item in cast("list[Any]", items) if isinstance(items, list) else []:
            self._call(wire.object_of(item))
        if isinstance(delta.get("function_call"), dict):  # as it was before there were several
            self._call({"function": delta["function_call"]})
        return self._new_text()

    def _new_text(self) -> str:
        """What has not been shown, but for a thought, which may only show itself as one later."""
        start = self.text.lstrip()
        if start.startswith("<think>") or "<think>".startswith(start):
            if "</think>" not in start:
                return ""
            said = start.partition("</think>")[2].lstrip()
        else:
            said = self.text
        new, self.shown = said[self.shown :], len(said)
        return new

    def _call(self, item: Mapping[str, Any]) -> None:
        function = wire.object_of(item.get("function")) or item
        index, id, name = item.get("index"), item.get("id") or "", function.get("name") or ""
        given: Any = function.get("arguments")
        piece: str = given if isinstance(given, str) else "" if given is None else json.dumps(given, ensure_ascii=False)
        # The latest of that index: some servers number all calls 0. Without an index, the latest of all.
        open_: dict[str, Any] | None = next(
            (call for call in reversed(self.calls) if index is None or call["index"] == index), None
        )
        if open_ is None and id and not name:
            open_ = next((call for call in self.calls if call["id"] == id), None)
        if open_ is None or (name and self._is_another(open_, id, name)):
            open_ = {"index": index, "id": "", "name": "", "arguments": ""}
            self.calls.append(open_)
        open_["id"] = open_["id"] or id  # the first: there are servers that make up a new one for every chunk
        open_["name"] = open_["name"] or name
        open_["arguments"] += piece

    @staticmethod
    def _is_another(call: Mapping[str, Any], id: str, name: str) -> bool:
        """A name where there is one already: is it the next call, or the same one named again?"""
        if not call["name"]:
            return False
        if call["name"] != name:
            return True
        if id and id == call["id"]:
            return False
        return bool(call["arguments"]) and _arguments(call["arguments"])[0] is not None

    def reply(self) -> ModelReply:
        calls = [call for item in self.calls if (call := _call(item))]
        return _reply(self.text, self.reasoning, calls, self.finish_reason, self.usage)


_OVERFLOW = re.compile(r"context|exceed|too (long|large|many tokens)|maximum.{0,20}tokens", re.I)


class ChatModel:
    """A chat model behind any OpenAI-compatible endpoint: OpenAI, Ollama, llama.cpp, vLLM, LM Studio, a gateway.

    `model`, `base_url`, `api_key`: None means DIARIST_MODEL, OPENAI_BASE_URL (else OpenAI itself), OPENAI_API_KEY; a
    server that wants no key works without. `timeout`: seconds for one request with all its retries; of a stream, until
    it begins and between two pieces. `temperature`, `max_tokens`: None leaves it to the server. `extra`: more fields
    of the request; None as a value takes a field out. `keep_reasoning`: send a reasoning model's thoughts back, which
    some servers demand and others refuse.

    Raises `ValueError` without a model's name, and for an address that is not safe to call.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        timeout: float = 60.0,
        temperature: float | None = None,
        max_tokens: int | None = None,
        extra: Mapping[str, Any] | None = None,
        keep_reasoning: bool = False,
    ) -> None:
        self.model = model or os.environ.get("DIARIST_MODEL") or ""
        if not self.model.strip():
            raise ValueError("which model? Give its name, or set DIARIST_MODEL")
        if not timeout > 0:
            raise ValueError(f"timeout is {timeout}; it must be above 0")
        self.base_url = wire.address(base_url or os.environ.get("OPENAI_BASE_URL") or "https://api.openai.com/v1")
        self.timeout, self.keep_reasoning = timeout, keep_reasoning
        self._fields = {"temperature": temperature, "max_tokens": max_tokens}
        self._extra = dict(extra or {})
        self._wire = wire.Wire("chat.completions", self.base_url, api_key)

    def complete(self, messages: Messages, tools: Schemas = ()) -> ModelReply:
        """Ask, and wait for the whole answer. Raises `EndpointError`; with `overflow` set if the prompt is too long."""
        *_, reply = self._ask(messages, tools, streaming=False)
        assert isinstance(reply, ModelReply)
        return reply

    def stream(self, messages: Messages, tools: Schemas = ()) -> Iterator[str | ModelReply]:
        """Ask, and give the text as it comes, then the whole reply. Raises as `complete` does.

        A request is tried again only while none of its text has been given.
        """
        return self._ask(messages, tools, streaming=True)

    def close(self) -> None:
        """Close the idle connections. A later call opens new ones."""
        self._wire.close()

    def _request(self, messages: Messages, tools: Schemas, streaming: bool) -> dict[str, Any]:
        fields: dict[str, Any] = {"model": self.model, "messages": list(messages), **self._fields}
        if tools:  # an empty list is refused by some
            fields["tools"] = list(tools)
        if streaming:
            fields |= {"stream": True, "stream_options": {"include_usage": True}}
        left_out = {name for name, value in self._extra.items() if value is None}
        extra = {name: value for name, value in self._extra.items() if value is not None}
        known = {name: value for name, value in fields.items() if value is not None and name not in left_out}
        return {**known, "extra_body": extra} if extra else known

    def _ask(self, messages: Messages, tools: Schemas, streaming: bool) -> Iterator[str | ModelReply]:
        wire.library()  # its import takes a second, which is not the endpoint's fault
        fields = self._request(messages, tools, streaming)
        tries, given = wire.Tries(self.timeout), False
        while True:
            asked, most = None, wire.TRIES
            try:
                for piece in self._pieces(fields, tries, streaming):
                    yield piece
                    given = True
                return
            except wire.Answer as answer:
                reason = answer.reason(self._wire)
                if given or not answer.may_retry():
                    raise self._error(reason, answer) from None
                asked = answer.retry_after()
            except ConnectionError as error:
                reason, most = str(error), wire.TRIES_TO_CONNECT
                if given:
                    raise self._error(f"{reason}, in the midst of the answer") from error
            except wire.TooSlow:
                said = "nothing more came" if given else "no answer"
                raise self._error(f"{said} within the limit of {self.timeout:g} s (timeout=)") from None
            except wire.GaveUp as error:
                raise self._error(str(error)) from None
            try:
                tries.wait(reason, asked, most)
            except wire.GaveUp as error:
                raise self._error(str(error)) from None

    def _pieces(self, fields: Mapping[str, Any], tries: wire.Tries, streaming: bool) -> Iterator[str | ModelReply]:
        """One exchange."""
        if not streaming:
            answer = self._wire.post(fields, tries.left, _MOST_ANSWER)
            if not 200 <= answer.status < 300:
                raise answer
            yield self._whole(answer)
            return
        with contextlib.closing(
            self._wire.stream(fields, tries.left, self.timeout * _STREAM_TIMES, _MOST_ANSWER, self.timeout)
        ) as came:
            answer = next(came)
            assert isinstance(answer, wire.Answer)
            if not 200 <= answer.status < 300:
                raise answer
            events = _Events(came)
            pieces = _Pieces()
            for data in events:
                if data == "[DONE]":
                    pieces.finish_reason = pieces.finish_reason or "stop"
                    break
                chunk = self._chunk(data, answer)
                text = pieces.add(chunk)
                if text:
                    yield text
        if events.any and not pieces.any:
            raise wire.GaveUp("the stream held no choices; is this a /chat/completions endpoint?")
        if not events.any:  # the server does not stream, and has sent its answer whole
            reply = self._whole(wire.Answer(answer.status, answer.headers, events.rest))
            if reply.text:
                yield reply.text
            yield reply
            return
        if pieces.finish_reason is None:
            raise ConnectionError("the stream ended before the answer did")
        yield pieces.reply()

    def _chunk(self, data: str, answer: wire.Answer) -> dict[str, Any]:
        try:
            chunk = wire.object_of(json.loads(data))
        except (ValueError, RecursionError):
            raise wire.GaveUp(f"a piece of the stream is no JSON: {data[:80]!r}") from None
        if chunk.get("error") and not chunk.get("choices"):
            raise _as_error(answer, data.encode())
        return chunk

    def _whole(self, answer: wire.Answer) -> ModelReply:
        told = wire.object_of(answer.json())
        reply = reply_of(told)
        if reply is None:
            if told.get("error"):
                raise _as_error(answer, answer.body)
            begins = f"{answer.body[:80].decode(errors='replace')!r}" if answer.body.strip() else "an empty body"
            raise wire.GaveUp(f"the answer holds no choices: {begins}; is this a /chat/completions endpoint?")
        return reply

    def _error(self, reason: str, answer: wire.Answer | None = None) -> EndpointError:
        secret = self._wire.secret
        if len(secret) >= 4:  # whatever the server repeats of it
            reason = reason.replace(secret, "***")
        error = EndpointError(f"asking {self.model} at {self.base_url}: {reason}")
        about = cast("Any", error)
        about.status = answer.status if answer else None
        about.overflow = bool(answer and answer.status in {400, 413, 500} and _OVERFLOW.search(answer.text()))
        if about.overflow:
            error.add_note("the conversation is longer than the model can take: give Agent a token_budget")
        return error


def _as_error(answer: wire.Answer, body: bytes) -> wire.Answer:
    """An error that came with status 200, with the status that it names, or 400."""
    code = wire.object_of(wire.object_of(json.loads(body)).get("error")).get("code")
    return wire.Answer(code if isinstance(code, int) and 400 <= code < 600 else 400, answer.headers, body)


_MOST_ANSWER = 64_000_000  # bytes read of an answer; a stream repeats a frame of some 300 bytes for each token
_STREAM_TIMES = 20  # a stream may last this many times `timeout` in all


class _Events:
    """The data of server-sent events, from bytes. `rest` is what is none."""

    def __init__(self, came: Iterator[Any]) -> None:
        self._came = came
        self.any = False
        self.rest = b""

    def __iter__(self) -> Iterator[str]:
        left = bytearray()
        for piece in self._came:
            *lines, rest = piece.split(b"\n")
            for line in lines:
                left += line
                yield from self._of(bytes(left))
                left.clear()
            left += rest
        yield from self._of(bytes(left))

    def _of(self, line: bytes) -> Iterator[str]:
        # Every server puts a chunk on one line, which spares putting events together from several.
        if line.startswith(b"data:"):
            self.any = True
            yield line[5:].strip().decode(errors="replace")
        elif not self.any:
            self.rest += line + b"\n"
