"""How far groups are behind, as the statistics say it: by records, the group most behind first, with bounded work."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("confluent_kafka")

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from waterclock.broker import Broker
from waterclock.broker.groups import lags as module
from waterclock.broker.statistics import GroupLag


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        broker.create_topic("orders", 2)
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(10):
            producer.produce("orders", b"x", partition=number % 2)
        producer.flush()
        yield broker


def commit(broker: Broker, group: str, *offsets: int) -> None:
    """The group has read so far, partition by partition."""
    own = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition("orders", number, offset) for number, offset in enumerate(offsets)]
    own.commit(offsets=places, asynchronous=False)
    own.close()


def test_a_lag_is_what_a_group_has_not_committed_and_who_is_most_behind_stands_first(broker: Broker) -> None:
    commit(broker, "near", 5, 4)
    commit(broker, "far", 1)
    commit(broker, "beyond", 7, 5)  # an offset of no record yet is no lag of less than nothing
    found = broker.statistics().lags
    assert list(found.items()) == [
        ("far", GroupLag("Empty", 0, 1, 4)), ("near", GroupLag("Empty", 0, 2, 1)), ("beyond", GroupLag("Empty", 0, 2, 0)),
    ]  # fmt: skip


def test_a_topic_that_is_gone_counts_for_nobody(broker: Broker) -> None:
    commit(broker, "near", 1, 1)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_topics(["orders"])["orders"].result(20)
    assert sum(one.lag for one in broker.statistics().lags.values()) == 0


def test_no_more_than_so_many_offsets_are_looked_at(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(6):
        commit(broker, f"group-{number}", 1, 1)
    monkeypatch.setattr(module, "LOOKED", 4)
    assert len(broker.statistics().lags) == 2
    monkeypatch.setattr(module, "LOOKED", 10_000)
    monkeypatch.setattr(module, "MOST", 3)
    assert len(broker.statistics().lags) == 3
