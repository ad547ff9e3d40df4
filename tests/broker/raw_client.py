"""A client of bare requests, for tests that must say exactly what goes over the wire and when: APIs by Kafka's names."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from kio.schema.index import api_key_map

from tests.conformance import batches
from tests.conformance.wire import Wire
from waterclock.broker.wire.codec import KEYS


def batch(*values: bytes, timestamp_ms: int = 0) -> bytes:
    """A record batch of records without keys."""
    return batches.batch(*(batches.Record(value, timestamp_ms=timestamp_ms) for value in values)).encode()


class RawClient:
    """One connection. `send` returns at once, `receive` takes the next answer, `ask` does both."""

    def __init__(self, bootstrap: str) -> None:
        self._wire = Wire(bootstrap, None, patience_s=20)
        self._sent: list[tuple[str, int]] = []  # API and version of each request whose answer was not read yet

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._wire.close()

    def send(self, api: str, version: int, answered: bool = True, **fields: Any) -> None:
        name = api_key_map[KEYS[api]]
        self._wire.send(name, version, answered=answered, **fields)
        if answered:
            self._sent.append((name, version))

    def in_one_go(self) -> AbstractContextManager[None]:
        """What is sent meanwhile goes out together, at the end."""
        return self._wire.in_one_go()

    def receive(self) -> Any:
        """The next answer; ConnectionError if the broker closed the connection."""
        return self._wire.receive(*self._sent.pop(0))

    def ask(self, api: str, version: int, **fields: Any) -> Any:
        self.send(api, version, **fields)
        return self.receive()

    def closed(self) -> bool:
        """Waits until the broker has closed the connection; False if an answer comes instead."""
        return self._wire.ends()

    # The requests that most tests are about

    def send_produce(self, topic: str, *values: bytes, acks: int = -1, partition: int = 0) -> None:
        rows = [{"index": partition, "records": batch(*values)}]
        topics = [{"name": topic, "partition_data": rows}]
        self.send("Produce", 9, answered=acks != 0, acks=acks, timeout=10_000, topic_data=topics)

    def produced(self) -> tuple[int, int]:
        """(error, offset) of the next answer to a Produce."""
        row = self.receive().responses[0].partition_responses[0]
        return row.error_code.value, row.base_offset

    def produce(self, topic: str, *values: bytes, acks: int = -1, partition: int = 0) -> tuple[int, int]:
        self.send_produce(topic, *values, acks=acks, partition=partition)
        return self.produced()

    def end(self, topic: str, partition: int = 0) -> int:
        """The high watermark."""
        topics = [{"name": topic, "partitions": [{"partition_index": partition, "timestamp": -1}]}]
        answer = self.ask("ListOffsets", 4, replica_id=-1, isolation_level=0, topics=topics)
        offset: int = answer.topics[0].partitions[0].offset
        return offset
