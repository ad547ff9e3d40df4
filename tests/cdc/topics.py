"""What a reader of committed messages finds in a topic; and a shop that writes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.cdc.mariadb import MariaServer
from waterclock.changes.maxwell_message import MaxwellMessage
from waterclock.testing import Broker


def committed(broker: Broker, topic: str) -> dict[int, list[tuple[bytes, bytes]]]:
    """partition -> what a reader of committed messages gets."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    count = len(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(count)])
    found: dict[int, list[tuple[bytes, bytes]]] = defaultdict(list)
    ended: set[int] = set()
    while len(ended) < count:
        message = consumer.poll(10)
        assert message is not None
        if message.error() is None:
            found[message.partition()].append((message.key(), message.value()))
        else:
            assert message.error().code() == KafkaError._PARTITION_EOF
            ended.add(message.partition())
    consumer.close()
    return found


def shop(mariadb: MariaServer, database: str, rounds: int) -> None:
    """Transactions of several tables; keys change, rows go and come."""
    mariadb.run(
        f"create table if not exists {database}.item (id int primary key, price decimal(10,2))",
        f"create table if not exists {database}.sale (id bigint unsigned primary key, item int, at datetime(6))",
    )
    with mariadb.connection() as connection, connection.cursor() as cursor:
        for n in range(rounds):
            for statement in (
                "begin",
                f"replace into {database}.item values ({n % 5}, {n}.25)",
                f"insert into {database}.sale values (uuid_short(), {n % 5}, now(6)), (uuid_short(), {n % 3}, null)",
                f"update {database}.sale set id = uuid_short() where item = {n % 2} limit 1",
                f"delete from {database}.sale where item = {n % 3} limit 1",
                "commit",
            ):
                cursor.execute(statement)


def messages(changes: Iterable[MaxwellMessage]) -> list[tuple[bytes, bytes]]:
    return [(change.as_key(), change.as_json()) for change in changes]
