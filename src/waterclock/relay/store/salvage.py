"""The messages of a folder that no relay reads: one that was set aside, or that of a topic that is no more.

Rule 1: nothing is written, nothing is locked, and whose the folder was does not matter.
Rule 2: if manifest and ledger can be read, the messages are those that were pending by them, and those that were filed
        behind the last checkpoint; else all that the index files name, delivered ones too: `is_known` says which.
Rule 3: a message is given if its checksum is right; `damaged` counts the others.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from waterclock.errors import UsageError
from waterclock.relay.store import manifest
from waterclock.relay.store.files import HEADER, StoreDamaged, StoreFiles
from waterclock.relay.store.ledger import OriginLedger
from waterclock.relay.store.origins import Origins, State
from waterclock.relay.store.packing import Payload, unpack
from waterclock.relay.store.rows import ROW, Array
from waterclock.relay.store.slots import FIRST_SLOT

_SLICE: Final = 8_192  # rows


class Leftover(NamedTuple):
    """A message: its origin, when it is due (ms since the epoch), the topic (None: not known), and what is handed on."""

    origin: int
    due_ms: int
    topic: str | None
    payload: Payload


class Salvage:
    """Of the folder at a path. UsageError if there is none, or it holds no files of a relay's."""

    def __init__(self, folder: Path) -> None:
        self._indexes = sorted(folder.glob("*.index"))
        if not self._indexes:
            raise UsageError(f"{folder} is no folder of a relay's partition with messages in it: no *.index is there.")
        self.damaged = 0
        self._targets: list[str] = []
        self._filed_to = 0
        self._origins: Origins | None = None
        try:
            stored: dict[str, Any] = json.loads((folder / manifest.NAME).read_bytes().partition(b"\n")[0])
            self._targets = stored["targets"]
            self._filed_to = stored["data_position"]
            with closing(StoreFiles(folder)) as files:
                ledger = OriginLedger(files, lambda: 0)
                ledger.restore(stored["ledger"])
            self._origins = ledger.origins
        except (StoreDamaged, OSError, ValueError, KeyError):
            pass  # rule 2

    @property
    def is_known(self) -> bool:
        """Whether it is known what was pending."""
        return self._origins is not None

    def messages(self) -> Iterator[Leftover]:
        """Each message once, in the order of the files, which is about that of due times."""
        seen = set[int]()
        for path in self._indexes:
            for rows in self._rows(path):
                for row in rows:
                    if (origin := int(row["origin"])) not in seen and (saved := self._saved(path, row)) is not None:
                        seen.add(origin)
                        yield saved

    def _rows(self, path: Path) -> Iterator[Array]:
        with path.open("rb") as file:
            file.seek(HEADER)
            while data := file.read(_SLICE * ROW.itemsize):
                rows = np.frombuffer(data[: len(data) // ROW.itemsize * ROW.itemsize], ROW)
                if self._origins is not None:  # rule 2
                    values = self._origins.values(rows["origin"])
                    is_behind = (values == State.UNKNOWN) & (rows["origin"] >= self._filed_to)
                    rows = rows[(values >= FIRST_SLOT) | is_behind]
                yield rows

    def _saved(self, path: Path, row: Any) -> Leftover | None:
        blob = b""
        with suppress(OSError), path.with_suffix(".data").open("rb") as file:
            file.seek(int(row["pos"]))
            blob = file.read(int(row["length"]))
        if zlib.crc32(blob) != row["crc"] or not blob:
            self.damaged += 1
            return None
        number = int(row["target"])
        topic = self._targets[number] if number < len(self._targets) else None
        return Leftover(int(row["origin"]), int(row["due"]), topic, unpack(blob))
