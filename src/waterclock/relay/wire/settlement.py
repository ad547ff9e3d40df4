"""The records of TOPIC.settled: which origins are not pending any more, and how far commands are answered.

    MAGIC | version (u1) | state (u1) | count (u4) | command position (i8) | mark of the input (8 bytes) |
    CRC-32 of this and of what follows | origins (i8 each)

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
from typing import Final, NamedTuple

import numpy as np

from waterclock.relay.store.origins import State
from waterclock.relay.store.rows import Array

MAGIC: Final = b"wcsettle"
VERSION: Final = 1
MOST: Final = 100_000  # origins of one record: 800 KB before compression
_STATES: Final = (State.FIRED, State.CANCELLED, State.MOVED)
_HEAD: Final = struct.Struct("<8sBBIq8sI")


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


def mark_of(topic_id: str) -> bytes:
    """What stands for the input with that id."""
    return blake2b(topic_id.encode(), digest_size=8).digest()


def settlements(state: State, origins: Array, command_position: int, mark: bytes) -> Iterator[bytes]:
    """The records for these origins; one even where there is none.

    >>> [settlement_of(one).origins.tolist() for one in settlements(State.FIRED, np.array([7, 9]), 12, mark_of("J8iN"))]
    [[7, 9]]
    """
    for start in range(0, max(1, len(origins)), MOST):
        part = np.ascontiguousarray(origins[start : start + MOST], "<i8").tobytes()
        fields = (MAGIC, VERSION, state, len(part) // 8, command_position, mark)
        yield _HEAD.pack(*fields, _checksum(fields, part)) + part


def settlement_of(value: bytes | None) -> Settlement:
    """What a record says; `NoSettlement` if it is none."""
    if value is None or len(value) < _HEAD.size or not value.startswith(MAGIC):
        raise NoSettlement("it does not begin as a settlement does")
    *fields, crc = _HEAD.unpack_from(value)
    _, version, state, count, position, mark = fields
    if version != VERSION:
        raise NoSettlement(f"it is of version {version}", later=version > VERSION)
    part = value[_HEAD.size :]
    if len(part) != 8 * count or _checksum(fields, part) != crc or state not in _STATES:
        raise NoSettlement("its checksum is wrong")
    return Settlement(State(state), position, mark, np.frombuffer(part, "<i8"))


def _checksum(fields: Sequence[object], part: bytes) -> int:
    return zlib.crc32(part, zlib.crc32(_HEAD.pack(*fields, 0)))
