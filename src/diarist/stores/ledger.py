"""The ledger of erasures: that somebody was erased, when and how much, without saying who to one who does not know.

`erased.jsonl` in the memory's folder; an owner stands there as HMAC-SHA256 under a key of the memory's own, so that
"was this person erased?" can be answered by who holds the memory, and a backup cannot bring them back unseen.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from datetime import datetime
from hashlib import sha256
from pathlib import Path

_LEDGER = "erased.jsonl"
_KEY = "erased.key"


def enter(root: Path, owner: str, at: datetime, notes: int) -> None:
    line = json.dumps({"at": at.isoformat(), "owner": _sign(_key(root), owner), "notes": notes}) + "\n"
    fd = os.open(root / _LEDGER, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as out:
        out.write(line)
        out.flush()
        os.fsync(out.fileno())


def erased_at(root: Path, owner: str) -> datetime | None:
    """When the owner was last erased from this memory."""
    try:
        lines = (root / _LEDGER).read_text(encoding="utf-8").splitlines()
        mine = _sign((root / _KEY).read_bytes(), owner)
    except FileNotFoundError:
        return None
    times = [datetime.fromisoformat(each["at"]) for each in map(json.loads, lines) if each["owner"] == mine]
    return max(times, default=None)


def _key(root: Path) -> bytes:
    path = root / _KEY
    try:
        fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except FileExistsError:
        return path.read_bytes()
    with os.fdopen(fd, "wb") as out:
        key = secrets.token_bytes(32)
        out.write(key)
        out.flush()
        os.fsync(out.fileno())
    return key


def _sign(key: bytes, owner: str) -> str:
    return hmac.new(key, owner.encode(), sha256).hexdigest()
