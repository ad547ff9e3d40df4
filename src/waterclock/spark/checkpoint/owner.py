"""One run at a time on a checkpoint: a lock of the system's, which ends with the process that has it, however it ends."""

from __future__ import annotations

from pathlib import Path

from waterclock.disk import FolderLock, WithoutLocks
from waterclock.errors import UsageError

LOCK = "waterclock.lock"


class Owner:
    """The right to work on the checkpoint at `path`. A file system without locks gives it to everybody."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FolderLock(path, LOCK, WithoutLocks.ALLOW)

    def take(self) -> None:
        """Have it, if there is a folder; again is the same. UsageError if another run has it."""
        if not self._path.is_dir():
            return
        try:
            self._lock.take()
        except BlockingIOError as error:
            raise UsageError(
                f"another run has the checkpoint {self._path} open: wait for its end, or stop it. Two at once "
                "would write over each other's state"
            ) from error

    def let_go(self) -> None:
        """Give it back."""
        self._lock.release()
