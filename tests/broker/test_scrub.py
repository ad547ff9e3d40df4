"""The scrub in a running broker: damage is told before a reader meets it, who gets an error, no garbage and no silence."""

from __future__ import annotations

import threading
from collections.abc import Callable
from copy import copy
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from confluent_kafka import Consumer, KafkaError, TopicPartition

from tests.broker.raw_client import RawClient, batch
from tests.broker.record_batches import stored
from tests.broker.replication.pairs import PATIENCE_S, until
from tests.processes import alone
from waterclock.broker import Broker
from waterclock.broker import upkeep as scrubbing
from waterclock.broker.log.partition import Partition
from waterclock.broker.log.removal import begin_at
from waterclock.broker.wire.errors import Error
from waterclock.clock import ManualClock

SETTINGS = {"log.segment.bytes": "20000", "connections.max.idle.ms": str(2**40), "log.retention.ms": "-1"}
RECORDS = 60
DELAY_S = 30.0


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A broker's folder with 60 records of 1,000 bytes in four segments; their timestamps are their offsets."""
    with Broker(tmp_path, settings=SETTINGS) as broker, RawClient(broker.bootstrap) as client:
        broker.create_topic("t")
        for number in range(RECORDS):
            rows = [{"index": 0, "records": batch(b"%d" % (number % 10) * 1000, timestamp_ms=number)}]
            data = [{"name": "t", "partition_data": rows}]
            client.send("Produce", 9, acks=-1, timeout=timedelta(seconds=10), topic_data=data)
            assert client.produced() == (0, number)
    return tmp_path


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("topics/t-0.*/*.log"))


def overwrite(path: Path, at: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        file.write(data)


def partition(broker: Broker) -> Partition:
    found = broker.inside.topics.partition("t", 0)
    assert found is not None
    return found


def batches(path: Path) -> list[tuple[int, int, int]]:
    """Place, size and offset of each batch in a file that is whole."""
    found, at = [], 0
    for one in stored(path.read_bytes()):
        found.append((at, len(one.raw), one.base))
        at += len(one.raw)
    return found


def scrubbed(broker: Broker) -> None:
    """Turn the clock until a pass is over."""
    broker.advance_s(DELAY_S)

    def over() -> bool:
        broker.advance_s(1)
        return broker.statistics().scrub.segments_left == 0

    until(over, "every segment was read")


def idle(broker: Broker) -> None:
    """Wait until the worker has done what it was asked for."""
    done = threading.Event()
    broker.call(lambda: broker.inside.worker.do(lambda: None, lambda error: done.set()))
    assert done.wait(PATIENCE_S)


def fetch(client: RawClient, offset: int, most: int = 1 << 20) -> Any:
    rows = [{"partition": 0, "fetch_offset": offset, "partition_max_bytes": most}]
    limits = {"max_wait": timedelta(0), "min_bytes": 1, "max_bytes": 10**7}
    answer = client.ask("Fetch", 12, topics=[{"topic": "t", "partitions": rows}], forgotten_topics_data=[], **limits)
    return answer.responses[0].partitions[0]


def test_nothing_is_said_of_a_folder_that_is_whole(
    folder: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(folder, clock=clock, settings=SETTINGS) as broker:
        before = broker.statistics().scrub
        assert (before.bytes, before.segments_left, before.damaged) == (0, None, 0)
        scrubbed(broker)
        after = broker.statistics().scrub
        assert (after.bytes, after.damaged) == (sum(path.stat().st_size for path in segments(folder)), 0)
    assert "damaged" not in caplog.text


def test_damage_is_told_before_a_reader_meets_it_with_file_bytes_offsets_and_remedy(
    folder: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    path = segments(folder)[1]
    at, size, offset = batches(path)[5]
    overwrite(path, at + 500, b"\xff")
    with Broker(folder, clock=clock, settings=SETTINGS) as broker, RawClient(broker.bootstrap) as client:
        scrubbed(broker)
        assert broker.statistics().scrub.damaged == 1
        (said,) = [record for record in caplog.records if "damaged" in record.getMessage()]
        place = f"from byte {at} to before byte {at + size} of {path.stat().st_size}"
        words = f"t-0: {path} is damaged {place}: offsets {offset} to {offset} are lost"
        assert (said.levelname, said.message.startswith(words)) == ("ERROR", True)
        assert (
            f"Restore the file while the broker is stopped, or let readers go on at offset {offset + 1}" in said.message
        )
        before, lost, behind = fetch(client, 0), fetch(client, offset), fetch(client, offset + 1)
        assert (before.error_code.value, lost.error_code.value, behind.error_code.value) == (
            0,
            Error.CORRUPT_MESSAGE,
            0,
        )
        assert stored(behind.records)[0].base == offset + 1
        again = fetch(client, stored(before.records)[-1].base + 1)
        assert stored(again.records)[-1].base == offset - 1
        for _ in range(3):
            fetch(client, offset)
        assert caplog.text.count("cannot be read") == 1
        assert path.exists()


@pytest.mark.parametrize("size", [1 << 20, 5000, 1])
def test_a_reader_who_comes_before_the_scrub_gets_no_header_that_cannot_be_one(folder: Path, size: int) -> None:
    """The file is sent as it is: zeros in it went along, and librdkafka waited for ever, or ended its process."""
    path = segments(folder)[1]
    at, _, offset = batches(path)[7]
    overwrite(path, at, bytes(4096))
    with Broker(folder, settings=SETTINGS) as broker, RawClient(broker.bootstrap) as client:
        expected, got = 0, -1
        while (row := fetch(client, expected, size)).error_code.value == 0:
            assert row.records
            got = stored(row.records)[-1].base
            expected = got + 1
        assert (got, row.error_code.value) == (offset - 1, Error.CORRUPT_MESSAGE)
        behind = fetch(client, segment_start(broker, 2), size)
        assert stored(behind.records)[0].base == segment_start(broker, 2)


def test_who_asks_for_a_moment_that_damage_hides_is_answered_with_an_error(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """His connection was closed, and he asked again, for ever."""
    path = segments(folder)[1]
    at, _, offset = batches(path)[7]
    overwrite(path, at, bytes(4096))
    with Broker(folder, settings=SETTINGS) as broker, RawClient(broker.bootstrap) as client:
        asked = [at_moment(client, moment) for moment in (offset + 1, offset + 1, offset - 7)]
    assert asked == [(Error.CORRUPT_MESSAGE, -1), (Error.CORRUPT_MESSAGE, -1), (0, offset - 7)]
    assert caplog.text.count("cannot be searched") == 1


def at_moment(client: RawClient, moment: int) -> tuple[int, int]:
    topics = [{"name": "t", "partitions": [{"partition_index": 0, "timestamp": moment}]}]
    row = client.ask("ListOffsets", 7, replica_id=-1, isolation_level=0, topics=topics).topics[0].partitions[0]
    return row.error_code.value, row.offset


def segment_start(broker: Broker, number: int) -> int:
    return broker.call(lambda: partition(broker).segments[number].base)


def test_a_header_that_was_read_once_is_not_looked_at_again(folder: Path, clock: ManualClock) -> None:
    with Broker(folder, clock=clock, settings=SETTINGS) as broker:
        assert all(broker.call(lambda: [segment.unread for segment in partition(broker).segments]))
        scrubbed(broker)
        assert not any(broker.call(lambda: [segment.unread for segment in partition(broker).segments]))


@pytest.mark.long(seconds=6)
def test_a_week_later_everything_is_read_again(
    folder: Path, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with Broker(folder, clock=clock, settings=SETTINGS) as broker:
        scrubbed(broker)
        path = segments(folder)[0]
        overwrite(path, batches(path)[2][0] + 100, b"\xff\xff")
        broker.advance_s(3 * 24 * 3600)
        assert broker.statistics().scrub.damaged == 0
        broker.advance_s(4 * 24 * 3600)
        scrubbed(broker)
        assert broker.statistics().scrub.damaged == 1
        assert "offsets 2 to 2 are lost" in caplog.text


def test_a_pass_that_begins_while_the_last_one_rests_is_one_pass(
    folder: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Two at once would read one segment in turn, and each take what the other has read for missing."""
    monkeypatch.setattr(scrubbing, "PORTION", 5000)
    monkeypatch.setattr(scrubbing, "RATE", 5000)
    total = sum(path.stat().st_size for path in segments(folder))
    with Broker(folder, clock=clock, settings=SETTINGS) as broker:
        broker.advance_s(DELAY_S)
        first = turns(broker, lambda: broker.statistics().scrub.bytes == total)
        broker.call(broker.inside.scrub._begin_pass)
        second = turns(broker, lambda: broker.statistics().scrub.bytes >= 2 * total)
        assert second >= first
        assert broker.statistics().scrub.bytes == 2 * total
    assert "damaged" not in caplog.text


def turns(broker: Broker, holds: Callable[[], bool]) -> int:
    """How often the clock is to be turned by a tenth of a second, the worker idle each time, until that holds."""
    for count in range(1000):
        idle(broker)
        if holds():
            return count
        broker.advance_s(0.1)
    raise AssertionError("it never held")


def test_it_rests_for_as_long_as_its_rate_asks(
    folder: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrubbing, "PORTION", 5000)
    monkeypatch.setattr(scrubbing, "RATE", 1000)
    with Broker(folder, clock=clock, settings=SETTINGS) as broker:
        broker.advance_s(DELAY_S)
        until(lambda: broker.statistics().scrub.bytes, "the first portion")
        first = broker.statistics().scrub.bytes
        broker.advance_s(4)
        idle(broker)
        assert broker.statistics().scrub.bytes == first
        broker.advance_s(3)
        until(lambda: broker.statistics().scrub.bytes > first, "the second one")


def test_a_segment_that_retention_took_meanwhile_says_nothing(
    folder: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(scrubbing, "PORTION", 5000)
    path = segments(folder)[0]
    overwrite(path, batches(path)[15][0] + 100, b"\xff\xff")
    with Broker(folder, clock=clock, settings=SETTINGS) as broker:
        broker.advance_s(DELAY_S)
        until(lambda: broker.statistics().scrub.bytes, "the first portion")
        broker.call(lambda: begin_at(partition(broker), partition(broker).segments[1].base))
        scrubbed(broker)
        assert broker.statistics().scrub.damaged == 0
    assert "damaged" not in caplog.text


def test_a_log_of_which_a_cut_has_left_no_segment_is_passed_over(
    folder: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was opened in its place comes with the next pass; this one ended the pass for all behind it."""
    with Broker(folder, clock=clock, settings=SETTINGS) as broker:
        cut = copy(partition(broker))
        cut.segments = []
        monkeypatch.setattr(broker.inside.scrub, "_partitions", lambda: [cut, partition(broker)])
        scrubbed(broker)
        assert broker.statistics().scrub.bytes == sum(path.stat().st_size for path in segments(folder))


def test_a_compaction_gives_damage_no_checksum_of_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    settings = {"log.cleaner.backoff.ms": "5", "log.cleaner.min.cleanable.ratio": "0", **SETTINGS}
    with Broker(tmp_path, settings=SETTINGS) as broker, RawClient(broker.bootstrap) as client:
        for topic, records in (("t", RECORDS), ("u", RECORDS // 2)):
            broker.create_topic(topic)
            for number in range(records):
                assert client.produce(topic, b"%d" % (number % 10) * 1000) == (0, number)
    path = segments(tmp_path)[0]
    overwrite(path, batches(path)[3][0] + 500, b"\xff")
    before = path.read_bytes()
    with Broker(tmp_path, settings=settings) as broker:
        for topic in ("t", "u"):
            settings_of = broker.inside.topics.by_name[topic].settings
            broker.call(partial(settings_of.replace, {"cleanup.policy": "compact"}))
        until(lambda: "the compaction of t-0 failed" in caplog.text, "it is refused")
        until(lambda: broker.inside.upkeep.compactions, "the other topic is compacted all the same")
        assert caplog.text.count("the compaction of t-0 failed") == 1
    assert path.read_bytes() == before
    assert f"{path} is broken at byte {batches_before(before, 3)}" in caplog.text


def batches_before(data: bytes, number: int) -> int:
    at = 0
    for _ in range(number):
        at += 12 + int.from_bytes(data[at + 8 : at + 12], "big")
    return at


# librdkafka, in a process of its own: it ended the one that it was in


def read_by_librdkafka(bootstrap: str, past: bool) -> tuple[list[int], list[int]]:
    """Offsets that a consumer gets, and the codes of errors; `past`: it goes past each error, an offset at a time."""
    offsets, errors = [], []
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "check.crcs": True})
    consumer.assign([TopicPartition("t", 0, 0)])
    while (message := consumer.poll(PATIENCE_S)) is not None:
        error = message.error()
        if error is None:
            offsets.append(message.offset())
            if offsets[-1] == RECORDS - 1:
                break
            continue
        errors.append(error.code())
        if not past:
            break
        consumer.seek(TopicPartition("t", 0, message.offset() + 1))
    consumer.close()
    return offsets, errors


@pytest.mark.parametrize("when", ["before the scrub", "after it"])
@pytest.mark.parametrize("damage", ["zeros", "a length of 0", "a huge length", "a negative length"])
@pytest.mark.long(seconds=3)
def test_librdkafka_hands_its_program_an_error_and_reads_all_else(
    folder: Path, clock: ManualClock, damage: str, when: str
) -> None:
    path = segments(folder)[1]
    at, _, offset = batches(path)[7]
    lengths = {"a length of 0": 0, "a huge length": 2**31 - 1, "a negative length": -5}
    data = bytes(3000) if damage == "zeros" else lengths[damage].to_bytes(4, "big", signed=True)
    overwrite(path, at if damage == "zeros" else at + 8, data)
    lost = [offset, offset + 1, offset + 2] if damage == "zeros" else [offset]
    with Broker(folder, clock=clock if when == "after it" else None, settings=SETTINGS) as broker:
        if when == "after it":
            scrubbed(broker)
        offsets, errors = alone(read_by_librdkafka, broker.bootstrap, False)
        assert (offsets, errors) == ([*range(offset)], [KafkaError.INVALID_MSG])
        if when == "after it":
            offsets, errors = alone(read_by_librdkafka, broker.bootstrap, True)
            assert offsets == [number for number in range(RECORDS) if number not in lost]
            assert errors == [KafkaError.INVALID_MSG] * len(lost)
