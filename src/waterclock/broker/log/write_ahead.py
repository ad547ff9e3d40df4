"""The write-ahead log: small appends to many partitions made durable with one flush of one file.

A flush of a file that grew costs the file system a commit of its own: a hundred partitions, a hundred commits. So what is
small is written here too, all partitions' bytes in one frame, into room that was reserved before. The partitions' own
files are flushed when half of the room is used up: once for all that was appended to them meanwhile.

    write-ahead.0, write-ahead.1    the halves, filled in turn
    frame   MARK | run (8) | number (8) | its half's first number (8) | length of rows (4) | checksum of all (4) | rows
    row     lengths of path (2) and bytes (4) | base of the segment (8) | byte (8) | path | bytes

A row of STANDS bytes says that the segment stands in its own file, whatever was written here before.

Rule 1: a half is begun anew when everything in it stands in its own files.
Rule 2: who rewrites bytes of a segment flushes it before, and says STANDS. Nobody else needs to: bytes that are put back
    twice are the same, and a segment or a partition that is gone is passed over.
Rule 3: the files are there from the first small append on until everything stands in its own files, at a stop. A start that
    finds them puts back what they hold before a partition is opened (replay.py), and removes them.
Rule 4: any thread may write a frame, one at a time. A flush that fails ends the process: durable.py. A frame that the disk
    does not take (reserved room is no promise if files are copied on write, or their size is limited) was not flushed:
    whoever hands it in gets OSError, and flushes the files themselves.
Rule 5: each frame names the run of the broker that wrote it, a number that is new with each start (folder/inventory.py):
    what lies here from before, or from another folder, is known by that.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple

from crc32c import crc32c

from waterclock.broker.knobs import knobs
from waterclock.broker.log.durable import flush_failed, flush_files
from waterclock.disk import flush_folder, write_all
from waterclock.outside import os, threading

if TYPE_CHECKING:
    from waterclock.broker.log.segment import Segment

NAMES: Final = ("write-ahead.0", "write-ahead.1")
MARK: Final = b"wcA2"
HEAD: Final = struct.Struct(">4sQQQII")
SUMMED: Final = struct.Struct(">QQQI")
ROW: Final = struct.Struct(">HIqQ")
STANDS: Final = 0xFFFF_FFFF


class SegmentBytes(NamedTuple):
    """`size` bytes of a segment from byte `at` on: in its file, and not durable there."""

    segment: Segment
    at: int
    size: int


class WriteAheadLog:
    """The write-ahead log of a run in the data folder `folder`, which has none yet."""

    def __init__(self, folder: str, run: int) -> None:
        self._folder, self._run, self._room = folder, run, knobs().ahead_room
        self._lock = threading.Lock()
        self._files: list[int] = []
        self._number = self._half = self._at = 0
        self._first = 1
        self._unflushed: tuple[dict[Segment, int], dict[Segment, int]] = (
            {},
            {},
        )  # of each half: up to which size it has it

    def write(self, appended: Collection[SegmentBytes]) -> None:
        """Make these bytes durable, in one frame. OSError if there is no room for them; then nothing was done."""
        rows = []
        for segment, at, size in appended:
            data, path = os.pread(segment.fd, size, at), self._path(segment)
            rows.append(ROW.pack(len(path), len(data), segment.base, at) + path + data)
        with self._lock:
            self._write(b"".join(rows))
            unflushed = self._unflushed[self._half]
            for segment, at, size in appended:
                unflushed[segment] = at + size

    def _path(self, segment: Segment) -> bytes:
        return os.fsencode(os.path.dirname(segment.path)[len(self._folder) :].strip(os.sep))

    def stands(self, segments: Collection[Segment]) -> None:
        """Flush the files of these segments, which may change from here on (rule 2)."""
        _settle({segment: segment.size for segment in segments})
        paths = [self._path(segment) for segment in segments]
        rows = (ROW.pack(len(path), STANDS, one.base, 0) + path for one, path in zip(segments, paths, strict=True))
        with self._lock:
            if self._files:
                self._write(b"".join(rows))

    def _write(self, rows: bytes) -> None:
        if not self._files:
            self._open()
        size = HEAD.size + len(rows)
        if self._at + size > self._room:  # go on in the other half (rule 1)
            other = 1 - self._half
            _settle(self._unflushed[other])  # unless somebody has done so beside it
            self._unflushed[other].clear()
            self._half = other
            self._first = self._number + 1
            self._at = 0
        number = self._number + 1
        checksum = crc32c(rows, crc32c(SUMMED.pack(self._run, number, self._first, len(rows))))
        frame = HEAD.pack(MARK, self._run, number, self._first, len(rows), checksum) + rows
        write_all(self._files[self._half], frame, self._at)  # one that is refused: the next one is written over it
        try:
            os.fdatasync(self._files[self._half])
        except OSError as error:
            flush_failed(error)
        self._number, self._at = number, self._at + size

    def _open(self) -> None:
        """Reserve the room (rule 3)."""
        files: list[int] = []
        try:
            for name in NAMES:
                files.append(os.open(os.path.join(self._folder, name), os.O_RDWR | os.O_CREAT, 0o600))
                os.posix_fallocate(files[-1], 0, self._room)
                os.fsync(files[-1])
            flush_folder(self._folder)
        except OSError:
            _close(files)
            raise
        self._files = files

    @property
    def is_open(self) -> bool:
        """Whether the room is reserved: the first frame waits for that."""
        return bool(self._files)

    @property
    def unsettled(self) -> bool:
        """Whether the half that is not written to has something that does not stand in its own files."""
        return bool(self._unflushed[1 - self._half])

    def settle(self) -> None:
        """Flush the files of all that the full half has, so that it can be begun anew at once."""
        with self._lock:
            half, first = 1 - self._half, self._first
            unflushed = dict(self._unflushed[half])
        _settle(unflushed)
        with self._lock:
            if first == self._first:  # else it was begun anew meanwhile, and may be full again
                self._unflushed[half].clear()

    def close(self) -> None:
        """Everything stands in its own files: the log goes."""
        if self._files:
            _close(self._files)
            self._files = []
            remove(self._folder)

    def abandon(self) -> None:
        """The power is gone: the log stays."""
        _close(self._files)
        self._files = []


def remove(folder: str) -> None:
    """Remove the log from a data folder, durably, if there is one; OSError."""
    there = [path for name in NAMES if os.path.exists(path := os.path.join(folder, name))]
    for path in there:
        os.unlink(path)
    if there:
        flush_folder(folder)


def _settle(sizes: Mapping[Segment, int]) -> None:
    """Flush files that are so long at least."""
    flush_files(sizes.items())
    for segment, size in sizes.items():
        segment.settle(size)


def _close(files: list[int]) -> None:
    for fd in files:
        os.close(fd)
