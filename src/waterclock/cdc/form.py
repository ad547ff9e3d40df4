"""The seam to a form in which changes are written to Kafka, where that is not Maxwell's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from waterclock.changes.maxwell import MaxwellMessage


class KafkaMessage(NamedTuple):
    """`value` is None for a tombstone. `number` chooses the partition where there is no key to do it."""

    key: bytes | None
    value: bytes | None
    number: int = 0


class Form(Protocol):
    """`heartbeat_ms` is how often a heartbeat is due, 0 never."""

    heartbeat_ms: int

    def messages(self, change: MaxwellMessage) -> Iterator[KafkaMessage]:
        """What a change is written as, in its order."""

    def heartbeat(self, ts_ms: int) -> tuple[str, KafkaMessage]:
        """The topic of heartbeats, and one."""
