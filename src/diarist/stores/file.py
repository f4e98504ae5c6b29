"""One diary file: made whole or not at all, opened only if it is ours, its errors told in words.

What is damaged, foreign or newer is named in an error and left exactly as it was.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import apsw

from ..errors import SchemaTooNew, StoreBusy, StoreCorrupt, StoreError
from . import migrate
from .sql import row, rows, run, run_many

NAME = "diary.db"
PAGE = "page.md"
LOCK = "diary.lock"
_ERASING = "erasing"
_ERASED = ".erased-"
_SCANNED_AT_MOST = 64 * 2**20  # bytes: a larger file is not read through at each erasure
_CHECKPOINT_AT, _PAGE = 4 * 2**20, 4096  # bytes of WAL, and of a page in it
APPLICATION_ID = 0x44696172  # "Diar", in the SQLite header: tells our files from other programs'

_EVERY_CONNECTION = (
    "PRAGMA foreign_keys = ON; PRAGMA secure_delete = ON; PRAGMA trusted_schema = OFF; PRAGMA cell_size_check = ON;"
    "PRAGMA mmap_size = 0; PRAGMA temp_store = MEMORY; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 0;"
    "PRAGMA cache_size = -16000;"
)
_READ_WRITE = apsw.SQLITE_OPEN_READWRITE
_READ_ONLY = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI


def make_folder(root: Path, folder: Path) -> None:
    """Makes the memory's folder and the owner's in it, 0700. Refuses a symbolic link in the owner's place."""
    try:
        missing = [each for each in (root, *root.parents) if not each.exists()]
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        for each in missing:
            sync_folder(each.parent)
        refuse_link(folder / NAME)
        folder.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError as e:
        raise StoreError(f"{e.filename}: a file stands where the memory's folder should be; name another place") from e
    except OSError as e:
        raise StoreError(f"{folder}: the folder cannot be made ({e.strerror}); nothing was saved") from e


def create(path: Path, owner: str) -> None:
    """A new diary: built under another name, then renamed, so that there is never half a file. Hold the lock."""
    building = path.with_name(NAME + ".new")
    for leftover in (building, *(Path(f"{building}{end}") for end in ("-wal", "-shm", "-journal"))):
        leftover.unlink(missing_ok=True)
    os.close(os.open(building, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    db = apsw.Connection(str(building), flags=_READ_WRITE)
    try:
        run(db, f"PRAGMA page_size = 4096; PRAGMA journal_mode = WAL; {_EVERY_CONNECTION}")
        with db:
            run(db, f"PRAGMA application_id = {APPLICATION_ID}")
            for schema, script in sorted(migrate.scripts().items()):
                run(db, f"{script}; PRAGMA user_version = {schema}")
            first = {
                "owner": owner,
                "secret": secrets.token_bytes(32),
                "notes": 0,
                "words": 0,
                "pending": 0,
                "filed": 0,
            }
            run_many(db, "INSERT INTO diary VALUES (?,?)", list(first.items()))
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    finally:
        db.close()
    os.replace(building, path)
    sync_folder(path.parent)
    sync_folder(path.parent.parent)


def refuse_link(path: Path) -> None:
    """StoreError where a diary's file or folder is a symbolic link, whether or not anything is at its end."""
    for each in (path.parent, path):
        if each.is_symlink():
            raise StoreError(f"{each}: is a symbolic link; a diary is never reached through one. It was left alone")


def open_existing(path: Path, *, busy_ms: int) -> apsw.Connection:
    """Opens a diary that is there; read-only where the disk or the rights allow no more."""
    refuse_link(path)
    if not stat.S_ISREG(path.stat().st_mode):
        raise StoreCorrupt(f"{path}: is not a file, so it cannot be a diary; it was left alone")
    _check_header(path)
    try:
        return _usable(apsw.Connection(str(path), flags=_READ_WRITE), busy_ms)
    except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.FullError, apsw.IOError) as e:
        return _open_read_only(path, busy_ms, e)


def _open_read_only(path: Path, busy_ms: int, cause: apsw.Error) -> apsw.Connection:
    wal = Path(f"{path}-wal")
    if wal.exists() and wal.stat().st_size:
        try:
            return _usable(apsw.Connection(f"file:{quote(str(path))}?mode=ro", flags=_READ_ONLY), busy_ms)
        except apsw.Error:
            raise StoreError(
                f"{path}: cannot be read here: the folder is read-only and the last writes still wait in {wal.name}; "
                f"open it once where it can be written, or copy the folder"
            ) from cause
    # Without a WAL nobody is writing, and the folder lets nobody begin: the file is as good as cut in stone.
    return _usable(apsw.Connection(f"file:{quote(str(path))}?immutable=1", flags=_READ_ONLY), busy_ms)


def _usable(db: apsw.Connection, busy_ms: int) -> apsw.Connection:
    try:
        db.set_busy_timeout(busy_ms)
        run(db, _EVERY_CONNECTION)
        row(db, "SELECT count(*) FROM diary")
    except BaseException:
        db.close()
        raise
    return db


def _check_header(path: Path) -> None:
    """Reads the first 100 bytes through SQLite's own file layer: closing a file handle of our own would drop the
    locks that other connections of this process hold on it."""
    try:
        handle = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    except apsw.Error as e:
        raise StoreError(f"{path}: cannot be opened for reading; check who may read it") from e
    try:
        size = handle.xFileSize()
        head = handle.xRead(100, 0) if size >= 100 else b""
    finally:
        handle.xClose()
    if head[:16] != b"SQLite format 3\0":
        raise StoreCorrupt(
            f"{path}: is not a diary, or its beginning is damaged ({size} bytes); it was left alone."
            " Restore a backup or move it away"
        )
    if int.from_bytes(head[68:72], "big") != APPLICATION_ID:
        raise StoreCorrupt(
            f"{path}: is a database of another program; it was left alone. Name another place for the memory"
        )
    schema = int.from_bytes(head[60:64], "big")
    if schema > migrate.newest():
        raise SchemaTooNew(
            f"{path}: has schema {schema}, this diarist knows up to {migrate.newest()}; upgrade diarist."
            " The file was left alone"
        )
    page = int.from_bytes(head[16:18], "big") or 65536
    pages = int.from_bytes(head[28:32], "big")
    wal = Path(f"{path}-wal")
    if size < pages * (65536 if page == 1 else page) and not (wal.exists() and wal.stat().st_size):
        raise StoreCorrupt(
            f"{path}: is cut short ({size} bytes of {pages * page}); it was left alone. Restore a backup"
        )


def checkpoint(db: apsw.Connection, path: Path) -> None:
    """Moves a WAL that has grown into the file. Hold the lock. What a reader holds back is moved next time. The WAL
    stays as long as it was and is written from its beginning again: its length does not say how much is to be moved."""
    with suppress(FileNotFoundError):
        if Path(f"{path}-wal").stat().st_size > _CHECKPOINT_AT:
            pages, moved = db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
            if (pages - moved) * _PAGE > _CHECKPOINT_AT:
                with suppress(apsw.BusyError):
                    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)


@contextmanager
def told(path: Path, *, writing: bool = False) -> Generator[None]:
    """Turns SQLite's and the system's errors into ours: what happened, where, and what to do."""
    unsaved = " Nothing of this call was saved." if writing else ""
    try:
        yield
    except apsw.BusyError as e:
        raise StoreBusy(f"{path}: another process keeps the diary busy; try again.{unsaved}") from e
    except (apsw.CorruptError, apsw.NotADBError) as e:
        raise StoreCorrupt(f"{path}: the file is damaged ({e}); it was left alone. Restore a backup.{unsaved}") from e
    except apsw.FullError as e:
        raise StoreError(f"{path}: the disk is full; free some space and try again.{unsaved}") from e
    except (apsw.ReadOnlyError, apsw.PermissionsError) as e:
        raise StoreError(
            f"{path}: the file or its folder is read-only; recall works, remember does not.{unsaved}"
        ) from e
    except apsw.Error as e:
        raise StoreError(f"{path}: the diary could not be {'written' if writing else 'read'} ({e}).{unsaved}") from e
    except OSError as e:
        full = "the disk is full" if e.errno in (28, 122) else e.strerror
        raise StoreError(
            f"{e.filename or path}: the diary could not be {'written' if writing else 'read'} ({full}).{unsaved}"
        ) from e


def inspect(db: apsw.Connection, path: Path) -> list[tuple[str, str, str]]:
    """(subject, what was found, what to do or ""), from a whole reading of the file."""
    problems = [str(found[0]) for found in rows(db, "PRAGMA integrity_check")]
    whole = problems == ["ok"]
    size, free = path.stat().st_size, shutil.disk_usage(path.parent).free
    files = (path.parent, *path.parent.iterdir()) if os.name == "posix" else ()
    wide = [each.name for each in files if each.stat().st_mode & 0o077]
    return [
        ("file", f"{path} ({size / 2**20:.1f} MB)", ""),
        ("integrity", "every page is sound" if whole else "; ".join(problems[:5]), "" if whole else "restore a backup"),
        ("engine", f"SQLite {apsw.sqlite_lib_version()}, schema {migrate.schema_of(db)} of {migrate.newest()}", ""),
        (
            "rights",
            f"others can read {', '.join(sorted(wide))}" if wide else "only this user can read it",
            f"chmod -R go= {path.parent}" if wide else "",
        ),
        ("free space", f"{free / 2**30:.1f} GB", "" if free > 2 * size else "free some: it has little room to grow"),
    ]


def is_diary(folder: Path) -> bool:
    return (folder / NAME).is_file() and not is_erasing(folder)


def mark_erasing(folder: Path) -> None:
    """The point of no return of an erasure, on the disk before the first file goes."""
    os.close(os.open(folder / _ERASING, os.O_CREAT | os.O_WRONLY, 0o600))
    sync_folder(folder)


def is_erasing(folder: Path) -> bool:
    return os.path.exists(f"{folder}/{_ERASING}")


def finish_erasing(folder: Path) -> bool:
    """Removes every file of a folder that is marked, and the folder. False if one is held open and cannot go yet."""
    try:
        for path in folder.iterdir():
            if path.name != _ERASING:
                path.unlink()
        # The folder's name tells whose it was: it loses that before it loses the mark.
        empty = folder.with_name(f"{_ERASED}{secrets.token_hex(8)}")
        folder.rename(empty)
        sync_folder(folder.parent)
    except OSError:
        return not folder.exists()
    _remove(empty)
    return True


def clear_erased(root: Path) -> None:
    """Removes the emptied folders without a name that an interrupted erasure left."""
    for empty in root.glob(f"{_ERASED}*"):
        _remove(empty)


def _remove(empty: Path) -> None:
    with suppress(OSError):
        (empty / _ERASING).unlink(missing_ok=True)
        empty.rmdir()


def residue(folder: Path, texts: Iterable[str], vectors: Iterable[bytes]) -> tuple[list[str], list[str]]:
    """(files looked at, files that hold one of the texts or vectors), by name below `folder`."""
    needles = [needle for text in texts for needle in _forms(text)] + [vector for vector in vectors if vector]
    looked: list[str] = []
    found: list[str] = []
    for path in sorted(folder.rglob("*")) if folder.is_dir() else []:
        # The -shm file holds page numbers only, and to close a handle on it would drop SQLite's own locks.
        if path.is_symlink() or not path.is_file() or path.name.endswith("-shm"):
            continue
        name = path.relative_to(folder).as_posix()
        if path.stat().st_size > _SCANNED_AT_MOST:
            looked.append(f"{name} (not read through: over {_SCANNED_AT_MOST >> 20} MB)")
            continue
        data = _raw(path)
        looked.append(name)
        if any(needle in data for needle in needles):
            found.append(name)
    return looked, found


def among(path: Path, words: Iterable[str]) -> list[str]:
    """Those of the words that stand somewhere in a file, whatever the case; [] for a file too large to read through."""
    if not path.exists() or path.stat().st_size > _SCANNED_AT_MOST:
        return []
    data = _raw(path).lower()
    return [word for word in dict.fromkeys(words) if word.lower().encode() in data]


def _forms(text: str) -> set[bytes]:
    """The text in each form in which some file here may hold it."""
    return {
        form.encode(encoding)
        for form in (text, text.lower(), text.casefold())
        for encoding in ("utf-8", "utf-16-le", "utf-16-be")
    }


def _raw(path: Path) -> bytes:
    """All bytes of a file; a database through SQLite's own file layer, for the sake of its locks."""
    if path.name != NAME:
        return path.read_bytes()
    handle = apsw.VFSFile("", str(path), [apsw.SQLITE_OPEN_MAIN_DB | apsw.SQLITE_OPEN_READONLY, 0])
    try:
        size = handle.xFileSize()
        return b"".join(handle.xRead(min(2**20, size - at), at) for at in range(0, size, 2**20))
    finally:
        handle.xClose()


def read_text(path: Path) -> str:
    """A text file as a person left it; "" if there is none. Line ends come back as \\n."""
    if path.is_symlink():
        raise StoreError(f"{path}: is a symbolic link; a diary's page is never reached through one")
    try:
        return path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return ""
    except UnicodeDecodeError as e:
        raise StoreCorrupt(f"{path}: is not UTF-8 text ({e.reason} at byte {e.start}); it was left alone") from e


def write_text(path: Path, text: str) -> None:
    """Replaces a text file whole, durably, 0600; an empty text removes it. Hold the lock."""
    building = path.with_name(path.name + ".new")
    building.unlink(missing_ok=True)
    if not text:
        path.unlink(missing_ok=True)
    else:
        try:
            fd = os.open(building, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8", newline="\n") as out:
                out.write(text)
                out.flush()
                os.fsync(out.fileno())
            os.replace(building, path)
        finally:
            building.unlink(missing_ok=True)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes a rename durable; Windows has no such call and needs none."""
    if os.name == "posix":
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
