"""Order: a retry with several requests in flight puts a message behind its followers. Two cures, and one that is none.

Eight messages go to one partition, a request each. The broker refuses the first request once, as it does for a moment
while a partition's leader moves. A message goes ahead whose answer comes late, so that the others are
under way by then. What matters is what is on its way at that moment:

    five in flight       the others are stored before the first is sent again
    max.in.flight=1      one less than one thinks: this client (librdkafka) has made its next request before the
                         answer is there, and sends it while the first waits for its retry
    waits for each       the application sends a message after the answer to the one before. Sure with every client
    idempotence          the broker takes each producer's batches in their sequence only; the producer sends again in order
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from confluent_kafka import Producer

from waterclock.clock import SystemClock
from waterclock.examples.lessons.clients import ONE_BY_ONE, producer, read, send
from waterclock.examples.lessons.lesson import Lesson
from waterclock.testing import Broker, Error

FIRST = "first"  # a broker takes any sequence of a producer that the partition does not know yet, as Apache Kafka does
LETTERS = list("ABCDEFGH")
AHEAD = "ahead"  # its answer comes late, and with it the refusal behind: as many are on their way then as may be
AHEAD_MS = 200
ROUND_TRIP_MS = 5  # of the network that the rate is measured over
MEASURED = 200  # messages


class Case(NamedTuple):
    """How a producer is set, and how messages are handed to it."""

    settings: dict[str, Any]
    send: Callable[[Producer, str, Iterable[str]], Any]


def one_by_one(sender: Producer, topic: str, values: Iterable[str]) -> None:
    """Each message after the answer to the one before."""
    for value in values:
        send(sender, topic, [value])


CASES = {
    "five in flight": Case({"max_in_flight": 5}, send),
    "max.in.flight=1": Case({"max_in_flight": 1}, send),
    "waits for each": Case({"max_in_flight": 5}, one_by_one),
    "idempotence": Case({"max_in_flight": 5, "enable_idempotence": True}, send),
}


def lesson() -> Lesson:
    """Run all cases against a broker of their own."""
    with Broker() as broker:
        rows = [run(broker, name, case) for name, case in CASES.items()]
    return Lesson(
        "Order: the first of eight requests is refused once, and sent again",
        rows,
        [
            "With several requests in flight and no idempotence, a retry puts a message behind its followers.",
            "max.in.flight=1 is not enough with this client: its next request is made before the answer is there.",
            f"Who waits for each answer keeps the order; over a network of {ROUND_TRIP_MS} ms that costs most of the rate.",
            "Idempotence keeps the order with five in flight: turn it on.",
        ],
    )


def run(broker: Broker, name: str, case: Case) -> dict[str, Any]:
    """What is stored after the refusal, and how fast messages go without one."""
    topic = name.replace(" ", "-").replace("=", "-")
    broker.create_topic(topic)
    sender = producer(broker.bootstrap, **ONE_BY_ONE, **case.settings)
    case.send(sender, topic, [FIRST])
    late = broker.faults.delay("Produce", AHEAD_MS, times=1, topic=topic)
    with late, broker.faults.answer("Produce", Error.NOT_LEADER_OR_FOLLOWER, topic=topic):
        case.send(sender, topic, [AHEAD, *LETTERS])
    stored = read(broker.bootstrap, topic)[2:]
    return {
        "case": name,
        "stored": stored,
        "in order": stored == LETTERS,
        "messages/s": rate(broker, topic + "-rate", case),
    }


def rate(broker: Broker, topic: str, case: Case) -> int:
    """Messages a second over a network with a round trip of ROUND_TRIP_MS."""
    broker.create_topic(topic)
    sender, clock = producer(broker.bootstrap, **ONE_BY_ONE, **case.settings), SystemClock()
    case.send(sender, topic, [FIRST])
    with broker.faults.delay("Produce", ROUND_TRIP_MS, topic=topic):
        began_s = clock.monotonic_s()
        case.send(sender, topic, map(str, range(MEASURED)))
        return round(MEASURED / (clock.monotonic_s() - began_s))
