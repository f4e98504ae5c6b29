"""Who may use a server: the admin's token, and tokens of one owner each.

A token of an owner is what it says (owner, scope, end, id) and an HMAC over it, so it cannot be made up; and its id
must still be on the list, so it can be revoked. The file is private, lies in no owner's folder and names no owner: an
owner who is erased is not named there afterwards.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Literal, cast, get_args

from ..checks import checked_owner
from ..errors import NotFound, StoreError
from ..stores.lock import FileLock

Scope = Literal["admin", "write", "read"]

NAME = "tokens.json"  # no owner's folder has a dot in its name
DAYS = 90
_ADMIN, _OWNER = "diarist-admin-", "diarist-"
_LONGEST = 10_000  # characters of a token: an owner of 1,024 characters has at most 6,144 bytes of JSON


@dataclass(frozen=True, slots=True)
class Caller:
    """What a token allows."""

    scope: Scope
    owner: str | None = None
    """The only one whose diary it opens; None for the admin."""
    id: str | None = None
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Issued:
    """A token that was made, as far as it is remembered."""

    id: str
    owner: str | None
    """None if nothing is kept about that owner now."""
    scope: Scope
    created_at: datetime
    expires_at: datetime


def bearer(headers: Iterable[tuple[bytes, bytes]]) -> str | None:
    """The token of `Authorization: Bearer TOKEN`; None without one, or with several."""
    given = [value.decode("latin-1") for name, value in headers if name == b"authorization"]
    scheme, _, token = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else None


class Tokens:
    """The tokens of one memory. Several processes may use the file at once."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.path = Path(folder) / NAME
        self._seen: tuple[int, int, int] | None = None
        self._held: dict[str, Any] = {}

    @property
    def has_admin(self) -> bool:
        return "admin" in self._read()

    def make_admin(self) -> str:
        """A new token of the admin; the one before it ends. Only its hash is stored."""
        token = _ADMIN + secrets.token_urlsafe(32)
        with self._changing() as held:
            held["admin"] = hashlib.sha256(token.encode()).hexdigest()
        return token

    def make(self, owner: str, now: datetime, *, days: int = DAYS, read_only: bool = False) -> tuple[str, Issued]:
        """A token of one owner, and what is remembered of it."""
        if not 1 <= days <= 36_500:
            raise ValueError(f"a token of {days} days: give 1 to 36,500")
        scope: Scope = "read" if read_only else "write"
        made = Issued(secrets.token_hex(8), checked_owner(owner), scope, now, now + timedelta(days=days))
        with self._changing() as held:
            key = bytes.fromhex(held["key"])
            held["issued"][made.id] = {
                "owner": _hidden(key, owner),
                "scope": scope,
                "created_at": now.isoformat(),
                "expires_at": made.expires_at.isoformat(),
            }
        # A list as JSON, not texts with a bar between them: an owner may have a bar in the name.
        said = json.dumps([owner, scope, int(made.expires_at.timestamp()), made.id], ensure_ascii=False).encode()
        return f"{_OWNER}{_text(said)}.{_text(_signed(key, said))}", made

    def issued(self, owners: Iterable[str]) -> list[Issued]:
        """Those that were made and not revoked, oldest first, with the names of these owners."""
        held = self._read()
        key = bytes.fromhex(held["key"]) if held else b""
        names = {_hidden(key, owner): owner for owner in owners} if held else {}
        every = [
            Issued(
                id,
                names.get(each["owner"]),
                each["scope"],
                datetime.fromisoformat(each["created_at"]),
                datetime.fromisoformat(each["expires_at"]),
            )
            for id, each in held.get("issued", {}).items()
        ]
        return sorted(every, key=lambda each: (each.created_at, each.id))

    def revoke(self, id: str) -> None:
        """Ends a token at once. NotFound if there is none with that id."""
        if id not in self._read().get("issued", {}):
            raise NotFound(f"no token with id {id}; `diarist token --list` shows those that there are")
        with self._changing() as held:
            held["issued"].pop(id, None)

    def caller(self, token: str, now: datetime) -> Caller | None:
        """Whose token it is; None if it does not count, for whatever reason."""
        held = self._read()
        if not held or not token.isascii() or len(token) > _LONGEST:
            return None
        if hmac.compare_digest(hashlib.sha256(token.encode()).hexdigest(), str(held.get("admin", ""))):
            return Caller("admin")
        said, _, signature = token.removeprefix(_OWNER).partition(".")
        try:
            data, given = _bytes(said), _bytes(signature)
        except ValueError:
            return None
        if not token.startswith(_OWNER) or not hmac.compare_digest(_signed(bytes.fromhex(held["key"]), data), given):
            return None
        owner, scope, ends, id = json.loads(data)  # ours: the signature says so
        if now.timestamp() >= ends or id not in held["issued"] or scope not in get_args(Scope):
            return None
        return Caller(scope, owner, id, datetime.fromtimestamp(ends, now.tzinfo))

    # -- the file ------------------------------------------------------------------------------------------------

    def _read(self) -> dict[str, Any]:
        """What the file holds now, {} if there is none. It is read again only when somebody has changed it."""
        try:
            about = os.stat(self.path)
            seen = (about.st_mtime_ns, about.st_size, about.st_ino)
            if seen != self._seen:
                self._held, self._seen = _checked(json.loads(self.path.read_bytes())), seen
        except FileNotFoundError:
            self._held, self._seen = {}, None
        except OSError as e:
            raise StoreError(f"{self.path}: the tokens cannot be read ({e.strerror})") from e
        except (ValueError, KeyError, TypeError) as e:
            raise StoreError(
                f"{self.path}: is no list of tokens; put it back from a copy, or remove it and make new tokens"
            ) from e
        return self._held

    @contextmanager
    def _changing(self) -> Generator[dict[str, Any]]:
        """The content of the file while nobody else can change it; written, whole or not at all, when all went well."""
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with FileLock(self.path.with_suffix(".lock")).held(10):
                self._seen = None
                held: dict[str, Any] = json.loads(json.dumps(self._read()))
                held = held or {"key": secrets.token_hex(32), "issued": {}}
                yield held
                building = self.path.with_name(NAME + ".new")
                building.unlink(missing_ok=True)
                with os.fdopen(os.open(building, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as out:
                    out.write(json.dumps(held, indent=1).encode())
                    out.flush()
                    os.fsync(out.fileno())
                building.replace(self.path)
        except OSError as e:
            raise StoreError(f"{self.path}: the tokens cannot be written ({e.strerror})") from e
        self._seen = None


def _checked(data: object) -> dict[str, Any]:
    held = cast("dict[str, Any]", data)
    if len(bytes.fromhex(held["key"])) != 32 or not isinstance(held["issued"], dict):
        raise ValueError("no key, or no list")
    return held


def _signed(key: bytes, said: bytes) -> bytes:
    return hmac.digest(key, b"token\0" + said, "sha256")


def _hidden(key: bytes, owner: str) -> str:
    return hmac.digest(key, b"owner\0" + owner.encode(), "sha256").hex()


def _text(data: bytes) -> str:
    return urlsafe_b64encode(data).decode().rstrip("=")


def _bytes(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))
