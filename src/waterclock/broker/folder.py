"""A broker's data folder: one process at a time."""

from __future__ import annotations

import fcntl
import os
from contextlib import ExitStack
from typing import Any

from waterclock.broker.durable import make_folder
from waterclock.broker.errors import DataInUse
from waterclock.errors import UsageError


def locked(folder: str) -> int:
    """Take the folder for this process alone, until the file that is returned is closed."""
    try:
        make_folder(folder)
        lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise _unusable(folder, error) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        if isinstance(error, BlockingIOError):
            raise DataInUse(
                f"another broker has {folder} open: stop it, or choose another folder with --data"
            ) from None
        raise _unusable(folder, error) from None
    return lock


def _unusable(folder: str, error: OSError) -> UsageError:
    return UsageError(f"the data folder {folder} cannot be used: {error.strerror}. Choose another with --data")


def let_go(lock: int, *rooms: Any) -> None:
    """After a start that failed: close what was made of it (None: it was not), the first named first.

    The folder is left to the next whatever happens on the way.
    """
    with ExitStack() as last_first:
        last_first.callback(os.close, lock)
        for room in rooms[::-1]:
            if room is not None:
                last_first.callback(room.close)
