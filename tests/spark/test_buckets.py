"""Keys into buckets, buckets over partitions; and the frames in which rows travel.

The numbers here are a promise to checkpoints that exist: a key that changes its bucket loses its state.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from waterclock.streaming import buckets, frames

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNTS = [1, 2, 3, 16, 64, 97]


def placed(keys: pa.Array, count: int = 16) -> list[int]:
    return buckets.places(keys, count).tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("count", [*COUNTS, buckets.BUCKETS])
def test_labels_are_spread_evenly_over_every_number_of_partitions_that_divides_their_count(
    count: int,
) -> None:
    labels = buckets.labels(count)
    assert len(set(labels)) == count
    for partitions in (n for n in range(1, count + 1) if count % n == 0):
        of_partition = [buckets.spark_hash(label) % partitions for label in labels]
        assert [of_partition.count(n) for n in range(partitions)] == [count // partitions] * partitions


def test_each_label_is_the_smallest_number_for_its_place() -> None:
    assert buckets.labels(4) == (12, 6, 2, 0)


@pytest.mark.parametrize(
    ("value", "hash_"),
    [(0, 933211791), (1, -559580957), (2, 1765031574), (-1, -1604776387), (2**31 - 1, 133916647)],
)
def test_the_hash_is_that_of_spark(value: int, hash_: int) -> None:
    assert buckets.spark_hash(value) == hash_


@pytest.mark.spark
def test_the_hash_is_that_of_the_spark_that_is_installed(spark: SparkSession) -> None:
    values = [0, 1, 2, 7, 41, 1000, 65_536, -1, -(2**31), 2**31 - 1, *buckets.labels(buckets.BUCKETS)]
    rows = spark.createDataFrame([(v,) for v in values], "value int").selectExpr("value", "hash(value) AS hash")
    assert {row.value: row.hash for row in rows.collect()} == {v: buckets.spark_hash(v) for v in values}


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        (pa.array(["a", "b", "", "é", "\x00", "A" * 1000]), [3, 9, 0, 14, 13, 1]),
        (pa.array([0, 1, -1, 2**63 - 1, -(2**63)]), [1, 7, 10, 14, 11]),
    ],
)
def test_a_key_has_the_bucket_that_it_always_had(keys: pa.Array, expected: list[int]) -> None:
    assert placed(keys) == expected


@given(st.lists(st.text(max_size=3), max_size=20), st.sampled_from(COUNTS))
def test_the_bucket_of_a_key_does_not_depend_on_its_neighbours_or_on_how_arrow_holds_it(
    keys: list[str], count: int
) -> None:
    plain = pa.array(keys, pa.string())
    alone = [placed(pa.array([key]), count)[0] for key in keys]
    half = len(keys) // 2
    assert placed(plain, count) == alone
    assert placed(plain.cast(pa.large_string()), count) == alone
    assert placed(plain.dictionary_encode(), count) == alone
    assert placed(pa.chunked_array([plain[:half], plain[half:]]), count) == alone
    assert placed(pa.concat_arrays([pa.array(["before"]), plain])[1:], count) == alone


def test_a_number_and_its_text_are_in_the_same_bucket_in_every_width() -> None:
    texts = placed(pa.array(["1", "-7", "30000"]))
    assert placed(pa.array([1, -7, 30000], pa.int64())) == texts
    assert placed(pa.array([1, -7, 30000], pa.int16())) == texts


@given(st.lists(st.text("abcdefgh", max_size=2), max_size=40), st.sampled_from(COUNTS))
def test_a_batch_is_split_into_all_its_rows_by_bucket_in_their_order(keys: list[str], count: int) -> None:
    batch = pa.record_batch({"key": pa.array(keys, pa.string()), "row": pa.array(range(len(keys)), pa.int64())})
    parts = buckets.split(batch, batch.column("key"), count)
    place = placed(batch.column("key"), count)
    labels = buckets.labels(count)
    expected = [(labels[n], [row for row, p in enumerate(place) if p == n]) for n in sorted(set(place))]
    assert [(label, part.column("row").to_pylist()) for label, part in parts] == expected
    assert all(part.column("key").to_pylist() == [keys[n] for n in part.column("row").to_pylist()] for _, part in parts)


def test_an_empty_batch_has_no_parts() -> None:
    batch = pa.record_batch({"key": pa.array([], pa.string())})
    assert buckets.split(batch, batch.column("key"), 16) == []


# Frames


@pytest.mark.parametrize(
    "rows",
    [
        pa.table({"a": [1, None], "b": ["é\x00", None]}),
        pa.table({"a": pa.chunked_array([[1], [], [2, 3]])}),
        pa.table({"a": pa.array([], pa.int64())}),
        pa.table({"at": pa.array([-1, 2**62, None], frames.TIMESTAMP)}),
        pa.table({"event": [{"k": "a", "n": None}, None]}),
        pa.table({"a": pa.array(range(100))[40:43]}),
        pa.table({}),
        frames.DEAD_SCHEMA.empty_table(),
    ],
)
def test_a_frame_comes_back_from_bytes_as_it_went_in(rows: pa.Table) -> None:
    back = frames.from_bytes(frames.to_bytes(rows))
    assert back.equals(rows, check_metadata=True)


def test_a_slice_of_a_batch_takes_only_its_own_rows_along() -> None:
    batch = pa.record_batch({"a": ["x" * 1000] * 1000})
    assert len(frames.to_bytes(batch.slice(10, 1))) < 5_000


@pytest.mark.parametrize("counters", [{}, {"events": 0}, {"events": 2**70, "held": -3, "späte": 1}])
def test_counters_travel_beside_the_rows(counters: dict[str, int]) -> None:
    rows = pa.table({"a": [1]})
    frame = frames.from_bytes(frames.to_bytes(frames.with_counters(rows, counters)))
    assert (frames.counters_of(frame), frames.is_dead(frame), frame.column("a").to_pylist()) == (
        counters,
        False,
        [1],
    )


def test_a_dead_frame_is_told_from_results_with_and_without_counters() -> None:
    empty = frames.DEAD_SCHEMA.empty_table()
    counted = frames.with_counters(empty, {"dead_letters": 2}, b"dead")
    assert [frames.is_dead(frames.from_bytes(frames.to_bytes(f))) for f in (empty, counted)] == [True, True]
    assert (frames.counters_of(empty), frames.counters_of(counted)) == ({}, {"dead_letters": 2})
    assert frames.is_dead(frames.with_counters(empty, {})) is False


def test_counters_are_summed_by_name() -> None:
    parts: list[dict[str, Any]] = [{"a": 1, "b": -2}, {}, {"a": 3, "c": 0}]
    assert frames.sum_counters(parts) == {"a": 4, "b": -2, "c": 0}


def test_a_result_carries_the_key_and_the_event_in_their_own_types() -> None:
    schema = frames.result_schema(pa.int64(), pa.schema([("n", pa.int64()), ("t", frames.TIMESTAMP)]))
    assert schema.names == ["kind", "key", "rule", "due", "emitted_at", "source_id", "result_id", "event"]
    assert schema.field("key").type == pa.int64()
    assert schema.field("event").type == pa.struct([("n", pa.int64()), ("t", frames.TIMESTAMP)])
