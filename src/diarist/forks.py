"""Locks in a forked child: one that another thread held at the fork was copied locked, without that thread."""

from __future__ import annotations

import os
from collections.abc import Callable
from weakref import WeakKeyDictionary

_RENEWED: WeakKeyDictionary[object, list[tuple[str, Callable[[], object]]]] = WeakKeyDictionary()


def renew_after_fork(holder: object, attribute: str, make: Callable[[], object]) -> None:
    """In a forked child, sets the attribute to what `make` gives."""
    _RENEWED.setdefault(holder, []).append((attribute, make))


def _renew() -> None:
    for holder, renewed in list(_RENEWED.items()):
        for attribute, make in renewed:
            setattr(holder, attribute, make())


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_renew)
