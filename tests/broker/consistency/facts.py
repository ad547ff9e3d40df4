"""What a history says, put in order once for all checks.

    kind         an operation of      its fields
    send         idempotent producer  writes [[topic, partition, key, value]], then results [offset | null]
    init         transactional id     id, then ok
    txn          transactional id     id, instance (the init's number), writes, inputs, group and offsets where it consumes;
                                      then reads [[topic, partition, offset, value]], results
    poll         reader               session, isolation, rows [[topic, partition, offset, value]]
    watermark    reader               topic, partition, then high
    offsets      group's member       group, offsets {"topic-partition": offset}: a commit
    fetched      group's member       group, then offsets: what is committed
    final        the campaign         isolation, rows: everything from the beginning to the end; the last says what is there

Rule 1: a value is one number, written once: what is read says who wrote it.
Rule 2: a transaction whose commit was never asked for is aborted, however its process ended.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

from tests.broker.consistency.history import History, Op

COMMITTED, UNCOMMITTED = "read_committed", "read_uncommitted"
Place = tuple[str, int]  # topic and partition


class Write(NamedTuple):
    """A value that was sent, and what its producer was told."""

    place: Place
    key: str
    value: int
    op: Op
    outcome: str  # ok: it is there for good; fail: no reader of committed records sees it; unknown
    offset: int | None


class Row(NamedTuple):
    """A record as a reader saw it."""

    place: Place
    offset: int
    value: int
    op: Op


class Facts:
    """A history's writes by value, its reads, and the logs as they are in the end."""

    def __init__(self, history: History) -> None:
        self.history = history

    @cached_property
    def writes(self) -> dict[int, Write]:
        return {write.value: write for write in (*self._sent(), *self._in_transactions())}

    def _sent(self) -> Iterator[Write]:
        for op in self.history.of("send"):
            offsets = op.get("results") or [None] * len(op["writes"])
            for (topic, partition, key, value), offset in zip(op["writes"], offsets, strict=True):
                yield Write((topic, partition), key, value, op, "unknown" if offset is None else "ok", offset)

    def _in_transactions(self) -> Iterator[Write]:
        for op in self.history.of("txn"):
            offsets = op.get("results") or [None] * len(op["writes"])
            for (topic, partition, key, value), offset in zip(op["writes"], offsets, strict=True):
                yield Write((topic, partition), key, value, op, outcome_of(op), offset)

    @cached_property
    def reads(self) -> list[Row]:
        """What readers saw while it ran."""
        return [row for op in self.history.of("poll") for row in rows_of(op)]

    def final(self, isolation: str) -> dict[Place, list[tuple[int, int]]]:
        """Offset and value of all records of each partition in the end."""
        found = [op for op in self.history.of("final") if op["isolation"] == isolation]
        logs: dict[Place, list[tuple[int, int]]] = {}
        for row in rows_of(found[-1]) if found else ():
            logs.setdefault(row.place, []).append((row.offset, row.value))
        return logs

    @cached_property
    def committed(self) -> dict[Place, list[tuple[int, int]]]:
        return self.final(COMMITTED)

    @cached_property
    def uncommitted(self) -> dict[Place, list[tuple[int, int]]]:
        return self.final(UNCOMMITTED)

    @cached_property
    def visible(self) -> dict[int, Place]:
        """Where the values are that a reader of committed records finds in the end."""
        return {value: place for place, log in self.committed.items() for _, value in log}


def outcome_of(op: Op) -> str:
    """What became of it: a transaction is aborted whose commit was never asked for."""
    return "fail" if op.kind == "txn" and op.commit_ns is None and not op.ok else op.outcome


def rows_of(op: Op) -> Iterator[Row]:
    for topic, partition, offset, value in op.get("rows", ()):
        yield Row((topic, partition), offset, value, op)
