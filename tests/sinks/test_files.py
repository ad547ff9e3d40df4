"""Files of results that tasks write: what is in them, what a commit says of them, and what is left where one fails."""

from __future__ import annotations

import io
import json
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.sinks.file_stores import ICEBERG_KILL, DeltaFileStore, IcebergFileStore, collide, part_of
from tests.sinks.stores import COUNTERS, SCHEMA, batch, everything, in_a_child, of_batches, results
from waterclock.errors import EnvironmentMissing, UsageError
from waterclock.sinks import DeltaSink, IcebergSink, LastBatch, Replica, apply_once
from waterclock.sinks.files import figures
from waterclock.streaming import frames

# kills the child before the commit of that number: its files are written
KILL_DELTA = """
import os, signal
from deltalake import DeltaTable
from waterclock.sinks.delta import delta
steps = iter(range(9))
def dying(real):
    def call(*arguments, **more):
        if next(steps) == {step}:
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*arguments, **more)
    return call
delta.write_deltalake = dying(delta.write_deltalake)
DeltaTable.create_write_transaction = dying(DeltaTable.create_write_transaction)
apply_once(sink, batch(1))
"""


@pytest.fixture
def delta(tmp_path: Path) -> DeltaFileStore:
    return DeltaFileStore(tmp_path)


@pytest.fixture
def iceberg(tmp_path: Path) -> IcebergFileStore:
    return IcebergFileStore(tmp_path)


@pytest.fixture
def sink(delta: DeltaFileStore) -> Iterator[Any]:
    with closing(delta.sink()) as made:
        made.open(SCHEMA)
        yield made


def lying(store: DeltaFileStore) -> set[str]:
    return {path.name for path in (store.folder / "results").glob("*.parquet")}


def unnamed(store: DeltaFileStore) -> set[str]:
    """What a vacuum that knows no mercy would take; one in Delta's light way finds what was named once, and no more."""
    table = DeltaTable(store.folder / "results")
    return set(table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True))


# One file


def test_a_file_and_its_name_are_on_the_disk_before_a_commit_names_it(
    sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    real = DeltaTable.create_write_transaction

    def commit(*arguments: Any, **more: Any) -> None:
        done.append("commit")
        real(*arguments, **more)

    monkeypatch.setattr("waterclock.sinks.files.flush_file", lambda path: done.append(Path(path).suffix))
    monkeypatch.setattr("waterclock.sinks.files.flush_folder", lambda path: done.append(Path(path).name))
    monkeypatch.setattr(DeltaTable, "create_write_transaction", commit)
    apply_once(sink, batch(1))
    assert done == [".parquet", "results"] * 3 + ["commit"]  # of three attempts two are committed


def test_a_disk_that_does_not_take_a_file_is_told_and_nothing_is_committed(
    sink: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("waterclock.sinks.files.flush_file", full)
    with pytest.raises(EnvironmentMissing, match=r"cannot write results into .*No space left"):
        part_of(sink.result_files(1), 0, 1, results(0, 4))


def test_rows_are_numbered_by_part_and_then_as_they_came_so_a_batch_that_is_run_again_gives_the_same(sink: Any) -> None:
    folder, files = sink.path, sink.result_files(3)
    for attempt in (1, 2):
        (file,), _ = part_of(files, 5, attempt, results(3, 4))
        rows = pq.read_table(folder / file.name)
        assert rows["batch_id"].to_pylist() == [3] * 4
        assert rows["batch_row"].to_pylist() == [(5 << 32) + n for n in range(4)]
        assert rows["event_n"].to_pylist() == [0, 1, 2, 3]
        assert (file.rows, file.size) == (4, (folder / file.name).stat().st_size)
    assert len(lying_in(folder)) == 2


def lying_in(folder: Path) -> list[str]:
    return [path.name for path in folder.glob("part-*.parquet")]


def test_numbers_go_on_over_many_frames_and_row_groups(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from waterclock.sinks import files as module

    monkeypatch.setattr(module, "_ROWS", 5)
    writer = sink.result_files(0).begin(0, 0)
    for count in (2, 2, 2, 7, 1):
        writer.add(results(0, count))
    file = writer.end()
    assert pq.ParquetFile(sink.path / file.name).num_row_groups == 3
    assert pq.read_table(sink.path / file.name)["batch_row"].to_pylist() == list(range(14))
    assert json.loads(file.figures)["maxValues"]["batch_row"] == 13


def test_a_part_without_a_row_writes_no_file(sink: Any) -> None:
    writer = sink.result_files(0).begin(0, 0)
    writer.add(SCHEMA.empty_table())
    assert writer.end() is None
    assert lying_in(sink.path) == []


def test_a_task_that_fails_takes_its_file_away(sink: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from waterclock.sinks import files as module

    monkeypatch.setattr(module, "_ROWS", 1)
    writer = sink.result_files(0).begin(0, 0)
    writer.drop()
    writer.add(results(0))
    assert len(lying_in(sink.path)) == 1
    writer.drop()
    assert lying_in(sink.path) == []


def test_a_folder_that_an_executor_does_not_have_is_told_and_not_made(sink: Any, tmp_path: Path) -> None:
    files = replace(sink.result_files(0), folder=str(tmp_path / "not mounted"))
    with pytest.raises(EnvironmentMissing, match=r"executor on .* cannot write results into .*not mounted: .*Mount"):
        part_of(files, 0, 0, results(0))
    assert not (tmp_path / "not mounted").exists()


@pytest.mark.parametrize("seen", ["gone", "shorter"])
def test_a_file_that_the_driver_does_not_see_whole_is_not_committed(
    delta: DeltaFileStore, sink: Any, seen: str
) -> None:
    (file,), _ = part_of(sink.result_files(0), 0, 0, results(0))
    if seen == "gone":
        (sink.path / file.name).unlink()
    else:
        (sink.path / file.name).write_bytes(b"half")
    with closing(DeltaSink(sink.path, written_by="executors")) as bare:
        bare.open(SCHEMA)
        with pytest.raises(EnvironmentMissing, match="mount one folder on all machines"):
            apply_once(bare, replace(batch(0), results=SCHEMA.empty_table(), files=(file,)))
    assert everything(delta) == of_batches()


# Figures


def footer_of(rows: pa.Table, group: int = 1 << 20) -> pq.FileMetaData:
    found: list[pq.FileMetaData] = []
    pq.write_table(rows, io.BytesIO(), row_group_size=group, metadata_collector=found)
    return found[0]


def test_figures_are_exact_or_not_there() -> None:
    moment = pa.timestamp("us", tz="UTC")
    columns = {
        "n": pa.array([3, None, -1]),
        "t": pa.array([1_700_000_000_000_001, 1_700_000_000_000_999, None], moment),
        "far": pa.array([0, 400_000_000_000_000_000, 1], moment),
        "text": pa.array(["b", "a", "z"]),
        "long": pa.array(["z" * 65, "a", "b"]),
        "none": pa.array([None, None, None], pa.string()),
        "d": pa.array([0.5, float("nan"), 1.0]),
        "nested": pa.array([[1], None, [2]]),
        "behind": pa.array([1, 2, 3]),
    }
    rows = pa.table(columns)
    for group in (1, 2, 3):
        told = json.loads(figures(footer_of(rows, group), rows.schema))
        least = {"n": -1, "t": "2023-11-14T22:13:20.000Z", "text": "a"}
        most = {"n": 3, "t": "2023-11-14T22:13:20.001Z", "text": "z"}
        assert told["numRecords"] == 3
        assert (told["minValues"], told["maxValues"]) == (least, most)
        assert told["nullCount"] == {"n": 1, "t": 1, "far": 0, "text": 0, "long": 0, "none": 3, "d": 0}


def test_a_reader_that_leaves_files_out_by_their_figures_finds_every_row(delta: DeltaFileStore, sink: Any) -> None:
    first, step = datetime(2026, 1, 1, tzinfo=UTC), timedelta(microseconds=333)
    for number in range(3):
        rows = results(number, 8)
        dues = pa.array([first + (number * 8 + n) * step for n in range(8)], frames.TIMESTAMP)
        apply_once(
            sink, replace(batch(number), results=rows.set_column(3, rows.schema.field("due"), pa.chunked_array([dues])))
        )
    table = DeltaTable(delta.folder / "results")
    everyone = table.to_pyarrow_table()
    assert everyone.num_rows == 24
    for row in everyone.to_pylist():
        kept = pc.field("due") == pa.scalar(row["due"], frames.TIMESTAMP)
        assert table.to_pyarrow_dataset().to_table(filter=kept)["source_id"].to_pylist() == [row["source_id"]]
    asked = f"SELECT count(*) AS n FROM t WHERE due >= '{(first + 20 * step).isoformat()}'"
    assert pa.table(QueryBuilder().register("t", table).execute(asked))["n"].to_pylist() == [4]


# A commit


@pytest.mark.parametrize("step", [0, 1, 2], ids=["before the dead letters", "before the batch", "before the results"])
def test_a_kill_between_files_and_their_commit_leaves_no_row_and_what_it_leaves_a_vacuum_takes(
    delta: DeltaFileStore, sink: Any, step: int
) -> None:
    apply_once(sink, batch(0))
    before = lying(delta)
    assert in_a_child(delta, KILL_DELTA.format(step=step)).returncode == -signal.SIGKILL
    left = lying(delta) - before
    assert len(left) == 3  # two tasks, and the lost try of one
    assert everything(delta)[0] == of_batches(0)[0]
    with closing(delta.sink()) as again:
        again.open(SCHEMA)
        assert again.last_applied() == LastBatch("q", 0)
        assert apply_once(again, batch(1)) is True
        assert again.totals() == {"events": 4, "late": 2}
    assert everything(delta) == of_batches(0, 1)
    assert left <= unnamed(delta)
    table = DeltaTable(delta.folder / "results")
    table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=True)
    assert lying(delta) == {Path(uri).name for uri in table.file_uris()}
    assert everything(delta) == of_batches(0, 1)


@pytest.mark.parametrize(
    "step",
    [pytest.param(0, marks=pytest.mark.long(seconds=2)), pytest.param(1, marks=pytest.mark.long(seconds=2)), 2],
    ids=["before the dead letters", "before the batch", "before the results"],
)
def test_a_kill_before_a_commit_of_iceberg_leaves_files_in_the_tables_folder_that_no_snapshot_names(
    iceberg: IcebergFileStore, step: int
) -> None:
    with closing(iceberg.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
    assert in_a_child(iceberg, ICEBERG_KILL.format(step=step)).returncode == -signal.SIGKILL
    assert everything(iceberg)[0] == of_batches(0)[0]
    with closing(iceberg.sink()) as again:
        again.open(SCHEMA)
        assert again.last_applied() == LastBatch("q", 0)
        assert apply_once(again, batch(1)) is True
    assert everything(iceberg) == of_batches(0, 1)
    named = {Path(path).name for path in iceberg.table().inspect.all_files()["file_path"].to_pylist()}
    data = iceberg.folder / "warehouse" / "lake" / "results" / "data"
    left = {path.name for path in data.iterdir()} - named
    assert len(named) == 4
    assert len(left) == 5  # a lost try of each batch, and all three files of the killed one
    assert all(name.startswith("part-") for name in left)


def test_of_two_drivers_that_take_the_same_batch_one_commits_its_files(delta: DeltaFileStore, sink: Any) -> None:
    with closing(delta.sink()) as other:
        other.open(SCHEMA)
        collide(sink, other, 1)
    assert everything(delta) == of_batches(1)
    assert sink.totals() == COUNTERS


@pytest.mark.parametrize(("kind", "kill"), [("delta", KILL_DELTA), ("iceberg", ICEBERG_KILL)])
def test_two_drivers_that_differ_in_the_last_step_alone_collide_at_the_commit_that_names_the_files(
    request: pytest.FixtureRequest, kind: str, kill: str
) -> None:
    store = request.getfixturevalue(kind)
    with closing(store.sink()) as one, closing(store.sink()) as other:
        one.open(SCHEMA)
        other.open(SCHEMA)
        in_a_child(store, kill.format(step=2))  # dead letters and batch are there
        collide(one, other, 1)
    assert everything(store) == of_batches(1)


def test_a_row_that_iceberg_does_not_keep_is_a_dead_letter_of_its_task(iceberg: IcebergFileStore) -> None:
    far = 30_000 * 366 * 86_400_000_000
    rows = batch(1).results
    due = pa.chunked_array([pa.array([far, 7], pa.int64()).cast(frames.TIMESTAMP)])
    with closing(iceberg.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, replace(batch(1), results=rows.set_column(3, rows.schema.field("due"), due)))
        assert sink.totals() == {**COUNTERS, "dead_letters": 1}
    assert iceberg.look("batch_id, source_id") == [(1, "1-1")]
    letters = iceberg.table("results_dead_letters").scan().to_arrow().to_pylist()
    assert [row["reason"][:40] for row in letters] == ["bad", "a time outside of the years 1 to 9999, w"]


def test_rows_that_come_through_the_driver_are_taken_too(delta: DeltaFileStore) -> None:
    with closing(DeltaSink(delta.folder / "results", written_by="executors")) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
    assert everything(delta) == of_batches(0)


# Words


def test_who_writes_is_one_of_two_words_and_a_mirror_is_the_drivers() -> None:
    with pytest.raises(ValueError, match="written_by must be one of driver, executors, got 'nobody'"):
        DeltaSink("lake", written_by="nobody")
    with pytest.raises(ValueError, match="written_by"):
        IcebergSink("a.b", written_by="")
    with pytest.raises(UsageError, match="a mirror is written by the driver"):
        DeltaSink("lake", mirror=Replica(), written_by="executors")
