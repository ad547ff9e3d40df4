"""Whole sentences over a connection: make a topic, append, read, ask for an offset. One topic and one partition each.

Rule 1: what comes back is the partition's part of the answer as `kio` decoded it; nothing is checked for the test.
Rule 2: versions are the newest that carry names; a test about a version asks the connection itself.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple
from uuid import UUID

from tests.conformance.batches import Batch, batches
from tests.conformance.waiting import until
from tests.conformance.wire import Wire

GROUP, TRANSACTION = 0, 1
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
PRODUCE, FETCH = 11, 12  # the last versions that name topics and leave transactions to AddPartitionsToTxn

# a coordinator's answers while it reads its log, while its topic is made, and while an earlier transaction is ended
NOT_YET = {"coordinator_load_in_progress", "coordinator_not_available", "not_coordinator", "concurrent_transactions"}


class Fetched(NamedTuple):
    partition: Any
    batches: list[Batch]


class Dialogue:
    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def create_topic(self, name: str, partitions: int = 1, **configs: Any) -> str:
        """Make a topic and wait until its partitions are led."""
        reply = [{"name": key, "value": str(value)} for key, value in configs.items()]
        topic = {"name": name, "num_partitions": partitions, "replication_factor": -1, "configs": reply}
        made = self.wire.ask("create_topics", 7, topics=[topic], timeout=10_000).topics[0]
        assert made.error_code == 0, made
        until(lambda: self.is_led(name, partitions))
        return name

    def is_led(self, name: str, partitions: int) -> bool:
        """Apache Kafka tells of a new partition in Metadata a moment before the partition itself answers."""
        return all(self.offset(name, LATEST, partition=p).error_code == 0 for p in range(partitions))

    def metadata(self, name: str) -> Any:
        """What Metadata tells of one topic, without making it."""
        return self.wire.ask("metadata", 12, topics=[{"name": name}], allow_auto_topic_creation=False).topics[0]

    def topic_id(self, name: str) -> UUID:
        found: UUID = self.metadata(name).topic_id
        return found

    def produce(
        self, topic: str, data: Batch | bytes | None, *, partition: int = 0, acks: int = -1, version: int = PRODUCE
    ) -> Any:
        """Append without a transaction."""
        return (
            self.wire.ask("produce", version, **produce_fields(topic, data, partition, acks))
            .responses[0]
            .partition_responses[0]
        )

    def fetch(self, topic: str, offset: int = 0, *, partition: int = 0, version: int = FETCH, **fields: Any) -> Fetched:
        """Read one partition; `max_wait` is 0 and `isolation_level` 0 unless told."""
        answer = self.wire.ask("fetch", version, **fetch_fields(topic, offset, partition, **fields))
        assert getattr(answer, "error_code", 0) == 0, answer  # versions before 7 have none
        reply = answer.responses[0].partitions[0]
        return Fetched(reply, batches(reply.records))

    def read(self, topic: str, offset: int = 0, **fields: Any) -> list[Batch]:
        """All whole batches from an offset up to the end that this isolation level sees."""
        found: list[Batch] = []
        while part := self.fetch(topic, found[-1].last_offset + 1 if found else offset, **fields).batches:
            found += part
        return found

    def offset(self, topic: str, timestamp: int, *, partition: int = 0, version: int = 10, isolation: int = 0) -> Any:
        """ListOffsets of one partition: by timestamp, or EARLIEST, LATEST and so on."""
        wanted = {"partition_index": partition, "timestamp": timestamp, "current_leader_epoch": -1}
        topics = [{"name": topic, "partitions": [wanted]}]
        answer = self.wire.ask(
            "list_offsets", version, replica_id=-1, isolation_level=isolation, topics=topics, timeout=10_000
        )
        return answer.topics[0].partitions[0]

    def init_producer(self, transactional_id: str | None, *, version: int = 4, **fields: Any) -> Any:
        """A producer's id and epoch; a coordinator that has just been started or called is waited for."""
        if transactional_id:
            self.find_coordinator(transactional_id, TRANSACTION)
        reply = {"transactional_id": transactional_id, "transaction_timeout": 60_000, **fields}
        return self.settled("init_producer_id", version, **reply)

    def settled(self, api: str, version: int, **fields: Any) -> Any:
        """The answer that a coordinator gives once it has time."""
        ask = functools.partial(self.wire.ask, api, version, **fields)
        return until(lambda: answer if (answer := ask()).error_code.name not in NOT_YET else None)

    def find_coordinator(self, key: str, kind: int) -> Any:
        """Where the coordinator is. In Apache Kafka the first to ask makes its topic: nobody else does."""
        ask = functools.partial(self.wire.ask, "find_coordinator", 4, key_type=kind, coordinator_keys=[key])
        return until(lambda: reply if (reply := ask().coordinators[0]).error_code.name not in NOT_YET else None)


def produce_fields(topic: str, data: Batch | bytes | None, partition: int = 0, acks: int = -1) -> dict[str, Any]:
    """The fields of a Produce request with one batch."""
    records = data.encode() if isinstance(data, Batch) else data
    reply = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return {"transactional_id": None, "acks": acks, "timeout": 10_000, "topic_data": reply}


def fetch_fields(
    topic: str,
    offset: int,
    partition: int = 0,
    *,
    leader_epoch: int = -1,
    partition_max_bytes: int = 1 << 20,
    **fields: Any,
) -> dict[str, Any]:
    """The fields of a Fetch request for one partition, outside of any session."""
    wanted = {
        "partition": partition,
        "current_leader_epoch": leader_epoch,
        "fetch_offset": offset,
        "partition_max_bytes": partition_max_bytes,
    }
    whole = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 50 << 20,
        "session_id": 0,
        "session_epoch": -1,
    }
    return {**whole, "topics": [{"topic": topic, "partitions": [wanted]}], **fields}
