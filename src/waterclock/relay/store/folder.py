"""The folder of one partition's files: for one process, and never removed if its files are not believed.

    FOLDER                          the files that a relay works with
    FOLDER.aside.MOMENT.few-words   what was not believed, as it was found; `why` in it has the sentence
    FOLDER.spare.MOMENT.few-words   the same, if the log held all of its messages at that moment

Rule 1: the whole folder gets another name, in one step: a crash leaves the one or the other. Nothing reads it there but
        `waterclock relay files`.
Rule 2: the last spare one is kept. Others stay until somebody removes them. Of one without a message the files are removed.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from re import ASCII, sub
from typing import Final

from waterclock.disk import FolderLock, WithoutLocks, flush_folder, free_name, make_folder, set_aside, write_whole
from waterclock.errors import UsageError
from waterclock.relay.store import manifest
from waterclock.relay.store.files import HEADER, OURS
from waterclock.relay.store.rows import ROW

log = logging.getLogger("waterclock.relay")
WHY: Final = "why"
_MOST_WORDS: Final = 60


class Folder:
    """One at `path`, made and locked. UsageError if another process has it; OSError if the disk refuses."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FolderLock(path, "lock", WithoutLocks.REFUSE)
        self._take()

    def _take(self) -> None:
        make_folder(self.path)
        try:
            self._lock.take()
        except BlockingIOError:
            raise UsageError(
                f"{self.path} is in use by another process: stop that relay, or give this one a folder of its own"
            ) from None

    def release(self) -> None:
        """Give it back."""
        self._lock.release()

    def set_aside(self, why: str, wall_ms: int, pending: int | None, is_spare: bool) -> None:
        """Begin with an empty folder. `pending`: how many messages the files hold, if that can be known. OSError.

        1. write down why    2. rename the folder    3. make another one    4. remove the spare one of before
        """
        count = rows_in(self.path) if pending is None else pending
        if not count:
            log.warning("%s: cleared, to be filed anew from the log: %s. No message was in it", self.path, why)
            self.clear()
            return
        with suppress(OSError):  # the name says it too
            write_whole(self.path / WHY, f"{why}\n".encode())  # 1
        kind = "spare" if is_spare else "aside"
        before = list(self.path.parent.glob(f"{self.path.name}.spare.*")) if is_spare else []
        place = set_aside(self.path, self.path.with_name(f"{self.path.name}.{kind}.{_words(why, wall_ms)}"))  # 2
        self._take()  # 3
        _say(self.path, place, why, f"{count} messages" if pending is not None else f"up to {count} messages", is_spare)
        for each in before:
            shutil.rmtree(each, ignore_errors=True)  # 4

    def copy_aside(self, why: str, wall_ms: int) -> None:
        """Keep a copy of it as it is. OSError."""
        place = free_name(self.path.with_name(f"{self.path.name}.aside.{_words(why, wall_ms)}"))
        shutil.copytree(self.path, place)
        log.warning("%s: %s: what was filed behind that is kept, in %s. `waterclock relay files` prints it; rm -r that "
                    "folder once nobody needs it", self.path, why, place)  # fmt: skip

    def clear(self) -> None:
        """Remove our files from it, the manifest first: a crash leaves files that nobody believes. OSError."""
        (self.path / manifest.NAME).unlink(missing_ok=True)
        flush_folder(self.path)
        for path in [path for path in self.path.iterdir() if OURS.fullmatch(path.name)]:
            path.unlink()


def rows_in(folder: Path) -> int:
    """How many messages the index files of a folder name, whether delivered or not."""
    sizes = [path.stat().st_size for path in folder.glob("*.index")]
    return sum(max(0, size - HEADER) // ROW.itemsize for size in sizes)


def say_unread(folder: Path, read: Collection[str]) -> None:
    """Name the folders in `folder` that hold messages, and that nobody reads: those named `read` are."""
    for path in sorted(folder.glob("*/")):
        if path.name not in read and (count := rows_in(path)):
            log.warning(
                "%s is not read by this relay: it is of another topic or group, or was set aside. It holds up to %d "
                "messages. `waterclock relay files` prints them; rm -r that folder once nobody needs it", path, count,
            )  # fmt: skip


def _words(why: str, wall_ms: int) -> str:
    """
    >>> _words("the manifest is damaged: its checksum is wrong", 1_780_315_200_000)
    '20260601T120000Z.the-manifest-is-damaged-its-checksum-is-wrong'
    """
    moment = datetime.fromtimestamp(wall_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ")
    return f"{moment}.{sub(r'[^a-z0-9]+', '-', why.lower(), flags=ASCII)[:_MOST_WORDS].strip('-')}"


def _say(folder: Path, place: str, why: str, count: str, is_spare: bool) -> None:
    log.warning(
        "%s: %s. It is set aside, with %s%s, and filed anew from the log. `waterclock relay files %s` prints them; rm -r "
        "that folder once nobody needs it",
        folder,
        why,
        count,
        " that the log has too" if is_spare else ": what of these the log has no more is not delivered",
        place,
    )
