"""The sinks of a local pipeline, and how a batch comes to all of them.

    1. each is made or checked by itself, in the order in which they are named; nothing goes on if one is refused
    2. a batch goes to one after the other, to each in a transaction of its own, with the record of what was read

Rule 1: exactly once is each sink's own. A kill between two of them leaves some a batch ahead: at the start it is made again
        of what its record says it read, for those that lack it. So a snapshot is believed that the last of them has.
Rule 2: whoever wrote before has ended when we look: a commit that hangs could bring a batch that was cut otherwise.
Rule 3: a batch that is there and that this run did not write is another run's.
Rule 4: the first one counts for the pipeline: its totals are those that are shown.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from waterclock.errors import StateMismatch, UsageError
from waterclock.sinks import Batch, RecordingSink, written_once
from waterclock.streaming.given import ChosenColumns, of_kinds, with_results
from waterclock.streaming.toml.steps import Outlet


class LocalOutlet:
    """A sink, what of a batch it is given, and the last batch that it has."""

    def __init__(self, outlet: Outlet[RecordingSink]) -> None:
        self.sink, self._columns, self._takes = outlet.sink, outlet.columns, outlet.takes
        self._chosen: ChosenColumns | None = None
        self.query: str | None = None
        self.last = -1

    @property
    def place(self) -> str:
        """Where its results are, in words that are the same from run to run."""
        return getattr(self.sink, "place", None) or self.sink.describe()

    def open(self, results: pa.Schema) -> None:
        self._chosen = ChosenColumns(self._columns, results) if self._columns else None
        self.schema = self._chosen.schema if self._chosen else results
        self.sink.open(self.schema)
        self.sink.begin()  # rule 2
        self.sink.rollback()
        if (last := self.sink.last_applied()) is not None:
            self.query, self.last = last.query_id, last.batch_id

    def write(self, batch: Batch) -> Batch | None:
        """What it wrote of the batch; None if it has it."""
        if batch.batch_id <= self.last:
            return None
        part = of_kinds(batch, self._takes) if self._takes else batch
        part = with_results(part, self._chosen.of(part.results)) if self._chosen else part
        written = written_once(self.sink, part)
        if written is None:
            raise StateMismatch(
                f"{self.sink.describe()} has a batch {batch.batch_id} that this run did not write: another run with "
                "another checkpoint writes there. Stop one of the two, and start this one again"
            )
        self.last = batch.batch_id
        return written


class Outlets:
    """All sinks of a pipeline."""

    def __init__(self, outlets: Sequence[Outlet[RecordingSink]]) -> None:
        self._all = [LocalOutlet(outlet) for outlet in outlets]
        self._first = self._all[0]

    @property
    def place(self) -> str:
        return " and ".join(outlet.place for outlet in self._all)

    def describe(self) -> str:
        """Where all of it is, for messages to people."""
        return " and ".join(outlet.sink.describe() for outlet in self._all)

    def open(self, results: pa.Schema) -> str | None:
        """Make or check the tables of each. The query whose batches they hold; StateMismatch if there are two."""
        for outlet in self._all:
            outlet.open(results)
        held = [outlet for outlet in self._all if outlet.query is not None]
        if len({outlet.query for outlet in held}) > 1:
            raise StateMismatch(
                f"{' and '.join(outlet.sink.describe() for outlet in held)} hold results of different pipelines: name "
                "another table in [sink], or start over with --fresh"
            )
        return held[0].query if held else None

    def only(self) -> LocalOutlet:
        """The sink of a pipeline that has one; UsageError if there are several."""
        if len(self._all) > 1:
            raise UsageError(
                "the pipeline has several sinks, which cannot be handed over to another checkpoint in one transaction: "
                "go on with its engine, or start over with --fresh"
            )
        return self._first

    @property
    def last(self) -> int:
        """The last batch that one of them has."""
        return max(outlet.last for outlet in self._all)

    @property
    def whole(self) -> int:
        """The last batch that each of them has."""
        return min(outlet.last for outlet in self._all)

    def older(self) -> str:
        """Those that lack batches which another one has."""
        return " and ".join(outlet.sink.describe() for outlet in self._all if outlet.last < self.last)

    def inputs(self, query: str) -> list[tuple[int, str | None]]:
        """Of the batches that are kept the number, and what it read."""
        ahead = max(self._all, key=lambda outlet: outlet.last)
        return ahead.sink.inputs(query)

    def write(self, batch: Batch) -> Batch:
        """Each writes its part of the batch, if it lacks it. What the first one wrote, or the batch."""
        written = [outlet.write(batch) for outlet in self._all]
        return written[0] or batch

    def fold(self, query: str, batch_id: int) -> None:
        for outlet in self._all:
            outlet.sink.fold(query, batch_id)

    def totals(self) -> dict[str, int]:
        return self._first.sink.totals()

    def close(self) -> None:
        for outlet in self._all:
            outlet.sink.close()
