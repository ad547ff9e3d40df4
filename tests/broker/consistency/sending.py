"""Idempotent producers: many values in flight, each in its partition once and in order, however often it is retried.

Rule 1: the first value of a producer is sent alone: of a first batch that is refused librdkafka may tell that it was
    delivered (docs/broker.md, the lesson of the order).
Rule 2: a value whose delivery failed for the client is unknown: it may have been stored before.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaException, Producer

from tests.broker.consistency.worker import Worker

BATCH = 60
PAUSE_S = 0.15


def sender(worker: Worker) -> None:
    while not worker.stopping.is_set():
        producer = Producer(worker.client(enable_idempotence=True, linger_ms=1, message_timeout_ms=90_000))
        if send(worker, producer, 1):
            while not worker.stopping.is_set() and send(worker, producer, worker.random.randint(1, BATCH)):
                worker.pause(PAUSE_S)


def send(worker: Worker, producer: Producer, count: int) -> bool:
    """Whether all were delivered; a producer that fails is left."""
    writes = [worker.write(worker.random.choice(("lists", "in"))) for _ in range(count)]
    number = worker.history.begin("send", writes=writes)
    offsets: list[Any] = [None] * count
    for place, (topic, partition, key, value) in enumerate(writes):

        def delivered(error: Any, message: Any, place: int = place) -> None:
            if error is None:
                offsets[place] = message.offset()

        with suppress(KafkaException):  # after a fatal error nothing is taken any more
            producer.produce(topic, str(value), key, partition, on_delivery=delivered)
    while producer.flush(1):
        worker.alive()
    worker.alive()
    good = None not in offsets
    worker.history.end(number, "ok" if good else "unknown", results=offsets)
    return good
