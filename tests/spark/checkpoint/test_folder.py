"""The checkpoint's folder: whose it is, how far it came, and what is refused once it is closed or damaged."""

from __future__ import annotations

import json
import os
from pathlib import Path
from unittest.mock import patch

import pytest

import waterclock
from tests.spark.checkpoint.test_source_files import write_entry
from waterclock.errors import StateMismatch, UsageError
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.fresh import removal_of


def checkpoint(folder: Path, batches: int) -> Checkpoint:
    """A folder as Spark leaves it."""
    (folder / "offsets").mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"q"}')
    for n in range(batches):
        (folder / "offsets" / str(n)).write_text(f'v1\n{{}}\n{{"logOffset":{n}}}')
        (folder / "offsets" / f".{n}.crc").write_bytes(b"crc")
    return Checkpoint(folder)


def test_a_checkpoint_that_is_not_there_yet_holds_nothing(tmp_path: Path) -> None:
    new = Checkpoint(tmp_path / "cp")
    assert (new.query_id(), new.last_batch(), new.offsets(0)) == (None, None, None)


def test_a_checkpoint_tells_the_query_and_the_last_batch_by_number_not_by_name(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "cp", 12)
    assert (old.query_id(), old.last_batch(), old.offsets(10)) == ("q", 11, 'v1\n{}\n{"logOffset":10}')


def test_half_written_first_offsets_are_swept_away_and_later_ones_are_left(tmp_path: Path) -> None:
    for batches in (0, 1):
        old = checkpoint(tmp_path / f"cp{batches}", batches)
        half = old.path / "offsets" / ".0.5e227ddc.tmp"
        half.touch()
        old.sweep()
        assert half.exists() == bool(batches)
    Checkpoint(tmp_path / "not there yet").sweep()


def test_settings_are_claimed_once_and_again_and_other_ones_are_refused_by_name(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "cp", 1)
    settings = {"rules": "r", "columns": {"k": "string"}, "state": 1}
    old.claim(settings)
    old.claim(dict(reversed(settings.items())))
    assert old.heartbeats.is_dir()
    with pytest.raises(StateMismatch, match=r"\(columns, new, rules\).*--fresh"):
        old.claim({"columns": {"k": "long"}, "state": 1, "new": 0})


def test_what_is_written_down_is_on_the_disk_with_its_name_before_the_run_goes_on(tmp_path: Path) -> None:
    """It was renamed without a flush: after a power cut, where the first batch begins was an empty file."""
    flushed: list[str] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        flushed.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name)
        fsync(fd)

    new = Checkpoint(tmp_path / "cp")
    with patch.object(os, "fsync", noted):
        new.claim({"state": 1})
        new.begin_at({"t": {"0": 5}})
    above = [tmp_path.parent.name, tmp_path.name]
    assert flushed == [*above, "cp", ".waterclock.json.new", "cp", ".starting.json.new", "cp"]
    assert new.starting() == {"t": {"0": 5}}


def test_a_source_in_another_folder_is_refused_with_the_old_one_and_the_way_out(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "cp", 1)
    old.claim({"path": "/old/in", "state": 1})
    with pytest.raises(StateMismatch, match=r"the folder /old/in when .* is /new/in now.* a link .*--fresh"):
        old.claim({"path": "/new/in", "state": 1})


def test_state_of_another_version_is_refused_as_such_and_not_as_a_changed_pipeline(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "cp", 1)
    old.claim({"state": 1, "rules": "r"})
    with pytest.raises(
        StateMismatch, match=r"state has version 1, this waterclock reads 3\. Use the version .*--fresh"
    ):
        old.claim({"state": 3, "rules": "r"})


@pytest.mark.parametrize("name", ["metadata", "waterclock.json"])
@pytest.mark.parametrize(
    "content", [b"", b'{"id":', b"\x00" * 20, b"\xff", b"[]"], ids=["empty", "cut", "NUL", "not UTF-8", "a list"]
)
def test_a_damaged_file_of_a_checkpoint_is_told_by_its_name(tmp_path: Path, name: str, content: bytes) -> None:
    # reliability.md: "torn or corrupt files ... a clear error naming file and offset, and a way to go on"
    old = checkpoint(tmp_path / "cp", 1)
    old.claim({"rules": "r"})
    (tmp_path / "cp" / name).write_bytes(content)
    with pytest.raises(UsageError, match=name):
        old.claim({"rules": "r"}) if name == "waterclock.json" else old.query_id()


@pytest.mark.parametrize("folder", ["offsets", "commits"])
@pytest.mark.parametrize("content", [b"", b"v1", b'v1\n{"next', b"\x00" * 20, b"\xff"])
def test_an_end_of_sparks_logs_that_was_cut_is_told_by_its_name_before_spark_is_started(
    tmp_path: Path, folder: str, content: bytes
) -> None:
    """Spark's own words were followed by "the same command goes on from there", where it never would."""
    old = checkpoint(tmp_path / "cp", 2)
    (old.local / "commits").mkdir()
    (old.local / folder / "1").write_bytes(content)
    with pytest.raises(UsageError, match=rf"{folder}/1 is damaged: .*or start over with --fresh"):
        old.claim({"rules": "r"})


def test_closing_is_one_heartbeat_however_often(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "cp", 1)
    old.claim({})
    old.close()
    old.close()
    (file,) = old.heartbeats.iterdir()
    assert json.loads(file.read_text()) == {"closing": "9999-12-31T00:00:00Z"}


def test_a_close_is_begun_again_until_its_last_batch_is_done(tmp_path: Path) -> None:
    # killed behind the batch that reads the heartbeat, Spark makes the one that ends everything for new input only
    old = checkpoint(tmp_path / "cp", 1)
    old.claim({})
    old.close_again()
    assert not list(old.heartbeats.iterdir())
    old.close()
    old.close_again()
    old.close_again()
    old.source_closes()
    old.close_again()
    assert {file.name for file in old.heartbeats.iterdir()} == {"closing.jsonl", "closing-1.jsonl", "closing-2.jsonl"}
    assert len({file.read_text() for file in old.heartbeats.iterdir()}) == 1


@pytest.fixture
def closed(tmp_path: Path) -> tuple[Checkpoint, Path]:
    """A checkpoint that was closed after a file came to its source."""
    old, source = checkpoint(tmp_path / "cp", 1), tmp_path / "in"
    source.mkdir()
    (source / "before.jsonl").touch()
    wait_for_a_later_time(source / "before.jsonl")
    written_ms = (source / "before.jsonl").stat().st_mtime_ns // 1_000_000
    write_entry(old.path / "sources" / "0", "0", ("before.jsonl", 0), written_ms=written_ms)
    old.claim({})
    old.close()
    return old, source


def wait_for_a_later_time(file: Path) -> None:
    """The clock of a file system ticks in milliseconds: go on only when a new file would be younger than `file`."""
    probe = file.with_name(".probe")
    probe.touch()
    while probe.stat().st_mtime_ns <= file.stat().st_ctime_ns:
        probe.touch()
    probe.unlink()


def test_a_closed_checkpoint_whose_files_are_all_older_goes_on(closed: tuple[Checkpoint, Path]) -> None:
    old, source = closed
    old.refuse_if_closed(source)


def test_a_folder_in_the_source_does_not_count(closed: tuple[Checkpoint, Path]) -> None:
    old, source = closed
    (source / "sub").mkdir()
    old.refuse_if_closed(source)


def test_several_files_that_came_after_the_close_are_counted(closed: tuple[Checkpoint, Path]) -> None:
    old, source = closed
    (source / "b.jsonl").touch()
    (source / "a.jsonl").touch()
    with pytest.raises(UsageError, match=r"2 files came after that \(a\.jsonl, \.\.\.\)"):
        old.refuse_if_closed(source)


def test_files_that_came_after_the_close_are_refused_with_the_ways_out(closed: tuple[Checkpoint, Path]) -> None:
    old, source = closed
    (source / "after.jsonl").touch()
    with pytest.raises(UsageError, match=r"1 files? came after.*after\.jsonl.*--fresh.*close = false"):
        old.refuse_if_closed(source)


def test_a_clock_that_was_set_back_hides_no_file_that_came_after_the_close(closed: tuple[Checkpoint, Path]) -> None:
    # its events went out as late ones
    old, source = closed
    os.utime(old.heartbeats / "closing.jsonl", (9_000_000_000, 9_000_000_000))
    old.refuse_if_closed(source)
    (source / "after.jsonl").touch()
    with pytest.raises(UsageError, match=r"1 file came after that \(after\.jsonl\)"):
        old.refuse_if_closed(source)


def test_an_older_file_that_is_moved_in_after_the_close_came_after_it_too(tmp_path: Path) -> None:
    # `mv`, `cp -p`, rsync and tar keep the time of a file: when it was changed is not when it came.
    old, source = checkpoint(tmp_path / "cp", 1), tmp_path / "in"
    source.mkdir()
    (tmp_path / "late.jsonl").touch()
    os.utime(tmp_path / "late.jsonl", (900, 900))
    old.claim({})
    old.close()
    (tmp_path / "late.jsonl").rename(source / "late.jsonl")
    with pytest.raises(UsageError, match=r"late\.jsonl"):
        old.refuse_if_closed(source)


def test_a_damaged_list_of_files_is_told_with_its_remedy(closed: tuple[Checkpoint, Path]) -> None:
    # it was a traceback
    old, source = closed
    entry = old.local / "sources" / "0" / "0"
    entry.write_bytes(entry.read_bytes().replace(b"path", b"pa\xffh"))
    with pytest.raises(StateMismatch, match=r"sources/0/0 is damaged: .*--fresh"):
        old.refuse_if_closed(source)


@pytest.mark.parametrize("name", [".hidden", "_SUCCESS"])
def test_what_spark_does_not_read_does_not_count_as_input(closed: tuple[Checkpoint, Path], name: str) -> None:
    old, source = closed
    (source / name).touch()
    old.refuse_if_closed(source)


@pytest.mark.parametrize(
    "names",
    [
        ["precious.txt"],
        ["metadata", "precious.txt"],
        ["spark.log", "precious.txt"],
        ["offsets"],
        ["metadata", "offsets"],
    ],
)
def test_a_folder_of_other_things_is_not_removed_as_a_checkpoint(tmp_path: Path, names: list[str]) -> None:
    # the last one is that of another query of Spark's: whoever named it by mistake, and gave --fresh, lost it
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match="is not removed"):
        removal_of(Checkpoint(tmp_path)).refuse_other_things()


@pytest.mark.parametrize(
    "names",
    [
        [],
        ["spark.log"],
        ["waterclock.json", "offsets"],
        ["metadata", "waterclock.carrying"],
        ["waterclock.removing"],
        ["inferred.json"],
    ],
)
def test_a_checkpoint_whole_or_damaged_may_be_removed(tmp_path: Path, names: list[str]) -> None:
    for name in names:
        (tmp_path / name).touch()
    removal_of(Checkpoint(tmp_path)).refuse_other_things()
    removal_of(Checkpoint(tmp_path / "gone")).refuse_other_things()


@pytest.mark.parametrize(
    "names", [["heartbeats", "precious.txt"], ["waterclock.json", "metadata", "offsets", ".precious"]]
)
def test_a_checkpoint_with_something_of_somebody_elses_in_it_is_not_removed(tmp_path: Path, names: list[str]) -> None:
    # one file by the name of metadata, and all that was in the folder went
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(UsageError, match=r"has other things in its folder \(\.?precious"):
        removal_of(Checkpoint(tmp_path)).refuse_other_things()


def test_a_removal_that_goes_on_leaves_what_has_no_name_of_a_checkpoints(tmp_path: Path) -> None:
    old = checkpoint(tmp_path / "cp", 2)
    old.claim({})
    (old.path / ".metadata.crc").touch()
    (old.path / "waterclock.removing").touch()
    (old.path / "precious.txt").touch()
    removal_of(old).finish()
    assert [path.name for path in old.local.iterdir()] == ["precious.txt"]


def test_a_checkpoint_that_is_a_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "cp").touch()
    for path in (tmp_path / "cp", tmp_path / "cp" / "below"):
        with pytest.raises(UsageError, match=f"{path} cannot be made"):
            Checkpoint(path).claim({})
    with pytest.raises(UsageError, match="is a file"):
        removal_of(Checkpoint(tmp_path / "cp")).refuse_other_things()


def test_a_removal_that_was_killed_is_ended_by_the_next_start(tmp_path: Path) -> None:
    # with its metadata gone and the names of files read still there, a run read none of them, and said nothing
    old = checkpoint(tmp_path / "cp", 2)
    write_entry(old.path / "sources" / "0", "0", ("a", 0))
    old.claim({})
    removal_of(old).finish()
    assert old.last_batch() == 1
    with patch("shutil.rmtree", side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        removal_of(old).run()
    removal_of(old).refuse_other_things()
    removal_of(old).finish()
    assert not old.path.exists()


def test_a_checkpoint_behind_a_link_is_emptied_and_the_link_stays(tmp_path: Path) -> None:
    (tmp_path / "large disk").mkdir()
    (tmp_path / "cp").symlink_to(tmp_path / "large disk")
    old = checkpoint(tmp_path / "cp", 1)
    old.claim({})
    removal_of(old).run()
    assert list((tmp_path / "cp").iterdir()) == []


def test_a_checkpoint_that_cannot_be_removed_is_told(tmp_path: Path) -> None:
    removal_of(Checkpoint(tmp_path / "there" / "not")).run()
    made = Checkpoint(tmp_path / "c")
    made.claim({})
    with (
        patch("os.rmdir", side_effect=PermissionError(13, "Permission denied")),
        pytest.raises(UsageError, match=r"c cannot be removed: Permission denied\. .* by hand"),
    ):
        removal_of(made).run()
    removal_of(made).run()
    assert not made.path.exists()


@pytest.mark.parametrize("advice", ["set close = false under", 'Set on_loss = "go on"'])
def test_how_a_stream_begins_anew_is_said_in_one_place(advice: str) -> None:
    """Of files and of topics: two texts of one advice had begun to differ."""
    source = Path(waterclock.__file__).parent
    said = [file.name for file in source.rglob("*.py") for _ in range(file.read_text(encoding="utf-8").count(advice))]
    assert len(said) == 1
