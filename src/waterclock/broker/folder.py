"""A broker's data folder: one process at a time, and none on a file system without locks."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from waterclock.broker.errors import DataInUse
from waterclock.disk import FolderLock, WithoutLocks, make_folder
from waterclock.errors import UsageError


def locked(folder: str) -> FolderLock:
    """Take the folder for this process alone, until the lock that is returned is released."""
    lock = FolderLock(folder, "lock", WithoutLocks.REFUSE)
    try:
        make_folder(folder)
        lock.take()
    except BlockingIOError:
        raise DataInUse(f"another broker has {folder} open: stop it, or choose another folder with --data") from None
    except OSError as error:
        raise UsageError(
            f"the data folder {folder} cannot be used: {error.strerror}. Choose another with --data"
        ) from None
    return lock


def let_go(lock: FolderLock, *rooms: Any) -> None:
    """After a start that failed: close what was made of it (None: it was not), the first named first.

    The folder is left to the next whatever happens on the way.
    """
    with ExitStack() as last_first:
        last_first.callback(lock.release)
        for room in rooms[::-1]:
            if room is not None:
                last_first.callback(room.close)
