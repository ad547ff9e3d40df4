"""Looks at every version in the topic, and counts what is wrong with their order.

What the shop committed is known: the k-th transaction, its changes in order, each with table, operation, key and rev.

    missing     a change that was committed and is not in the topic
    twice       one that is there again
    strange     one that was never committed, is not at its place in its transaction, or has another row's message key
    swapped     of two changes of a row, the later one stands before the earlier one, or in another partition, or its
                (sequence, xoffset), by which the target tells which is the later one, is not the larger one
    torn        a commit mark on another change than the last one of its transaction
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from waterclock.errors import WaterclockError

from .shop import Key, Version

_PATIENCE_S = 30.0
Row = tuple[str, Key]


@dataclass(slots=True)
class OrderErrors:
    """Counts; `versions` is what was looked at."""

    versions: int = 0
    missing: int = 0
    twice: int = 0
    strange: int = 0
    swapped: int = 0
    torn: int = 0

    @property
    def errors(self) -> int:
        return self.missing + self.twice + self.strange + self.swapped + self.torn


class Checker:
    """`first` is the number, in its GTID, of the transaction before the first one in `history`; `keys` are the names of
    each table's primary key."""

    def __init__(self, history: Sequence[Sequence[Version]], first: int, keys: dict[str, tuple[str, ...]]) -> None:
        self._history, self._first, self._keys = history, first, keys
        self._seen = [bytearray(len(versions)) for versions in history]
        # of a row: partition, (transaction, place in it), position
        self._last: dict[Row, tuple[int, tuple[int, int], tuple[int, int]]] = {}
        self.found = OrderErrors()

    def take(self, partition: int, key: bytes, value: bytes) -> None:
        """The next message of a partition."""
        found, event = self.found, json.loads(value)
        found.versions += 1
        number, place = int(event["gtid"].rpartition("-")[2]) - self._first - 1, event["xoffset"]
        if not (0 <= number < len(self._history) and place < len(self._history[number])):
            found.strange += 1
            return
        found.twice += self._seen[number][place]
        self._seen[number][place] = 1
        version = self._history[number][place]
        found.strange += self._version(event) != version or _of_key(key) != version.key
        found.torn += bool(event.get("commit")) != (place == len(self._history[number]) - 1)
        row, at, position = (version.table, version.key), (number, place), (event["sequence"], place)
        before = self._last.get(row, (partition, (-1, -1), (-1, -1)))
        found.swapped += before[0] != partition or before[1] >= at or before[2] >= position
        self._last[row] = (partition, at, position)

    def end(self) -> OrderErrors:
        """After the last message."""
        self.found.missing = sum(len(seen) - sum(seen) for seen in self._seen)
        return self.found

    def _version(self, event: dict[str, Any]) -> Version:
        data, table = event["data"], event["table"]
        return Version(table, event["type"], tuple(data[name] for name in self._keys[table]), data["rev"])


def _of_key(key: bytes) -> Key:
    """The primary key's values in a message's key."""
    return tuple(value for name, value in json.loads(key).items() if name.startswith("pk."))


def check_topic(servers: str, topic: str, checker: Checker) -> OrderErrors:
    """All that is committed in the topic, partition by partition, through the checker."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "checker",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    try:
        left = set(consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        while left:
            messages = consumer.consume(10_000, 1.0 if checker.found.versions else _PATIENCE_S)
            if not messages:
                raise WaterclockError("the broker does not give what is in the topic: is it still running?")
            for message in messages:
                if message.error() is None:
                    checker.take(message.partition(), message.key(), message.value())
                else:
                    left.discard(message.partition())
    finally:
        consumer.close()
    return checker.end()
