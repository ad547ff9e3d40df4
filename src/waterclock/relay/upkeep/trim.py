"""What no owner will read again is cut off both logs, by DeleteRecords.

Rule 1: the input below the swept mark, as far as commands are answered and this owner's files have it durably.
        TOPIC.settled below where it is read beside the last snapshot but one, as far as these files have that.
Rule 2: what these marks hang on was committed before. A zombie that cuts off by its own marks takes nothing that is needed:
        what was swept once stays so.
Rule 3: nobody waits for it. Where Kafka refuses it, that is said, and asked again after `AGAIN_NS`: the logs grow.
"""

from __future__ import annotations

import logging
from concurrent.futures import Future
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from waterclock.kafka.errors import words_of
from waterclock.relay.logs.logs import offset_of
from waterclock.relay.owner.owner import Owner

log = logging.getLogger("waterclock.relay")
AGAIN_NS: Final = 600_000_000_000
PART_OF_LAP: Final = 16


class Cutter:
    """Asks Kafka; one for all partitions."""

    def __init__(self, client: AdminClient) -> None:
        self._client = client

    def cut(self, topic: str, partition: int, offset: int) -> Future[Any]:
        """Delete what stands before the offset. What comes back has `low_watermark`, or raises KafkaException."""
        asked: Future[Any]
        (asked,) = self._client.delete_records([TopicPartition(topic, partition, offset)]).values()
        return asked


class Trims:
    """Of one owner's partition."""

    def __init__(self, owner: Owner, cutter: Cutter, lap_bytes: int) -> None:
        self._owner, self._cutter, self._least = owner, cutter, lap_bytes // PART_OF_LAP
        self._asked: tuple[str, Future[Any]] | None = None
        self._again_ns = 0

    def step(self) -> None:
        """Hear what became of the last one; ask for the next one, if there is something to cut off."""
        if self._asked is not None:
            if self._asked[1].done():
                self._hear(*self._asked)
            return
        if self._owner.around.clock.monotonic_ns() < self._again_ns:
            return
        for topic, low, offset in self._wanted():
            if offset > low:
                self._asked = topic, self._cutter.cut(topic, self._owner.number, offset)
                return

    def _wanted(self) -> list[tuple[str, int, int]]:
        owner, topics = self._owner, self._owner.around.topics
        extent, store = owner.extent, owner.store
        first = extent.snapshots[0] if len(extent.snapshots) > 1 else 0
        cuts = [(topics.settled, extent.settled_low, min(first, store.settled_position))]
        if store.fingerprint is not None:  # that record is compared at a take-over
            offset = min(extent.moves.swept, owner.command_position, offset_of(store.fingerprint))
            if extent.volume.since(extent.low) - extent.volume.since(offset) >= self._least:
                cuts.append((topics.input, extent.low, offset))
        return cuts

    def _hear(self, topic: str, asked: Future[Any]) -> None:
        self._asked, extent = None, self._owner.extent
        try:
            low = asked.result().low_watermark
        except KafkaException as error:
            self._refused(topic, error)
            return
        if topic == self._owner.around.topics.input:
            extent.begins(low, extent.settled_low)
        else:
            extent.begins(extent.low, low)

    def _refused(self, topic: str, error: KafkaException) -> None:
        self._again_ns = self._owner.around.clock.monotonic_ns() + AGAIN_NS
        log.warning(
            "%s-%d is not cut off, and grows: %s. The relay's user needs the right Delete of that topic.",
            topic,
            self._owner.number,
            words_of(error),
        )
