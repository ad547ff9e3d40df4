"""What no owner will read again is cut off both logs, by DeleteRecords.

Rule 1: the input below the swept mark, as far as commands are answered and this owner's files have it durably.
        TOPIC.settled below where it is read beside the last snapshot but one, as far as these files have that.
Rule 2: what these marks hang on was committed before. A zombie that cuts off by its own marks takes nothing that is needed:
        what was swept once stays so.
Rule 3: nobody waits for it. Where Kafka refuses it, that is said, and asked again after `AGAIN_NS`: the logs grow.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, TopicPartition

from waterclock.kafka.errors import words_of
from waterclock.relay.logs import offset_of
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
        owner, watcher = self._owner, self._owner.context.watcher
        if self._is_asked or owner.context.clock.monotonic_ns() < self._again_ns:
            return
        for topic, low, offset in self._wanted():
            if offset > low:
                self._is_asked = True
                watcher.once(watcher.client.delete_records([TopicPartition(topic, owner.number, offset)]), self._hear)
                return

    def _wanted(self) -> list[tuple[str, int, int]]:
        owner, topics = self._owner, self._owner.context.topics
        log_span, store = owner.log_span, owner.store
        first = log_span.snapshots[0] if len(log_span.snapshots) > 1 else 0
        cuts = [(topics.settled, log_span.settled_low, min(first, store.settled_position))]
        if store.fingerprint is not None:  # that record is compared at a take-over
            offset = min(log_span.moves.swept, owner.command_position, offset_of(store.fingerprint))
            if log_span.volume.since(log_span.low) - log_span.volume.since(offset) >= self._least:
                cuts.append((topics.input, log_span.low, offset))
        return cuts

    def _hear(self, answers: Mapping[TopicPartition, Any]) -> None:
        self._is_asked = False
        ((place, future),) = answers.items()
        owner, log_span = self._owner, self._owner.log_span
        try:
            low = future.result().low_watermark
        except KafkaException as error:
            self._again_ns = owner.context.clock.monotonic_ns() + AGAIN_NS
            log.warning(
                "%s-%d is not cut off, and grows: %s. The relay's user needs the right Delete of that topic.",
                place.topic,
                owner.number,
                words_of(error),
            )
            return
        if place.topic == owner.context.topics.input:
            log_span.begins(low, log_span.settled_low)
        else:
            log_span.begins(log_span.low, low)
