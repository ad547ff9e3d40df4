"""Retention, deletion on request and compaction in a running broker. Its clock is turned by hand."""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.broker.record_batches import TRANSACTIONAL, Rec, batch, end_marker, stored
from tests.conformance.waiting import until
from waterclock.broker import Broker
from waterclock.broker.log import memo
from waterclock.broker.log.durable import make_durable
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.records import records
from waterclock.broker.log.recovery import open_partition
from waterclock.broker.wire.errors import Error
from waterclock.clock import ManualClock

SETTINGS = {
    "log.segment.bytes": "1000",
    "log.message.timestamp.after.max.ms": str(2**62),
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.retention.ms": "-1",
    "connections.max.idle.ms": str(2**40),
}
LIMIT = timedelta(seconds=10)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def broker(tmp_path: Path, clock: ManualClock) -> Iterator[Broker]:
    with Broker(tmp_path, clock=clock, settings=SETTINGS) as broker:
        yield broker


def create(client: RawClient, name: str, **settings: str) -> None:
    configs = [{"name": key.replace("_", "."), "value": value} for key, value in settings.items()]
    topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": configs}
    answer = client.ask("CreateTopics", 4, topics=[topic], timeout=LIMIT, validate_only=False)
    assert answer.topics[0].error_code.value == 0


def produce(client: RawClient, topic: str, *recs: Rec) -> tuple[int, int]:
    rows = [{"name": topic, "partition_data": [{"index": 0, "records": batch(recs)}]}]
    row = client.ask("Produce", 9, acks=-1, timeout=LIMIT, topic_data=rows).responses[0].partition_responses[0]
    return row.error_code.value, row.base_offset


def delete(client: RawClient, topic: str, offset: int, version: int = 2, timeout_s: float = 10) -> tuple[int, int]:
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "offset": offset}]}]
    row = client.ask("DeleteRecords", version, topics=topics, timeout=timedelta(seconds=timeout_s))
    row = row.topics[0].partitions[0]
    return row.error_code.value, row.low_watermark


def offsets(client: RawClient, topic: str) -> tuple[int, int]:
    """The start and the end that readers are told."""
    rows = []
    for timestamp in (-2, -1):
        topics = [{"name": topic, "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
        answer = client.ask("ListOffsets", 4, replica_id=-1, isolation_level=0, topics=topics)
        rows.append(answer.topics[0].partitions[0].offset)
    return rows[0], rows[1]


def partition(broker: Broker, topic: str) -> Partition:
    found = broker.inside.topics.partition(topic, 0)
    assert found is not None
    return found


def everything(broker: Broker, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of every record that is there."""

    def read() -> list[bytes]:
        log = partition(broker, topic)
        slices = [log.read(segment.base, 1 << 30, log.high) for segment in log.segments]
        return [found.read() for found in slices if found is not None]

    rows = {}
    for data in broker.call(read):
        rows.update({r.offset: (r.offset, r.key, r.value) for b in stored(data) for r in records(b.raw)})
    return [rows[offset] for offset in sorted(rows)]


def full(path: str, data: bytes) -> None:
    raise OSError(errno.ENOSPC, "the disk is full", path)


def rec(key: bytes | None, value: bytes | None, clock: ManualClock, ago_ms: int = 0) -> Rec:
    return Rec(key, value, clock.wall_ms() - ago_ms)


# Retention


def test_segments_whose_records_are_all_too_old_go_the_active_one_too(
    broker: Broker, client: RawClient, clock: ManualClock
) -> None:
    create(client, "t", retention_ms="3600000")
    for _ in range(5):
        produce(client, "t", rec(b"k", b"v" * 600, clock))
    broker.advance_s(3500)
    assert offsets(client, "t") == (0, 5)
    broker.advance_s(400)
    until(lambda: offsets(client, "t") == (5, 5))
    assert produce(client, "t", rec(b"k", b"v", clock)) == (0, 5)
    folder = Path(partition(broker, "t").folder)
    until(lambda: [p.name for p in folder.glob("*.log")] == [f"{5:020}.log"])


def test_old_timestamps_count_and_not_when_a_record_came(broker: Broker, client: RawClient, clock: ManualClock) -> None:
    create(client, "t", retention_ms="3600000")
    produce(client, "t", rec(b"k", b"v" * 600, clock, ago_ms=10 * 3_600_000))
    produce(client, "t", rec(b"k", b"v" * 600, clock))
    broker.advance_s(300)
    until(lambda: offsets(client, "t") == (1, 2))


def test_a_start_that_the_disk_refuses_moves_for_nobody(
    broker: Broker,
    client: RawClient,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Readers were told of it, and files went: a power cut took the log back to where it had begun before."""
    create(client, "t", retention_ms="3600000")
    for _ in range(3):
        produce(client, "t", rec(b"k", b"v" * 600, clock))
    files = sorted(Path(partition(broker, "t").folder).glob("*.log"))
    with monkeypatch.context() as patch:
        patch.setattr(memo, "write_whole", full)
        broker.advance_s(3900)
        until(lambda: "retention of t-0 failed" in caplog.text)
        assert delete(client, "t", 2) == (Error.KAFKA_STORAGE_ERROR, -1)
        assert offsets(client, "t") == (0, 3)
        assert [file for file in files if file.exists()] == files
    assert delete(client, "t", 2) == (0, 2)
    broker.advance_s(300)
    until(lambda: offsets(client, "t") == (3, 3))


def test_a_start_on_its_way_to_a_slow_disk_is_not_sent_again(
    broker: Broker, client: RawClient, clock: ManualClock
) -> None:
    create(client, "t", retention_ms="3600000")
    produce(client, "t", rec(b"k", b"v", clock, ago_ms=10 * 3_600_000))
    sent: list[Any] = []
    broker.inside.upkeep.worker.do = lambda deed, then: sent.append(deed)  # type: ignore[method-assign]
    for _ in range(3):
        broker.call(broker.inside.upkeep.retain)
    assert len(sent) == 1


def test_a_partition_keeps_at_least_the_bytes_that_it_may_have(
    broker: Broker, client: RawClient, clock: ManualClock
) -> None:
    create(client, "t", retention_bytes="2000")
    for _ in range(10):
        produce(client, "t", rec(b"k", b"v" * 600, clock))
    size = partition(broker, "t").segments[0].size
    broker.advance_s(300)
    until(lambda: offsets(client, "t")[0])
    start, end = offsets(client, "t")
    assert end == 10
    assert size * (end - start) >= 2000 > size * (end - start - 1)


def test_a_segment_is_begun_when_a_record_is_much_later_than_its_first(
    broker: Broker, client: RawClient, clock: ManualClock
) -> None:
    create(client, "t", segment_ms="60000", segment_bytes="2000000")
    produce(client, "t", rec(b"k", b"v", clock))
    broker.advance_s(60)
    produce(client, "t", rec(b"k", b"v", clock))
    assert len(partition(broker, "t").segments) == 1
    broker.advance_s(0.001)
    produce(client, "t", rec(b"k", b"v", clock))
    assert [segment.base for segment in partition(broker, "t").segments] == [0, 2]


def test_an_idle_producer_is_forgotten_after_its_time(broker: Broker, client: RawClient, clock: ManualClock) -> None:
    create(client, "t")
    data = batch([rec(b"k", b"v", clock)], producer=(7, 0, 0))
    rows = [{"name": "t", "partition_data": [{"index": 0, "records": data}]}]
    client.ask("Produce", 9, acks=-1, timeout=LIMIT, topic_data=rows)
    broker.advance_s(86_000)
    assert list(partition(broker, "t").producers.known) == [7]
    broker.advance_s(1200)
    assert list(partition(broker, "t").producers.known) == []


# DeleteRecords


@pytest.mark.parametrize("version", [0, 1, 2])
def test_records_before_an_offset_are_gone_at_once_and_stay_so(
    broker: Broker, client: RawClient, clock: ManualClock, tmp_path: Path, version: int
) -> None:
    create(client, "t")
    for _ in range(4):
        produce(client, "t", rec(b"k", b"v" * 600, clock))
    assert delete(client, "t", 2, version) == (0, 2)
    assert offsets(client, "t") == (2, 4)
    assert delete(client, "t", 1, version) == (0, 2)
    broker.close()
    with Broker(tmp_path, clock=clock, settings=SETTINGS) as again, RawClient(again.bootstrap) as reader:
        assert offsets(reader, "t") == (2, 4)


def test_minus_one_deletes_up_to_the_high_watermark(client: RawClient, clock: ManualClock) -> None:
    create(client, "t")
    produce(client, "t", rec(b"k", b"v", clock), rec(b"k", b"v", clock))
    assert delete(client, "t", -1) == (0, 2)
    assert offsets(client, "t") == (2, 2)


def test_the_files_of_deleted_records_go_with_the_next_retention(
    broker: Broker, client: RawClient, clock: ManualClock
) -> None:
    create(client, "t")
    for _ in range(4):
        produce(client, "t", rec(b"k", b"v" * 600, clock))
    delete(client, "t", 3)
    folder = Path(partition(broker, "t").folder)
    assert len(list(folder.glob("*.log"))) == 4
    broker.advance_s(300)
    until(lambda: len(list(folder.glob("*.log"))) == 1)


@pytest.mark.parametrize(
    ("topic", "offset", "error"),
    [
        ("t", 2, Error.OFFSET_OUT_OF_RANGE),
        ("t", -2, Error.OFFSET_OUT_OF_RANGE),
        ("none", 0, Error.UNKNOWN_TOPIC_OR_PARTITION),
        ("compacted", 0, Error.POLICY_VIOLATION),
    ],
)
def test_what_cannot_be_deleted_is_refused(
    client: RawClient, clock: ManualClock, topic: str, offset: int, error: Error
) -> None:
    create(client, "t")
    create(client, "compacted", cleanup_policy="compact")
    produce(client, "t", rec(b"k", b"v", clock))
    assert delete(client, topic, offset) == (error, -1)


def test_a_deletion_that_the_disk_is_slow_to_take_times_out(
    broker: Broker, client: RawClient, clock: ManualClock
) -> None:
    create(client, "t")
    produce(client, "t", rec(b"k", b"v", clock))
    reply: list[Any] = []
    broker.inside.upkeep.worker.do = lambda deed, then: reply.append(then)  # type: ignore[method-assign]
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "offset": 1}]}]
    client.send("DeleteRecords", 2, topics=topics, timeout=timedelta(seconds=5))
    until(lambda: bool(reply))
    broker.advance_s(5)
    row = client.receive().topics[0].partitions[0]
    assert (row.error_code.value, row.low_watermark) == (Error.REQUEST_TIMED_OUT, -1)


# Compaction


def test_a_compacted_topic_takes_no_record_without_a_key(client: RawClient, clock: ManualClock) -> None:
    create(client, "t", cleanup_policy="compact")
    assert produce(client, "t", rec(b"k", b"v", clock), rec(None, b"v", clock)) == (Error.INVALID_RECORD, -1)


def compacted(broker: Broker) -> None:
    """Let the cleaner look for work, and wait until it has done it."""
    before = broker.inside.upkeep.compactions
    broker.advance_s(15)
    until(
        lambda: broker.call(lambda: broker.inside.upkeep.compactions > before and not broker.inside.upkeep.compacting)
    )


def test_of_each_key_the_last_record_stays_with_its_offset(
    broker: Broker, client: RawClient, clock: ManualClock, tmp_path: Path
) -> None:
    create(client, "t", cleanup_policy="compact")
    for place in range(10):
        produce(client, "t", rec(b"ab"[place % 2 : place % 2 + 1], b"%d" % place * 600, clock))
    compacted(broker)
    kept = [(7, b"b", b"7" * 600), (8, b"a", b"8" * 600), (9, b"b", b"9" * 600)]
    assert everything(broker, "t") == kept
    assert offsets(client, "t") == (0, 10)
    broker.close()
    with Broker(tmp_path, clock=clock, settings=SETTINGS) as again:
        assert everything(again, "t") == kept
        assert partition(again, "t").memo.cleaned == 9


def test_a_compaction_leaves_a_snapshot_of_what_is_left_of_the_aborted_transactions(
    broker: Broker, client: RawClient, clock: ManualClock, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else a start after a crash finds other files than the last one knows, and reads the whole log for them."""
    create(client, "t", cleanup_policy="compact")
    partition = broker.inside.topics.by_name["t"].partitions[0]

    def fill() -> None:
        for turn in range(12):
            rows = [Rec(b"k", b"v" * 300, clock.wall_ms())]
            data = batch(rows, producer=(7, 0, turn), attributes=TRANSACTIONAL)
            assert partition.append(memoryview(bytearray(data)), clock.wall_ms())[0] == Error.NONE
            assert partition.mark(bytearray(end_marker(7, 0, turn > 0, clock.wall_ms())))[0] == Error.NONE
        make_durable(partition)
        partition.high = partition.durable
        partition.take_snapshot()

    broker.call(fill)
    assert produce(client, "t", Rec(b"other", b"v", clock.wall_ms()))[0] == 0
    compacted(broker)
    until(lambda: max(Path(partition.folder).glob("*.snapshot")).stem == f"{partition.end:020}")
    kept = threading.Event()  # the memo too, which comes behind it
    broker.call(lambda: broker.inside.worker.do(lambda: None, lambda error: kept.set()))
    assert kept.wait(10)
    copy = shutil.copytree(partition.folder, tmp_path / "as kill -9 leaves it" / Path(partition.folder).name)
    found = open_partition("t", 0, str(copy), partition.settings)
    assert found.aborted.between(0, 100) == partition.aborted.between(0, 100) != []
    assert "was damaged, or of before a compaction" not in caplog.text


def test_a_deletion_goes_after_its_time(broker: Broker, client: RawClient, clock: ManualClock) -> None:
    create(client, "t", cleanup_policy="compact", delete_retention_ms="100000")
    produce(client, "t", rec(b"a", b"1" * 600, clock))
    produce(client, "t", rec(b"a", None, clock))
    for _ in range(2):
        produce(client, "t", rec(b"b", b"2" * 900, clock))
    compacted(broker)
    assert (1, b"a", None) in everything(broker, "t")
    broker.advance_s(70)
    produce(client, "t", rec(b"b", b"2" * 900, clock))
    compacted(broker)
    assert (1, b"a", None) in everything(broker, "t")
    broker.advance_s(30)
    produce(client, "t", rec(b"b", b"2" * 900, clock))
    compacted(broker)
    assert [key for _, key, _ in everything(broker, "t")] == [b"b", b"b"]


def test_what_is_younger_than_the_least_lag_is_left_alone(
    broker: Broker, client: RawClient, clock: ManualClock
) -> None:
    create(client, "t", cleanup_policy="compact", min_compaction_lag_ms="60000")
    for place in range(4):
        produce(client, "t", rec(b"a", b"%d" % place * 900, clock))
    broker.advance_s(45)
    assert broker.inside.upkeep.compacting is None
    assert len(everything(broker, "t")) == 4
    compacted(broker)
    assert [offset for offset, _, _ in everything(broker, "t")] == [2, 3]


def test_a_reader_with_an_old_segment_finishes(broker: Broker, client: RawClient, clock: ManualClock) -> None:
    create(client, "t", cleanup_policy="compact")
    for place in range(4):
        produce(client, "t", rec(b"a", b"%d" % place * 900, clock))
    held = broker.call(lambda: partition(broker, "t").read(0, 1 << 20, 4))
    before = held.read()
    compacted(broker)
    assert held.read() == before
    assert len(stored(before)) == 1


def test_a_damaged_segment_ends_its_compaction_and_nothing_else(
    broker: Broker, client: RawClient, clock: ManualClock
) -> None:
    create(client, "t", cleanup_policy="compact")
    create(client, "other")
    for place in range(4):
        produce(client, "t", rec(b"a", b"%d" % place * 900, clock))
    produce(client, "other", rec(b"k", b"v", clock))
    damaged = partition(broker, "t").segments[1]
    assert damaged.tail.end == 2  # as the cleaner's plan knows it, before the disk loses it
    os.pwrite(damaged.fd, bytes(20), 8)
    broker.advance_s(15)
    assert delete(client, "other", 1) == (0, 1)
    until(lambda: broker.call(lambda: broker.inside.upkeep.compacting is None))
    assert broker.inside.upkeep.compactions == 0
    assert produce(client, "t", rec(b"a", b"v", clock)) == (0, 4)
