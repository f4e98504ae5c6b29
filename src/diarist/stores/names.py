"""Owner to folder name and back: injective, safe on every file system, never the raw text."""

from __future__ import annotations

import hashlib
import re

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789-_")
# Names that Windows gives to devices, whatever their case or ending.
_DEVICES = frozenset(["con", "prn", "aux", "nul", *(f"{d}{n}" for d in ("com", "lpt") for n in range(10))])
_LONGEST = 120  # bytes; file systems allow 255, and paths of 260 in all on older Windows
_HEX = re.compile("=([0-9a-f]{2})")


def folder_name(owner: str) -> str:
    """Lower-case ASCII letters, digits, - and _ stand for themselves, every other byte of the UTF-8 as =hh.
    A long name is cut and ends in == and the SHA-256 of the owner."""
    data = owner.encode()
    name = "".join(chr(b) if b in _PLAIN else f"={b:02x}" for b in data)
    if name in _DEVICES:
        name = f"={data[0]:02x}{name[1:]}"
    if len(name) > _LONGEST:
        name = f"{name[:40].rstrip('=')}=={hashlib.sha256(data).hexdigest()}"
    return name


def owner_of(name: str) -> str | None:
    """The owner of a folder of that name; None if the name alone does not tell, or no owner has it."""
    try:
        owner = _HEX.sub(lambda m: chr(int(m[1], 16)), name).encode("latin-1").decode()
    except UnicodeError:
        return None
    return owner if owner and folder_name(owner) == name else None


def is_cut(name: str) -> bool:
    """Whether the folder's owner must be read from the diary inside."""
    return re.fullmatch(r"[a-z0-9_=-]{1,40}==[0-9a-f]{64}", name) is not None
