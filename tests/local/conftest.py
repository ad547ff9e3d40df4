"""A topic that more than one file of tests reads."""

from __future__ import annotations

import pytest

from waterclock.testing import Broker


@pytest.fixture
def topic(kafka_broker: Broker, kafka_topic: str) -> str:
    """One with three partitions."""
    name = f"{kafka_topic}-of-three"
    kafka_broker.create_topic(name, 3)
    return name
