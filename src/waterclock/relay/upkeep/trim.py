"""What no owner will read again is cut off both logs, by DeleteRecords.

Rule 1: the input below the swept mark, as far as commands are answered and this owner's files have it durably.
        TOPIC.settled below where it is read beside the last snapshot but one, as far as these files have that.
Rule 2: what these marks hang on was committed before. A zombie that cuts off by its own marks takes nothing that is needed:
        what was swept once stays so.
Rule 3: nobody waits for it. Where Kafka refuses it, that is said, and asked again after `AGAIN_NS`: the logs grow.
"""

from __future__ import annotations

import logging
from typing import Final

from confluent_kafka import KafkaException, TopicPartition

from waterclock.kafka.errors import words_of
from waterclock.relay.cluster.watcher import Answers
from waterclock.relay.logs.logs import offset_of
from waterclock.relay.owner.owner import Owner

log = logging.getLogger("waterclock.relay")
AGAIN_NS: Final = 600_000_000_000
PART_OF_LAP: Final = 16


class Trims:
    """Of one owner's partition."""

    def __init__(self, owner: Owner, lap_bytes: int) -> None:
        self._owner = owner
        self._least = lap_bytes // PART_OF_LAP
        self._is_asked = False
        self._again_ns = 0

    def step(self) -> None:
        """Ask for the next one, if there is something to cut off, and the last one was heard of."""
        owner, watcher = self._owner, self._owner.around.watcher
        if self._is_asked or owner.around.clock.monotonic_ns() < self._again_ns:
            return
        for topic, low, offset in self._wanted():
            if offset > low:
                self._is_asked = True
                watcher.once(watcher.client.delete_records([TopicPartition(topic, owner.number, offset)]), self._hear)
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

    def _hear(self, answers: Answers) -> None:
        self._is_asked = False
        ((place, future),) = answers.items()
        owner, extent = self._owner, self._owner.extent
        try:
            low = future.result().low_watermark
        except KafkaException as error:
            self._again_ns = owner.around.clock.monotonic_ns() + AGAIN_NS
            log.warning(
                "%s-%d is not cut off, and grows: %s. The relay's user needs the right Delete of that topic.",
                place.topic,
                owner.number,
                words_of(error),
            )
            return
        if place.topic == owner.around.topics.input:
            extent.begins(low, extent.settled_low)
        else:
            extent.begins(extent.low, low)
