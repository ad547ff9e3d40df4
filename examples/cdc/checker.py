"""Looks at every version in the topic, and counts what is wrong with it and with their order.

What the shop committed is known: the k-th transaction, its changes in order, each with table, operation, key and rev. So
are the rows that are older than the log: each comes once, as it is where it stands, unless it was deleted before.

    missing     a change that was committed and is not in the topic
    twice       one that is there again
    strange     one that was never committed, is not at its place in its transaction, has another row's message key, is in
                another partition than its key belongs to, or is none of our messages
    wrong       one whose values are not those of the version before it with what it says it changed, or are not of their
                columns' kinds (values.py)
    swapped     of two changes of a row, the later one stands before the earlier one, or in another partition, or its
                (sequence, xoffset), by which the target says which is the later one, is not the larger one; or a
                transaction has two sequences, or none that is larger than that of the one before it
    torn        a commit mark on another change than the last one of its transaction; or changes of one transaction that are
                in two of Kafka's: between them stands what ends one, and takes an offset
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from waterclock.errors import WaterclockError

from .partitioning import partition_of
from .shop import DATABASE, Key, Version
from .tables import ShopTable
from .values import OLDER, Object, Values, read, whole

_PATIENCE_S = 30.0
_AT_ONCE, _LOOK_S = 1000, 0.5  # where less is there it waits so long, and hears no Ctrl-C meanwhile
_GTID = "0-1"  # domain and server of all that the shop writes
_NO_MESSAGE = ValueError, LookupError, TypeError, AttributeError
Row = tuple[str, Key]


@dataclass(slots=True)
class OrderErrors:
    """Counts; `versions` is what was looked at, `older` those of rows that are older than the log."""

    versions: int = 0
    older: int = 0
    missing: int = 0
    twice: int = 0
    strange: int = 0
    wrong: int = 0
    swapped: int = 0
    torn: int = 0

    @property
    def errors(self) -> int:
        return self.missing + self.twice + self.strange + self.wrong + self.swapped + self.torn


class Last(NamedTuple):
    """What was seen of a row last: where, (transaction, place in it), and (sequence, place)."""

    partition: int = -1
    at: tuple[int, int] = (-1, -1)
    position: tuple[int, int] = (-1, -1)
    gone: bool = False


class Checker:
    """`first` is the number, in its GTID, of the transaction before the first one in `history`; `older` are the keys of the
    rows that no transaction of `history` made, by table."""

    def __init__(
        self,
        history: Sequence[Sequence[Version]],
        first: int,
        tables: Sequence[ShopTable],
        older: Mapping[str, Iterable[Key]] = MappingProxyType({}),
    ) -> None:
        self._history, self._first = history, first
        self._older = {(table, key): False for table, keys in older.items() for key in keys}  # whether it came
        self._chunks: set[int] = set()  # the sequences of what older rows came in
        self._tables = {table.name: table for table in tables}
        self._seen = [bytearray(len(versions)) for versions in history]
        self._sequences: list[int | None] = [None] * len(history)
        self._values = Values()
        self._ends: dict[int, tuple[int, int]] = {}  # of a partition: transaction and offset of the message before
        self.rows: dict[Row, Last] = {}
        self.partitions = 0  # of the topic; 0 where nobody said: then keys may be anywhere
        self.found = OrderErrors()

    def take(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        """The next message of a partition."""
        self.found.versions += 1
        try:
            event, of_row = read(value), read(key)
            if self.partitions and partition_of(key or b"", self.partitions) != partition:
                self.found.strange += 1
            if event["type"] == OLDER:
                self._take_older(partition, offset, event, of_row)
                return
            number, place = self._place(event)
        except _NO_MESSAGE:
            self.found.strange += 1
            return
        self.found.twice += self._seen[number][place]
        self._seen[number][place] = 1
        self._look(event, of_row, self._history[number][place])
        self._order(partition, (number, place), whole(event["sequence"]))
        self._whole(partition, offset, (number, place), event)

    def _take_older(self, partition: int, offset: int, event: Object, of_row: Object) -> None:
        """A row that no change brought: it goes between two transactions, with a sequence of its own."""
        version, position = self._reported(event, of_row), (whole(event["sequence"]), whole(event["xoffset"]))
        if version is None:
            raise ValueError("not of one row")
        row = version.table, version.key
        before = self.rows.get(row)
        if before is None and row not in self._older:
            raise ValueError("no row of the shop")
        self.found.older += 1
        self.found.twice += self._older.get(row, False)
        self._older[row] = True
        self.found.wrong += self._values.are_wrong(self._tables[version.table], version, event)
        last = before or Last(partition)
        self.found.swapped += last.gone or last.partition != partition or last.position >= position
        self.rows[row] = last._replace(position=position)
        self._chunks.add(position[0])
        number, end = self._ends.get(partition, (-1, -1))
        self._ends[partition] = -position[0], offset
        self.found.torn += number == -position[0] and offset != end + 1

    def _place(self, event: Object) -> tuple[int, int]:
        """The transaction's number and the place in it; ValueError where there is no such change."""
        server, _, number = event["gtid"].rpartition("-")
        found = int(number) - self._first - 1, whole(event["xoffset"])
        whole(event["sequence"])
        if server != _GTID or not (0 <= found[0] < len(self._history) and 0 <= found[1] < len(self._history[found[0]])):
            raise ValueError("no change of the shop is there")
        return found

    def _look(self, event: Object, of_row: Object, version: Version) -> None:
        """What it says, beside what was committed there, and beside the version before."""
        try:
            if self._reported(event, of_row) != version:
                raise ValueError("another version")
            self.found.wrong += self._values.are_wrong(self._tables[version.table], version, event)
        except _NO_MESSAGE:
            self.found.strange += 1

    def _reported(self, event: Object, of_row: Object) -> Version | None:
        """The version that a message is of; None where not all of it is of one row."""
        data, names = event["data"], [column.name for column in self._tables[event["table"]].key]
        row = [(f"pk.{name}", data[name]) for name in names]
        place = [("database", DATABASE), ("table", event["table"])]
        if (
            list(of_row.items()) != [*place, *row]
            or event["database"] != DATABASE
            or event["primary_key_columns"] != names
        ):
            return None
        key = tuple(value if isinstance(value, str) else whole(value) for _, value in row)
        return Version(event["table"], event["type"], key, whole(data["rev"]))

    def _order(self, partition: int, at: tuple[int, int], sequence: int) -> None:
        version, position = self._history[at[0]][at[1]], (sequence, at[1])
        before = self.rows.get((version.table, version.key), Last(partition))
        first = self._sequences[at[0]]
        self._sequences[at[0]] = sequence if first is None else first
        stands = before.partition == partition and before.at < at and before.position < position
        self.found.swapped += not stands or first not in (None, sequence)
        self.rows[version.table, version.key] = Last(partition, at, position, version.operation == "delete")

    def _whole(self, partition: int, offset: int, at: tuple[int, int], event: Object) -> None:
        number, end = self._ends.get(partition, (-1, -1))
        self._ends[partition] = at[0], offset
        is_last = at[1] == len(self._history[at[0]]) - 1
        self.found.torn += event.get("commit", False) is not is_last or (number == at[0] and offset != end + 1)

    def end(self) -> OrderErrors:
        """After the last message."""
        self.found.missing = sum(len(seen) - sum(seen) for seen in self._seen)
        reported = [sequence for sequence in self._sequences if sequence is not None]
        self.found.swapped += sum(one >= other for one, other in pairwise(reported))
        self.found.swapped += len(self._chunks.intersection(reported))
        silent = [row for row, came in self._older.items() if not came]
        self.found.missing += sum(not self.rows[row].gone if row in self.rows else True for row in silent)
        return self.found


def check_topic(servers: str, topic: str, checker: Checker) -> OrderErrors:
    """All that is committed in the topic, partition by partition, through the checker."""
    settings: dict[str, Any] = {
        "bootstrap.servers": servers,
        "group.id": "checker",
        "enable.auto.commit": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
        "log_level": 0,
    }
    consumer = Consumer(settings)
    try:
        left = set(consumer.list_topics(topic, timeout=_PATIENCE_S).topics[topic].partitions)
        checker.partitions = len(left)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in left])
        silent_s = 0.0
        while left:
            messages = consumer.consume(_AT_ONCE, _LOOK_S)
            silent_s = 0.0 if messages else silent_s + _LOOK_S
            if silent_s >= _PATIENCE_S:
                raise WaterclockError("the broker does not give what is in the topic: is it still running?")
            for message in messages:
                if message.error() is None:
                    checker.take(message.partition(), message.offset(), message.key(), message.value())
                else:
                    left.discard(message.partition())
    finally:
        consumer.close()
    return checker.end()
