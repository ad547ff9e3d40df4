"""Folders of partitions, made and removed beside the loop: a few in one deed, so that nobody waits for a thousand.

Rule 1: all of them or none. They are handed over when their names are durable: one flush of the folder above does for all.
    If the disk refuses one, those made before it are removed, and then the error is handed over.
Rule 2: a partition is nobody's but its maker's until it is handed over: so another thread may make it.
Rule 3: each holds a file open. They leave SPARED for connections and for logs that grow, or a quarter if few may be
    open: one client that makes topics must not shut out the others. A new file gets the lowest number that is free, which
    says how many are open without counting them.
"""

from __future__ import annotations

import logging
import os
import resource
import shutil
from collections.abc import Callable, Iterable
from typing import Any, Final

from waterclock.broker.log.partition import Partition
from waterclock.broker.worker import Do
from waterclock.disk import flush_folder

MANY: Final = 16  # partitions in one deed: some milliseconds
SPARED: Final = 1_000
log = logging.getLogger("waterclock.broker")


class Maker:
    """`folder` is where the partitions' folders are; `do` has deeds done in their order, as `Worker.do`."""

    def __init__(self, folder: str, do: Do) -> None:
        self._folder, self._do = folder, do
        self._waiting = 0  # partitions that are not made yet

    def why_no_room(self, partitions: int) -> str | None:
        """Why so many more cannot be made; None if they can (rule 3)."""
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        room = most - min(SPARED, most // 4) - _open_files() - self._waiting
        if most == resource.RLIM_INFINITY or partitions <= room:
            return None
        return (
            f"{partitions:,} partitions more do not fit: each holds a file open, and this process may open {most:,} "
            "(ulimit -n)"
        )

    def make(self, openings: Iterable[Callable[[], Partition]], then: Callable[[list[Partition] | None], Any]) -> None:
        """Call `then` with what the openings made, in their order; with None if the disk refused."""
        left, made = list(openings)[::-1], list[Partition]()
        counted = len(left)
        self._waiting += counted

        def some() -> None:
            for _ in range(min(MANY, len(left))):
                made.append(left.pop()())
            if not left:
                flush_folder(self._folder)

        def done(error: Exception | None) -> None:
            nonlocal counted
            still = 0 if error is not None else len(left)
            self._waiting += still - counted
            counted = still
            if error is not None:
                log.error("partitions cannot be made: %s", error)
                self.remove(made, lambda: then(None))
            elif left:
                self._do(some, done)
            else:
                then(made)

        self._do(some, done)

    def remove(self, partitions: Iterable[Partition], then: Callable[[], Any]) -> None:
        """Nobody has the partitions any more: remove their folders. What the disk refuses to, the next start removes."""
        gone = list(partitions)
        for partition in gone:
            partition.deleted = True
        left = [partition.folder for partition in gone]

        def some() -> None:
            for _ in range(min(MANY, len(left))):
                shutil.rmtree(left.pop(), ignore_errors=True)

        def done(error: Exception | None) -> None:
            if left:
                self._do(some, done)
            else:
                then()

        self._do(some, done)


def _open_files() -> int:
    """How many files are open at least; as many as may be if another cannot be opened."""
    try:
        number = os.open(os.devnull, os.O_RDONLY)
    except OSError:
        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    os.close(number)
    return number
