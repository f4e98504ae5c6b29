"""A model that says what a test wants it to. A fake: it reads nothing and knows nothing."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

from ..model import ModelReply, ToolCall, Usage

Step = str | ToolCall | ModelReply | Exception | Sequence[str | ToolCall] | Callable[[list[dict[str, Any]]], Any]
"""What a model does when it is asked: say a text, make a call (`call(...)`), both or several in a list, give a reply as
it is, or raise. A callable is given the messages and returns one of these."""


class Asked(NamedTuple):
    """What a scripted model was sent."""

    messages: list[dict[str, Any]]
    tools: list[dict[str, Any]]


def call(name: str, /, **arguments: Any) -> ToolCall:
    """A step, or a part of one: `call("recall", query="the same as last time")`."""
    return ToolCall("", name, arguments, json.dumps(arguments, ensure_ascii=False))


def as_reply(step: Any, messages: Iterable[Mapping[str, Any]]) -> ModelReply:
    """What a step says. Raises it if it is an exception."""
    while callable(step):
        step = step([dict(message) for message in messages])
    if isinstance(step, Exception):
        raise step
    if isinstance(step, ModelReply):
        return step
    parts: list[Any] = [step] if isinstance(step, str | ToolCall) else list(cast("Sequence[Any]", step))
    calls = [part for part in parts if isinstance(part, ToolCall)]
    text = "".join(part for part in parts if isinstance(part, str))
    # Ids as servers give them, so that only a test that is about ids sees others.
    size = sum(1 for message in messages if message.get("role") == "assistant")
    named = tuple(
        ToolCall(each.id or f"call-{size}-{number}", each.name, each.arguments, each.raw, each.fault)
        for number, each in enumerate(calls)
    )
    return ModelReply(text, named, "tool_calls" if named else "stop", Usage(0, 0))


class ScriptedModel:
    """A fake model with the interface of `ChatModel`: `Agent(ScriptedModel(["Hello!"]))`.

    Each request takes the next step. One request too many raises `AssertionError`; so does a step too many, at the end
    of `with ScriptedModel(...) as model:` or at `model.finish()`. `model.requests` is what it was sent.
    """

    def __init__(self, steps: Iterable[Step] = (), *, model: str = "scripted") -> None:
        self.model = model
        self.requests: list[Asked] = []
        self._steps = list(steps)
        self._lock = threading.Lock()

    def complete(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> ModelReply:
        """What the next step says."""
        with self._lock:
            # A copy by way of JSON: what cannot be sent fails here too, and later changes do not show.
            sent, offered = json.loads(json.dumps([list(messages), list(tools)]))
            self.requests.append(Asked(sent, offered))
            number = len(self.requests)
            if number > len(self._steps):
                raise AssertionError(f"request {number} to a model with {len(self._steps)} steps: {sent[-1]}")
            step = self._steps[number - 1]
        return as_reply(step, messages)

    def stream(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> Iterator[str | ModelReply]:
        """The same, word by word."""
        reply = self.complete(messages, tools)
        yield from re.findall(r"\S*\s*", reply.text)[:-1]
        yield reply

    def finish(self) -> None:
        """Raises `AssertionError` if a step was not used."""
        left = len(self._steps) - len(self.requests)
        assert left <= 0, f"{left} of {len(self._steps)} steps were not used"

    def __enter__(self) -> ScriptedModel:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.finish()
