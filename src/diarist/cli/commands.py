"""Every command, in the order in which help shows them."""

from . import everyday, moving, upkeep
from .app import app

__all__ = ["app", "everyday", "moving", "upkeep"]
