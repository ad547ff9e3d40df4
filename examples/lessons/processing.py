"""A crash between processing a message and committing its offset: what is done again, and how a transaction prevents it.

Messages are read from one topic, and their results are written to another. After the second result, before its offset is
committed, the processor dies; a new one goes on at the last committed offset.

    crash before the commit     the second message is processed again: its result is there twice
    result and offset in one    both stand in one transaction. The new processor's first act aborts the open one, so that
                                readers of committed records never see the first of the two results
"""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, Message, Producer, TopicPartition

from waterclock.examples.lessons.clients import PATIENCE_S, QUIET, producer, read, send, text
from waterclock.testing import Broker

LETTERS = list("ABC")
CRASH_AFTER = 2


def crash_before_the_commit(broker: Broker, topic: str) -> list[str]:
    """The results that a reader sees."""
    for least in (CRASH_AFTER, None):
        sender = producer(broker.bootstrap)

        def result(message: Message, sender: Producer = sender) -> None:
            send(sender, topic + "-results", [text(message)])

        def commit(consumer: Consumer, message: Message) -> None:
            consumer.commit(message=message, asynchronous=False)

        process(broker.bootstrap, topic, result, commit, least)
    seen: list[str] = read(broker.bootstrap, topic + "-results")
    return seen


def result_and_offset_in_one(broker: Broker, topic: str) -> list[str]:
    """The results that a reader of committed records sees."""
    for least in (CRASH_AFTER, None):
        sender = producer(broker.bootstrap, enable_idempotence=True, transactional_id=topic)
        sender.init_transactions(PATIENCE_S)

        def result(message: Message, sender: Producer = sender) -> None:
            sender.begin_transaction()
            send(sender, topic + "-results", [text(message)])

        def commit(consumer: Consumer, message: Message, sender: Producer = sender) -> None:
            after = TopicPartition(topic, 0, message.offset() + 1)
            sender.send_offsets_to_transaction([after], consumer.consumer_group_metadata())
            sender.commit_transaction(PATIENCE_S)

        process(broker.bootstrap, topic, result, commit, least)
    seen: list[str] = read(broker.bootstrap, topic + "-results", **{"isolation.level": "read_committed"})
    return seen


def process(
    bootstrap: str,
    topic: str,
    result: Callable[[Message], None],
    commit: Callable[[Consumer, Message], None],
    crash_after: int | None,
) -> None:
    """Process message by message; `crash_after` that many results without the last commit, or go on to the end."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False,
         "auto.offset.reset": "earliest", **QUIET}
    )  # fmt: skip
    consumer.subscribe([topic])
    try:
        done = 0
        while True:
            message = consumer.poll(PATIENCE_S)
            if message is None or message.error() is not None:
                raise RuntimeError(f"{topic} could not be read: {message and message.error()}")
            result(message)
            done += 1
            if done == crash_after:
                return
            commit(consumer, message)
            if message.offset() == len(LETTERS) - 1:
                return
    finally:
        consumer.close()
