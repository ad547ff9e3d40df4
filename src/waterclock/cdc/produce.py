"""Exactly once into Kafka: changes and the position they lead to in one transaction.

    1. fence: whoever wrote under this name before can write no more, and what it left open is thrown away
    2. read the position that its last transaction stored
    3. begin
    4. send the changes of whole source transactions, and what could not be read of them to the topic of dead letters
    5. send the position after them
    6. commit

A crash between any two leaves Kafka as it was after the last 6, for whoever reads what is committed
(isolation.level=read_committed); the next start goes through 1 and 2 and reads the source again from there. Steps 1, 3, 4
and 6 are those of kafka/transactions.py.

Why the position lies in a compacted topic of its own and not in a consumer group's offsets: a group's offsets expire
when nobody commits for a week, and a stored offset holds 4 KB, which the GTID set of an old MySQL outgrows. Why every
capture has a topic for itself: a second one's open transaction would hide the first one's last position at its start.

Rule 1: what is sent between a `begin` and a `finish` is read together or not at all.
Rule 2: one transaction goes over all topics, however many tables have one of their own.
Rule 3: `order="global"` sends everything to partition 0; `order="key"` lets the key choose, by Kafka's own hash. A
        TRUNCATE goes to every partition: each has rows that it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from confluent_kafka import KafkaError

from waterclock.cdc.letters import DeadLetter
from waterclock.cdc.position import Position
from waterclock.cdc.source import Record
from waterclock.cdc.topics import KEY, PER_TABLE, CaptureTopics, Target, last_position
from waterclock.changes.maxwell_message import TRUNCATE, MaxwellMessage
from waterclock.errors import ConnectionLost, UsageError, WaterclockError
from waterclock.kafka.errors import Meaning, meaning_of
from waterclock.kafka.settings import base_settings
from waterclock.kafka.transactions import BY_KEY, TransactionalProducer

_TIMEOUT_MS = 300_000  # so long may a transaction stay open: a million changes take a tenth of it


class Publisher:
    """Writes changes under a name that only one process at a time can have; the steps are the file's.

    `client` are librdkafka's settings, for TLS and SASL. `stored` is the position that Kafka holds, None if there is
    none yet; `in_transaction` counts the records that were sent and not committed.
    """

    def __init__(self, target: Target, name: str, client: Mapping[str, Any] | None = None) -> None:
        self._target, self._state_topic = target, f"{name}.position"
        settings = base_settings(target.servers, client or {})
        self._topics = CaptureTopics(settings, target, self._state_topic)
        timed = {**settings, "transaction.timeout.ms": _TIMEOUT_MS}
        self._producer = TransactionalProducer(timed, f"waterclock-cdc-{name}", partial(_error_of, target, name))
        self.in_transaction = 0
        self.fence()
        self.stored = last_position(settings, self._state_topic)  # 2

    def fence(self) -> None:
        """Step 1."""
        self._producer.fence(self._state_topic)

    def begin(self) -> None:
        """Step 3, if no transaction is open."""
        self._producer.begin()

    def send(self, record: Record) -> None:
        """Step 4."""
        if not self._producer.is_open:
            self.begin()
        key, value = record.as_key(), record.as_json()
        if isinstance(record, DeadLetter):
            self._producer.send(self._target.dead_letters, value, key)
        else:
            topic, partitions = self._topics.of(record.database, record.table)
            for partition in self._chosen(record, partitions):
                self._producer.send(topic, value, key, partition)
        self.in_transaction += 1

    def store(self, position: Position) -> None:
        """Step 5."""
        self.begin()
        self._producer.send(self._state_topic, position.as_json(), KEY, 0)

    def finish(self) -> None:
        """Step 6; when it returns, Kafka has it all."""
        self._producer.commit()
        self.in_transaction = 0

    def commit(self, position: Position) -> None:
        """Steps 5 and 6."""
        self.store(position)
        self.finish()
        self.stored = position

    def close(self) -> None:
        """Throw away what is not committed; without a connection, Kafka does that by itself."""
        self._producer.close()

    def _chosen(self, change: MaxwellMessage, partitions: int) -> Iterable[int]:
        if self._target.order == "global":
            return (0,)
        return range(partitions) if change.type == TRUNCATE else (BY_KEY,)


def _error_of(target: Target, name: str, error: KafkaError) -> WaterclockError:
    """Kafka's errors by whose doing."""
    meaning = meaning_of(error)
    topic = f"{target.topic}.DATABASE.TABLE" if target.topics == PER_TABLE else target.topic
    if meaning is Meaning.TOO_LARGE:
        return UsageError(
            f"A change is larger than the topic {' or '.join(filter(None, (topic, target.dead_letters)))} takes. Set "
            "the topic's max.message.bytes higher, and start again: nothing was left out."
        )
    if meaning is Meaning.FENCED:
        return UsageError(
            f"Another process captures under the name {name}, and Kafka lets only the later one write. Stop one of "
            "them, or give them different names (--name) and topics."
        )
    return ConnectionLost(f"Kafka did not take the changes: {error.str()}.")
