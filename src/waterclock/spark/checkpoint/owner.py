"""One run at a time on a checkpoint: a lock of the system's, which ends with the process that has it, however it ends."""

from __future__ import annotations

import fcntl
from contextlib import suppress
from pathlib import Path
from typing import IO

from waterclock.errors import UsageError

LOCK = "waterclock.lock"


class Owner:
    """The right to work on the checkpoint at `path`. A file system without locks gives it to everybody."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock: IO[bytes] | None = None

    def take(self) -> None:
        """Have it, where there is a folder; again is the same. UsageError where another run has it."""
        if not self._path.is_dir() or (self._lock is not None and (self._path / LOCK).exists()):
            return
        self.let_go()
        lock = (self._path / LOCK).open("ab")
        try:
            with suppress(OSError):
                self._alone(lock)
        except UsageError:
            lock.close()
            raise
        self._lock = lock

    def let_go(self) -> None:
        """Give it back."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _alone(self, lock: IO[bytes]) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another run has the checkpoint {self._path} open: wait for its end, or stop it. Two at once "
                "would write over each other's state"
            ) from error
