"""Consumers of confluent-kafka that are replaced one by one, and what may not happen meanwhile.

Rule 1: a partition is owned from the callback that assigns it to the one that takes it away: by one consumer at a time.
Rule 2: offsets are committed after what was polled is noted; the group's never go back.
Rule 3: everything runs in one thread: every consumer is polled in turn.
"""

from __future__ import annotations

from typing import Any

import confluent_kafka as ck

from tests.conformance.client_confluent import WAIT_S, config
from tests.conformance.clients import Endpoint
from tests.conformance.waiting import until

# a commit that comes too late: what it was for is read again by whoever has the partition now
TOO_LATE = {
    ck.KafkaError.ILLEGAL_GENERATION, ck.KafkaError.REBALANCE_IN_PROGRESS, ck.KafkaError.UNKNOWN_MEMBER_ID,
    ck.KafkaError.STALE_MEMBER_EPOCH, ck.KafkaError._NO_OFFSET, ck.KafkaError._ASSIGNMENT_LOST,
}  # fmt: skip


class Rolling:
    """One topic, one group, its consumers at this moment, and what they have read."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, group: str) -> None:
        self._endpoint, self._topic, self._partitions, self._group = Endpoint(bootstrap), topic, partitions, group
        self._producer = ck.Producer({**config(self._endpoint), "enable.idempotence": True})
        self.owners: dict[int, str] = {}
        self.written = 0
        self.read: set[int] = set()
        self.twice = 0
        self._committed: dict[int, int] = {}
        self._watcher = ck.Consumer({**config(self._endpoint), "group.id": group})
        self.consumers: list[Rolled] = []

    def write(self, count: int) -> None:
        """So many records more; each is a number."""
        for number in range(self.written, self.written + count):
            self._producer.produce(self._topic, str(number), partition=number % self._partitions)
        self.written += count
        assert self._producer.flush(WAIT_S) == 0

    def join(self, name: str, **settings: Any) -> Rolled:
        """One consumer more, which shares with the others once that has settled."""
        self.consumers.append(
            Rolled(self, name, {**config(self._endpoint), "group.id": self._group, **settings}, self._topic)
        )
        self.settle()
        return self.consumers[-1]

    def leave(self, consumer: Rolled) -> None:
        self.consumers.remove(consumer)
        consumer.close()
        self.settle()

    def settle(self) -> None:
        """Write and read until every consumer has its share, and everything is read."""

        def settled() -> bool:
            self.write(1)
            for consumer in self.consumers:
                consumer.poll()
            self._watch()
            sizes = [len([1 for owner in self.owners.values() if owner == c.name]) for c in self.consumers]
            even = sum(sizes) == self._partitions and max(sizes) - min(sizes) <= 1
            return even and len(self.read) == self.written

        until(settled, within_s=60.0)

    def _watch(self) -> None:
        asked = [ck.TopicPartition(self._topic, number) for number in range(self._partitions)]
        for one in self._watcher.committed(asked, WAIT_S):
            before = self._committed.get(one.partition, ck.OFFSET_INVALID)  # what it is where nothing was committed
            assert one.offset >= before, f"the offset of {one.partition} went back from {before} to {one.offset}"
            self._committed[one.partition] = one.offset

    def close(self) -> None:
        for consumer in self.consumers:
            consumer.close()
        self._watcher.close()


class Rolled:
    """One consumer, of either protocol."""

    def __init__(self, rolling: Rolling, name: str, settings: dict[str, Any], topic: str) -> None:
        self.name, self._rolling = name, rolling
        patient = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "client.id": name}
        self._consumer = ck.Consumer({**patient, **settings})
        self._consumer.subscribe([topic], on_assign=self._takes, on_revoke=self._lets_go, on_lost=self._lets_go)

    def _takes(self, _: Any, partitions: list[ck.TopicPartition]) -> None:
        for one in partitions:
            owner = self._rolling.owners.setdefault(one.partition, self.name)
            assert owner == self.name, f"{self.name} is given {one.partition}, which {owner} has"

    def _lets_go(self, _: Any, partitions: list[ck.TopicPartition]) -> None:
        for one in partitions:
            assert self._rolling.owners.pop(one.partition, None) == self.name

    def poll(self) -> None:
        """Note what came, and commit it."""
        found = self._consumer.consume(100, 0.05)
        for message in found:
            assert message.error() is None, message.error()
            number = int(message.value())
            self._rolling.twice += number in self._rolling.read
            self._rolling.read.add(number)
        if found:
            self._commit()

    def _commit(self) -> None:
        try:
            self._consumer.commit(asynchronous=False)
        except ck.KafkaException as error:
            if error.args[0].code() not in TOO_LATE:
                raise

    def close(self) -> None:
        self._consumer.close()
