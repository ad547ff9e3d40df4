"""The seam between results and where they are kept: results and their offsets in one transaction.

A batch reaches a sink in numbered steps, and a crash between any two of them leaves a table that a re-run makes equal:

    1. the batch is taken, once             (the caller: it also commits the operator's state)
    2. begin
    3. refuse what is applied already       (a re-run of a batch whose commit got through)
    4. write results, dead letters, counters, offsets and (query, batch)
    5. commit

Promises of every sink: after `commit` returned, the batch survives a crash; before, nothing of it is seen by a reader.
Between `begin` and the end of its transaction a sink is alone on its table: a second one waits, or is refused.

A sink behind a connection may lose it. Steps 2 to 5 are then gone through a second time: `begin` connects anew, and
step 3 finds out whether a commit without an answer got through. If the second attempt has no answer either, its error goes
up, and the re-run of the batch finds out.

A user's own object is a sink if it has five verbs:

    begin()            begin a transaction, alone on what it writes to; connect anew if the connection is gone
    last_applied()     (query id, batch id) of the last batch that was committed, None if none was
    write(batch)       write the batch's rows, and its query_id and batch_id for `last_applied`, in the transaction
    commit()           end it: from here on the batch survives a crash
    rollback()         undo what was begun; nothing if nothing was

What else a `Sink` has may be there: `open(schema)`, `is_applied`, `totals()`, `describe()`, `close()`, `fence(epoch)`.

Rule 1: exactly once is the promise of these verbs: rows and (query id, batch id) are committed together, or not at all.
Rule 2: what an object lacks follows from its `last_applied`, or is left out; nothing is guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from waterclock.errors import CommitUnknown, SinkLost, StateMismatch, unstopped

_START_OVER = (
    "start over with both empty: remove the sink's tables and the checkpoint (waterclock run --fresh does both)."
)


@dataclass(frozen=True, slots=True)
class ResultFile:
    """A file of results that an executor wrote (files.py), and what the commit that makes rows of it must know."""

    name: str
    size: int  # bytes
    rows: int
    modified_ms: int
    figures: str  # JSON, in the words of Delta's log


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch of a query brings: Arrow tables, the counters' changes, and where it came from.

    If executors wrote the results, they are in `files`, and `results` has no rows. `is_logged`: a `RecordingSink` gives its
    offsets back until they are folded, whatever comes behind it.
    """

    query_id: str
    batch_id: int
    offsets: str | None
    results: pa.Table
    dead_letters: pa.Table
    counters: Mapping[str, int]
    watermark_us: int | None
    seconds: float
    files: tuple[ResultFile, ...] = ()
    is_logged: bool = False


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last batch that a sink holds."""

    query_id: str
    batch_id: int


class Sink(Protocol):
    """Where results are kept. Called by one thread at a time."""

    def open(self, results: pa.Schema) -> None:
        """Make the tables, or check that they fit `results`; UsageError if they do not."""

    def remove(self) -> None:
        """Drop the tables, all or none; UsageError if one of their names belongs to a table of somebody else."""

    def last_applied(self) -> LastBatch | None:
        """The last batch that was committed here; None if none was."""

    def begin(self) -> None:
        """Begin a transaction, and be alone on the table until it ends; connect anew if the connection is gone."""

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        """Whether that batch of the query was committed here."""

    def write(self, batch: Batch) -> Batch | None:
        """Write what the batch brings. What it cannot keep it puts aside: then the value is the batch as it was written."""

    def commit(self) -> None:
        """End the transaction; CommitUnknown if the connection went away before the answer came."""

    def rollback(self) -> None:
        """Undo what was begun; nothing if nothing was, or if the connection is gone."""

    def totals(self) -> dict[str, int]:
        """The sums of the counters of all batches."""

    def close(self) -> None: ...

    def describe(self) -> str:
        """Where it is, for messages to people."""


@runtime_checkable
class RecordingSink(Sink, Protocol):
    """A sink that can be asked what each batch read, not the last one alone."""

    def inputs(self, query_id: str) -> list[tuple[int, str | None]]:
        """Of each batch of the query that is kept the number, and its `offsets`; in their order."""

    def fold(self, query_id: str, batch_id: int) -> None:
        """Forget what the query's batches before this one read; the sums of their counters stay. Again is the same."""


def apply_once(sink: Sink, batch: Batch) -> bool:
    """Steps 2 to 5 for a batch that was taken; False if it was applied before. A lost connection is tried once more."""
    return written_once(sink, batch) is not None


def written_once(sink: Sink, batch: Batch) -> Batch | None:
    """`apply_once`, giving the batch as it was written; None if it was applied before."""
    written: list[Batch] = []
    try:
        _apply(sink, batch, written)
    except CommitUnknown:
        _apply(sink, batch, written)  # step 3 finds out; applied by this call either way, so `written` stays
    except SinkLost:
        written.clear()
        _apply(sink, batch, written)
    return written[0] if written else None


def _apply(sink: Sink, batch: Batch, written: list[Batch]) -> None:
    try:
        sink.begin()  # 2
        if sink.is_applied(batch.query_id, batch.batch_id):  # 3
            sink.rollback()
            return
        if batch.batch_id == 0:
            _refuse_others(sink, batch.query_id)
        written.append(sink.write(batch) or batch)  # 4
        sink.commit()  # 5
    except BaseException:
        sink.rollback()
        raise


def _refuse_others(sink: Sink, query_id: str) -> None:
    """A query's first batch meets no other's: two that were started at once both found an empty table at the start."""
    applied = sink.last_applied()
    if applied is not None and applied.query_id != query_id:
        raise StateMismatch(
            f"{_holds(sink, applied)}: another pipeline began to write there at the same time. Name another table and "
            "another checkpoint in the file of one of the two, and start that one again"
        )


def check_belongs(
    sink: Sink, checkpoint: str, query_id: str | None, last_batch: int | None, last_done: int | None = None
) -> None:
    """Raise StateMismatch if the sink is ahead of the checkpoint, behind it, or belongs to another one.

    `query_id`, `last_batch` (the last one whose offsets were written) and `last_done` (the last one that is noted as done)
    are what the checkpoint holds, None if it holds nothing. Going on would lose, in silence, what the lost checkpoint
    or the lost sink held, or write results a second time. A batch's offsets are written after the batch before it was
    taken: the sink may lack the last one only, and not if it is done.
    """
    applied, last = sink.last_applied(), -1 if last_batch is None else last_batch
    done = last - 1 if last_done is None else max(last - 1, last_done)
    if applied is not None and (applied.query_id != query_id or applied.batch_id > last):
        found = "is new or was deleted" if query_id is None else "belongs to another query or is older"
        raise StateMismatch(
            f"{_holds(sink, applied)}, but the checkpoint {checkpoint} {found}. Going on would lose or double results. "
            "If another pipeline wrote it, name another table for this one; else restore that checkpoint, or "
            f"{_START_OVER}"
        )
    held = -1 if applied is None else applied.batch_id
    if held < done:
        raise StateMismatch(
            f"{_holds(sink, applied)}, but the checkpoint {checkpoint} has done all batches up to {done}: the "
            f"missing ones will not be read again. Either restore the sink as it was, or {_START_OVER}"
        )


def _holds(sink: Sink, applied: LastBatch | None) -> str:
    if applied is None:
        return f"{sink.describe()} holds no results"
    return f"{sink.describe()} holds results up to batch {applied.batch_id} of query {applied.query_id}"


def first_line(error: Exception) -> str:
    """What an error says, without what goes on for many lines behind it."""
    return unstopped(str(error).strip().partition("\n")[0]) or type(error).__name__


# A user's own object -------------------------------------------------------------------------------------------


VERBS = ("begin", "last_applied", "write", "commit", "rollback")
_WHOLE = (*VERBS, "open", "is_applied", "totals", "describe", "close")


def sink_of(given: Any) -> Sink:
    """`given`, if it is a whole sink, or one made of its verbs; TypeError if it lacks some of the five."""
    missing = [verb for verb in VERBS if not callable(getattr(given, verb, None))]
    if missing:
        raise TypeError(
            f"a sink needs the verbs {', '.join(VERBS)}: {type(given).__name__} lacks {', '.join(missing)}. "
            "docs/pipeline-api.md says what each must do"
        )
    whole = all(callable(getattr(given, verb, None)) for verb in _WHOLE)
    return given if whole else OwnSink(given)


class OwnSink:
    """A `Sink` over an object with five verbs or more."""

    kind = "an object of yours"

    def __init__(self, given: Any) -> None:
        self._given = given
        self._written: Batch | None = None
        self._totals: dict[str, int] = {}  # of this run, if the object keeps none

    @property
    def path(self) -> Any:
        """Where it lies, if the object says so."""
        return getattr(self._given, "path", None)

    def open(self, results: pa.Schema) -> None:
        """See `Sink`."""
        self._call("open", results)

    def remove(self) -> None:
        """See `Sink`."""
        self._call("remove")

    def last_applied(self) -> LastBatch | None:
        """See `Sink`."""
        last = self._given.last_applied()
        return last if last is None or isinstance(last, LastBatch) else LastBatch(*last)

    @property
    def fence(self) -> Any:
        """What lets nobody of an earlier epoch write any more (ledger.py), if the object has it."""
        return getattr(self._given, "fence", None)

    def begin(self) -> None:
        """See `Sink`."""
        self._written = None
        self._given.begin()

    def is_applied(self, query_id: str, batch_id: int) -> bool:
        """See `Sink`: batches of a query come in the order of their numbers."""
        if hasattr(self._given, "is_applied"):
            return bool(self._given.is_applied(query_id, batch_id))
        last = self.last_applied()
        return last is not None and last.query_id == query_id and last.batch_id >= batch_id

    def write(self, batch: Batch) -> Batch | None:
        """See `Sink`."""
        written = self._given.write(batch)
        self._written = written if isinstance(written, Batch) else batch
        return self._written

    def commit(self) -> None:
        """See `Sink`."""
        self._given.commit()
        counted = {} if self._written is None else self._written.counters
        self._totals = {name: self._totals.get(name, 0) + counted.get(name, 0) for name in {*self._totals, *counted}}

    def rollback(self) -> None:
        """See `Sink`."""
        self._given.rollback()

    def totals(self) -> dict[str, int]:
        """See `Sink`; of this run alone if the object keeps none."""
        return dict(self._given.totals()) if hasattr(self._given, "totals") else dict(self._totals)

    def close(self) -> None:
        """See `Sink`."""
        self._call("close")

    def describe(self) -> str:
        """See `Sink`."""
        text = self._call("describe")
        return text if isinstance(text, str) else f"the sink {type(self._given).__name__}"

    def _call(self, verb: str, *arguments: Any) -> Any:
        return getattr(self._given, verb)(*arguments) if hasattr(self._given, verb) else None
