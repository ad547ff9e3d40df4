"""The topics of a capture: one for its changes, or one for each table; a compacted one for its position, `NAME.position`;
one for dead letters.

A table's own topic: `shop` and the table till.item make `shop.till.item`.

Rule 1: a topic that is missing is made; one that is there is never changed.
Rule 2: the position is the last one that was committed. Who asks has fenced its writer before, so nothing is open.
Rule 3: in a table's topic letters, digits, `_` and `-` stand as they are. Another character becomes `_`, and behind such a
        name stands a sum of what it was: `a b` and `a.b` are two topics, and each is the same after every start.
Rule 4: two tables whose topics Kafka would not tell apart (it takes `.` and `_` for one in names of metrics) are refused,
        and so is a name that is too long: never are two tables in one topic.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from waterclock.cdc.position import Position
from waterclock.errors import EnvironmentMissing, UsageError
from waterclock.kafka.admin import Admin
from waterclock.kafka.errors import words_of
from waterclock.kafka.settings import READING

KEY = b"position"
ORDERS = ("key", "global")
ONE, PER_TABLE = "one", "per-table"
_ODD = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST = 249
_PATIENCE_S = 30.0
_FIRST_LOOK = 64  # so many records from the end on: the last one nearly always lies there
_COMPACTED = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1", "segment.bytes": "16777216"}


@dataclass(frozen=True, slots=True)
class Target:
    """Where changes go: `order` is "key" (as many partitions as one likes) or "global" (one). `dead_letters` is the topic
    of what cannot be read, "" if the capture stops at such a record. `topics` is "one", or "per-table": then `topic` is
    the beginning of their names."""

    servers: str
    topic: str
    order: str = "key"
    partitions: int = 4
    dead_letters: str = ""
    topics: str = ONE

    def __post_init__(self) -> None:
        if self.topics not in (ONE, PER_TABLE):
            raise ValueError(f"topics must be {ONE} or {PER_TABLE}, got {self.topics!r}")
        if self.order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {self.order!r}")
        if self.partitions < 1:
            raise ValueError(f"partitions must be 1 or more, got {self.partitions}")


def topic_of(prefix: str, database: str, table: str) -> str:
    """The name; UsageError if it would be too long for Kafka.

    >>> topic_of("shop", "till", "item"), topic_of("shop", "till", "größe")
    ('shop.till.item', 'shop.till.gr__e-5bd3a989')
    """
    name = f"{prefix}.{_legal(database)}.{_legal(table)}"
    if len(name) > _LONGEST:
        raise UsageError(
            f"The topic of {database}.{table} would be {name[:40]}..., with {len(name)} letters, and Kafka takes "
            f"{_LONGEST}. Leave the table out (--tables), or give the topics a shorter beginning (--to)."
        )
    return name


def _legal(name: str) -> str:
    odd = _ODD.sub("_", name)
    return name if odd == name else f"{odd}-{zlib.crc32(name.encode()):08x}"


class Names:
    """The topics of tables that were met so far; `taken` are topics of the capture that are no table's."""

    def __init__(self, prefix: str, taken: Iterable[str]) -> None:
        self._prefix = prefix
        self._owners = {_alike(topic): f"the topic {topic} of this capture" for topic in taken if topic}

    def of(self, database: str, table: str) -> str:
        """The topic of a table; UsageError if another one has it."""
        topic = topic_of(self._prefix, database, table)
        owner = self._owners.setdefault(_alike(topic), f"the table {database}.{table}")
        if owner != f"the table {database}.{table}":
            raise UsageError(
                f"The table {database}.{table} would have the topic {topic}, which Kafka does not tell from that of {owner}"
                ". Leave one of them out (--tables), and capture it under another --name to another topic."
            )
        return topic


def _alike(topic: str) -> str:
    return topic.replace(".", "_")


class CaptureTopics:
    """Where records go, each topic made if it is missing. `state` is the one of the position."""

    def __init__(self, settings: Mapping[str, Any], target: Target, state: str) -> None:
        self._admin, self._target = Admin(settings), target
        self._there = self._admin.topics()
        if target.dead_letters in (target.topic, state):
            raise UsageError(
                f"The topic of dead letters has to be one of its own, and {target.dead_letters} is none: name another."
            )
        if state not in self._there:
            self._admin.make(state, 1, _COMPACTED)
        elif (policy := self._admin.settings(state)["cleanup.policy"]) != "compact":
            # without its position a capture would begin again
            raise UsageError(
                f"The topic {state} keeps the capture's position and has cleanup.policy={policy}, so it would forget it. "
                "Set it to compact."
            )
        if target.dead_letters:
            self._partitions(target.dead_letters, 1)
        self._names = Names(target.topic, (state, target.dead_letters))
        self._known: dict[tuple[str, str], tuple[str, int]] = {}
        self._one = None if target.topics == PER_TABLE else (target.topic, self._of_changes(target.topic))

    def of(self, database: str, table: str) -> tuple[str, int]:
        """The topic of a table's changes, and how many partitions it has."""
        if self._one is not None:
            return self._one
        found = self._known.get((database, table))
        if found is None:
            topic = self._names.of(database, table)
            found = self._known[database, table] = (topic, self._of_changes(topic))
        return found

    def _of_changes(self, topic: str) -> int:
        ordered = self._target.order == "global"
        found = self._partitions(topic, 1 if ordered else self._target.partitions)
        if ordered and found != 1:
            raise UsageError(
                f"The topic {topic} has {found} partitions, and a global order needs exactly one. Choose another topic, or "
                "--order key: then the changes of one row keep their order."
            )
        return found

    def _partitions(self, topic: str, wanted: int) -> int:
        if topic not in self._there:
            self._admin.make(topic, wanted)
            self._there[topic] = wanted
        return self._there[topic]


def last_position(settings: Mapping[str, Any], state_topic: str, patience_s: float = _PATIENCE_S) -> Position | None:
    """The position that was committed last; None if there is none yet. EnvironmentMissing if nobody answers."""
    consumer = Consumer(
        {
            **settings,
            **READING,
            "group.id": f"{state_topic}.reader",  # asked for by the client, and unused: nothing is committed
            "fetch.wait.max.ms": 10,  # at the end there is nothing to wait for: nobody writes
            "auto.offset.reset": "earliest",
        }
    )
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(state_topic, 0), timeout=patience_s)
        for start in (max(low, high - _FIRST_LOOK), low):
            consumer.assign([TopicPartition(state_topic, 0, start)])
            found = list(_records(consumer, patience_s))
            if found or start == low:
                return Position.parsed(found[-1]) if found else None
    except KafkaException as error:
        raise EnvironmentMissing(f"The position in {state_topic} cannot be read: {words_of(error)}.") from None
    finally:
        consumer.close()
    return None


def _records(consumer: Consumer, patience_s: float) -> Iterator[bytes]:
    while True:
        message = consumer.poll(patience_s)
        if message is None:
            raise EnvironmentMissing("Kafka does not answer while the last position is read. Is it still running?")
        if message.error() is None:
            yield message.value()
        elif message.error().code() == KafkaError._PARTITION_EOF:
            return
        else:
            raise KafkaException(message.error())
