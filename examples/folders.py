"""A demo's folder, for one demo at a time.

Two in one folder would remove what the other one is writing, and take the other one's results for their own. A file
system without locks is refused: the broker that most demos start in there would refuse it too.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from waterclock.disk import FolderLock, WithoutLocks
from waterclock.errors import UsageError


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """`folder` is made if it is missing; UsageError if that cannot be, or if another demo is in it."""
    lock = FolderLock(folder, ".lock", WithoutLocks.REFUSE)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.take()
    except BlockingIOError as error:
        raise UsageError(
            f"another demo is at work in the folder {str(folder)!r}: wait for its end, or name another with --folder"
        ) from error
    except (OSError, ValueError) as error:
        raise UsageError(f"the folder {str(folder)!r} cannot be used ({error}): name another with --folder") from error
    try:
        yield
    finally:
        lock.release()


def clear(folder: Path, own: Iterable[str]) -> None:
    """Remove what a run before left under these names; UsageError if that cannot be."""
    try:
        for path in (folder / name for name in own):
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    except (OSError, ValueError) as error:
        raise UsageError(f"the folder {str(folder)!r} cannot be used ({error}): name another with --folder") from error
