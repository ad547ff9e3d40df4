"""A transactional client by hand: each request of Kafka's transactions as one call, over one plain socket.

Rule 1: what comes back is an error's name, or what the answer says beside it; nothing is checked for the test.
Rule 2: it speaks to any broker: the same sentences were said to Apache Kafka 4.3.1 to learn its answers.
"""

from __future__ import annotations

import dataclasses
import functools
import io
import socket
import struct
import time
import typing
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, NamedTuple, Self

from crc32c import crc32c
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from waterclock.broker import Broker
from waterclock.broker.wire.errors import Error
from waterclock.clock import SystemClock

PATIENCE_S = 10.0
REST = struct.Struct(">hiqqqhii")


class Id(NamedTuple):
    """A producer's id and epoch."""

    producer_id: int
    epoch: int


class Stored(NamedTuple):
    """A batch as it was fetched: first offset, producer's epoch, and its text, or COMMIT or ABORT of a marker."""

    offset: int
    epoch: int
    text: str


@functools.cache
def hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def entity(kind: Any, values: dict[str, Any]) -> Any:
    """kio's entity out of plain values; what this version does not know is left out."""
    names = {f.name for f in dataclasses.fields(kind)}
    return kind(**{name: plain(hints(kind)[name], value) for name, value in values.items() if name in names})


def plain(kind: Any, value: Any) -> Any:
    if type(None) in typing.get_args(kind):
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is tuple:
        return tuple(plain(typing.get_args(kind)[0], item) for item in value)
    if isinstance(value, dict):
        return entity(kind, value)
    if isinstance(kind, type) and issubclass(kind, timedelta):
        return timedelta(milliseconds=value)
    return value


def batch(text: str, producer: Id, sequence: int, transactional: bool = True, count: int = 1) -> bytes:
    """A record batch of `count` records with the same value."""
    records = b""
    for delta in range(count):
        body = bytes((0, 0, delta << 1, 1, len(text) << 1)) + text.encode() + b"\0"
        records += bytes((len(body) << 1,)) + body
    now_ms = SystemClock().wall_ms()  # a marker much later than the records before it would begin a segment
    rest = REST.pack(16 if transactional else 0, count - 1, now_ms, now_ms, *producer, sequence, count) + records
    return struct.pack(">qiibI", 0, len(rest) + 9, -1, 2, crc32c(rest)) + rest


class Described(NamedTuple):
    """A transaction, or the name of an error as its state."""

    state: str
    timeout_ms: int
    started_ms: int
    producer: Id
    partitions: dict[str, list[int]]


def described(data: bytes) -> Described:
    """The only row of an answer to DescribeTransactions 0."""
    assert data[0] == 2, "one row"
    error, texts, at = struct.unpack_from(">h", data, 1)[0], [], 3
    for _ in range(2):
        texts.append(data[at + 1 : at + data[at]].decode())
        at += data[at]
    timeout_ms, started_ms, producer_id, epoch = struct.unpack_from(">iqqh", data, at)
    count, at, partitions = data[at + 22] - 1, at + 23, {}
    for _ in range(count):
        topic, at = data[at + 1 : at + data[at]].decode(), at + data[at]
        numbers = data[at] - 1
        partitions[topic] = list(struct.unpack_from(f">{numbers}i", data, at + 1))
        at += 2 + 4 * numbers
    state = Error(error).name if error else texts[1]
    return Described(state, timeout_ms, started_ms, Id(producer_id, epoch), partitions)


class Wire:
    """One connection to the broker at `bootstrap`."""

    def __init__(self, bootstrap: str) -> None:
        host, port = bootstrap.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), PATIENCE_S)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._socket.close()

    def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        """The answer to one request."""
        self.send(key, version, **fields)
        return self.receive(key, version)

    def send(self, key: int, version: int, /, **fields: Any) -> None:
        kind = load_request_schema(key, version)
        self._correlation += 1
        head = {"request_api_key": key, "request_api_version": version, "client_id": "by-hand"}
        out = io.BytesIO()
        header = kind.__header_schema__
        entity_writer(header)(out, entity(header, {**head, "correlation_id": self._correlation}))
        entity_writer(kind)(out, entity(kind, fields))
        self._socket.sendall(struct.pack(">i", len(out.getvalue())) + out.getvalue())

    def receive(self, key: int, version: int) -> Any:
        frame = self.frame()
        kind = load_response_schema(key, version)
        _, start = entity_reader(kind.__header_schema__)(frame, 0)
        answer, size = entity_reader(kind)(frame, start)
        assert start + size == len(frame)
        return answer

    def frame(self) -> bytes:
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def quiet(self, patience_s: float = 0.05) -> bool:
        """Whether nothing comes for as long as that."""
        self._socket.settimeout(patience_s)
        try:
            self._socket.recv(1, socket.MSG_PEEK)
            return False
        except TimeoutError:
            return True
        finally:
            self._socket.settimeout(PATIENCE_S)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self._socket.recv(size - len(data))
            if not part:
                raise ConnectionResetError("the broker closed the connection")
            data += part
        return data


class Client(Wire):
    """A transactional producer by hand. Versions are the newest of transaction protocol 1 unless told."""

    def create(self, topic: str, partitions: int = 1) -> str:
        asked = {"name": topic, "num_partitions": partitions, "replication_factor": 1, "assignments": (), "configs": ()}
        answer = self.ask(19, 5, topics=(asked,), timeout=10_000, validate_only=False)
        assert answer.topics[0].error_code == 0, answer
        return topic

    def init(
        self, name: str | None, timeout_ms: int = 60_000, last: Id | None = None, version: int = 4
    ) -> tuple[str, Id]:
        producer_id, epoch = last or Id(-1, -1)
        a = self.ask(22, version, transactional_id=name, transaction_timeout=timeout_ms,
                     producer_id=producer_id, producer_epoch=epoch)  # fmt: skip
        return Error(a.error_code).name, Id(a.producer_id, a.producer_epoch)

    def ready(self, name: str | None, timeout_ms: int = 60_000) -> Id:
        error, producer = self.init(name, timeout_ms)
        assert error == "NONE", error
        return producer

    def begun(self, text: str = "a", name: str = "n") -> Id:
        """A producer with an open transaction of one record in t-0, the first there."""
        producer = self.ready(name)
        assert self.add(name, producer, "t") == ["NONE"]
        assert self.produce(name, "t", batch(text, producer, 0)) == ("NONE", 0)
        return producer

    def add(self, name: str, producer: Id, topic: str, *partitions: int, version: int = 3) -> list[str]:
        rows = ({"name": topic, "partitions": partitions or (0,)},)
        old = {
            "v3_and_below_transactional_id": name, "v3_and_below_producer_id": producer.producer_id,
            "v3_and_below_producer_epoch": producer.epoch, "v3_and_below_topics": rows,
        }  # fmt: skip
        one = {"transactional_id": name, "producer_id": producer.producer_id, "producer_epoch": producer.epoch,
               "verify_only": False, "topics": rows}  # fmt: skip
        a = self.ask(24, version, transactions=(one,), **old)
        found = a.results_by_topic_v3_and_below if version < 4 else a.results_by_transaction[0].topic_results
        return [Error(p.partition_error_code).name for t in found for p in t.results_by_partition]

    def add_offsets(self, name: str, producer: Id, group: str, version: int = 3) -> str:
        a = self.ask(25, version, transactional_id=name, producer_id=producer.producer_id,
                     producer_epoch=producer.epoch, group_id=group)  # fmt: skip
        return Error(a.error_code).name

    def end(self, name: str, producer: Id, commit: bool = True, version: int = 4) -> Any:
        """The error's name; from version 5 on with the id and epoch to go on with."""
        a = self.ask(26, version, transactional_id=name, producer_id=producer.producer_id,
                     producer_epoch=producer.epoch, committed=commit)  # fmt: skip
        error = Error(a.error_code).name
        return error if version < 5 else (error, Id(a.producer_id, a.producer_epoch))

    def end_soon(self, name: str, producer: Id, commit: bool = True, version: int = 4) -> None:
        """Ask for the end, and leave the answer unread."""
        self.send(26, version, transactional_id=name, producer_id=producer.producer_id,
                  producer_epoch=producer.epoch, committed=commit)  # fmt: skip

    def commit_offset(
        self, name: str, producer: Id, group: str, topic: str, offset: int, version: int = 4, generation: int = -1,
        member: str = "",
    ) -> str:  # fmt: skip
        row = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
        a = self.ask(28, version, transactional_id=name, group_id=group, producer_id=producer.producer_id,
                     producer_epoch=producer.epoch, generation_id=generation, member_id=member,
                     group_instance_id=None, topics=({"name": topic, "partitions": (row,)},))  # fmt: skip
        return Error(a.topics[0].partitions[0].error_code).name

    def produce(
        self, name: str | None, topic: str, data: bytes, version: int = 11, partition: int = 0, acks: int = -1
    ) -> tuple[str, int]:
        """The error's name and the offset."""
        self.produce_soon(name, topic, data, version, partition, acks)
        return self.produced(version)

    def produce_soon(
        self, name: str | None, topic: str, data: bytes, version: int = 11, partition: int = 0, acks: int = -1
    ) -> None:
        rows = ({"index": partition, "records": data},)
        self.send(0, version, transactional_id=name, acks=acks, timeout=10_000,
                  topic_data=({"name": topic, "partition_data": rows},))  # fmt: skip

    def produced(self, version: int = 11) -> tuple[str, int]:
        row = self.receive(0, version).responses[0].partition_responses[0]
        return Error(row.error_code).name, row.base_offset

    def fetch(self, topic: str, offset: int = 0, partition: int = 0, committed: bool = False) -> Any:
        """The partition's part of the answer, at once."""
        self.fetch_soon(topic, offset, partition, committed)
        return self.receive(1, 12).responses[0].partitions[0]

    def fetch_soon(
        self, topic: str, offset: int = 0, partition: int = 0, committed: bool = False, max_wait_ms: int = 0
    ) -> None:
        row = {"partition": partition, "current_leader_epoch": -1, "fetch_offset": offset, "last_fetched_epoch": -1,
               "log_start_offset": -1, "partition_max_bytes": 1 << 20}  # fmt: skip
        topics = ({"topic": topic, "partitions": (row,)},)
        self.send(1, 12, replica_id=-1, max_wait=max_wait_ms, min_bytes=1, max_bytes=1 << 20,
                  isolation_level=int(committed), session_id=0, session_epoch=-1, topics=topics,
                  forgotten_topics_data=(), rack_id="")  # fmt: skip

    def log(self, topic: str, partition: int = 0) -> list[Stored]:
        """Everything in a partition, decided or not, fetched batch by batch."""
        found: list[Stored] = []
        while more := stored(self.fetch(topic, found[-1].offset + 1 if found else 0, partition).records or b""):
            found += more
        return found

    def committed(self, topic: str, partition: int = 0) -> list[str]:
        """What a reader of committed records makes of a partition."""
        row = self.fetch(topic, 0, partition, committed=True)
        passed = {(a.producer_id, a.first_offset) for a in row.aborted_transactions or ()}
        return _kept(row.records or b"", passed)

    def describe(self, name: str) -> Described:
        """What DescribeTransactions tells, read by hand: kio refuses a transaction that has not begun (time -1)."""
        self.send(65, 0, transactional_ids=(name,))
        return described(self.frame()[9:])

    def state(self, name: str) -> str:
        return self.describe(name).state

    def until(self, state: str, name: str = "n") -> None:
        """Ask until the transaction is in that state."""
        late_s = time.monotonic() + 30
        while (now := self.state(name)) != state:
            assert time.monotonic() < late_s, f"{name} is {now}, not {state}"

    def offset(self, group: str, topic: str, stable: bool = True) -> tuple[str, int]:
        """What a group has committed for partition 0; the error says where a transaction is undecided."""
        asked = ({"name": topic, "partition_indexes": (0,)},)
        row = self.ask(9, 7, group_id=group, topics=asked, require_stable=stable).topics[0].partitions[0]
        return Error(row.error_code).name, row.committed_offset

    def producers(self, topic: str, partition: int = 0) -> Any:
        """What DescribeProducers tells of a partition."""
        asked = ({"name": topic, "partition_indexes": (partition,)},)
        return self.ask(61, 0, topics=asked).topics[0].partitions[0]


@contextmanager
def refusing(broker: Broker, method: str = "commit") -> Iterator[None]:
    """Within, the store refuses what is handed to that method of it."""
    store = broker.inside.store
    real = getattr(store, method)
    setattr(store, method, lambda *change: change[-1](False))
    yield
    setattr(store, method, real)


def frozen(broker: Broker, freeze: bool) -> None:
    """What is appended to t-0 does not become durable until it is thawed."""
    partition = broker.call(lambda: broker.inside.topics.partition("t", 0))
    broker.call(lambda: broker.inside.flusher.freeze(partition, freeze))


def _batches(data: bytes) -> list[tuple[int, int, int, int, bytes]]:
    """Offset, attributes, producer and epoch of each batch, and its records."""
    found, at = [], 0
    while at + 61 <= len(data):
        base, length = struct.unpack_from(">qi", data, at)
        attributes, _, _, _, producer_id, epoch, _, _ = REST.unpack_from(data, at + 21)
        found.append((base, attributes, producer_id, epoch, data[at + 61 : at + 12 + length]))
        at += 12 + length
    return found


def _text(attributes: int, records: bytes) -> str:
    if attributes & 32:
        return "COMMIT" if records[7:9] == b"\0\1" else "ABORT"
    return records[6 : 6 + (records[5] >> 1)].decode()


def stored(data: bytes) -> list[Stored]:
    return [Stored(base, epoch, _text(att, records)) for base, att, _, epoch, records in _batches(data)]


def _kept(data: bytes, aborted: set[tuple[int, int]]) -> list[str]:
    texts, passing = [], set()
    for base, attributes, producer_id, _, records in _batches(data):
        passing |= {p for p, first in aborted if p == producer_id and first <= base}
        if attributes & 32:
            aborted = {(p, first) for p, first in aborted if not (p == producer_id and first <= base)}
            passing.discard(producer_id)
        elif not (attributes & 16 and producer_id in passing):
            texts.append(_text(attributes, records))
    return texts
