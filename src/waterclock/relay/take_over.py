"""A new owner's start, by numbered steps:

    1. lock      the folder: one process at a time has it
    2. fence     whoever had the partition before can write no more, and what it left open is thrown away
    3. find ends of both logs, and the command position
    4. verify    the files are of these logs: both still hold its positions, and the last record filed is the one that
                 stands there; else they are discarded, and everything is filed anew
    5. replay    what was settled since the files were written, or a snapshot of what was settled and what came after it
    6. begin     to read the input at the smaller of the two positions
    7. fire      once the input was read up to the end of step 3 (turn.py)

Rule 1: 3 comes after 2: a zombie could commit in between, and what it settled would be fired again.
Rule 2: nothing is fired before 7: what is due earlier may still stand in the input.
Rule 3: two positions. What is below the data position is in the files; what is below the command position is answered. A
        record is read for what it is not below of: with one position a cancel would be lost when its transaction dies
        after the files have gone on.
Rule 4: the command position is that of the last settlement: the files note it, TOPIC.settled goes on from there. Any
        program can commit an offset for the group, so that one is a witness only: where a relay committed it, and no
        settlement reaches it, settlements are gone.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from confluent_kafka import Message

from waterclock.errors import UsageError
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.relay.around import Around, GroupOffset
from waterclock.relay.extent import Extent
from waterclock.relay.logs import fingerprint_of, offset_of
from waterclock.relay.moves import Move
from waterclock.relay.owner import Owner, Start
from waterclock.relay.settled import told_by
from waterclock.relay.settlement import NoSettlement, Settlement
from waterclock.relay.snapshot import Assembly, Part, restore
from waterclock.relay.store import PartitionStore, StoreDamaged

log = logging.getLogger("waterclock.relay")
TOLD_EVERY: Final = 1_000  # records of TOPIC.settled: each may settle 100,000 messages


class TakeOver:
    """Takes one partition over; `alone`: with a producer that finds out which record is refused."""

    def __init__(self, around: Around, number: int, alone: bool = False) -> None:
        self._around, self._number, self._alone = around, number, alone
        self._store: PartitionStore | None = None
        self._producer: TransactionalProducer | None = None
        self._input = self._settled = (0, 0)  # first offset, end
        self._committed: GroupOffset | None = None
        self._answered = -1
        self._extent, self._is_new = Extent(), False
        self._snapshots = Assembly()
        self._covered_from = 0  # TOPIC.settled is known from here on, and what was before too

    def run(self) -> Owner:
        """Steps 1 to 6. On an error nothing is held."""
        try:
            for step in (self.lock, self.fence, self.find_ends, self.verify, self.replay):
                step()
            return self.begin()
        except StoreDamaged as error:
            self.store.discard(str(error))  # the next attempt files everything anew
            self.give_up()
            raise
        except BaseException:
            self.give_up()
            raise

    @property
    def store(self) -> PartitionStore:
        assert self._store is not None, "step 1 comes first"
        return self._store

    def lock(self) -> None:
        """Step 1."""
        self._store = self._around.open_store(self._number)

    def fence(self) -> None:
        """Step 2."""
        self._producer = self._around.make_producer(self._number, self._alone)
        self._producer.fence()

    def find_ends(self) -> None:
        """Step 3."""
        around, number = self._around, self._number
        self._settled = around.logs.bounds(around.topics.settled, number)
        self._input = around.logs.bounds(around.topics.input, number)
        self._committed = around.committed(number)

    def verify(self) -> None:
        """Step 4."""
        if (why := self._why_not()) is not None:
            self.store.discard(why)
        self._is_new = not self.store.data_position
        if self._is_new:
            low, _ = self._input
            self.store.begin(low)
            self.store.checkpoint(low, None, 0)  # from now on files without a manifest are none of ours
        self._covered_from = self.store.settled_position
        self._extent = Extent.of(self.store.notes)
        self._answered = self._extent.answered

    @property
    def _name(self) -> str:
        return f"{self._around.topics.input}-{self._number}"

    def _why_not(self) -> str | None:
        """Why the files are not of these logs; None if they are, or if there are none."""
        store = self.store
        for name, position, (low, end) in (
            (self._around.topics.input, store.data_position, self._input),
            (self._around.topics.settled, store.settled_position, self._settled),
        ):
            if position and not low <= position <= end:
                return f"they hold {name} up to {position}, and it has {low} to {end} now"
        if store.fingerprint is None:
            return None
        offset = offset_of(store.fingerprint)
        record = self._around.logs.record(self._around.topics.input, self._number, offset)
        if record is None or fingerprint_of(record) != store.fingerprint:
            return f"the record at offset {offset} of {self._around.topics.input} is not the one that was filed"
        return None

    def replay(self) -> None:
        """Step 5."""
        low, end = self._settled
        start = max(low, self.store.settled_position)
        place = f"{self._around.topics.settled}-{self._number}"
        for message in self._around.logs.read(self._around.topics.settled, self._number, start, end):
            self._answered = max(self._answered, self._apply(message))
            if not message.offset() % TOLD_EVERY:
                self._around.reading(place, message.offset() - start, end - start)
        self._look_behind()
        if self._committed is not None:
            self._compare(self._committed)

    def _compare(self, committed: GroupOffset) -> None:
        """What the group says, with what is settled."""
        if committed.by_relay and committed.offset > self._answered:
            raise UsageError(
                f"{self._around.topics.settled} does not hold what was settled, up to offset {committed.offset} of "
                f"{self._name}: it was made again, or cut. All of the input would be delivered once more; to have that, "
                "start with another --group."
            )
        if not committed.by_relay and committed.offset != self._answered:
            log.warning(
                "%s: the group %s stands at offset %d, and no relay committed that; it goes on at %d, as is settled",
                self._name,
                self._around.group,
                committed.offset,
                max(self._answered, self._input[0]),
            )

    def _look_behind(self) -> None:
        """Whether all is known of what was cut off."""
        low, _ = self._settled
        if self._covered_from < low:
            raise UsageError(
                f"{self._around.topics.settled}-{self._number} begins at offset {low}, and no snapshot of what was settled "
                f"before can be read. All that still stands in {self._name} would be delivered once more; to have that, "
                f"start with another --topic. Or give the relay the folder that it had (--folder)."
            )
        low, _ = self._input
        if self._is_new and self._extent.moves.swept < low:
            log.warning("%s begins at offset %d: nothing is known of what was before", self._name, low)

    def _apply(self, message: Message) -> int:
        """Take in one record of TOPIC.settled; the command position that it holds, -1 where it is none of ours."""
        place = f"{self._around.topics.settled}-{self._number}-{message.offset()}"
        value = message.value() or b""
        try:
            told = told_by(value)
        except NoSettlement as error:
            if error.later:
                raise UsageError(f"{place} is written by a later relay: {error}. Start that version.") from None
            log.warning("%s is no settlement, and is passed over: %s", place, error)
            return -1
        is_ours = told.mark == self._around.mark
        if not is_ours:
            log.warning("%s is of an earlier topic %s, and is passed over", place, self._around.topics.input)
        if isinstance(told, Part):
            return self._take(told, is_ours)
        if is_ours:
            self._settle(told, len(value))
        return told.command_position if is_ours else -1

    def _settle(self, told: Settlement | Move, size: int) -> None:
        if isinstance(told, Move):
            self._extent.moved(told)
        elif len(told.origins):
            self._extent.unsaved += size
            with suppress(OSError):  # it is settled all the same; the owner hears of such a disk, and says so
                self.store.settle(told.origins, told.state)

    def _take(self, part: Part, is_ours: bool) -> int:
        """Take in a part of a snapshot, and with the last one, the snapshot, if what it covers is not known otherwise. That
        of an earlier topic says that nothing of this one was cut off."""
        snapshot = self._snapshots.take(part)
        if snapshot is None:
            return -1
        if is_ours:
            self._extent.moves.note(snapshot.swept, snapshot.stretches)
            self._extent.snapshotted(snapshot.replay_from, sum(map(len, snapshot.chunks.values())))
            if self._covered_from < self._settled[0]:
                restore(self.store, snapshot)
        if snapshot.replay_from >= self._settled[0]:
            self._covered_from = max(self._covered_from, snapshot.replay_from)
        return snapshot.command_position if is_ours else -1

    def begin(self) -> Owner:
        """Step 6."""
        assert self._producer is not None, "step 2 comes first"
        low, end = self._input
        answered = max(self._answered, low)
        filed = self.store.data_position or low
        self._extent.begins(low, self._settled[0])
        start = Start(filed, answered, end, self._settled[1], self._extent)
        return Owner(self._around, self._number, self.store, self._producer, start, self._alone)

    def give_up(self) -> None:
        """Let go of what was taken."""
        if self._producer is not None:
            self._producer.close()
        if self._store is not None:
            self._store.close()
