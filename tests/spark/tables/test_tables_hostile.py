"""Tables of Spark's catalog in the hands of people: emptied by halves, a rerun that brings less, local times."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from unittest.mock import patch

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.conftest import OF_SPARK
from tests.sinks.stores import SCHEMA, batch, everything, of_batches
from tests.spark.tables.stores import TableStore
from waterclock.errors import UsageError
from waterclock.sinks import LastBatch, apply_once
from waterclock.spark import SparkTable
from waterclock.spark.tables.lakes import LAKES
from waterclock.streaming import frames

pytestmark = [pytest.mark.spark, pytest.mark.servers]


@pytest.fixture(params=[name.rpartition(" ")[2] for name in OF_SPARK])
def store(request: pytest.FixtureRequest, tables_spark: SparkSession) -> TableStore:
    return TableStore(tables_spark, request.param)


def opened(store: TableStore, schema: pa.Schema = SCHEMA) -> SparkTable:
    made = SparkTable(store.named("results"), using=store.provider, session=store.spark)
    made.open(schema)
    return made


def begun(sink: SparkTable, number: int, provider: str) -> None:
    """A batch whose run ended in front of its results."""
    lake = type(LAKES[provider])
    real = lake.append

    def stopped(self: object, catalog: object, table: str, *rest: object) -> object:
        if table.endswith("results"):
            raise KeyboardInterrupt
        return real(self, catalog, table, *rest)  # type: ignore[arg-type]

    with patch.object(lake, "append", stopped), pytest.raises(KeyboardInterrupt):
        apply_once(sink, batch(number))


def test_a_rerun_that_brings_no_result_any_more_is_applied(store: TableStore) -> None:
    # between results and sink a step was changed meanwhile: the batch counted as begun for ever, and no start was possible
    sink = opened(store)
    apply_once(sink, batch(0))
    begun(sink, 1, store.provider)
    assert sink.last_applied() == LastBatch("q", 0)
    nothing = replace(batch(1), results=SCHEMA.empty_table())
    assert [apply_once(sink, nothing) for _ in range(2)] == [True, False]
    assert sink.last_applied() == LastBatch("q", 1)
    assert everything(store)[0] == of_batches(0)[0]


def test_results_that_no_batch_names_are_told(store: TableStore) -> None:
    # a new query's batch 0 was taken for the one that lay there: its results were left out
    sink = opened(store)
    apply_once(sink, batch(0))
    store.spark.sql(f"DELETE FROM {store.named('results_batches')}")
    with pytest.raises(UsageError, match=r"'.*results_batches' .* is empty, and the table '.*results' .* holds rows"):
        opened(store)


def test_a_time_without_a_zone_stays_one(store: TableStore) -> None:
    # it was read in the session's zone: one that summer time leaves out stopped the pipeline, and every other one moved
    schema = frames.result_schema(pa.string(), pa.schema([("at", pa.timestamp("us"))]))
    rows = [{**row, "event": {"at": dt.datetime(2026, 3, 8, 2, 30)}} for row in batch(0).results.to_pylist()]
    zone = store.spark.conf.get("spark.sql.session.timeZone")
    store.spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        sink = opened(store, schema)
        apply_once(sink, replace(batch(0), results=pa.Table.from_pylist(rows, schema=schema)))
        opened(store, schema)
    finally:
        store.spark.conf.set("spark.sql.session.timeZone", zone)
    found = store.spark.table(store.named("results")).select("event_at")
    assert found.schema.fields[0].dataType.simpleString() == "timestamp_ntz"
    assert {row["event_at"] for row in found.collect()} == {dt.datetime(2026, 3, 8, 2, 30)}
