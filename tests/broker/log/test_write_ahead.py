"""The write-ahead log alone: whatever a power cut takes from the files themselves is put back."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crc32c")

from waterclock.broker.knobs import Knobs, turned
from waterclock.broker.log import write_ahead
from waterclock.broker.log.replay import replay, whole_frames
from waterclock.broker.log.segment import Segment
from waterclock.broker.log.write_ahead import NAMES, SegmentBytes, WriteAheadLog

RUN = 7
PATHS = ("topics/a-0.0", "topics/b-1.0", "journal")


class Disk:
    """Segments in a data folder; `cut_power` leaves each file at a size that a power cut could leave."""

    def __init__(self, folder: Path, seed: int = 0) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.log = WriteAheadLog(str(folder), RUN)
        self.segments: list[Segment] = []
        for path in PATHS:
            (folder / path).mkdir(parents=True, exist_ok=True)
            self.segments.append(Segment(str(folder / path), 0))
        self.durable = dict.fromkeys(self.segments, b"")  # what the log was handed

    def append(self, *several: tuple[int, bytes]) -> None:
        """Append to segments, by number, and make it durable with one frame."""
        appended = []
        for number, data in several:
            segment = self.segments[number]
            os.pwrite(segment.fd, data, segment.size)
            appended.append(SegmentBytes(segment, segment.size, len(data)))
            segment.size += len(data)
            self.durable[segment] += data
        self.log.write(appended)

    def cut_power(self) -> None:
        self.log.abandon()
        for segment in self.segments:
            os.ftruncate(segment.fd, self.random.randint(segment.settled, segment.size))

    def holds_all(self) -> bool:
        replay(str(self.folder), RUN, stopped=False).finish()
        return all(Path(segment.path + ".log").read_bytes() == data for segment, data in self.durable.items())


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


@contextmanager
def room(size: int) -> Iterator[None]:
    with turned(Knobs(ahead_room=size)):
        yield


def test_what_was_written_ahead_is_put_back_byte_by_byte_after_a_power_cut(disk: Disk) -> None:
    disk.append((0, b"one"), (1, b"two"))
    disk.append((0, b"three"), (2, b"four"))
    for segment in disk.segments:
        os.ftruncate(segment.fd, 0)
    assert disk.holds_all()
    assert not any((disk.folder / name).exists() for name in NAMES)


@pytest.mark.parametrize("seed", range(20))
def test_so_it_is_however_often_the_halves_were_turned(tmp_path: Path, seed: int) -> None:
    with room(2000):
        disk = Disk(tmp_path, seed)
        for _ in range(100):
            count = disk.random.randint(1, 3)
            disk.append(*((number, disk.random.randbytes(99)) for number in disk.random.sample(range(3), count)))
            if disk.log.unsettled and disk.random.random() < 0.5:
                disk.log.settle()
        disk.cut_power()
        assert disk.holds_all()


def test_a_half_is_begun_anew_only_when_all_of_it_stands_in_its_own_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(Segment, "flush", lambda segment: flushed.append(Path(segment.path).parent.name))
    with room(1000):
        disk = Disk(tmp_path)
        disk.append((0, b"x" * 700))
        disk.append((1, b"x" * 700))  # into the other half
        assert not flushed
        disk.append((2, b"x" * 700))
        assert flushed == ["a-0.0"]
        disk.log.settle()
        assert flushed == ["a-0.0", "b-1.0"]
        disk.append((2, b"x" * 700))  # nothing is left to be flushed for it
        assert flushed == ["a-0.0", "b-1.0"]


def test_a_segment_that_stands_is_not_put_back_whatever_it_has_become(disk: Disk) -> None:
    disk.append((0, b"old"), (1, b"kept"))
    disk.log.stands(disk.segments[:1])
    rewritten = Path(disk.segments[0].path + ".log")
    rewritten.write_bytes(b"rewritten, and longer")
    os.ftruncate(disk.segments[1].fd, 0)
    disk.durable[disk.segments[0]] = b"rewritten, and longer"
    assert disk.holds_all()


def test_to_say_so_flushes_it_first(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    disk.append((0, b"old"))
    monkeypatch.setattr(Segment, "flush", lambda segment: steps.append("flush"))
    real = disk.log._write
    monkeypatch.setattr(disk.log, "_write", lambda rows: (steps.append("say"), real(rows)))
    disk.log.stands(disk.segments[:1])
    assert steps == ["flush", "say"]


def test_partitions_and_segments_that_are_gone_are_passed_over(disk: Disk) -> None:
    disk.append((0, b"gone"), (1, b"gone too"), (2, b"kept"))
    for path in (disk.folder / PATHS[0]).iterdir():
        path.unlink()
    (disk.folder / PATHS[0]).rmdir()
    Path(disk.segments[1].path + ".log").unlink()
    os.ftruncate(disk.segments[2].fd, 0)
    replay(str(disk.folder), RUN, stopped=False).finish()
    assert not (disk.folder / PATHS[0]).exists()
    assert not Path(disk.segments[1].path + ".log").exists()
    assert Path(disk.segments[2].path + ".log").read_bytes() == b"kept"


def test_a_file_that_ends_before_what_was_written_once_is_said_and_left(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    os.pwrite(disk.segments[0].fd, b"settled", 0)
    disk.segments[0].size = 7
    disk.append((0, b"ahead"))
    os.ftruncate(disk.segments[0].fd, 3)
    replay(str(disk.folder), RUN, stopped=False).finish()
    assert Path(disk.segments[0].path + ".log").read_bytes() == b"set"
    assert "ends before byte 7" in caplog.text


def test_a_flipped_bit_costs_one_frame_and_is_said_with_its_number(
    disk: Disk, caplog: pytest.LogCaptureFixture
) -> None:
    for number in range(4):
        disk.append((0, b"%d" % number * 10), (1, b"%d" % number * 10))
    path = disk.folder / NAMES[0]
    whole = path.read_bytes()
    end = whole.rindex(b"3" * 10) + 10
    for at in range(0, end, 7):
        caplog.clear()
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        hit = at * 4 // end
        assert [frame.number for frame in whole_frames(path.read_bytes())] == [n + 1 for n in range(4) if n != hit]
        assert disk.holds_all()  # no power was cut
        if hit < 3:  # behind the last one nothing says that there was one
            assert f"frames {hit + 1} to {hit + 1} cannot be read" in caplog.text


def test_a_last_frame_of_the_fuller_half_that_is_damaged_is_missed_by_the_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with room(1000):
        disk = Disk(tmp_path)
        for _ in range(3):
            disk.append((0, b"x" * 400))
        path = tmp_path / NAMES[0]
        path.write_bytes(path.read_bytes()[:700] + b"?" + path.read_bytes()[701:])
        assert disk.holds_all()
    assert "frames 2 to 2 cannot be read" in caplog.text


@pytest.mark.parametrize(("half", "level"), [(0, "WARNING"), (1, "ERROR")])
def test_a_half_whose_beginning_is_gone_was_begun_anew_if_it_is_the_earlier_one(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, half: int, level: str
) -> None:
    with room(1000):
        disk = Disk(tmp_path)
        for _ in range(4):  # two frames in each half
            disk.append((0, b"x" * 400))
        path = tmp_path / NAMES[half]
        path.write_bytes(
            b"?" + path.read_bytes()[1:]
        )  # as power that is cut in the midst of the next frame may leave it
        assert disk.holds_all()
    first = 1 + 2 * half
    (said,) = [record for record in caplog.records if f"frames {first} to {first}" in record.getMessage()]
    assert said.levelname == level


def test_frames_of_an_earlier_turn_are_not_put_back(tmp_path: Path) -> None:
    with room(1000):
        disk = Disk(tmp_path)
        for size in (400, 400, 900, 300):  # the second half, and the first one anew over the longer ones of before
            disk.append((0, os.urandom(size)))
            disk.log.settle()
        newest = next(whole_frames((tmp_path / NAMES[0]).read_bytes()))
        assert (newest.number, newest.first) == (4, 4)
        disk.cut_power()
        assert disk.holds_all()


def test_what_an_earlier_turn_has_left_behind_is_not_put_back_over_what_was_rewritten_since(tmp_path: Path) -> None:
    with room(1000):
        disk = Disk(tmp_path)
        disk.append((0, b"x" * 300))
        disk.append((1, b"old" * 100))  # stays behind the frames of the next turn
        disk.append((2, b"x" * 600))
        disk.log.stands(disk.segments[1:2])  # and this goes with the turn after that
        Path(disk.segments[1].path + ".log").write_bytes(b"rewritten")
        disk.durable[disk.segments[1]] = b"rewritten"
        for size in (300, 800):
            disk.log.settle()
            disk.append((0, b"y" * size))
        assert disk.holds_all()


@pytest.mark.parametrize("turns", [1, 2, 3])
def test_turns_while_a_full_half_is_flushed_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turns: int
) -> None:
    """The half is begun anew meanwhile, and may be full again: what is in it then has not been flushed."""
    with room(1000):
        disk = Disk(tmp_path)
        for _ in range(2):
            disk.append((0, b"x" * 600))
        real = Segment.flush

        def flush(segment: Segment) -> None:
            monkeypatch.setattr(Segment, "flush", real)
            real(segment)
            for turn in range(turns):
                disk.append((1 + turn % 2, b"y" * 600))

        monkeypatch.setattr(Segment, "flush", flush)
        disk.log.settle()
        disk.append((0, b"z" * 600))
        assert disk.log.unsettled
        disk.log.settle()
        disk.cut_power()
        assert disk.holds_all()


def test_it_is_on_the_disk_when_it_is_said_to_be(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []
    monkeypatch.setattr(os, "fdatasync", lambda fd: flushed.append(Path(os.readlink(f"/proc/self/fd/{fd}")).name))
    disk.append((0, b"one"), (1, b"two"))
    disk.append((0, b"three"))
    assert flushed == [NAMES[0]] * 2


def test_what_is_put_back_is_durable_before_the_log_goes(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    disk.append((0, b"one"), (1, b"two"))
    monkeypatch.setattr(os, "fdatasync", lambda fd: steps.append(Path(os.readlink(f"/proc/self/fd/{fd}")).parent.name))
    monkeypatch.setattr("waterclock.broker.log.replay.remove", lambda folder: steps.append("remove"))
    replay(str(disk.folder), RUN, stopped=False).finish()
    assert steps == ["a-0.0", "b-1.0", "remove"]


def test_where_there_is_no_room_nothing_is_written_and_nothing_left_open(
    disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    def left_open() -> list[Path]:
        several = (Path(os.path.realpath(one)) for one in Path("/proc/self/fd").iterdir())
        return [path for path in several if path.is_relative_to(disk.folder)]

    before = left_open()
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", refuse)
        with pytest.raises(OSError, match="No space left"):
            disk.append((0, b"x"))
    assert left_open() == before
    disk.append((0, b"y"))
    disk.log.close()
    assert not any((disk.folder / name).exists() for name in NAMES)


@pytest.mark.parametrize("written", [None, 10])
def test_a_frame_that_the_disk_does_not_take_is_refused_and_the_next_one_takes_its_place(
    disk: Disk, monkeypatch: pytest.MonkeyPatch, written: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A campaign with full disks ended the broker so: its room is reserved, and the write was refused all the same."""
    real, log = os.pwrite, disk.log

    def refuse(fd: int, data: bytes, at: int) -> int:
        if fd not in log._files:
            return real(fd, data, at)
        if written is None or at != log._at:  # it takes a part, and then no more
            raise OSError(27, "File too large")
        return real(fd, data[:written], at)

    disk.append((0, b"one"))
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        patch.setattr(write_ahead, "flush_failed", lambda error: pytest.fail("the process would end"))
        with pytest.raises(OSError, match="too large"):
            log.write([SegmentBytes(disk.segments[0], 0, 3)])
    disk.append((1, b"two"))
    disk.cut_power()
    assert disk.holds_all()
    assert "cannot be read" not in caplog.text  # no number is missing


def test_a_start_without_a_log_touches_nothing(tmp_path: Path) -> None:
    replay(str(tmp_path), RUN, stopped=False).finish()
    assert not list(tmp_path.iterdir())
