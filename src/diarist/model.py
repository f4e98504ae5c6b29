"""`ChatModel`: any server that speaks OpenAI's chat completions, and what it said made sense of. No loop, no tools run.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol


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
    """What `Agent` needs of a model. `messages` and `tools` are those of a chat completions request."""

    def complete(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> ModelReply: ...

    def stream(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> Iterator[str | ModelReply]:
        """Pieces of the text as they come, then the whole reply."""
        ...
