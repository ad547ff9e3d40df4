"""What a start believes of the write-ahead log: whose it is, and that no good record is lost or overwritten by it."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crc32c")

from crc32c import crc32c

from tests.broker.log.test_write_ahead import RUN, Disk
from tests.broker.record_batches import Rec, batch
from waterclock.broker.log.replay import RUN_BYTES, WITHOUT_RUN, replay, whole_frames
from waterclock.broker.log.segment import Segment
from waterclock.broker.log.write_ahead import HEAD, NAMES, SUMMED, SegmentBytes

NOW = 1_700_000_000_000


def records(offset: int, value: bytes = b"v" * 50) -> bytes:
    """A batch as it stands in a log."""
    data = bytearray(batch([Rec(b"k", value, NOW)]))
    data[:8] = offset.to_bytes(8, "big")
    return bytes(data)


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """Three batches in the first segment, all of them in the write-ahead log."""
    disk = Disk(tmp_path)
    for offset in range(3):
        disk.append((0, records(offset)))
    return disk


def log_of(disk: Disk) -> Path:
    return Path(disk.segments[0].path + ".log")


def there(disk: Disk) -> list[str]:
    return sorted(name for name in NAMES if (disk.folder / name).exists())


def aside(disk: Disk) -> list[str]:
    unknown = disk.folder / "unknown"
    return sorted(path.name for path in unknown.iterdir()) if unknown.exists() else []


def start(disk: Disk, run: int | None = RUN, *, stopped: bool = False) -> dict[str, int]:
    replayed = replay(str(disk.folder), run, stopped=stopped)
    replayed.finish()
    return {Path(path).name: end for path, end in replayed.ends.items()}


# Disks that take a part


def takes(monkeypatch: pytest.MonkeyPatch, size: int, most: int) -> None:
    """A disk that takes so many bytes of each write, and no more than `most` in all."""
    real, left = os.pwrite, most

    def pwrite(fd: int, data: Any, at: int) -> int:
        nonlocal left
        part = bytes(data)[: min(size, left)]
        if not part:
            raise OSError(errno.ENOSPC, "No space left on device")
        left -= len(part)
        return real(fd, part, at)

    monkeypatch.setattr(os, "pwrite", pwrite)


@pytest.mark.parametrize("most", [0, 1, 100, 150, 250])
def test_a_disk_that_takes_a_part_of_what_is_put_back_ends_the_start_and_the_log_stays(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Twelve records were acknowledged, seven were there: the rest was removed with the log."""
    disk.cut_power()
    os.truncate(log_of(disk), 0)
    with monkeypatch.context() as patch:
        takes(patch, 1 << 20, most)
        with pytest.raises(OSError, match=r"No space left .*\.log lacks what the write-ahead log has of it"):
            start(disk)
    assert there(disk) == [*NAMES]
    assert disk.holds_all()


def test_one_that_takes_a_part_of_each_write_takes_all_in_the_end(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    disk.cut_power()
    os.truncate(log_of(disk), 0)
    takes(monkeypatch, 7, 1 << 20)
    assert disk.holds_all()


def test_a_start_that_is_refused_later_leaves_the_log_for_the_next(disk: Disk) -> None:
    disk.cut_power()
    os.truncate(log_of(disk), 0)
    for _ in range(2):
        replay(str(disk.folder), RUN, stopped=False)
        assert log_of(disk).read_bytes() == disk.durable[disk.segments[0]]
        assert there(disk) == [*NAMES]
        os.truncate(log_of(disk), 5)
    assert disk.holds_all()
    assert there(disk) == []


# Whose it is


def set_aside(disk: Disk, caplog: pytest.LogCaptureFixture, why: str) -> None:
    assert there(disk) == []
    assert aside(disk) == [*NAMES]
    assert why in caplog.text
    assert f"{disk.folder / NAMES[0]} lies in {disk.folder / 'unknown' / NAMES[0]}" in caplog.text


def test_after_a_clean_stop_it_is_void(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    log_of(disk).write_bytes(b"compacted since")
    assert start(disk, stopped=True) == {}
    assert log_of(disk).read_bytes() == b"compacted since"
    set_aside(disk, caplog, "the last stop was a clean one")


def test_that_of_another_run_is_set_aside(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    log_of(disk).write_bytes(b"compacted since")
    (disk.folder / NAMES[1]).write_bytes((disk.folder / NAMES[0]).read_bytes())
    assert start(disk, RUN + 1) == {}
    assert log_of(disk).read_bytes() == b"compacted since"
    set_aside(disk, caplog, f"it is of the run {RUN:016x}, and the last one here was {RUN + 1:016x}")


def test_where_nobody_knows_the_last_run_it_is_put_back(disk: Disk) -> None:
    os.truncate(log_of(disk), 0)
    assert start(disk, None) == {"a-0.0": 3}
    assert log_of(disk).read_bytes() == disk.durable[disk.segments[0]]


def of_before(disk: Disk) -> None:
    """Have the log as earlier versions wrote it: frames without a run."""
    old = bytearray()
    for number, first, rows, _ in whole_frames((disk.folder / NAMES[0]).read_bytes()):
        summed = SUMMED.pack(0, number, first, len(rows))[RUN_BYTES:]
        old += WITHOUT_RUN + summed + crc32c(rows, crc32c(summed)).to_bytes(4, "big") + rows
    assert len(old) > 3 * (HEAD.size - RUN_BYTES)
    (disk.folder / NAMES[0]).write_bytes(old)


@pytest.mark.parametrize("run", [None, RUN])
def test_that_of_an_earlier_version_is_put_back(disk: Disk, run: int | None) -> None:
    of_before(disk)
    os.truncate(log_of(disk), 0)
    assert start(disk, run) == {"a-0.0": 3}
    assert log_of(disk).read_bytes() == disk.durable[disk.segments[0]]
    assert (there(disk), aside(disk)) == ([], [])


# What it may not do to a good file


def compacted(disk: Disk) -> bytes:
    return records(0, b"one") + records(2, b"longer than before, so that the file is as long" * 3)


def shorter(disk: Disk) -> bytes:
    """It ends where a piece of the log would go on, with a later offset."""
    content = records(7, b"w" * 50)
    assert len(content) == len(records(0))
    return content


@pytest.mark.parametrize("content", [compacted, shorter])
@pytest.mark.parametrize("before", [False, True])
def test_no_whole_batch_is_overwritten_and_nothing_put_where_it_does_not_follow(
    disk: Disk, content: Callable[[Disk], bytes], before: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A copy of the log from earlier in the same run, which lacks the word that the segment was rewritten."""
    if before:
        of_before(disk)
    log_of(disk).write_bytes(content(disk))
    start(disk)
    assert log_of(disk).read_bytes() == content(disk)
    assert f"{log_of(disk)} " in caplog.text
    set_aside(disk, caplog, "not all of it could be put back")


@pytest.mark.parametrize("place", range(0, 3 * len(records(0)), 11))
def test_a_batch_that_is_damaged_is_put_back_whole(disk: Disk, place: int) -> None:
    data = bytearray(log_of(disk).read_bytes())
    data[place] ^= 16
    log_of(disk).write_bytes(data)
    assert disk.holds_all()
    assert (there(disk), aside(disk)) == ([], [])


def test_a_last_segment_that_is_gone_keeps_the_log_that_has_its_records(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    log_of(disk).unlink()
    assert start(disk) == {"a-0.0": 3}
    set_aside(disk, caplog, f"{log_of(disk)} is gone, and the write-ahead log has records of it")


def test_a_topic_that_is_being_removed_misses_none_of_its_files(disk: Disk, caplog: pytest.LogCaptureFixture) -> None:
    log_of(disk).unlink()  # and its folder is there still
    replay(str(disk.folder), RUN, stopped=False, removed={"0"}).finish()
    assert (there(disk), aside(disk), caplog.text) == ([], [], "")


def test_one_that_retention_has_removed_keeps_nothing(disk: Disk) -> None:
    later = Segment(str(log_of(disk).parent), 3)
    disk.segments.append(later)
    os.pwrite(later.fd, records(3), 0)
    disk.log.write([SegmentBytes(later, 0, len(records(3)))])
    log_of(disk).unlink()
    assert start(disk) == {"a-0.0": 4}
    assert (there(disk), aside(disk)) == ([], [])
