"""The relay: one consumer of the input, and an owner for each partition that the group gives it. One thread,
but for commits (turns.py).

Rule 1: what the group says is noted in its callbacks and done between two polls: a partition is given back before anything
        else happens, and taken over after that.
Rule 2: one path for crash and error: whatever goes wrong in a turn, the owner is let go, and the partition is taken over
        anew, after a pause that grows. Others go on meanwhile.
Rule 3: until a partition has an owner, it is read at its end (or where its last owner was), and what comes is thrown away.
        To pause it would be to wait: librdkafka looks at one that is read again only when it looks at others, or after a
        second. The end is a number: librdkafka asks where OFFSET_END is, and goes there even where it was told another
        offset meanwhile. What stands before would be lost.
Rule 4: a relay that was kept from its steps, or whose way to Kafka broke, delivers nothing before it has read the input to
        where that ends now: what came meanwhile may be due earlier.
Rule 5: a thread that asks for more than `statistics` holds the lock, which is free while the relay waits for records.
Rule 6: while much is read at once, the client is asked for no records now and then: a group shuts out who asks for none for
        max.poll.interval.ms. What the group says meanwhile waits, as do records.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from functools import partial
from operator import methodcaller
from typing import Final

from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from waterclock.clock import SystemClock, WallClock
from waterclock.errors import ConnectionLost, UsageError, WaterclockError
from waterclock.kafka.admin import Admin
from waterclock.kafka.errors import Meaning, is_refusal, meaning_of
from waterclock.kafka.settings import base_settings
from waterclock.relay.cluster.group import join, leave
from waterclock.relay.cluster.holes import Holes
from waterclock.relay.cluster.retention import Retention
from waterclock.relay.cluster.same_logs import SameLogs
from waterclock.relay.cluster.targets import Targets
from waterclock.relay.logs.logs import Logs
from waterclock.relay.options import RelayOptions, StandsBy
from waterclock.relay.owner.around import Around, Reading, RecordRefused, committed_of, in_silence, staying
from waterclock.relay.owner.owner import Owner
from waterclock.relay.owner.pressure import Pressure
from waterclock.relay.owner.room import no_disk
from waterclock.relay.owner.take_over import PendingTakeOver, TakeOver
from waterclock.relay.owner.turns import Turns, is_wanted
from waterclock.relay.standby.standby import Standby
from waterclock.relay.statistics import Counts, MessageStatistics, RelayStatistics
from waterclock.relay.store import Identity, StoreDamaged, say_unread
from waterclock.relay.upkeep.upkeep import Upkeep
from waterclock.relay.watching import gathering
from waterclock.relay.wire.topics import Topics, make_what_is_gone, prepare

log = logging.getLogger("waterclock.relay")
READ: Final = 10_000  # records taken from the client at once
IDLE_S: Final = 0.25  # the longest wait: what has come near is loaded, and checkpoints are written
STALLED_NS: Final = 5_000_000_000  # without a record, while some are to be read
_GAP_NS: Final = 1_000_000_000  # between two steps: the machine, or a slow Kafka, kept the relay waiting
_FENCED_AGAIN_NS: Final = 60_000_000_000


class Relay:
    """Delivers what is due, until it is closed. UsageError for topics or a folder that will not do."""

    def __init__(
        self,
        options: RelayOptions,
        clock: WallClock | None = None,
        lost: Callable[[WaterclockError], object] = lambda error: None,
        reading: Reading = in_silence,
    ) -> None:
        self._options, self._clock, self._lost = options, clock or SystemClock(), lost
        self._settings = staying(base_settings(options.servers, options.settings or {}))
        self.topics = Topics.of(options.topic)
        self._admin = Admin(self._settings)
        self._count = prepare(self._admin, self.topics, options.partitions, options.servers)
        self._ids = {topic: self._admin.topic_id(topic) for topic in (self.topics.input, self.topics.settled)}
        say_unread(options.folder, {self._files_of(number).folder_name() for number in range(self._count)})
        # what fails up to here leaves nothing open
        self._counts, self.lock = Counts(), threading.Lock()
        self.owners: dict[int, Owner] = {}
        self._pending: dict[int, PendingTakeOver] = {}
        self._taken: set[int] = set()
        self._given: set[int] = set()
        self._gathered_ns = 0
        self._is_in_doubt, self._stepped_ns, self._fenced_ns = False, self._clock.monotonic_ns(), -_FENCED_AGAIN_NS
        self._statistics = RelayStatistics(options.group, options.topic, partitions_of_topic=self._count)
        self._logs = Logs(self._settings)
        self._consumer = self._join()
        self._pressure = Pressure(self._consumer, self.topics.input)
        client = self._admin.client
        self._holes = Holes(client, self._settings, self.topics.input, options.group, self._count, self._clock)
        self._retention = Retention(client, self.topics, options.servers, self._clock)
        self._same_logs = SameLogs(client, self._ids, self._clock)
        self._around = self._look_around(reading)
        self._upkeep = Upkeep(self._around, self.owners, self._counts, options.lap_bytes)
        followed = range(self._count if options.standby is StandsBy.ALL else 0)
        self.standby = Standby(self._around, followed, self.owners)
        self._side_by_side = Turns(self._counts, self._of)

    def _files_of(self, number: int) -> Identity:
        return Identity(self._options.group, self._ids[self.topics.input], number)

    def _look_around(self, reading: Reading) -> Around:
        options = self._options
        return Around(
            self._settings,
            self._admin.client,
            self.topics,
            self._ids[self.topics.input],
            options.group,
            options.folder,
            self._clock,
            self._logs,
            Targets(self._admin.client, self.topics, makes=options.make_targets),
            lambda number: committed_of(self._consumer, self.topics.input, number),
            lambda: self._consumer.consumer_group_metadata(),
            lambda *told: (self._consumer.consume(0, 0), reading(*told)),  # rule 6
        )

    def statistics(self) -> RelayStatistics:
        """As of a second ago; from any thread."""
        return self._statistics

    def show(self, id: str) -> tuple[MessageStatistics, ...]:
        """What is known of the messages of an id, in the partitions that this relay owns; from any thread."""
        with self.lock:
            return gathering.shown(id, self.owners, self.topics.input)

    def step(self, wait_s: float) -> int:
        """Wait for a record or a due time, `wait_s` at most, and do what there is to do; how much that was."""
        messages = self._read(self.wait_s(wait_s))
        with self.lock:
            self._give_back()
            self._doubt()
            done = self._ingest(messages) + self._turns()
            self._pressure.keep(self.owners)
            self._take_overs()  # last: what was read before is nothing for a new owner (rule 3)
            done += self.standby.step({*self.owners, *self._pending, *self._given})
            self._holes.step(self._consumer.memberid())
            self._retention.step()
            self._same_logs.step()
            self._gather()
        return done

    def _doubt(self) -> None:
        """Rule 4."""
        now_ns = self._clock.monotonic_ns()
        if self._is_in_doubt or now_ns - self._stepped_ns > _GAP_NS:
            for owner in self.owners.values():
                owner.is_in_doubt = True
        self._is_in_doubt, self._stepped_ns = False, now_ns

    def close(self, checkpoint: bool = True) -> None:
        """Give everything back. Without a `checkpoint`, where a step was broken off, what was done since the last one is
        read again from the logs."""
        with self.lock:
            self._gather(now=True)
            for number in list(self.owners):
                self._let_go(number, checkpoint)
            self.standby.close(checkpoint)
        leave(self._consumer)
        for each in (self._holes, self._side_by_side, self._upkeep, self._logs):
            each.close()

    # The group

    def _join(self) -> Consumer:
        settings = {**self._settings, "error_cb": self._on_error}
        options, (given, taken) = self._options, (self._on_assign, self._on_revoke)
        return join(settings, self.topics.input, options.group, name=options.name, on_given=given, on_taken=taken)

    def _on_error(self, error: KafkaError) -> None:
        self._is_in_doubt = True  # rule 4
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._lost(ConnectionLost(f"Kafka is away: {error.str()}."))

    def _on_assign(self, consumer: Consumer, given: Sequence[TopicPartition]) -> None:
        for each in given:
            each.offset = self._end_of(each.partition)
        consumer.incremental_assign(list(given))  # rule 3
        self._given |= {each.partition for each in given}
        self.standby.is_ready = True

    def _end_of(self, number: int) -> int:
        """Where the partition ends, more or less."""
        try:
            return self._logs.bounds(self.topics.input, number)[1]
        except WaterclockError:
            return 0  # it is read in vain for a while

    def _on_revoke(self, consumer: Consumer, taken: Sequence[TopicPartition]) -> None:
        numbers = {each.partition for each in taken}
        self._given -= numbers
        self._taken |= numbers
        consumer.incremental_unassign(list(taken))

    def _give_back(self) -> None:
        """Rule 1."""
        taken, self._taken = self._taken, set()
        for number in taken:
            self._pending.pop(number, None)
            if number in self.owners:
                self._let_go(number, checkpoint=True)

    def _take_overs(self) -> None:
        given, self._given = self._given, set()
        self._pending.update({number: PendingTakeOver(self._clock) for number in given})
        for number, pending in list(self._pending.items()):
            if pending.backoff.is_time:
                self._take_over(number, pending)

    # Owners

    def _take_over(self, number: int, pending: PendingTakeOver) -> None:
        self.standby.let_go(number)
        try:
            take_over = TakeOver(self._around, number)
            if pending.backoff.attempts:  # the first one of a dead owner's is in haste
                self._same_logs.check()
            if number >= self._count:
                take_over.refuse_fewer()
            owner = take_over.run()
        except (ConnectionLost, StoreDamaged) as error:
            self._put_off(number, pending, error)
            return
        except OSError as error:
            self._put_off(number, pending, no_disk(self._around.place_of(number), error))
            return
        pending.hand_over(owner)
        del self._pending[number]
        self.owners[number] = owner
        self._read_from(number, owner.position)

    def _read_from(self, number: int, offset: int) -> None:
        where = [TopicPartition(self.topics.input, number, offset)]
        self._consumer.incremental_unassign(where)
        self._consumer.incremental_assign(where)

    def _put_off(self, number: int, pending: PendingTakeOver, error: WaterclockError) -> None:
        self._counts.breaks += 1
        self._lost(error)
        pending.backoff.failed()
        self._pending[number] = pending

    def _fail(self, number: int, error: WaterclockError) -> None:
        """Rule 2."""
        log.warning("%s-%d is taken over anew: %s", self.topics.input, number, error)
        owner = self.owners[number]
        if isinstance(error, StoreDamaged):
            owner.set_aside(error)
        self._let_go(number, checkpoint=False)
        if isinstance(error, RecordRefused):
            make_what_is_gone(self._admin, self.topics, self._count)
        self._put_off(number, PendingTakeOver(self._clock, owner), error)

    def _let_go(self, number: int, checkpoint: bool) -> None:
        owner = self.owners.pop(number)
        try:
            if checkpoint:
                owner.checkpoint()
        except StoreDamaged as error:
            owner.set_aside(error)
        finally:
            owner.close()

    # Records and turns

    def wait_s(self, most_s: float) -> float:
        """How long there is nothing to do, `most_s` at most."""
        if self._pending or self._given:
            return min(most_s, 0.05)
        waits = [self._wait_of(owner) for owner in self.owners.values()]
        return max(0.0, min([most_s, self.standby.wait_s(), *waits]))

    def _wait_of(self, owner: Owner) -> float:
        if not owner.has_caught_up:
            return IDLE_S
        if owner.has_work:
            return 0.0
        due_ms = owner.next_due_ms()
        now = owner.waiting or owner.letters
        until_due_s = 0.0 if now else IDLE_S if due_ms is None else (due_ms - self._clock.wall_ms()) / 1000
        until_due_s = min(until_due_s, self._upkeep.wait_s(owner))
        return max(until_due_s, (owner.rest_until_ns - self._clock.monotonic_ns()) / 1e9)

    def _read(self, wait_s: float) -> list[Message]:
        first = self._consumer.poll(wait_s)
        return [] if first is None else [first, *self._consumer.consume(READ, 0)]

    def _ingest(self, messages: Sequence[Message]) -> int:
        by_partition: dict[int, list[Message]] = {}
        for message in messages:
            if (error := message.error()) is None:
                by_partition.setdefault(message.partition(), []).append(message)
            else:
                self._heard(message, error)
        done = sum(self._of(number, methodcaller("ingest", some)) for number, some in by_partition.items())
        self._counts.requests += done
        if len(messages) > READ:  # more is with the client: whose records are not among these is not silent
            for owner in self.owners.values():
                owner.heard()
        for message in messages:
            if message.error() is not None and message.error().code() == KafkaError._PARTITION_EOF:
                self._of(message.partition(), partial(_reached, message.offset()))
        return done

    def _heard(self, message: Message, error: KafkaError) -> None:
        if error.code() in (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            return
        if error.code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL):
            self._join_again()
            return
        if is_refusal(error) or meaning_of(error) is Meaning.NO_GROUP:
            raise UsageError(f"Kafka refuses the relay: {error.str()}. Look at --kafka-config and the rights.")
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            self._of(message.partition(), _reread)
        else:
            self._lost(ConnectionLost(f"Kafka says: {error.str()}."))

    def _join_again(self) -> None:
        """The group says that another has this one's name. It may have been itself: of two requests to join, the first was
        delayed, and came last. If it is said again soon, there are two."""
        now_ns = self._clock.monotonic_ns()
        if now_ns - self._fenced_ns < _FENCED_AGAIN_NS:
            raise UsageError(
                f"Another relay of the group {self._options.group} has the name {self._options.name}: "
                "give each its own (--name)."
            )
        log.warning(
            "the group %s says that another has the name %s: joining anew", self._options.group, self._options.name
        )
        self._fenced_ns = now_ns
        for number in list(self.owners):
            self._let_go(number, checkpoint=True)
        self._pending.clear()
        leave(self._consumer)
        self._given.clear()
        self._taken.clear()
        self._consumer = self._join()
        self._pressure = Pressure(self._consumer, self.topics.input)

    def _of(self, number: int, deed: Callable[[Owner], int]) -> int:
        """Do something with the owner of a partition; without one, or where it fails, nothing."""
        owner = self.owners.get(number)
        if owner is None:
            return 0
        try:
            return deed(owner)
        except (ConnectionLost, StoreDamaged) as error:
            self._fail(number, error)
            return 0

    def _turns(self) -> int:
        """A turn of each partition where there is something for one, and what is done beside turns."""
        wanting = [owner for number, owner in list(self.owners.items()) if self._of(number, self._is_wanted)]
        done = self._side_by_side.run(wanting)
        for owner in list(self.owners.values()):
            done += self._of(owner.number, self._keep_up if owner in wanting else self._keep)
        return done

    def _is_wanted(self, owner: Owner) -> bool:
        if owner.is_in_doubt:
            owner.catch_up(self._logs.bounds(self.topics.input, owner.number)[1])
        return is_wanted(owner, self._clock)

    def _keep_up(self, owner: Owner) -> int:
        self._counts.requests += owner.keep_up()
        return 0

    def _keep(self, owner: Owner) -> int:
        """What there is time for where nothing is delivered; whether there was a transaction."""
        self._keep_up(owner)
        owner.tidy()
        self._look_after(owner)
        return self._upkeep.step(owner)

    def _look_after(self, owner: Owner) -> None:
        """Ask anew for records that stand in the input and do not come."""
        if not owner.has_caught_up and not owner.held and owner.idle_ns() > STALLED_NS:
            log.warning("%s-%d stands still at offset %d: asking anew", self.topics.input, owner.number, owner.position)
            owner.heard()
            self._read_from(owner.number, owner.position)

    def _gather(self, now: bool = False) -> None:
        if now or self._clock.monotonic_ns() - self._gathered_ns >= 1_000_000_000:
            self._gathered_ns = self._clock.monotonic_ns()
            self._statistics = gathering.gathered(self._statistics, self._counts, self.owners, self.standby)


def _reached(offset: int, owner: Owner) -> int:
    owner.reached(offset)
    return 0


def _reread(owner: Owner) -> int:
    raise ConnectionLost(f"{owner.around.topics.input}-{owner.number} has no records any more where it was read")
