"""The manifest: the one file that says which others count, and up to where. A sealed file (disk.py), written whole at each
checkpoint.

Rule 1: it says whose the folder is. Files of another group, topic or partition are not read.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

from waterclock.disk import sealed, unsealed, write_whole
from waterclock.relay.store.files import DiskRefused, StoreDamaged

NAME: Final = "manifest"
FORMAT: Final = 2


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose files these are: an input partition as one group reads it. `topic_id` is Kafka's: a topic of the same name
    that was made again has another."""

    group: str
    topic_id: str
    partition: int

    def folder_name(self) -> str:
        """A name for its folder: readable, and another one for each identity.

        >>> Identity("relay", "J8iNnLwT", 2).folder_name()
        'relay-J8iNnLwT-2-4c3fc5bb'
        """
        words = [re.sub(r"[^\w-]", "_", word, flags=re.ASCII)[:60] for word in (self.group, self.topic_id)]
        digest = blake2b(json.dumps([self.group, self.topic_id, self.partition]).encode(), digest_size=4)
        return f"{words[0]}-{words[1]}-{self.partition}-{digest.hexdigest()}"


def contents(identity: Identity, content: dict[str, Any]) -> bytes:
    """The bytes of a manifest."""
    return sealed({"format": FORMAT, "identity": asdict(identity), **content})


def write(folder: Path, data: bytes) -> None:
    """Replace the manifest, durably. OSError if the disk refuses; then the old one holds."""
    try:
        write_whole(folder / NAME, data, 0o600)
    except OSError as error:
        raise DiskRefused(error, folder / NAME, len(data)) from None


def read(folder: Path, identity: Identity) -> dict[str, Any] | None:
    """What the manifest says; None if there is none. `StoreDamaged` if it is not whole, or not of this identity."""
    try:
        data = (folder / NAME).read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StoreDamaged(f"the manifest cannot be read: {error.strerror}") from None
    try:
        content: dict[str, Any] = unsealed(data)
    except ValueError:
        raise StoreDamaged("the manifest is damaged: its checksum is wrong") from None
    if content["format"] != FORMAT:
        raise StoreDamaged(f"the files are of format {content['format']}, and this version reads format {FORMAT}")
    if content["identity"] != asdict(identity):
        raise StoreDamaged(f"the files are those of {content['identity']}, not of {asdict(identity)}")
    return content
