"""A partition's producers as they stood at one offset, so that a start need not read the whole log.

Rule 1: a snapshot is named after the offset that it was taken at: all batches before are in it, none after.
Rule 2: it is written when everything before that offset is durable, and it carries its own checksum.
    One that is torn or newer than the log is passed over for the one before.
Rule 3: whoever writes it does not flush it (not `write_whole`): a start that finds it torn only reads more of the log,
    and a stop would flush twice for each of its partitions, one after the other. What it is called is durable with the
    next flush of the log, and before files go that it stands in for, `settle` is called.
Rule 4: the aborted transactions before that offset are on the disk first. Once one of those flushes has failed, nobody
    can say that of any later snapshot: no more are written, and a start reads from the last good one on.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from crc32c import crc32c

from waterclock.broker.log.producers import Producers
from waterclock.disk import flush_file, flush_folder, replacing

CRC: Final = struct.Struct(">I")
KEPT: Final = 2
ENDING: Final = ".snapshot"


class Snapshots:
    """Writes the snapshots of the partition in `folder`, one after the other, in whichever thread does its slow deeds."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._doubtful = False

    def write(self, offset: int, data: bytes, rows: Collection[str]) -> None:
        """Flush the files in `rows`, then write the snapshot. A disk that refuses costs time at a start, no more."""
        if self._doubtful:
            return
        with suppress(OSError):
            self._doubtful = True
            self._flush(rows)
            self._doubtful = False
            write(self._folder, offset, data)

    def _flush(self, rows: Collection[str]) -> None:
        for path in rows:
            with suppress(FileNotFoundError):  # gone with its segment
                flush_file(path)
        if rows:
            flush_folder(self._folder)  # one of them may be new


def write(folder: str, offset: int, data: bytes) -> None:
    """Write the snapshot at `offset`, a dump of the producers, and delete all but the last two."""
    with replacing(os.path.join(folder, f"{offset:020}{ENDING}")) as file:
        file.write(CRC.pack(crc32c(data)) + data)
    for old in offsets(folder)[:-KEPT]:
        with suppress(FileNotFoundError):
            os.unlink(os.path.join(folder, f"{old:020}{ENDING}"))


def settle(folder: str) -> None:
    """Make the last snapshot durable, name and bytes; OSError. What it has then needs no file from before."""
    for offset in offsets(folder)[-1:]:
        flush_file(os.path.join(folder, f"{offset:020}{ENDING}"))
    flush_folder(folder)


def offsets(folder: str) -> list[int]:
    """The offsets that snapshots are there for, rising."""
    names = (name[: -len(ENDING)] for name in os.listdir(folder) if name.endswith(ENDING))
    return sorted(int(name) for name in names if name.isdigit())


def newest(folder: str, start: int, end: int) -> tuple[int, Producers]:
    """The last good snapshot from `start` to `end`; (start, no producers) where there is none.

    `start` is where the files begin, not where readers may: what a deletion hides is known of its producers all the same.
    """
    for offset in reversed(offsets(folder)):
        producers = _read(folder, offset) if start <= offset <= end else None
        if producers is not None:
            return offset, producers
    return start, Producers()


def newest_offset(folder: str) -> int:
    """The offset of the last good snapshot, or -1: everything before it was durable when it was taken."""
    return next((offset for offset in reversed(offsets(folder)) if _read(folder, offset) is not None), -1)


def drop_after(folder: str, end: int) -> None:
    """Delete the snapshots of what a cut has taken away."""
    for offset in offsets(folder):
        if offset > end:
            os.unlink(os.path.join(folder, f"{offset:020}{ENDING}"))


def _read(folder: str, offset: int) -> Producers | None:
    with open(os.path.join(folder, f"{offset:020}{ENDING}"), "rb") as file:
        raw = file.read()
    if len(raw) < CRC.size or CRC.unpack_from(raw)[0] != crc32c(raw[CRC.size :]):
        return None
    with suppress(struct.error):
        return Producers.load(raw[CRC.size :])
    return None
