"""`rules.on_spark()`: rules as a transformation of any DataFrame, streaming or batch.

    streaming   pack -> beside it, what closes it (closing.py) -> withWatermark -> transformWithState -> unpack
    batch       pack -> one call a bucket, closed at the end -> unpack

Rule 1: the watermark is taken from packed rows and its column dropped before grouping: Spark drops nothing as late, and
        the engine, which has an output for late events, sees everything.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    IntegralType,
    MapType,
    NumericType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from waterclock.errors import UsageError
from waterclock.rules.engine import CLOSED, NO_WATERMARK
from waterclock.rules.model import Rules
from waterclock.rules.truth import Kind, Unfit
from waterclock.spark.packing import operator
from waterclock.spark.packing.closing import OnSpark, closes
from waterclock.spark.packing.packs import NO_TIME, TIMED, Packs, as_time, by_place, in_workers, timed
from waterclock.spark.session.cluster import cores_of
from waterclock.streaming import frames
from waterclock.streaming.buckets import BUCKETS, by_cores, checked
from waterclock.streaming.layout import CLOSING_US, ROW_ID, check_each_once, end_of
from waterclock.streaming.state.bucket import Bucket

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

# a row as JSON, by which it differs from others: by itself Spark writes milliseconds, in the zone of the session
_WHOLE = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}


_KINDS: dict[Kind, tuple[type, ...]] = {
    "text": (StringType,),
    "number": (NumericType,),
    "boolean": (BooleanType,),
    "time": (TimestampType, TimestampNTZType),
    "date": (DateType,),
    "binary": (BinaryType,),
}


_PLAIN = (StringType, NumericType, BooleanType, BinaryType, DateType, TimestampType, TimestampNTZType)


def transform_with(
    rules: Rules, watermark_delay_us: int, buckets: int | None = None
) -> Callable[[DataFrame], DataFrame]:
    """The function behind `Rules.on_spark`; without `buckets`, their number follows from the session's cores."""
    checked("on_spark(buckets=)", buckets)

    def transform(events: DataFrame) -> DataFrame:
        check_columns(rules, events.schema)
        case_counts = events.sparkSession.conf.get("spark.sql.caseSensitive") == "true"
        check_each_once(events.columns, "rules.on_spark()", case_counts)
        count = buckets or by_cores(cores_of(events.sparkSession))
        result = result_type(rules, events.schema)
        rows = with_id(events, rules, events.columns)
        if not events.isStreaming:
            packed = in_workers(rows, packer(rules, count), operator.PACKED)
            done = packed.groupBy("bucket").applyInArrow(_whole_bucket(rules), "frame binary")
        else:
            packed = in_workers(rows, timed_packer(rules, watermark_delay_us, count), TIMED)
            made = OnSpark(repr(rules), watermark_delay_us, events.schema.simpleString(), count)
            with_close = packed.unionByName(closes(events.sparkSession, made))
            timed_rows = with_close.withWatermark("ts", delay_text(watermark_delay_us)).drop("ts")
            done = operator.apply(rules, timed_rows)
        last_us = CLOSING_US - watermark_delay_us  # the watermark that the close is shown at
        return in_workers(done, unpacker(to_arrow_schema(result, timezone="UTC"), last_us), result)

    return transform


def delay_text(delay_us: int) -> str:
    """A watermark delay for Spark, which counts in milliseconds: rounded up, so that nothing is late too early."""
    return f"{-(-delay_us // 1000)} milliseconds"


def with_id(rows: DataFrame, rules: Rules, id_columns: Collection[str]) -> DataFrame:
    """`rows` with the id of those whose own is not named or null: a hash of `id_columns`; null if the own one serves."""
    renamed, columns = by_place(rows)
    whole = F.struct(*(column.alias(name) for name, column in columns.items() if name in id_columns))
    made = F.sha2(F.to_json(whole, _WHOLE), 256)
    made = made if rules.id is None else F.when(columns[rules.id].isNull(), made)
    return renamed.withColumn(ROW_ID, made).toDF(*rows.columns, ROW_ID)


def check_columns(rules: Rules, schema: StructType) -> None:
    """Raise UsageError if the rules name a column that is not there, or one of a type they cannot use."""
    types = {field.name: field.dataType for field in schema.fields}
    for name in types:
        if name.casefold() == ROW_ID:
            raise UsageError(f"the events have a column {name!r}, which is waterclock's own: rename it")
        if _has_variant(types[name]):
            raise UsageError(
                f"the column {name!r} is {types[name].simpleString()}, and a VARIANT that is null does not come "
                "through Arrow: make a text of it with to_json(), or take the parts that you need"
            )
    for name in rules.columns():
        if name not in types:
            raise UsageError(f"the rules name the column {name!r}; the events have {', '.join(types)}")
    for name in rules.questions().carried:
        if not isinstance(types[name], _PLAIN):
            raise UsageError(
                f"the column {name!r} is {types[name].simpleString()}, which a result cannot carry: "
                f"carry a column with a text of it, such as to_json({name}), or with a part of it"
            )
    moment = (TimestampType, TimestampNTZType)
    times = [name for name in (rules.time, rules.deliver_column, *rules.questions().dues) if name]
    ties = (StringType, IntegralType, BooleanType, *moment)
    needs: list[tuple[str, tuple[type, ...], str]] = [
        (rules.key, (StringType, IntegralType), "a text or an integer"),
        *((name, moment, "a timestamp") for name in times),
        *((name, ties, "a text, an integer, a boolean or a timestamp") for name in rules.questions().ties),
    ]
    if rules.sequence:
        needs.append((rules.sequence, (IntegralType,), "an integer"))
    for name, allowed, what in needs:
        if not isinstance(types[name], allowed):
            raise UsageError(f"the column {name!r} must be {what}, it is {types[name].simpleString()}: cast it first")
    try:
        rules.questions().check({name: _kind(kind) for name, kind in types.items()})
    except Unfit as error:
        raise UsageError(str(error)) from None


def _has_variant(type_: DataType) -> bool:
    if isinstance(type_, StructType):
        return any(_has_variant(field.dataType) for field in type_.fields)
    if isinstance(type_, ArrayType):
        return _has_variant(type_.elementType)
    if isinstance(type_, MapType):
        return _has_variant(type_.keyType) or _has_variant(type_.valueType)
    return isinstance(type_, VariantType)


def _kind(type_: DataType) -> Kind | None:
    """What a condition takes a column for; None if it can see whether it is null, and no more."""
    return next((kind for kind, types in _KINDS.items() if isinstance(type_, types)), None)


def result_type(rules: Rules, schema: StructType) -> StructType:
    """The schema of the results for events of `schema`."""
    text, moment = StringType(), TimestampType()
    return StructType(
        [
            StructField("kind", text),
            StructField("key", schema[rules.key].dataType),
            StructField("rule", text),
            StructField("due", moment),
            StructField("emitted_at", moment),
            StructField("source_id", text),
            StructField("result_id", text),
            StructField("event", schema),
        ]
    )


def packer(rules: Rules, count: int = BUCKETS) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows in, packed rows of `count` buckets out. Heartbeats end here: a batch is closed whole, and a stream's watermark
    (`timed_packer`) has counted them."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packs = Packs(count=count)
        for batch in batches:
            _add(packs, batch, rules)
            yield packs.take()

    return pack


def timed_packer(
    rules: Rules, delay_us: int, count: int = BUCKETS
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The same for a stream: beside what is packed, the largest time of all rows, heartbeats too (`packs.TIMED`). Its
    watermark stays `delay_us` behind."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        packs = Packs(count=count)
        for batch in batches:
            _add(packs, batch, rules)
            latest_us = pc.max(batch.column(rules.time).cast(frames.TIMESTAMP).cast(pa.int64())).as_py()
            if latest_us is not None:
                packs.add_early(latest_us - delay_us)
            yield timed(packs, NO_TIME if latest_us is None else as_time(end_of(latest_us)))

    return pack


def _add(packs: Packs, batch: pa.RecordBatch, rules: Rules) -> None:
    keyed = batch.filter(pc.is_valid(batch.column(rules.key)))
    # rows without a key that carry more than a time: dropped as heartbeats, that would be lost
    beats = batch.filter(pc.is_null(batch.column(rules.key)))
    for name in beats.schema.names:
        if name not in (rules.time, ROW_ID) and beats.column(name).null_count < beats.num_rows:
            raise UsageError(
                f"the key {rules.key!r} of a row is null, and the row says more than a time (in {name!r}): "
                "filter such rows away first, or give them a key. A heartbeat is a row of nulls with a time"
            )
    # rows that the rules cannot take are refused, as in process
    if keyed.column(rules.time).null_count:
        raise UsageError(f"the time {rules.time!r} of a row with a key is null: filter such rows away first")
    if rules.sequence and rules.ordering:
        numbers = keyed.column(rules.sequence)
        if numbers.null_count or pc.any(pc.less(numbers, 1)).as_py():
            raise UsageError(
                f"the sequence {rules.sequence!r} of a row with a key is null or below 1: filter such rows away first"
            )
    packs.add_rows(keyed, rules.key)


def unpacker(schema: pa.Schema, last_us: int) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Result frames in, result rows of `schema` out; those of the close are shown at `last_us`."""

    def unpack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for frame in batch.column("frame").to_pylist():
                yield from frames.up_to(last_us, frames.conform(frames.from_bytes(frame), schema)).to_batches()

    return unpack


def _whole_bucket(rules: Rules) -> Callable[[pa.Table], pa.Table]:
    def close(packed: pa.Table) -> pa.Table:
        rows = [frames.from_bytes(frame) for frame in packed.sort_by("origin").column("frame").to_pylist()]
        bucket = Bucket(rules, None)
        done = [bucket.step(rows, NO_WATERMARK), bucket.step([], CLOSED)]
        return pa.table({"frame": pa.array(map(frames.to_bytes, done), pa.binary())})

    return close
