"""What the tests of durability, concurrency, damage, isolation and bad input share. No tests here."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import apsw
import numpy as np

from diarist import Memory
from diarist.stores import file
from diarist.stores.names import folder_name
from diarist.testing import HashEmbedder

OWNER = "c-2291"


def opened(place: Path, **options: Any) -> Memory:
    """A memory with an embedder that costs nothing."""
    return Memory(str(place), **{"embedder": HashEmbedder(), **options})


def diary_file(place: Path, owner: str = OWNER) -> Path:
    return place / folder_name(owner) / file.NAME


def texts(diary: Any) -> list[str]:
    """Every text in the diary, whatever became of it, sorted."""
    return sorted(note.text for note in diary.notes(include_replaced=True, as_of=None))


@contextmanager
def quick_folder() -> Iterator[Path]:
    """A folder in memory where there is one, for tests that write thousands of times and lose no power."""
    shm = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(dir=shm if shm.is_dir() and os.access(shm, os.W_OK) else None))
    try:
        yield place
    finally:
        shutil.rmtree(place)


# -- is a diary file whole? ----------------------------------------------------------------------------------------


def assert_whole(path: Path) -> None:
    """SQLite finds no fault, and every note has its history, its words and its vectors (or waits for them); nothing
    is there that belongs to no note; the running totals are true."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        db.set_busy_timeout(10_000)
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        with db:
            _assert_tables_agree(db)
    finally:
        db.close()


def _assert_tables_agree(db: apsw.Connection) -> None:
    about = dict(db.execute("SELECT name, value FROM diary"))
    notes = {
        seq: (words.split(" "), pending) for seq, words, pending in db.execute("SELECT seq, words, pending FROM notes")
    }
    written = {seq for (seq,) in db.execute("SELECT entry FROM history WHERE what = 'remembered'")}
    embedded = {seq for (seq,) in db.execute("SELECT place / 4096 FROM vectors")}
    assert notes.keys() <= written
    assert embedded == {seq for seq, (_, pending) in notes.items() if not pending}
    assert about["notes"] == len(notes)
    assert about["words"] == sum(len(words) for words, _ in notes.values())
    assert about["pending"] == sum(pending for _, pending in notes.values())
    filed = {
        (word, seq): min(times, 15)
        for seq, (words, _) in notes.items()
        if seq <= about["filed"]
        for word, times in Counter(words).items()
    }
    found: dict[tuple[str, int], int] = {}
    for word, block, count, packed in db.execute("SELECT word, block, count, notes FROM words"):
        held = np.frombuffer(packed, "<u2").astype(int)
        assert count == len(held)
        found.update({(word, int(each & 4095) + block * 4096): int(each >> 12) for each in held})
    assert found == filed


# -- processes -----------------------------------------------------------------------------------------------------

# Children start from a process that has imported what they need: 50 of them cost seconds, not a minute.
PROCESSES: Any = multiprocessing.get_context("spawn" if sys.platform == "win32" else "forkserver")
if sys.platform != "win32":
    PROCESSES.set_forkserver_preload(
        ["pytest", "numpy", "diarist.memory", "diarist.recall", "diarist.testing", "diarist.stores.word_index"]
    )


class Child:
    """A process of its own that runs `target(talk, *args)`; what it sends through `talk` is heard here."""

    def __init__(self, target: Callable[..., object], *args: object) -> None:
        self.talk, theirs = PROCESSES.Pipe()
        self._process = PROCESSES.Process(target=_run, args=(target, theirs, args), daemon=True)
        self._process.start()
        theirs.close()

    def hear(self, timeout: float = 60) -> Any:
        """The next thing it says. Fails if it failed, ended or is silent for too long."""
        assert self.talk.poll(timeout), "the child says nothing"
        return _checked(self.talk.recv())

    def ask(self, *what: object) -> Any:
        self.talk.send(what)
        return self.hear()

    def heard(self) -> Iterator[Any]:
        """Everything it says until it ends or is killed."""
        with suppress(EOFError, ConnectionResetError):
            while True:
                yield self.hear()

    def kill(self) -> None:
        """SIGKILL: it gets no chance to do anything more."""
        self._process.kill()

    def ended(self, timeout: float = 60) -> int:
        """Waits for its end and says its exit code."""
        self._process.join(timeout)
        code = self._process.exitcode
        if code is None:
            self.kill()
            self._process.join()
        self._process.close()
        self.talk.close()
        assert code is not None, "the child does not end"
        return code


def _run(target: Callable[..., object], talk: Any, args: tuple[object, ...]) -> None:
    try:
        target(talk, *args)
    except BaseException:
        talk.send(("failed", traceback.format_exc()))


def elsewhere(act: Callable[..., object], *args: object) -> Any:
    """What `act(*args)` says in a process of its own."""
    child = Child(_answer, act, args)
    said = child.hear()
    assert child.ended() == 0
    return said


def _answer(talk: Any, act: Callable[..., object], args: tuple[object, ...]) -> None:
    talk.send(act(*args))


def _checked(said: Any) -> Any:
    if isinstance(said, tuple) and said[:1] == ("failed",):
        raise AssertionError(said[1])
    return said


def give_up_root() -> None:
    """Root may write anywhere, and then permissions prove nothing: drops its capabilities, for this process only."""
    if sys.platform == "linux" and os.geteuid() == 0:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()):
            raise OSError(ctypes.get_errno(), "capset")


# -- a process that dies in the middle -----------------------------------------------------------------------------


def deaths(source: Path, root: Path, act: Callable[..., object], *args: object, every: int = 1) -> Iterator[Path]:
    """For every n, or every second or third: a copy of `source` below `root` on which `act(copy, *args)` was killed
    before its nth step. A step is an SQL statement or a change to the file system. Ends with the first copy on which it
    came to its end."""
    child = Child(_die_at_each_step, source, root, act, args, every)
    while True:
        place, died = child.hear(120)
        yield place
        if not died:
            break
    child.ended()


def _die_at_each_step(
    talk: Any, source: Path, root: Path, act: Callable[..., object], args: tuple[object, ...], every: int
) -> None:
    for number in itertools.count(0, every):
        place = root / f"died-{number}"
        shutil.copytree(source, place)
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                _die_at_step(number, place)
                act(place, *args)
                status = 0
            except BaseException:
                traceback.print_exc()
            os._exit(status)
        ended = os.waitpid(pid, 0)[1]
        assert os.WIFSIGNALED(ended) or os.WEXITSTATUS(ended) == 0, "what was to be done fails"
        talk.send((place, os.WIFSIGNALED(ended)))
        if not os.WIFSIGNALED(ended):
            return


_CHANGES = {"os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.chmod", "shutil.rmtree"}


def _die_at_step(number: int, place: Path) -> None:
    left = itertools.count(number, -1)

    def step(*_: object) -> bool:
        if next(left) == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    def watch(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        if (event in _CHANGES or writes) and str(place.parent) in str(args[0]):
            step()

    sys.addaudithook(watch)
    apsw.connection_hooks.append(lambda db: db.set_exec_trace(step))


# -- what is left in the files -------------------------------------------------------------------------------------


class Dense(HashEmbedder):
    """Vectors like those of a real model: every number says something, and no two texts share a piece of one. What
    stands before a text is not looked at, so that its vector is known from the text alone."""

    def embed_notes(self, texts: list[str], /) -> Any:
        self.calls += 1
        self.texts += texts
        bare = [text.rpartition(": ")[2] for text in texts]
        seeds = [int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") for text in bare]
        made = np.array([np.random.default_rng(seed).normal(size=self.dim) for seed in seeds], np.float32)
        return made / np.linalg.norm(made, axis=1, keepdims=True)


def traces(text: str) -> dict[str, bytes]:
    """Everything that would give a text away, by a name: itself, its words, its vector by `Dense`."""
    found: dict[str, bytes] = {}
    for word in {text, *(word for word in text.split() if len(word) >= 6)}:
        for form in {word, word.lower(), word.casefold(), word.upper()}:
            for encoding in ("utf-8", "utf-16-le", "utf-16-be"):
                found[f"{form!r} in {encoding}"] = form.encode(encoding)
    vector = Dense().embed_notes([text])[0]
    for kind in ("<f4", "<f2"):
        data = vector.astype(kind).tobytes()
        found |= {f"{kind} vector of {text!r} from {at}": data[at : at + 16] for at in range(0, len(data), 16)}
    return found


def left_of(place: Path, *texts: str) -> list[str]:
    """What is to be found of the texts in any file below, whatever its name; [] if nothing. While this process has
    the diary open, call it `elsewhere`: to close a file here would drop the locks that SQLite holds on it."""
    needles = {name: needle for text in texts for name, needle in traces(text).items()}
    found: list[str] = []
    for path in sorted(place.rglob("*")):
        if path.is_file() and not path.is_symlink():
            data = path.read_bytes()
            found += [f"{path.relative_to(place)}: {name}" for name, needle in needles.items() if needle in data]
    return found


# -- disks that fail -----------------------------------------------------------------------------------------------


class FaultyDisk(apsw.VFS):
    """The system's files, watched; and from the `fails_at`th write or sync on (or there only), failing.

    `unsynced` are the files that were written since they were last made durable. Register it with `with`.
    """

    def __init__(self) -> None:
        self.base = apsw.vfs_names()[0]
        self.fails_at: int | None = None
        self.fails_once = False
        self.error: type[Exception] = apsw.IOError
        self.done = 0
        self.syncs = 0
        self.unsynced: set[str] = set()
        super().__init__(f"faulty-{id(self)}", self.base, makedefault=True)

    def __enter__(self) -> FaultyDisk:
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _WatchedFile(self, name, flags)

    def breaks(self, at: int | None, *, once: bool = False, error: type[Exception] = apsw.IOError) -> None:
        """The `at`th write or sync from now fails, and those after it unless `once`. None: the disk is well."""
        self.done, self.fails_at, self.fails_once, self.error = 0, at, once, error

    def count(self) -> None:
        self.done += 1
        if self.fails_at is not None and (
            self.done == self.fails_at or (self.done > self.fails_at and not self.fails_once)
        ):
            raise self.error(f"as this test wants it, at {self.done}")


class _WatchedFile(apsw.VFSFile):
    def __init__(self, disk: FaultyDisk, name: Any, flags: list[int]) -> None:
        self._disk = disk
        self._name = os.path.basename(name if isinstance(name, str) else name.filename()) if name else ""
        super().__init__(disk.base, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.count()
        self._disk.unsynced.add(self._name)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.count()
        super().xSync(flags)
        self._disk.syncs += 1
        self._disk.unsynced.discard(self._name)
