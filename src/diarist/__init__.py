"""Long-term memory for agents: a diary that outlives the session.

>>> from diarist import Memory
>>> diary = Memory("memory").diary("c-2291")
>>> diary.remember("Buys 1 kg of Colombia, ground for a moka pot.")
>>> print(diary.recall("the same as last time").context())

Names load when they are first used, so that `import diarist` stays quick.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# At once, unlike the others: its module has the same name, and would take its place when it is loaded.
from .tool import tool as tool

if TYPE_CHECKING:
    from .agent import Agent as Agent
    from .agent import Reply as Reply
    from .diary import Diary as Diary
    from .doctor import Finding as Finding
    from .embedders import Embedder as Embedder
    from .erasure import ErasureReport as ErasureReport
    from .errors import DiaristError as DiaristError
    from .errors import EmbedderError as EmbedderError
    from .errors import EndpointError as EndpointError
    from .errors import MissingExtra as MissingExtra
    from .errors import NotFound as NotFound
    from .errors import PageFull as PageFull
    from .errors import SchemaTooNew as SchemaTooNew
    from .errors import StoreBusy as StoreBusy
    from .errors import StoreCorrupt as StoreCorrupt
    from .errors import StoreError as StoreError
    from .events import Event as Event
    from .events import EventBus as EventBus
    from .memory import Memory as Memory
    from .model import ChatModel as ChatModel
    from .note import Hit as Hit
    from .note import Note as Note
    from .note import Part as Part
    from .note import Recall as Recall
    from .page import Page as Page
    from .tool import Tool as Tool

_HOME = {
    "Agent": "agent",
    "ChatModel": "model",
    "Diary": "diary",
    "Embedder": "embedders",
    "ErasureReport": "erasure",
    "Event": "events",
    "EventBus": "events",
    "Finding": "doctor",
    "Hit": "note",
    "Memory": "memory",
    "Note": "note",
    "Page": "page",
    "Part": "note",
    "Recall": "note",
    "Reply": "agent",
    "Tool": "tool",
} | dict.fromkeys(
    [
        "DiaristError",
        "EmbedderError",
        "EndpointError",
        "MissingExtra",
        "NotFound",
        "PageFull",
        "SchemaTooNew",
        "StoreBusy",
        "StoreCorrupt",
        "StoreError",
    ],
    "errors",
)

__all__ = sorted([*_HOME, "tool"])  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'diarist' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f".{_HOME[name]}", __name__), name)


def __dir__() -> list[str]:
    return [*globals(), *_HOME]
