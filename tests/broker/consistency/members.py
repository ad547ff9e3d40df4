"""Members of a group that commit what they have read, and an observer who asks for ends and committed offsets.

Rule 1: a commit that failed is unknown, whatever the error: the client sends it again by itself, and the error may be the
    answer to the second request, after the first one took place.
"""

from __future__ import annotations

from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.broker.consistency.transforming import GROUP, SESSION_MS, Subscription
from tests.broker.consistency.worker import PARTITIONS, Worker, fetched, places

READERS = "readers"


def member(worker: Worker) -> None:
    settings = {"group_id": READERS, "session_timeout_ms": SESSION_MS, "enable_auto_commit": False,
                "auto_offset_reset": "earliest", "isolation_level": "read_committed"}  # fmt: skip
    with closing(Consumer(worker.client(**settings))) as consumer:

        def assigned(one: Consumer, given: list[TopicPartition]) -> None:
            fetched(worker, one, READERS, given)

        subscription = Subscription(consumer, "lists", assigned)
        while not worker.stopping.is_set():
            worker.alive()
            found = subscription.collect(200)
            if found:
                commit(worker, consumer, found)


def commit(worker: Worker, consumer: Consumer, found: list[list[Any]]) -> None:
    offsets = {(topic, partition): offset + 1 for topic, partition, offset, _ in found}
    shown = {f"{topic}-{partition}": at for (topic, partition), at in offsets.items()}
    number = worker.history.begin("offsets", group=READERS, offsets=shown)
    try:
        told = consumer.commit(
            offsets=[TopicPartition(*place, at) for place, at in offsets.items()], asynchronous=False
        )
        errors = [one.error for one in told if one.error is not None]
    except KafkaException as error:
        errors = [error.args[0]]
    worker.history.end(number, "unknown" if errors else "ok", **({"error": str(errors[0])} if errors else {}))


def observer(worker: Worker) -> None:
    watchers = {group: Consumer(worker.client(group_id=group, isolation_level="read_committed"))
                for group in (READERS, GROUP)}  # fmt: skip
    reader = Consumer(worker.client(group_id="none", isolation_level="read_uncommitted"))
    while not worker.stopping.is_set():
        worker.alive()
        topic = worker.random.choice(sorted(PARTITIONS))
        ask_end(worker, reader, topic, worker.random.randrange(PARTITIONS[topic]))
        group = worker.random.choice(sorted(watchers))
        fetched(worker, watchers[group], group, places("lists" if group == READERS else "in"))
        worker.pause(0.3)
    for watcher in (reader, *watchers.values()):
        watcher.close()


def ask_end(worker: Worker, consumer: Consumer, topic: str, partition: int) -> None:
    number = worker.history.begin("watermark", topic=topic, partition=partition)
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
        worker.history.end(number, "ok", high=high, low=low)
    except KafkaException as error:
        worker.history.end(number, "unknown", error=str(error))
