"""Which segments retention takes, to the millisecond and the byte; and what an open transaction and a new file need."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("crc32c")
pytest.importorskip("cramjam")

from tests.broker.log.damage import NOW, append, flush
from tests.broker.record_batches import TRANSACTIONAL, Rec, stored
from waterclock.broker.log import snapshot
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.log.removal import begin_at, first_kept
from waterclock.broker.settings import Settings, TopicSettings
from waterclock.disk import replacing, write_whole

KEEP_MS = 10_000


@pytest.fixture
def log(tmp_path: Path) -> Partition:
    """Four segments of one batch each, a second apart."""
    settings = TopicSettings(Settings({"log.segment.bytes": "1000"}))
    settings.replace({"retention.ms": str(KEEP_MS)})
    log = open_partition("t", 0, str(tmp_path), settings)
    for place in range(4):
        append(log, Rec(b"k", b"v" * 700, NOW + place * 1000), now_ms=NOW + place * 1000)
    flush(log)
    return log


def retired(log: Partition, now_ms: int) -> list[int]:
    """Where the segments began that went."""
    before = [segment.base for segment in log.segments]
    begin_at(log, first_kept(log, now_ms))
    return [base for base in before if base not in [segment.base for segment in log.segments]]


def test_a_segment_goes_a_millisecond_after_its_latest_record_is_too_old(log: Partition) -> None:
    assert retired(log, NOW + KEEP_MS) == []
    assert retired(log, NOW + KEEP_MS + 1) == [0]
    assert retired(log, NOW + KEEP_MS + 2001) == [1, 2]
    assert log.start == 3


def test_where_all_is_too_old_a_new_segment_is_begun(log: Partition) -> None:
    assert retired(log, NOW + KEEP_MS + 3001) == [0, 1, 2, 3]
    assert [(segment.base, segment.size) for segment in log.segments] == [(4, 0)]
    assert retired(log, NOW + 10**9) == []


def test_nothing_goes_that_readers_have_not_seen(log: Partition) -> None:
    log.high = 2
    assert retired(log, NOW + 10**9) == [0, 1]


def test_what_readers_have_not_seen_is_not_counted(log: Partition) -> None:
    """A new leader may lack it: less was left then than the partition may keep."""
    size = log.segments[0].size
    log.settings.replace({"retention.bytes": str(2 * size), "retention.ms": "-1"})
    log.high = 3
    assert retired(log, NOW) == [0]
    log.roll()
    assert retired(log, NOW) == []
    log.high = 4
    assert retired(log, NOW) == [1]


def test_a_compacted_topic_loses_nothing_by_age(log: Partition) -> None:
    log.settings.replace({**log.settings.given, "cleanup.policy": "compact", "retention.bytes": "0"})
    assert retired(log, NOW + 10**9) == []
    log.memo.start = 2
    assert retired(log, NOW + 10**9) == [0, 1]


def test_what_a_compaction_has_stays(log: Partition) -> None:
    log.upkept = True
    assert retired(log, NOW + 10**9) == []


def test_the_last_stable_offset_does_not_lie_before_the_start(log: Partition) -> None:
    append(log, *[Rec(b"k", b"v", NOW)] * 3, producer=(7, 0, 0), attributes=TRANSACTIONAL)
    flush(log)
    assert log.stable == 4
    log.memo.start = 6
    assert log.stable == 6


def test_the_name_of_a_new_file_is_flushed_with_its_first_bytes(
    log: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[str] = []
    real = os.fsync

    def fsync(fd: int) -> None:
        flushed.append(os.readlink(f"/proc/self/fd/{fd}"))
        real(fd)

    monkeypatch.setattr(os, "fsync", fsync)
    append(log, Rec(b"k", b"v" * 700, NOW), now_ms=NOW)
    flush(log)
    assert flushed == [log.folder]


def test_of_the_files_that_were_removed_a_power_cut_brings_back_some(
    log: Partition, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing else proved what was durable; the gap that they left before the start was taken for the end of the log."""
    log.memo.start = 2
    log.memo.save()
    for segment in log.segments:
        os.truncate(segment.path + ".index", 0)
    log.segments[1].delete()
    found = open_partition("t", 0, log.folder, log.settings)
    assert (found.start, found.end, [segment.base for segment in found.segments]) == (2, 4, [0, 2, 3])
    assert caplog.text == ""


def test_a_disk_that_refuses_a_new_file_leaves_the_one_before_as_it_was(
    log: Partition, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who read meanwhile kept where that one ended then: readers passed over what it was given later."""
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", lambda *_: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        with pytest.raises(OSError, match="full"):
            log.roll()
    assert log.read(3, 1 << 30, log.high) is not None
    append(log, Rec(b"k", b"v", NOW))
    append(log, Rec(b"k", b"v" * 700, NOW))
    flush(log)
    records = log.read(4, 1 << 30, log.high)
    assert records is not None
    assert [batch.base for batch in stored(records.read())] == [4]


def test_segments_go_once_what_is_known_of_their_producers_is_on_the_disk(log: Partition) -> None:
    """A snapshot is of what is durable. Where a record is not, files that go would take a sequence with them."""
    append(log, Rec(b"k", b"v", NOW), producer=(7, 0, 0))
    log.roll()
    flush(log)
    append(log, Rec(b"k", b"v" * 700, NOW + 10**6), now_ms=NOW + 10**6)
    assert retired(log, NOW + 10**6) == []
    flush(log)
    assert retired(log, NOW + 10**6) == [0, 1, 2, 3]
    found = open_partition("t", 0, log.folder, log.settings)
    assert found.start == 5
    assert [sent.last for sent in found.producers.known[7].sent] == [0]


@pytest.mark.parametrize("behind", [0, 1, 2, 5])
def test_what_stood_in_segments_that_went_is_known_though_a_power_cut_tears_all_that_was_not_flushed_since(
    log: Partition, behind: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Snapshots are written without a flush: none may take the place of the one that was flushed before files went."""
    lasting = dict[str, bytes]()

    def flushed(path: str) -> None:
        lasting[os.path.basename(path)] = Path(path).read_bytes()

    def unflushed(path: str) -> Any:
        lasting.pop(os.path.basename(path), None)
        return replacing(path)

    monkeypatch.setattr(snapshot, "flush_file", flushed)
    monkeypatch.setattr(snapshot, "write_whole", lambda path, data: (write_whole(path, data), flushed(path)))
    monkeypatch.setattr(snapshot, "replacing", unflushed)
    log.take_snapshot()
    append(log, Rec(b"k", b"v", NOW + 9000), producer=(7, 0, 0), now_ms=NOW + 9000)
    flush(log)
    assert retired(log, NOW + 10**6) == [0, 1, 2, 3]  # with the record of producer 7
    log.take_snapshot()  # at the same offset
    for place in range(behind):
        append(log, Rec(b"k", b"v", NOW + 10**6), producer=(8, 0, place), now_ms=NOW + 10**6)
        flush(log)
        log.take_snapshot()
    for path in Path(log.folder).glob("*.snapshot"):
        path.write_bytes(lasting.get(path.name, b""))
    found = open_partition("t", 0, log.folder, log.settings)
    assert {pid: [sent.last for sent in one.sent] for pid, one in found.producers.known.items()} == {
        7: [0],
        **({8: [*range(behind)]} if behind else {}),
    }


def test_segments_before_the_last_snapshot_go_though_the_next_one_has_to_wait(log: Partition) -> None:
    """Where something is always on its way to the disk, a later segment must not hold back all before it for ever."""
    log.take_snapshot()
    for place in (4, 5):
        append(log, Rec(b"k", b"v" * 700, NOW + place * 1000), now_ms=NOW + place * 1000)
    flush(log)
    append(log, Rec(b"k", b"v" * 700, NOW + 10**6), now_ms=NOW + 10**6)
    assert retired(log, NOW + 10**6) == [0, 1, 2, 3]
    assert log.start == 6
    flush(log)
    assert retired(log, NOW + 10**6) == [4, 5]
