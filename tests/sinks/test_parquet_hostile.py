"""Plain Parquet files with a manifest, in the hands of people: older copies, links, names that collide, cleaning."""

from __future__ import annotations

import os
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.processes import in_a_fork
from tests.sinks.file_stores import ParquetFileStore, part_of
from tests.sinks.parquet_look import ParquetStore, agree, lying, made, manifest, named, table
from tests.sinks.stores import SCHEMA, batch, everything, of_batches
from waterclock import disk
from waterclock.errors import SinkLost, StateMismatch, UsageError
from waterclock.sinks import ParquetSink, Sink, apply_once
from waterclock.sinks.parquet import parquet_tables
from waterclock.sinks.parquet.parquet_tables import check, dead_letter_files, dead_letters, files, orphans, read, vacuum


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    return ParquetStore(tmp_path)


def made_long_ago(store: ParquetStore) -> None:
    for path in store.folder.rglob("*.parquet"):
        os.utime(path, (0, 0))


def end_lost(store: ParquetStore) -> None:
    """A table of five batches, whose last two manifests are gone: as after a copy of yesterday was put back."""
    made(table(store), 5)
    for number in (4, 5):
        manifest(store, number).unlink()


# Cleaning


def test_a_batch_whose_files_a_vacuum_took_before_its_commit_is_not_committed(store: ParquetStore, sink: Sink) -> None:
    # a machine that slept for two hours between both
    sink.begin()
    sink.write(batch(1))
    made_long_ago(store)
    assert len(vacuum(table(store), timedelta(hours=1))) == 2
    with pytest.raises(SinkLost, match=r"part-1-.* is gone, .*vacuum"):
        sink.commit()
    assert everything(store) == of_batches(0)
    assert apply_once(sink, batch(1)) is True
    assert everything(store) == of_batches(0, 1)
    agree(store)


@pytest.mark.parametrize("by", ["driver", "executors"])
def test_a_run_that_wakes_up_while_a_vacuum_is_about_to_take_its_files_commits_none_of_them(
    store: ParquetStore, by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # both slept: the vacuum had looked, the run looked too, found its files and committed them; then they were removed
    made(table(store), 1)
    with closing(ParquetSink(table(store), written_by=by)) as sink:
        sink.open(SCHEMA)
        brought = batch(1)
        if by == "executors":
            (file,), _ = part_of(sink.result_files(1), 0, 0, brought.results)
            brought = replace(brought, results=SCHEMA.empty_table(), files=(file,))
        sink.begin()
        sink.write(brought)
        made_long_ago(store)
        real = parquet_tables._is_told

        def waking(*arguments: Any) -> bool:
            is_told = real(*arguments)
            for retry in (False, True):
                if retry:
                    sink.begin()
                    sink.write(brought if by == "executors" else batch(1))
                if by == "executors" or not retry:
                    with pytest.raises(SinkLost):
                        sink.commit()
            return is_told

        monkeypatch.setattr(parquet_tables, "_is_told", waking)
        assert len(vacuum(table(store), timedelta(hours=1))) == 2
        assert everything(store) == of_batches(0)
        assert apply_once(sink, batch(1)) is True
    assert everything(store) == of_batches(0, 1)
    agree(store)


def test_a_batch_that_is_committed_while_a_vacuum_looks_loses_no_file(
    store: ParquetStore, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.begin()
    sink.write(batch(1))
    made_long_ago(store)
    real = parquet_tables.orphans

    def committing(*arguments: Any) -> list[str]:
        monkeypatch.setattr(parquet_tables, "orphans", real)
        found = real(*arguments)
        sink.commit()
        return found

    monkeypatch.setattr(parquet_tables, "orphans", committing)
    assert vacuum(table(store), timedelta(hours=1)) == []
    assert everything(store) == of_batches(0, 1)


@pytest.mark.parametrize("part", ["results", "results_dead_letters"])
def test_a_vacuum_takes_nothing_where_sparks_list_cannot_tell_whether_the_last_manifest_is_there(
    store: ParquetStore, part: str
) -> None:
    # one damaged file more, and it took the rows of what was lost
    made(table(store), 2)
    manifest(store, 2).unlink()
    for name in ("results", "results_dead_letters"):
        last = max((store.folder / name / "_spark_metadata").glob("2*"))
        if name == part:
            last.write_bytes(last.read_bytes()[:-9])
    made_long_ago(store)
    there = sorted(store.folder.rglob("*.parquet"))
    with pytest.raises(StateMismatch, match=r"manifest 2|so nothing tells whether the last manifest"):
        vacuum(table(store))
    assert sorted(store.folder.rglob("*.parquet")) == there


def test_a_vacuum_without_room_for_its_manifest_is_told_and_takes_nothing(
    store: ParquetStore, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink.begin()
    sink.write(batch(1))
    made_long_ago(store)
    there = sorted(store.folder.rglob("*.parquet"))

    def full(path: str, data: bytes) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(disk, "create_whole", full)
    with pytest.raises(UsageError, match=r"nothing was removed in .*No space left on device\. Make room"):
        vacuum(table(store))
    assert sorted(store.folder.rglob("*.parquet")) == there


def test_a_vacuum_takes_nothing_where_the_last_manifests_are_gone(store: ParquetStore) -> None:
    end_lost(store)
    made_long_ago(store)
    there = sorted(store.folder.rglob("*.parquet"))
    for ask in (orphans, vacuum):
        with pytest.raises(StateMismatch, match="lists files of manifest 5, and the last manifest that is there is 3"):
            ask(table(store))
    assert sorted(store.folder.rglob("*.parquet")) == there


def test_a_reader_is_told_that_the_last_manifests_are_gone(store: ParquetStore) -> None:
    end_lost(store)
    for ask in (files, read, dead_letters):
        with pytest.raises(StateMismatch, match="lists files of manifest 5, and the last manifest that is there is 3"):
            ask(table(store))


def test_a_list_of_sparks_that_cannot_be_read_stops_no_other_reader(store: ParquetStore) -> None:
    made(table(store), 2)
    last = max((table(store) / "_spark_metadata").glob("2*"))
    last.write_bytes(last.read_bytes()[:-9])
    assert everything(store) == of_batches(0, 1)


# A table that was made anew


@pytest.mark.parametrize("count", [0, 2, 9])
def test_a_run_that_stood_still_while_the_table_was_made_anew_writes_nothing_into_it(
    store: ParquetStore, count: int
) -> None:
    # it made the manifest of its next number, which was free: the new table had a gap, and was refused from then on
    made(table(store), 4)
    with closing(store.sink()) as sleeper:
        sleeper.open(SCHEMA)
        store.sink().remove()
        made(table(store), count)
        with pytest.raises(
            StateMismatch, match=r"is not the one that this run wrote to: its manifest 4, |does not follow"
        ):
            apply_once(sleeper, batch(4))
    made(table(store), 12)
    assert everything(store) == of_batches(*range(12))
    agree(store)


# Places


@pytest.mark.parametrize("first", [True, False])
def test_a_folder_that_is_a_part_of_another_table_is_refused(store: ParquetStore, first: bool) -> None:
    one, other = [table(store), Path(f"{table(store)}_dead_letters")][:: 1 if first else -1]
    made(one, 0)
    with (
        closing(ParquetSink(other)) as sink,
        pytest.raises(UsageError, match=r"a part of the table .*Name another path in \[sink\]"),
    ):
        sink.open(SCHEMA)
    made(one, 1)


def test_fresh_empties_a_folder_that_is_a_link_to_another_disk(store: ParquetStore, tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    store.folder.mkdir(parents=True)
    table(store).symlink_to(tmp_path / "disk")
    made(table(store), 2)
    ParquetSink(table(store)).remove()
    assert list((tmp_path / "disk").iterdir()) == []
    made(table(store), 1)
    assert everything(store) == of_batches(0)
    assert table(store).is_symlink()


def test_fresh_says_what_it_could_not_remove(store: ParquetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    made(table(store), 1)
    real = os.unlink

    def refused(path: str, **more: int | None) -> None:
        if str(path).endswith(".parquet"):
            raise PermissionError(13, "Permission denied", path)
        real(path, **more)

    with monkeypatch.context() as patched:
        patched.setattr(os, "unlink", refused)
        with pytest.raises(UsageError, match=r"Permission denied: .*part-"):
            ParquetSink(table(store)).remove()
    assert everything(store) == of_batches(0), "the manifests go last"


# a disk that takes so many bytes of a file, and no more
FULL = """
import resource
from tests.sinks.stores import SCHEMA, batch
from waterclock import sinks
from waterclock.errors import SinkLost
from waterclock.sinks import apply_once
sink = sinks.ParquetSink({path!r})
sink.open(SCHEMA)
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, resource.RLIM_INFINITY))
try:
    apply_once(sink, batch(0))
except SinkLost as error:
    assert "could not be written: [Errno 27]" in str(error), error
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert apply_once(sink, batch(0))
else:
    raise AssertionError("all of it was written")
"""


@pytest.mark.parametrize("size", [100, 3000])
def test_a_disk_that_takes_no_more_is_told_and_the_batch_comes_again(store: ParquetStore, size: int) -> None:
    done = in_a_fork(FULL.format(path=str(table(store)), size=size))
    assert done.returncode == 0, done.stderr
    assert everything(store) == of_batches(0)
    assert len(lying(table(store))) == 2, "the half of a file is taken away"


# Readers


@pytest.mark.parametrize("part", [0, 1])
def test_a_file_that_is_no_parquet_any_more_is_told_by_its_name(store: ParquetStore, part: int) -> None:
    made(table(store), 3)
    damaged = files(table(store))[0 if part == 0 else 2]
    data = Path(damaged).read_bytes()
    Path(damaged).write_bytes(b"\0" * len(data))
    with pytest.raises(StateMismatch, match=f"{named([damaged])[0]} is damaged: .*Restore it from a copy"):
        read(table(store))


@pytest.mark.parametrize("kind", [ParquetStore, ParquetFileStore])
@pytest.mark.parametrize("part", ["results", "results_dead_letters"])
def test_a_file_of_the_same_size_with_other_bytes_is_told(tmp_path: Path, kind: type[ParquetStore], part: str) -> None:
    # a flipped byte of a text was read as another text; a file in the place of another one gave its rows twice
    store = kind(tmp_path)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(7))
        apply_once(sink, batch(8))
    check(table(store))
    there = [Path(file) for file in (files if part == "results" else dead_letter_files)(table(store))]
    last, damaged = there[-1], there[len(there) // 2]  # of the same part of two batches
    assert damaged.stat().st_size == last.stat().st_size
    damaged.write_bytes(last.read_bytes())
    for ask in (check, read if part == "results" else dead_letters):
        with pytest.raises(
            StateMismatch, match=f"{damaged.name} is damaged: its bytes are not those that were written"
        ):
            ask(table(store))


def test_a_file_in_the_place_of_the_manifests_is_told(store: ParquetStore) -> None:
    store.folder.mkdir(parents=True)
    Path(f"{table(store)}_batches").write_text("mine")
    with pytest.raises(UsageError, match=r"is no table of a sink of waterclock|cannot be used"):
        read(table(store))
