"""The store's file: one frame for what was committed together, one after the other; now and then all of it written anew.
Beside it the number of the last commit, in a file of its own: a store that is older, or shorter, is known by it.

    frame   MARK | number (8) | length of its rows (4) | checksum of those two and the rows (4) | rows
    row     lengths of namespace (2), key (4) and value (4) | namespace | key | value, in JSON

A value's length of GONE says that the key goes; a row without a namespace, that all namespaces go but those it lists.

Rule 1: frames are numbered without a gap, across a renewal too: one that is missing is known by its number.
Rule 2: a frame counts as a whole or not at all. No two are flushed apart that belong together.
Rule 3: what is in no good frame is neither used nor thrown away: whoever reads is handed those bytes, with their place
    and the numbers that are missing.
Rule 4: a renewal writes a new file, which takes the old one's place once it is whole and durable.
Rule 5: room is reserved, since a flush of a file that grew takes longer: zeros behind the last frame are no damage.
Rule 6: the number's file (number (8) | its checksum (4)) is written when the commit is durable, and is not flushed itself.
    A kill leaves it as it was; after a power cut it may be lower than the store's own number, which says nothing. It is
    never higher unless commits were lost. What is no number with its checksum is said, and counts as none; a disk that
    refuses it costs nothing but this.
Rule 7: what was read is durable before anything is done by it: who died may have written it without a flush. A marker that
    was written by a decision which a power cut then took ends a transaction that is open in the store.
Source: the metadata log of Apache Kafka (KIP-595, KIP-630), which keeps the same things in the same way.
"""

from __future__ import annotations

import json
import logging
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from waterclock.broker.knobs import knobs
from waterclock.broker.log.durable import flush_failed
from waterclock.disk import flush_folder, write_all, write_whole
from waterclock.outside import os

MARK: Final = b"wcS1"
HEAD: Final = struct.Struct(">4sQII")
SUMMED: Final = struct.Struct(">QI")
ROW: Final = struct.Struct(">HII")
GONE: Final = 0xFFFF_FFFF
ALL_BUT: Final = ""  # the namespace of the row that says so
PRIVATE: Final = 0o600  # it has users' keys
LARGEST: Final = 64 << 10  # bytes of rows in one frame of a renewal: what one damaged bit can cost
SHARE: Final = 4  # a file that is less than so many times what it holds is not written anew

Contents: TypeAlias = "dict[str, dict[str, bytes]]"  # namespace -> key -> value, in JSON
NUMBER_NAME: Final = "store.number"
NUMBER: Final = struct.Struct(">Q")
SUM: Final = struct.Struct(">I")
log = logging.getLogger("waterclock.broker")


class Row(NamedTuple):
    """A key of a namespace gets a value, in JSON; with None it goes. ALL_BUT: see above."""

    namespace: str
    key: str
    value: bytes | None


class StoreDamage(NamedTuple):
    """`size` bytes from byte `at` on that are in no good frame; frames from `first` to before `upto` are missing there.

    `upto` is None at the end of the file: nobody knows how many were there, if any.
    """

    at: int
    size: int
    first: int
    upto: int | None


class StoreContents(NamedTuple):
    """What a file holds, the number of its last frame (0: none) and where that ends, and what of it is damaged."""

    contents: Contents
    number: int
    end: int
    damages: list[StoreDamage]


def read(data: bytes) -> StoreContents:
    """The contents of a file's bytes."""
    contents: Contents = {}
    damages: list[StoreDamage] = []
    number, at = 0, 0
    for start, end, this in _frames(data):
        if start > at or (number and this != number + 1):
            damages.append(StoreDamage(at, start - at, number + 1, this))
        _apply_rows(contents, data, start + HEAD.size, end)
        number, at = this, end
    if data[at:].strip(b"\0"):
        damages.append(StoreDamage(at, len(data) - at, number + 1, None))
    return StoreContents(contents, number, at, damages)


def _frames(data: bytes) -> Iterator[tuple[int, int, int]]:
    """Start, end and number of each good frame; the numbers rise."""
    at, number = 0, 0
    while at >= 0:
        end, this = _frame_at(data, at)
        if end and this > number:
            yield at, end, this
            at, number = end, this
        else:
            at = data.find(MARK, at + 1)


def _frame_at(data: bytes, at: int) -> tuple[int, int]:
    """Where the frame at byte `at` ends, and its number; (0, 0) if no good one is there."""
    if at + HEAD.size > len(data):
        return 0, 0
    mark, number, length, checksum = HEAD.unpack_from(data, at)
    start = at + HEAD.size
    if mark != MARK or start + length > len(data):
        return 0, 0
    summed = crc32c(memoryview(data)[start : start + length], crc32c(SUMMED.pack(number, length)))
    return (start + length, number) if summed == checksum else (0, 0)


def _apply_rows(contents: Contents, data: bytes, at: int, end: int) -> None:
    """Do what the rows between two bytes say: as `apply` for each, and all that a start with many groups waits for."""
    unpack, size = ROW.unpack_from, ROW.size
    while at < end:
        names, keys, values = unpack(data, at)
        key_at = at + size + names
        value_at = key_at + keys
        namespace, key = data[key_at - names : key_at].decode(), data[key_at:value_at].decode("utf-8", "surrogatepass")
        if values == GONE or namespace == ALL_BUT:
            apply(contents, Row(namespace, key, None))
            at = value_at
        else:
            at = value_at + values
            if namespace not in contents:
                contents[namespace] = {}
            contents[namespace][key] = data[value_at:at]


def apply(contents: Contents, row: Row) -> None:
    """Do what a row says."""
    if row.namespace == ALL_BUT:
        kept = json.loads(row.key)
        for namespace in contents.keys() - set(kept):
            del contents[namespace]
    elif row.value is None:
        contents.get(row.namespace, {}).pop(row.key, None)
    else:
        contents.setdefault(row.namespace, {})[row.key] = row.value


def packed(row: Row) -> bytes:
    """A row's bytes."""
    namespace, key = row.namespace.encode(), row.key.encode("utf-8", "surrogatepass")
    if row.value is None:
        return ROW.pack(len(namespace), len(key), GONE) + namespace + key
    return ROW.pack(len(namespace), len(key), len(row.value)) + namespace + key + row.value


def frame(number: int, rows: bytes) -> bytes:
    """A frame's bytes."""
    checksum = crc32c(rows, crc32c(SUMMED.pack(number, len(rows))))
    return HEAD.pack(MARK, number, len(rows), checksum) + rows


class StoreFile:
    """The file at `path`, made if there is none, to be written by one thread at a time. OSError if it cannot be opened.

    `number` is that of its last frame, `size` the bytes of all.
    """

    def __init__(self, path: str, number: int, size: int) -> None:
        self._path, self._knobs = path, knobs()
        self.number = number
        self.size = size
        new = not os.path.exists(path)
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT, PRIVATE)
        self._room = size
        self._renew_at = max(self._knobs.store_renew, size)
        if new:
            flush_folder(os.path.dirname(path))
        else:
            os.fdatasync(self._fd)  # rule 7

    def append(self, rows: Iterable[Row]) -> None:
        """Put one frame behind the others, durably; OSError, and nothing changed, if the disk refuses."""
        data = frame(self.number + 1, b"".join(map(packed, rows)))
        try:
            if self.size + len(data) > self._room:  # rule 5
                room = self.size + max(len(data), self._knobs.store_reserved)
                os.posix_fallocate(self._fd, self.size, room - self.size)
                self._room = room
            write_all(self._fd, data, self.size)
        except OSError:
            self._cut()
            raise
        try:
            os.fdatasync(self._fd)
        except OSError as error:  # what was to be refused may stand on the disk all the same
            flush_failed(error)
        self.number, self.size = self.number + 1, self.size + len(data)

    def _cut(self) -> None:
        """Leave nothing behind the last frame."""
        self._room = self.size
        with suppress(OSError):
            os.ftruncate(self._fd, self.size)

    @property
    def due(self) -> bool:
        """Whether it is time to write it anew: most of it is no longer so."""
        return self.size >= self._renew_at

    def renew(self, contents: Contents) -> None:
        """Write all of it anew (rule 4); OSError if the disk refuses, and then the old one stays."""
        self._renew_at = max(self._knobs.store_renew, SHARE * self.size)  # if the disk refuses, not with every commit
        data = bytearray()
        number = self.number
        for rows in _in_portions(contents):
            number += 1
            data += frame(number, rows)
        try:
            write_whole(self._path, bytes(data), PRIVATE)
            fd = os.open(self._path, os.O_RDWR)
        except OSError as error:
            if self._is_replaced():  # what would be appended to the old one, nobody would read
                flush_failed(error)
            raise
        os.close(self._fd)
        self._fd = fd
        self.number = number
        self.size = len(data)
        self._room = self.size
        self._renew_at = max(self._knobs.store_renew, SHARE * self.size)

    def _is_replaced(self) -> bool:
        """Whether another file has the name."""
        try:
            return not os.path.samestat(os.fstat(self._fd), os.stat(self._path))
        except OSError:
            return True

    def close(self) -> None:
        """Close the file."""
        self._cut()
        os.close(self._fd)


def _in_portions(contents: Contents) -> Iterator[bytes]:
    """The rows of all, in portions of some LARGEST bytes; at least one, which may be empty."""
    portion = bytearray()
    for namespace, keys in contents.items():
        for key, value in keys.items():
            portion += packed(Row(namespace, key, value))
            if len(portion) >= LARGEST:
                yield bytes(portion)
                portion.clear()
    yield bytes(portion)


class LastCommit:
    """The file in `folder`, made if there is none; OSError if it cannot be opened."""

    def __init__(self, folder: str) -> None:
        self._path = os.path.join(folder, NUMBER_NAME)
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT, PRIVATE)
        self.found = 0
        """The number that an earlier process left; 0 if none is known."""
        data = os.pread(self._fd, 1 << 10, 0)
        number, checksum = data[: NUMBER.size], data[NUMBER.size :]
        if checksum == SUM.pack(crc32c(number)) and len(number) == NUMBER.size:
            self.found = int(NUMBER.unpack(number)[0])
        elif data:
            log.warning(
                "%s is damaged: whether the store beside it is whole to its last commit is not known", self._path
            )

    def note(self, number: int) -> None:
        """This is the last one now."""
        packed = NUMBER.pack(number)
        with suppress(OSError):
            write_all(self._fd, packed + SUM.pack(crc32c(packed)), 0)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)
