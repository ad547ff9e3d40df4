"""A new owner's start, by numbered steps:

    1. lock      the folder: one process at a time has it
    2. ask       the group's offset
    3. fence     whoever had the partition before can write no more, and what it left open is thrown away
    4. find ends of both logs
    5. verify    the files are of these logs (replay.py); else they are set aside, and everything is filed anew
    6. replay    what was settled since the files were written, or a snapshot of what was settled and what came after it
    7. begin     to read the input at the smaller of the two positions
    8. fire      once the input was read up to the end of step 4 (turn.py)

Rule 1: 4 comes after 3: a zombie could commit in between, and what it settled would be fired again.
Rule 2: nothing is fired before 8: what is due earlier may still stand in the input.
Rule 3: two positions. What is below the data position is in the files; what is below the command position is answered. A
        record is read for what it is not below of: with one position a cancel would be lost when its transaction dies
        after the files have gone on.
Rule 4: the command position is that of the last settlement: the files note it, TOPIC.settled goes on from there. Any
        program can commit an offset for the group, so that one is a witness only: if a relay committed it, and no
        settlement reaches it, settlements are gone.
Rule 5: so 2 comes before 4: what was committed with that offset stands before the end that is found then. The other way
        round another relay could fence this one in between, and what it commits would pass for settlements that are gone.
"""

from __future__ import annotations

import logging
from typing import Final

from waterclock.clock import WallClock
from waterclock.errors import ConnectionLost, UsageError
from waterclock.kafka.patience import RECONNECTING_S, Backoff
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.relay.owner.context import Context, GroupOffset
from waterclock.relay.owner.owner import Owner, Start
from waterclock.relay.owner.replay import Replay
from waterclock.relay.store import PartitionStore, StoreDamaged

log = logging.getLogger("waterclock.relay")
TOLD_EVERY: Final = 100  # records of TOPIC.settled: each may settle 100,000 messages


class PendingTakeOver:
    """A partition that the group gave and that has no owner yet. The first attempt is made at once; behind each that
    failed the pause of `backoff` grows. What the `last` owner found out goes to the next one: whom Kafka refused, how fast
    it takes records."""

    def __init__(self, clock: WallClock, last: Owner | None = None) -> None:
        self.backoff = Backoff(RECONNECTING_S, clock)
        self._last = None if last is None else (dict(last.refused), last.pace)

    def hand_over(self, owner: Owner) -> None:
        """`owner` takes it over."""
        if self._last is not None:
            refused, owner.pace = self._last
            owner.refused.update(refused)


class TakeOver:
    """Takes one partition over."""

    def __init__(self, context: Context, number: int) -> None:
        self._context, self._number = context, number
        self._store: PartitionStore | None = None
        self._producer: TransactionalProducer | None = None
        self._input = self._settled = (0, 0)  # first offset, end
        self._committed: GroupOffset | None = None

    def run(self) -> Owner:
        """Steps 1 to 7. On an error nothing is held."""
        try:
            for step in (self.lock, self.ask, self.fence, self.find_ends, self.verify, self.replay):
                step()
            return self.begin()
        except StoreDamaged as error:
            self.store.set_aside(str(error), self._input[0])  # the next attempt files everything anew
            self.give_up()
            raise
        except BaseException:
            self.give_up()
            raise

    @property
    def store(self) -> PartitionStore:
        assert self._store is not None, "step 1 comes first"
        return self._store

    def refuse_fewer(self) -> None:
        """ConnectionLost if somebody gave more partitions to the input alone: their ends would be waited for, and others
        with them."""
        context, settled = self._context, self._context.topics.settled
        count = context.logs.partitions(settled)
        if count <= self._number:
            raise ConnectionLost(
                f"{settled} has {count} partitions, so {self._name} cannot be delivered. Give it as many as "
                f"{context.topics.input} has, with kafka-topics.sh --alter --topic {settled} --partitions N"
            )

    def lock(self) -> None:
        """Step 1."""
        self._store = self._context.open_store(self._number)

    def ask(self) -> None:
        """Step 2."""
        self._committed = self._context.committed(self._number)

    def fence(self) -> None:
        """Step 3."""
        self._producer = self._context.make_producer(self._number)
        self._producer.fence(self._context.topics.input)

    def find_ends(self) -> None:
        """Step 4."""
        context, number = self._context, self._number
        self._settled = context.logs.bounds(context.topics.settled, number)
        self._input = context.logs.bounds(context.topics.input, number)

    def verify(self) -> None:
        """Step 5."""
        self._replay = Replay(self._context, self._number, self.store, self._input, self._settled)

    @property
    def _name(self) -> str:
        return self._context.place_of(self._number)

    def replay(self) -> None:
        """Step 6."""
        context, topic = self._context, self._context.topics.settled
        start, (_, end) = self._replay.start, self._settled
        for count, message in enumerate(context.logs.read(topic, self._number, start, end)):
            self._replay.apply(message)
            if not count % TOLD_EVERY:  # offsets may all be odd: markers of transactions have the others
                context.reading(f"{topic}-{self._number}", message.offset() - start, end - start)
        self._replay.look_behind()
        committed, answered = self._committed, self._replay.answered
        if committed is None:
            return
        if committed.by_relay and committed.offset > answered:
            raise UsageError(
                f"{topic} does not hold what was settled, up to offset {committed.offset} of {self._name}: it was made "
                "again, or cut. All of the input would be delivered once more; to have that, start with another --group."
            )
        if not committed.by_relay and committed.offset != answered:
            log.warning(
                "%s: the group %s stands at offset %d, and no relay committed that; it goes on at %d, as is settled",
                self._name,
                context.group,
                committed.offset,
                max(answered, self._input[0]),
            )

    def begin(self) -> Owner:
        """Step 7."""
        assert self._producer is not None, "step 3 comes first"
        low, end = self._input
        answered = max(self._replay.answered, low)
        filed = self.store.data_position
        log_span = self._replay.log_span
        log_span.begins(low, self._settled[0])
        start = Start(filed, answered, end, self._settled[1], log_span)
        return Owner(self._context, self._number, self.store, self._producer, start)

    def give_up(self) -> None:
        """Let go of what was taken."""
        if self._producer is not None:
            self._producer.close()
        if self._store is not None:
            self._store.close()
