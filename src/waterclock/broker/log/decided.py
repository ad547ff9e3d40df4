"""Transactions as a compaction meets them: which batches were aborted, and which markers nothing needs any more.

    a batch of        whose records are still there    then its marker
    an aborted one    they go now                      stays, and answers to readers list the transaction
    an aborted one    they went before                 may go, once its time is over
    a committed one   (as the keys say)                may go once no batch of it is left

Rule 1: what is fed in comes in the order of the log, from its start, every batch of it.
Source: KIP-98, KIP-534; the cleaner of Apache Kafka behaves so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from waterclock.broker.buffers import Buffer
from waterclock.broker.log.batch import Batch, commits
from waterclock.broker.log.producers import AbortedTransaction


class DecidedTransactions:
    """`aborted`: the transactions that readers of the log pass over, in any order.

    `listed` are those of them that answers to readers must list still.
    """

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        self._coming = deque(sorted(aborted, key=lambda row: row.first))
        self._aborted: dict[int, AbortedTransaction] = {}
        self._seen: set[int] = set()  # producers with a transaction, decided by a marker to come, that has batches
        self.listed: list[AbortedTransaction] = []

    def goes(self, batch: Batch) -> bool:
        """Whether a batch of records belongs to an aborted transaction."""
        if not batch.transactional:
            return False
        self._reach(batch.last)
        self._seen.add(batch.producer_id)
        return batch.producer_id in self._aborted

    def needless(self, batch: Batch, data: Buffer) -> bool:
        """Whether no batch of a marker's transaction is left before it."""
        if not batch.records:
            return True
        self._reach(batch.last)
        seen = batch.producer_id in self._seen
        self._seen.discard(batch.producer_id)
        row = None if commits(data) else self._aborted.pop(batch.producer_id, None)
        if row is not None and seen:
            self.listed.append(row)
        return not seen

    def _reach(self, offset: int) -> None:
        while self._coming and self._coming[0].first <= offset:
            row = self._coming.popleft()
            self._aborted[row.producer_id] = row
