"""A relay as a member of its consumer group: how it joins and leaves, what the group has said, what is read for it.

Rule 1: what the group says is heard in callbacks of the consumer's `poll`; what is done about it is for relay.py.
Rule 2: a consumer is left before it is closed, and hears all that the group has said to it, one that is shut out too:
        librdkafka hangs in `close` if a partition is just being given to it, and its thread uses up a processor.

`UnassignedPartitions`: the group may have assigned partitions to nobody, though it is stable, and nothing of theirs would
be delivered, for ever.

Rule 3: it happens. A member gives partitions back, dies before it joins anew, and is there again under its name. The group
        takes it for the one that was there, and nobody asks for the second half of the cooperative rebalance
        (`test_what_a_relay_gave_back_before_it_died_is_given_to_somebody`). A relay that stands in covers it for
        some seconds (relay.py, rule 6).
Rule 4: if two looks in a row, `LOOK_NS` apart, find the same partitions in a group that is stable, the first of its members
        joins it a second time, for a moment, under no name: who comes and who goes has the group share anew.
Rule 5: if the right to look is missing, that is logged once, and again if it was there meanwhile.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, Message, TopicPartition

from waterclock.errors import ConnectionLost, UsageError, WaterclockError
from waterclock.kafka import library
from waterclock.kafka.errors import words_of
from waterclock.outside import threading
from waterclock.relay.cluster.watcher import Answers, Watcher

log = logging.getLogger("waterclock.relay")
SESSION_MS: Final = 6_000
HEARTBEAT_MS: Final = 300  # who lives hears so soon that another is gone, and that something is to be given back
LEAVING_POLLS: Final = 100  # two seconds
CLOSING_S: Final = 10.0
_SILENT: Final = {  # unless the user sets it: a connection that has died without a word is given up in ten seconds, not in
    # a minute; an answer is so small that a slow link carries it in this time
    "socket.timeout.ms": 10_000,
    "fetch.max.bytes": 8 << 20,
}
_CONSUMER: Final[dict[str, Any]] = {
    "isolation.level": "read_committed",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "enable.partition.eof": True,
    "partition.assignment.strategy": "cooperative-sticky",  # a partition that stays is not taken over again
    "session.timeout.ms": SESSION_MS,
    "heartbeat.interval.ms": HEARTBEAT_MS,
    "fetch.wait.max.ms": 100,
    "fetch.message.max.bytes": 1 << 20,  # compressed: of what packs well, many times as much in memory
    "queued.max.messages.kbytes": 32_768,
    "fetch.queue.backoff.ms": 5,
}
_FENCED_AGAIN_NS: Final = 60_000_000_000
LOOK_NS: Final = 3_000_000_000
_ANSWER_S: Final = 5.0
GUEST_NS: Final = 10_000_000_000
_FORBIDDEN: Final = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


class Member:
    """One member of the `group`, and its consumer of `topic`; `name` is a static member's. For one thread.

    `given`, `taken`: partitions that the group has given or taken away, and that nothing was done about yet; `end_of` says
    where one ends, more or less. `connection_broke`: the way to Kafka broke, and nothing was done about that yet; `lost` is
    called if all brokers are away. `was_given`: the group has answered. `outsider`: the group's metadata of nobody.
    """

    def __init__(
        self,
        settings: Mapping[str, Any],
        topic: str,
        group: str,
        name: str | None,
        end_of: Callable[[int], int],
        lost: Callable[[WaterclockError], object],
    ) -> None:
        self._settings = {**settings, "error_cb": self.on_error}
        self.topic = topic
        self.group = group
        self.name = name
        self._end_of = end_of
        self._lost = lost
        self.connection_broke = self.was_given = False
        self._fenced_ns: deque[int] = deque(maxlen=2)
        asking = library.Consumer({**settings, "group.id": group})
        self.outsider = asking.consumer_group_metadata()
        asking.close()
        self.open()

    def open(self) -> None:
        """A consumer that is in no group yet. Nothing is known of what another one was given."""
        self.given: set[int] = set()
        self.taken: set[int] = set()
        self._paused: set[int] = set()
        self.has_joined = False
        self.consumer = _consumer(self._settings, self.group, self.name)

    def join(self) -> None:
        """Be one of the group from now on."""
        _subscribe(self.consumer, self.topic, self.on_given, self._on_taken)
        self.has_joined = True

    def join_again(self, now_ns: int) -> None:
        """The group says that another has this one's name. It may have been itself: of two requests to join, the first was
        delayed, and came last; or a broker that leads anew has lost who it was. Said three times within a minute: there
        are two, and that is a UsageError."""
        if sum(now_ns - at < _FENCED_AGAIN_NS for at in self._fenced_ns) == 2:
            raise UsageError(
                f"Another relay of the group {self.group} has the name {self.name}: give each its own (--name)."
            )
        log.warning("the group %s says that another has the name %s: joining anew", self.group, self.name)
        self._fenced_ns.append(now_ns)
        leave(self.consumer)
        self.open()
        self.join()

    def on_error(self, error: KafkaError) -> None:
        """librdkafka says this of its connections."""
        self.connection_broke = True
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._lost(ConnectionLost(f"Kafka is away: {words_of(error)}."))

    def on_given(self, consumer: library.Consumer, places: Sequence[TopicPartition]) -> None:
        """The group has given these partitions. They are read at their ends for now: whoever takes one over says where it
        begins.

        To pause them would be to wait: librdkafka looks at one that is read again only when it looks at others, or after a
        second. The end is a number: librdkafka asks where OFFSET_END is, and goes there even if it was given another offset
        meanwhile. What stands before would be lost.
        """
        for each in places:
            self.forget(each.partition)
            each.offset = self._end_of(each.partition)
        consumer.incremental_assign(list(places))
        self.given |= {each.partition for each in places}
        self.was_given = True

    def _on_taken(self, consumer: library.Consumer, places: Sequence[TopicPartition]) -> None:
        numbers = {each.partition for each in places}
        self.given -= numbers
        self.taken |= numbers
        consumer.incremental_unassign(list(places))

    def read(self, wait_s: float, most: int) -> list[Message]:
        """Records and errors, once there is one, `wait_s` at most."""
        first = self.consumer.poll(wait_s)
        return [] if first is None else [first, *self.consumer.consume(most, 0)]

    @staticmethod
    def are_all(messages: Sequence[Message], most: int) -> bool:
        """Whether the client had no more than these, which `read` gave: it was asked for more, and its room was not full.
        How it counts what it holds is its own affair: half full is full."""
        return len(messages) <= most and sum(map(len, messages)) < _CONSUMER["queued.max.messages.kbytes"] << 9

    def read_from(self, number: int, offset: int) -> None:
        """Read a partition from there on, whether the group gave it or not."""
        self.forget(number)
        self.consumer.incremental_assign([TopicPartition(self.topic, number, offset)])

    def forget(self, number: int) -> None:
        """Read a partition no more."""
        if any(each.partition == number for each in self.consumer.assignment()):
            self.consumer.incremental_unassign([TopicPartition(self.topic, number)])

    def pause(self, numbers: set[int]) -> None:
        """Read all but these. What is not read waits in the log, and librdkafka goes on where it was."""
        if paused := numbers - self._paused:
            self.consumer.pause([TopicPartition(self.topic, number) for number in sorted(paused)])
        if resumed := self._paused - numbers:
            self.consumer.resume([TopicPartition(self.topic, number) for number in sorted(resumed)])
        self._paused = numbers


def join(
    settings: Mapping[str, Any],
    topic: str,
    group: str,
    *,
    name: str | None,
    on_given: Callable[..., object],
    on_taken: Callable[..., object],
) -> library.Consumer:
    """A consumer of the topic, in the group; `name`: a static member's."""
    consumer = _consumer(settings, group, name)
    _subscribe(consumer, topic, on_given, on_taken)
    return consumer


def _consumer(settings: Mapping[str, Any], group: str, name: str | None) -> library.Consumer:
    member = {} if name is None else {"group.instance.id": name}
    return library.Consumer({**_SILENT, **settings, **_CONSUMER, **member, "group.id": group})


def _subscribe(
    consumer: library.Consumer, topic: str, on_given: Callable[..., object], on_taken: Callable[..., object]
) -> None:
    consumer.subscribe([topic], on_assign=on_given, on_revoke=on_taken, on_lost=on_taken)


def leave(consumer: library.Consumer) -> None:
    """Leave the group, then close. Rule 2."""
    was_given = bool(consumer.assignment())
    with suppress(KafkaException):  # one that is shut out has left
        consumer.unsubscribe()
    for polls in range(LEAVING_POLLS):
        is_all_heard = consumer.poll(0.02) is None
        if is_all_heard and (was_given or polls >= 5) and not consumer.assignment():
            break
    # librdkafka may hang here all the same: then it is left to the end of the process
    closing = threading.Thread(target=consumer.close, name="leaving", daemon=True)
    closing.start()
    closing.join(CLOSING_S)
    if closing.is_alive():
        log.warning("the consumer does not close within %d seconds: it is left behind", CLOSING_S)


class UnassignedPartitions:
    """Looks for partitions of a member's topic, which has so many, that its group has assigned to nobody; `settings` are
    for a guest. `others`: how many other members the group had at the last look, as far as is known."""

    def __init__(self, watcher: Watcher, member: Member, settings: Mapping[str, Any], partitions: int) -> None:
        self._watcher = watcher
        self._member = member
        self._settings = settings
        self._topic = member.topic
        self._group = member.group
        self._all = frozenset(range(partitions))
        self.may_look, self.others = True, 0
        self._last: frozenset[int] = frozenset()
        self._guest: library.Consumer | None = None
        self._guest_was_given, self._guest_until_ns = False, 0
        watcher.ask(LOOK_NS, self._ask, self._hear)
        self._hear(self._ask())

    def _ask(self) -> Answers:
        answers: Answers = self._watcher.client.describe_consumer_groups([self._group], request_timeout=_ANSWER_S)
        return answers

    def _hear(self, answers: Answers) -> None:
        member = self._member
        if self._guest is not None:
            return
        try:
            found = answers[self._group].result()
        except KafkaException as error:
            if error.args[0].code() in _FORBIDDEN and self.may_look:
                self._warn_of_right(error)
            self._last = frozenset()
            return
        named = [one for one in found.members if one.group_instance_id is None or one.group_instance_id != member.name]
        self.others = sum(one.member_id != member.consumer.memberid() for one in named)
        self.may_look, unassigned = True, frozenset[int]()
        is_first = min((one.member_id for one in found.members), default="") == member.consumer.memberid()
        if is_first and found.state == ConsumerGroupState.STABLE:
            places = (place for one in found.members for place in one.assignment.topic_partitions)
            unassigned = self._all - {place.partition for place in places if place.topic == self._topic}
        if unassigned and unassigned == self._last:
            numbers = ", ".join(map(str, sorted(unassigned)))
            log.warning("nobody has %s of %s, though the group rests: having it share anew", numbers, self._topic)
            self._guest_was_given, self._guest_until_ns = False, self._watcher.clock.monotonic_ns() + GUEST_NS
            given, taken = self._given, library.Consumer.incremental_unassign
            self._guest = join(self._settings, self._topic, self._group, name=None, on_given=given, on_taken=taken)
            unassigned = frozenset()
        self._last = unassigned

    def _warn_of_right(self, error: KafkaException) -> None:
        """Rule 5."""
        self.may_look = False
        log.warning(
            "Kafka does not describe the group %s (%s). Should it give partitions of %s to nobody after a relay has died, "
            "that is not noticed, and nothing due there is delivered before a relay is started or ended. The relay's user "
            "needs the right Describe of that group.",
            self._group,
            words_of(error),
            self._topic,
        )

    def _given(self, consumer: library.Consumer, places: list[TopicPartition]) -> None:
        consumer.incremental_assign(places)
        consumer.pause(places)
        self._guest_was_given = True

    def step(self) -> None:
        """Have the guest hear the group, until it was given something."""
        if self._guest is not None:
            self._guest.poll(0)
            if self._guest_was_given or self._watcher.clock.monotonic_ns() >= self._guest_until_ns:
                self.close()

    def close(self) -> None:
        """Nobody is a guest any more."""
        guest, self._guest = self._guest, None
        if guest is not None:
            leave(guest)
