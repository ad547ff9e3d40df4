"""A start after a crash: what the write-ahead log holds is put back into the partitions' own files.

Rule 1: bytes are put where they were, at their place in their segment's file; those that are there already are left.
    After kill -9 that is all of them; after a power cut, what the file itself had lost.
Rule 2: nothing is made: a partition or segment that is gone was removed, and a gap in a file is for the recovery to find.
Rule 3: frames that cannot be read are said, with their numbers. What they held is lost only where the file itself lost it.
Rule 4: the files are flushed before the log is removed: a crash in between has it put back once more.
"""

from __future__ import annotations

import logging
import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from waterclock.broker.log.write_ahead import HEAD, MARK, NAMES, ROW, STANDS, SUMMED, remove

ENDING: Final = ".log"
log = logging.getLogger("waterclock.broker")


class Frame(NamedTuple):
    """A whole frame: its number, that of its half's first one, and its rows."""

    number: int
    first: int
    rows: bytes


class Piece(NamedTuple):
    """Bytes of a segment, and where they were in its file."""

    at: int
    data: bytes


Pieces: TypeAlias = "dict[str, dict[int, list[Piece]]]"  # partition's path -> base of the segment -> in their order


def replay(folder: str) -> None:
    """Put back what the write-ahead log in a data folder holds, durably, and remove it; OSError."""
    if not any(os.path.exists(os.path.join(folder, name)) for name in NAMES):
        return
    frames = sorted(frame for name in NAMES for frame in _frames(os.path.join(folder, name)))
    _say_gaps(folder, frames)
    pieces = _pieces(frames)
    restored = sum(
        _put_back(os.path.join(folder, path, f"{base:020}{ENDING}"), several)
        for path, segments in pieces.items()
        for base, several in segments.items()
    )
    if restored:
        log.warning("%d bytes that a power cut had taken were put back from the write-ahead log", restored)
    remove(folder)


def _frames(path: str) -> list[Frame]:
    """The whole frames of a half, as far as they are of the last time that it was begun."""
    with suppress(FileNotFoundError), open(path, "rb") as file:
        found = list(whole_frames(file.read()))
        first = max((frame.first for frame in found), default=0)
        return [frame for frame in found if frame.first == first]
    return []


def _say_gaps(folder: str, frames: list[Frame]) -> None:
    before = frames[0].first - 1 if frames else 0
    for frame in frames:
        if frame.number != before + 1:
            log.error(
                "the write-ahead log in %s is damaged: frames %d to %d cannot be read. The logs have what they held, "
                "unless power was cut", folder, before + 1, frame.number - 1,
            )  # fmt: skip
        before = frame.number


def whole_frames(data: bytes) -> Iterator[Frame]:
    """Every whole frame in a half's bytes, those of earlier times behind the last one's too."""
    at = data.find(MARK)
    while at >= 0 and at + HEAD.size <= len(data):
        _, number, first, length, checksum = HEAD.unpack_from(data, at)
        rows = data[at + HEAD.size : at + HEAD.size + length]
        whole = len(rows) == length and crc32c(rows, crc32c(SUMMED.pack(number, first, length))) == checksum
        if whole:
            yield Frame(number, first, rows)
        at = data.find(MARK, at + (HEAD.size + length if whole else 1))


def _pieces(frames: list[Frame]) -> Pieces:
    """What is to be put back."""
    pieces: Pieces = defaultdict(lambda: defaultdict(list))
    for frame in frames:
        for path, base, at, data in _rows(frame.rows):
            if data is None:
                pieces[path].pop(base, None)
            else:
                pieces[path][base].append(Piece(at, data))
    return pieces


def _rows(rows: bytes) -> Iterator[tuple[str, int, int, bytes | None]]:
    """Path, segment, byte and bytes of each row; None where the segment stands."""
    here = 0
    while here < len(rows):
        names, size, base, at = ROW.unpack_from(rows, here)
        here += ROW.size + names
        path = os.fsdecode(rows[here - names : here])
        data = None if size == STANDS else rows[here : here + size]
        here += len(data or b"")
        yield path, base, at, data


def _put_back(path: str, pieces: list[Piece]) -> int:
    """Put these into a segment's file, and flush it; how many bytes it lacked."""
    restored = 0
    with suppress(FileNotFoundError), open(path, "r+b", buffering=0) as file:
        fd = file.fileno()
        for at, data in pieces:
            if at > os.fstat(fd).st_size:
                log.error("%s ends before byte %d, which was written once: what lies between is missing", path, at)
                break
            if os.pread(fd, len(data), at) != data:
                os.pwrite(fd, data, at)
                restored += len(data)
        os.fdatasync(fd)
    return restored
