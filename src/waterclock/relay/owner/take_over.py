"""A new owner's start, by numbered steps:

    1. lock      the folder: one process at a time has it
    2. ask       the group's offset
    3. fence     whoever had the partition before can write no more, and what it left open is thrown away
    4. find ends of both logs
    5. verify    the files are of these logs; else they are set aside, and everything is filed anew
    6. replay    what was settled since the files were written, or a snapshot of what was settled and what came after it
    7. begin     to read the input at the smaller of the two positions
    8. deliver   once the input was read up to the end of step 4 (turn.py)

Rule 1: 4 comes after 3: a zombie could commit in between, and what it settled would be delivered again.
Rule 2: nothing is delivered before 8: what is due earlier may still stand in the input.
Rule 3: two positions. What is below the data position is in the files; what is below the command position is answered. A
        record at the data position or behind it is filed, one at the command position or behind it is answered. With one
        position for both, a cancel would be lost when its transaction dies after the files have gone on.
Rule 4: the command position is that of the last settlement: the files note it, TOPIC.settled goes on from there. The
        group's offset is checked, and never used as a start: any program can commit one. If a relay committed it, and no
        settlement reaches it, settlements are gone.
Rule 5: so 2 comes before 4. The settlements that belong to that offset stand before the end that is found in 4. The other
        way round another relay could fence this one in between and commit: its offset would be known, and its settlements
        would not, as if these were gone.

Steps 5 and 6 are `Replay`, which a relay that stands by uses too: files held against both logs, and brought up to what
TOPIC.settled says.

Rule 6: files are of these logs if they are of the same topic, and it was not cut at its end: the input goes on to their
        position or beyond it, and the last record filed is the one that stands there, or stands there no more. Others are
        set aside (the folder is renamed, and the store is empty), and everything is filed anew.
Rule 7: to settle again changes nothing. So a snapshot may be of any moment, and a reading may begin earlier than need be.
Rule 8: if the beginning of TOPIC.settled was cut off, a snapshot has to cover what was before.
Rule 9: if the input goes on to the files' position, and TOPIC.settled ends before theirs, settlements are lost: the
        files are the last that know of them. Nobody starts.
Rule 10: an input that was cut off up to the files' position, or beyond it, says nothing against them: they are the last
        copy of what is pending before it. They are kept and used, and what is in neither is logged, with its numbers.
Rule 11: Apache Kafka on one broker that is killed while it ends a transaction may forget to end it in some partitions (its
        log: "likely deleted already and hence can be skipped"). The next commit of the same producer then shows what it
        holds. Nobody but Kafka knows whether it was to be committed, so it is only logged.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from math import inf
from typing import Final

from confluent_kafka import Message

from waterclock.clock import WallClock
from waterclock.errors import ConnectionLost, UsageError, unstopped
from waterclock.kafka.patience import RECONNECTING_S, Backoff
from waterclock.kafka.transactions import TransactionalProducer
from waterclock.relay.logs import fingerprint_of, offset_of
from waterclock.relay.owner.context import Context, GroupOffset
from waterclock.relay.owner.log_span import LogSpan
from waterclock.relay.owner.owner import Owner, Start
from waterclock.relay.store import PartitionStore, StoreDamaged
from waterclock.relay.wire.settlement import Assembly, Move, NoSettlement, SnapshotPart, record_of, restore

log = logging.getLogger("waterclock.relay")
REPORT_EVERY: Final = 100  # records of TOPIC.settled: each may settle 100,000 messages


class PendingTakeOver:
    """A partition that the group gave and that has no owner yet. The first attempt is made at once; behind each that
    failed the pause of `backoff` grows. What the `last` owner found out goes to the next one: what Kafka refused, and how
    much it takes at once."""

    def __init__(self, clock: WallClock, last: Owner | None = None) -> None:
        self.backoff = Backoff(RECONNECTING_S, clock)
        self._last = None
        if last is not None:
            self._last = dict(last.refused), dict(last.refused_letters), last.pace, last.reports_each

    def hand_over(self, owner: Owner) -> None:
        """`owner` takes it over."""
        if self._last is not None:
            refused, letters, owner.pace, owner.reports_each = self._last
            owner.refused.update(refused)
            owner.refused_letters.update(letters)


class TakeOver:
    """Takes one partition over; Kafka is waited for as long as `patience_s`, or a question lasts."""

    def __init__(self, context: Context, number: int, patience_s: float = inf) -> None:
        self._context, self._number, self._patience_s = context, number, patience_s
        self._store: PartitionStore | None = None
        self._producer: TransactionalProducer | None = None
        self._input = self._settled = (0, 0)  # first offset, end
        self._committed: GroupOffset | None = None

    def run(self, store: PartitionStore | None = None) -> Owner:
        """Steps 1 to 7, with the files of a standby if there are any. On an error nothing is held."""
        self._store = store
        try:
            for step in (self.lock, self.ask, self.fence, self.find_ends, self.verify, self.replay):
                step()
            return self.begin()
        except BaseException as error:
            try:
                if isinstance(error, StoreDamaged):
                    self.store.set_aside(str(error), self._input[0])  # the next attempt files everything anew
            finally:
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
        self._store = self._store or self._context.open_store(self._number)

    def ask(self) -> None:
        """Step 2."""
        self._committed = self._context.committed(self._number, self._patience_s)

    def fence(self) -> None:
        """Step 3."""
        self._producer = self._context.make_producer(self._number)
        self._producer.fence(self._context.topics.input, self._patience_s)

    def find_ends(self) -> None:
        """Step 4."""
        context, number = self._context, self._number
        written = context.written_end(context.topics.settled, number, self._patience_s)
        self._settled = context.logs.bounds(context.topics.settled, number)
        self._input = context.logs.bounds(context.topics.input, number)
        if written > (open_from := self._settled[1]):  # rule 11
            log.warning(
                "%s-%d: what stands there from offset %d on is neither committed nor thrown away, though its producer was "
                "shut out: Kafka has not ended that transaction. What it answered and delivered may be seen twice",
                context.topics.settled, number, open_from,
            )  # fmt: skip

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
            if not count % REPORT_EVERY:  # offsets may all be odd: markers of transactions have the others
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


class Replay:
    """Steps 5 and 6 for one partition. `input` and `settled` are the first offset and the end of both logs. `log_span` is
    what is known of them, `answered` the command position, -1 if none is known, and `is_new` whether the files are
    empty."""

    def __init__(
        self, context: Context, number: int, store: PartitionStore, input: tuple[int, int], settled: tuple[int, int]
    ) -> None:
        self._context, self._number = context, number
        self._store = store
        self._input, self._settled = input, settled
        self._snapshots = Assembly()
        low, _ = input
        self._refuse_lost()
        if (why := self._why_not()) is not None:
            store.set_aside(why, low)
        self.is_new = not store.data_position
        self._filed_to = store.data_position
        if self.is_new:
            store.begin(low)
            store.checkpoint(low, None, 0)  # from now on files without a manifest are not this relay's
        elif store.data_position < low:
            store.skip_to(low)
        self._covered_from = store.settled_position  # all that was settled before this offset of TOPIC.settled is known
        self.log_span = LogSpan.of(store.notes)
        self.answered = self.log_span.answered

    @property
    def _name(self) -> str:
        return self._context.place_of(self._number)

    def _refuse_lost(self) -> None:
        """Rule 9."""
        filed, known = self._store.data_position, self._store.settled_position
        (_, end), (_, settled_end) = self._input, self._settled
        if filed and filed <= end and known > settled_end:
            raise UsageError(
                f"{self._context.topics.settled} does not hold what was settled: its partition {self._number} ends at "
                f"offset {settled_end}, and the files know it up to {known}. It was made again, or cut. All that still "
                f"stands in {self._name} would be delivered once more; to have that, start with another --group."
            )

    def _why_not(self) -> str | None:
        """Why the files are not of these logs; None if they are, or if there are none. Rule 6."""
        store, (low, end) = self._store, self._input
        if store.data_position > end:
            return (
                f"they hold {self._name} up to offset {store.data_position}, and it ends at {end} now: it lost its end"
            )
        if store.fingerprint is None or (offset := offset_of(store.fingerprint)) < low:
            return None
        record = self._context.logs.record(self._context.topics.input, self._number, offset)
        if record is None or fingerprint_of(record) != store.fingerprint:
            return f"the record at offset {offset} of {self._context.topics.input} is not the one that was filed"
        return None

    @property
    def start(self) -> int:
        """TOPIC.settled is read from here on: all of it if the files do not know the command position."""
        return self._settled[0] if self.answered < 0 else max(self._settled[0], self._store.settled_position)

    def look_behind(self) -> None:
        """Whether all is known of what was cut off: UsageError if it is not. Rule 8."""
        low, _ = self._settled
        if self._covered_from < low:  # another group would read the same log, so only another topic helps
            raise UsageError(
                f"{self._context.topics.settled}-{self._number} begins at offset {low}, and no snapshot of what was "
                f"settled before can be read. All that still stands in {self._name} would be delivered once more; to have "
                f"that, start with another --topic. Or give the relay the folder that it had (--folder)."
            )
        self._warn_of_what_is_gone()

    def _warn_of_what_is_gone(self) -> None:
        """Rule 10. What was moved on before it was cut off is not gone."""
        store, (low, _), filed_to = self._store, self._input, self._filed_to
        if self.log_span.moves.swept >= low:  # a lap had moved on what was pending before (lap.py)
            return
        if alone := store.last_copies(low):
            log.warning(
                "%s begins at offset %d: somebody deleted what was before. Of the %d messages that are pending, %d stand "
                "in %s and nowhere else. They are delivered from there: keep that folder",
                self._name, low, store.pending, alone, store.folder,
            )  # fmt: skip
        if self.is_new and low:
            log.warning("%s begins at offset %d: nothing is known of what was before", self._name, low)
        elif filed_to < low:
            log.warning(
                "%s begins at offset %d, and the files hold it up to %d: what stood at the %d offsets between, and was not "
                "delivered by another relay, is lost", self._name, low, filed_to, low - filed_to,
            )  # fmt: skip

    def apply(self, message: Message) -> None:
        """Take in one record of TOPIC.settled; what is not of this topic is passed over, with a warning."""
        place = f"{self._context.topics.settled}-{self._number}-{message.offset()}"
        value = message.value() or b""
        try:
            record = record_of(value)
        except NoSettlement as error:
            if error.later:
                raise UsageError(
                    f"{place} is written by a later relay: {unstopped(error)}. Start that version."
                ) from None
            log.warning("%s is no settlement, and is passed over: %s", place, error)
            return
        is_ours = record.mark == self._context.input_hash
        if not is_ours:
            log.warning("%s is of an earlier topic %s, and is passed over", place, self._context.topics.input)
        if isinstance(record, SnapshotPart):
            self._take(record, is_ours)
            return
        if not is_ours:
            return
        if isinstance(record, Move):
            self.log_span.moved(record)
        elif len(record.origins):
            self.log_span.unsaved += len(value)
            with suppress(OSError):  # it is settled all the same; the owner finds that the disk refuses, and logs it
                self._store.settle(record.origins, record.state)
        self.answered = max(self.answered, record.command_position)

    def _take(self, part: SnapshotPart, is_ours: bool) -> None:
        """Take in a part of a snapshot. With the last one it is restored if what it covers is not known otherwise.
        A snapshot of an earlier topic of that name stands before all records of this one: none of these is cut off then."""
        snapshot = self._snapshots.take(part)
        if snapshot is None:
            return
        if is_ours:
            self.log_span.moves.note(snapshot.swept, snapshot.stretches)
            self.log_span.snapshotted(snapshot.replay_from, sum(map(len, snapshot.chunks.values())))
            if self._covered_from < self._settled[0]:
                restore(self._store, snapshot)
            self.answered = max(self.answered, snapshot.command_position)
        if snapshot.replay_from >= self._settled[0]:
            self._covered_from = max(self._covered_from, snapshot.replay_from)
