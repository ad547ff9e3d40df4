"""A partition's producers as they stood at one offset, so that a start need not read the whole log.

Rule 1: a snapshot is named after the offset that it was taken at: all batches before are in it, none after.
Rule 2: it is written when everything before that offset is durable, and it carries its own checksum.
    One that is torn is passed over for the one before.
Rule 3: whoever writes it does not flush it (not `write_whole`): a start that finds it torn only reads more of the log,
    and a stop would flush twice for each of its partitions, one after the other. What it is called is durable with the
    next flush of the log, and before files go that it stands in for, `flush_last` is called. The first one that is there
    is the one that lasts then: it stays until the next call, whatever comes behind it.
Rule 4: the aborted transactions before that offset are on the disk first. Once one of those flushes has failed, nobody
    can say that of any later snapshot: no more are written, and a start reads from the last good one on.
Rule 5: it has a checksum of each file of aborted transactions, as far as it stands in for their markers (producers.py).
Rule 6: its offset and its folder's name have a part in its checksum: none stands in for another one, nor for another
    partition's.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from typing import Final, NamedTuple

from crc32c import crc32c

from waterclock.broker.log.producers import Producers, RowsChecksum
from waterclock.broker.log.segment import numbered
from waterclock.disk import flush_file, flush_folder, replacing, write_whole
from waterclock.outside import open_file, os

FORM: Final = b"WCS3"
WITHOUT_FOLDER: Final = b"WCS2"  # of earlier versions
CRC: Final = struct.Struct(">I")
PLACE: Final = struct.Struct(">q")
COUNT: Final = struct.Struct(">i")
VOUCHED: Final = struct.Struct(">qiI")  # a segment's base, its rows, their checksum
KEPT: Final = 2
ENDING: Final = ".snapshot"
log = logging.getLogger("waterclock.broker")


class ProducerSnapshot(NamedTuple):
    """The producers at `offset`, and what the files of aborted transactions before it hold: by their segments' bases.

    None for `vouched` in the form of earlier versions, which said nothing of them.
    """

    offset: int
    producers: Producers
    vouched: dict[int, RowsChecksum] | None


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
            for path in rows:
                with suppress(FileNotFoundError):  # gone with its segment
                    flush_file(path)
            if rows:
                flush_folder(self._folder)  # one of them may be new
            self._doubtful = False
            write(self._folder, offset, data)


def packed(producers: bytes, vouched: Mapping[int, RowsChecksum]) -> bytes:
    """What a snapshot holds: a dump of the producers, and the checksums of the files of aborted transactions."""
    rows = b"".join(VOUCHED.pack(base, *one) for base, one in vouched.items())
    return COUNT.pack(len(vouched)) + rows + producers


def write(folder: str, offset: int, data: bytes) -> None:
    """Write the snapshot at `offset`, with what `packed` gave, and delete all but the first and the last two."""
    whole, path = FORM + CRC.pack(_checksum(offset, data, folder)) + data, _path(folder, offset)
    if offsets(os.listdir(folder))[:1] == [offset]:
        write_whole(path, whole)
    else:
        with replacing(path) as file:
            file.write(whole)
    _delete(folder, offsets(os.listdir(folder))[1:-KEPT])


def flush_last(folder: str) -> None:
    """Make the last snapshot durable, name and bytes; OSError. What it has then needs no file from before. Those before it
    are deleted."""
    there = offsets(os.listdir(folder))
    for offset in there[-1:]:
        flush_file(_path(folder, offset))
    flush_folder(folder)
    _delete(folder, there[:-1])


def _delete(folder: str, old: Iterable[int]) -> None:
    for offset in old:
        with suppress(FileNotFoundError):
            os.unlink(_path(folder, offset))


def offsets(names: Iterable[str]) -> list[int]:
    """The offsets that snapshots are there for, rising; `names` are those of the folder's files."""
    return numbered(names, ENDING)


def newest(folder: str, names: Iterable[str]) -> ProducerSnapshot | None:
    """The last good snapshot: everything before it was durable when it was taken."""
    for offset in reversed(offsets(names)):
        found = _read(folder, offset)
        if found is not None:
            return found
        log.warning("%s is torn or damaged: what it knew is looked for in the log", _path(folder, offset))
    return None


def drop_after(folder: str, end: int, names: Iterable[str]) -> None:
    """Delete the snapshots of what a cut has taken away; `names` are those of the folder's files."""
    for offset in offsets(names):
        if offset > end:
            os.unlink(_path(folder, offset))


def _path(folder: str, offset: int) -> str:
    return os.path.join(folder, f"{offset:020}{ENDING}")


def _checksum(offset: int, data: bytes, folder: str) -> int:
    return int(crc32c(data, crc32c(PLACE.pack(offset), crc32c(os.fsencode(os.path.basename(folder))))))


def _read(folder: str, offset: int) -> ProducerSnapshot | None:
    with open_file(_path(folder, offset), "rb") as file:
        raw = file.read()
    head = len(FORM) + CRC.size
    with suppress(struct.error):
        form, crc = raw[: len(FORM)], CRC.unpack_from(raw, len(FORM))[0]
        if form == FORM and crc == _checksum(offset, raw[head:], folder):
            return _unpacked(offset, raw[head:])
        if form == WITHOUT_FOLDER and crc == crc32c(raw[head:], crc32c(PLACE.pack(offset))):
            return _unpacked(offset, raw[head:])
        if CRC.unpack_from(raw)[0] == crc32c(raw[CRC.size :]):
            return ProducerSnapshot(offset, Producers.load(raw[CRC.size :]), None)
    return None


def _unpacked(offset: int, data: bytes) -> ProducerSnapshot:
    (count,) = COUNT.unpack_from(data)
    after = COUNT.size + count * VOUCHED.size
    rows = VOUCHED.iter_unpack(data[COUNT.size : after])
    vouched = {base: RowsChecksum(rows, crc) for base, rows, crc in rows}
    return ProducerSnapshot(offset, Producers.load(data[after:]), vouched)
