"""Readers: from the beginning to the end, again and again, each record of each partition in its order.

Rule 1: a session is one assignment, without a seek: within it no offset comes twice and none is passed over.
Rule 2: at the end a reader reads what was there when it was told, and only then ends: one that cannot is stalled.
"""

from __future__ import annotations

from itertools import count

from confluent_kafka import Consumer, KafkaError, KafkaException

from tests.broker.consistency.worker import Worker, places, rows
from waterclock.clock import SystemClock

SESSION_S = 30.0


def reader(worker: Worker) -> None:
    isolation = worker.given["isolation"]
    settings = {"group_id": "none", "enable_auto_commit": False, "isolation_level": isolation}
    consumer = Consumer(worker.client(**settings, enable_partition_eof=True, auto_offset_reset="earliest"))
    for session in count(1):
        if read(worker, consumer, session):
            break
    consumer.close()


def read(worker: Worker, consumer: Consumer, session: int) -> bool:
    """One session; True where it was the last one."""
    clock = SystemClock()
    left = _ends(worker, consumer) if worker.stopping.is_set() else None
    consumer.assign(places(*worker.given["topics"]))
    until_s = clock.monotonic_s() + worker.random.random() * SESSION_S
    while left or (left is None and clock.monotonic_s() < until_s and not worker.stopping.is_set()):
        worker.alive()
        messages = consumer.consume(500, 0.2)
        found = rows(messages)
        if found:
            worker.history.tell("poll", session=session, isolation=worker.given["isolation"], rows=found)
        for one in messages if left else ():
            place, error = (one.topic(), one.partition()), one.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF and one.offset() >= left.get(place, 0):
                left.pop(place, None)
    return left is not None


def _ends(worker: Worker, consumer: Consumer) -> dict[tuple[str, int], int]:
    """The ends of all partitions, once all are told."""
    while True:
        worker.alive()
        try:
            asked = places(*worker.given["topics"])
            return {(one.topic, one.partition): consumer.get_watermark_offsets(one, 5)[1] for one in asked}
        except KafkaException:
            continue
