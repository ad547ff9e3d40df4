"""Kafka's side of an outbox: rows into the relay's input, and how far they were taken, in one transaction.

    1. fence     who took rows for this relay before can write no more
    2. read      what its last transaction stored: a place of the database's log, and numbers of rows
    3. send      requests to the input, each with its row's transaction and number in `outbox-from`
    4. store     the place behind them, or their numbers
    5. commit

A crash between any two leaves Kafka as it was after the last 5. Steps 1, 3 and 5 are those of kafka/transactions.py.

The topic TOPIC.outbox, compacted: partition 0 has the place, partition 1 the numbers of rows that were asked for, and are
not to be taken again when they come by the log, or are still there.

Rule 1: what is no request, or too large for the input, goes to TOPIC.dead with the reason. Of a row that is too large the
        letter has no value: it stays in the table, where no relay looks at it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, TopicPartition

from waterclock.cdc.position import Position
from waterclock.cdc.produce import COMPACTED, KEY
from waterclock.cdc.stored import last_position, last_record
from waterclock.errors import ConnectionLost, UsageError, WaterclockError
from waterclock.kafka.admin import Admin, there_just_now
from waterclock.kafka.errors import Meaning, meaning_of, words_of
from waterclock.kafka.transactions import BY_KEY, TransactionalProducer
from waterclock.outbox.table import StoredRow
from waterclock.relay.client.outbox import OutboxRow
from waterclock.relay.client.sending import partition_of
from waterclock.relay.wire.letters import REASON
from waterclock.relay.wire.request import ACTION, ID, Action, Header
from waterclock.relay.wire.topics import Topics

FROM: Final = "outbox-from"
_PLACE, _NUMBERS = 0, 1  # the partitions of TOPIC.outbox
_TIMED: Final = {"transaction.timeout.ms": 10_000}  # so long an open one holds back what stands behind it
_AROUND: Final = 1000  # bytes of a record beside what the row has, and of what a relay adds
_LIMITS: Final = ("max.message.bytes", "segment.bytes")


class OutboxLog:
    """A position store (cdc/door/store.py), whose commits have what `send` was given. `first`: what is done before the
    database's log is read, and what in the transaction that stores where it begins. `numbers`: see the file; `aside`:
    of rows that were too large; `state`: the topic."""

    def __init__(
        self, settings: Mapping[str, Any], topics: Topics, first: tuple[Callable[[], object], Callable[[], object]]
    ) -> None:
        self.name = f"{topics.input}_outbox"
        self._settings, self._topics, self.state = settings, topics, f"{topics.input}.outbox"
        self._before, self._with_place = first
        self._stored: Position | None = None
        self.numbers: set[int] = set()
        self.aside: list[int] = []
        self._partitions = self._limit = 0
        self._producer: TransactionalProducer | None = None

    def claim(self) -> Position | None:
        """Steps 1 and 2."""
        self.open()
        self._before()
        return self._stored

    def open(self) -> None:
        """The same, without what a first start does."""
        admin = Admin(self._settings)
        if self.state not in admin.topics():
            admin.make(self.state, 2, COMPACTED)
        self._partitions = admin.partitions(self._topics.input)
        with there_just_now():
            limits = admin.settings(self._topics.input)
        self._limit = min(int(limits[name]) for name in _LIMITS if name in limits) - _AROUND
        name = f"waterclock-outbox-{self._topics.input}"
        self._producer = TransactionalProducer({**self._settings, **_TIMED}, name, partial(_error_of, name))
        self._producer.fence(self.state)  # 1
        self.aside.clear()
        self._stored = last_position(self._settings, self.state)  # 2
        self.numbers = set(json.loads(last_record(self._settings, TopicPartition(self.state, _NUMBERS)) or b"[]"))

    @property
    def has_place(self) -> bool:
        """Whether rows were taken by the database's log."""
        return self._stored is not None

    def send(self, rows: Iterable[StoredRow]) -> None:
        """Step 3."""
        producer = self._open()
        for number, transaction, row, reason in rows:
            origin = f"{transaction or 'polled'} {number}".encode()
            headers: list[Header] = [*row.headers, (FROM, origin)]
            size = sum(len(part or b"") for part in (row.key, row.value, *(text for _, text in headers)))
            if size > self._limit:
                self.aside.append(number)
                reason = f"with {size} bytes it is larger than {self._topics.input} takes: it stays in the table."
                row, headers = row._replace(key=None, value=None), [(FROM, origin)]
            if reason:
                producer.send(self._topics.dead, row.value, row.key, headers=[*headers, (REASON, reason.encode())])
                continue
            for partition in self._places(row):
                producer.send(self._topics.input, row.value, row.key, partition, headers=headers)

    def remember(self, numbers: Collection[int]) -> None:
        """Step 4, of numbers."""
        self._open().send(self.state, json.dumps(sorted(numbers)).encode(), b"numbers", _NUMBERS)
        self.numbers = set(numbers)

    def commit(self, position: Position) -> None:
        """Steps 4, of a place, and 5."""
        if self._stored is None:
            self._with_place()
        self._open().send(self.state, position.as_json(), KEY, _PLACE)
        self.finish()
        self._stored = position

    def finish(self) -> None:
        """Step 5."""
        self._open().commit()

    def abandon(self) -> None:
        """What was sent and not committed is nowhere: the producer's end throws it away."""

    def release(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()

    def _open(self) -> TransactionalProducer:
        assert self._producer is not None
        self._producer.begin()
        return self._producer

    def _places(self, row: OutboxRow) -> Iterator[int]:
        """The partitions that it goes to: those to which a program that talks to Kafka itself sends."""
        given = dict(row.headers)
        if row.place is not None and 0 <= row.place < self._partitions:
            yield row.place
        elif row.key is not None:
            yield partition_of(row.key, self._partitions)
        elif given.get(ACTION) == Action.CANCEL.value.encode():
            yield from range(self._partitions)
        elif id := given.get(ID):
            yield partition_of(id, self._partitions)
        else:
            yield BY_KEY


def _error_of(name: str, error: KafkaError) -> WaterclockError:
    if meaning_of(error) is Meaning.FENCED:
        return UsageError(
            f"Another process takes the outbox's rows now (as {name}), and Kafka lets only the later one write: have the "
            "relays of one topic be of one group, or start one of them alone with --outbox."
        )
    return ConnectionLost(f"Kafka did not take the outbox's rows: {words_of(error)}.")
