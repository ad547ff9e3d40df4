"""What only a table of Delta Lake does: a store that does not answer, names that it cannot have, folders of others."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.sinks.stores import SCHEMA, DeltaStore, batch, everything, of_batches
from tests.spark.least_pipeline import least_with
from waterclock.errors import CommitUnknown, StateMismatch, UsageError
from waterclock.sinks import DeltaSink, apply_once
from waterclock.sinks.delta.destination import DeltaLakeTable, delta_column, table_location
from waterclock.streaming import frames
from waterclock.streaming.toml.config import load


@pytest.fixture
def store(tmp_path: Path) -> DeltaStore:
    return DeltaStore(tmp_path)


# The steps of a commit


def test_a_commit_that_the_store_does_not_answer_is_tried_again(
    store: DeltaStore, sink: DeltaSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    from waterclock.sinks.delta import delta

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


def test_times_are_times_and_far_ones_are_kept(store: DeltaStore, sink: DeltaSink) -> None:
    far = pa.scalar(30_000 * 366 * 86_400_000_000, pa.int64()).cast(frames.TIMESTAMP)
    rows = batch(1).results
    due = pa.chunked_array([pa.repeat(far, rows.num_rows)])
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
        table_location(location)


def test_a_url_with_a_password_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        table_location("s3://key:secret@lake/orders")
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


@pytest.mark.parametrize("count", [0, 3])
def test_a_run_that_stood_still_while_the_table_was_made_anew_writes_nothing_into_it(
    store: DeltaStore, sink: DeltaSink, count: int
) -> None:
    # it read on from its own version, which the new table had passed, and put a batch of the old query upon it
    store.sink().remove()
    with closing(store.sink()) as new:
        new.open(SCHEMA)
        for number in range(count):
            apply_once(new, replace(batch(number), query_id="new"))
    with pytest.raises(StateMismatch, match=r"is not the one that this run wrote to: .* Start again"):
        apply_once(sink, batch(1))
    assert everything(store)[:2] == of_batches(*range(count))[:2]


# a Parquet file of the user's went with the table, and whatever began with _ or a dot
@pytest.mark.parametrize("name", ["report.csv", "checkpoint/", "part.parquet/", "copy.parquet", "_notes", ".hidden/"])
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
    for name in ("deletion_vector_1.bin", "part-1.c000.zstd.parquet", ".part-1.parquet.crc"):
        (store.folder / "results" / name).touch()
    (store.folder / "results" / "_change_data").mkdir()
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
    return least_with(folder, f"[sink]\nformat = 'delta'\n{sink}\n").sink


def test_a_pipeline_names_a_folder_or_a_url(tmp_path: Path) -> None:
    path = tmp_path / "lake" / "orders"
    assert of_file(tmp_path, "path = 'lake/orders/'") == DeltaLakeTable(str(path), path)
    assert of_file(tmp_path, "path = 's3://lake/orders'") == DeltaLakeTable("s3://lake/orders", None)


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ("path = 'lake'\ntable = 'orders'", "table"),
        ("path = 'lake'\nmode = 'apply'", "mode = 'apply' is gone"),
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
