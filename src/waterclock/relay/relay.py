"""The relay: one consumer of the input, and an owner for each partition that the group gives it. One thread,
but for commits (turn.py).

Rule 1: what the group says is noted in its callbacks and done between two polls. It says who is to own a partition; an
        owner ends when another one fences it (take_over.py). One whose partition the group takes away stands in for who
        gets it.
Rule 2: one path for crash and error: whatever goes wrong in a turn, the owner is let go, and the partition is taken over
        anew, after a pause that grows. Others go on meanwhile. What comes of a partition without an owner is thrown away.
Rule 3: a relay that was kept from its steps (by its date too: the other clock stops while a machine sleeps), whose way to
        Kafka broke, or that leaves records with the client, as it takes only so many at once, or in the log, as the client
        had no room for more, delivers nothing before it has read the input to where that ends now: what came meanwhile may
        be due earlier. One that is on its way to an end goes on to that one: it delivers, however much comes.
Rule 4: a thread that asks for more than `statistics` holds the lock, which is free while the relay waits for records.
Rule 5: while much is read at once, the client is asked for no records now and then: a group shuts out who asks for none for
        max.poll.interval.ms. What the group says meanwhile waits, as do records.
Rule 6: who stands in for others (rule 1; for one that stops or is silent, signs.py) does so until he is fenced, fails, or
        for `STANDS_IN_NS`, if the group does not give it to him. Beside others, or if he hears that another owns the
        partition, he makes a turn then, and goes on if it is not fenced: whom the group gave it to may not be able to take
        it, and of two who took it at once each hears the other. One that stops goes on likewise for `STOPPING_NS`, if
        there are others, and they stand by: it takes them for its like.
Rule 7: who starts beside others reads up as a standby before it joins the group: what it is given need not wait.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from math import inf
from operator import methodcaller
from typing import Final

from confluent_kafka import KafkaError, Message

from waterclock.clock import Clock, SystemClock, WallClock
from waterclock.errors import ConnectionLost, UsageError, WaterclockError
from waterclock.kafka.admin import Admin, there_just_now
from waterclock.kafka.errors import Meaning, is_refusal, meaning_of, words_of
from waterclock.kafka.settings import base_settings
from waterclock.outside import threading
from waterclock.relay.cluster.group import Member, UnassignedPartitions, leave
from waterclock.relay.cluster.signs import Signs
from waterclock.relay.cluster.targets import Targets
from waterclock.relay.cluster.watcher import Retention, SameLogs, Watcher
from waterclock.relay.logs import Logs
from waterclock.relay.options import RelayOptions, StandsBy
from waterclock.relay.owner.context import Context, Reading, RecordRefused, in_silence, no_disk, staying
from waterclock.relay.owner.owner import GAP_NS, Owner
from waterclock.relay.owner.take_over import PendingTakeOver, TakeOver
from waterclock.relay.owner.turn import OwnerTurns
from waterclock.relay.standby.standby import Standby
from waterclock.relay.statistics import Counts, MessageStatistics, RelayStatistics
from waterclock.relay.store import Identity, StoreDamaged, say_unread
from waterclock.relay.upkeep.upkeep import LogUpkeep
from waterclock.relay.watching import gathering
from waterclock.relay.wire.topics import Topics, make_what_is_gone, prepare

log = logging.getLogger("waterclock.relay")
READ: Final = 10_000  # records taken from the client at once
IDLE_S: Final = 0.25  # the longest wait: what has come near is loaded, and checkpoints are written
STALLED_NS: Final = 5_000_000_000  # without a record, while some are to be read
STANDS_IN_NS: Final = 15_000_000_000  # two of the group's sessions
BESIDE_S: Final = 2.0
STOPPING_NS: Final = 2_000_000_000


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
        self._gathered_ns, self._stepped_ns, self._stepped_ms = 0, self._clock.monotonic_ns(), self._clock.wall_ms()
        self._stands_in: dict[int, int] = {}  # until when (rule 6)
        self._stops_ns: int | None = None
        self._statistics = RelayStatistics(options.group, options.topic, partitions_of_topic=self._count)
        self._logs = Logs(self._settings, self._machine)
        self._member = Member(self._settings, self.topics.input, options.group, options.name, self._end_of, lost)
        self._watcher = Watcher(self._admin.client, self._clock)
        self._same_logs = SameLogs(self._watcher, ids)
        Retention(self._watcher, self.topics, options.servers)
        self._unassigned = UnassignedPartitions(self._watcher, self._member, self._settings, self._count)
        self._signs = Signs(self._admin.client, options.group, self.topics.input, self._count)
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
            outsider=member.outsider,
            reading=lambda *how_far: (member.consumer.consume(0, 0), reading(*how_far)),  # rule 5
        )

    def _end_of(self, number: int) -> int:
        if number in self.owners:
            return self.owners[number].position
        try:
            with self._logs.asking_for(self._patience_s):
                return self._logs.bounds(self.topics.input, number)[1]
        except WaterclockError:
            return 0  # it is read in vain for a while

    @property
    def _patience_s(self) -> float:
        """How long a partition's leader, or its coordinator, is waited for: other partitions wait for that."""
        return BESIDE_S if len(self.owners) + len(self._pending) > 1 else inf

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
        with self.lock, self._logs.asking_for(self._patience_s):
            now_ns, now_ms = self._clock.monotonic_ns(), self._clock.wall_ms()
            doubtful = self._hear_of_others(now_ns)
            was_kept = max(now_ns - self._stepped_ns, (now_ms - self._stepped_ms) * 1_000_000) > GAP_NS
            for owner in self.owners.values():
                owner.known_ns = now_ns
                if member.connection_broke or was_kept:  # rule 3
                    owner.may_have_missed_input = True
            member.connection_broke, self._stepped_ns, self._stepped_ms = False, now_ns, now_ms
            done = self._ingest(messages)
            # a turn of each partition that there is something for, and what is done beside turns
            owned = list(self.owners.items())
            wanting = [owner for n, owner in owned if self._of(n, self._turns.is_wanted) or n in doubtful]
            done += self._turns.run(wanting)
            for owner in list(self.owners.values()):
                done += self._of(owner.number, self._keep_up if owner in wanting else self._keep)
            member.pause({number for number, owner in self.owners.items() if owner.held})
            self._take_overs(now_ns)  # last: what was read before is nothing for a new owner
            if not member.has_joined and (not self._unassigned.others or self.standby.is_as_far_as_can_be()):  # rule 7
                member.join()
            self.standby.is_ready = self._stops_ns is None and (member.was_given or not member.has_joined)
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
        for each in (self._signs, self._unassigned, self._turns, self._upkeep, self._logs):
            each.close()

    def goes_on(self, is_stopped: bool) -> bool:
        """Whether there is something to do: once it is stopped, as long as others may take over what it owns (rule 6)."""
        if is_stopped and self._stops_ns is None:
            self._stops_ns = self._clock.monotonic_ns() + STOPPING_NS
        others = self._unassigned.others or len(self.owners) < self._count  # who has come since the last look
        is_awaited = bool(self.owners and others and self._options.standby is StandsBy.ALL)
        return self._stops_ns is None or (is_awaited and self._clock.monotonic_ns() < self._stops_ns)

    def _hear_of_others(self, now_ns: int) -> set[int]:
        """Rules 1 and 6; which partitions are to have a turn, to see whether they are fenced."""
        doubtful = set[int]()
        taken, self._member.taken = self._member.taken, set()
        for number in taken:
            self._pending.pop(number, None)
            if number in self.owners:
                self._stands_in[number] = now_ns + STANDS_IN_NS
                self._member.read_from(number, self.owners[number].position)
        self._signs.hear()
        for number in list(self.owners):
            until_ns, is_anothers = self._stands_in.get(number, self._stops_ns), self._signs.is_anothers(number)
            if until_ns is None or (now_ns < until_ns and not is_anothers):
                continue
            if number in self._stands_in and (is_anothers or self._unassigned.others):
                self._stands_in[number] = now_ns + STANDS_IN_NS
                self._signs.pass_over(number)
                self._of(number, methodcaller("checkpoint"))  # that turn may be its last deed
                doubtful.add(number)
            else:
                self._let_go(number, checkpoint=True)
                self._stands_in.pop(number, None)
        owns_all = len(self.owners) == self._count  # else others have joined since the last look
        self._signs.is_alone = owns_all and not (self._unassigned.others or self._stands_in)
        self._signs.own({number: owner.command_position for number, owner in self.owners.items()}, bool(self._stops_ns))
        return doubtful

    def _take_overs(self, now_ns: int) -> None:
        given, self._member.given = self._member.given, set()
        if self._stops_ns is not None:
            self._pending.clear()
            return
        for number in given:
            self._stands_in.pop(number, None)
            if number not in self.owners and number not in self._pending:
                self._pending[number] = PendingTakeOver(self._clock)
        reads_up = any(not owner.has_caught_up for owner in self.owners.values())
        for number, lives in self._signs.orphans():
            is_mine = number in self.owners or number in self._pending
            waits = lives and reads_up  # its owner delivers, and the last one that was taken does not yet
            if not is_mine and not waits and self.standby.has_read_up(number, nearly=lives):
                self._signs.take(number)
                self._stands_in[number] = now_ns + STANDS_IN_NS
                self._pending[number] = PendingTakeOver(self._clock)
                break
        # one in a step: another one's owner goes on meanwhile
        number, pending = next(((n, each) for n, each in self._pending.items() if each.backoff.is_time), (-1, None))
        if pending is not None:
            self._take_over(number, pending)

    # Owners

    def _take_over(self, number: int, pending: PendingTakeOver) -> None:
        try:
            take_over = TakeOver(self._context, number, self._patience_s)
            if pending.backoff.attempts:  # the first one of a dead owner's is in haste
                self._same_logs.check()
            if number >= self._count:
                take_over.refuse_fewer()
            owner = take_over.run(self.standby.hand_over(number))
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
        """Another attempt behind a pause; none if this relay is not the one to own it (rule 6)."""
        self._pending.pop(number, None)
        if self._stands_in.pop(number, None) is not None or self._stops_ns is not None:
            log.info("%s-%d is left to others: %s", self.topics.input, number, error)
            return
        self._counts.breaks += 1
        self._lost(error)
        pending.backoff.failed()
        self._pending[number] = pending

    def _fail(self, number: int, error: WaterclockError) -> None:
        """Rule 2."""
        owner = self.owners[number]
        if isinstance(error, StoreDamaged):
            owner.set_aside(error)
        self._let_go(number, checkpoint=False)
        if isinstance(error, RecordRefused):
            make_what_is_gone(self._admin, self.topics, self._count)
        self._put_off(number, PendingTakeOver(self._clock, owner), error)
        if number in self._pending:
            log.warning("%s-%d is taken over anew: %s", self.topics.input, number, error)

    def _let_go(self, number: int, checkpoint: bool) -> None:
        owner = self.owners.pop(number)
        if number in self._stands_in:
            self._member.forget(number)
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
        if any(each.backoff.is_time for each in self._pending.values()):
            return 0.0
        most_s = min(most_s, 0.05) if self._pending or self._member.given else most_s
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
            for number in list(self.owners):
                self._let_go(number, checkpoint=True)
            self._pending.clear()
            self._stands_in.clear()
            self._member.join_again(self._clock.monotonic_ns())
            return
        if is_refusal(error) or meaning_of(error) is Meaning.NO_GROUP:
            raise UsageError(f"Kafka refuses the relay: {words_of(error)}. Look at --kafka-config and the rights.")
        if error.code() == KafkaError._AUTO_OFFSET_RESET:
            if message.partition() in self.owners:
                where = f"{self.topics.input}-{message.partition()}"
                self._fail(message.partition(), ConnectionLost(f"{where} has no records any more where it was read"))
        else:
            self._lost(ConnectionLost(f"Kafka says: {words_of(error)}."))

    def _of(self, number: int, action: Callable[[Owner], int]) -> int:
        """Do something with the owner of a partition; without one, or if it fails, nothing."""
        owner = self.owners.get(number)
        if owner is None:
            return 0
        try:
            return action(owner)
        except (ConnectionLost, StoreDamaged) as error:
            self._fail(number, error)
        except OSError as error:  # no file is left to this process
            self._fail(number, no_disk(self._context.place_of(number), error))
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
