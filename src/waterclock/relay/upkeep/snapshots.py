"""When a snapshot of what is settled is taken, and the transaction that writes it (settlement.py says what is in it):

    1. capture   a chunk at a time, while everything else goes on
    2. write     its records to TOPIC.settled
    3. commit
    4. mark      in memory

Rule 1: one is due when what was written to TOPIC.settled since the last one has a sixteenth of `lap_bytes`, and four times
        what the last one had.
"""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, Message

from waterclock.errors import ConnectionLost
from waterclock.kafka.errors import Verdict, verdict_of
from waterclock.relay.owner.owner import Owner
from waterclock.relay.owner.refusals import refused_own
from waterclock.relay.statistics import Counts
from waterclock.relay.wire.settlement import SettledSnapshot, SnapshotCapture

TIMES: Final = 4
PART_OF_LAP: Final = 16


class SnapshotTurn:
    """Steps 2 to 4, once."""

    def __init__(self, owner: Owner, counts: Counts, snapshot: SettledSnapshot) -> None:
        self._owner, self._counts = owner, counts
        self._snapshot = snapshot
        self._size, self._settled_position = 0, owner.settled_position
        self._own: KafkaError | None = None  # why TOPIC.settled does not take it

    def run(self) -> None:
        """Whatever is raised, the owner is of no more use."""
        for step in (self.write, self.commit, self.mark):
            step()

    def write(self) -> None:
        """Step 2."""
        owner, context = self._owner, self._owner.context
        owner.producer.begin()
        for part in self._snapshot.parts(context.mark):
            self._size += len(part)
            owner.producer.send(context.topics.settled, part, None, owner.number, on_delivery=self._hear)

    def _hear(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._settled_position = max(self._settled_position, message.offset() + 1)
        elif verdict_of(error) in (Verdict.TOPIC, Verdict.RECORD):
            self._own = error

    def commit(self) -> None:
        """Step 3; when it returns, Kafka has it all."""
        try:
            self._owner.producer.commit()
        except ConnectionLost:
            if self._own is None:
                raise
            raise refused_own(self._owner.context.topics.settled, self._own) from None

    def mark(self) -> None:
        """Step 4."""
        owner = self._owner
        owner.log_span.snapshotted(self._snapshot.replay_from, self._size)
        owner.settled_position = self._settled_position
        owner.checkpoints.is_changed = True
        self._counts.snapshots += 1


class SnapshotSchedule:
    """Takes snapshots of one owner's partition when they are due."""

    def __init__(self, owner: Owner, counts: Counts, lap_bytes: int) -> None:
        self._owner, self._counts = owner, counts
        self._least = lap_bytes // PART_OF_LAP
        self._capture: SnapshotCapture | None = None

    @property
    def is_wanted(self) -> bool:
        """Whether one is due, or is being taken."""
        log_span = self._owner.log_span
        return self._capture is not None or log_span.unsaved > max(self._least, TIMES * log_span.saved)

    def step(self) -> int:
        """One chunk, or at last the transaction; whether it was that."""
        owner, moves = self._owner, self._owner.log_span.moves
        if self._capture is None:  # step 1
            self._capture = SnapshotCapture(
                owner.store, owner.settled_position, owner.position, moves.swept, moves.stretches
            )
        if self._capture.step():
            return 0
        snapshot, self._capture = self._capture.made(owner.command_position), None
        SnapshotTurn(owner, self._counts, snapshot).run()
        return 1
