"""What a request may hold, whatever was saved: rebuilt, repaired, and cut to a budget. Pure functions on messages.

Servers differ in what they forgive (docs/decisions/0008-the-loop.md); what is built here, all of them take. Nothing
here changes what is saved: a session stays whole.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from .model import ToolCall, spare_id
from .tool import as_text, clean_text, shortened

Message = dict[str, Any]

INTERRUPTED = "Interrupted before it finished: it may or may not have happened."
NOT_BEGUN = "Interrupted before it began: it did not happen."

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_FRAME = 4  # tokens of role and separators around each message, as OpenAI's cookbook counts them
_LEAST = 32  # tokens: a message is not shortened to less
_LEAST_ROOM = 3 * _LEAST


def user(text: str) -> Message:
    return {"role": "user", "content": clean_text(text)}


def system(text: str) -> Message:
    return {"role": "system", "content": clean_text(text)}


def assistant(text: str, calls: Sequence[ToolCall] = (), reasoning: str = "") -> Message:
    """The model's reply as it may be sent back: known keys only, content a string, arguments valid JSON."""
    message: Message = {"role": "assistant", "content": clean_text(text)}
    if reasoning:
        message["reasoning_content"] = clean_text(reasoning)
    if calls:
        message["tool_calls"] = [_call(call.id, call.name, call.arguments) for call in calls]
    return message


def result(id: str, text: str) -> Message:
    return {"role": "tool", "tool_call_id": id, "content": as_text(text)}


def _call(id: str, name: str, arguments: Mapping[str, Any] | None) -> Message:
    # A name that no server takes is one that no tool has: the model has been told, and the history must stay valid.
    plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)[:64] or "unknown"
    text = clean_text(json.dumps(arguments or {}, ensure_ascii=False))
    return {"id": id, "type": "function", "function": {"name": plain, "arguments": text}}


# -- repair -----------------------------------------------------------------------------------------------------------


@dataclass
class Rebuilt:
    """A saved history as it may be sent."""

    messages: list[Message] = field(default_factory=list[Message])
    unanswered: list[str] = field(default_factory=list[str])
    """Ids, as saved, of the calls that had no result."""
    dropped: int = 0
    """Messages that can be sent to no server: results without a call, empty answers, unknown roles."""
    missing: list[Message] = field(default_factory=list[Message])
    """The results to save, so that the saved history ends well."""


def rebuilt(saved: Iterable[Mapping[str, Any]], keep_reasoning: bool = False) -> Rebuilt:
    """Every call answered once, right after, in order; ids that are unique; only what all servers take.

    What `assistant`, `user` and `result` made comes back equal, byte for byte. System messages are left out without
    being counted: the one there is comes from the instructions.
    """
    told, todo, taken = Rebuilt(), list(saved), set[str]()
    at = 0
    while at < len(todo):
        message = todo[at]
        at += 1
        match message.get("role"):
            case "user":
                made = _user(message)
                told.dropped += not made["content"]
                told.messages += [made] if made["content"] else []
            case "assistant":
                results: list[Mapping[str, Any]] = []
                while at < len(todo) and todo[at].get("role") == "tool":
                    results.append(todo[at])
                    at += 1
                told.missing = _answered(message, results, told, taken, keep_reasoning)
            case "system" | "developer":
                pass
            case _:
                told.dropped += 1
        if at < len(todo):
            told.missing = []  # only a gap at the end can still be mended where it is saved
    return told


def _user(message: Mapping[str, Any]) -> Message:
    content: Any = message.get("content")
    made: Message = {"role": "user", "content": content if isinstance(content, list) else clean_text(_text(content))}
    name = message.get("name")
    return {**made, "name": name} if isinstance(name, str) and _NAME.fullmatch(name) else made


def _answered(
    message: Mapping[str, Any],
    results: list[Mapping[str, Any]],
    told: Rebuilt,
    taken: set[str],
    keep_reasoning: bool,
) -> list[Message]:
    """Add an assistant message and its results to `told`; the results that had to be made up."""
    text, calls = _text(message.get("content")), _saved_calls(message.get("tool_calls"))
    reasoning = message.get("reasoning_content")
    made = assistant(text, (), reasoning if keep_reasoning and isinstance(reasoning, str) else "")
    if not calls:
        told.dropped += len(results) + (not text.strip())
        told.messages += [made] if text.strip() else []
        return []
    sent: list[Message] = []
    answers: list[Message] = []
    missing: list[Message] = []
    for was, name, arguments in calls:
        id = was if was and was not in taken else spare_id(taken)
        taken.add(id)
        sent.append(_call(id, name, arguments))
        found = next((each for each in results if each.get("tool_call_id") == was), None)
        if found is None:
            told.unanswered.append(was or id)
            missing.append(result(was or id, INTERRUPTED))
        else:
            results.remove(found)
        answers.append(result(id, INTERRUPTED if found is None else _text(found.get("content"))))
    told.dropped += len(results)
    told.messages += [{**made, "tool_calls": sent}, *answers]
    return missing


def _saved_calls(calls: Any) -> list[tuple[str, str, Mapping[str, Any]]]:
    told: list[tuple[str, str, Mapping[str, Any]]] = []
    for call in cast("list[Any]", calls) if isinstance(calls, list) else []:
        if not isinstance(call, dict):
            continue
        about = cast("dict[str, Any]", call)
        function = about.get("function")
        inner = cast("dict[str, Any]", function) if isinstance(function, dict) else about
        arguments: Any = inner.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = json.loads(arguments)
            except (ValueError, RecursionError):
                arguments = {}
        id = about.get("id")
        told.append(
            (
                id if isinstance(id, str) else "",
                str(inner.get("name") or ""),
                cast("dict[str, Any]", arguments) if isinstance(arguments, dict) else {},
            )
        )
    return told


def _text(content: Any) -> str:
    """Content as text: servers take a list of parts for some roles only."""
    if isinstance(content, list):
        parts = cast("list[Any]", content)
        texts: list[Any] = [part.get("text") if isinstance(part, dict) else part for part in parts]  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        return "\n".join(text for text in texts if isinstance(text, str))
    return "" if content is None else as_text(content) if not isinstance(content, str) else content


# -- the budget -------------------------------------------------------------------------------------------------------


def tokens(messages: Iterable[Mapping[str, Any]]) -> int:
    """About how many tokens these messages are."""
    return sum(_tokens(message) for message in messages)


def tokens_of(value: Any) -> int:
    """About how many tokens a piece of a request is, as JSON."""
    from .analysis import estimate_tokens

    return estimate_tokens(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _tokens(message: Mapping[str, Any]) -> int:
    count = _FRAME + sum(tokens_of(message[key]) for key in ("content", "reasoning_content") if message.get(key))
    for call in message.get("tool_calls", ()):
        count += _FRAME + tokens_of(call["function"]["name"]) + tokens_of(call["function"]["arguments"])
    return count


@dataclass(frozen=True)
class Fitted:
    """What is sent of a history, and what is not."""

    messages: list[Message]
    left_out: int = 0
    shortened: int = 0
    tokens: int = 0
    """Estimated, of what is not sent."""


def fitted(messages: list[Message], budget: int, fixed: Mapping[str, int]) -> Fitted:
    """As much of the newest as fits into `budget` tokens, beside the `fixed` parts, which are named with their tokens.

    Whole turns go, oldest first: a turn begins with a user message, so calls and results go together. The newest
    turn stays; its messages are shortened if they must be, to half the room and then less, and if that is not enough
    its oldest calls go, with their results. No older message gets more than a quarter of the room.

    Raises `ValueError` with the numbers if the fixed parts leave no room.
    """
    room = budget - sum(fixed.values())
    if room < _LEAST_ROOM:
        parts = ", ".join(f"{name} {count}" for name, count in fixed.items())
        raise ValueError(
            f"token_budget={budget} leaves {max(room, 0)} tokens for the conversation, and {_LEAST_ROOM} are the "
            f"least; what is always sent takes {sum(fixed.values())} ({parts})"
        )
    *older, newest = _turns(messages)
    kept = _newest(newest, room)
    room -= tokens(kept)
    most = (budget - sum(fixed.values())) // 4
    for turn in reversed(older):
        smaller = [_shorter(message, most) for message in turn]
        cost = tokens(smaller)
        if cost > room:
            break
        room -= cost
        kept = [*smaller, *kept]
    whole = {id(message) for message in messages}
    return Fitted(
        messages=kept,
        left_out=len(messages) - len(kept),
        shortened=sum(id(message) not in whole for message in kept),
        tokens=tokens(messages) - tokens(kept),
    )


def _turns(messages: list[Message]) -> list[list[Message]]:
    turns: list[list[Message]] = []
    for message in messages:
        if message["role"] == "user" or not turns:
            turns.append([])
        turns[-1].append(message)
    return turns


def _newest(turn: list[Message], room: int) -> list[Message]:
    steps: list[list[Message]] = []
    for message in turn:
        if message["role"] != "tool":
            steps.append([])
        steps[-1].append(message)
    most = room // 2
    while True:
        kept = [_shorter(message, most) for step in steps for message in step]
        if tokens(kept) <= room:
            return kept
        if most > _LEAST:
            most = max(_LEAST, most // 2)
        else:  # cannot come to nothing: the user's own message, shortened, is less than the least room
            del steps[1]


def _shorter(message: Message, most: int) -> Message:
    """The same message in about `most` tokens; the very same object if it is short enough."""
    if _tokens(message) <= most:
        return message
    changed = dict(message)
    if isinstance(message.get("content"), str):
        changed["content"] = _cut(message["content"], most - _FRAME)
    if message.get("tool_calls"):
        changed["tool_calls"] = [
            {**call, "function": {**call["function"], "arguments": _cut_arguments(call["function"]["arguments"], most)}}
            for call in message["tool_calls"]
        ]
    return message if changed == message else changed


def _cut(text: str, most: int) -> str:
    """A text in at most `most` tokens, with a mark that says how much is missing."""
    count = tokens_of(text)
    if count <= most:
        return text
    size = len(text) * most // count
    while size > 0:
        told = shortened(text, size)
        if tokens_of(told) <= most:
            return told
        size = size * 3 // 4
    return "…"


def _cut_arguments(text: str, most: int) -> str:
    """Arguments that are still valid JSON, their texts shortened."""
    if tokens_of(text) <= most:
        return text
    arguments: dict[str, Any] = json.loads(text)
    share = max(most // max(len(arguments), 1) - _FRAME, 1)
    cut = {name: _cut(value, share) if isinstance(value, str) else value for name, value in arguments.items()}
    told = json.dumps(cut, ensure_ascii=False)
    return told if tokens_of(told) <= 2 * most else "{}"
