"""A lock file between processes: held around each write transaction and checkpoint, never around an embedding.

SQLite's own write lock is enough for safety; with many writers its waiting is unfair, and one in a queue may wait for
many seconds. Here everyone polls every millisecond or so, and nobody polls for longer than asked.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ..errors import StoreBusy

if sys.platform == "win32":
    import msvcrt

    def _try(fd: int) -> bool:
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _release(fd: int) -> None:
        os.lseek(fd, 0, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
else:
    import fcntl

    def _try(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _release(fd: int) -> None:
        fcntl.flock(fd, fcntl.LOCK_UN)


class FileLock:
    """One lock file. Threads of this process wait for each other too."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mutex = threading.Lock()
        self._pid = os.getpid()

    @contextmanager
    def held(self, timeout: float) -> Generator[None]:
        """Holds the lock, made if missing. StoreBusy after `timeout` seconds; OSError if the file can't be opened."""
        if self._pid != os.getpid():  # forked: another thread's hold on the mutex was copied, the thread was not
            self._mutex, self._pid = threading.Lock(), os.getpid()
        deadline = time.monotonic() + timeout
        if not self._mutex.acquire(timeout=timeout):
            raise self._busy(timeout)
        try:
            fd = self._acquire(deadline, timeout)
            try:
                yield
            finally:
                _release(fd)
                os.close(fd)
        finally:
            self._mutex.release()

    def _acquire(self, deadline: float, timeout: float) -> int:
        while True:
            fd = os.open(
                self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0), 0o600
            )
            pause = 0.0002
            while not _try(fd):
                if time.monotonic() > deadline:
                    os.close(fd)
                    raise self._busy(timeout)
                time.sleep(pause * random.uniform(0.5, 1.5))  # noqa: S311
                pause = min(pause * 2, 0.004)
            if self._current(fd):
                return fd
            os.close(fd)  # the folder was erased while we waited: take the lock that others see now

    def _current(self, fd: int) -> bool:
        try:
            return os.path.samestat(os.fstat(fd), os.stat(self.path))
        except FileNotFoundError:
            return False

    def _busy(self, timeout: float) -> StoreBusy:
        return StoreBusy(
            f"{self.path.parent}: another process has been writing for {timeout:g} s; try again, or open the memory "
            f"with a larger busy_timeout"
        )
