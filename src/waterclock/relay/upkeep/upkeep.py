"""What keeps both logs short: laps (lap.py), snapshots and trims, a small step at a time, while nothing is due.

Rule 1: paced below deliveries. A step is a transaction of some ten milliseconds, at a moment when nothing is due within
        `QUIET_MS` in any partition of this relay, and a rest of `REST_NS` follows: the input gets no burst.
Rule 2: if there is no such moment, and the input is twice as long as it should be, a step is made all the same, each
        `URGENT_NS`.

A snapshot of what is settled (settlement.py says what is in it) is one transaction:

    1. capture   a chunk at a time, while everything else goes on
    2. write     its records to TOPIC.settled
    3. commit
    4. apply     in memory what is committed now

Rule 3: a snapshot is due when what was written to TOPIC.settled since the last one has a sixteenth of `lap_bytes`, and four
        times what the last one had.

A trim cuts off both logs, by DeleteRecords, what no owner will read again.

Rule 4: the input below the swept offset, as far as commands are answered and this owner's files have it durably.
        TOPIC.settled below where it is read beside the last snapshot but one, as far as these files have that.
Rule 5: what these offsets hang on was committed before. A zombie that cuts off by its own offsets takes nothing that is
        needed: what was swept once stays so.
Rule 6: nobody waits for a trim. If Kafka refuses it, that is logged, and it is tried again after `AGAIN_NS`: the logs grow.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import inf
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from waterclock.errors import ConnectionLost
from waterclock.kafka.errors import Verdict, verdict_of, words_of
from waterclock.relay.logs import offset_of
from waterclock.relay.owner.context import Context
from waterclock.relay.owner.owner import Owner
from waterclock.relay.owner.pace import ENDED_S
from waterclock.relay.owner.refusals import refused_own
from waterclock.relay.statistics import Counts
from waterclock.relay.upkeep.lap import Laps
from waterclock.relay.wire.settlement import SettledSnapshot, SnapshotCapture

TIMES: Final = 4
PART_OF_LAP: Final = 16
log = logging.getLogger("waterclock.relay")
AGAIN_NS: Final = 600_000_000_000
LAP_BYTES: Final = 1 << 30
QUIET_MS: Final = 50
REST_NS: Final = 100_000_000  # so 20,000 messages or 40 MB a second are moved at most
URGENT_NS: Final = 500_000_000


class SnapshotTurn:
    """Steps 2 to 4, once."""

    def __init__(self, owner: Owner, counts: Counts, snapshot: SettledSnapshot) -> None:
        self._owner, self._counts = owner, counts
        self._snapshot = snapshot
        self._size, self._settled_position = 0, owner.settled_position
        self._own: KafkaError | None = None  # why TOPIC.settled does not take it

    def run(self) -> None:
        """Whatever is raised, the owner is of no more use."""
        for step in (self.write, self.commit, self.apply):
            step()

    def write(self) -> None:
        """Step 2."""
        owner, context = self._owner, self._owner.context
        owner.producer.begin()
        for part in self._snapshot.parts(context.input_hash):
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
            self._owner.producer.commit(ENDED_S)
        except ConnectionLost:
            if self._own is None:
                raise
            raise refused_own(self._owner.context.topics.settled, self._own) from None

    def apply(self) -> None:
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


class Trims:
    """Cuts off both logs of one owner's partition."""

    def __init__(self, owner: Owner, lap_bytes: int) -> None:
        self._owner = owner
        self._least = lap_bytes // PART_OF_LAP
        self._is_asked = False
        self._again_ns = 0

    def step(self) -> None:
        """Ask for the next one, if there is something to cut off, and the last one was heard of."""
        owner, watcher = self._owner, self._owner.context.watcher
        if self._is_asked or owner.context.clock.monotonic_ns() < self._again_ns:
            return
        for topic, low, offset in self._wanted():
            if offset > low:
                self._is_asked = True
                watcher.once(watcher.client.delete_records([TopicPartition(topic, owner.number, offset)]), self._hear)
                return

    def _wanted(self) -> list[tuple[str, int, int]]:
        owner, topics = self._owner, self._owner.context.topics
        log_span, store = owner.log_span, owner.store
        first = log_span.snapshots[0] if len(log_span.snapshots) > 1 else 0
        cuts = [(topics.settled, log_span.settled_low, min(first, store.settled_position))]
        if store.fingerprint is not None:  # that record is compared at a take-over
            offset = min(log_span.moves.swept, owner.command_position, offset_of(store.fingerprint))
            if log_span.volume.since(log_span.low) - log_span.volume.since(offset) >= self._least:
                cuts.append((topics.input, log_span.low, offset))
        return cuts

    def _hear(self, answers: Mapping[TopicPartition, Any]) -> None:
        self._is_asked = False
        ((place, future),) = answers.items()
        owner, log_span = self._owner, self._owner.log_span
        try:
            low = future.result().low_watermark
        except KafkaException as error:
            self._again_ns = owner.context.clock.monotonic_ns() + AGAIN_NS
            log.warning(
                "%s-%d is not cut off, and grows: %s. The relay's user needs the right Delete of that topic.",
                place.topic,
                owner.number,
                words_of(error),
            )
            return
        if place.topic == owner.context.topics.input:
            log_span.begins(low, log_span.settled_low)
        else:
            log_span.begins(log_span.low, low)


class _OwnerUpkeep:
    """The laps, snapshots and trims of one owner."""

    def __init__(self, owner: Owner, counts: Counts, lap_bytes: int, stuck: set[tuple[int, int]]):
        self.owner = owner
        self.laps = Laps(owner, counts, lap_bytes, stuck)
        self.snapshots = SnapshotSchedule(owner, counts, lap_bytes)
        self.trims = Trims(owner, lap_bytes)
        self.done_ns = 0


class LogUpkeep:
    """Does a step now and then for the owners of one relay; `owners` are by their partitions."""

    def __init__(self, context: Context, owners: Mapping[int, Owner], counts: Counts, lap_bytes: int) -> None:
        self._clock = context.clock
        self._owners = owners
        self._counts = counts
        self._lap_bytes = lap_bytes
        self._cares: dict[int, _OwnerUpkeep] = {}
        self._stuck: dict[int, set[tuple[int, int]]] = {}

    def step(self, owner: Owner) -> int:
        """Do a little, if this is the moment; whether a transaction was made. Whatever is raised, the owner is of no more
        use."""
        for number in self._cares.keys() - self._owners.keys():
            self._cares.pop(number).laps.close()
        if not owner.has_caught_up or owner.held:
            return 0
        care = self._of(owner)
        care.trims.step()
        doing = self._wanted(care)
        if doing is not care.laps:
            care.laps.close()  # what is read ahead takes memory, in each partition
        since_ns = self._clock.monotonic_ns() - care.done_ns
        if all(each.is_quiet(QUIET_MS) for each in self._owners.values()):
            is_time = since_ns >= REST_NS
        else:
            is_time = since_ns >= URGENT_NS and care.laps.is_urgent  # rule 2
        if doing is None or not is_time:
            return 0
        if done := doing.step():
            care.done_ns = self._clock.monotonic_ns()
        return done

    def wait_s(self, owner: Owner) -> float:
        """How long there is nothing to do for an owner; it may be for ever."""
        care = self._cares.get(owner.number)
        if care is None or care.owner is not owner or (doing := self._wanted(care)) is None:
            return inf
        rest_s = (care.done_ns + REST_NS - self._clock.monotonic_ns()) / 1e9
        return max(rest_s, care.laps.wait_s if doing is care.laps else 0.0)

    def close(self) -> None:
        """Let go of what reads."""
        for care in self._cares.values():
            care.laps.close()
        self._cares.clear()

    def _of(self, owner: Owner) -> _OwnerUpkeep:
        care = self._cares.get(owner.number)
        if care is not None and care.owner is owner:
            return care
        if care is not None:
            care.laps.close()
        stuck = self._stuck.setdefault(owner.number, set())
        made = _OwnerUpkeep(owner, self._counts, self._lap_bytes, stuck)
        self._cares[owner.number] = made
        return made

    def _wanted(self, care: _OwnerUpkeep) -> Laps | SnapshotSchedule | None:
        return care.laps if care.laps.is_wanted else care.snapshots if care.snapshots.is_wanted else None
