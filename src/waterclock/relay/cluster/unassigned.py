"""Partitions that the group has assigned to nobody, though it is stable: nothing of theirs would be delivered, for ever.

Rule 1: it happens. A member gives partitions back, dies before it joins anew, and is there again under its name. The group
        takes it for the one that was there, and nobody asks for the second half of the cooperative rebalance
        (`test_what_a_relay_gave_back_before_it_died_is_given_to_somebody`). A relay that stands by does not cover it: it
        keeps the partition's files, and delivers nothing before the group assigns the partition to it.
Rule 2: if two looks in a row, `LOOK_NS` apart, find the same partitions in a group that is stable, the first of its members
        joins it a second time, for a moment, under no name: who comes and who goes has the group share anew.
Rule 3: if the right to look is missing, that is said once, and again when it was there meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition

from waterclock.kafka.errors import words_of
from waterclock.relay.cluster.group import Member, join, leave
from waterclock.relay.cluster.watcher import Answers, Watcher

log = logging.getLogger("waterclock.relay")
LOOK_NS: Final = 3_000_000_000
GUEST_NS: Final = 10_000_000_000
_FORBIDDEN: Final = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


class UnassignedPartitions:
    """Of a member's group and its topic of so many partitions; `settings` are for a guest."""

    def __init__(self, watcher: Watcher, member: Member, settings: Mapping[str, Any], partitions: int) -> None:
        self._watcher = watcher
        self._member = member
        self._settings = settings
        self._topic = member.topic
        self._group = group = member.group
        self._all = frozenset(range(partitions))
        self.may_look = True
        self._last: frozenset[int] = frozenset()
        self._guest: Consumer | None = None
        self._guest_was_given, self._guest_until_ns = False, 0
        watcher.ask(LOOK_NS, lambda: watcher.client.describe_consumer_groups([group]), self._hear)

    def _hear(self, answers: Answers) -> None:
        if self._guest is not None:
            return
        try:
            found = answers[self._group].result()
        except KafkaException as error:
            if error.args[0].code() in _FORBIDDEN and self.may_look:
                self._warn_of_right(error)
            self._last = frozenset()
            return
        self.may_look, unassigned = True, frozenset[int]()
        is_first = min((one.member_id for one in found.members), default="") == self._member.consumer.memberid()
        if is_first and found.state == ConsumerGroupState.STABLE:
            places = (place for one in found.members for place in one.assignment.topic_partitions)
            unassigned = self._all - {place.partition for place in places if place.topic == self._topic}
        if unassigned and unassigned == self._last:
            numbers = ", ".join(map(str, sorted(unassigned)))
            log.warning("nobody has %s of %s, though the group rests: having it share anew", numbers, self._topic)
            self._guest_was_given, self._guest_until_ns = False, self._watcher.clock.monotonic_ns() + GUEST_NS
            given, taken = self._given, Consumer.incremental_unassign
            self._guest = join(self._settings, self._topic, self._group, name=None, on_given=given, on_taken=taken)
            unassigned = frozenset()
        self._last = unassigned

    def _warn_of_right(self, error: KafkaException) -> None:
        """Rule 3."""
        self.may_look = False
        log.warning(
            "Kafka does not describe the group %s (%s). Should it give partitions of %s to nobody after a relay has died, "
            "that is not noticed, and nothing due there is delivered before a relay is started or ended. The relay's user "
            "needs the right Describe of that group.",
            self._group,
            words_of(error),
            self._topic,
        )

    def _given(self, consumer: Consumer, places: list[TopicPartition]) -> None:
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
