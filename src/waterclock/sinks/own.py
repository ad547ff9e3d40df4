"""A user's own object as a sink: five verbs are enough.

    begin()            begin a transaction, alone on what it writes to; connect anew where the connection is gone
    last_applied()     (query id, batch id) of the last batch that was committed, None where none was
    write(batch)       write the batch's rows, and its query_id and batch_id for `last_applied`, in the transaction
    commit()           end it: from here on the batch survives a crash
    rollback()         undo what was begun; nothing where nothing was

What else a `Sink` has may be there: `open(schema)`, `is_applied`, `totals()`, `describe()`, `close()`, `fence(epoch)`.

Rule 1: exactly once is these verbs' promise to keep: rows and (query id, batch id) are committed together, or not at all.
Rule 2: what an object lacks is answered for it from `last_applied`, or is left out; nothing is guessed.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from waterclock.sinks.base import Batch, LastBatch, Sink

VERBS = ("begin", "last_applied", "write", "commit", "rollback")
_WHOLE = (*VERBS, "open", "is_applied", "totals", "describe", "close")


def sink_of(given: Any) -> Sink:
    """`given`, where it is a whole sink, or one made of its verbs; TypeError where it lacks some of the five."""
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

    def __init__(self, given: Any) -> None:
        self._given = given
        self._written: Batch | None = None
        self._totals: dict[str, int] = {}  # of this run, where the object keeps none

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
        """What lets nobody of an earlier epoch write any more (epochs.py), if the object has it."""
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
        """See `Sink`; of this run alone where the object keeps none."""
        return dict(self._given.totals()) if hasattr(self._given, "totals") else dict(self._totals)

    def close(self) -> None:
        """See `Sink`."""
        self._call("close")

    def describe(self) -> str:
        """See `Sink`."""
        said = self._call("describe")
        return said if isinstance(said, str) else f"the sink {type(self._given).__name__}"

    def _call(self, verb: str, *arguments: Any) -> Any:
        return getattr(self._given, verb)(*arguments) if hasattr(self._given, verb) else None
