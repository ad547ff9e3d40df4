"""Plain Parquet files for their readers: what Spark sees, what others read, what a vacuum takes, and how it grows."""

from __future__ import annotations

import logging
import os
import shutil
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.sinks.parquet_look import ParquetStore, agree, lying, made, manifest, table
from tests.sinks.stores import COUNTERS, SCHEMA, batch, everything, of_batches
from tests.test_readme import ROOT, blocks, run_block
from waterclock.errors import StateMismatch, UsageError
from waterclock.sinks import LastBatch, apply_once
from waterclock.sinks.parquet import manifests
from waterclock.sinks.parquet.parquet_tables import batches, dead_letters, files, orphans, read, vacuum
from waterclock.sinks.parquet.spark_list import SparkList


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    return ParquetStore(tmp_path)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "GROUP", 4)


# What Spark sees


def test_sparks_list_has_the_files_of_the_manifests_however_many_there_are_and_stays_small(store: ParquetStore) -> None:
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        agree(store)
        for number in range(130):
            dead = batch(number).dead_letters.slice(0, 1 if number % 7 == 0 else 0)
            apply_once(sink, replace(batch(number), dead_letters=dead))
            agree(store)
    log = table(store) / "_spark_metadata"
    assert len(list(log.glob("*.compact"))) == 2
    assert len(list(log.iterdir())) < 130


def test_who_reads_spark_list_while_it_is_folded_finds_what_it_began_with(store: ParquetStore) -> None:
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        for number in range(60):
            log = {path.name for path in (table(store) / "_spark_metadata").iterdir()}
            apply_once(sink, batch(number))
            gone = log - {path.name for path in (table(store) / "_spark_metadata").iterdir()}
            folds = sorted(int(name[:-8]) for name in log if name.endswith(".compact"))
            assert all(int(name.partition(".")[0]) < folds[-1] for name in gone)


@pytest.mark.parametrize("turn", [7, *(pytest.param(turn, marks=pytest.mark.long(seconds=2)) for turn in (1, 2, 11))])
def test_two_runs_that_take_turns_keep_one_list(store: ParquetStore, turn: int) -> None:
    # a run whose list was behind took a fold of the other one's for its own, and left files out
    with closing(store.sink()) as one, closing(store.sink()) as other:
        one.open(SCHEMA)
        other.open(SCHEMA)
        for number in range(66):
            apply_once(other if number // turn % 2 else one, batch(number))
            agree(store)


@pytest.mark.parametrize(
    "damage",
    [
        "damaged",
        "a fold removed",
        *(pytest.param(name, marks=pytest.mark.long(seconds=2)) for name in ("removed", "moved")),
    ],
)
def test_sparks_list_is_made_good_at_the_start(
    store: ParquetStore, tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    made(table(store), 45)
    log = table(store) / "_spark_metadata"
    if damage == "damaged":
        newest = max((path for path in log.iterdir()), key=lambda path: int(path.name.partition(".")[0]))
        newest.write_bytes(b"v1\n{")
    elif damage == "removed":
        shutil.rmtree(log)
    elif damage == "a fold removed":
        min(log.glob("*.compact")).unlink()
    else:
        store.folder.rename(tmp_path / "moved")
        store.folder = tmp_path / "moved"
    with caplog.at_level(logging.WARNING), closing(store.sink()) as sink:
        sink.open(SCHEMA)
        agree(store)
        for number in range(45, 70):
            apply_once(sink, batch(number))
            agree(store)
    assert ("is damaged, or its files were moved" in caplog.text) is (damage != "removed")
    assert everything(store) == of_batches(*range(70))


LIST_DAMAGE = {
    # refused every start and every reader: "lists files of manifest 75, and the last manifest that is there is 15"
    "a later manifest": lambda data, _: data.replace(b'"waterclock": 1', b'"waterclock": 7'),
    # had Spark read a batch's rows twice
    "an earlier manifest": lambda data, _: data.replace(b'"waterclock": 1', b'"waterclock": 0'),
    "of another number": lambda _, before: before,
    # was said to be another query's
    "another word": lambda data, _: data.replace(b"waterclock", b"waterclocj"),
    "another path": lambda data, _: data.replace(b'"path"', b'"pbth"'),
    # hid rows from Spark
    "a line less": lambda data, _: data.rpartition(b"\n")[0],
    "empty": lambda *_: b"",
}


@pytest.mark.parametrize("where", ["the last file", "the last fold"])
@pytest.mark.parametrize("damage", LIST_DAMAGE)
def test_one_damaged_file_of_sparks_list_refuses_nobody_and_is_made_good(
    store: ParquetStore, where: str, damage: str
) -> None:
    made(table(store), 15)
    log = table(store) / "_spark_metadata"
    files_of_log = sorted(log.iterdir(), key=lambda path: int(path.stem))
    *_, before, file = [path for path in files_of_log if (path.suffix == ".compact") is (where == "the last fold")]
    data = LIST_DAMAGE[damage](file.read_bytes(), before.read_bytes())
    assert data != file.read_bytes()
    file.write_bytes(data)
    assert everything(store) == of_batches(*range(15))
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        agree(store)
        apply_once(sink, batch(15))
        agree(store)


def test_a_run_that_lists_what_was_missing_leaves_nothing_out_that_another_one_commits_meanwhile(
    store: ParquetStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # its fold did not have the other one's batch, and counted as if it had
    monkeypatch.setattr(manifests, "GROUP", 2)
    made(table(store), 4)
    log, older = table(store) / "_spark_metadata", store.folder / "older"
    shutil.copytree(log, older)
    made(table(store), 9)
    shutil.rmtree(log)
    older.rename(log)
    real = SparkList.open

    def meanwhile(self: SparkList, found: manifests.Manifests) -> None:
        monkeypatch.setattr(SparkList, "open", real)
        with closing(store.sink()) as other, monkeypatch.context() as patched:
            patched.setattr(SparkList, "open", lambda *_: None)
            patched.setattr(SparkList, "follow", lambda *_: None)
            other.open(SCHEMA)
            apply_once(other, batch(9))
        real(self, found)

    monkeypatch.setattr(SparkList, "open", meanwhile)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(10))
        agree(store)


def test_a_query_of_spark_that_writes_into_the_same_folder_is_told(store: ParquetStore) -> None:
    made(table(store), 2)
    entry = '{"path":"file:///x/part-0.parquet","size":1,"isDir":false,"modificationTime":0,"action":"add"}'
    (table(store) / "_spark_metadata" / "99").write_text(f"v1\n{entry}")
    with pytest.raises(StateMismatch, match="99 lists files that waterclock did not write: a query of Spark"):
        store.sink().open(SCHEMA)


# Reading without Spark


def test_a_table_without_a_batch_is_read_too(store: ParquetStore) -> None:
    made(table(store), 0)
    assert read(table(store)).num_rows == 0
    assert read(table(store)).column_names[:3] == ["batch_id", "batch_row", "kind"]
    assert (dead_letters(table(store)).num_rows, batches(table(store)).num_rows) == (0, 0)
    assert len(files(table(store))) == 1


def test_others_read_the_files_that_are_named_and_none_that_a_killed_batch_left(store: ParquetStore) -> None:
    import pandas

    made(table(store), 3)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        sink.begin()
        sink.write(batch(3))
    assert len(lying(table(store))) == 5
    found = pandas.concat(pandas.read_parquet(file) for file in files(table(store)))
    assert sorted(found["source_id"]) == sorted(f"{i}-{n}" for i in range(3) for n in range(2))
    assert read(table(store))["source_id"].to_pylist() == [f"{i}-{n}" for i in range(3) for n in range(2)]
    assert batches(table(store))["counters"].to_pylist() == ['{"events": 2, "late": 1}'] * 3


def test_the_sample_of_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path / "lake" / "orders", 3)
    monkeypatch.chdir(tmp_path)
    ((_, sample),) = blocks(ROOT / "docs" / "operations.md", "python")
    names: dict[str, Any] = {}
    run_block(sample, names)
    assert (names["table"].num_rows, len(names["frame"]), names["refused"].num_rows) == (6, 6, 3)
    assert names["offsets"]["offsets"].to_pylist() == ["offsets 0", "offsets 1", "offsets 2"]
    assert (names["left"], names["removed"]) == ([], [])


def test_what_is_no_table_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no table of a sink of waterclock: there are no manifests in"):
        read(tmp_path / "nothing")


# A vacuum


@pytest.fixture
def left(store: ParquetStore) -> list[str]:
    """What a batch without a commit left, by its paths; an hour and a half old."""
    made(table(store), 2)
    before = {*lying(table(store)), *lying(store.folder / "results_dead_letters")}
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        sink.begin()
        sink.write(batch(2))
    found = [path for path in sorted(store.folder.glob("*/*.parquet")) if path.name not in before]
    for path in [*store.folder.glob("*/*.parquet")]:
        os.utime(path, (path.stat().st_mtime - 5400,) * 2)
    return [str(path) for path in found]


def test_a_vacuum_takes_what_no_manifest_names_and_says_what_it_took(store: ParquetStore, left: list[str]) -> None:
    begun = store.folder / "results_batches" / "000000000" / f".000000000003.json.{'0' * 32}.new"
    begun.write_bytes(b"half")
    os.utime(begun, (begun.stat().st_mtime - 5400,) * 2)
    left.append(str(begun))
    mine = table(store) / "part-of-mine.parquet"
    pq.write_table(pa.table({"n": [1]}), mine)
    os.utime(mine, (0, 0))
    assert orphans(table(store)) == []
    assert orphans(table(store), timedelta(hours=2)) == []
    assert orphans(table(store), timedelta(hours=1)) == left
    assert all(Path(path).exists() for path in left)
    assert vacuum(table(store), timedelta(hours=1)) == left
    assert not any(Path(path).exists() for path in left)
    assert mine.exists()
    assert vacuum(table(store), timedelta(hours=1)) == []
    assert everything(store) == of_batches(0, 1)


def test_a_vacuum_of_what_is_young_is_refused(store: ParquetStore, left: list[str]) -> None:
    with pytest.raises(ValueError, match="older_than must be at least an hour"):
        vacuum(table(store), timedelta(minutes=59))


def test_a_vacuum_where_a_manifest_cannot_be_read_takes_nothing(store: ParquetStore, left: list[str]) -> None:
    manifest(store, 1).write_bytes(b"")
    with pytest.raises(StateMismatch, match="manifest 1"):
        vacuum(table(store), timedelta(hours=1))
    assert all(Path(path).exists() for path in left)


# Growth


def test_a_start_reads_the_last_two_groups_of_manifests_and_no_more(
    store: ParquetStore, small_groups: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    from waterclock.sinks.parquet.folders import LocalFolder

    made(table(store), 100)
    asked, real = list[str](), LocalFolder.read
    monkeypatch.setattr(LocalFolder, "read", lambda self, name: asked.append(name) or real(self, name))
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        assert (sink.last_applied(), sink.totals()["events"]) == (LastBatch("q", 99), 100 * COUNTERS["events"])
    assert len([name for name in asked if not name.startswith("_spark_metadata")]) <= 12
