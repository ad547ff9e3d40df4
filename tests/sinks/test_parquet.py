"""Plain Parquet files with a manifest: kills at each step, two writers, and every kind of damage."""

from __future__ import annotations

import logging
import os
import shutil
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.processes import in_a_fork
from tests.sinks.collisions import collide
from tests.sinks.file_stores import ParquetFileStore, part_of
from tests.sinks.parquet_look import ParquetStore, agree, lying, made, manifest, named, table
from tests.sinks.stores import SCHEMA, batch, everything, of_batches
from waterclock import disk
from waterclock.errors import CommitUnknown, EnvironmentMissing, SinkLost, StateMismatch, UsageError
from waterclock.sinks import LastBatch, ParquetSink, Sink, apply_once
from waterclock.sinks.parquet import manifests
from waterclock.sinks.parquet.parquet_tables import dead_letter_files, dead_letters, files, read, vacuum


@pytest.fixture
def store(tmp_path: Path) -> ParquetStore:
    return ParquetStore(tmp_path)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "GROUP", 4)


# Kills

# a table is made and gets two batches; SIGKILL in front of one of the calls that make something durable, or behind it
KILLED = """
import os, signal
from tests.sinks.file_stores import ByExecutors
from tests.sinks.stores import SCHEMA, batch
from waterclock import disk, sinks
from waterclock.sinks.parquet import manifests
from waterclock.sinks.parquet import parquet
from waterclock.sinks import apply_once
manifests.GROUP = 2
calls = iter(range(1000))
def dying(real):
    def call(*arguments, **more):
        number = next(calls)
        if number == {at} and {before}:
            os.kill(os.getpid(), signal.SIGKILL)
        found = real(*arguments, **more)
        if number == {at}:
            os.kill(os.getpid(), signal.SIGKILL)
        return found
    return call
disk.create_whole, os.mkdir = dying(disk.create_whole), dying(os.mkdir)
parquet.pq.write_table = dying(parquet.pq.write_table)
sinks.files.PartWriter.end = dying(sinks.files.PartWriter.end)
sink = {sink}
sink.open(SCHEMA)
apply_once(sink, batch(0))
apply_once(sink, batch(1))
"""


@pytest.fixture
def groups_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifests, "GROUP", 2)


def killed(store: ParquetStore, at: int, before: bool) -> bool:
    done = in_a_fork(KILLED.format(at=at, before=before, sink=store.source()))
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0


def is_whole_after_a_kill(store: ParquetStore) -> None:
    """What is there is batches as a whole; a re-run makes the rest, and a vacuum takes what is nobody's."""
    with closing(store.sink()) as again:
        again.open(SCHEMA)
        agree(store)
        last = again.last_applied()
        there = range(0 if last is None else last.batch_id + 1)
        assert everything(store) == of_batches(*there)
        assert [apply_once(again, batch(number)) for number in range(2)] == [number not in there for number in range(2)]
        assert again.totals() == {"events": 4, "late": 2}
    assert everything(store) == of_batches(0, 1)
    agree(store)
    for part in ("results", "results_dead_letters"):
        for name in lying(store.folder / part):
            os.utime(store.folder / part / name, (0, 0))
    vacuum(table(store))
    assert lying(table(store)) == {*named(files(table(store)))}
    assert lying(store.folder / "results_dead_letters") == {*named(dead_letter_files(table(store)))}
    assert everything(store) == of_batches(0, 1)


@pytest.mark.parametrize("at", [0, 5, 8, 12, 14, 16])
def test_a_kill_leaves_whole_batches_and_a_rerun_makes_the_rest(tmp_path: Path, at: int, groups_of_two: None) -> None:
    store = ParquetStore(tmp_path)
    assert killed(store, at, before=True)
    is_whole_after_a_kill(store)


@pytest.mark.long(seconds=15)
@pytest.mark.parametrize("kind", [ParquetStore, ParquetFileStore])
@pytest.mark.parametrize("before", [True, False], ids=["before", "after"])
def test_so_does_a_kill_at_each_step_of_making_and_committing(
    tmp_path: Path, kind: type[ParquetStore], before: bool, groups_of_two: None
) -> None:
    at = 0
    while killed(store := kind(tmp_path / str(at)), at, before):
        is_whole_after_a_kill(store)
        at += 1
    assert at > 20


# Two writers


def test_of_two_writers_that_take_the_same_batch_one_commits_it(store: ParquetStore, sink: Sink) -> None:
    with closing(store.sink()) as other:
        other.open(SCHEMA)
        collide(sink, other, 1)
    assert everything(store) == of_batches(0, 1)
    agree(store)


def test_one_that_stood_still_while_another_wrote_and_folded_hundreds_commits_nothing(
    store: ParquetStore, sink: Sink, small_groups: None
) -> None:
    with closing(store.sink()) as other:
        other.open(SCHEMA)
        sink.begin()
        sink.write(batch(1))
        for number in range(1, 40):
            apply_once(other, batch(number))
        assert len(list((store.folder / "results_batches").glob("*.fold"))) >= 9
        with pytest.raises(SinkLost):
            sink.commit()
    assert everything(store) == of_batches(*range(40))
    agree(store)


def test_two_that_make_the_table_at_once_have_one(store: ParquetStore, monkeypatch: pytest.MonkeyPatch) -> None:
    real = disk.create_whole

    def second(path: str, data: bytes) -> bool:
        monkeypatch.setattr(disk, "create_whole", real)
        made(table(store), 1)
        return real(path, data)

    monkeypatch.setattr(disk, "create_whole", second)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        assert sink.last_applied() == LastBatch("q", 0)
        assert apply_once(sink, batch(1)) is True
    assert everything(store) == of_batches(0, 1)
    agree(store)


def test_a_commit_whose_answer_was_lost_is_found(
    store: ParquetStore, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = disk.create_whole

    def unanswered(path: str, data: bytes) -> bool:
        monkeypatch.setattr(disk, "create_whole", real)
        real(path, data)
        raise OSError("the line is gone")

    monkeypatch.setattr(disk, "create_whole", unanswered)
    sink.begin()
    sink.write(batch(1))
    with pytest.raises(CommitUnknown, match="the line is gone"):
        sink.commit()
    assert apply_once(sink, batch(1)) is False
    monkeypatch.setattr(disk, "create_whole", unanswered)
    assert apply_once(sink, batch(2)) is True
    assert everything(store) == of_batches(0, 1, 2)


def test_a_commit_that_was_asked_twice_and_refused_the_second_time_got_through(
    store: ParquetStore, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = disk.create_whole
    monkeypatch.setattr(disk, "create_whole", lambda path, data: real(path, data) and False)
    assert apply_once(sink, batch(1)) is True
    monkeypatch.undo()
    assert everything(store) == of_batches(0, 1)


def test_a_list_for_spark_that_cannot_be_written_is_said_and_made_good_by_the_next_batch(
    store: ParquetStore, sink: Sink, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = disk.create_whole

    def refusing(path: str, data: bytes) -> bool:
        if "_spark_metadata" in path:
            raise OSError("no space left")
        return real(path, data)

    monkeypatch.setattr(disk, "create_whole", refusing)
    with caplog.at_level(logging.WARNING):
        assert apply_once(sink, batch(1)) is True
    assert "has the batch, and a list of its files could not be written: no space left" in caplog.text
    assert everything(store) == of_batches(0, 1)
    monkeypatch.undo()
    apply_once(sink, batch(2))
    agree(store)


@pytest.mark.parametrize("seen", ["gone", "shorter"])
def test_a_file_of_a_task_that_the_driver_does_not_see_whole_is_not_committed(store: ParquetStore, seen: str) -> None:
    with closing(ParquetSink(table(store), written_by="executors")) as sink:
        sink.open(SCHEMA)
        (file,), _ = part_of(sink.result_files(0), 0, 0, batch(0).results)
        path = table(store) / file.name
        path.write_bytes(path.read_bytes()[:-1]) if seen == "shorter" else path.unlink()
        with pytest.raises(EnvironmentMissing, match="mount one folder on all machines"):
            apply_once(sink, replace(batch(0), results=SCHEMA.empty_table(), files=(file,)))
    assert everything(store) == of_batches()


# Damage


@pytest.mark.parametrize("damage", ["gone", "empty", "flipped", "cut", "of another time", "of another number"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_manifest_that_is_not_as_it_was_written_is_told_and_nothing_is_read_past_it(
    store: ParquetStore, tmp_path: Path, damage: str, number: int
) -> None:
    made(table(store), 3)
    file, whole = manifest(store, number), manifest(store, number).read_bytes()
    if damage == "gone":
        file.unlink()
    elif damage == "of another time":
        made(tmp_path / "other", 3)
        shutil.copy(tmp_path / "other_batches" / manifests.name_of(number), file)
    elif damage == "of another number":
        shutil.copy(manifest(store, 3), file)
    else:
        file.write_bytes({"empty": b"", "cut": whole[:-9], "flipped": whole.replace(b'"rows"', b'"rowz"', 1)}[damage])
    before = {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()}
    # of another time: it is the next one that does not follow on it
    told = rf"manifest {number}|manifest {number + 1}" if damage == "of another time" else rf"manifest {number} "
    for look in (store.sink().open, lambda _: files(table(store)), lambda _: vacuum(table(store))):
        with pytest.raises(StateMismatch, match=told) as caught:
            look(SCHEMA)
        assert "results_batches/000000000/" in str(caught.value)
        assert "Restore it from a copy" in str(caught.value)
        assert "--fresh" in str(caught.value)
    assert {path: path.read_bytes() for path in store.folder.rglob("*") if path.is_file()} == before


def test_a_last_manifest_that_is_gone_is_told_by_what_spark_was_told(store: ParquetStore) -> None:
    made(table(store), 3)
    manifest(store, 3).unlink()
    with pytest.raises(StateMismatch, match="lists files of manifest 3, and the last manifest that is there is 2"):
        store.sink().open(SCHEMA)


def test_manifests_that_are_gone_altogether_are_told_and_no_file_becomes_nobodys(store: ParquetStore) -> None:
    made(table(store), 3)
    before = lying(table(store))
    shutil.rmtree(store.folder / "results_batches")
    with pytest.raises(StateMismatch, match=r"and its manifests in .*results_batches are gone"):
        store.sink().open(SCHEMA)
    with pytest.raises(UsageError, match="there are no manifests in"):
        vacuum(table(store))
    with pytest.raises(UsageError, match=r"and no manifests in .*_batches, so nobody knows whose they are"):
        store.sink().remove()
    assert lying(table(store)) == before


def test_so_are_those_of_a_table_without_a_batch(store: ParquetStore) -> None:
    # it was made anew, and Spark's list went on with a file that no manifest named any more
    made(table(store), 0)
    shutil.rmtree(store.folder / "results_batches")
    with pytest.raises(StateMismatch, match=r"has files that were committed \(_spark_metadata/19.compact, ...\)"):
        store.sink().open(SCHEMA)


@pytest.mark.parametrize("damage", ["gone", "damaged", "cut", "of another group", "of another table"])
def test_a_fold_that_is_damaged_is_said_and_its_manifests_are_read(
    store: ParquetStore, tmp_path: Path, small_groups: None, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    # one from another time refused every start, as if a manifest were lost
    made(table(store), 13)
    fold = store.folder / "results_batches" / "000000001.fold"
    whole = fold.read_bytes()
    fold.unlink()
    if damage == "of another group":
        shutil.copy(fold.with_name("000000000.fold"), fold)
    elif damage == "of another table":
        made(tmp_path / "other", 13)
        shutil.copy(tmp_path / "other_batches" / fold.name, fold)
    elif damage != "gone":
        fold.write_bytes(whole.replace(b"batch", b"butch", 1) if damage == "damaged" else whole[: len(whole) // 2])
    with caplog.at_level(logging.WARNING), closing(store.sink()) as sink:
        sink.open(SCHEMA)
        assert sink.last_applied() == LastBatch("q", 12)
    assert everything(store) == of_batches(*range(13))
    assert ("is damaged, or from another time: the 4 manifests that it folds are read instead" in caplog.text) is (
        damage != "gone"
    )
    if damage == "gone":
        assert fold.read_bytes() == whole


def test_a_group_of_manifests_that_is_gone_with_its_fold_is_told(store: ParquetStore, small_groups: None) -> None:
    made(table(store), 13)
    (store.folder / "results_batches" / "000000001.fold").unlink()
    shutil.rmtree(store.folder / "results_batches" / "000000001")
    for look in (store.sink().open, lambda _: files(table(store))):
        with pytest.raises(StateMismatch, match=r"manifest 4 of .* is missing"):
            look(SCHEMA)


@pytest.mark.parametrize("part", ["results", "results_dead_letters"])
@pytest.mark.parametrize("damage", ["gone", "shorter"])
def test_a_file_that_a_manifest_names_and_that_changed_is_told(store: ParquetStore, part: str, damage: str) -> None:
    made(table(store), 2)
    paths = files(table(store)) if part == "results" else dead_letter_files(table(store))
    file = Path(paths[-1])
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-1])
    told = rf"{file.name} {'is gone' if damage == 'gone' else 'has .* bytes, and was written with'}.*Restore it from a copy"
    with pytest.raises(StateMismatch, match=told):
        store.sink().open(SCHEMA)
    with pytest.raises(StateMismatch, match=told):
        read(table(store)) if part == "results" else dead_letters(table(store))


def test_a_folder_with_other_things_is_neither_filled_nor_removed(store: ParquetStore) -> None:
    store.make_table_of_others("results")
    for deed in (lambda sink: sink.open(SCHEMA), lambda sink: sink.remove()):
        with pytest.raises(UsageError, match="the table 'results' in"):
            deed(store.sink())
    assert [path.name for path in store.folder.rglob("*")] == ["results", "mine.parquet"]


def test_a_table_with_something_of_somebody_elses_in_it_is_not_removed(store: ParquetStore) -> None:
    made(table(store), 1)
    (store.folder / "results_batches" / "000000000" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"results_batches' .*000000000/notes.txt.*is not removed"):
        store.sink().remove()
    assert everything(store) == of_batches(0)
