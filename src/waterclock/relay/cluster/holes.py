"""Partitions that the group has given to nobody, though it is at rest: nothing of theirs would be delivered, for ever.

Rule 1: it happens. A member gives partitions back, dies before it joins anew, and is there again under its name. The group
        takes it for the one that was there, and nobody asks for the second half of the cooperative rebalance
        (`test_what_a_relay_gave_back_before_it_died_is_given_to_somebody`).
Rule 2: where two looks in a row, `LOOK_NS` apart, find the same hole in a group that is stable, the first of its members
        joins it a second time, for a moment, under no name: who comes and who goes has the group share anew.
Rule 3: a look waits for no answer: it is asked for in one step, and read in a later one.
Rule 4: where the right to look is missing, that is said once, and again when it was there meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, ConsumerGroupState, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from waterclock.clock import WallClock
from waterclock.kafka.errors import words_of
from waterclock.relay.cluster.group import join, leave

log = logging.getLogger("waterclock.relay")
LOOK_NS: Final = 3_000_000_000
GUEST_NS: Final = 10_000_000_000
_FORBIDDEN: Final = (KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.CLUSTER_AUTHORIZATION_FAILED)


class Holes:
    """Of one group and its topic of so many partitions; `settings` are for a guest."""

    def __init__(
        self,
        client: AdminClient,
        settings: Mapping[str, Any],
        topic: str,
        group: str,
        partitions: int,
        clock: WallClock,
    ) -> None:
        self._settings, self._topic, self._group, self._clock = settings, topic, group, clock
        self._all = frozenset(range(partitions))
        self._client = client
        self._look_ns = clock.monotonic_ns() + LOOK_NS
        self._asked: Any = None
        self._may_look = True
        self._last: frozenset[int] = frozenset()
        self._guest: Consumer | None = None
        self._guest_was_given, self._guest_until_ns = False, 0

    def step(self, member: str) -> None:
        """Look where it is time to, and do something about what was found; `member` is this relay's own id in the group."""
        now_ns = self._clock.monotonic_ns()
        if self._guest is not None:
            self._host(now_ns)
        elif self._asked is None and now_ns >= self._look_ns:
            self._look_ns = now_ns + LOOK_NS
            self._asked = self._client.describe_consumer_groups([self._group])[self._group]
        elif self._asked is not None and self._asked.done():
            asked, self._asked = self._asked, None
            holes = self._holes(asked, member)
            if holes and holes == self._last:
                self._invite(holes, now_ns)
            self._last = holes

    def _holes(self, asked: Any, member: str) -> frozenset[int]:
        """What nobody has; nothing where that is not known, or is for another member to see to."""
        try:
            told = asked.result()
        except KafkaException as error:
            self._not_told(error)
            return frozenset()
        self._may_look = True
        if (
            told.state != ConsumerGroupState.STABLE
            or min((one.member_id for one in told.members), default="") != member
        ):
            return frozenset()
        places = (place for one in told.members for place in one.assignment.topic_partitions)
        return self._all - {place.partition for place in places if place.topic == self._topic}

    def _not_told(self, error: KafkaException) -> None:
        """Rule 4."""
        if error.args[0].code() not in _FORBIDDEN or not self._may_look:
            return
        self._may_look = False
        log.warning(
            "Kafka does not describe the group %s (%s). Should it give partitions of %s to nobody after a relay has died, "
            "that is not noticed, and nothing due there is delivered before a relay is started or ended. The relay's user "
            "needs the right Describe of that group.",
            self._group,
            words_of(error),
            self._topic,
        )

    def _invite(self, holes: frozenset[int], now_ns: int) -> None:
        numbers = ", ".join(map(str, sorted(holes)))
        log.warning("nobody has %s of %s, though the group rests: having it share anew", numbers, self._topic)
        self._guest_was_given, self._guest_until_ns = False, now_ns + GUEST_NS
        self._guest = join(self._settings, self._topic, self._group, name=None, on_given=self._given, on_taken=_taken)

    def _given(self, consumer: Consumer, places: list[TopicPartition]) -> None:
        consumer.incremental_assign(places)
        consumer.pause(places)
        self._guest_was_given = True

    def _host(self, now_ns: int) -> None:
        assert self._guest is not None, "there is a guest"
        self._guest.poll(0)
        if self._guest_was_given or now_ns >= self._guest_until_ns:
            self.close()
            self._look_ns, self._last = now_ns + LOOK_NS, frozenset()

    def close(self) -> None:
        """Nobody is a guest any more."""
        guest, self._guest = self._guest, None
        if guest is not None:
            leave(guest)


def _taken(consumer: Consumer, places: list[TopicPartition]) -> None:
    consumer.incremental_unassign(places)
