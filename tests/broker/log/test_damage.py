"""Files that are torn, broken or refused: what a crash explains is mended, anything else is told, nothing is skipped."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crc32c")
pytest.importorskip("kio")

from tests.broker.log.damage import NOW, append, flush, flushes
from tests.broker.raw_client import RawClient
from tests.broker.record_batches import Rec, batch, stored
from waterclock.broker import Broker
from waterclock.broker.errors import LogDamaged
from waterclock.broker.log.index import ENTRY, Index
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.log.removal import begin_at
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.broker.wire.errors import Error

SETTINGS = TopicSettings(Settings({"log.segment.bytes": "20000"}))


def opened(folder: Path) -> Partition:
    return open_partition("t", 0, str(folder), SETTINGS)


def fill(log: Partition, count: int, size: int = 1000) -> None:
    for place in range(count):
        append(log, Rec(b"k", b"%d" % (place % 10) * size, NOW + log.end), producer=(7, 0, log.end))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A durable log of 50 batches in three segments."""
    log = opened(tmp_path)
    fill(log, 50)
    flush(log)
    assert [segment.base for segment in log.segments] == [0, 18, 36]
    return tmp_path


def content(log: Partition) -> list[int]:
    found = (log.read(segment.base, 1 << 30, log.high) for segment in log.segments)
    return [b.base for one in found if one is not None for b in stored(one.read())]


def at(folder: Path, base: int, ending: str = "log") -> Path:
    return folder / f"{base:020}.{ending}"


def rewrite(path: Path, place: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(place, os.SEEK_SET if place >= 0 else os.SEEK_END)
        file.write(data)


# What is beside the records


@pytest.mark.parametrize("base", [0, 18, 36])
@pytest.mark.parametrize(
    "damage", ["gone", "empty", "torn", "zeros", "one bit", "another segment's", "wrong, checks and all"]
)
def test_an_index_that_is_no_good_is_found_again(
    folder: Path, base: int, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = at(folder, base, "index")
    whole = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "torn":
        path.write_bytes(whole[: -ENTRY.size // 2])
    elif damage == "zeros":
        path.write_bytes(bytes(len(whole)))
    elif damage == "one bit":
        rewrite(path, ENTRY.size + 9, bytes([whole[ENTRY.size + 9] ^ 16]))
    elif damage == "wrong, checks and all":
        path.write_bytes(b"")
        index = Index(str(path), base)
        index.note(base, 0, -1)
        index.note(base + 4, 5000, NOW)
        index.save(6000)
    else:
        path.write_bytes(at(folder, 18 if base != 18 else 0, "index").read_bytes())
    log = opened(folder)
    assert (log.end, content(log)) == (50, list(range(50)))
    assert (f"{base:020}.index does not fit" in caplog.text) == (damage == "wrong, checks and all")
    for offset in (0, 17, 18, 35, 36, 49):
        found = log.read(offset, 1, log.high)
        assert found is not None
        assert stored(found.read())[0].base == offset
    flush(log)
    assert len(path.read_bytes()) >= len(whole) - ENTRY.size


def test_a_torn_snapshot_is_passed_over(folder: Path) -> None:
    log = opened(folder)
    log.take_snapshot()
    fill(log, 1)
    flush(log)
    log.take_snapshot()
    rewrite(max(folder.glob("*.snapshot")), 7, b"\xff")
    assert opened(folder).producers.known[7].sent[-1].end == 50


def test_a_producer_whose_records_are_all_retired_is_known_after_a_crash(tmp_path: Path) -> None:
    log = opened(tmp_path)
    append(log, Rec(b"k", b"v", NOW), producer=(8, 0, 0))
    for _ in range(30):
        append(log, Rec(b"k", b"v" * 1000, NOW))
    flush(log)
    begin_at(log, log.segments[1].base)
    again = opened(tmp_path)
    assert (again.start > 0, list(again.producers.known)) == (True, [8])


@pytest.mark.parametrize(
    "data", [b"", b"[]", b'{"start": 1', b'{"start": null}', b"\xff\xfe", b'{"start": 1, "epochs": 3}']
)
def test_a_memo_that_cannot_be_read_is_told_with_the_way_on(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "memo.json").write_bytes(data)
    with pytest.raises(LogDamaged, match=r"memo\.json cannot be read .* rename \S+memo\.json to "):
        opened(tmp_path)
    (tmp_path / "memo.json").unlink()
    assert opened(tmp_path).start == 0


# The records


@pytest.mark.parametrize("more", [-1, 100])
def test_damage_at_the_end_of_an_earlier_segment_is_told_with_file_and_byte(folder: Path, more: int) -> None:
    """A byte is missing there, or there is garbage behind it."""
    opened(folder).take_snapshot()  # so that nothing reads the segment again
    path = at(folder, 18)
    data = path.read_bytes()
    path.write_bytes(data[:-1] if more < 0 else data + b"x" * more)
    place = len(data) - (len(data) // 18 if more < 0 else 0)
    with pytest.raises(LogDamaged, match=rf"{18:020}\.log is broken at byte {place} of {len(data) + more}:"):
        opened(folder)


def test_damage_that_a_reader_meets_is_told_and_the_others_are_served(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t", 2)
        for partition in (0, 1):
            for _ in range(3):
                client.produce("t", b"v" * 3000, partition=partition)
        log = broker.inside.topics.partition("t", 0)
        assert log is not None
        rewrite(Path(log.active.path + ".log"), log.active.locate(1)[0] + 8, b"\0\0\0\1")
        rows = [{"partition": n, "fetch_offset": 1, "partition_max_bytes": 4000} for n in (0, 1)]
        topics = [{"topic": "t", "partitions": rows}]
        limits = {"max_wait": timedelta(0), "min_bytes": 1, "max_bytes": 10**6}
        answer = client.ask("Fetch", 12, topics=topics, forgotten_topics_data=[], **limits)
        first, second = answer.responses[0].partitions
        assert (first.error_code.value, second.error_code.value) == (Error.CORRUPT_MESSAGE, 0)
        assert [b.base for b in stored(second.records)] == [1]
    assert "is broken at byte" in caplog.text


# A crash of the machine


def test_a_torn_segment_behind_which_nothing_was_durable_ends_the_log(folder: Path) -> None:
    """Several segments were begun between two flushes; the power went, and the middle one is torn."""
    log = opened(folder)
    fill(log, 40)
    assert [segment.base for segment in log.segments] == [0, 18, 36, 54, 72]
    os.truncate(log.segments[3].path + ".log", 2000)
    again = opened(folder)
    assert (again.end, content(again)) == (55, list(range(55)))
    assert not at(folder, 72).exists()
    assert again.producers.known[7].sent[-1].last == 54


def test_a_segment_whose_name_is_lost_takes_what_came_after_with_it(folder: Path) -> None:
    log = opened(folder)
    fill(log, 40)
    log.segments[3].delete()
    again = opened(folder)
    assert (again.end, content(again)) == (54, list(range(54)))


@pytest.mark.parametrize("place", [8, 17, 30, 300])
def test_a_batch_with_a_wrong_bit_behind_what_was_durable_ends_the_log(folder: Path, place: int) -> None:
    log = opened(folder)
    fill(log, 3)
    path, start = Path(log.active.path + ".log"), log.active.locate(51)[0]
    rewrite(path, start + place, bytes([path.read_bytes()[start + place] ^ 4]))
    assert opened(folder).end == 51


def test_damage_in_what_was_durable_is_never_cut_off(folder: Path) -> None:
    """In the active segment too: its index says what was durable, and so does a snapshot."""
    path = at(folder, 36)
    whole = path.read_bytes()
    log = opened(folder)
    named = log.active.index.at[-1]
    rewrite(path, named + 100, b"\0\0")
    with pytest.raises(LogDamaged, match=rf"{36:020}\.log is broken at byte {named} of {len(whole)}"):
        opened(folder)
    path.write_bytes(whole)
    log.take_snapshot()
    rewrite(path, -10, b"\0")
    with pytest.raises(LogDamaged, match=rf"{36:020}\.log is broken at byte"):
        opened(folder)


def test_an_offset_that_does_not_follow_ends_the_log(folder: Path) -> None:
    """An offset has no checksum; in a log that was never compacted, each follows the one before."""
    log = opened(folder)
    fill(log, 3)
    rewrite(Path(log.active.path + ".log"), log.active.locate(51)[0] + 6, b"\x01")
    assert opened(folder).end == 51


def test_what_is_found_after_a_crash_is_flushed_before_it_is_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(folder)
    fill(log, 40)
    flushed: list[str] = []
    real = os.fdatasync

    def fdatasync(fd: int) -> None:
        flushed.append(os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        real(fd)

    monkeypatch.setattr(os, "fdatasync", fdatasync)
    assert opened(folder).high == 90
    assert flushed == [f"{base:020}.log" for base in (36, 54, 72)]


def test_every_segment_that_was_begun_is_flushed_however_many(tmp_path: Path) -> None:
    log = opened(tmp_path)
    fill(log, 300)
    assert [segment for segment, _ in log.unflushed()] == log.segments
    assert len(log.segments) > 10


def test_no_snapshot_is_written_before_what_it_knows_is_durable(tmp_path: Path) -> None:
    log = open_partition("t", 0, str(tmp_path), TopicSettings(Settings()))
    fill(log, 50, 100_000)
    log.flushed(0, [])
    log.take_snapshot()
    assert not [*tmp_path.glob("*.snapshot")]
    flush(log)
    assert [*tmp_path.glob("*.snapshot")] == [tmp_path / f"{50:020}.snapshot"]


def test_a_snapshot_is_written_though_producers_never_pause(tmp_path: Path) -> None:
    """What it was taken at becomes durable later, while more is appended: at no moment is everything durable."""
    settings = TopicSettings(Settings())
    log = open_partition("t", 0, str(tmp_path), settings)
    for _ in range(12):
        end, files = log.end, log.unflushed()
        fill(log, 10, 100_000)
        for segment, _ in files:
            segment.flush()
        log.flushed(end, files)
    assert [*tmp_path.glob("*.snapshot")]


# A disk that refuses


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, written: int | None = None) -> None:
    def pwrite(fd: int, data: Any, place: int) -> int:
        if written is None or taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken.append(real(fd, bytes(data)[:written], place))
        return taken[0]

    real, taken = getattr(os, name), list[int]()
    monkeypatch.setattr(os, name, pwrite)


@pytest.mark.parametrize("written", [None, 0, 30, 61, 500])
def test_a_full_disk_refuses_and_nothing_has_changed_and_later_it_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch, written: int | None
) -> None:
    log = opened(folder)
    data = batch([Rec(b"k", b"v" * 600, NOW)], producer=(7, 0, 50))
    with monkeypatch.context() as patch:
        refuse(patch, "pwrite", written)
        assert log.append(memoryview(bytearray(data)), NOW) == (Error.KAFKA_STORAGE_ERROR, -1)
    assert (log.end, opened(folder).end) == (50, 50)
    assert log.append(memoryview(bytearray(data)), NOW) == (Error.NONE, 50)
    flush(log)
    assert opened(folder).end == 51


@pytest.mark.parametrize("cuts", [True, False])
def test_what_a_refused_write_left_is_gone_durably_before_the_next_file_has_anything(
    folder: Path, monkeypatch: pytest.MonkeyPatch, cuts: bool
) -> None:
    """A power cut brought it back, or nobody had cut it off: a file that was closed ended with half a batch."""
    log = opened(folder)
    size, closed = log.active.size, log.active.path
    with monkeypatch.context() as patch:
        refuse(patch, "pwrite", 500)
        if not cuts:
            patch.setattr(os, "ftruncate", lambda *_: (_ for _ in ()).throw(OSError(errno.EIO, "not now")))
        data = memoryview(bytearray(batch([Rec(b"k", b"v" * 600, NOW)])))
        assert log.append(data, NOW) == (Error.KAFKA_STORAGE_ERROR, -1)
    log.roll()
    fill(log, 1)
    flushed = flushes(monkeypatch)
    flush(log)
    assert flushed == [(f"{closed}.log", size), (f"{log.active.path}.log", log.active.size)]
    fill(log, 1)
    flush(log)
    assert len(flushed) == 3  # the closed one needs no more


def test_a_disk_that_is_full_for_the_notes_only_stops_nobody(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = opened(folder)
    fill(log, 10)
    files = log.unflushed()
    with monkeypatch.context() as patch:
        refuse(patch, "pwrite")
        patch.setattr(os, "replace", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        log.flushed(log.end, files)
        log.take_snapshot()
    assert log.durable == 60
    again = opened(folder)
    assert (again.end, content(again)) == (60, list(range(60)))


def test_a_client_is_told_that_the_disk_is_full_and_is_served_again_when_it_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with Broker() as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        with monkeypatch.context() as patch:
            refuse(patch, "pwrite")
            assert client.produce("t", b"lost") == (Error.KAFKA_STORAGE_ERROR, -1)
        assert client.produce("t", b"kept") == (0, 0)


FAILING = """
import os, sys
from waterclock.broker import Broker
def fdatasync(fd):
    raise OSError(5, "Input/output error")
with Broker(sys.argv[1]) as broker:
    broker.create_topic("t")
    os.fdatasync = fdatasync
    print(broker.bootstrap, flush=True)
    sys.stdin.read()
"""


def test_a_flush_that_failed_ends_the_process_and_nobody_is_told_that_it_is_kept(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FAILING, str(tmp_path)], stdin=-1, stdout=-1, stderr=-1, text=True
    )
    assert process.stdout is not None
    with RawClient(process.stdout.readline().strip()) as client:
        client.send_produce("t", b"v")
        with pytest.raises(ConnectionError):
            client.receive()
    _, errors = process.communicate(timeout=20)
    assert process.returncode == 1
    assert "a flush failed, the process ends" in errors


def test_what_is_appended_where_a_torn_tail_was_is_flushed_like_anything_else(folder: Path) -> None:
    rewrite(at(folder, 36), -1, b"?")
    log = opened(folder)
    fill(log, 1, 10)
    assert [(segment, size) for segment, size in log.unflushed()] == [(log.active, log.active.size)]
