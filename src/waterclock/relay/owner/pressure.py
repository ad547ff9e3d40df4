"""Which partitions are not read for now: those whose owners hold records that they cannot file.

Rule 1: what is held stays as little as it is. The rest waits in the log, and librdkafka goes on where it was.
"""

from __future__ import annotations

from collections.abc import Mapping

from confluent_kafka import Consumer, TopicPartition

from waterclock.relay.owner.owner import Owner


class Pressure:
    """Of one consumer of the input."""

    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer, self._topic = consumer, topic
        self._paused: set[int] = set()

    def keep(self, owners: Mapping[int, Owner]) -> None:
        """Read of the owners that hold nothing, and of partitions without one."""
        held = {number for number, owner in owners.items() if owner.held}
        if held - self._paused:
            self._consumer.pause(self._places(held - self._paused))
        if self._paused - held:
            self._consumer.resume(self._places(self._paused - held))
        self._paused = held

    def _places(self, numbers: set[int]) -> list[TopicPartition]:
        return [TopicPartition(self._topic, number) for number in sorted(numbers)]
