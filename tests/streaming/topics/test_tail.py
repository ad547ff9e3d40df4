"""The end of topics by a consumer that stays: what came, where it stands, and what is trouble."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

if not importlib.util.find_spec("confluent_kafka") or not importlib.util.find_spec("kio"):
    pytest.skip("needs waterclock[kafka,broker]", allow_module_level=True)

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.spark.topics import Sender
from tests.streaming.topics.test_fetcher import settings
from waterclock.clock import SystemClock
from waterclock.streaming.topics import fetcher
from waterclock.streaming.topics.fetcher import client_for
from waterclock.streaming.topics.records import Records
from waterclock.streaming.topics.tail import Tail
from waterclock.testing import Broker

PATIENCE_S = 30.0


@pytest.fixture
def topic(kafka_broker: Broker, kafka_topic: str) -> str:
    """A topic with two partitions."""
    name = f"{kafka_topic}-two"
    kafka_broker.create_topic(name, 2)
    return name


@pytest.fixture
def tail(kafka_broker: Broker) -> Iterator[Tail]:
    made = Tail(client_for(settings(kafka_broker.bootstrap), 10.0))
    yield made
    made.close()


def taken(tail: Tail, *ends: int, most: int = 10_000) -> list[Records] | None:
    """What comes until the tail stands at these ends of the partitions; None at trouble."""
    clock, found = SystemClock(), list[Records]()
    until_s = clock.monotonic_s() + PATIENCE_S
    while list(tail.at.values()) != list(ends):
        assert clock.monotonic_s() < until_s, f"it stands at {tail.at}"
        came = tail.take(most)
        if came is None:
            return None
        found += came
    return found


def test_what_comes_comes_by_partition_and_offset_and_no_more_than_asked_for_at_once(
    kafka_broker: Broker, topic: str, tail: Tail
) -> None:
    sender = Sender(kafka_broker.bootstrap, topic)
    sender.put("before", "b", "c", partition=1)
    tail.stand({(topic, 0): 0, (topic, 1): 1})
    sender.put(*"0123456789")
    found = taken(tail, 10, 3, most=4) or []
    assert max(sum(len(each.offsets) for each in found if each.partition == p) for p in (0, 1)) == 10
    assert all(len(each.offsets) <= 4 for each in found)
    for partition, values in ((0, list("0123456789")), (1, ["b", "c"])):
        assert [v.decode() for each in found if each.partition == partition for v in each.values if v] == values
    sender.put("d", partition=1)
    sender.put("10")
    assert [each.partition for each in sorted(taken(tail, 11, 4) or [], key=lambda each: each.partition)] == [0, 1]


def test_records_are_cut_as_a_fetcher_cuts_them(
    kafka_broker: Broker, topic: str, tail: Tail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "CHUNK", 2)
    messages = Sender(kafka_broker.bootstrap, topic)
    messages.put(*"01234")
    tail.stand({(topic, 0): 0, (topic, 1): 0})
    found = taken(tail, 5, 0) or []
    assert sorted(offset for each in found for offset in each.offsets) == [0, 1, 2, 3, 4]
    assert max(len(each.offsets) for each in found) <= 2


def test_it_stands_behind_markers_and_gives_nothing_of_what_was_aborted(
    kafka_broker: Broker, topic: str, tail: Tail
) -> None:
    sender = Sender(kafka_broker.bootstrap, topic, transactional_id=topic)
    sender.producer.init_transactions(PATIENCE_S)
    tail.stand({(topic, 0): 0, (topic, 1): 0})
    sender.in_transaction("a", "b", committed=True)  # 0 1, marker 2
    sender.in_transaction("gone", committed=False)  # 3, marker 4
    found = taken(tail, 5, 0) or []
    assert [value for each in found for value in each.values] == [b"a", b"b"]


def test_what_is_cut_away_is_trouble_and_it_stands_where_it_stood(kafka_broker: Broker, topic: str, tail: Tail) -> None:
    Sender(kafka_broker.bootstrap, topic).put(*"0123456789")
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    (done,) = admin.delete_records([TopicPartition(topic, 0, 6)]).values()
    done.result(PATIENCE_S)
    tail.stand({(topic, 0): 4, (topic, 1): 0})
    assert taken(tail, 10, 0) is None
    assert tail.at == {(topic, 0): 4, (topic, 1): 0}


def test_what_came_together_with_trouble_is_not_taken(kafka_broker: Broker, topic: str, tail: Tail) -> None:
    tail.stand({(topic, 0): 0, (topic, 1): 0})
    Sender(kafka_broker.bootstrap, topic).put("a")
    del tail.at[topic, 0]  # whatever is not known is trouble
    assert taken(tail, -1) is None
    assert tail.at == {(topic, 1): 0}
