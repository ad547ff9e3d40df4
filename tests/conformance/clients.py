"""The seam over clients: what users do with any of them.

Rule 1: `write` returns when every message is acknowledged; what a broker refuses is `Refused` with Kafka's error code.
Rule 2: a reader that is polled takes part in its group; it commits only if it is asked to.
Rule 3: messages are values alike for all clients; -1 stands where there is no offset.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

from tests.conformance.batches import TODAY_MS
from tests.conformance.waiting import until


class Message(NamedTuple):
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int = TODAY_MS
    partition: int = 0
    offset: int = -1


class Refused(Exception):
    """The broker's answer was an error; `code` is Kafka's, below zero for the client's own."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code


class Endpoint(NamedTuple):
    """Where the broker is, and how to get in."""

    bootstrap: str
    mechanism: str | None = None
    user: str | None = None
    password: str | None = None


class Producer(Protocol):
    def write(self, topic: str, messages: Iterable[Message]) -> list[int]:
        """Append, wait for the acknowledgements, return the offsets."""

    def begin(self) -> None: ...

    def offer(self, reader: Reader, topic: str, partition: int, offset: int) -> None:
        """The offset of a reader's group, within the transaction."""

    def commit(self) -> None: ...

    def abort(self) -> None: ...

    def close(self) -> None: ...


class Reader(Protocol):
    def poll(self) -> list[Message]:
        """What came within a tenth of a second."""

    def assignment(self) -> set[tuple[str, int]]: ...

    def commit(self) -> None:
        """Commit what was polled so far."""

    def committed(self, topic: str, partition: int) -> int: ...

    def ends(self, topic: str, partition: int) -> tuple[int, int]:
        """The first offset and the one behind the last."""

    def at(self, topic: str, partition: int, timestamp_ms: int) -> int:
        """The first offset at or behind that time."""

    def close(self) -> None: ...


class Writing(NamedTuple):
    """How a producer writes."""

    acks: int = -1
    compression: str | None = None
    idempotent: bool = False
    transactional_id: str | None = None
    timeout_ms: int = 60_000


class Reading(NamedTuple):
    """How a reader reads: in a group if there are `topics`, alone if there are `partitions`; from the first offset on."""

    topics: Sequence[str] = ()
    partitions: Sequence[tuple[str, int]] = ()
    group: str | None = None
    isolated: bool = False
    latest: bool = False
    instance: str | None = None


# aiokafka and kafka-python have the same names for the same


def config(endpoint: Endpoint) -> dict[str, Any]:
    given: dict[str, Any] = {"bootstrap_servers": endpoint.bootstrap}
    if endpoint.mechanism:
        given |= {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": endpoint.mechanism}
        given |= {"sasl_plain_username": endpoint.user, "sasl_plain_password": endpoint.password}
    return given


def writing_config(endpoint: Endpoint, writing: Writing) -> dict[str, Any]:
    given = {**config(endpoint), "compression_type": writing.compression, "enable_idempotence": writing.idempotent}
    given["acks"] = "all" if writing.acks == -1 else writing.acks
    if writing.transactional_id:
        given |= {"transactional_id": writing.transactional_id, "transaction_timeout_ms": writing.timeout_ms}
        given["enable_idempotence"] = True
    return given


def reading_config(endpoint: Endpoint, reading: Reading) -> dict[str, Any]:
    return {
        **config(endpoint), "group_id": reading.group, "group_instance_id": reading.instance, "enable_auto_commit": False,
        "auto_offset_reset": "latest" if reading.latest else "earliest",
        "isolation_level": "read_committed" if reading.isolated else "read_uncommitted",
        "heartbeat_interval_ms": 200, "session_timeout_ms": 6000, "metadata_max_age_ms": 1000,
    }  # fmt: skip


def read(reader: Reader, count: int) -> list[Message]:
    """Poll until so many messages came."""
    found: list[Message] = []

    def enough() -> bool:
        found.extend(reader.poll())
        return len(found) >= count

    until(enough, within_s=40.0)
    return found


def assigned(*readers: Reader, count: int) -> None:
    """Poll, each reader in a thread of its own as its users do, until they share so many partitions as evenly as can be."""

    def shared() -> bool:
        list(threads.map(lambda reader: reader.poll(), readers))
        sizes = [len(reader.assignment()) for reader in readers]
        apart = set().union(*(reader.assignment() for reader in readers))
        return sum(sizes) == len(apart) == count and max(sizes) - min(sizes) <= 1

    with ThreadPoolExecutor(len(readers)) as threads:
        until(shared, within_s=40.0)
