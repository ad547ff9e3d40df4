"""A reader of committed records of an episode's topics: what it saw once stays seen, whatever becomes of the broker."""

from __future__ import annotations

import threading

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.relay.kills.checker import Record
from waterclock.kafka.settings import base_settings

PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._TIMED_OUT)


class Reader(threading.Thread):
    """Reads `topics` (name -> partitions) from their starts until `stop`; `errors` are those that are not passing ones."""

    def __init__(self, bootstrap: str, topics: dict[str, int]) -> None:
        super().__init__(daemon=True)
        settings = {
            "group.id": "reader", "isolation.level": "read_committed", "enable.auto.commit": False,
            "auto.offset.reset": "error", "metadata.recovery.strategy": "none", "fetch.wait.max.ms": 100,
        }  # fmt: skip
        self._consumer = Consumer({**base_settings(bootstrap, {}), **settings})
        self._consumer.assign([TopicPartition(name, n, 0) for name, count in topics.items() for n in range(count)])
        self._over = threading.Event()
        self.records: list[Record] = []
        self.errors: list[str] = []

    def run(self) -> None:
        while not self._over.is_set():
            for message in self._consumer.consume(1_000, 0.2):
                if (error := message.error()) is None:
                    self.records.append(
                        Record(
                            message.topic(), message.partition(), message.offset(), message.key(), message.value(),
                            dict(message.headers() or []), message.timestamp()[1],
                        )
                    )  # fmt: skip
                elif error.code() not in PASSING:
                    self.errors.append(error.str())

    def stop(self) -> None:
        self._over.set()
        self.join()
        self._consumer.close()
