"""A copy of a whole memory while others write, and the way back.

A backup is a folder like the memory itself: each diary copied page by page through SQLite, so that it holds every note
acknowledged before the copy began. What was erased or corrected after the backup stays so when it comes back.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import apsw

from ..errors import StoreError
from . import Draft, Stored, file, ledger
from .folder import FolderStore

_MADE_AT = "backup-made-at"
_STAGE = ".restoring"


def back_up(store: FolderStore, to: Path, at: datetime) -> list[str]:
    """Copies every diary and page to a new folder; returns the owners. StoreError if something is there already."""
    with file.told(to, writing=True):
        if to.exists() and (not to.is_dir() or any(to.iterdir())):
            raise StoreError(f"{to}: is there already; a backup is never written over something: name a new folder")
        owners = store.owners()
        for owner in owners:
            _copy(store.folder(owner), to, to / store.folder(owner).name)
        to.mkdir(mode=0o700, parents=True, exist_ok=True)
        file.write_text(to / _MADE_AT, at.isoformat() + "\n")
    return owners


def restore(
    store: FolderStore, backup: Path, *, overwrite: bool, draft_of: Callable[[Stored], Draft]
) -> dict[str, int]:
    """Brings a backup's diaries into a memory; returns for each owner how many later deletions were applied.

    An owner who is there already is refused unless `overwrite`; then notes forgotten since are forgotten again, and
    notes corrected since keep the correction. One who was erased after the backup was made does not come back.
    """
    made_at = file.read_text(backup / _MADE_AT).strip()
    if not made_at:
        raise StoreError(f"{backup}: is no backup that diarist made ({_MADE_AT} is missing); nothing was restored")
    held = FolderStore(backup, busy_timeout=1)
    here = set(store.owners())
    back = [
        o
        for o in held.owners()
        if (at := ledger.erased_at(store.root, o)) is None or at <= datetime.fromisoformat(made_at)
    ]
    there = [owner for owner in back if owner in here]
    if there and not overwrite:
        raise StoreError(
            f"{store.path}: already has the diary of {there[0]!r}{' and others' if len(there) > 1 else ''}; nothing was"
            " restored. Allow overwriting, or restore to another place"
        )
    with file.told(store.root, writing=True):
        return {owner: _bring_back(store, owner, held.folder(owner), draft_of) for owner in back}


def _bring_back(store: FolderStore, owner: str, source: Path, draft_of: Callable[[Stored], Draft]) -> int:
    """Prepares the copy beside the memory, with everything that happened since applied, and only then puts it in the
    old one's place: whoever interrupts this finds either the one or the other, never what was forgotten."""
    live = store.diary(owner)
    now = {stored.note.id: stored for stored in live.dump()}
    stage = store.root / _STAGE
    shutil.rmtree(stage, ignore_errors=True)
    target = store.folder(owner)
    _copy(source, stage, stage / target.name)
    staged = FolderStore(stage, busy_timeout=1)
    diary = staged.diary(owner)
    old = {stored.note.id: stored for stored in diary.dump()}
    gone = sorted(live.forgotten() & old.keys())
    if gone:
        diary.forget(gone, live_time(now, old))
    for id in old.keys() & now.keys():
        if old[id].note.text != now[id].note.text:
            diary.edit(id, draft_of(now[id]))
    diary.set_setting("edition", secrets.token_hex(8))  # what others hold in memory of the old one is void
    staged.close()
    for left in (stage / target.name).iterdir():
        if left.name not in {file.NAME, file.PAGE}:
            left.unlink()
    live.erase()
    (stage / target.name).rename(target)
    shutil.rmtree(stage, ignore_errors=True)
    return len(gone)


def live_time(now: dict[str, Stored], old: dict[str, Stored]) -> datetime:
    """The latest time either copy knows of: a deletion applied again is entered in the history under it."""
    return max(stored.note.created_at for stored in (*now.values(), *old.values()))


def _copy(source: Path, root: Path, target: Path) -> None:
    file.make_folder(root, target)
    old = file.open_existing(source / file.NAME, busy_ms=10_000)
    try:
        building = target / (file.NAME + ".new")
        new = apsw.Connection(str(building))
        try:
            with new.backup("main", old, "main") as copying:
                while not copying.done:
                    copying.step(1_000)
        finally:
            new.close()
        building.chmod(0o600)
        building.replace(target / file.NAME)
    finally:
        old.close()
    file.write_text(target / file.PAGE, file.read_text(source / file.PAGE))
