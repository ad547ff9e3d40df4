"""What a table of Spark's catalog promises beside the contract: steps of its commit, two writers, history that is cut."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.conftest import OF_SPARK
from tests.sinks.stores import COUNTERS, SCHEMA, batch, everything, in_a_child, of_batches
from tests.spark.tables.stores import TableStore
from waterclock.errors import StateMismatch, UsageError
from waterclock.sinks import LastBatch, apply_once
from waterclock.spark import SparkTable

pytestmark = [pytest.mark.spark, pytest.mark.servers]
# kill the child where a table is to be given the commit of that number: the first is that of the dead letters
KILL = """
import os, signal
from waterclock.spark.tables import lakes
lake, steps = type(lakes.LAKES[{provider!r}]), iter(range(9))
append = lake.append
def dying(*arguments):
    if next(steps) == {step}:
        os.kill(os.getpid(), signal.SIGKILL)
    return append(*arguments)
lake.append = dying
apply_once(sink, batch(1))
"""


@pytest.fixture(params=[name.rpartition(" ")[2] for name in OF_SPARK])
def store(request: pytest.FixtureRequest, tables_spark: SparkSession) -> TableStore:
    return TableStore(tables_spark, request.param)


@pytest.fixture
def sink(store: TableStore) -> SparkTable:
    made = SparkTable(store.named("results"), using=store.provider, session=store.spark)
    made.open(SCHEMA)
    apply_once(made, batch(0))
    return made


def opened(store: TableStore) -> SparkTable:
    made = store.sink()
    made.open(SCHEMA)
    return made


def killed(store: TableStore, step: int) -> bool:
    """Whether a child was killed in front of that commit of batch 1."""
    text = KILL.format(provider=store.provider, step=step)
    return in_a_child(store, text).returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("step", "seen"),
    [
        pytest.param(0, [[0], [0]], marks=pytest.mark.long(seconds=6), id="before the dead letters"),
        pytest.param(1, [[0, 1], [0]], marks=pytest.mark.long(seconds=6), id="before the batch"),
        pytest.param(2, [[0, 1], [0, 1]], id="before the results"),
    ],
)
def test_a_kill_inside_a_commit_leaves_no_result_and_a_rerun_makes_it_whole(
    store: TableStore, sink: SparkTable, step: int, seen: list[list[int]]
) -> None:
    assert killed(store, step)
    beside = [store.look("batch_id, line", "results_dead_letters"), store.look("batch_id, query_id", "results_batches")]
    assert [[number for number, _ in rows] for rows in beside] == seen
    assert everything(store)[0] == of_batches(0)[0]
    again = opened(store)
    assert (again.last_applied(), again.totals()) == (LastBatch("q", 0), COUNTERS)
    assert apply_once(again, batch(1)) is True
    assert again.totals() == {"events": 4, "late": 2}
    assert everything(store) == of_batches(0, 1)


def test_of_two_writers_that_take_the_same_batch_one_writes_it(store: TableStore, sink: SparkTable) -> None:
    other = opened(store)
    for each in (sink, other):
        each.begin()
        assert each.is_applied("q", 1) is False
        each.write(batch(1))
    other.commit()
    sink.commit()  # each step of it finds the batch, and writes nothing
    assert everything(store) == of_batches(0, 1)
    assert apply_once(sink, batch(1)) is False


@pytest.mark.long(seconds=8)
def test_what_came_between_the_look_and_the_commit_is_not_written_twice(
    store: TableStore, sink: SparkTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the other one's whole batch, after this one has looked and before its rows are given to Spark's writer
    other, frame, began = opened(store), type(sink._catalog).frame, []

    def with_another_one(catalog: object, rows: pa.Table) -> object:
        if not began:
            began.append(apply_once)
            began.append(apply_once(other, batch(1)))
        return frame(catalog, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(type(sink._catalog), "frame", with_another_one)
    assert began[1:] == []
    apply_once(sink, batch(1))
    assert began[1] is True
    assert everything(store) == of_batches(0, 1)


def cut_the_rows(store: TableStore) -> None:
    store.spark.sql(f"DELETE FROM {store.named('results')} WHERE batch_id = 0")


def cut_the_history(store: TableStore) -> None:
    if store.provider == "iceberg":
        store.spark.sql(f"ALTER TABLE {store.named('results')} SET TBLPROPERTIES ('waterclock.owner.x' = '1')")
        store.spark.sql(f"DELETE FROM {store.named('results')} WHERE batch_id = -1")
        expire = "CALL lake.system.expire_snapshots(table => '{}', older_than => TIMESTAMP '2100-01-01 00:00:00')"
        store.spark.sql(expire.format(store.named("results").removeprefix("lake.")))


@pytest.mark.parametrize("cut", [cut_the_rows, cut_the_history], ids=["old rows deleted", "snapshots expired"])
@pytest.mark.long(seconds=5)
def test_who_cuts_what_is_old_takes_no_mark_away(
    store: TableStore, sink: SparkTable, cut: Callable[[TableStore], None]
) -> None:
    cut(store)
    again = opened(store)
    assert (again.last_applied(), again.totals()) == (LastBatch("q", 0), COUNTERS)
    assert apply_once(again, batch(0)) is False


@pytest.mark.long(seconds=5)
def test_a_batch_of_another_query_with_the_same_number_is_not_taken_for_the_one_that_is_there(
    store: TableStore, sink: SparkTable
) -> None:
    other = opened(store)
    other.begin()
    other.write(batch(0, "other"))
    if store.provider == "delta":  # which knows whose a batch is
        other.commit()
        assert len(store.look("batch_id, source_id")) == 4
        return
    with pytest.raises(StateMismatch, match="holds a batch 0 of another query"):
        other.commit()
    assert everything(store) == of_batches(0)


@pytest.mark.long(seconds=3)
def test_a_time_that_spark_does_not_keep_is_a_dead_letter(store: TableStore, sink: SparkTable) -> None:
    place = SCHEMA.get_field_index("due")
    given = batch(1)
    far = pa.array([2**62, None], pa.int64()).cast(SCHEMA.field("due").type)
    apply_once(sink, replace(given, results=given.results.set_column(place, SCHEMA.field("due"), far)))
    assert store.look("batch_id, source_id")[2:] == [(1, "1-1")]
    assert [row[1].partition(",")[0] for row in store.look("batch_id, reason", "results_dead_letters")][1:] == [
        "a time outside of the years 1 to 9999",
        "bad",
    ]


def test_a_table_of_another_provider_or_of_somebody_else_is_refused_and_stays(store: TableStore) -> None:
    store.spark.sql(f"CREATE TABLE {store.named('mine')} (batch_id bigint, mine bigint) USING {store.provider}")
    with closing(store.sink("mine")) as sink:
        for deed in (lambda: sink.open(SCHEMA), sink.remove):
            with pytest.raises(UsageError, match=r"none that waterclock made.*waterclock\.table = results"):
                deed()
    assert store.tables() == ["mine"]
