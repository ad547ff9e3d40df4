"""A real client over a failover: it finds the new leader by itself, and its producer repeats nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("confluent_kafka")

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.broker.replication.pairs import PATIENCE_S, Pair, client, high, until, values
from waterclock.broker.store import Entry, Store


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


@pytest.mark.long(seconds=3)
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


def restart_with_high(both: Pair, tmp_path: Path, offset: int) -> None:
    """Both brokers lose power, and the leader comes back alone: it had kept its high watermark when it was at `offset`."""
    both.two.cut_power()
    both.one.cut_power()
    store = Store(str(tmp_path / "one"), lambda *arguments: None)
    store.commit_at_once(Entry("self", "high", {"t-0": offset}))
    store.close()
    both.again("one").start()
    assert high(both.one) == offset


def test_a_latest_epoch_ends_at_the_logs_end_even_where_the_high_watermark_is_not_known(
    both: Pair, tmp_path: Path
) -> None:
    """The stored high watermark is of up to five seconds before: readers are beyond it."""
    with client(both.one) as raw:
        raw.produce("t", b"0", b"1", b"2", b"3")
    restart_with_high(both, tmp_path, 1)
    asked = [{"topic": "t", "partitions": [{"partition": 0, "current_leader_epoch": 0, "leader_epoch": 0}]}]
    with client(both.one) as raw:
        answer = raw.ask("OffsetForLeaderEpoch", 3, replica_id=-1, topics=asked).topics[0].partitions[0]
    assert (answer.error_code.value, answer.leader_epoch, answer.end_offset) == (0, 0, 4)


def test_a_reader_keeps_its_place_while_the_high_watermark_is_not_known(both: Pair, tmp_path: Path) -> None:
    """librdkafka asks for the end of its position's epoch, and jumps back where that is before it: 4,850 of 8,850 records
    were dropped so."""
    producer = Producer({**servers(both), "enable.idempotence": True})
    for number in range(40):
        producer.produce("t", b"%d" % number)
    assert producer.flush(20) == 0
    reader = Consumer({**servers(both), "group.id": "g", "auto.offset.reset": "latest"})
    reader.assign([TopicPartition("t", 0, 0)])
    found: list[bytes] = []

    def read_to(count: int) -> bool:
        message = reader.poll(0.1)
        if message is not None and not message.error():
            found.append(message.value())
        return len(found) >= count

    until(lambda: read_to(20))
    restart_with_high(both, tmp_path, 5)
    reader.seek(TopicPartition("t", 0, 20, leader_epoch=0))  # has it asked for at once
    reader.poll(0.5)
    both.again("two").start()
    until(lambda: read_to(40))
    reader.close()
    assert found == [b"%d" % number for number in range(40)]


def test_a_transaction_that_waits_for_each_step_goes_on_at_the_new_leader(both: Pair) -> None:
    """Its offsets went to a broker that the client had given up, and waited there until their time was up: both brokers had
    been gone at once, or the old leader was not on the list any more."""
    producer = Producer({**servers(both), "transactional.id": "n"})
    reader = Consumer({**servers(both), "group.id": "g", "auto.offset.reset": "earliest"})
    reader.subscribe(["t"])
    until(lambda: reader.poll(0.1) is None and reader.assignment())
    producer.init_transactions(20)

    def commit(value: bytes, offset: int) -> None:
        producer.begin_transaction()
        producer.produce("t", value)
        assert producer.flush(20) == 0
        producer.send_offsets_to_transaction(
            [TopicPartition("t", 0, offset)], reader.consumer_group_metadata(), PATIENCE_S
        )
        producer.commit_transaction(20)

    commit(b"0", 0)
    both.one.cut_power()
    both.two.promote()
    commit(b"1", 1)
    reader.close()
    assert values(both.two) == [b"0", b"1"]
