"""Every command, in the order in which help shows them."""

from . import everyday, talking, replaying, moving, upkeep, serving, mcp  # noqa: I001 - the order is that of the help
from .app import app

__all__ = ["app", "everyday", "mcp", "moving", "replaying", "serving", "talking", "upkeep"]
