"""One run at a time on a checkpoint: a lock of the system's, which ends with the process that has it, however it ends.

Behind a URI there are no locks: there it is a lease (lease.py).
"""

from __future__ import annotations

from pathlib import Path

from waterclock.disk import FolderLock, WithoutLocks
from waterclock.errors import UsageError
from waterclock.sinks.ledger import Epoch
from waterclock.spark.checkpoint.lease import Lease
from waterclock.streaming.places.hadoop import HadoopPath
from waterclock.streaming.places.place import Place

LOCK = "waterclock.lock"


class Owner:
    """The right to work on the checkpoint at `path`. A file system without locks gives it to everybody."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = FolderLock(path, LOCK, WithoutLocks.ALLOW)

    @property
    def epoch(self) -> Epoch | None:
        """None: a lock ends with its process, so no run is ever taken over."""
        return None

    def check(self) -> None:
        """Nothing: nobody takes a lock over."""

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


def owner_of(path: Place) -> Owner | Lease:
    """The right to work on the checkpoint at `path`, not taken yet."""
    return Lease(path) if isinstance(path, HadoopPath) else Owner(Path(str(path)))
