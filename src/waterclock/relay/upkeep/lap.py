"""Laps: what has long been pending is appended to the input once more, so that the input can be cut off before it.

One turn of a lap, one transaction:

    1. choose    the oldest records from the swept offset on: of those that are pending, copies are made
    2. copy      they are appended to the same partition of the input, and Kafka says where
    3. settle    TOPIC.settled names those offsets, and the new swept offset
    4. commit
    5. apply     in memory what is committed now

Rule 1: a lap is a matter of volume. It goes on while the input from the swept offset on has more than twice what is pending
        and `lap_bytes`. Half of what is swept then is not pending, at least: a message is copied once for as many bytes
        as all that is pending has, or more.
Rule 2: should what is pending be larger than it is taken to be, the input is not copied again and again: a lap ends where
        the input ended when it began, and the next one begins when `lap_bytes` more were written.
Rule 3: what is not pending is not read, but where copies stand: there nothing shows what is pending.
Rule 4: no position of commands moves. A copy is a request that came long ago, and was answered: moves.py.
Rule 5: a copy that Kafka does not take stays where it is, and the swept offset before it, until it is not pending any more.
Rule 6: if somebody else cut the input off, and the files are the last copy of what is pending before its beginning,
        there is no lap until that is delivered: the swept offset would say that the input has all.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Final

import numpy as np
from confluent_kafka import KafkaError, Message

from waterclock.errors import ConnectionLost
from waterclock.kafka.errors import Verdict, verdict_of
from waterclock.relay.logs import Reader
from waterclock.relay.owner.log_span import EACH
from waterclock.relay.owner.owner import Owner
from waterclock.relay.owner.pace import ENDED_S
from waterclock.relay.owner.refusals import refused_own
from waterclock.relay.statistics import Counts
from waterclock.relay.wire.moves import Original, copied, stretches_of
from waterclock.relay.wire.settlement import Move

log = logging.getLogger("waterclock.relay")
MOST: Final = 2_000  # copies of one turn
MOST_BYTES: Final = 4 << 20
AHEAD: Final = 5_000  # records read at once
JUMP: Final = 20_000  # records that are read over rather than begun anew behind them
_ARRIVING_S: Final = 8.0
_AWAITED_S: Final = 0.005


class LapTurn:
    """The steps of the file, once, with the records that were read from the swept offset on. `until`: where to sweep to, at
    most."""

    def __init__(self, owner: Owner, counts: Counts, records: Sequence[Message], until: int, most: int) -> None:
        self._owner, self._counts = owner, counts
        self._records = records
        self._until = until
        self._most = most
        self.swept = until
        self._chosen: list[tuple[Message, Original]] = []
        self._offsets: list[int] = []
        self.refused: list[tuple[int, int]] = []  # place and origin of what Kafka does not take
        self._own: KafkaError | None = None  # why it takes nothing
        self._settled_position = owner.settled_position

    def run(self) -> int:
        """Steps 1 to 5; how many were copied. Whatever is raised, the owner is of no more use."""
        for step in (self.choose, self.copy, self.settle, self.commit, self.apply):
            step()
        return len(self._chosen)

    def choose(self) -> None:
        """Step 1."""
        asked = [self._owner.log_span.moves.asked(record) for record in self._records]
        pending = self._owner.store.is_pending(np.array([one.origin for one in asked], "i8"))
        size = 0
        for record, one, is_pending in zip(self._records, asked, pending.tolist(), strict=True):
            if is_pending and (len(self._chosen) == self._most or (self._chosen and size >= MOST_BYTES)):
                self.swept = record.offset()
                return
            if is_pending:
                self._chosen.append((record, one))
                size += EACH + len(record.value() or b"") + len(record.key() or b"")
        if self._records:
            self.swept = self._records[-1].offset() + 1

    def copy(self) -> None:
        """Step 2."""
        owner = self._owner
        owner.producer.begin()
        topic = owner.context.topics.input
        for record, one in self._chosen:
            hear = partial(self._hear, record.offset(), one.origin)
            owner.producer.send(
                topic, record.value(), record.key(), owner.number, headers=copied(one), on_delivery=hear
            )
        owner.producer.arrive(_ARRIVING_S)
        if self._own is not None:
            raise refused_own(topic, self._own)
        if self.refused or len(self._offsets) < len(self._chosen):
            raise ConnectionLost(
                f"Kafka did not take {len(self._chosen) - len(self._offsets)} of the {len(self._chosen)} messages that "
                f"{owner.context.place_of(owner.number)} was to move on."
            )

    def _hear(self, place: int, origin: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._offsets.append(message.offset())
        elif verdict_of(error) is Verdict.RECORD:
            self.refused.append((place, origin))
        elif verdict_of(error) is Verdict.TOPIC:
            self._own = error

    def settle(self) -> None:
        """Step 3."""
        owner, context = self._owner, self._owner.context
        self._moved = Move(owner.command_position, self.swept, context.input_hash, stretches_of(sorted(self._offsets)))
        owner.producer.send(
            context.topics.settled, self._moved.packed(), None, owner.number, on_delivery=self._hear_settled
        )

    def _hear_settled(self, error: KafkaError | None, message: Message) -> None:
        if error is None:
            self._settled_position = max(self._settled_position, message.offset() + 1)

    def commit(self) -> None:
        """Step 4; when it returns, Kafka has it all."""
        self._owner.producer.commit(ENDED_S)

    def apply(self) -> None:
        """Step 5."""
        owner = self._owner
        owner.log_span.moved(self._moved)
        owner.settled_position = self._settled_position
        owner.checkpoints.is_changed = True
        self._counts.moved += len(self._chosen)


class Laps:
    """When a partition's laps go on. `stuck` outlives the owner: place and origin of what Kafka did not take."""

    def __init__(self, owner: Owner, counts: Counts, lap_bytes: int, stuck: set[tuple[int, int]]) -> None:
        self._owner, self._counts = owner, counts
        self._lap_bytes = lap_bytes
        self._stuck = stuck
        self._until = self._ended = (
            owner.log_span.moves.swept
        )  # of the lap; where the input ended when the last one did
        self._ended = min(self._ended, owner.log_span.low)
        self._most = MOST
        self._reading: Reader | None = None
        self._pending = 0  # bytes of what is pending
        self._counted = (-1, -1, 0)  # how far all was when they were counted

    @property
    def is_wanted(self) -> bool:
        """Whether there is something to sweep."""
        if not self._is_too_long(1) or self._from >= self._limit():
            return False
        log_span = self._owner.log_span
        first = self._owner.store.ledger.origins.next_pending(0)
        has_last_copies = log_span.moves.swept < log_span.low and first is not None and first < log_span.low
        return not has_last_copies  # rule 6

    @property
    def is_urgent(self) -> bool:
        """Whether the input is twice as long as it should be: then nobody waits for a quiet moment."""
        return self._is_too_long(2)

    @property
    def wait_s(self) -> float:
        """How long nothing is to be done."""
        return _AWAITED_S if self._reading is not None and self._reading.is_awaited else 0.0

    @property
    def _from(self) -> int:
        return max(self._owner.log_span.moves.swept, self._owner.log_span.low)

    def _is_too_long(self, times: int) -> bool:
        log_bytes = self._owner.log_span.volume.since(self._from)
        if log_bytes <= times * self._lap_bytes:
            return False
        return log_bytes > times * (2 * self._pending_bytes() + self._lap_bytes)

    def _pending_bytes(self) -> int:
        """Counted seldom: it takes a millisecond if there are many spans."""
        owner = self._owner
        now_s, written = owner.context.clock.monotonic_ns() // 1_000_000_000, owner.log_span.volume.since(0)
        counted = self._from, now_s, written // max(1, self._lap_bytes // 64)
        if counted != self._counted:
            self._pending, self._counted = owner.store.pending_bytes + EACH * owner.store.pending, counted
        return self._pending

    def _limit(self) -> int:
        """Where this lap ends, or waits (rules 2 and 5)."""
        if self._from >= self._until and self._owner.log_span.volume.since(self._ended) >= self._lap_bytes:
            self._until = self._owner.position
        origins = np.array([origin for _, origin in self._stuck], "i8")
        pending = self._owner.store.is_pending(origins).tolist()
        stuck = [place for (place, _), still in zip(self._stuck, pending, strict=True) if still]
        return min([self._until, *(place for place in stuck if place >= self._from)])

    def step(self) -> int:
        """A turn of the lap, if its records have come by now; whether there was one."""
        limit, at = self._limit(), self._next()
        if at is None or at >= limit:
            return self._turn([], limit)
        records = self._read(at, limit)
        return self._turn(records, limit) if records else 0

    def _next(self) -> int | None:
        """The first place from the swept offset on at which something may be pending (rule 3)."""
        found = (
            self._owner.store.ledger.origins.next_pending(self._from),
            self._owner.log_span.moves.next_copy(self._from),
        )
        return min((place for place in found if place is not None), default=None)

    def _read(self, at: int, limit: int) -> list[Message]:
        """Records from there on, as far as they have come."""
        if self._reading is not None and not 0 <= at - self._reading.position <= JUMP:
            self.close()
        if self._reading is None:
            context = self._owner.context
            self._reading = context.logs.reading(context.topics.input, self._owner.number, at)
        return [record for record in self._reading.ahead(at, AHEAD) if record.offset() < limit]

    def _turn(self, records: Sequence[Message], limit: int) -> int:
        turn = LapTurn(self._owner, self._counts, records, limit, self._most)
        try:
            turn.run()
        except ConnectionLost:
            if not turn.refused:
                raise
            self._owner.producer.abort()
            self._note(turn.refused)
            return 1
        if self._from >= self._until:
            self._ended = max(self._owner.position, self._owner.log_span.moves.end)
            self._counts.laps += 1
        return 1

    def _note(self, refused: Sequence[tuple[int, int]]) -> None:
        """Rule 5. The largest of a batch may be meant: after this, each of them is one that stays."""
        for place, origin in refused:
            log.warning(
                "%s at offset %d stays where it is, and the log from there on: Kafka does not take a copy of it. Raise "
                "max.message.bytes of the topic by a hundred bytes, and start the relay anew.",
                self._owner.context.place(self._owner.number, origin),
                place,
            )
        self._stuck |= set(refused)

    def close(self) -> None:
        """Read no more."""
        if self._reading is not None:
            self._reading.close()
            self._reading = None
