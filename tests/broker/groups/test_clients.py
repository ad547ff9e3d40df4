"""librdkafka's consumers of each protocol: two share a topic, one leaves, a third goes on where they stopped."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from waterclock.broker import Broker

TOPIC, PARTITIONS, RECORDS = "t", 4, 40
CLASSIC = {"heartbeat.interval.ms": 100, "session.timeout.ms": 6000}


@pytest.fixture(autouse=True)
def _what_clients_leave_behind_is_theirs() -> Iterator[None]:
    """A client that was stopped while it connected leaves the socket to the garbage collector: not our warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        yield
        gc.collect()


@pytest.fixture
def bootstrap() -> Iterator[str]:
    with Broker(settings={"group.consumer.heartbeat.interval.ms": "100"}) as broker:
        broker.create_topic(TOPIC, PARTITIONS)
        yield broker.bootstrap


def until(condition: Callable[[], Any], turns: int = 300) -> None:
    """Poll until it holds; every poll waits a second at most."""
    assert any(condition() for _ in range(turns)), "did not come true"


def shares(first: set[int], second: set[int]) -> bool:
    """Whether these two divide the topic evenly."""
    return len(first) == len(second) == 2 and first | second == set(range(PARTITIONS))


class TestConfluent:
    @pytest.fixture
    def confluent(self) -> Any:
        return pytest.importorskip("confluent_kafka")

    def consumer(self, confluent: Any, bootstrap: str, **more: Any) -> Any:
        consumer = confluent.Consumer(
            {
                "bootstrap.servers": bootstrap, "group.id": "g", "auto.offset.reset": "earliest",
                "enable.auto.commit": False, "log_level": 0, **({} if "group.protocol" in more else CLASSIC), **more,
            }
        )  # fmt: skip
        consumer.subscribe([TOPIC])
        return consumer

    @pytest.mark.parametrize(
        "more",
        [
            {"partition.assignment.strategy": "range"},
            {"partition.assignment.strategy": "cooperative-sticky"},
            {"group.protocol": "consumer"},
            {"group.protocol": "consumer", "group.remote.assignor": "range"},
        ],
        ids=lambda more: "-".join(more.values()),
    )
    def test_share_leave_and_go_on(self, confluent: Any, bootstrap: str, more: dict[str, str]) -> None:
        producer = confluent.Producer({"bootstrap.servers": bootstrap, "log_level": 0})
        for number in range(RECORDS):
            producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS)
        producer.flush()
        ann, bob = (self.consumer(confluent, bootstrap, **more) for _ in range(2))
        seen: list[bytes] = []

        def poll(*consumers: Any) -> None:
            for consumer in consumers:
                message = consumer.poll(0.05)
                if message is not None and not message.error():
                    seen.append(message.value())
                    with suppress(
                        confluent.KafkaException
                    ):  # a rebalance has begun: who gets the partition reads it again
                        consumer.commit(message, asynchronous=False)

        def has(consumer: Any) -> set[int]:
            return {row.partition for row in consumer.assignment()}

        until(lambda: poll(ann, bob) or (shares(has(ann), has(bob)) and len(seen) >= RECORDS // 2))
        ann.close()
        until(lambda: poll(bob) or (len(has(bob)) == PARTITIONS and len(set(seen)) == RECORDS))
        # a commit that a rebalance refused is not made good by reading on: bob says once more where it stands
        stands = [row for row in bob.position(bob.assignment()) if row.offset >= 0]
        bob.commit(offsets=stands, asynchronous=False)
        bob.close()
        assert len(set(seen)) == RECORDS
        cid = self.consumer(confluent, bootstrap, **more)
        until(lambda: poll(cid) or len(has(cid)) == PARTITIONS)
        offsets = {row.partition: row.offset for row in cid.committed(cid.assignment())}
        assert offsets == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
        cid.close()

    def test_a_static_member_restarts_without_a_rebalance(self, confluent: Any, bootstrap: str) -> None:
        moved: list[int] = []
        ann = self.consumer(confluent, bootstrap, **{"group.instance.id": "desk-1"})
        bob = self.consumer(confluent, bootstrap, **{"group.instance.id": "desk-2"})
        bob.subscribe([TOPIC], on_revoke=lambda consumer, rows: moved.append(len(rows)))
        until(lambda: (ann.poll(0.05), bob.poll(0.05)) and len(ann.assignment()) == len(bob.assignment()) == 2)
        before, moved[:] = {row.partition for row in ann.assignment()}, []
        ann.close()
        again = self.consumer(confluent, bootstrap, **{"group.instance.id": "desk-1"})
        until(lambda: (again.poll(0.05), bob.poll(0.05)) and again.assignment())
        assert ({row.partition for row in again.assignment()}, moved) == (before, [])
        again.close()
        bob.close()

    def test_groups_are_listed_described_and_deleted(self, confluent: Any, bootstrap: str) -> None:
        admin_module = pytest.importorskip("confluent_kafka.admin")
        consumer = self.consumer(confluent, bootstrap)
        until(lambda: consumer.poll(0.05) or len(consumer.assignment()) == PARTITIONS)
        consumer.commit(offsets=[confluent.TopicPartition(TOPIC, 0, 3)], asynchronous=False)
        admin = admin_module.AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        assert [row.group_id for row in admin.list_consumer_groups().result().valid] == ["g"]
        described = admin.describe_consumer_groups(["g"])["g"].result()
        assert (described.state.name, described.partition_assignor, len(described.members)) == ("STABLE", "range", 1)
        wanted = confluent.ConsumerGroupTopicPartitions("g")
        rows = admin.list_consumer_group_offsets([wanted])["g"].result().topic_partitions
        assert [(row.partition, row.offset) for row in rows] == [(0, 3)]
        consumer.close()
        admin.delete_consumer_groups(["g"])["g"].result()
        assert admin.list_consumer_groups().result().valid == []
