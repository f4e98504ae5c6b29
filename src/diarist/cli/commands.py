"""Every command, in the order in which help shows them."""

from . import everyday, talking, moving, upkeep, doors  # noqa: I001 - the order is that of the help
from .app import app

__all__ = ["app", "doors", "everyday", "moving", "talking", "upkeep"]
