"""A client in a process of its own: what all kinds of them share, and the command that starts one.

    python -m tests.broker.consistency.worker KIND '{"name": ..., "number": ..., "bootstrap": ..., ...}'

Rule 1: a worker ends by SIGTERM, after what it is doing; readers read to the end first. By SIGKILL at any moment.
Rule 2: its values are its number times 1,000,000 and more, rising: who wrote one, and in which order, stands in the value.
Rule 3: a call of the client that has not come back after 45 s, whatever its timeout, is written down, and ends the process
    (STUCK): this is no doing of a broker. Another worker takes its place.
Rule 4: librdkafka's clients with its own defaults, but for short timeouts; what it retries by itself is retried.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import signal
import sys
import threading
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.broker.consistency.history import Writer
from waterclock.clock import SystemClock

PARTITIONS = {"lists": 3, "in": 2, "out": 2}
KEYS = 7
TRANSACTION_MS = 10_000
QUICK = {
    "log_level": 0,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.interval.ms": 2_000,
}
STUCK_S, STUCK = 45.0, 3
KINDS = {
    "sender": "sending",
    "transactor": "transacting",
    "transformer": "transforming",
    "reader": "reading",
    "member": "members",
    "observer": "members",
}


class Worker:
    """What a client has: its history, its dice, its values, and whether it is to end."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.history = Writer(Path(given["histories"]), given["name"])
        self.random = random.Random(given["seed"])
        self.stopping = threading.Event()
        self._values = count(given["number"] * 1_000_000)
        # a thread waits for it: a handler would run inside of the client's C code, which has errors of its own set there
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        self._clock = SystemClock()
        self.alive()
        for deed in (self._wait_for_the_end, self._watch):
            threading.Thread(target=deed, daemon=True).start()

    def _wait_for_the_end(self) -> None:
        signal.sigwait({signal.SIGTERM})
        self.stopping.set()

    def alive(self) -> None:
        """The client's last call has come back."""
        self._alive_s = self._clock.monotonic_s()

    def _watch(self) -> None:
        while self._clock.monotonic_s() - self._alive_s < STUCK_S:
            self._clock.sleep_s(1)
        self.history.tell("stuck")
        faulthandler.dump_traceback()
        os._exit(STUCK)

    def client(self, **settings: Any) -> dict[str, Any]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        return {"bootstrap.servers": self.given["bootstrap"], **QUICK, **named}

    def write(self, topic: str) -> list[Any]:
        """A new value for a key of `topic`: [topic, partition, key, value]."""
        key = self.random.randrange(KEYS)
        return [topic, key % PARTITIONS[topic], f"k{key}", next(self._values)]

    def pause(self, longest_s: float) -> None:
        self.stopping.wait(self.random.random() * longest_s)


def rows(messages: list[Any]) -> list[list[Any]]:
    """What a reader was given, as a history has it."""
    return [[one.topic(), one.partition(), one.offset(), value_of(one)] for one in messages if one.error() is None]


def value_of(message: Any) -> int:
    """The number in a message; -1, which nobody writes, where there is none."""
    text = message.value() or b""
    return int(text) if text.isdigit() else -1


def places(*topics: str, offset: int = 0) -> list[TopicPartition]:
    return [TopicPartition(topic, number, offset) for topic in topics for number in range(PARTITIONS[topic])]


def fetched(worker: Worker, consumer: Consumer, group: str, asked: list[TopicPartition]) -> list[TopicPartition]:
    """What the group has committed, written down; empty where nobody answers."""
    number = worker.history.begin("fetched", group=group)
    try:
        told = consumer.committed(asked, timeout=10)
    except KafkaException as error:
        worker.history.end(number, "unknown", error=str(error))
        return []
    good = [one for one in told if one.error is None]
    offsets = {f"{one.topic}-{one.partition}": max(one.offset, -1) for one in good}
    worker.history.end(number, "ok" if len(good) == len(asked) else "unknown", offsets=offsets)
    return good


if __name__ == "__main__":
    faulthandler.register(signal.SIGUSR1)
    module = import_module(f"tests.broker.consistency.{KINDS[sys.argv[1]]}")
    getattr(module, sys.argv[1])(Worker(json.loads(sys.argv[2])))
    os._exit(0)  # all is written; a client of librdkafka that is let go may wait for its broker
