"""How chat servers answer, whole and in pieces; what a strict one refuses; and quirks that were seen on real ones."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

from ..model import ModelReply

Json = Any


def completion(reply: ModelReply, model: str) -> Json:
    """The answer of a well-behaved server."""
    message: Json = {"role": "assistant", "content": reply.text or None}
    if reply.calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.raw}}
            for call in reply.calls
        ]
    usage = reply.usage
    counts = {"prompt_tokens": usage.input_tokens, "completion_tokens": usage.output_tokens}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_767_225_600,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish_reason}],
        "usage": {**counts, "total_tokens": sum(counts.values())},
    }


def pieces(answer: Json) -> list[Json]:
    """The same answer as the chunks of a stream, the usage last, in a chunk without choices."""
    if not answer.get("choices"):
        return [answer]
    frame: Json = {"id": answer["id"], "object": "chat.completion.chunk", "model": answer["model"]}
    choice: Json = answer["choices"][0]
    deltas: list[Json] = [{"role": "assistant", "content": None}]
    for key, value in choice["message"].items():
        if key == "tool_calls" and value:
            deltas += [delta for index, call in enumerate(value) for delta in _call_pieces(index, call)]
        elif isinstance(value, str) and key != "role":
            deltas += [{key: piece} for piece in re.findall(r"\s*\S+\s*|\s+", value)]
        elif key != "role":
            deltas.append({key: value})
    chunks = [{**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    end: Json = {"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}
    return [*chunks, {**frame, "choices": [end]}, {**frame, "choices": [], "usage": answer.get("usage")}]


def _call_pieces(index: int, call: Json) -> Iterator[Json]:
    function = call.get("function", call)
    arguments = function.get("arguments")
    if not isinstance(arguments, str) or "function" not in call:
        yield {"tool_calls": [{"index": index, **call}]}
        return
    yield {"tool_calls": [{"index": index, **call, "function": {**function, "arguments": ""}}]}
    for start in range(0, len(arguments), 7):
        yield {"tool_calls": [{"index": index, "function": {"arguments": arguments[start : start + 7]}}]}


def as_events(chunks: list[Json]) -> str:
    """Server-sent events. A chunk that is text is sent as it is."""
    lines = [chunk if isinstance(chunk, str) else f"data: {json.dumps(chunk)}" for chunk in chunks]
    return "".join(f"{line}\n\n" for line in [*lines, "data: [DONE]"])


# -- what a strict server refuses -------------------------------------------------------------------------------------


def refusal(body: Json) -> str | None:
    """What is wrong with a request, for the strictest of the servers that were tried; None if nothing is."""
    messages: list[Json] = body.get("messages") or []
    if type(body.get("messages")) is not list or not messages:
        return "messages must be a list that is not empty"
    if "tools" in body:
        if not body["tools"]:
            return "tools must not be empty"
        for each in body["tools"]:
            if each.get("type") != "function" or not isinstance(each.get("function", {}).get("parameters"), dict):
                return "a tool must have type 'function' and a function with parameters"
            if not _name(each["function"].get("name")):
                return "a tool's name must match [a-zA-Z0-9_-]{1,64}"
    if re.search(r"\\ud[89a-f]", re.sub(r"\\ud[89ab]..\\ud[c-f]..", "", json.dumps(body))):
        return "invalid surrogate in text"
    open_: list[str] = []
    seen: set[str] = set()
    for number, message in enumerate(messages):
        fault = _message_fault(message, first=number == 0, open_=open_, seen=seen)
        if fault:
            return f"messages[{number}]: {fault}"
    if open_:
        return f"tool calls without a result: {', '.join(open_)}"
    return "the last message must be of the user or a tool" if messages[-1]["role"] == "assistant" else None


def _message_fault(message: Json, first: bool, open_: list[str], seen: set[str]) -> str | None:
    role, content = message.get("role"), message.get("content")
    known = {
        "role",
        "content",
        *{"assistant": ["tool_calls"], "tool": ["tool_call_id"], "user": ["name"]}.get(role, []),
    }
    if role not in {"system", "user", "assistant", "tool"}:
        return f"role {role!r} is not known"
    if message.keys() - known:
        return f"unknown fields: {', '.join(sorted(message.keys() - known))}"
    if role == "system" and not first:
        return "System message must be at the beginning"
    if not (isinstance(content, str) or (role == "user" and content and type(content) is list)):
        return f"invalid message content type: {type(content).__name__}"
    if not content and not message.get("tool_calls"):
        return "content must not be empty"
    if role == "tool":
        if not open_ or open_[0] != message.get("tool_call_id"):
            return f"a result of {message.get('tool_call_id')!r} does not follow its call"
        del open_[0]
        return None
    if open_:
        return f"tool calls without a result: {', '.join(open_)}"
    if "tool_calls" in message and not message["tool_calls"]:
        return "tool_calls must not be empty"
    for call in message.get("tool_calls", ()):
        fault = _call_fault(call, seen)
        if fault:
            return fault
        seen.add(call["id"])
        open_.append(call["id"])
    return None


def _call_fault(call: Json, seen: set[str]) -> str | None:
    id, function = call.get("id"), call.get("function", {})
    if not isinstance(id, str) or not re.fullmatch(r"[\x21-\x7e]{1,64}", id) or id in seen:
        return f"tool call id {id!r} is missing, odd or not unique"
    if call.keys() != {"id", "type", "function"} or call["type"] != "function" or not _name(function.get("name")):
        return "a tool call has an id, the type 'function' and a function with a name"
    try:
        if isinstance(json.loads(function["arguments"], parse_constant=_refuse), dict):
            return None
    except (ValueError, TypeError, KeyError):
        pass
    return f"Failed to parse tool call arguments as JSON: {function.get('arguments')!r}"


def _name(name: Json) -> bool:
    return isinstance(name, str) and re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) is not None


def _refuse(name: str) -> Json:
    raise ValueError(name)


# -- quirks: changes of a right answer, which a stream then has too ---------------------------------------------------

Edit = Callable[[Json], Json]


def choice(**changes: Json) -> Edit:
    return lambda answer: {**answer, "choices": [{**answer["choices"][0], **changes}]}


def message(change: Callable[[Json], Json]) -> Edit:
    return lambda answer: choice(message=change(answer["choices"][0]["message"]))(answer)


def calls(change: Callable[[list[Json]], Json]) -> Edit:
    return message(lambda said: {**said, "tool_calls": change(said.get("tool_calls") or [])})


def arguments(change: Callable[[str], Json]) -> Edit:
    def changed(call: Json) -> Json:
        function = call["function"]
        return {**call, "function": {**function, "arguments": change(function["arguments"])}}

    return calls(lambda items: [changed(call) for call in items])


def both(*edits: Edit) -> Edit:
    def edit(answer: Json) -> Json:
        for each in edits:
            answer = each(answer)
        return answer

    return edit


def without(name: str) -> Edit:
    return message(lambda said: {key: value for key, value in said.items() if key != name})


def as_text(frame: str, joined: str = "\n") -> Edit:
    """The calls as text in the content, in `frame` where it says {}."""

    def edit(said: Json) -> Json:
        written = [
            json.dumps({"name": call["function"]["name"], "arguments": json.loads(call["function"]["arguments"])})
            for call in said["tool_calls"]
        ]
        return {"role": "assistant", "content": frame.replace("{}", joined.join(written))}

    return both(message(edit), choice(finish_reason="stop"))


EDITS: dict[str, Edit] = {
    "stop with calls": choice(finish_reason="stop"),
    "tool_calls without calls": both(choice(finish_reason="tool_calls"), calls(lambda _: [])),
    "length": choice(finish_reason="length"),
    "cut call": both(choice(finish_reason="length"), arguments(lambda text: text[: len(text) // 2])),
    "cut call, relabelled": arguments(lambda text: text[: len(text) // 2]),
    "tool_calls null": calls(lambda _: None),
    "tool_calls empty": calls(lambda _: []),
    "no ids": calls(lambda items: [{key: call[key] for key in ("type", "function")} for call in items]),
    "null ids": calls(lambda items: [{**call, "id": None} for call in items]),
    "empty ids": calls(lambda items: [{**call, "id": ""} for call in items]),
    "same ids": calls(lambda items: [{**call, "id": "call_0"} for call in items]),
    "flat calls": calls(lambda items: [call["function"] for call in items]),
    "old function_call": message(lambda said: {"content": None, "function_call": said["tool_calls"][0]["function"]}),
    "arguments object": arguments(json.loads),
    "arguments null": arguments(lambda _: None),
    "arguments empty": arguments(lambda _: ""),
    "arguments bare": arguments(lambda _: '"abc"'),
    "arguments list": arguments(lambda _: "[1, 2]"),
    "arguments quoted wrongly": arguments(lambda text: text.replace('"', "'")),
    "arguments NaN": arguments(lambda _: '{"kg": NaN}'),
    "arguments echo the schema": arguments(lambda text: json.dumps({**json.loads(text), "required": ["query"]})),
    "content missing": without("content"),
    "content parts": message(lambda said: {**said, "content": [{"type": "text", "text": said["content"]}]}),
    "content newlines": message(lambda said: {**said, "content": "\n\n"}),
    "reasoning_content": message(lambda said: {**said, "reasoning_content": "The user is back."}),
    "reasoning": message(lambda said: {**said, "reasoning": "The user is back."}),
    "think": message(lambda said: {**said, "content": f"<think>\nThe user is back.\n</think>\n\n{said['content']}"}),
    "think closed only": message(lambda said: {**said, "content": f"The user is back.</think>{said['content']}"}),
    "extra keys": message(lambda said: {**said, "refusal": None, "annotations": [], "audio": None, "x": {"y": 1}}),
    "scaffolding": message(lambda said: {**said, "content": f"<tools></tools>{said['content']}<|im_start|>user\nhi"}),
    "lone surrogate": message(lambda said: {**said, "content": f"{said['content']} \ud83d"}),
    "choices null": lambda answer: {**answer, "choices": None, "error": {"message": "upstream failed", "code": 502}},
    "choices missing": lambda answer: {"id": answer["id"], "usage": answer["usage"]},
    "choices empty": lambda answer: {**answer, "choices": []},
    "error text in 200": lambda _: {"error": "The number of tokens to keep is greater than the context length"},
    "no usage": lambda answer: {key: value for key, value in answer.items() if key != "usage"},
    "text: bare": as_text("{}"),
    "text: fenced": as_text("```json\n{}\n```"),
    "text: tool_call": as_text("<tool_call>\n{}\n</tool_call>", "\n</tool_call>\n<tool_call>\n"),
    "text: tools": as_text("<tools>{}</tools>"),
    "text: list": as_text("[{}]", ", "),
    "text: Mistral": as_text("[TOOL_CALLS][{}]", ", "),
    "text: double braces": both(
        as_text("{}"), message(lambda said: {**said, "content": re.sub(r"(?m)^(.*)$", r"{\1}", said["content"])})
    ),
    "text: prose around": as_text("I will do that now:\n{}\nDone!"),
    "text: quoted": as_text("To order, a program would send `{}`, as the manual says."),
}
"""By name, for `LoopbackEndpoint.fail`. Those about calls want a scripted reply that has some."""


def each_call(change: Callable[[int, Json], Json]) -> Callable[[list[Json]], list[Json]]:
    """A change of every piece of a call in a stream; `change` is given how many came before, and the piece."""

    def edit(chunks: list[Json]) -> list[Json]:
        count = 0
        told: list[Json] = []
        for chunk in chunks:
            delta: Json = chunk["choices"][0]["delta"] if chunk["choices"] else {}
            if delta.get("tool_calls"):
                changed = [change(count, call) for call in delta["tool_calls"]]
                chunk = {**chunk, "choices": [{**chunk["choices"][0], "delta": {**delta, "tool_calls": changed}}]}
                count += 1
            told.append(chunk)
        return told

    return edit


def _in_one(chunks: list[Json]) -> list[Json]:
    """Each call in one piece, all of index 0, as Ollama sends them."""
    told: list[Json] = []
    open_: list[Json] = []
    for chunk in chunks:
        delta: Json = chunk["choices"][0]["delta"] if chunk["choices"] else {}
        for call in delta.get("tool_calls") or ():
            if "id" in call:
                open_.append({**call, "index": 0})
            else:
                function = open_[-1]["function"]
                function["arguments"] = function["arguments"] + call["function"]["arguments"]
        if not delta.get("tool_calls"):
            if open_ and chunk["choices"] and chunk["choices"][0]["finish_reason"]:
                told += [{**chunk, "choices": [{"index": 0, "delta": {"tool_calls": [call]}}]} for call in open_]
                open_ = []
            told.append(chunk)
    return told


CHUNK_EDITS: dict[str, Callable[[list[Json]], list[Json]]] = {
    "stream: index 0": _in_one,
    "stream: no index": each_call(lambda _, call: {key: value for key, value in call.items() if key != "index"}),
    "stream: changing ids": each_call(lambda count, call: {**call, "id": f"call_{count}"}),
    "stream: name in every piece": each_call(
        lambda _, call: {**call, "function": {"name": "recall", **call["function"]}}
    ),
    "stream: no usage": lambda chunks: chunks[:-1],
    "stream: usage null": lambda chunks: [{**chunk, "usage": None} for chunk in chunks[:-1]],
    "stream: no finish_reason": lambda chunks: [
        {**chunk, "choices": [{**each, "finish_reason": None} for each in chunk["choices"]]} for chunk in chunks
    ],
    "stream: comments": lambda chunks: [": OPENROUTER PROCESSING", *chunks, ": ping"],
    "stream: error midway": lambda chunks: [*chunks[:2], {"error": {"message": "CUDA out of memory", "code": 500}}],
    "stream: broken JSON": lambda chunks: [*chunks[:2], 'data: {"choices": [{"del'],
}
"""Changes that only a stream can have."""
