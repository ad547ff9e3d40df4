"""TOPIC.settled: which origins are not pending any more, how far commands are answered, and what was moved on; and what all
its records together say (`SettledOrigins`), for who has no files.

    a record: MAGIC | version (u1) | fields of its kind | CRC-32 of this and of what follows | what follows (`RecordHead`)

    settlement   state (u1) | count (u4) | command position (i8) | mark of the input (8 bytes) || origins (i8 each)
    move         command position (i8) | swept (i8) | count (u4) | mark of the input (8 bytes) || from (i8) and to (i8) of
                 each stretch of copies: it stands in the transaction that wrote them, and names all of them (moves.py)
    snapshot     part (u4) | parts (u4) | replay from (i8) | command position (i8) | mark of the input (8 bytes) || a part
                 of the body: end (i8), swept (i8), number of stretches of copies (u4) and of chunks (u4) | from, to (i8
                 each) of those | of each chunk of 65,536 origins: its number (i8), its length (u4), the states, compressed

Rule 1: what is pending is the input minus these. They are written in the transaction that delivers, so they are true.
Rule 2: a record stays below the size that a topic takes: `MOST` origins each.
Rule 3: each carries the command position of its transaction too: should Kafka forget the group's offsets (it does after a
        week without anybody), no cancel is answered twice.
Rule 4: each says of which input it speaks: the topic of that name with this id. One that was made again has other origins.

A snapshot says in a few records what is settled, so that what was written before them can be cut off.

Rule 5: below `end`, what is in no chunk is settled. The chunks are those in which something is pending, and those from
        `swept` on, for who cancels what was delivered already. In a chunk, what is not settled is pending or no message.
Rule 6: it need not be of one moment: who uses it applies what stands in TOPIC.settled from `replay from` on, where its
        making began. To settle again is the same.
Rule 7: its records are written in one transaction. A snapshot that lacks one, or has a damaged one, is none.
Rule 8: TOPIC.settled is cut off where the reading for the last snapshot but one begins: if the last one is damaged,
        that one holds. If no snapshot covers what was cut off, no relay starts: it would deliver that again.
Rule 9: what is read after records that said so were cut off is known only through a snapshot that covers them. Who reads
        looks at `SettledOrigins.is_known` at the end.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import numpy as np

from waterclock.relay.store import PartitionStore
from waterclock.relay.store.origins import CHUNK, State, by_chunk
from waterclock.relay.store.rows import Array
from waterclock.relay.wire.moves import Moves

MAGIC: Final = b"wcsettle"
MOVED: Final = b"wcmoved\n"
SNAPSHOT: Final = b"wcsnaps\n"
MOST: Final = 100_000  # origins of one record: 800 KB before compression
_STATES: Final = (State.DELIVERED, State.CANCELLED, State.MOVED)


class Settlement(NamedTuple):
    """A record that says: these origins are settled so."""

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

    >>> HEAD.unpack(HEAD.pack((State.DELIVERED, 0, 12, bytes(8)), b"and so on"))
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
_MOVE_HEAD: Final = RecordHead(MOVED, 1, "qqI8s")
_SNAPSHOT_HEAD: Final = RecordHead(SNAPSHOT, 1, "IIqq8s")


def mark_of(topic_id: str) -> bytes:
    """What stands for the input with that id."""
    return blake2b(topic_id.encode(), digest_size=8).digest()


def settlements(state: State, origins: Array, command_position: int, mark: bytes) -> Iterator[bytes]:
    """The records for these origins; one even if there is none.

    >>> [settlement_of(one).origins.tolist() for one in settlements(State.DELIVERED, np.array([7, 9]), 12, mark_of("J8iN"))]
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


class Move(NamedTuple):
    """What one transaction moved: the offsets of its copies, as (from, to) of each stretch."""

    command_position: int
    swept: int
    mark: bytes
    stretches: list[tuple[int, int]]

    def packed(self) -> bytes:
        """The record of TOPIC.settled.

        >>> move_of(Move(12, 9, bytes(8), [(20, 23)]).packed()).stretches
        [(20, 23)]
        """
        fields = (self.command_position, self.swept, len(self.stretches), self.mark)
        return _MOVE_HEAD.pack(fields, np.array(self.stretches, "<i8").tobytes())


def move_of(value: bytes) -> Move:
    """What such a record says; `NoSettlement` if it is damaged."""
    (position, swept, count, mark), part = _MOVE_HEAD.unpack(value)
    if len(part) != 16 * count:
        raise NoSettlement("its checksum is wrong")
    pairs = np.frombuffer(part, "<i8").reshape(-1, 2).tolist()
    return Move(position, swept, mark, [(start, end) for start, end in pairs])


PART: Final = 500_000  # bytes
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
        fields = self.replay_from, self.command_position, mark
        return [_SNAPSHOT_HEAD.pack((n, count, *fields), body[n * PART : (n + 1) * PART]) for n in range(count)]


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
    fields, data = _SNAPSHOT_HEAD.unpack(value)
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


def record_of(value: bytes) -> Settlement | Move | SnapshotPart:
    """What a record of TOPIC.settled says; `NoSettlement` if it says nothing."""
    if value.startswith(MOVED):
        return move_of(value)
    return part_of(value) if value.startswith(SNAPSHOT) else settlement_of(value)


class SettledOrigins:
    """What is settled of an input with that mark, whose TOPIC.settled begins at `low`: records in, an answer for each
    origin out. `answered`: the command position, -1 if none is known; `moves`: which records of the input are copies. It
    has a byte for each origin, its `State`, in chunks of 65,536, and no chunk for one that is settled as a whole.

    >>> settled = SettledOrigins(bytes(8), 0)
    >>> settled.take(Settlement(State.DELIVERED, 12, bytes(8), np.array([7, 70_000])))
    >>> [settled.state(origin).name for origin in (7, 8, 70_000)], settled.answered
    (['DELIVERED', 'UNKNOWN', 'DELIVERED'], 12)
    """

    def __init__(self, mark: bytes, low: int) -> None:
        self._mark = mark
        self._low = low
        self.answered = -1
        self.moves = Moves()
        self._chunks: dict[int, Array] = {}  # u1, by number
        self._all_below = 0  # what is in no chunk is settled below this, and not behind it
        self._snapshots = Assembly()
        self._known_from = 0

    def take(self, record: Settlement | Move | SnapshotPart) -> None:
        """Take in one record; they come in their order."""
        if isinstance(record, SnapshotPart):
            self._take_part(record)
        elif record.mark == self._mark:
            self.answered = max(self.answered, record.command_position)
            if isinstance(record, Move):
                self.moves.note(record.swept, record.stretches)
            else:
                for number, which in by_chunk(record.origins):
                    self._chunk(number)[record.origins[which] % CHUNK] = record.state

    def state(self, origin: int) -> State:
        """What became of it; UNKNOWN if it is not settled."""
        chunk = self._chunks.get(origin // CHUNK)
        return self._elsewhere(origin) if chunk is None else State(int(chunk[origin % CHUNK]))

    def _elsewhere(self, origin: int) -> State:
        return State.SETTLED if origin < self._all_below else State.UNKNOWN

    @property
    def is_known(self) -> bool:
        """Whether all is known that stood before the first record that was read (rule 9)."""
        return self._known_from >= self._low

    def _take_part(self, part: SnapshotPart) -> None:
        """Rules 5 and 6. A snapshot of an earlier input of that name says that nothing of this one was cut off."""
        snapshot = self._snapshots.take(part)
        if snapshot is None:
            return
        if part.mark == self._mark:
            self.answered = max(self.answered, snapshot.command_position)
            self.moves.note(snapshot.swept, snapshot.stretches)
            if not self.is_known:
                states, below = dict(snapshot.states()), snapshot.end - snapshot.end % CHUNK
                for number in {*states, *(known for known in self._chunks if known * CHUNK < below)}:
                    chunk, given = self._chunk(number), states.get(number, np.uint8(State.SETTLED))
                    chunk[:] = np.where(chunk == State.UNKNOWN, given, chunk)
                self._all_below = max(self._all_below, below)
        if snapshot.replay_from >= self._low:
            self._known_from = max(self._known_from, snapshot.replay_from)

    def _chunk(self, number: int) -> Array:
        if number not in self._chunks:
            self._chunks[number] = np.full(CHUNK, self._elsewhere((number + 1) * CHUNK - 1), "u1")
        return self._chunks[number]
