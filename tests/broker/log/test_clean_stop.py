"""The mark of a clean stop: what it proves is an error if it is not there, and costs a start nothing if it is."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crc32c")
pytest.importorskip("kio")

from tests.broker.log.damage import MARK, NOW, append, end, flush, follow_the_remedy, opened, read
from tests.broker.raw_client import RawClient
from tests.broker.record_batches import TRANSACTIONAL, Rec
from tests.broker.replication.pairs import pair
from waterclock.broker import Broker
from waterclock.broker.errors import LogDamaged
from waterclock.broker.log.clean_stop import CleanStop
from waterclock.broker.log.durable import close_durably
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import Said, open_partition
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.errors import UsageError

SETTINGS = TopicSettings(Settings({"log.segment.bytes": "20000"}))
FLUSHES = ("fsync", "fdatasync")


def fill(log: Partition, count: int, *, idempotent: bool = False) -> None:
    for _ in range(count):
        producer = (7, 0, log.end) if idempotent else (-1, -1, -1)
        append(log, Rec(b"k", b"v" * 1000, NOW), producer=producer)
    flush(log)


def stop(data: Path, log: Partition) -> None:
    close_durably(log)
    CleanStop(str(data)).write([log])


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A log of 50 batches in three segments, that was closed."""
    log = opened(tmp_path, SETTINGS)
    fill(log, 50)
    assert [segment.base for segment in log.segments] == [0, 18, 36]
    stop(tmp_path, log)
    return tmp_path


def path(data: Path, base: int, ending: str = "log") -> Path:
    return data / "log" / f"{base:020}.{ending}"


def flip(file: Path, place: int) -> None:
    whole = bytearray(file.read_bytes())
    whole[place] ^= 8
    file.write_bytes(whole)


def offsets(log: Partition) -> list[int]:
    return sorted(read(log).every)


# What is not there any more


def test_a_flipped_bit_behind_the_last_row_of_the_index_removes_nothing_after_a_clean_stop(data: Path) -> None:
    """It looks like the torn tail of a crash; but no crash came."""
    flip(path(data, 36), -100)
    size = path(data, 36).stat().st_size
    for _ in range(2):
        with pytest.raises(LogDamaged, match=rf"{36:020}\.log is broken at byte {size - size // 14} of {size}"):
            opened(data, SETTINGS)
    assert path(data, 36).stat().st_size == size


def test_a_log_that_is_shorter_than_at_the_stop_is_told_with_both_sizes(data: Path) -> None:
    size = path(data, 36).stat().st_size
    batch_size = size // 14
    os.truncate(path(data, 36), size - batch_size)
    with pytest.raises(LogDamaged, match=rf"{36:020}\.log has {size - batch_size} bytes, and had {size} when") as error:
        opened(data, SETTINGS)
    assert follow_the_remedy(error.value) == [MARK]
    assert offsets(opened(data, SETTINGS)) == list(range(49))


@pytest.mark.parametrize("base", [0, 18, 36])
def test_a_file_that_was_damaged_may_be_deleted_to_go_on_behind_it(
    data: Path, base: int, caplog: pytest.LogCaptureFixture
) -> None:
    lost = range(base, {0: 18, 18: 36, 36: 50}[base])
    path(data, base).unlink()
    log = opened(data, SETTINGS)
    assert (log.end, offsets(log)) == (50, [n for n in range(50) if n not in lost])
    assert f"has no records from offset {lost[0]} to before {lost[-1] + 1}: {base:020}.log is gone" in caplog.text
    fill(log, 2)
    for again in ("kill -9", "clean stop"):
        log = opened(data, SETTINGS)
        assert (log.end, offsets(log)) == (52, [n for n in range(52) if n not in lost]), again
        stop(data, log)
        caplog.clear()


def test_the_way_on_that_an_error_names_is_one(data: Path) -> None:
    flip(path(data, 36), -100)
    with pytest.raises(LogDamaged) as error:
        opened(data, SETTINGS)
    assert follow_the_remedy(error.value) == [f"{36:020}.log"]
    log = opened(data, SETTINGS)
    assert (log.end, offsets(log)) == (50, list(range(36)))


def test_a_whole_log_that_is_gone_is_told_and_its_offsets_are_not_given_again(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for base in (0, 18, 36):
        path(data, base).unlink()
    assert opened(data, SETTINGS).end == 50
    assert "has no records from offset 0 to before 50" in caplog.text


def test_a_log_that_was_empty_and_whose_file_a_power_cut_took_begins_where_it_began(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A group had committed an offset that nobody had written yet: all up to there was told to be lost."""
    log, place = opened(tmp_path, SETTINGS), str(tmp_path / "log")
    stop(tmp_path, log)
    for file in (tmp_path / "log").iterdir():
        file.unlink()
    again = open_partition("t", 0, place, SETTINGS, Said(CleanStop(str(tmp_path)).take(place), 0, 2, rebooted=True))
    assert (again.start, again.end, caplog.text) == (0, 0, "")


# What the mark says nothing of


def test_a_damaged_mark_is_told_and_the_log_is_read_as_after_a_crash(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for place in range((data / MARK).stat().st_size):
        flip(data / MARK, place)
        caplog.clear()
        assert CleanStop(str(data)).take(str(data / "log")) is None
        assert f"{data / MARK} is damaged: no stop is known to have been clean" in caplog.text
        flip(data / MARK, place)
    os.truncate(data / MARK, 30)
    assert offsets(opened(data, SETTINGS)) == list(range(50))


def test_a_log_that_was_put_there_by_hand_is_read_as_after_a_crash(data: Path, tmp_path: Path) -> None:
    (data / "log").rename(data / "other")
    (data / "other").rename(data / "log.by-hand")
    stop_of_another = CleanStop(str(data))
    assert stop_of_another.take(str(data / "log.by-hand")) is None
    assert stop_of_another.take(str(data / "log")) is not None
    assert stop_of_another.take(str(data / "log")) is None  # it changes from then on


def test_what_nobody_opened_is_as_it_was_and_stays_named(data: Path) -> None:
    """A leader whose follower has left does not open the journal."""
    stop = CleanStop(str(data))
    stop.remove()
    stop.write([])
    assert CleanStop(str(data)).take(str(data / "log")) is not None


def test_a_log_that_has_grown_since_the_mark_was_written_is_told_of_and_read(
    data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = (data / MARK).read_bytes()
    log = opened(data, SETTINGS)
    fill(log, 1)
    (data / MARK).write_bytes(mark)
    assert offsets(opened(data, SETTINGS)) == list(range(51))
    assert f"{36:020}.log has grown since {data / MARK} was written" in caplog.text


@pytest.mark.parametrize(
    ("why", "deed"),
    [
        ("a compaction is at it", lambda log: setattr(log, "upkept", True)),
        ("something of it is not durable", lambda log: append(log, Rec(b"k", b"v", NOW))),
        ("the disk did not take its producers", lambda log: fill(log, 1, idempotent=True)),
    ],
)
def test_a_partition_that_the_mark_cannot_vouch_for_is_not_named(
    tmp_path: Path, why: str, deed: Callable[[Partition], None]
) -> None:
    log = opened(tmp_path, SETTINGS)
    deed(log)
    CleanStop(str(tmp_path)).write([log])
    assert CleanStop(str(tmp_path)).take(log.folder) is None, why
    log.upkept = False
    stop(tmp_path, log)
    assert CleanStop(str(tmp_path)).take(log.folder) is not None, why


def test_a_disk_that_refuses_the_mark_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = opened(tmp_path, SETTINGS)
    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", refuse)
        stop(tmp_path, log)
    assert "clean-stop cannot be written" in caplog.text
    assert CleanStop(str(tmp_path)).take(log.folder) is None


def refuse(*arguments: Any) -> None:
    raise OSError(28, "No space left on device")


# What a start costs


class Flushes:
    """How many there were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.paths: list[str] = []
        for name in FLUSHES:
            monkeypatch.setattr(os, name, self._counted(getattr(os, name)))

    def _counted(self, real: Any) -> Any:
        def flush(fd: int) -> None:
            self.paths.append(os.readlink(f"/proc/self/fd/{fd}"))
            real(fd)

        return flush


def state(folder: Path) -> dict[str, tuple[int, int]]:
    return {file.name: (file.stat().st_mtime_ns, file.stat().st_ino) for file in folder.iterdir()}


@pytest.mark.parametrize("idempotent", [False, True])
def test_a_log_that_the_mark_holds_for_is_neither_flushed_nor_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, idempotent: bool
) -> None:
    log = opened(tmp_path, SETTINGS)
    fill(log, 50, idempotent=idempotent)
    stop(tmp_path, log)
    before, left = state(tmp_path / "log"), CleanStop(str(tmp_path))
    flushes = Flushes(monkeypatch)
    again = open_partition("t", 0, log.folder, SETTINGS, Said(left.take(log.folder)))
    assert (again.end, list(again.producers.known)) == (50, [7] * idempotent)
    assert flushes.paths == []
    close_durably(again)
    assert state(tmp_path / "log") == before


@pytest.mark.parametrize("batches", [0, 50])
def test_what_is_proved_durable_is_not_flushed_again_after_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batches: int
) -> None:
    log = opened(tmp_path, SETTINGS)
    fill(log, batches, idempotent=True)
    if batches:
        log.take_snapshot()
    flushes = Flushes(monkeypatch)
    again = opened(tmp_path, SETTINGS)
    assert flushes.paths == []
    fill(again, 1)
    assert flushes.paths == [again.active.path + ".log", again.folder]  # the name may not be durable yet


def test_aborted_transactions_of_producers_that_are_forgotten_are_found_after_a_clean_stop(tmp_path: Path) -> None:
    log = opened(tmp_path, SETTINGS)
    append(log, Rec(b"k", b"v", NOW), producer=(7, 0, 0), attributes=TRANSACTIONAL)
    end(log, 7, commit=False)
    log.producers.forget(NOW + 1)
    stop(tmp_path, log)
    again = opened(tmp_path, SETTINGS)
    assert (again.producers.known, again.aborted.between(0, 9)) == ({}, [(7, 0, 1)])


# The whole broker


def test_the_mark_is_gone_while_the_broker_runs_and_comes_back_with_its_end(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        assert client.produce("t", b"kept") == (0, 0)
        assert not (tmp_path / MARK).exists()
    (folder,) = (tmp_path / "topics").iterdir()
    left = CleanStop(str(tmp_path)).take(str(folder))
    assert left is not None
    assert left.end == 1


def test_the_mark_is_removed_durably_before_anything_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Broker(tmp_path) as broker:
        broker.create_topic("t")
    done: list[str] = []
    real_unlink, real_fsync, real_pwrite = os.unlink, os.fsync, os.pwrite

    def unlink(file: Any, **place: Any) -> None:
        done.append(os.path.basename(file))
        real_unlink(file, **place)

    def fsync(fd: int) -> None:
        done.append("flushed " + os.readlink(f"/proc/self/fd/{fd}"))
        real_fsync(fd)

    def pwrite(*arguments: Any) -> int:
        done.append("appended")
        return real_pwrite(*arguments)

    monkeypatch.setattr(os, "unlink", unlink)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "pwrite", pwrite)
    with Broker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        assert client.produce("t", b"kept") == (0, 0)
    removed = done.index(MARK)
    assert done[removed + 1] == f"flushed {tmp_path}"
    assert "appended" not in done[:removed]


def test_a_start_that_fails_leaves_the_mark_for_the_next(tmp_path: Path) -> None:
    with Broker(tmp_path / "one") as broker:
        port = int(broker.bootstrap.rpartition(":")[2])
        with Broker(tmp_path / "two") as other:
            other.create_topic("t")
        with pytest.raises(UsageError, match="cannot listen"):
            Broker(tmp_path / "two", port=port).start()
    assert (tmp_path / "two" / MARK).exists()


def test_a_broker_whose_log_lacks_something_of_the_mark_does_not_start_and_says_why(tmp_path: Path) -> None:
    with Broker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        assert client.produce("t", b"kept") == (0, 0)
    (folder,) = (tmp_path / "topics").iterdir()
    os.truncate(folder / f"{0:020}.log", 10)
    for _ in range(2):
        with pytest.raises(LogDamaged, match="has 10 bytes, and had"):
            Broker(tmp_path).start()
    (folder / f"{0:020}.log").unlink()
    with Broker(tmp_path) as broker, RawClient(broker.bootstrap) as client:
        assert client.produce("t", b"next") == (0, 1)


def test_a_follower_leaves_a_mark_too_and_it_names_the_journal(tmp_path: Path) -> None:
    with pair(tmp_path) as both, RawClient(both.one.bootstrap) as client:
        assert client.produce("t", b"kept") == (0, 0)
        both.two.close()
        with both.again("two", both.one.bootstrap):
            assert not (tmp_path / "two" / MARK).exists()
        both.one.close()
    for name in ("one", "two"):
        left = CleanStop(str(tmp_path / name)).take(str(tmp_path / name / "journal"))
        assert left is not None
        assert left.end > 0
