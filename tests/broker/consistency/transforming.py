"""Consume, transform, produce: the offsets of what was read are committed in the transaction of what was made of it.

Rule 1: after an abort reading goes on where the group's offsets stand, as Kafka's documents ask for.
Rule 2: what was collected when a partition was taken away is dropped: it may be another member's by now.
Rule 3: clients do not bootstrap anew when no broker answers: librdkafka 2.16 then forgets the broker that is the group's
    coordinator, and send_offsets_to_transaction waits for ever, whatever its timeout (its issues 5511 and 5456).
Rule 4: who cannot know where to go on, or is fenced, begins anew with a consumer and a producer of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.broker.consistency.transacting import ready, settled
from tests.broker.consistency.worker import TRANSACTION_MS, Worker, fetched, rows

GROUP, SESSION_MS, ABORTS = "transformers", 6_000, 0.1
STEADY = {"metadata_recovery_strategy": "none"}


def transformer(worker: Worker) -> None:
    while not worker.stopping.is_set():
        settings = {"group_id": GROUP, "session_timeout_ms": SESSION_MS, "enable_auto_commit": False,
                    "auto_offset_reset": "earliest", "isolation_level": "read_committed", **STEADY}  # fmt: skip
        with closing(Consumer(worker.client(**settings))) as consumer:
            Instance(worker, consumer).run()
        worker.pause(2)


class Subscription:
    """What a member of a group is given, and nothing that was taken away since."""

    def __init__(self, consumer: Consumer, topic: str, assigned: Callable[..., None] | None = None) -> None:
        self._consumer, self._changed = consumer, False
        callbacks = {"on_revoke": self._taken, "on_lost": self._taken}
        consumer.subscribe([topic], **callbacks, **({"on_assign": assigned} if assigned else {}))

    def _taken(self, *_: Any) -> None:
        self._changed = True

    def collect(self, most: int) -> list[list[Any]]:
        """Up to so many records, as a history has them; what is there within half a second."""
        found: list[Any] = []
        self._changed = False
        while len(found) < most:
            message = self._consumer.poll(0.01 if found else 0.5)
            if self._changed:  # what this very call gives came after it, and may be the first of a new assignment
                found, self._changed = [], False
            if message is None:
                break
            found.append(message)
        return rows(found)


class Instance:
    """One consumer and one producer, from their start to a failure."""

    def __init__(self, worker: Worker, consumer: Consumer) -> None:
        self.worker, self.consumer = worker, consumer
        settings = {"transactional_id": worker.given["id"], "transaction_timeout_ms": TRANSACTION_MS, **STEADY}
        self.producer = Producer(worker.client(**settings))

    def run(self) -> None:
        self.number = ready(self.worker, self.producer)
        if not self.number:
            return
        subscription = Subscription(self.consumer, "in")
        while not self.worker.stopping.is_set():
            self.worker.alive()
            found = subscription.collect(self.worker.random.randint(1, 100))
            if found and not self.transform(found):
                return

    def transform(self, found: list[list[Any]]) -> bool:
        """Whether it can go on."""
        writes = [["out", partition, f"in{partition}", self.worker.write("out")[3]] for _, partition, _, _ in found]
        offsets = {(topic, partition): offset + 1 for topic, partition, offset, _ in found}
        number = self.worker.history.begin(
            "txn", id=self.worker.given["id"], instance=self.number, writes=writes, group=GROUP,
            inputs=[value for *_, value in found], offsets={f"{topic}-{one}": at for (topic, one), at in offsets.items()},
        )  # fmt: skip
        outcome = self._commit(number, writes, [TopicPartition(*place, at) for place, at in offsets.items()])
        if outcome != "abort":
            self.worker.history.end(number, "ok" if outcome == "done" else "unknown")
            return outcome == "done"
        how = settled(self.worker, "abort", self.producer.abort_transaction)
        self.worker.history.end(number, "fail" if how == "done" else "unknown")
        return how == "done" and self._back()

    def _commit(self, number: int, writes: list[list[Any]], offsets: list[TopicPartition]) -> str:
        try:
            self.producer.begin_transaction()
            for topic, partition, key, value in writes:
                self.producer.produce(topic, str(value), key, partition)
            group = self.consumer.consumer_group_metadata()
            how = settled(
                self.worker, "offsets", lambda s: self.producer.send_offsets_to_transaction(offsets, group, s)
            )
        except KafkaException:
            return "abort"
        if how != "done" or self.worker.random.random() < ABORTS:
            return how if how == "fatal" else "abort"
        self.worker.history.committing(number)
        return settled(self.worker, "commit", self.producer.commit_transaction)

    def _back(self) -> bool:
        """To the group's offsets; False where nobody says what they are."""
        try:
            asked = self.consumer.assignment()
            told = fetched(self.worker, self.consumer, GROUP, asked) if asked else []
            for one in told:
                self.consumer.seek(TopicPartition(one.topic, one.partition, max(one.offset, 0)))
            return len(told) == len(asked)
        except KafkaException:
            return False
