"""A real client over a failover: it finds the new leader by itself, and its producer repeats nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("confluent_kafka")

from confluent_kafka import Consumer, Producer

from tests.broker.replication.pairs import Pair, pair, until, values


@pytest.fixture
def both(tmp_path: Path) -> Iterator[Pair]:
    with pair(tmp_path) as brokers:
        yield brokers


def servers(both: Pair) -> dict[str, str | int]:
    return {
        "bootstrap.servers": f"{both.one.bootstrap},{both.two.bootstrap}", "log_level": 0,
        "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 20, "topic.metadata.refresh.interval.ms": 500,
    }  # fmt: skip


def read(both: Pair, count: int) -> list[bytes]:
    """The next `count` values for the group g, which commits them."""
    consumer = Consumer(
        {**servers(both), "group.id": "g", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    consumer.subscribe(["t"])
    found: list[bytes] = []

    def enough() -> bool:
        message = consumer.poll(0.1)
        if message is not None and not message.error():
            found.append(message.value())
        return len(found) >= count

    until(enough, f"{count} records are read")
    consumer.commit(asynchronous=False)
    consumer.close()
    return found


def test_a_producer_and_a_group_go_on_at_the_new_leader(both: Pair) -> None:
    producer = Producer({**servers(both), "enable.idempotence": True, "linger.ms": 0})
    expected = [b"%d" % number for number in range(600)]
    for value in expected[:200]:
        producer.produce("t", value)
    assert producer.flush(20) == 0
    assert read(both, 200) == expected[:200]
    for value in expected[200:400]:
        producer.produce("t", value)
    producer.poll(0)
    both.one.cut_power()  # with some of them under way
    both.two.promote()
    for value in expected[400:]:
        producer.produce("t", value)
    assert producer.flush(20) == 0
    assert read(both, 400) == expected[200:]
    both.again("one").start()
    both.synced(both.two)
    assert values(both.one) == values(both.two) == expected


def test_a_client_that_knows_the_follower_only_reaches_the_leader(both: Pair) -> None:
    known = {**servers(both), "bootstrap.servers": both.two.bootstrap}
    producer = Producer({**known, "enable.idempotence": True})
    producer.produce("t", b"x")
    assert producer.flush(20) == 0
    assert read(both, 1) == [b"x"]
