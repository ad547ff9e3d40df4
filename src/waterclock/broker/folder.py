"""A broker's data folder: one process at a time."""

from __future__ import annotations

import fcntl
import os
from typing import Any

from waterclock.broker.errors import DataInUse
from waterclock.errors import UsageError


def locked(folder: str) -> int:
    """Take the folder for this process alone, until the file that is returned is closed."""
    try:
        os.makedirs(folder, exist_ok=True)
        lock = os.open(os.path.join(folder, "lock"), os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise UsageError(
            f"the data folder {folder} cannot be used: {error.strerror}. Choose another with --data"
        ) from None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise DataInUse(f"another broker has {folder} open: stop it, or choose another folder with --data") from None
    return lock


def let_go(lock: int, *rooms: Any) -> None:
    """After a start that failed: close what was made of it (None: it was not), and leave the folder to the next."""
    for room in rooms:
        if room is not None:
            room.close()
    os.close(lock)
