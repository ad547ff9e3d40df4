"""Order over partitions: all messages, or those of a key; and what a rebalance leaves of it.

Ten accounts have thirty bookings each; the account is the message's key, and a key's messages go to one partition.

    one partition       one producer, one partition, one consumer: every message comes in the order of sending. No more than
                        one consumer of a group can work on it
    three partitions    the bookings of an account come in order; two accounts overtake each other
    a second consumer   joins halfway: partitions move. Who commits what is done before a partition is taken away lets the
                        other go on there; who does not has it done again since the last commit, older after newer
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from waterclock.clock import SystemClock
from waterclock.examples.lessons.clients import PATIENCE_S, QUIET, flush, messages, producer, taken, text
from waterclock.examples.lessons.lesson import Lesson
from waterclock.testing import Broker

ACCOUNTS = 10
BOOKINGS = 30
ALL = ACCOUNTS * BOOKINGS
HALF = ALL // 2


class Booking(NamedTuple):
    """`number` counts an account's bookings, `sent` all of them."""

    account: str
    number: int
    sent: int


def lesson() -> Lesson:
    """Run all cases against a broker of their own."""
    with Broker() as broker:
        rows = [
            row("one partition", alone(broker, 1)),
            row("three partitions", alone(broker, 3)),
            row("second consumer, commits first", joined(broker, commits=True)),
            row("second consumer, no commit", joined(broker, commits=False)),
        ]
    return Lesson(
        f"Order: {ACCOUNTS} accounts with {BOOKINGS} bookings each",
        rows,
        [
            "All messages are in order in one partition only. Order has to be kept by key, or there is one consumer.",
            "A key's messages keep their order over any number of partitions, as long as that number stays.",
            "A rebalance keeps it too, where what is done is committed before a partition is taken away.",
            "Without that commit bookings are done twice, and older ones after newer ones.",
        ],
    )


def row(name: str, done: list[Booking]) -> dict[str, Any]:
    """How often a booking came after a later one: of all, and of its account; and how many came twice."""
    by_account = [[b.number for b in done if b.account == account] for account in {b.account for b in done}]
    return {
        "case": name,
        "bookings": len(set(done)),
        "steps back": steps_back([b.sent for b in done]),
        "in an account": sum(map(steps_back, by_account)),
        "done twice": len(done) - len(set(done)),
    }


def steps_back(numbers: list[int]) -> int:
    return sum(later <= earlier for earlier, later in pairwise(numbers))


def bookings() -> Iterator[Booking]:
    for sent in range(ALL):
        yield Booking(f"account-{sent % ACCOUNTS}", sent // ACCOUNTS, sent)


def filled(broker: Broker, name: str, partitions: int) -> str:
    """A topic with all bookings."""
    broker.create_topic(name, partitions)
    sender = producer(broker.bootstrap, linger_ms=5)
    for booking in bookings():
        sender.produce(name, " ".join(map(str, booking)), key=booking.account, on_delivery=taken)
    flush(sender)
    return name


def booking(value: str) -> Booking:
    account, number, sent = value.split()
    return Booking(account, int(number), int(sent))


def alone(broker: Broker, partitions: int) -> list[Booking]:
    """One consumer reads everything."""
    topic = filled(broker, f"alone-{partitions}", partitions)
    return [booking(text(m)) for m in messages(broker.bootstrap, topic, partitions=partitions)]


def joined(broker: Broker, *, commits: bool) -> list[Booking]:
    """One consumer does half, then a second one joins, until everything is done."""
    topic = filled(broker, f"joined-{commits}", 3)
    done: list[Booking] = []
    members = [member(broker.bootstrap, topic, commits)]
    until_s = SystemClock().monotonic_s() + PATIENCE_S
    while len(set(done)) < ALL or len(members) < 2 or not all(m.assignment() for m in members):
        if len(done) >= HALF and len(members) < 2:
            members.append(member(broker.bootstrap, topic, commits))
        for one in members if len(members) == 2 or len(done) < HALF else []:
            done += [booking(text(m)) for m in one.consume(10, 0.05) if m.error() is None]
        if SystemClock().monotonic_s() > until_s:
            raise TimeoutError(f"{len(set(done))} of {ALL} bookings were done in {PATIENCE_S} s")
    for one in members:
        one.close()
    return done


def member(bootstrap: str, topic: str, commits: bool) -> Consumer:
    """A member of the topic's group."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False, "auto.offset.reset": "earliest",
         "session.timeout.ms": 6000, "heartbeat.interval.ms": 100, **QUIET}
    )  # fmt: skip

    def taken_away(consumer: Consumer, partitions: Any) -> None:
        done = [position for position in consumer.position(partitions) if position.offset >= 0]
        if commits and done:
            commit(consumer, done)

    consumer.subscribe([topic], on_revoke=taken_away)
    return consumer


def commit(consumer: Consumer, done: list[TopicPartition]) -> None:
    try:
        consumer.commit(offsets=done, asynchronous=False)
    except KafkaException as error:
        if error.args[0].code() != KafkaError.UNKNOWN_MEMBER_ID:  # who is closing may have left its group already
            raise
