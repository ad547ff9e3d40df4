"""A producer of transactions in a process of its own that kills itself, with SIGKILL, before or after a numbered step.

python -m tests.kafka.kill_steps SERVERS TOPIC STEP WHEN
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable

from confluent_kafka import KafkaError

from waterclock.errors import ConnectionLost
from waterclock.kafka.settings import base_settings
from waterclock.kafka.transactions import TransactionalProducer

STEPS = ("fence", "begin", "send", "commit")


def main(servers: str, topic: str, step: str, when: str) -> None:
    producer = TransactionalProducer(base_settings(servers, {}), topic, error_of)

    def send() -> None:
        producer.send(topic, b"one", b"k")
        producer.send(topic, b"two", b"k")
        producer.producer.flush(10)  # what was sent has arrived: there is something to be thrown away

    steps: dict[str, Callable[[], None]] = {
        "fence": producer.fence, "begin": producer.begin, "send": send, "commit": producer.commit,
    }  # fmt: skip
    for name, deed in steps.items():
        for moment in ("before", "after"):
            if (name, moment) == (step, when):
                os.kill(os.getpid(), signal.SIGKILL)
            if moment == "before":
                deed()


def error_of(error: KafkaError) -> ConnectionLost:
    return ConnectionLost(error.str())


if __name__ == "__main__":
    main(*sys.argv[1:])
