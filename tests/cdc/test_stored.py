"""The position that was committed last is found, whatever else Kafka says of the topic's end."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from waterclock.cdc.position import Position
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.stored import last_position
from waterclock.kafka import library
from waterclock.testing import Broker


class Early(library.Consumer):
    """Says first that the partition ends where it begins: as of a leader that was just elected."""

    has_said = False

    def poll(self, timeout: float = -1.0) -> Any:
        if self.has_said:
            return super().poll(timeout)
        self.has_said = True
        return Message("early.position", 0, 0, error=KafkaError(KafkaError._PARTITION_EOF))


def test_an_end_that_comes_before_what_was_committed_is_not_believed(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A capture that took it for a new name's began anew: all came a second time."""
    publisher = Publisher(Target(broker.bootstrap, "early"), "early")
    publisher.commit(Position("0-1-7"))
    publisher.close()
    monkeypatch.setattr(library, "Consumer", Early)
    assert last_position({"bootstrap.servers": broker.bootstrap}, "early.position") == Position("0-1-7")
