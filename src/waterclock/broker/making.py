"""Folders of partitions, made and removed beside the loop: a few in one deed, so that nobody waits for a thousand.

Rule 1: all of them or none. They are handed over when their names are durable: one flush of the folder above does for all.
    If the disk refuses one, those made before it are removed, and then the error is handed over.
Rule 2: a partition is nobody's but its maker's until it is handed over: so another thread may make it.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterable
from typing import Any, Final

from waterclock.broker.log.partition import Partition
from waterclock.broker.worker import Do
from waterclock.disk import flush_folder

MANY: Final = 16  # partitions in one deed: some milliseconds
log = logging.getLogger("waterclock.broker")


class Maker:
    """`folder` is where the partitions' folders are; `do` has deeds done in their order, as `Worker.do`."""

    def __init__(self, folder: str, do: Do) -> None:
        self._folder, self._do = folder, do

    def make(self, openings: Iterable[Callable[[], Partition]], then: Callable[[list[Partition] | None], Any]) -> None:
        """Call `then` with what the openings made, in their order; with None if the disk refused."""
        left, made = list(openings)[::-1], list[Partition]()

        def some() -> None:
            for _ in range(min(MANY, len(left))):
                made.append(left.pop()())
            if not left:
                flush_folder(self._folder)

        def done(error: Exception | None) -> None:
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
