"""batching: the same messages one by one, a request each, batched, and with a linger: what each costs, and what it gives.

Over a network with a round trip of some milliseconds, which the broker's faults make:

    one by one        the naive way: send, wait for the answer, send the next
    a request each    five on their way at a time, no batches
    batched           whatever waits when a request can go, goes with it
    linger            a request waits a little for company

Rule 1: two loads. As fast as it goes, for the rate; and one message every other millisecond, as from people, for how long a
        message takes to be acknowledged, and how many requests they make.
Rule 2: requests are counted by the broker, times by the client's clock. What was acknowledged is read back and compared.
Rule 3: a message's time begins when it came, not when a sender that is behind got to it: `slow ms` is the middle one's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, Message, Producer

from waterclock.clock import SystemClock
from waterclock.examples.lessons.clients import AT_ONCE, ONE_BY_ONE, flush, producer, read, taken
from waterclock.examples.lessons.lesson import Lesson, tell
from waterclock.testing import Broker

ROUND_TRIP_MS = 5
MESSAGES = 400  # of each load
EVERY_S = 0.002  # of the load as from people
SETTINGS: dict[str, dict[str, Any]] = {
    "one by one": {**ONE_BY_ONE},
    "a request each": {**ONE_BY_ONE},
    "batched": {"linger_ms": 0},
    "linger 5 ms": {"linger_ms": 5},
    "linger 50 ms": {"linger_ms": 50},
}
NAIVE = "one by one"


class Run(NamedTuple):
    """What one load came to: seconds in all, ms until the answer of each message, and requests."""

    seconds: float
    answered_ms: list[float]
    requests: int


def lesson(number: int = MESSAGES) -> Lesson:
    """Both loads in each way, against a broker of their own."""
    with Broker() as broker:
        rows = [case(broker, name, number) for name in SETTINGS]
    naive, _, batched, *_, long = rows
    return Lesson(
        f"batching: {number:,} messages, a round trip of {ROUND_TRIP_MS} ms",
        rows,
        [
            f"Who waits for each answer sends {naive['messages/s']:,} a second and can send no more than one a round trip; "
            f"batches {batched['messages/s']:,}.",
            "Where messages come faster than requests go, batches form by themselves: "
            f"{batched['requests']:,} requests without a linger. It makes them larger still: {long['requests']:,}.",
            f"Where they come slowly a linger saves requests, {long['slow requests']:,} for {batched['slow requests']:,}, "
            f"and a message waits for company: {long['slow ms']} ms for {batched['slow ms']}.",
            f"One by one each message stands behind all that came before it: {naive['slow ms']:,} ms.",
        ],
    )


def case(broker: Broker, name: str, number: int) -> dict[str, Any]:
    """One way, with both loads."""
    topic = name.replace(" ", "-")
    broker.create_topic(topic)
    load = Load(broker, topic, SETTINGS[name], name == NAIVE)
    fast, slow = load.run(range(number), 0.0), load.run(range(number, 2 * number), EVERY_S)
    rate, answered_ms = round(number / fast.seconds), median(slow.answered_ms)
    requests = f"{fast.requests} request{'s' * (fast.requests != 1)}"
    tell(f"{name}: {rate:,} messages a second in {requests}; slowly, {answered_ms:.1f} ms for the middle one")
    return {
        "way": name,
        "messages/s": rate,
        "requests": fast.requests,
        "slow requests": slow.requests,
        "slow ms": round(answered_ms, 1),
        "all kept": read(broker.bootstrap, topic, **AT_ONCE) == ["", *map(str, range(2 * number))],
    }


class Load:
    """Numbered messages, each with the moment at which it came."""

    def __init__(self, broker: Broker, topic: str, settings: dict[str, Any], wait: bool) -> None:
        self._broker = broker
        self._topic = topic
        self._wait = wait
        self._clock = SystemClock()
        self._sender: Producer = producer(broker.bootstrap, max_in_flight=5, **settings)
        # connects, and learns where the partition is, before the clock runs
        self._sender.produce(topic, "", partition=0, on_delivery=taken)
        flush(self._sender)
        self._answered_ms: list[float] = []

    def run(self, numbers: range, every_s: float) -> Run:
        """Send them all, one `every_s` where that is not 0, and wait for the last answer."""
        self._answered_ms = []
        requests = self._broker.faults.delay("Produce", ROUND_TRIP_MS, topic=self._topic)
        with requests:
            began_s = self._clock.monotonic_s()
            for place, number in enumerate(numbers):
                self._until(came_s := began_s + place * every_s)
                self._send(number, came_s)
            flush(self._sender)
            return Run(self._clock.monotonic_s() - began_s, self._answered_ms, requests.met)

    def _send(self, number: int, came_s: float) -> None:
        report: Callable[[KafkaError | None, Message], None] = partial(self._report, came_s)
        self._sender.produce(self._topic, str(number), partition=0, on_delivery=report)
        self._sender.poll(0)
        if self._wait:
            flush(self._sender)

    def _until(self, moment_s: float) -> None:
        while (left_s := moment_s - self._clock.monotonic_s()) > 0:
            self._sender.poll(left_s)

    def _report(self, came_s: float, error: KafkaError | None, message: Message) -> None:
        taken(error, message)
        self._answered_ms.append((self._clock.monotonic_s() - came_s) * 1e3)
