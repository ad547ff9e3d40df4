"""A broker whose clock stands, with a topic `t` of two partitions, and two clients by hand."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker.transactions.client import Client
from waterclock import ManualClock
from waterclock.broker import Broker


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(clock=ManualClock()) as broker:
        yield broker


@pytest.fixture
def client(broker: Broker) -> Iterator[Client]:
    with Client(broker.bootstrap) as client:
        client.create("t", 2)
        yield client


@pytest.fixture
def other(broker: Broker, client: Client) -> Iterator[Client]:
    """One more, which sees what the first one's request has done before that is answered."""
    with Client(broker.bootstrap) as other:
        yield other
