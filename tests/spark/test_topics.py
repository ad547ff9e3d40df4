"""The contract of pipelines on a topic, by the way that needs nothing but pip, on our broker."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from itertools import count

import pytest

if not importlib.util.find_spec("confluent_kafka") or not importlib.util.find_spec("kio"):
    pytest.skip("needs waterclock[kafka,broker]", allow_module_level=True)

from tests.topic_contract import *  # noqa: F403
from waterclock.testing import Broker

pytestmark = pytest.mark.spark
_numbers = count()


@pytest.fixture
def way() -> str:
    return "python"


@pytest.fixture
def bootstrap(kafka_broker: Broker) -> str:
    return kafka_broker.bootstrap


@pytest.fixture
def new_topic(kafka_broker: Broker) -> Callable[[int], str]:
    def make(partitions: int) -> str:
        name = f"orders-{next(_numbers)}"
        kafka_broker.create_topic(name, partitions)
        return name

    return make
