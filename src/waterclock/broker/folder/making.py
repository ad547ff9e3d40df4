"""Folders of partitions: what each says of itself, whatever becomes of the store, and how they are made and removed.

    topics/NAME-NUMBER.ID/topic.json    {"name", "id", "number", "partitions", "settings", "commit"}, with a checksum

Rule 1: that label is written before the store names the partition, and durable with its first record: a thousand partitions
    are made with one flush. If a power cut took it before, there is no record, and the store has it written anew.
Rule 2: the store goes before it. The label counts if the store does not know the folder.
Rule 3: `partitions` and `settings` are the topic's when it was written: of several the one with the latest `commit`, the
    number of the store's last commit then, is right. A topic's new settings are written into one folder only.
Rule 4: folders are made and removed beside the loop, a few in one deed, so that nobody waits for a thousand; all of them or
    none. They are handed over when their names are durable: one flush of the folder above does for all. If the disk
    refuses one, those made before it are removed, and then the error is handed over.
Rule 5: a partition is nobody's but its maker's until it is handed over: so another thread may make it.
Rule 6: each holds a file open. They leave SPARED for connections and for logs that grow, or a quarter if few may be
    open: one client that makes topics must not shut out the others. A new file gets the lowest number that is free, which
    says how many are open without counting them.
Source: partition.metadata of Apache Kafka (KIP-516).
"""

from __future__ import annotations

import logging
import resource
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any, Final, NamedTuple

from waterclock.broker.log.partition import Partition
from waterclock.broker.log.segment import LABEL
from waterclock.broker.worker import Do
from waterclock.disk import flush_folder, read_sealed, replacing, sealed, write_sealed
from waterclock.outside import os, shutil, uuid

START: Final = 200  # of a name, in a folder's: with number and id it stays below the 255 bytes that a file system takes


class FolderLabel(NamedTuple):
    """The label of partition `number` of the topic `name`, written after the store's commit number `commit`."""

    name: str
    id: uuid.UUID
    number: int
    partitions: int
    settings: dict[str, str]
    commit: int

    @property
    def folder(self) -> str:
        """The name of the folder that it belongs into."""
        return folder_of(self.name, self.id, self.number)

    def kept(self) -> dict[str, Any]:
        """The topic, as the store keeps it."""
        return {"id": str(self.id), "partitions": self.partitions, "settings": self.settings}


def folder_of(name: str, topic_id: uuid.UUID, number: int) -> str:
    """The name of a partition's folder: the id keeps it apart from one of another topic of that name.

    >>> folder_of("orders", uuid.UUID(int=255), 3)
    'orders-3.0000000000000000'
    """
    return f"{name[:START]}-{number}.{ending_of(topic_id)}"


def ending_of(topic_id: uuid.UUID) -> str:
    """What the names of all folders of a topic end with, behind the last dot."""
    return topic_id.hex[:16]


def begin_label(folder: str, label: FolderLabel) -> None:
    """Write it into a new partition's folder (rule 1); OSError if the disk refuses."""
    with replacing(os.path.join(folder, LABEL)) as file:
        file.write(sealed(_plain(label)))


def write_label(folder: str, label: FolderLabel) -> None:
    """Write it anew into a partition's folder, durably; OSError if the disk refuses."""
    write_sealed(os.path.join(folder, LABEL), _plain(label))


def _plain(label: FolderLabel) -> dict[str, Any]:
    return label._asdict() | {"id": str(label.id)}


def read_label(folder: str) -> FolderLabel | None:
    """The label in a folder, which may be another folder's; None if there is none that is whole."""
    with suppress(OSError, ValueError, KeyError, TypeError):
        kept = read_sealed(os.path.join(folder, LABEL))
        settings = {str(name): str(text) for name, text in kept["settings"].items()}
        numbers = int(kept["number"]), int(kept["partitions"])
        return FolderLabel(str(kept["name"]), uuid.UUID(kept["id"]), *numbers, settings, int(kept["commit"]))
    return None


MANY: Final = 16  # partitions in one deed: some milliseconds
SPARED: Final = 1_000
log = logging.getLogger("waterclock.broker")


class Maker:
    """`folder` is where the partitions' folders are; `do` has deeds done in their order, as `Worker.do`."""

    def __init__(self, folder: str, do: Do) -> None:
        self._folder, self._do = folder, do
        self._waiting = 0  # partitions that are not made yet

    def why_no_room(self, partitions: int) -> str | None:
        """Why so many more cannot be made; None if they can (rule 6)."""
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

    def remove(
        self, partitions: Iterable[Partition], then: Callable[[], Any], kept: Callable[[], Any] | None = None
    ) -> None:
        """Nobody has the partitions any more: remove their folders, and call `then`.

        `kept` is called instead where the disk refuses, or does not say that they are gone for good: the next start removes
        them.
        """
        gone = list(partitions)
        for partition in gone:
            partition.deleted = True
        left = [partition.folder for partition in gone]

        def some() -> None:
            for _ in range(min(MANY, len(left))):
                shutil.rmtree(left.pop(), ignore_errors=True)
            if not left:
                flush_folder(self._folder)

        def done(error: Exception | None) -> None:
            if left:
                self._do(some, done)
            elif kept is not None and (error or any(os.path.lexists(partition.folder) for partition in gone)):
                kept()
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
