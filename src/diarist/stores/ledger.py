"""The ledger of erasures: that somebody was erased, when and how much, without saying who to one who does not know.

`erased.jsonl` in the memory's folder; an owner stands there as HMAC-SHA256 under a key of the memory's own, so that
"was this person erased?" can be answered by who holds the memory, and a backup cannot bring them back unseen.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from pathlib import Path

_LEDGER = "erased.jsonl"
_KEY = "erased.key"


@dataclass(frozen=True, slots=True)
class Mark:
    """How far a memory's ledger had come at some moment."""

    at: datetime
    ledger: str
    """Tells one memory's ledger from another's."""
    lines: int


def enter(root: Path, owner: str, at: datetime, notes: int) -> None:
    line = json.dumps({"at": at.isoformat(), "owner": _sign(_key(root), owner), "notes": notes}) + "\n"
    fd = os.open(root / _LEDGER, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
    with os.fdopen(fd, "w", encoding="utf-8") as out:
        out.write(line)
        out.flush()
        os.fsync(out.fileno())


def mark(root: Path, at: datetime) -> Mark:
    return Mark(at, _sign(_key(root), ""), len(_lines(root)))


def erased_since(root: Path, owner: str, then: Mark) -> bool:
    """Whether the owner was erased from this memory after the mark: by the ledger's own order where the mark is of
    this ledger, whatever the clock said; by time where it is of another."""
    if not (root / _KEY).exists():
        return False
    key, lines = _key(root), _lines(root)
    own = then.ledger == _sign(key, "")
    return any(
        each["owner"] == _sign(key, owner)
        and (number >= then.lines if own else datetime.fromisoformat(each["at"]) >= then.at)
        for number, each in enumerate(lines)
    )


def _lines(root: Path) -> list[dict[str, str]]:
    try:
        return [json.loads(line) for line in (root / _LEDGER).read_text(encoding="utf-8").splitlines() if line.strip()]
    except FileNotFoundError:
        return []


def _key(root: Path) -> bytes:
    path = root / _KEY
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    building = path.with_name(f"{_KEY}.{secrets.token_hex(4)}")
    if not path.exists():
        fd = os.open(building, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(fd, "wb") as out:
            out.write(secrets.token_bytes(32))
            out.flush()
            os.fsync(out.fileno())
        try:
            os.link(building, path)  # whole or not at all, and never over another's
        except FileExistsError:
            pass
        except OSError:  # a file system without links
            if not path.exists():
                os.replace(building, path)
        finally:
            building.unlink(missing_ok=True)
    return path.read_bytes()


def _sign(key: bytes, owner: str) -> str:
    return hmac.new(key, owner.encode(), sha256).hexdigest()
