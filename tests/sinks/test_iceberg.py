"""What only a table of Iceberg does: marks that no expiry takes away, files that no snapshot names, catalogs."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.sinks.stores import SCHEMA, IcebergStore, batch, everything, of_batches
from tests.sinks.test_lakes import killed
from tests.spark.least_pipeline import least_with
from waterclock.errors import CommitUnknown, SinkLost, UsageError
from waterclock.sinks import Batch, IcebergSink, apply_once
from waterclock.sinks.iceberg.destination import IcebergTable
from waterclock.streaming import frames
from waterclock.streaming.toml.config import load


@pytest.fixture
def store(tmp_path: Path) -> IcebergStore:
    return IcebergStore(tmp_path)


def files(store: IcebergStore) -> set[str]:
    """The data files that lie in the folder of the results."""
    return {path.name for path in (store.folder / "warehouse" / "lake" / "results" / "data").glob("*.parquet")}


def named(store: IcebergStore) -> set[str]:
    """Those that the table's snapshot names."""
    found = store.table().inspect.files()["file_path"].to_pylist()
    return {Path(path).name for path in found}


# The steps of a commit


def test_what_a_kill_leaves_is_one_file_that_no_snapshot_names(store: IcebergStore, sink: IcebergSink) -> None:
    assert killed(store, step=2)
    (orphan,) = files(store) - named(store)
    apply_once(sink, batch(1))
    assert files(store) - named(store) == {orphan}
    assert len(named(store)) == 2


def overtaken(store: IcebergStore, sink: IcebergSink, both: Batch) -> None:
    """Two writers take a batch, and the other one is quicker than `sink`."""
    with closing(store.sink()) as other:
        other.open(SCHEMA)
        for each in (sink, other):
            each.begin()
            each.write(both)
        other.commit()
        with pytest.raises(SinkLost, match="another writer was quicker"):
            sink.commit()


def test_an_empty_batch_of_two_writers_is_written_once_too(store: IcebergStore, sink: IcebergSink) -> None:
    nothing = replace(batch(1), results=SCHEMA.empty_table(), dead_letters=frames.DEAD_SCHEMA.empty_table())
    overtaken(store, sink, nothing)
    assert store.look("batch_id", "results_batches") == [(0,), (1,)]


def test_a_writer_that_another_one_overtakes_leaves_no_file(store: IcebergStore, sink: IcebergSink) -> None:
    overtaken(store, sink, batch(1))
    assert files(store) == named(store)


@pytest.mark.parametrize("told", [["away"], ["committed", "committed", "told nobody"]], ids=["not", "though it did"])
def test_a_commit_that_the_catalog_does_not_answer_is_tried_again(
    store: IcebergStore, sink: IcebergSink, monkeypatch: pytest.MonkeyPatch, told: list[str]
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    commit, answers = SqlCatalog.commit_table, iter(told)

    def losing(*arguments: Any) -> Any:
        answer = next(answers, "committed")
        done = commit(*arguments) if answer != "away" else None
        if answer != "committed":
            raise OSError("the catalog is away")
        return done

    monkeypatch.setattr(SqlCatalog, "commit_table", losing)
    assert apply_once(sink, batch(1)) is True
    assert everything(store) == of_batches(0, 1)
    assert apply_once(sink, batch(1)) is False


def test_a_catalog_that_stays_away_ends_the_run_with_a_sentence(
    sink: IcebergSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    from pyiceberg.catalog.sql import SqlCatalog

    def away(*_: Any) -> Any:
        raise OSError("the catalog is away")

    monkeypatch.setattr(SqlCatalog, "commit_table", away)
    with pytest.raises(CommitUnknown, match=r"'lake\.results' .* could not be written: the catalog is away"):
        apply_once(sink, batch(1))


# What others do


def test_the_mark_stays_where_all_snapshots_but_the_last_are_expired(store: IcebergStore, sink: IcebergSink) -> None:
    for number in (1, 2):
        apply_once(sink, batch(number))
    table = store.table()
    last = table.current_snapshot().snapshot_id
    table.maintenance.expire_snapshots().by_ids(
        [s.snapshot_id for s in table.snapshots() if s.snapshot_id != last]
    ).commit()
    assert len(store.table().snapshots()) == 1
    assert [apply_once(sink, batch(number)) for number in (0, 1, 2, 3)] == [False, False, False, True]
    assert everything(store) == of_batches(0, 1, 2, 3)
    assert sink.totals() == {"events": 8, "late": 4}


def test_a_table_that_is_rewritten_meanwhile_makes_the_batch_be_tried_again(
    store: IcebergStore, sink: IcebergSink
) -> None:
    sink.begin()
    sink.write(batch(1))
    table = store.table()
    table.overwrite(table.scan().to_arrow())  # as a compaction does
    with pytest.raises(SinkLost, match="another writer was quicker"):
        sink.commit()
    assert apply_once(sink, batch(1)) is True
    assert everything(store) == of_batches(0, 1)


def test_a_table_on_which_pyiceberg_would_try_again_by_itself_is_not_written_to(
    store: IcebergStore, sink: IcebergSink
) -> None:
    with store.table("results_batches").transaction() as change:
        change.set_properties({"commit.retry.num-retries": "4"})
    with pytest.raises(UsageError, match=r"commit\.retry\.num-retries = 4: a second writer could .*to 0"):
        apply_once(sink, batch(1))
    with closing(store.sink()) as again, pytest.raises(UsageError, match="to 0"):
        again.open(SCHEMA)
    assert everything(store) == of_batches(0)


def test_a_table_of_the_same_columns_that_no_sink_made_is_left_alone(store: IcebergStore, sink: IcebergSink) -> None:
    with closing(store.catalog()) as catalog:
        catalog.create_table("lake.mine", store.table().schema())
        catalog.create_table("lake.mine_batches", store.table("results_batches").schema())
    with closing(store.sink("mine")) as other:
        for work in (lambda: other.open(SCHEMA), other.remove):
            with pytest.raises(UsageError, match="none that waterclock made"):
                work()


@pytest.mark.parametrize("gone", ["results", "results_batches", "results_dead_letters"])
def test_a_table_that_was_dropped_beside_others_that_hold_rows_is_not_made_anew(
    store: IcebergStore, sink: IcebergSink, gone: str
) -> None:
    with closing(store.catalog()) as catalog:
        catalog.drop_table(f"lake.{gone}")
    with closing(store.sink()) as again, pytest.raises(UsageError, match=f"'lake.{gone}' .*is gone, and those beside"):
        again.open(SCHEMA)


# Values


def test_a_row_with_a_time_that_iceberg_does_not_keep_becomes_a_dead_letter(
    store: IcebergStore, sink: IcebergSink
) -> None:
    far = 30_000 * 366 * 86_400_000_000
    rows = batch(1).results
    due = pa.chunked_array([pa.array([far, 7], pa.int64()).cast(frames.TIMESTAMP)])
    apply_once(sink, replace(batch(1), results=rows.set_column(3, rows.schema.field("due"), due)))
    assert store.look("batch_id, source_id") == [(0, "0-0"), (0, "0-1"), (1, "1-1")]
    letters = store.table("results_dead_letters").scan("batch_id == 1").to_arrow().to_pylist()
    assert [row["reason"][:40] for row in letters] == ["bad", "a time outside of the years 1 to 9999, w"]
    assert '"source_id": "1-0"' in letters[1]["text"]
    assert sink.totals() == {"events": 4, "late": 2, "dead_letters": 1}


def test_remove_takes_the_files_with_the_tables(store: IcebergStore, sink: IcebergSink) -> None:
    sink.remove()
    assert [path for path in (store.folder / "warehouse").rglob("*") if path.is_file()] == []


# In a pipeline's file


def of_file(folder: Path, sink: str) -> Any:
    return least_with(folder, f"[sink]\nformat = 'iceberg'\n{sink}\n").sink


CATALOG = "[sink.catalog]\ntype = 'sql'\nuri = 'sqlite:///lake/catalog.db'\nwarehouse = 'lake'"


def test_a_pipeline_names_a_table_and_a_catalog_whose_paths_are_relative_to_its_file(tmp_path: Path) -> None:
    made = of_file(tmp_path, f"table = 'shop.late'\n{CATALOG}\nname = 'lake'")
    lake = {"type": "sql", "uri": f"sqlite:///{tmp_path}/lake/catalog.db", "warehouse": f"file://{tmp_path}/lake"}
    assert made == IcebergTable("shop.late", "lake", lake)
    assert made.place == "the table 'shop.late' in the catalog 'lake'"


def test_a_catalogs_secret_comes_from_the_environment_and_is_shown_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAKE_TOKEN", "secret")
    made = of_file(tmp_path, "table = 'shop.late'\n[sink.catalog]\nuri = 'https://lake'\ntoken = {env = 'LAKE_TOKEN'}")
    assert made.settings["token"] == "secret"
    assert "secret" not in repr(made) + made.place


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ("table = 'orders'", "with its namespace, as lake.orders"),
        ("table = 'a.b'\nmode = 'apply'", "mode = 'apply' is gone"),
        ("table = 'a.b'\npath = 'lake'", "path"),
        ("", "'table' is missing"),
        ("table = 'a.b'\ncatalog = 'lake'", "'catalog' must be a table"),
        ("table = 'a.b'\n[sink.catalog]\ntoken = {env = 'NOT_SET_ANYWHERE'}", "NOT_SET_ANYWHERE"),
    ],
)
def test_what_cannot_be_a_table_of_iceberg_is_refused(tmp_path: Path, sink: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        of_file(tmp_path, sink)


def test_a_catalog_that_cannot_be_had_is_told_in_a_sentence(tmp_path: Path) -> None:
    with closing(IcebergSink("a.b", {"type": "nonsense"})) as sink, pytest.raises(UsageError, match=r"sink\.catalog"):
        sink.open(SCHEMA)


def test_a_pipeline_makes_the_tables_goes_on_with_them_and_fresh_removes_them(tmp_path: Path) -> None:
    from waterclock.spark.fresh import start_over
    from waterclock.spark.pipeline import configured

    destination = of_file(tmp_path, f"table = 'shop.late'\n{CATALOG}")
    for _ in range(2):
        with closing(configured(load(tmp_path / "pipeline.toml"))) as pipeline:
            pipeline.check()
    with closing(destination.sink()) as sink:
        sink.open(pipeline._schema)
        catalog = sink._open_catalog()
        assert sorted(name for _, name in catalog.list_tables("shop")) == ["late", "late_batches", "late_dead_letters"]
        start_over(load(tmp_path / "pipeline.toml"))
        assert catalog.list_tables("shop") == []
