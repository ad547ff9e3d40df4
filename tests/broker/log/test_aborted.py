"""The files of aborted transactions: a start believes what the snapshot vouches for, and finds all else in the log."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crc32c")
pytest.importorskip("cramjam")

from crc32c import crc32c

from tests.broker.log.damage import COMPACTED, NOW, PLAIN, append, compact, end, flush, opened, read
from tests.broker.record_batches import TRANSACTIONAL, Rec, end_marker
from waterclock.broker.errors import LogDamaged
from waterclock.broker.log import snapshot
from waterclock.broker.log.batch import header_of
from waterclock.broker.log.durable import make_durable
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.producers import ROW, AbortedTransaction, read_rows, write_rows
from waterclock.broker.log.records import emptied
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.settings import TopicSettings
from waterclock.broker.wire.errors import Error


def transact(log: Partition, pid: int, sequence: int, *, commit: bool | None) -> None:
    rec = Rec(b"%d" % (log.end % 5), b"v" * 300, NOW)
    append(log, rec, producer=(pid, 0, sequence), attributes=TRANSACTIONAL)
    if commit is not None:
        end(log, pid, commit)


def begin(data: Path, settings: TopicSettings = PLAIN) -> Partition:
    """Three segments of transactions, every third aborted, and a snapshot after all of them: a start reads no marker."""
    log = opened(data, settings)
    for turn in range(60):
        transact(log, 7 + turn % 3, turn // 3, commit=turn % 3 > 0)
        flush(log)
    log.take_snapshot()
    assert len(log.segments) == 3
    assert [len(read_rows(segment.path)) for segment in log.segments] == [7, 7, 6]
    return log


def rows(log: Partition) -> list[AbortedTransaction]:
    return log.aborted.between(0, 1 << 60)


def flip(data: bytearray) -> None:
    data[10] ^= 1


def zero(data: bytearray) -> None:
    data[36:72] = bytes(36)


def shorten(data: bytearray) -> None:
    del data[-ROW.size :]


def empty(data: bytearray) -> None:
    data.clear()


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("deed", [flip, zero, shorten, empty, None])
def test_a_file_that_is_damaged_is_found_again_in_the_log_and_that_is_told(
    tmp_path: Path, number: int, deed: Callable[[bytearray], None] | None, caplog: pytest.LogCaptureFixture
) -> None:
    log = begin(tmp_path)
    expected, seen = rows(log), read(log)
    path = Path(log.segments[number].path + ".aborted")
    whole = path.read_bytes()
    if deed is None:
        path.unlink()
    else:
        deed(damaged := bytearray(whole))
        path.write_bytes(damaged)
    again = opened(tmp_path, PLAIN)
    assert (rows(again), read(again)) == (expected, seen)
    assert f"{path} was damaged, or of before a compaction: written anew from the markers in the log" in caplog.text
    assert path.read_bytes() == whole
    caplog.clear()
    assert rows(opened(tmp_path, PLAIN)) == expected
    assert caplog.text == ""


def test_a_file_from_before_is_found_out(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """It is whole, only shorter: what the snapshot vouches for is more."""
    log = opened(tmp_path, PLAIN)
    transact(log, 7, 0, commit=False)
    make_durable(log)
    path = Path(log.active.path + ".aborted")
    before = path.read_bytes()
    transact(log, 7, 1, commit=False)
    make_durable(log)
    log.take_snapshot()
    path.write_bytes(before)
    assert len(rows(opened(tmp_path, PLAIN))) == 2
    assert "with 2 transactions where it had 1" in caplog.text


@pytest.mark.parametrize("size", [0, ROW.size - 3, ROW.size])
def test_rows_that_came_after_the_snapshot_are_not_needed(
    tmp_path: Path, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    log = begin(tmp_path)
    transact(log, 7, 20, commit=False)
    make_durable(log)
    expected = rows(log)
    os.truncate(log.active.path + ".aborted", size)
    assert rows(opened(tmp_path, PLAIN)) == expected
    assert caplog.text == ""


def test_rows_with_markers_before_the_start_stand_in_the_file_that_a_snapshot_vouches_for(tmp_path: Path) -> None:
    log = opened(tmp_path, PLAIN)
    transact(log, 7, 0, commit=False)
    transact(log, 7, 1, commit=False)
    make_durable(log)
    log.memo.start = 2
    log.memo.save()
    again = opened(tmp_path, PLAIN)
    assert [row.last for row in rows(again)] == [3]
    assert [row.last for row in read_rows(again.active.path)] == [1, 3]


def test_the_files_of_a_snapshot_are_flushed_in_the_order_in_which_they_were_written(tmp_path: Path) -> None:
    """In a set's order each process did it in another one: no crash between two of them could be played again."""
    log = open_partition("t", 0, str(tmp_path), PLAIN)
    for number in range(20):
        transact(log, 1, number, commit=False)
        make_durable(log)
        log.roll()
    assert log.aborted.unsettled(log.end) == [f"{one.path}.aborted" for one in log.segments[:-1]]
    assert log.aborted.unsettled(log.end) == []


def test_nothing_is_vouched_for_in_segments_that_are_gone(tmp_path: Path) -> None:
    log = begin(tmp_path)
    bases = [segment.base for segment in log.segments]
    assert [*log.aborted.vouched(0)] == bases
    assert [*log.aborted.vouched(bases[1])] == bases[1:]


# Folders of earlier versions


def as_before(log: Partition) -> None:
    """Its snapshot as earlier versions wrote it: the producers alone."""
    (path,) = Path(log.folder).glob("*.snapshot")
    data = log.producers.dump()
    path.write_bytes(snapshot.CRC.pack(crc32c(data)) + data)


def test_files_of_an_earlier_version_are_taken_up(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = begin(tmp_path)
    as_before(log)
    again = opened(tmp_path, PLAIN)
    assert (rows(again), again.producers.dump()) == (rows(log), log.producers.dump())
    assert caplog.text == ""


def test_what_an_earlier_version_left_out_before_the_start_is_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = begin(tmp_path)
    as_before(log)
    write_rows(log.segments[0].path, read_rows(log.segments[0].path)[1:])
    log.memo.start = 5
    log.memo.save()
    assert read(opened(tmp_path, PLAIN)).start == 5
    assert caplog.text == ""
    assert len(read_rows(log.segments[0].path)) == 7


def test_and_if_they_are_damaged_that_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    log = begin(tmp_path)
    as_before(log)
    wrong = [row._replace(producer_id=8) for row in read_rows(log.segments[1].path)]  # 8 has committed all it sent
    write_rows(log.segments[1].path, wrong)
    again = opened(tmp_path, PLAIN)
    assert (rows(again), read(again)) == (rows(log), read(log))
    assert f"{log.segments[1].path}.aborted was damaged" in caplog.text


def test_a_folder_that_was_taken_up_is_held_against_the_log_once(tmp_path: Path) -> None:
    log = begin(tmp_path)
    as_before(log)
    again = opened(tmp_path, PLAIN)
    assert again.snapped < again.end  # so that the next stop writes it
    again.take_snapshot()
    assert opened(tmp_path, PLAIN).snapped == again.end


# Snapshots


def test_a_snapshot_with_any_bit_wrong_is_passed_over_and_that_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = begin(tmp_path)
    (path,) = Path(log.folder).glob("*.snapshot")
    whole = path.read_bytes()
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << place % 8]) + whole[place + 1 :])
        caplog.clear()
        assert snapshot.newest(log.folder, [path.name]) is None
        assert f"{path} is torn or damaged: what it knew is looked for in the log" in caplog.text
        path.write_bytes(whole[:place])
        assert snapshot.newest(log.folder, [path.name]) is None


def test_no_snapshot_stands_in_for_that_of_another_offset(tmp_path: Path) -> None:
    log = begin(tmp_path)
    (path,) = Path(log.folder).glob("*.snapshot")
    other = path.rename(path.with_name(f"{log.end - 2:020}.snapshot"))
    assert snapshot.newest(log.folder, [other.name]) is None


# Beside a compaction


@pytest.mark.parametrize("deed", [flip, empty])
def test_in_a_compacted_log_too_what_matters_is_found_again(tmp_path: Path, deed: Callable[[bytearray], None]) -> None:
    log = begin(tmp_path, COMPACTED)
    compact(log)
    log.take_snapshot()
    transact(log, 7, 20, commit=False)
    flush(log)
    expected = read(log)
    path = Path(log.segments[0].path + ".aborted")
    deed(damaged := bytearray(path.read_bytes()))
    path.write_bytes(damaged)
    assert read(opened(tmp_path, COMPACTED)) == expected


def test_a_crash_between_a_compaction_and_the_next_snapshot_hides_and_shows_nothing(tmp_path: Path) -> None:
    log = begin(tmp_path, COMPACTED)
    compact(log)
    assert read(opened(tmp_path, COMPACTED)) == read(log)


def test_what_a_snapshot_vouches_for_after_a_compaction_is_what_is_there(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    log = begin(tmp_path, COMPACTED)
    compact(log)
    log.take_snapshot()
    transact(log, 7, 20, commit=False)
    make_durable(log)
    log.take_snapshot()
    assert rows(opened(tmp_path, COMPACTED)) == rows(log)
    assert caplog.text == ""


def test_a_marker_that_a_compaction_has_emptied_aborts_nothing(tmp_path: Path) -> None:
    log = begin(tmp_path)
    transact(log, 9, 20, commit=None)
    assert log.mark(bytearray(emptied(header_of(end_marker(9, 0, False, NOW)))))[0] == Error.NONE
    make_durable(log)
    log.take_snapshot()
    Path(log.segments[0].path + ".aborted").unlink()
    assert rows(opened(tmp_path, PLAIN)) == rows(log)


# The order of things on the disk


def test_what_a_snapshot_vouches_for_is_flushed_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a power cut leaves the snapshot without the rows, and a start reads the whole log for them."""
    log = opened(tmp_path, PLAIN)
    deeds: list[str] = []
    real_fsync, real_replace = os.fsync, os.replace

    def fsync(fd: int) -> None:
        deeds.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        real_fsync(fd)

    def replace(old: Any, new: Any) -> None:
        deeds.append(os.path.basename(new))
        real_replace(old, new)

    for sequence in range(2):  # the second time the file is there already
        transact(log, 7, sequence, commit=False)
        make_durable(log)
        deeds.clear()
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", fsync)
            patch.setattr(os, "replace", replace)
            log.take_snapshot()
        assert deeds == [f"{0:020}.aborted", "log", f"{log.end:020}.snapshot"]


def test_a_marker_whose_bits_are_wrong_is_an_error_and_no_commit(tmp_path: Path) -> None:
    log = begin(tmp_path)
    for path in Path(log.folder).glob("*.snapshot"):
        path.unlink()
    segment = log.segments[1]
    at, marker = next((at, b) for at, b in segment.headers() if b.control and b.producer_id == 7)
    with open(segment.path + ".log", "r+b") as file:
        file.seek(at + 61 + 8)  # the low byte of its type
        assert file.read(1) == b"\0", marker
        file.seek(-1, os.SEEK_CUR)
        file.write(b"\1")
    with pytest.raises(LogDamaged, match=rf"{segment.base:020}\.log is broken at byte {at} of"):
        opened(tmp_path, PLAIN)
