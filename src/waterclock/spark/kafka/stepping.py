"""Records of topics that go through a step of the user's own before the rules see them.

    records -> rows, with their place beside them -> the step -> packed rows: of each partition what is left of its rows
            -> frames: dead letters, heartbeats   -----------> packed rows

Rule 1: the step is that of any other source (steps.py): it sees rows that could be read, and nothing else.
Rule 2: the column PLACE (topic, partition, offset) goes through the step, so that behind it a partition has a time of
        its own, rows are taken by offset, and a dead letter says where it lay. A step that leaves it out is refused.
Rule 3: what stands beside the rows passes the step by, so records are read twice: for the one and for the other.
Rule 4: no two frames have one `origin`, or one of them would be lost: behind place and task it counts through the task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from waterclock.errors import UsageError
from waterclock.kafka import Partition
from waterclock.rules.model import Rules
from waterclock.spark.batch.steps import SOURCE, applied, nothing
from waterclock.spark.dataframe.rows import PLACE, add_judged
from waterclock.spark.dataframe.stream import check_dataframe, event_schema
from waterclock.spark.packing.packs import FIRST, NO_TIME, TIMED, Packs, in_workers, timed
from waterclock.spark.packing.transform import with_id
from waterclock.streaming import frames
from waterclock.streaming.layout import ROW_ID
from waterclock.streaming.toml.topics import Topics
from waterclock.streaming.topics.records import (
    WHERE_IT_LIES,
    RecordLayout,
    Records,
    own_watermark,
    plain_records,
    watermarks_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FRAME = f"{ROW_ID}_frame"  # what passes the step by: a dead frame or a clock frame; null beside a row
_PLACE_TYPE = pa.struct([("topic", pa.string()), ("partition", pa.int64()), ("offset", pa.int64())])


@dataclass(frozen=True, slots=True)
class StepPacker:
    """What every task needs to make rows for a step; behind it the watermark stays `delay_us` behind."""

    layout: RecordLayout
    delay_us: int

    @property
    def columns(self) -> StructType:
        return from_arrow_schema(self.schema())

    def rows_schema(self) -> pa.Schema:
        """The columns that a step sees."""
        return self.layout.schema().append(pa.field(PLACE, _PLACE_TYPE))

    def schema(self) -> pa.Schema:
        """The same, and FRAME."""
        return self.rows_schema().append(pa.field(FRAME, pa.binary()))

    def pack(self, records: Records, known: Iterable[Partition], gone: Iterable[Partition] = ()) -> pa.RecordBatch:
        """The rows of `records`, and behind them two that hold a frame each."""
        read = plain_records(records, self.layout)
        rows = read.rows.append_column(PLACE, _places(records, read.offsets))
        own = own_watermark(read.latest_us, self.delay_us)
        dead = frames.with_counters(read.dead, read.counters, "dead")
        return self._whole(rows, [dead, frames.clock({**watermarks_of(known, gone), records.place: own})])

    def pack_gone(self, known: Iterable[Partition], gone: Iterable[Partition]) -> pa.RecordBatch:
        """No row, and a frame that says which partitions are no more."""
        return self._whole(self.rows_schema().empty_table(), [frames.clock(watermarks_of(known, gone))])

    def _whole(self, rows: pa.Table, aside: list[pa.Table]) -> pa.RecordBatch:
        count, beside = rows.num_rows, pa.array([frames.to_bytes(frame) for frame in aside], pa.binary())
        columns = [pa.concat_arrays([*column.chunks, pa.nulls(len(aside), column.type)]) for column in rows.columns]
        return pa.RecordBatch.from_arrays(
            [*columns, pa.concat_arrays([pa.nulls(count, pa.binary()), beside])], schema=self.schema()
        )


def _places(records: Records, offsets: list[int]) -> pa.Array:
    count = len(offsets)
    parts = [pa.repeat(records.topic, count), pa.repeat(pa.scalar(records.partition, pa.int64()), count)]
    return pa.StructArray.from_arrays([*parts, pa.array(offsets, pa.int64())], fields=list(_PLACE_TYPE))


class SteppedRows:
    """What the step makes of the rows of topics; its columns are known once `begin` has looked."""

    def __init__(self, topics: Topics, rules: Rules, delay_us: int) -> None:
        assert topics.step is not None
        self._topics = topics
        self._step = topics.step
        self._rules = rules
        self._delay_us = delay_us
        self.packing = StepPacker(RecordLayout(dict(topics.columns), dict(topics.record)), delay_us)
        self._schema: pa.Schema | None = None

    def begin(self, session: SparkSession) -> None:
        """UsageError if the step cannot be applied, or gives what the rules cannot take."""
        made = self._applied(nothing(session, from_arrow_schema(self.packing.rows_schema()))).drop(PLACE)
        check_dataframe(made, self._rules, "the source")
        self._schema = event_schema(made)

    def schema(self) -> pa.Schema | None:
        """The columns of an event; None before `begin`."""
        return self._schema

    def settings(self) -> dict[str, Any]:
        """What of the step the state depends on."""
        schema = self._schema or ()
        return {"events": {field.name: str(field.type) for field in schema}, **self._step.settings()}

    def packed(self, raw: DataFrame, count: int) -> DataFrame:
        """Packed rows of `raw`, which is what the packer made of records."""
        made = self._applied(raw.where(F.col(FRAME).isNull()).drop(FRAME))
        lies = {self._topics.record.get(part) for part in WHERE_IT_LIES} - set(self._rules.columns())
        said = [name for name in made.columns if name not in {PLACE, *lies}]
        rows = with_id(made, self._rules, said)
        aside = raw.where(F.col(FRAME).isNotNull()).select(FRAME)
        packed = in_workers(rows, row_packer(self._rules, self._delay_us, count), TIMED)
        return packed.unionByName(in_workers(aside, frame_packer(count), TIMED))

    def _applied(self, rows: DataFrame) -> DataFrame:
        return with_place(applied(self._step, rows, SOURCE))


def with_place(made: DataFrame) -> DataFrame:
    """`made`, what a step gives; UsageError if the column PLACE is not among it."""
    if PLACE not in made.columns:
        raise UsageError(
            f"the step behind source leaves out {PLACE}, the place of a record, by which partitions keep their order and "
            f"their time: name it in the SELECT, beside {', '.join(made.columns)}"
        )
    return made


# In the workers ------------------------------------------------------------------------------------------------


def row_packer(
    rules: Rules, delay_us: int, count: int
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows that went through the step in, packed rows and clocks of their partitions out."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packs = Packs(count=count)
        task = packs.origin
        for batch in batches:
            for topic, partition, rows in _by_partition(batch):
                offset = rows.column(PLACE)[0]["offset"].as_py()
                packs.origin = f"{topic} {partition:010d} {offset:020d} {task}"
                latest_us = add_judged(packs, rows, rules)
                own = own_watermark(latest_us, delay_us)
                packs.add_to_each(frames.to_bytes(frames.clock({f"{topic}/{partition}": own})))
                yield timed(packs, NO_TIME)

    return pack


def _by_partition(batch: pa.RecordBatch) -> Iterator[tuple[str, int, pa.RecordBatch]]:
    """Runs of rows of one partition, in the order in which they stand."""
    if not batch.num_rows:
        return
    topics, partitions = (pc.struct_field(batch.column(PLACE), [name]) for name in ("topic", "partition"))
    if topics.null_count:
        raise UsageError(f"the step behind source gives rows whose {PLACE} is null: each must be made of a record")
    begins = [0, *(n + 1 for n in _changes(topics, partitions)), batch.num_rows]
    for start, end in pairwise(begins):
        yield topics[start].as_py(), partitions[start].as_py(), batch.slice(start, end - start)


def _changes(*columns: pa.Array) -> list[int]:
    """Behind which rows another value begins in one of the columns."""
    found: set[int] = set()
    for column in columns:
        changed = pc.not_equal(column.slice(1), column.slice(0, len(column) - 1))
        found.update(pc.indices_nonzero(changed).to_pylist())
    return sorted(found)


def frame_packer(count: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Frames in, packed rows out: a clock goes to every bucket."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packs = Packs(count=count)
        for batch in batches:
            for frame in batch.column(FRAME).to_pylist():
                if frames.kind_of(frames.from_bytes(frame)) == "clock":
                    packs.add_to_each(frame)
                else:
                    packs.add(FIRST, frame)
            if len(packs):
                yield timed(packs, NO_TIME)

    return pack
