"""The outlets of a pipeline: what each sink takes of a batch, and how a batch comes to all of them.

    1. each sink is made or checked by itself, in the order in which they are named; nothing goes on if one is refused
    2. a batch goes to one after the other, to each in a transaction of its own (sinks/base.py)

Rule 1: exactly once is each sink's own. A kill between two of them leaves some a batch ahead; the batch comes again:
        who has it passes it over, who lacks it gets it.
Rule 2: what no sink takes would be lost without a word: that is refused.
Rule 3: no two of them write to one place.
Rule 4: results that executors write go past the driver, so they are one sink's, and nothing is done with them on the way
        but a choice of columns.
Rule 5: the first one counts for the pipeline: its totals are those that are shown.
Rule 6: a checkpoint that was carried over (checkpoint/state_files.py) counts its batches anew, and a sink goes on counting:
        `ahead` is the difference, `number_in_sink` a batch's number by the sink's count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa

from waterclock.errors import UsageError
from waterclock.sinks import Batch, Sink, check_belongs, sink_of, written_once
from waterclock.sinks.base import OwnSink
from waterclock.sinks.files import DRIVER, EXECUTORS, ResultFiles, TakesFiles
from waterclock.sinks.ledger import fence
from waterclock.spark.batch.batches import Shape, writing
from waterclock.spark.batch.steps import ResultStep
from waterclock.spark.checkpoint.state_files import ahead, give_sink, number_in_sink, refuse_handed_over
from waterclock.spark.checkpoint.taken_back import take_back
from waterclock.spark.packing.packs import in_workers
from waterclock.streaming import frames
from waterclock.streaming.given import ChosenColumns, of_kinds, with_results
from waterclock.streaming.places.place import place_of as place_at
from waterclock.streaming.toml.sink import refuse_one_place
from waterclock.streaming.toml.steps import Outlet, check_takes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from waterclock.sinks.ledger import Epoch
    from waterclock.spark.checkpoint.folder import Checkpoint

_ALONE = (
    "{} has written_by = 'executors', and such results do not come through the driver, so they cannot go with {}: leave "
    "one of both out"
)


def _outlet(sink: Any) -> Outlet[Any]:
    return sink if isinstance(sink, Outlet) else Outlet(sink)


def _is_by_executors(sink: Any) -> bool:
    return bool(getattr(sink, "written_by", DRIVER) == EXECUTORS)


def refuse_beside_executors(sinks: Sequence[Any]) -> None:
    """UsageError if executors are to write the results of one of the `sinks` of a pipeline, be they records of its file or
    made, and something else is asked for that needs these in the driver. Rule 4."""
    for outlet in map(_outlet, sinks):
        if _is_by_executors(outlet.sink) and (len(sinks) > 1 or outlet.step is not None or outlet.takes):
            what = "several sinks" if len(sinks) > 1 else "'query', 'transform' or 'takes'"
            raise UsageError(_ALONE.format(outlet.sink.place, what))


class PlannedOutlet:
    """An `Outlet` (streaming/toml/steps.py) at work: what becomes of a batch's results on their way to its sink."""

    def __init__(self, sink: Any) -> None:
        """`sink` is a sink, or an `Outlet` of one."""
        outlet = _outlet(sink)
        self.sink = sink_of(outlet.sink)
        self._step = outlet.step
        self.needs_no_spark = outlet.step is None and getattr(self.sink, "needs_no_spark", False)
        self.columns = outlet.columns
        self.takes = outlet.takes
        if (reached_by := getattr(self.sink, "reached_by", None)) is not None:
            reached_by(lambda url: place_at(url, Path()))
        if self.takes and getattr(self.sink, "mirror", None) is not None:
            raise UsageError(f"{self.sink.describe()} is a mirror, which takes all its changes: leave out 'takes'")
        self.by_executors = _is_by_executors(self.sink)
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

    def frame_schema(self, results: pa.Schema) -> pa.Schema:
        """The columns of a batch's frames, if it is the only sink."""
        return results if self._reshapes is None else self._reshapes.taken

    def part_of(self, batch: Batch, session: SparkSession) -> Batch:
        """What it is to write of `batch`."""
        if batch.files:
            return batch
        if self.takes:
            batch = of_kinds(batch, self.takes)
        if self._reshapes is None:
            return batch
        if isinstance(self._reshapes, ChosenColumns):
            return with_results(batch, self._reshapes.of(batch.results))
        return with_results(batch, self._reshapes.of(session, batch.results))


class Outlets:
    """All outlets of a pipeline: of a sink, an `Outlet`, or a list of such."""

    def __init__(self, sinks: Any) -> None:
        """TypeError or UsageError if they cannot be those of one pipeline."""
        several = list(sinks) if isinstance(sinks, list | tuple) else [sinks]
        if not several:
            raise UsageError("a pipeline needs a sink, or a list of sinks: got an empty list")
        refuse_beside_executors(several)
        self._all = [PlannedOutlet(each) for each in several]
        check_takes([outlet.takes for outlet in self._all])
        self._refuse_two_at_one_place()

    def __iter__(self) -> Iterator[PlannedOutlet]:
        return iter(self._all)

    @property
    def first(self) -> PlannedOutlet:
        return self._all[0]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of results that the operator gives; empty for all."""
        return self.first.columns if len(self._all) == 1 else ()

    @property
    def place(self) -> str:
        """Where the results are, in words that are the same from run to run."""
        return " and ".join(outlet.place for outlet in self._all)

    def plan(self, session: SparkSession | None, results: pa.Schema) -> bool:
        """Find out what each is given of `results`; False if that is known with a session only."""
        for outlet in self._all:
            outlet.plan(session, results)
        return all(outlet.schema is not None for outlet in self._all)

    def frame_schema(self, results: pa.Schema) -> pa.Schema:
        """The columns of a batch's frames."""
        return self.first.frame_schema(results) if len(self._all) == 1 else results

    def result_files(self, batch_id: int, checkpoint: Checkpoint) -> ResultFiles | None:
        """Where executors write the results of a batch; None if results come through the driver.

        A batch that the sink has already comes through the driver too: its files would be left over.
        """
        sink, query_id, number = self.first.sink, checkpoint.query_id(), number_in_sink(checkpoint, batch_id)
        assert query_id is not None
        assert number is not None
        if not self.first.by_executors or sink.is_applied(query_id, number):
            return None
        return cast(TakesFiles, sink).result_files(number)

    def taken(
        self, batch: DataFrame, place: tuple[Checkpoint, int], results: pa.Schema, last_us: int
    ) -> list[pa.Table]:
        """The frames of a batch of `results`; they have no rows if executors wrote them. `place` as in `batch_of`."""
        checkpoint, batch_id = place
        files = self.result_files(batch_id, checkpoint)
        if files is not None:
            assert self.first.schema is not None, "plan comes first"
            shape = Shape(self.frame_schema(results), self.first.schema, last_us)
            batch = in_workers(batch, writing(files, shape), "frame binary")
        return [frames.from_bytes(f) for f in batch.toArrow().column("frame").to_pylist()]

    def open(self, checkpoint: Checkpoint) -> None:
        """Make or check the tables of each; StateMismatch if one does not belong to the checkpoint."""
        for outlet in self._all:
            assert outlet.schema is not None, "plan comes first"
            outlet.sink.open(outlet.schema)
        for outlet in self._all:
            refuse_handed_over(checkpoint, outlet.sink.last_applied())
        take_back(checkpoint, min(self.held(checkpoint)))
        for outlet in self._all:
            _check(outlet, checkpoint)

    def held(self, checkpoint: Checkpoint) -> list[int]:
        """Of each: Spark's number of the last batch that it holds; -1 for none. -2 for another query's: it lacks more than
        is taken back."""
        query_id, before = checkpoint.query_id(), ahead(checkpoint)
        found = [outlet.sink.last_applied() for outlet in self._all]
        return [-1 if last is None else last.batch_id - before if last.query_id == query_id else -2 for last in found]

    def fence(self, epoch: Epoch | None) -> None:
        """Have each refuse owners of the checkpoint that are older than `epoch`."""
        for outlet in self._all:
            fence(outlet.sink, epoch)

    @property
    def need_no_spark(self) -> bool:
        """Whether all write without it, so that it may be at the next batch meanwhile (beside.py)."""
        return all(outlet.needs_no_spark for outlet in self._all)

    def write(self, session: SparkSession, batch: Batch) -> Batch | None:
        """Each writes its part of `batch`, once. The value is what the first one wrote; None if that one had it already."""
        written = [written_once(outlet.sink, outlet.part_of(batch, session)) for outlet in self._all]
        return written[0]

    def only(self) -> PlannedOutlet:
        """The sink of a pipeline that has one; UsageError if there are several."""
        if len(self._all) > 1:
            raise UsageError(
                "the pipeline has several sinks, which cannot be handed over to another checkpoint in one transaction: "
                "leave it as it is, or start over with --fresh"
            )
        return self.first

    def hand_over(self, old: Checkpoint, new: Checkpoint) -> None:
        """Give the only sink from one checkpoint to another."""
        only = self.only()
        assert only.schema is not None, "plan comes first"
        _check(only, old)  # and has all that is done
        give_sink(old, new, only.sink, only.schema)

    def describe(self) -> str:
        """Where all of it is, for messages to people."""
        return " and ".join(outlet.sink.describe() for outlet in self._all)

    def close(self) -> None:
        for outlet in self._all:
            outlet.sink.close()

    def _refuse_two_at_one_place(self) -> None:
        own = [outlet for outlet in self._all if not isinstance(outlet.sink, OwnSink)]  # whose place nobody knows
        refuse_one_place([outlet.place for outlet in own])
        if len({id(outlet.sink) for outlet in self._all}) < len(self._all):
            raise UsageError("two of the pipeline's sinks are the same object: name each once")


def _check(outlet: PlannedOutlet, checkpoint: Checkpoint) -> None:
    """StateMismatch if the sink has more than was begun with the checkpoint, or less than is done."""
    last, done = (number_in_sink(checkpoint, n) for n in (checkpoint.last_batch(), checkpoint.last_done()))
    check_belongs(outlet.sink, str(checkpoint.path), checkpoint.query_id(), last, done)


def outlets_of(sink: Sink | None, outlets: list[Outlet[Any]]) -> list[Outlet[Any]]:
    """`outlets`, or `sink` in the place of that of the first one."""
    return outlets if sink is None else [outlets[0].of(sink), *outlets[1:]]
