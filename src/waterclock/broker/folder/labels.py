"""What each partition's folder says of itself, whatever becomes of the store: its topic's name, id and settings.

    topics/NAME-NUMBER.ID/topic.json    {"name", "id", "number", "partitions", "settings", "commit"}, with a checksum

Rule 1: it is written before the store names the partition, and durable with its first record: a thousand partitions are
    made with one flush. If a power cut took it before, there is no record, and the store has it written anew.
Rule 2: the store goes before it. The label counts if the store does not know the folder.
Rule 3: `partitions` and `settings` are the topic's when it was written: of several the one with the latest `commit`, the
    number of the store's last commit then, is right. A topic's new settings are written into one folder only.
Source: partition.metadata of Apache Kafka (KIP-516).
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from typing import Any, Final, NamedTuple

from waterclock.broker.log.segment import LABEL
from waterclock.disk import read_sealed, replacing, sealed, write_sealed

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
    return f"{name[:START]}-{number}.{topic_id.hex[:16]}"


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
