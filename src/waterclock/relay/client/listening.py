"""What is delivered to a topic, for `waterclock relay read`: all that is committed, and then what comes.

Rule 1: a topic that is not there yet is waited for, and Kafka that is away too: each is said once. What waiting does not
        mend is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition

from waterclock.clock import SystemClock
from waterclock.errors import ConnectionLost, UsageError
from waterclock.kafka import library
from waterclock.kafka.admin import Admin
from waterclock.kafka.errors import is_refusal, words_of
from waterclock.kafka.settings import READING
from waterclock.relay.wire.request import names_a_topic
from waterclock.relay.wire.topics import STARTS

_AGAIN_S = 0.25


@contextmanager
def reading(settings: Mapping[str, Any], topic: str, only_new: bool) -> Iterator[Iterator[Message]]:
    """The messages of a topic, without end, while the block lasts; UsageError if there can be none."""
    heard = _Heard(topic)
    partitions = _partitions(settings, topic)
    own = {**READING, "group.id": "unused", "fetch.wait.max.ms": 100, "error_cb": heard.of_client}
    reader = library.Consumer({**settings, **own})
    try:
        reader.assign([TopicPartition(topic, number, -1 if only_new else -2) for number in range(partitions)])
        yield _messages(reader, heard)
    finally:
        reader.close()


def _messages(reader: library.Consumer, heard: _Heard) -> Iterator[Message]:
    while True:
        message = reader.poll(_AGAIN_S)
        if message is not None and message.error() is None:
            heard.came()
            yield message
        elif message is not None:
            heard.of_partition(message.error())


class _Heard:
    """What Kafka said last that was no message."""

    def __init__(self, topic: str) -> None:
        self._topic, self._is_said = topic, False

    def came(self) -> None:
        """Something is there."""
        self._is_said = False

    def of_client(self, error: KafkaError) -> None:
        """Connections come and go."""
        if not self._is_said and error.code() == KafkaError._ALL_BROKERS_DOWN:
            self._is_said = True
            print(f"waterclock: Kafka is away ({error.str()}): waiting for it", file=sys.stderr, flush=True)

    def of_partition(self, error: KafkaError) -> None:
        """Raises what waiting does not mend."""
        if error.code() in (KafkaError._PARTITION_EOF, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            return
        if is_refusal(error):
            raise UsageError(f"Kafka refuses {self._topic}: {words_of(error)}. Look at --kafka-config and the rights.")
        raise ConnectionLost(f"{self._topic} cannot be read any more: {words_of(error)}. Start the command again.")


def _partitions(settings: Mapping[str, Any], topic: str) -> int:
    """How many there are, once there are some."""
    if not names_a_topic(topic):
        raise UsageError(f"No topic may be named {topic!r}: names have letters, digits, '.', '_' and '-', 249 at most.")
    clock, admin, said = SystemClock(), Admin(settings, starts=STARTS), False
    while not (found := admin.topics().get(topic)):
        if not said:
            print(f"waterclock: there is no topic {topic} yet: waiting for it", file=sys.stderr, flush=True)
            said = True
        clock.sleep_s(_AGAIN_S)
    return found
