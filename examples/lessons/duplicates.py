"""Duplicates: an acknowledgement is lost, the message is sent again, and is stored twice. Three cures. Then a crash.

The broker appends the first message, and the connection breaks before its answer. The producer cannot know whether the
message is there:

    sent again               it is stored twice
    one writer, who looks    after an error the partition's last record says whether the message is there. Only one
                             writer: with two, somebody else's record may be the last
    an id for each message   stored twice, and the reader takes each id once; it must remember them as long as copies come
    idempotence              the broker knows each producer's last batches, and answers a repeated one without storing it

What a crash of the processor does is reported in processing.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition

from waterclock.examples.lessons.clients import ONE_BY_ONE, PATIENCE_S, QUIET, messages, producer, read, send, text
from waterclock.examples.lessons.lesson import Lesson
from waterclock.examples.lessons.processing import LETTERS, crash_before_the_commit, result_and_offset_in_one
from waterclock.testing import Broker

Case = Callable[[Broker, str], list[str]]


def lesson() -> Lesson:
    """Run all cases against a broker of their own."""
    with Broker() as broker:
        rows = [lost_acknowledgement(broker, name, run) for name, run in CURES.items()]
        rows += [crash(broker, name, run) for name, run in CRASHES.items()]
    return Lesson(
        "Duplicates: A, B, C are sent; A's acknowledgement is lost. Then a processor dies before it commits B",
        rows,
        [
            "A producer that sends again after an error may store a message twice: at least once.",
            "A single writer may look at the partition's last record before it sends again.",
            "With an id in each message the reader can drop copies, whoever made them.",
            "Idempotence drops the copies of one producer's retries; not those of an application that sends twice.",
            "What a processor did and had not committed is done again after its crash.",
            "With result and offset in one transaction, both count or neither does.",
        ],
    )


def lost_acknowledgement(broker: Broker, name: str, run: Case) -> dict[str, Any]:
    """What is stored and what the reader works with, where the first answer to the producer never arrives."""
    broker.create_topic(topic := topic_of(name))
    with broker.faults.drop("Produce", after=True, topic=topic):
        return row(broker, name, run(broker, topic))


def crash(broker: Broker, name: str, run: Case) -> dict[str, Any]:
    """The same where the network is well, and the processor dies."""
    broker.create_topic(topic := topic_of(name))
    broker.create_topic(topic + "-results")
    send(producer(broker.bootstrap), topic, LETTERS)
    return row(broker, name, run(broker, topic))


def topic_of(name: str) -> str:
    return name.replace(" ", "-").replace(",", "")


def row(broker: Broker, name: str, seen: list[str]) -> dict[str, Any]:
    return {
        "case": name,
        "stored": read(broker.bootstrap, topic_of(name)),
        "seen": seen,
        "duplicates": len(seen) - len(set(seen)),
        "lost": len(set(LETTERS) - set(seen)),
    }


def sent_again(broker: Broker, topic: str) -> list[str]:
    sender = producer(broker.bootstrap, **ONE_BY_ONE)
    for letter in LETTERS:
        send(sender, topic, [letter])
    seen: list[str] = read(broker.bootstrap, topic)
    return seen


def idempotence(broker: Broker, topic: str) -> list[str]:
    sender = producer(broker.bootstrap, **ONE_BY_ONE, enable_idempotence=True)
    for letter in LETTERS:
        send(sender, topic, [letter])
    seen: list[str] = read(broker.bootstrap, topic)
    return seen


def one_writer_who_looks(broker: Broker, topic: str) -> list[str]:
    sender = producer(broker.bootstrap, **ONE_BY_ONE, retries=0)
    for letter in LETTERS:
        write_once(broker.bootstrap, sender, topic, letter)
    seen: list[str] = read(broker.bootstrap, topic)
    return seen


def write_once(bootstrap: str, sender: Producer, topic: str, value: str) -> None:
    """Send until it is there: after an error, look before sending again."""
    while not send(sender, topic, [value]):
        if last_record(bootstrap, topic) == value:
            return


def last_record(bootstrap: str, topic: str) -> str | None:
    """The value of the partition's last record; None where there is none."""
    looker = Consumer({"bootstrap.servers": bootstrap, "group.id": "lesson", **QUIET})
    try:
        start, end = looker.get_watermark_offsets(TopicPartition(topic, 0), timeout=PATIENCE_S)
    finally:
        looker.close()
    if start == end:
        return None
    values: list[str] = [text(message) for message in messages(bootstrap, topic, first=end - 1)]
    return values[-1]


def id_for_each(broker: Broker, topic: str) -> list[str]:
    sender = producer(broker.bootstrap, **ONE_BY_ONE)
    for number, letter in enumerate(LETTERS):
        send(sender, topic, [letter], headers={"id": str(number)})
    taken: dict[bytes, str] = {}
    for message in messages(broker.bootstrap, topic):
        taken.setdefault(dict(message.headers())["id"], text(message))
    return list(taken.values())


CURES: dict[str, Case] = {
    "sent again": sent_again,
    "one writer, who looks": one_writer_who_looks,
    "an id for each message": id_for_each,
    "idempotence": idempotence,
}
CRASHES: dict[str, Case] = {
    "crash before the commit": crash_before_the_commit,
    "result and offset in one": result_and_offset_in_one,
}
