"""A transactional producer over the plain wire, in both protocols.

Rule 1: the protocol of old adds partitions and offsets to a transaction before it writes them (Produce 11, EndTxn 4).
Rule 2: the new one (KIP-890: Produce 12, TxnOffsetCommit 5, EndTxn 5) adds them by writing, and gives each transaction
        an epoch of its own.
Rule 3: answers come back as error names, unchecked.
"""

from __future__ import annotations

from typing import Any

from tests.conformance.batches import CONTROL, TRANSACTIONAL, Batch, batch
from tests.conformance.dialogue import GROUP, NOT_YET, Dialogue, produce_fields
from tests.conformance.waiting import until


class Transactional:
    """A producer with a transactional id. `new` chooses the protocol; sequences are counted by partition."""

    def __init__(self, dialogue: Dialogue, name: str, *, new: bool = False, timeout_ms: int = 60_000) -> None:
        self.dialogue, self.name, self.new = dialogue, name, new
        self._timeout_ms = timeout_ms
        self._sequences: dict[tuple[str, int], int] = {}
        reply = dialogue.init_producer(name, transaction_timeout=timeout_ms)
        assert reply.error_code == 0, reply
        self.id, self.epoch = reply.producer_id, reply.producer_epoch

    @property
    def _who(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}

    def add(self, topic: str, partition: int = 0) -> str:
        """AddPartitionsToTxn of old; waits while an earlier transaction is ended."""
        reply = {f"v3_and_below_{key}": value for key, value in self._who.items()}
        topics = [{"name": topic, "partitions": [partition]}]
        ask = lambda: self.dialogue.wire.ask("add_partitions_to_txn", 3, v3_and_below_topics=topics, **reply)  # noqa: E731
        return awaited(lambda: ask().results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def batch(self, topic: str, *payload: bytes, partition: int = 0) -> Batch:
        """The next batch for a partition; it is counted as written."""
        sequence = self._sequences.get((topic, partition), 0)
        self._sequences[topic, partition] = sequence + len(payload)
        made = batch(*payload).but(attributes=TRANSACTIONAL, sequence=sequence)
        return made.but(producer_id=self.id, producer_epoch=self.epoch)

    def write(self, topic: str, *payload: bytes, partition: int = 0) -> str:
        """Append within the transaction, without adding the partition before."""
        fields = produce_fields(topic, self.batch(topic, *payload, partition=partition), partition)
        fields["transactional_id"] = self.name
        version = 12 if self.new else 11
        ask = lambda: self.dialogue.wire.ask("produce", version, **fields).responses[0].partition_responses[0]  # noqa: E731
        return awaited(lambda: ask().error_code)

    def put(self, topic: str, *payload: bytes, partition: int = 0) -> None:
        """Add where the protocol wants it, and append."""
        if not self.new:
            assert self.add(topic, partition) == "none"
        assert self.write(topic, *payload, partition=partition) == "none"

    def offer(self, group: str, topic: str, offset: int, **fields: Any) -> str:
        """An offset of a group within the transaction."""
        self.dialogue.find_coordinator(group, GROUP)
        if not self.new:
            ask = lambda: self.dialogue.wire.ask("add_offsets_to_txn", 3, group_id=group, **self._who)  # noqa: E731
            assert awaited(lambda: ask().error_code) == "none"
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "within"}
        reply = {"group_id": group, "generation_id": -1, **self._who, **fields}
        topics = [{"name": topic, "partitions": [part]}]
        commit = lambda: self.dialogue.wire.ask("txn_offset_commit", 5 if self.new else 3, topics=topics, **reply)  # noqa: E731
        return awaited(lambda: commit().topics[0].partitions[0].error_code)

    def end(self, committed: bool) -> str:
        """Commit or abort; under the new protocol the next transaction's epoch is taken over."""
        version = 5 if self.new else 4
        answer = until(lambda: settled(self.dialogue.wire.ask("end_txn", version, committed=committed, **self._who)))
        if self.new and answer.error_code == 0:
            self._sequences.clear() if answer.producer_epoch != self.epoch else None
            self.id, self.epoch = answer.producer_id, answer.producer_epoch
        return str(answer.error_code.name)

    def commit(self) -> None:
        assert self.end(True) == "none"

    def abort(self) -> None:
        assert self.end(False) == "none"

    def described(self) -> Any:
        """What DescribeTransactions tells."""
        return self.dialogue.wire.ask("describe_transactions", 0, transactional_ids=[self.name]).transaction_states[0]


def settled(answer: Any) -> Any:
    return None if answer.error_code.name in NOT_YET else answer


def awaited(ask: Any) -> str:
    """The error's name, once the coordinator has time."""
    return str(until(lambda: code.name if (code := ask()).name not in NOT_YET else ""))


def is_marker(found: Batch) -> bool:
    return bool(found.attributes & CONTROL)
