"""What only a table of Delta Lake does: a commit in three steps, two writers that collide, names it cannot have."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.sinks.stores import COUNTERS, SCHEMA, DeltaStore, batch, everything, in_a_child, of_batches
from tests.spark.least_pipeline import LEAST
from waterclock.errors import CommitUnknown, SinkLost, UsageError
from waterclock.sinks import DeltaSink, LastBatch, apply_once
from waterclock.sinks.names import delta_column, delta_location
from waterclock.spark import frames
from waterclock.spark.toml.config import load
from waterclock.spark.toml.sink import DeltaLakeTable

# kills the child before the table at that place of the steps is written
KILL = """
import os, signal
from waterclock.sinks import delta
write, steps = delta.write_deltalake, iter(range(9))
def dying(*arguments, **more):
    if next(steps) == {step}:
        os.kill(os.getpid(), signal.SIGKILL)
    write(*arguments, **more)
delta.write_deltalake = dying
apply_once(sink, batch(1))
"""


@pytest.fixture
def store(tmp_path: Path) -> DeltaStore:
    return DeltaStore(tmp_path)


@pytest.fixture
def sink(store: DeltaStore) -> Iterator[DeltaSink]:
    with closing(store.sink()) as made:
        made.open(SCHEMA)
        apply_once(made, batch(0))
        yield made


# The steps of a commit


@pytest.mark.parametrize(
    ("step", "seen"),
    [(0, [[0], [0]]), (1, [[0, 1], [0]]), (2, [[0, 1], [0, 1]])],
    ids=["before the dead letters", "before the batch", "before the results"],
)
def test_a_kill_inside_a_commit_leaves_no_result_and_a_rerun_makes_it_whole(
    store: DeltaStore, sink: DeltaSink, step: int, seen: list[list[int]]
) -> None:
    assert in_a_child(store, KILL.format(step=step)).returncode == -signal.SIGKILL
    beside = [store.look("batch_id, 1", f"results{part}") for part in ("_dead_letters", "_batches")]
    assert [[number for number, _ in rows] for rows in beside] == seen
    assert everything(store)[0] == of_batches(0)[0]
    with closing(store.sink()) as again:
        again.open(SCHEMA)
        assert (again.last_applied(), again.totals()) == (LastBatch("q", 0), COUNTERS)
        assert apply_once(again, batch(1)) is True
        assert again.totals() == {"events": 4, "late": 2}
    assert everything(store) == of_batches(0, 1)


def test_of_two_writers_that_take_the_same_batch_one_writes_it(store: DeltaStore, sink: DeltaSink) -> None:
    with closing(store.sink()) as other:
        other.open(SCHEMA)
        for each in (sink, other):
            each.begin()
            assert each.is_applied("q", 1) is False
            each.write(batch(1))
        other.commit()
        with pytest.raises(SinkLost, match="another writer was quicker at the table 'results'"):
            sink.commit()
        assert apply_once(sink, batch(1)) is False
    assert everything(store) == of_batches(0, 1)


def test_a_commit_that_the_store_does_not_answer_is_tried_again(
    store: DeltaStore, sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    from waterclock.sinks import delta

    write, answers = delta.write_deltalake, iter([False, True, False])

    def losing(*arguments: Any, **more: Any) -> None:
        if next(answers, True):
            write(*arguments, **more)
        else:
            raise OSError("the store is away")

    monkeypatch.setattr(delta, "write_deltalake", losing)
    with pytest.raises(CommitUnknown, match="the store is away"):
        apply_once(sink, batch(1))
    assert everything(store)[0] == of_batches(0)[0]
    assert apply_once(sink, batch(1)) is True
    assert everything(store) == of_batches(0, 1)


def test_a_store_that_does_not_answer_at_the_begin_does_not_make_a_batch_count_twice(sink: DeltaSink) -> None:
    apply_once(sink, batch(1))
    answers = [OSError("the store is away"), *[None] * 9]
    with patch.object(DeltaTable, "update_incremental", side_effect=answers):
        assert apply_once(sink, batch(1)) is False


def test_a_batch_after_a_larger_number_counts_as_applied(sink: DeltaSink) -> None:
    apply_once(sink, batch(5))
    assert [sink.is_applied("q", number) for number in (4, 5, 6)] == [True, True, False]


def test_what_others_do_to_the_table_changes_nothing_for_the_sink(store: DeltaStore, sink: DeltaSink) -> None:
    apply_once(sink, batch(1))
    table = DeltaTable(store.folder / "results")
    table.optimize.compact()
    table.create_checkpoint()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    assert apply_once(sink, batch(1)) is False
    assert apply_once(sink, batch(2)) is True
    assert everything(store) == of_batches(0, 1, 2)


def test_rows_of_a_batch_are_numbered_in_the_order_in_which_they_came(store: DeltaStore, sink: DeltaSink) -> None:
    apply_once(sink, batch(1, count=300))
    found = [(row, n) for number, row, n in store.in_order("batch_id, batch_row, event_n") if number == 1]
    assert found == [(n, n) for n in range(300)]


def test_times_are_times_and_far_ones_are_kept(store: DeltaStore, sink: DeltaSink) -> None:
    far = pa.scalar(30_000 * 366 * 86_400_000_000, pa.int64()).cast(frames.TIMESTAMP)
    rows = batch(1).results
    due = pa.chunked_array([pa.repeat(far, rows.num_rows)])
    from dataclasses import replace

    apply_once(sink, replace(batch(1), results=rows.set_column(3, rows.schema.field("due"), due)))
    found = DeltaTable(store.folder / "results").to_pyarrow_table(columns=["batch_id", "due"])
    assert found.schema.field("due").type == frames.TIMESTAMP
    assert far in [due for number, due in zip(found["batch_id"].to_pylist(), found["due"], strict=True) if number == 1]


# Names and places


@pytest.mark.parametrize("name", ["a b", "a,b", "a;b", "a{b", "a}", "(a", "a)", "a=b"])
def test_a_column_that_not_every_engine_could_read_is_refused(store: DeltaStore, name: str) -> None:
    with pytest.raises(UsageError, match=r"cannot be in a table of Delta Lake.*Rename it"):
        delta_column(name)
    with closing(store.sink()) as sink, pytest.raises(UsageError, match="Rename it"):
        sink.open(frames.result_schema(pa.string(), pa.schema([(name, pa.string())])))
    assert store.tables() == []


@pytest.mark.parametrize(
    "location", ["", "/", "s3://", "out/..", "out/a?b", "s3://lake/a%2fb", "a\nb", "x[1]/a", "a|b", "a^b", "a\\b"]
)
def test_a_location_without_a_name_or_with_signs_of_a_url_is_refused(location: str) -> None:
    with pytest.raises(UsageError, match="the sink's table"):
        delta_location(location)


def test_a_url_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        delta_location("s3://key:secret@lake/orders")
    assert "environment" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_folder_of_somebody_else_is_neither_filled_nor_removed(store: DeltaStore) -> None:
    mine = store.folder / "results_batches" / "mine.txt"
    mine.parent.mkdir(parents=True)
    mine.touch()
    with closing(store.sink()) as sink:
        for work in (sink.remove, lambda: sink.open(SCHEMA)):
            with pytest.raises(UsageError, match=r"results_batches is no table of Delta Lake.*another path"):
                work()
    assert (mine.exists(), store.tables()) == (True, [])


def test_a_table_in_the_folder_of_another_one_is_refused(store: DeltaStore, sink: DeltaSink) -> None:
    # --fresh of the outer pipeline removed it, with all results of the inner one
    with closing(store.sink("results/inner")) as inner, pytest.raises(UsageError, match=r"another .*beside that one"):
        inner.open(SCHEMA)


@pytest.mark.parametrize("name", ["report.csv", "checkpoint/", "part.parquet/"])
def test_what_somebody_put_into_the_folder_of_a_table_is_not_removed_with_it(
    store: DeltaStore, sink: DeltaSink, name: str
) -> None:
    mine = store.folder / "results" / name
    mine.mkdir() if name.endswith("/") else mine.touch()
    with pytest.raises(
        UsageError, match=rf"'results' in .* has other things in its folder \({mine.name}, .*not removed"
    ):
        sink.remove()
    assert (mine.exists(), everything(store)) == (True, of_batches(0))


def test_what_others_left_of_their_care_for_a_table_is_removed_with_it(store: DeltaStore, sink: DeltaSink) -> None:
    for name in ("deletion_vector_1.bin", "_change_data", ".part-1.parquet.crc"):
        (store.folder / "results" / name).touch()
    sink.remove()
    assert list(store.folder.iterdir()) == []


@pytest.mark.parametrize("left", [[], ["00000000000000000000.json#1"], ["_commit_1.json.tmp"]])
def test_a_table_whose_making_was_killed_is_made(store: DeltaStore, left: list[str]) -> None:
    # it was told to be no table of Delta Lake, and had to be removed by hand
    log = store.folder / "results_dead_letters" / "_delta_log"
    log.mkdir(parents=True)
    for name in left:
        (log / name).write_text("{")
    with closing(store.sink()) as made:
        made.open(SCHEMA)
        assert apply_once(made, batch(0)) is True
    assert everything(store) == of_batches(0)


def test_a_table_that_cannot_be_removed_is_told(sink: DeltaSink) -> None:
    denied = PermissionError(13, "Permission denied")
    with patch("os.rmdir", side_effect=denied), pytest.raises(UsageError, match=r"cannot be used: .*Permission denied"):
        sink.remove()


def test_a_table_behind_a_url_is_not_removed_and_the_way_is_told() -> None:
    with pytest.raises(UsageError, match=r"remove s3://lake/orders.*_batches.*checkpoint"):
        DeltaSink("s3://lake/orders").remove()


# In a pipeline's file


def of_file(folder: Path, sink: str) -> Any:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "pipeline.toml").write_text(LEAST.partition("[sink]")[0] + f"[sink]\nformat = 'delta'\n{sink}\n")
    return load(folder / "pipeline.toml").sink


def test_a_pipeline_names_a_folder_or_a_url(tmp_path: Path) -> None:
    path = tmp_path / "lake" / "orders"
    assert of_file(tmp_path, "path = 'lake/orders/'") == DeltaLakeTable(str(path), path)
    assert of_file(tmp_path, "path = 's3://lake/orders'") == DeltaLakeTable("s3://lake/orders", None)


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ("path = 'lake'\ntable = 'orders'", "table"),
        ("path = 'lake'\nmode = 'apply'", "'columns' is missing"),
        ("path = 'in/lake'", "lie in each other"),
        ("path = '.'", "lie in each other"),
        ("path = 'other'", "place of something else"),
        ("", "'path' is missing"),
    ],
)
def test_what_cannot_be_a_table_of_delta_lake_is_refused(tmp_path: Path, sink: str, told: str) -> None:
    (tmp_path / "other" / "things").mkdir(parents=True)
    with pytest.raises(UsageError, match=told):
        of_file(tmp_path, sink)


def test_a_pipeline_makes_the_tables_goes_on_with_them_and_fresh_removes_them(tmp_path: Path) -> None:
    from waterclock.spark.fresh import start_over
    from waterclock.spark.pipeline import configured

    of_file(tmp_path, "path = 'lake/orders'")
    for _ in range(2):
        with closing(configured(load(tmp_path / "pipeline.toml"))) as pipeline:
            pipeline.check()
    made = sorted(path.name for path in (tmp_path / "lake").iterdir())
    assert made == ["orders", "orders_batches", "orders_dead_letters"]
    start_over(load(tmp_path / "pipeline.toml"))
    assert list((tmp_path / "lake").iterdir()) == []
