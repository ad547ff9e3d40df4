"""What a sink keeps beside its rows: which run may write (epochs), and what was written last (marks).

A run that stood still while another one took over wakes up in the middle of a batch, and knows nothing of it. No lock and
no lease helps there: it was paused behind its look at them. So a run that may be taken over gives the sink its epoch at the
start (`fence`), in a transaction: a number that rises each time a run takes a checkpoint over. Each batch looks, in its own
transaction, whether the epoch that stands there is its own still (`judge`). After a larger one, nothing of a smaller one is
committed.

    <table>_owner      lineage, epoch: one row, in the databases; made when it is first needed
    Delta Lake         an application transaction `waterclock-owner LINEAGE` of each table, whose version is the epoch
    Iceberg            a property `waterclock.owner.LINEAGE` of each table, set with an empty commit of rows
    a topic            a record of TOPIC_batches; who begins fences the producer of whoever wrote before, and reads it

What a sink on topics wrote last stands in the records of TOPIC_batches, in one partition, compacted:

    key "columns"       the columns of the results: [[name, type], ...]
    key "owner"         if a checkpoint may be taken over, the run that may write: [lineage, epoch]
    key "query QUERY"   the last batch of a query: query_id, batch_id, offsets, counters, watermark, seconds, and `totals`,
                        the sums of the counters of all its batches
    key "input QUERY N" what batch N read, as a text, of a batch `is_logged`; in its place nothing, once that is folded

Rule 1: epochs are compared within one lineage alone, the history of one checkpoint's owners. Another lineage is another
        checkpoint: the run whose epoch the sink was given last is the one.
Rule 2: a batch's record is written in the transaction of its results: who reads what is committed sees both or neither.
Rule 3: the last record of a key says it all, so Kafka may drop those before it.
Rule 4: a record that cannot be read is an error: to go on without it could write results twice.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from waterclock.errors import StateMismatch
from waterclock.sinks.base import Batch, LastBatch

# Epochs --------------------------------------------------------------------------------------------------------


log = logging.getLogger(__name__)
OWNER = "_owner"
OWNER_NAMES = ("lineage", "epoch")


@dataclass(frozen=True, slots=True)
class Epoch:
    """The number of an ownership, and the checkpoint's history that it belongs to."""

    lineage: str
    number: int


class Run(Protocol):
    """How a statement is run in the transaction that is open; it gives its rows."""

    def __call__(self, statement: str, /) -> Sequence[Sequence[Any]]: ...


def may_follow(found: Epoch | None, own: Epoch, what: str) -> None:
    """Raise StateMismatch if the run of `own` may not begin: the sink `what` has a later one."""
    if found is not None and found.lineage == own.lineage and found.number > own.number:
        raise _taken_over(what, found, own)


def judge(found: Epoch | None, own: Epoch | None, what: str) -> None:
    """Raise StateMismatch if it is another run's turn to write to the sink `what`; nothing without an own epoch."""
    if own is not None and found != own:
        raise _taken_over(what, found, own)


def _taken_over(what: str, found: Epoch | None, own: Epoch) -> StateMismatch:
    by = "nobody, for its table of owners is gone" if found is None else f"the run of epoch {found.number}"
    return StateMismatch(
        f"{what} belongs to {by}, and this run has epoch {own.number}: another run took the checkpoint over while "
        "nothing was heard of this one. Nothing of this batch was written; start again when the other one has ended"
    )


def fence(sink: object, epoch: Epoch | None) -> None:
    """Give `sink` the `epoch`; a warning if it keeps none. StateMismatch after a later one."""
    if epoch is None:
        return
    tell = getattr(sink, "fence", None)
    if callable(tell):
        tell(epoch)
    else:
        log.warning(
            "%s keeps no epochs: a run that stands still while another one takes the checkpoint over may write one batch "
            "more when it wakes up",
            type(sink).__name__,
        )


# In a database ---------------------------------------------------------------------------------------------------


def stored_in(run: Run, table: str) -> Epoch | None:
    """The epoch that stands in `table`."""
    rows = run(f'SELECT "lineage", "epoch" FROM {table}')
    return Epoch(str(rows[0][0]), int(rows[0][1])) if rows else None


def store_in(run: Run, table: str, own: Epoch, what: str) -> None:
    """Give the sink `what` the epoch `own` in the transaction that is open; StateMismatch if it has a later one."""
    may_follow(stored_in(run, table), own, what)
    run(f"DELETE FROM {table}")
    run(f"INSERT INTO {table} VALUES ('{own.lineage}', {own.number})")


# The last batches ----------------------------------------------------------------------------------------------


_COLUMNS_KEY, _OWNER_KEY, _INPUT_KEY = b"columns", b"owner", b"input "
Columns = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """The last batch of a query, the sums of the counters up to it, and what it read, where that is kept here."""

    batch_id: int
    totals: Mapping[str, int]
    offsets: str | None = None


@dataclass
class Marks:
    """All that was read: `columns` is None if none were written, `position` is where to read on; `logged` is what the
    batches of a query read."""

    columns: Columns | None = None
    queries: dict[str, Mark] = field(default_factory=dict)
    logged: dict[str, dict[int, str | None]] = field(default_factory=dict)
    position: int = 0
    owner: Epoch | None = None

    def take(self, key: bytes | None, value: bytes | None, where: str) -> None:
        """Take in one record, which stands at `where`; StateMismatch if it is none of these."""
        try:
            if key is not None and key.startswith(_INPUT_KEY):
                self._take_input(key, value)
                return
            record = json.loads(value or b"")
            if key == _COLUMNS_KEY:
                self.columns = tuple((str(name), str(kind)) for name, kind in record)
            elif key == _OWNER_KEY:
                self.owner = Epoch(str(record[0]), int(record[1]))
            else:
                mark = Mark(record["batch_id"], dict(record["totals"]), record["offsets"])
                self.note(record["query_id"], mark)
        except (ValueError, TypeError, KeyError) as error:
            raise StateMismatch(
                f"{where} is no record of a sink of waterclock ({error!r}), so what was written last cannot be known. Name "
                "another topic in [sink], or start over with --fresh"
            ) from error

    def note(self, query_id: str, mark: Mark) -> None:
        """`mark` was written for that query; of two batches the one with the larger number counts as the last."""
        found = self.queries.get(query_id)
        last = mark.batch_id if found is None else max(found.batch_id, mark.batch_id)
        self.queries[query_id] = replace(mark, batch_id=last)

    def _take_input(self, key: bytes, value: bytes | None) -> None:
        query_id, _, number = key.removeprefix(_INPUT_KEY).decode().rpartition(" ")
        logged = self.logged.setdefault(query_id, {})
        if value is None:
            logged.pop(int(number), None)
        else:
            logged[int(number)] = json.loads(value)

    def inputs(self, query_id: str) -> list[tuple[int, str | None]]:
        """What the batches of a query read, in their order: of those that were logged, and of the last one."""
        mark = self.queries.get(query_id)
        last = {} if mark is None else {mark.batch_id: mark.offsets}
        return sorted({**last, **self.logged.get(query_id, {})}.items(), key=lambda each: each[0])

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
        return Mark(batch.batch_id, added({} if found is None else found.totals, batch.counters), batch.offsets)


def added(some: Mapping[str, int], more: Mapping[str, int]) -> dict[str, int]:
    """The sums of counters.

    >>> added({"events": 2, "late": 1}, {"events": 3})
    {'events': 5, 'late': 1}
    """
    return {**some, **{name: some.get(name, 0) + value for name, value in more.items()}}


def records_of(batch: Batch, mark: Mark, watermark: str | None) -> list[tuple[bytes, bytes]]:
    """Key and value of a batch's record, and of its input if it is logged; TypeError for counters that are no numbers."""
    record: dict[str, Any] = {
        "query_id": batch.query_id,
        "batch_id": batch.batch_id,
        "offsets": batch.offsets,
        "counters": dict(batch.counters),
        "watermark": watermark,
        "seconds": batch.seconds,
        "totals": dict(mark.totals),
    }
    made = [(b"query " + batch.query_id.encode(), json.dumps(record, ensure_ascii=False).encode())]
    if batch.is_logged:
        made.append((_key_of_input(batch.query_id, batch.batch_id), json.dumps(batch.offsets).encode()))
    return made


def folded(query_id: str, batch_id: int) -> tuple[bytes, None]:
    """Key and value of the record after which it is forgotten what a batch read."""
    return _key_of_input(query_id, batch_id), None


def _key_of_input(query_id: str, batch_id: int) -> bytes:
    return _INPUT_KEY + f"{query_id} {batch_id}".encode()


def record_of_columns(columns: Columns) -> tuple[bytes, bytes]:
    """Key and value of the columns' record."""
    return _COLUMNS_KEY, json.dumps(columns, ensure_ascii=False).encode()


def record_of_owner(epoch: Epoch) -> tuple[bytes, bytes]:
    """Key and value of the owner's record."""
    return _OWNER_KEY, json.dumps([epoch.lineage, epoch.number]).encode()
