"""What is settled of one partition, for who has TOPIC.settled and no files: its records in, an answer for each origin out.

Rule 1: snapshots are read as a new owner reads them (take_over.py): below its `end`, what a snapshot has in no chunk is
        settled, and what stands behind where its making began is applied to it.
Rule 2: what is read after records that said so were cut off is known only through a snapshot that covers them. Who reads
        asks `is_known` at the end.
Rule 3: a byte an origin, its `State`, in chunks of 65,536; no chunk for one that is settled as a whole.
"""

from __future__ import annotations

import numpy as np

from waterclock.relay.store.origins import CHUNK, State, by_chunk
from waterclock.relay.store.rows import Array
from waterclock.relay.wire.moves import MAGIC as MOVED
from waterclock.relay.wire.moves import Move, Moves, move_of
from waterclock.relay.wire.settlement import Settlement, settlement_of
from waterclock.relay.wire.snapshot import MAGIC as SNAPSHOT
from waterclock.relay.wire.snapshot import Assembly, SnapshotPart, part_of


def record_of(value: bytes) -> Settlement | Move | SnapshotPart:
    """What a record of TOPIC.settled says; `NoSettlement` if it says nothing."""
    if value.startswith(MOVED):
        return move_of(value)
    return part_of(value) if value.startswith(SNAPSHOT) else settlement_of(value)


class SettledOrigins:
    """For an input with that mark, whose TOPIC.settled begins at `low`. `answered`: the command position, -1 where none is
    known; `moves`: which records of the input are copies.

    >>> settled = SettledOrigins(bytes(8), 0)
    >>> settled.take(Settlement(State.FIRED, 12, bytes(8), np.array([7, 70_000])))
    >>> [settled.state(origin).name for origin in (7, 8, 70_000)], settled.answered
    (['FIRED', 'UNKNOWN', 'FIRED'], 12)
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
        """Whether all is known that stood before the first record that was read (rule 2)."""
        return self._known_from >= self._low

    def _take_part(self, part: SnapshotPart) -> None:
        """Rule 1. A snapshot of an earlier input of that name says that nothing of this one was cut off."""
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
