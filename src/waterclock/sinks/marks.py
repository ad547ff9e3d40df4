"""What a sink on topics remembers beside its results: the records of TOPIC_batches, in one partition, compacted.

    key "columns"       the columns of the results: [[name, type], ...]
    key "owner"         where a checkpoint may be taken over, whose turn it is (epochs.py): [lineage, epoch]
    key "query QUERY"   the last batch of a query: query_id, batch_id, offsets, counters, watermark, seconds, and `totals`,
                        the sums of the counters of all its batches

Rule 1: a batch's record is written in the transaction of its results: who reads what is committed sees both or neither.
Rule 2: the last record of a key says it all, so Kafka may drop those before it.
Rule 3: a record that cannot be read is an error: to go on without it could write results twice.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from waterclock.errors import StateMismatch
from waterclock.sinks.base import Batch, LastBatch
from waterclock.sinks.epochs import Epoch

COLUMNS, OWNER = b"columns", b"owner"
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """The last batch of a query, and the sums of the counters up to it."""

    batch_id: int
    totals: Mapping[str, int]


@dataclass
class Marks:
    """All that was read: `columns` is None where none were written, `position` is where to read on."""

    columns: Columns | None = None
    queries: dict[str, Mark] = field(default_factory=dict)
    position: int = 0
    owner: Epoch | None = None

    def take(self, key: bytes | None, value: bytes | None, where: str) -> None:
        """Take in one record, which stands at `where`; StateMismatch if it is none of these."""
        try:
            told = json.loads(value or b"")
            if key == COLUMNS:
                self.columns = tuple((str(name), str(kind)) for name, kind in told)
            elif key == OWNER:
                self.owner = Epoch(str(told[0]), int(told[1]))
            else:
                self.note(told["query_id"], Mark(told["batch_id"], dict(told["totals"])))
        except (ValueError, TypeError, KeyError) as error:
            raise StateMismatch(
                f"{where} is no record of a sink of waterclock ({error!r}), so what was written last cannot be known. Name "
                "another topic in [sink], or start over with --fresh"
            ) from error

    def note(self, query_id: str, mark: Mark) -> None:
        """`mark` was written for that query; of two batches the one with the larger number counts as the last."""
        found = self.queries.get(query_id)
        last = mark.batch_id if found is None else max(found.batch_id, mark.batch_id)
        self.queries[query_id] = Mark(last, mark.totals)

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        found = self.queries.get(query_id)
        return found is not None and batch_id <= found.batch_id

    def last(self) -> LastBatch | None:
        """The batch of the largest number."""
        found = [LastBatch(query_id, mark.batch_id) for query_id, mark in self.queries.items()]
        return max(found, key=lambda each: each.batch_id, default=None)

    def totals(self) -> dict[str, int]:
        """The sums over all queries."""
        total: dict[str, int] = {}
        for mark in self.queries.values():
            total = added(total, mark.totals)
        return total

    def after(self, batch: Batch) -> Mark:
        """What is to be written for a batch."""
        found = self.queries.get(batch.query_id)
        return Mark(batch.batch_id, added({} if found is None else found.totals, batch.counters))


def added(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """The sums of counters.

    >>> added({"events": 2, "late": 1}, {"events": 3})
    {'events': 5, 'late': 1}
    """
    return {**some, **{name: some.get(name, 0) + value for name, value in more.items()}}


def record_of(batch: Batch, mark: Mark, watermark: str | None) -> tuple[bytes, bytes]:
    """Key and value of a batch's record; TypeError for counters that are no numbers."""
    told: dict[str, Any] = {
        "query_id": batch.query_id,
        "batch_id": batch.batch_id,
        "offsets": batch.offsets,
        "counters": dict(batch.counters),
        "watermark": watermark,
        "seconds": batch.seconds,
        "totals": dict(mark.totals),
    }
    return b"query " + batch.query_id.encode(), json.dumps(told, ensure_ascii=False).encode()


def record_of_columns(columns: Columns) -> tuple[bytes, bytes]:
    """Key and value of the columns' record."""
    return COLUMNS, json.dumps(columns, ensure_ascii=False).encode()


def record_of_owner(epoch: Epoch) -> tuple[bytes, bytes]:
    """Key and value of the owner's record."""
    return OWNER, json.dumps([epoch.lineage, epoch.number]).encode()
