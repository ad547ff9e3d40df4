"""The sinks of a pipeline: what each takes of a batch, and how a batch comes to all of them.

    1. each sink is made or checked by itself, in the order in which they are named; nothing goes on where one is refused
    2. a batch goes to one after the other, to each in a transaction of its own (sinks/base.py)

Rule 1: exactly once is each sink's own. A kill between two of them leaves some a batch ahead; the batch comes again:
        who has it passes it over, who lacks it gets it.
Rule 2: what no sink takes would be lost without a word: that is refused.
Rule 3: no two of them write to one place.
Rule 4: the first one counts for the pipeline: its totals are those that are shown.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.errors import UsageError
from waterclock.rules.results import LATE
from waterclock.sinks import Batch, Mirror, Sink, check_belongs, sink_of, written_once
from waterclock.sinks.epochs import fence
from waterclock.sinks.own import OwnSink
from waterclock.spark import frames
from waterclock.spark.checkpoint.carrying import number_in_sink, settle
from waterclock.spark.steps import ChosenColumns, ResultStep, StepSink
from waterclock.spark.toml.sink import refuse_one_place
from waterclock.spark.toml.steps import check_takes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from waterclock.sinks.epochs import Epoch
    from waterclock.spark.checkpoint.folder import Checkpoint


class Output:
    """One sink, and what becomes of a batch's results on their way to it."""

    def __init__(self, given: Any) -> None:
        asked = given if isinstance(given, StepSink) else StepSink(given)
        self.sink, self._step, self.columns, self.takes = sink_of(asked.sink), asked.step, asked.columns, asked.takes
        self.mirror = getattr(self.sink, "mirror", None)
        if self.mirror is not None and self.takes:
            raise UsageError(f"{self.sink.describe()} is a mirror, which takes all its changes: leave out 'takes'")
        self._reshapes: ResultStep | ChosenColumns | None = None
        self.schema: pa.Schema | None = None  # of what the sink is given, once that is known

    @property
    def path(self) -> Path | None:
        """Where it lies in the file system, if it says so."""
        path = getattr(self.sink, "path", None)
        return path if isinstance(path, Path) else None

    @property
    def place(self) -> str:
        """Where its results are, in words that are the same from run to run."""
        place = getattr(self.sink, "place", None)
        return place if isinstance(place, str) else str(self.sink.describe())

    def plan(self, session: SparkSession | None, results: pa.Schema) -> None:
        """Find out what it is given of `results`; a step of the user's own needs a `session` for that."""
        if self.columns:
            self._reshapes = ChosenColumns(self.columns, results)
        elif self._step is not None and session is not None:
            self._reshapes = ResultStep(self._step, session, results)
        if self._step is None or self._reshapes is not None:
            self.schema = results if self._reshapes is None else self._reshapes.schema

    def taken(self, results: pa.Schema) -> pa.Schema:
        """The columns of a batch's frames, where it is the only sink."""
        return results if self._reshapes is None else self._reshapes.taken

    def given(self, session: SparkSession, batch: Batch) -> Batch:
        """What it is to write of `batch`."""
        if self.takes:
            batch = _of_kinds(batch, self.takes)
        if self._reshapes is None:
            return batch
        rows = batch.results
        if isinstance(self._reshapes, ChosenColumns):
            rows = frames.chosen(rows, self.columns).replace_schema_metadata(None)
        rows = self._reshapes.of(session, rows)
        return replace(batch, results=rows, counters={**batch.counters, "results": rows.num_rows})


class Outputs:
    """All sinks of a pipeline, `given` as one of them or as a list."""

    def __init__(self, given: Any) -> None:
        """TypeError or UsageError where they cannot be those of one pipeline."""
        several = list(given) if isinstance(given, list | tuple) else [given]
        if not several:
            raise UsageError("a pipeline needs a sink, or a list of sinks: got an empty list")
        self._all = [Output(each) for each in several]
        check_takes([() if output.mirror is not None else output.takes for output in self._all])
        self._refuse_two_at_one_place()

    def __iter__(self) -> Iterator[Output]:
        return iter(self._all)

    @property
    def first(self) -> Output:
        return self._all[0]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of results that are asked for of the operator; none where that is all."""
        return self.first.columns if len(self._all) == 1 else ()

    @property
    def place(self) -> str:
        """Where the results are, in words that are the same from run to run."""
        return " and ".join(output.place for output in self._all)

    def plan(self, session: SparkSession | None, results: pa.Schema) -> bool:
        """Find out what each is given of `results`; False where that is known with a session only."""
        for output in self._all:
            output.plan(session, results)
        return all(output.schema is not None for output in self._all)

    def taken(self, results: pa.Schema) -> pa.Schema:
        """The columns of a batch's frames."""
        return self.first.taken(results) if len(self._all) == 1 else results

    def open(self, checkpoint: Checkpoint) -> None:
        """Make or check the tables of each; StateMismatch where one does not belong to the checkpoint."""
        for output in self._all:
            assert output.schema is not None, "plan comes first"
            output.sink.open(output.schema)
        for output in self._all:
            settle(checkpoint, output.sink.last_applied())
            last, done = (number_in_sink(checkpoint, n) for n in (checkpoint.last_batch(), checkpoint.last_done()))
            check_belongs(output.sink, str(checkpoint.path), checkpoint.query_id(), last, done)

    def fence(self, epoch: Epoch | None) -> None:
        """Tell each that it is the turn of `epoch`."""
        for output in self._all:
            fence(output.sink, epoch)

    def write(self, session: SparkSession, batch: Batch) -> Batch | None:
        """Each writes its part of `batch`, once. The value is what the first one wrote; None where it had it already."""
        written = [written_once(output.sink, output.given(session, batch)) for output in self._all]
        return written[0]

    def only(self) -> Output:
        """The sink of a pipeline that has one; UsageError where there are several."""
        if len(self._all) > 1:
            raise UsageError(
                "the pipeline has several sinks, which cannot be handed over to another checkpoint in one transaction: "
                "keep its buckets, or start over with --fresh"
            )
        return self.first

    def mirrors(self) -> list[Mirror]:
        return [output.mirror for output in self._all if isinstance(output.mirror, Mirror)]

    def describe(self) -> str:
        """Where all of it is, for messages to people."""
        return " and ".join(output.sink.describe() for output in self._all)

    def close(self) -> None:
        for output in self._all:
            output.sink.close()

    def _refuse_two_at_one_place(self) -> None:
        own = [output for output in self._all if not isinstance(output.sink, OwnSink)]  # whose place nobody knows
        refuse_one_place([output.place for output in own])
        if len({id(output.sink) for output in self._all}) < len(self._all):
            raise UsageError("two of the pipeline's sinks are the same object: name each once")


def _of_kinds(batch: Batch, takes: tuple[str, ...]) -> Batch:
    """What of a batch a sink takes that asks for some of it."""
    rows = batch.results
    if "kind" in rows.column_names:
        is_late = pc.fill_null(pc.equal(rows["kind"], LATE), False)
        keep = {"results": pc.invert(is_late), "late": is_late}
        chosen = [keep[name] for name in takes if name in keep]
        rows = (
            rows.filter(pc.or_(*chosen)) if len(chosen) == 2 else rows.filter(chosen[0]) if chosen else rows.slice(0, 0)
        )
    elif "results" not in takes:
        rows = rows.slice(0, 0)
    dead = batch.dead_letters if "dead_letters" in takes else batch.dead_letters.slice(0, 0)
    return replace(batch, results=rows, dead_letters=dead, counters={**batch.counters, "results": rows.num_rows})


def outputs_of(sink: Sink | None, given: list[StepSink]) -> list[StepSink]:
    """`given`, or `sink` in the place of the first one."""
    return given if sink is None else [replace(given[0], sink=sink), *given[1:]]
