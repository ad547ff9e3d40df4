"""A broker's data folder: one process at a time, and none on a file system without locks."""

from __future__ import annotations

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
        what = "" if error.filename in (None, folder) else f"{error.filename}: "
        raise UsageError(
            f"the data folder {folder} cannot be used: {what}{error.strerror}. Choose another with --data"
        ) from None
    return lock
