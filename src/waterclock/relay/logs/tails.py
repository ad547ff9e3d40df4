"""The logs of the partitions that are followed, as they come: one consumer for all of them, which waits for nothing.

Rule 1: only what is committed is seen, nothing is committed, and no group is joined.
Rule 2: a partition that was read before, and is to be read at another offset, gets a new consumer, as all others do:
        nothing that the old one had fetched may be taken for what comes next.
Rule 3: what is not taken yet stays with librdkafka, `_QUEUED` at most: whoever is slow reads slowly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from waterclock.kafka import Partition
from waterclock.kafka.settings import READING

_QUEUED: Final = {"queued.max.messages.kbytes": 16_384, "fetch.message.max.bytes": 1 << 20}
_CONSUMER: Final = {**READING, **_QUEUED, "group.id": "unused", "fetch.wait.max.ms": 500, "fetch.queue.backoff.ms": 5}


class TailConsumer:
    """Reads partitions from their offsets on."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = {**settings, **_CONSUMER}
        self._consumer: Consumer | None = None
        self._next: dict[Partition, int] = {}  # what is read, and which offset comes next
        self._known: set[Partition] = set()  # what this consumer ever read
        self._paused: set[Partition] = set()

    def add(self, place: Partition, offset: int) -> None:
        """Read it from there on."""
        self._next[place] = offset
        if self._consumer is None or place in self._known:  # rule 2
            self.close()
            self._consumer = Consumer(self._settings)
            self._known = set(self._next)
            self._consumer.assign([TopicPartition(*one, start) for one, start in self._next.items()])
        else:
            self._known.add(place)
            self._consumer.incremental_assign([TopicPartition(*place, offset)])

    def reads(self, place: Partition) -> bool:
        """Whether it is read."""
        return place in self._next

    def remove(self, place: Partition) -> None:
        """Read it no more."""
        if self._next.pop(place, None) is not None and self._consumer is not None:
            self._consumer.incremental_unassign([TopicPartition(*place)])
            self._paused.discard(place)

    def pause(self, place: Partition, is_paused: bool) -> None:
        """Have nothing come of it for now, or go on with it."""
        if self._consumer is None or (place in self._paused) is is_paused:
            return
        (self._consumer.pause if is_paused else self._consumer.resume)([TopicPartition(*place)])
        (self._paused.add if is_paused else self._paused.discard)(place)

    def take(self, most: int) -> list[Message]:
        """What has come, `most` at most: records, ends of partitions, and errors."""
        messages: list[Message] = [] if self._consumer is None else self._consumer.consume(most, 0)
        for message in messages:
            place = message.topic(), message.partition()
            if message.error() is None and place in self._next:
                self._next[place] = message.offset() + 1
        return messages

    def bounds(self, place: Partition) -> tuple[int, int] | None:
        """Where it began and ended when it was last fetched; None if that is not known."""
        if self._consumer is None:
            return None
        try:
            low, end = self._consumer.get_watermark_offsets(TopicPartition(*place), cached=True)
        except KafkaException:
            return None
        return (int(low), int(end)) if low >= 0 and end >= low else None

    def close(self) -> None:
        """Read nothing any more."""
        consumer, self._consumer = self._consumer, None
        self._known, self._paused = set(), set()
        if consumer is not None:
            consumer.close()
