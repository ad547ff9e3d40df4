"""Snapshots in TOPIC.settled: what is settled, in a few records, so that what was written before them can be cut off.

    MAGIC | version (u1) | part (u4) | parts (u4) | replay from (i8) | command position (i8) | mark of the input (8 bytes) |
    CRC-32 of this and of what follows | a part of the body
    the body: end (i8), swept (i8), number of stretches of copies (u4) and of chunks (u4) | from, to (i8 each) of those |
    of each chunk of 65,536 origins: its number (i8), its length (u4), the states of its origins, compressed

Rule 1: below `end`, what is in no chunk is settled. The chunks are those in which something is pending, and those from
        `swept` on, for who cancels what was delivered already. In a chunk, what is not settled is pending or no message.
Rule 2: it need not be of one moment: who uses it applies what stands in TOPIC.settled from `replay from` on, where its
        making began. To settle again is the same.
Rule 3: its records are written in one transaction. A snapshot that lacks one, or has a damaged one, is none.
Rule 4: TOPIC.settled is cut off where the reading for the last snapshot but one begins: if the last one is damaged,
        that one holds. If no snapshot covers what was cut off, no relay starts: it would deliver that again.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

import numpy as np

from waterclock.relay.store import PartitionStore
from waterclock.relay.store.origins import CHUNK
from waterclock.relay.store.rows import Array
from waterclock.relay.wire.settlement import RecordHead

MAGIC: Final = b"wcsnaps\n"
PART: Final = 500_000  # bytes
_HEAD: Final = RecordHead(MAGIC, 1, "IIqq8s")
_BODY: Final = struct.Struct("<qqII")
_CHUNK: Final = struct.Struct("<qI")
Stretches = list[tuple[int, int]]


class SettledSnapshot(NamedTuple):
    """What is settled; `chunks` are compressed states, by number."""

    replay_from: int
    command_position: int
    end: int
    swept: int
    stretches: Stretches
    chunks: Mapping[int, bytes]

    def states(self) -> Iterator[tuple[int, Array]]:
        """The states of each chunk, a byte an origin."""
        for number, data in self.chunks.items():
            yield number, np.frombuffer(zlib.decompress(data), "u1")

    def parts(self, mark: bytes) -> list[bytes]:
        """The records."""
        pieces = [
            _BODY.pack(self.end, self.swept, len(self.stretches), len(self.chunks)),
            np.array(self.stretches, "<i8").tobytes(),
        ]
        for number, data in self.chunks.items():
            pieces += (_CHUNK.pack(number, len(data)), data)
        body = b"".join(pieces)
        count = max(1, -(-len(body) // PART))
        told = self.replay_from, self.command_position, mark
        return [_HEAD.pack((n, count, *told), body[n * PART : (n + 1) * PART]) for n in range(count)]


class SnapshotPart(NamedTuple):
    """One record of a snapshot."""

    part: int
    parts: int
    replay_from: int
    command_position: int
    mark: bytes
    data: bytes


def part_of(value: bytes) -> SnapshotPart:
    """What such a record says; `NoSettlement` if it is damaged."""
    fields, data = _HEAD.unpack(value)
    return SnapshotPart._make((*fields, data))


class Assembly:
    """Puts records together, as they come."""

    def __init__(self) -> None:
        self._parts: list[SnapshotPart] = []

    def take(self, part: SnapshotPart) -> SettledSnapshot | None:
        """The snapshot, with its last part."""
        follows = self._parts and part[1:5] == self._parts[-1][1:5] and part.part == len(self._parts)
        self._parts = [*self._parts, part] if follows else [part] if part.part == 0 else []
        if not self._parts or len(self._parts) < part.parts:
            return None
        body, self._parts = b"".join(one.data for one in self._parts), []
        end, swept, stretches, count = _BODY.unpack_from(body)
        at = _BODY.size
        pairs = np.frombuffer(body, "<i8", 2 * stretches, at).reshape(-1, 2).tolist()
        at += 16 * stretches
        chunks: dict[int, bytes] = {}
        for _ in range(count):
            number, size = _CHUNK.unpack_from(body, at)
            at += _CHUNK.size
            chunks[number] = body[at : at + size]
            at += size
        return SettledSnapshot(part.replay_from, part.command_position, end, swept, [(a, b) for a, b in pairs], chunks)


class SnapshotCapture:
    """Makes one of a store, by steps: `end`, `swept` and `replay_from` are those of its beginning."""

    def __init__(self, store: PartitionStore, replay_from: int, end: int, swept: int, stretches: Stretches) -> None:
        self._origins = store.ledger.origins
        self._made = SettledSnapshot(replay_from, 0, end, swept, stretches, {})
        self._chunks: dict[int, bytes] = {}
        self._numbers = iter(self._origins.numbers(end))

    def step(self) -> bool:
        """One chunk; whether there may be more."""
        number = next(self._numbers, None)
        if number is None:
            return False
        if (number + 1) * CHUNK > self._made.swept or self._origins.has_pending(number):
            self._chunks[number] = self._origins.settled_of(number)
        return True

    def made(self, command_position: int) -> SettledSnapshot:
        """It, once there is no more."""
        return self._made._replace(command_position=command_position, chunks=self._chunks)


def restore(store: PartitionStore, snapshot: SettledSnapshot) -> None:
    """Have a store know what a snapshot says."""
    store.ledger.begin_with(dict(snapshot.states()), snapshot.end)
