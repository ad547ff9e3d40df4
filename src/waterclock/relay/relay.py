"""The relay: one consumer of the input, and an owner for each partition that the group gives it. One thread,
but for commits (turn.py).

Rule 1: what the group says is noted in its callbacks and done between two polls: a partition is given back before anything
        else happens, and taken over after that.
Rule 2: one path for crash and error: whatever goes wrong in a turn, the owner is let go, and the partition is taken over
        anew, after a pause that grows. Others go on meanwhile. What comes of a partition without an owner is thrown away.
Rule 3: a relay that was kept from its steps, whose way to Kafka broke, or that leaves records with the client, as it takes
        only so many at once, or in the log, as the client had no room for more, delivers nothing before it has read the
        input to where that ends now: what came meanwhile may be due earlier. One that is on its way to an end goes on to
        that one: it delivers, however much comes.
Rule 4: a thread that asks for more than `statistics` holds the lock, which is free while the relay waits for records.
Rule 5: while much is read at once, the client is asked for no records now and then: a group shuts out who asks for none for
        max.poll.interval.ms. What the group says meanwhile waits, as do records.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from operator import methodcaller
from pathlib import Path
from typing import Any, Final

from confluent_kafka import KafkaError, Message

from waterclock.clock import Clock, SystemClock, WallClock
from waterclock.errors import ConnectionLost, UsageError, WaterclockError
from waterclock.kafka.admin import Admin, there_just_now
from waterclock.kafka.errors import Meaning, is_refusal, meaning_of, words_of
from waterclock.kafka.settings import base_settings
from waterclock.outside import threading
from waterclock.relay.cluster.group import Member, UnassignedPartitions, leave
from waterclock.relay.cluster.targets import Targets
from waterclock.relay.cluster.watcher import Retention, SameLogs, Watcher
from waterclock.relay.logs import Logs
from waterclock.relay.owner.context import Context, Reading, RecordRefused, in_silence, no_disk, staying
from waterclock.relay.owner.owner import GAP_NS, Owner
from waterclock.relay.owner.take_over import PendingTakeOver, TakeOver
from waterclock.relay.owner.turn import OwnerTurns
from waterclock.relay.standby.standby import Standby
from waterclock.relay.statistics import Counts, MessageStatistics, RelayStatistics
from waterclock.relay.store import Identity, StoreDamaged, say_unread
from waterclock.relay.upkeep.upkeep import LAP_BYTES, LogUpkeep
from waterclock.relay.watching import gathering
from waterclock.relay.wire.topics import Topics, make_what_is_gone, prepare

log = logging.getLogger("waterclock.relay")
READ: Final = 10_000  # records taken from the client at once
IDLE_S: Final = 0.25  # the longest wait: what has come near is loaded, and checkpoints are written
STALLED_NS: Final = 5_000_000_000  # without a record, while some are to be read
_FENCED_AGAIN_NS: Final = 60_000_000_000


class StandsBy(StrEnum):
    """For which of the partitions that others own a relay keeps files.

    None between the two: Kafka's assignors give the partitions of a dead member to any other one, not to the one that has
    the files.
    """

    ALL = "all"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class RelayOptions:
    """`name`: a static member's, whose partitions wait for it while it restarts. `make_targets`: a target that is not there
    is made, as Kafka makes topics by default. `hides_values`: the statistics show nobody's values and keys."""

    servers: str
    topic: str
    folder: Path
    group: str
    partitions: int = 3
    name: str | None = None
    settings: Mapping[str, Any] | None = None
    lap_bytes: int = LAP_BYTES
    standby: StandsBy = StandsBy.ALL
    make_targets: bool = False
    hides_values: bool = False


class Relay:
    """Delivers what is due, until it is closed. `machine`: what Kafka's answers are waited for by, whoever turns `clock`.
    UsageError for topics or a folder that will not do."""

    def __init__(
        self,
        options: RelayOptions,
        clock: WallClock | None = None,
        lost: Callable[[WaterclockError], object] = lambda error: None,
        reading: Reading = in_silence,
        machine: Clock | None = None,
    ) -> None:
        self._options, self._lost = options, lost
        self._clock, self._machine = clock or SystemClock(), machine or SystemClock()
        self._settings = staying(base_settings(options.servers, options.settings or {}))
        self.topics = Topics.of(options.topic)
        self._admin = Admin(self._settings, clock=self._machine)
        self._count = prepare(self._admin, self.topics, options.partitions, options.servers)
        with there_just_now():
            ids = {topic: self._admin.topic_id(topic) for topic in (self.topics.input, self.topics.settled)}
        files = (Identity(options.group, ids[self.topics.input], number) for number in range(self._count))
        say_unread(options.folder, {each.folder_name() for each in files})
        # what fails up to here leaves nothing open
        self._counts, self.lock = Counts(options.hides_values), threading.Lock()
        self.owners: dict[int, Owner] = {}
        self._pending: dict[int, PendingTakeOver] = {}
        self._gathered_ns, self._stepped_ns = 0, self._clock.monotonic_ns()
        self._fenced_ns: deque[int] = deque(maxlen=2)
        self._statistics = RelayStatistics(options.group, options.topic, partitions_of_topic=self._count)
        self._logs = Logs(self._settings, self._machine)
        self._member = Member(self._settings, self.topics.input, options.group, options.name, self._end_of, lost)
        self._watcher = Watcher(self._admin.client, self._clock)
        self._same_logs = SameLogs(self._watcher, ids)
        Retention(self._watcher, self.topics, options.servers)
        self._unassigned = UnassignedPartitions(self._watcher, self._member, self._settings, self._count)
        self._context = self._make_context(ids[self.topics.input], reading)
        self._upkeep = LogUpkeep(self._context, self.owners, self._counts, options.lap_bytes)
        followed = range(self._count if options.standby is StandsBy.ALL else 0)
        self.standby = Standby(self._context, followed, self.owners)
        self._turns = OwnerTurns(self._counts, self._of)

    def _make_context(self, topic_id: str, reading: Reading) -> Context:
        member = self._member
        return Context(
            settings=self._settings,
            watcher=self._watcher,
            topics=self.topics,
            topic_id=topic_id,
            group=self._options.group,
            folder=self._options.folder,
            clock=self._clock,
            machine=self._machine,
            logs=self._logs,
            targets=Targets(self._admin.client, self.topics, self._machine, self._options.make_targets),
            member=lambda: member.consumer.consumer_group_metadata(),
            reading=lambda *how_far: (member.consumer.consume(0, 0), reading(*how_far)),  # rule 5
        )

    def _end_of(self, number: int) -> int:
        try:
            return self._logs.bounds(self.topics.input, number)[1]
        except WaterclockError:
            return 0  # it is read in vain for a while

    def statistics(self) -> RelayStatistics:
        """As of a second ago; from any thread."""
        return self._statistics

    def show(self, id: str) -> tuple[MessageStatistics, ...]:
        """What is known of the messages of an id, in the partitions that this relay owns; from any thread."""
        with self.lock:
            return gathering.shown(id, self.owners, self.topics.input)

    def step(self, wait_s: float) -> int:
        """Wait for a record or a due time, `wait_s` at most, and do what there is to do; how much that was."""
        messages, member = self._read(self.wait_s(wait_s)), self._member
        with self.lock:
            taken, member.taken = member.taken, set()
            for number in taken:  # rule 1
                self._pending.pop(number, None)
                if number in self.owners:
                    self._let_go(number, checkpoint=True)
            now_ns = self._clock.monotonic_ns()
            for owner in self.owners.values():
                owner.known_ns = now_ns
                if member.connection_broke or now_ns - self._stepped_ns > GAP_NS:  # rule 3
                    owner.may_have_missed_input = True
            member.connection_broke, self._stepped_ns = False, now_ns
            done = self._ingest(messages)
            # a turn of each partition that there is something for, and what is done beside turns
            wanting = [owner for number, owner in list(self.owners.items()) if self._of(number, self._turns.is_wanted)]
            done += self._turns.run(wanting)
            for owner in list(self.owners.values()):
                done += self._of(owner.number, self._keep_up if owner in wanting else self._keep)
            member.pause({number for number, owner in self.owners.items() if owner.held})
            self._take_overs()  # last: what was read before is nothing for a new owner
            self.standby.is_ready = member.was_given
            done += self.standby.step({*self.owners, *self._pending, *member.given})
            self._watcher.step()
            self._unassigned.step()
            self._gather()
        return done

    def close(self, checkpoint: bool = True) -> None:
        """Give everything back. Without a `checkpoint`, if a step was broken off, what was done since the last one is
        read again from the logs."""
        with self.lock:
            self._gather(now=True)
            for number in list(self.owners):
                self._let_go(number, checkpoint)
            self.standby.close(checkpoint)
        leave(self._member.consumer)
        for each in (self._unassigned, self._turns, self._upkeep, self._logs):
            each.close()

    def _take_overs(self) -> None:
        given, self._member.given = self._member.given, set()
        self._pending.update({number: PendingTakeOver(self._clock) for number in given})
        for number, pending in list(self._pending.items()):
            if pending.backoff.is_time:
                self._take_over(number, pending)

    # Owners

    def _take_over(self, number: int, pending: PendingTakeOver) -> None:
        self.standby.let_go(number)
        try:
            take_over = TakeOver(self._context, number)
            if pending.backoff.attempts:  # the first one of a dead owner's is in haste
                self._same_logs.check()
            if number >= self._count:
                take_over.refuse_fewer()
            owner = take_over.run()
        except (ConnectionLost, StoreDamaged) as error:
            self._put_off(number, pending, error)
            return
        except OSError as error:
            self._put_off(number, pending, no_disk(self._context.place_of(number), error))
            return
        pending.hand_over(owner)
        del self._pending[number]
        self.owners[number] = owner
        self._member.read_from(number, owner.position)

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
        if self._pending or self._member.given:
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
        return self._member.read(wait_s, READ)

    def _ingest(self, messages: Sequence[Message]) -> int:
        by_partition: dict[int, list[Message]] = {}
        for message in messages:
            if (error := message.error()) is None:
                by_partition.setdefault(message.partition(), []).append(message)
            else:
                self._heard(message, error)
        if not self._member.are_all(messages, READ):  # whose records are not among these is not silent
            for owner in self.owners.values():
                owner.heard()
                owner.may_have_missed_input |= owner.has_caught_up  # rule 3
        done = sum(self._of(number, methodcaller("ingest", some)) for number, some in by_partition.items())
        self._counts.requests += done
        for message in messages:
            if message.error() is not None and message.error().code() == KafkaError._PARTITION_EOF:
                self._of(message.partition(), methodcaller("reached", message.offset()))
        return done

    def _heard(self, message: Message, error: KafkaError) -> None:
        if error.code() in (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            return
        if error.code() in (KafkaError.FENCED_INSTANCE_ID, KafkaError._FATAL):
            self._join_again()
            return
        if is_refusal(error) or meaning_of(error) is Meaning.NO_GROUP:
            raise UsageError(f"Kafka refuses the relay: {words_of(error)}. Look at --kafka-config and the rights.")
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            if message.partition() in self.owners:
                where = f"{self.topics.input}-{message.partition()}"
                self._fail(message.partition(), ConnectionLost(f"{where} has no records any more where it was read"))
        else:
            self._lost(ConnectionLost(f"Kafka says: {words_of(error)}."))

    def _join_again(self) -> None:
        """The group says that another has this one's name. It may have been itself: of two requests to join, the first was
        delayed, and came last; or a broker that leads anew has lost who it was. Said three times within a minute: there
        are two."""
        now_ns = self._clock.monotonic_ns()
        if sum(now_ns - at < _FENCED_AGAIN_NS for at in self._fenced_ns) == 2:
            raise UsageError(
                f"Another relay of the group {self._options.group} has the name {self._options.name}: "
                "give each its own (--name)."
            )
        log.warning(
            "the group %s says that another has the name %s: joining anew", self._options.group, self._options.name
        )
        self._fenced_ns.append(now_ns)
        for number in list(self.owners):
            self._let_go(number, checkpoint=True)
        self._pending.clear()
        leave(self._member.consumer)
        self._member.join()

    def _of(self, number: int, action: Callable[[Owner], int]) -> int:
        """Do something with the owner of a partition; without one, or if it fails, nothing."""
        owner = self.owners.get(number)
        if owner is None:
            return 0
        try:
            return action(owner)
        except (ConnectionLost, StoreDamaged) as error:
            self._fail(number, error)
            return 0

    def _keep_up(self, owner: Owner) -> int:
        self._counts.requests += owner.keep_up()
        return 0

    def _keep(self, owner: Owner) -> int:
        """Do what there is time for if nothing is delivered. Returns whether there was a transaction."""
        self._keep_up(owner)
        owner.tidy()
        if not owner.has_caught_up and not owner.held and self._clock.monotonic_ns() - owner.heard_ns > STALLED_NS:
            log.warning("%s-%d stands still at offset %d: asking anew", self.topics.input, owner.number, owner.position)
            owner.heard()
            self._member.read_from(owner.number, owner.position)
        return self._upkeep.step(owner)

    def _gather(self, now: bool = False) -> None:
        if now or self._clock.monotonic_ns() - self._gathered_ns >= 1_000_000_000:
            self._gathered_ns = self._clock.monotonic_ns()
            self._statistics = gathering.gathered(self._statistics, self._counts, self.owners, self.standby)
