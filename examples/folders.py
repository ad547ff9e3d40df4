"""A demo's folder, for one demo at a time.

Two in one folder would remove what the other one is writing, and take the other one's results for their own.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from waterclock.errors import UsageError


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """`folder` is made where it is not there; UsageError where that cannot be, or where another demo is in it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("ab")
    except (OSError, ValueError) as error:
        raise UsageError(f"the folder {str(folder)!r} cannot be used ({error}): name another with --folder") from error
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(
                f"another demo is at work in the folder {str(folder)!r}: wait for its end, or name another with --folder"
            ) from error
        yield
