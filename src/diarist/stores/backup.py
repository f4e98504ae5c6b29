"""A copy of a whole memory while others write, and the way back.

A backup is a folder like the memory itself: each diary copied page by page through SQLite, so that it holds every note
acknowledged before the copy began. What was erased or corrected after the backup stays so when it comes back.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import apsw

from ..errors import StoreBusy, StoreError
from . import Draft, Stored, file, ledger
from .folder import FolderDiary, FolderStore
from .lock import FileLock

_MADE = "backup.json"
_STAGE = ".restoring"


def back_up(store: FolderStore, to: Path, at: datetime) -> list[str]:
    """Copies every diary and page to a new folder; returns the owners. StoreError if something is there already."""
    with file.told(to, writing=True):
        if to.exists() and (not to.is_dir() or any(to.iterdir())):
            raise StoreError(f"{to}: is there already; a backup is never written over something: name a new folder")
        fresh = not to.exists()
        to.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            made = ledger.mark(store.root, at)
            owners = store.owners()
            for owner in owners:
                with store.diary(owner).reading():  # a folder copied under another name is nobody's, and is said
                    pass
                _copy(store.folder(owner), to / store.folder(owner).name)
            about = {"made_at": at.isoformat(), "ledger": made.ledger, "lines": made.lines}
            file.write_text(to / _MADE, json.dumps(about) + "\n")  # last: without it, it is no backup
        except BaseException:
            shutil.rmtree(to, ignore_errors=True)
            if not fresh:
                to.mkdir(mode=0o700, exist_ok=True)
            raise
    return owners


def restore(
    store: FolderStore, backup: Path, *, overwrite: bool, draft_of: Callable[[Stored], Draft]
) -> dict[str, int]:
    """Brings a backup's diaries into a memory; returns for each owner how many later deletions were applied.

    An owner who is there already is refused unless `overwrite`; then notes forgotten since are forgotten again, and
    notes corrected since keep the correction. One who was erased after the backup was made does not come back. All
    copies are made ready, with all that applied, before the first is put in place.
    """
    then = _made(backup)
    held, here = FolderStore(backup, busy_timeout=1), set(store.owners())
    back = [owner for owner in held.owners() if not ledger.erased_since(store.root, owner, then)]
    there = [owner for owner in back if owner in here]
    if there and not overwrite:
        raise StoreError(
            f"{store.path}: already has the diary of {there[0]!r}{' and others' if len(there) > 1 else ''}; nothing was"
            " restored. Allow overwriting, or restore to another place"
        )
    stage = store.root / _STAGE
    with file.told(store.root, writing=True):
        store.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        stage.mkdir(mode=0o700, exist_ok=True)
        with FileLock(stage / file.LOCK).held(10):
            try:
                staged = FolderStore(stage, busy_timeout=1)
                for owner in back:
                    shutil.rmtree(staged.folder(owner), ignore_errors=True)
                    _copy(held.folder(owner), staged.folder(owner))
                again = {owner: _apply(store.diary(owner), staged.diary(owner), draft_of, then.at) for owner in back}
                staged.close()
                for owner in back:
                    store.diary(owner).put_in_place(staged.folder(owner))
            finally:
                shutil.rmtree(stage, ignore_errors=True)
    return again


def clear_stage(store: FolderStore) -> None:
    """Removes what an interrupted restore left; one that is under way is waited for."""
    stage = store.root / _STAGE
    if stage.exists():
        with suppress(StoreBusy, FileNotFoundError), FileLock(stage / file.LOCK).held(10):
            shutil.rmtree(stage, ignore_errors=True)


def _apply(live: FolderDiary, copy: FolderDiary, draft_of: Callable[[Stored], Draft], at: datetime) -> int:
    """Forgets and corrects in the copy what was forgotten and corrected since; returns how many were forgotten."""
    old = {stored.note.id: stored for stored in copy.dump()}
    forgotten = live.forgotten()
    gone = sorted(forgotten & old.keys())
    if gone:
        copy.forget(gone, at)
    copy.keep_forgotten(forgotten, at)  # a still older backup must not bring them back either
    for stored in live.dump():
        before = old.get(stored.note.id)
        if before is not None and before.note.text != stored.note.text:
            copy.edit(stored.note.id, draft_of(stored))
    copy.set_setting("edition", secrets.token_hex(8))  # what others hold in memory of the old one is void
    return len(gone)


def _made(backup: Path) -> ledger.Mark:
    try:
        about = json.loads(file.read_text(backup / _MADE))
        return ledger.Mark(datetime.fromisoformat(about["made_at"]), about["ledger"], about["lines"])
    except (ValueError, KeyError, TypeError):
        raise StoreError(
            f"{backup}: is no backup that diarist finished ({_MADE} is missing or odd); nothing was restored"
        ) from None


def _copy(source: Path, target: Path) -> None:
    file.make_folder(target.parent, target)
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
