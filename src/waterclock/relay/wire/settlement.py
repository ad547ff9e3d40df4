"""The records of TOPIC.settled: which origins are not pending any more, and how far commands are answered.

    MAGIC | version (u1) | state (u1) | count (u4) | command position (i8) | mark of the input (8 bytes) |
    CRC-32 of this and of what follows | origins (i8 each)

moves.py and snapshot.py have records that begin likewise: `RecordHead`.

Rule 1: what is pending is the input minus these. They are written in the transaction that delivers, so they are true.
Rule 2: a record stays below the size that a topic takes: `MOST` origins each.
Rule 3: each carries the command position of its transaction too: should Kafka forget the group's offsets (it does after a
        week without anybody), no cancel is answered twice.
Rule 4: each says of which input it speaks: the topic of that name with this id. One that was made again has other origins.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np

from waterclock.relay.store.origins import State
from waterclock.relay.store.rows import Array

MAGIC: Final = b"wcsettle"
MOST: Final = 100_000  # origins of one record: 800 KB before compression
_STATES: Final = (State.FIRED, State.CANCELLED, State.MOVED)


class Settlement(NamedTuple):
    """What one record says."""

    state: State
    command_position: int
    mark: bytes
    origins: Array


class NoSettlement(ValueError):
    """A record that this relay did not write so: `later` if another version of it may have."""

    def __init__(self, why: str, later: bool = False) -> None:
        super().__init__(why)
        self.later = later


class RecordHead:
    """How records of one kind begin: `magic`, version, fields of their own, which `layout` has as the struct module writes
    them, and a CRC-32 of all that and of what follows.

    >>> HEAD.unpack(HEAD.pack((State.FIRED, 0, 12, bytes(8)), b"and so on"))
    ([1, 0, 12, b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00'], b'and so on')
    """

    def __init__(self, magic: bytes, version: int, layout: str) -> None:
        self.magic = magic
        self._version = version
        self._struct = struct.Struct(f"<8sB{layout}I")

    def pack(self, fields: Sequence[object], body: bytes) -> bytes:
        """The record."""
        begin = (self.magic, self._version, *fields)
        return self._struct.pack(*begin, zlib.crc32(body, zlib.crc32(self._struct.pack(*begin, 0)))) + body

    def unpack(self, value: bytes) -> tuple[list[Any], bytes]:
        """Its own fields, and what follows the head; `NoSettlement` if it is damaged, or of another version."""
        if len(value) < self._struct.size or not value.startswith(self.magic):
            raise NoSettlement("it does not begin as a settlement does")
        *begin, crc = self._struct.unpack_from(value)
        if begin[1] != self._version:
            raise NoSettlement(f"it is of version {begin[1]}", later=begin[1] > self._version)
        body = value[self._struct.size :]
        if zlib.crc32(body, zlib.crc32(self._struct.pack(*begin, 0))) != crc:
            raise NoSettlement("its checksum is wrong")
        return begin[2:], body


HEAD: Final = RecordHead(MAGIC, 1, "BIq8s")


def mark_of(topic_id: str) -> bytes:
    """What stands for the input with that id."""
    return blake2b(topic_id.encode(), digest_size=8).digest()


def settlements(state: State, origins: Array, command_position: int, mark: bytes) -> Iterator[bytes]:
    """The records for these origins; one even if there is none.

    >>> [settlement_of(one).origins.tolist() for one in settlements(State.FIRED, np.array([7, 9]), 12, mark_of("J8iN"))]
    [[7, 9]]
    """
    for start in range(0, max(1, len(origins)), MOST):
        part = np.ascontiguousarray(origins[start : start + MOST], "<i8").tobytes()
        yield HEAD.pack((state, len(part) // 8, command_position, mark), part)


def settlement_of(value: bytes | None) -> Settlement:
    """What a record says; `NoSettlement` if it is none."""
    (state, count, position, mark), part = HEAD.unpack(value or b"")
    if len(part) != 8 * count or state not in _STATES:
        raise NoSettlement("its checksum is wrong")
    return Settlement(State(state), position, mark, np.frombuffer(part, "<i8"))
