"""Small appends through a broker: acknowledged from the write-ahead log, and there whatever happens before their own files
are flushed."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.broker.raw_client import RawClient
from tests.broker.replication.pairs import PATIENCE_S, until
from waterclock.broker import Broker, knobs
from waterclock.broker.knobs import Knobs
from waterclock.broker.log import write_ahead
from waterclock.broker.log.write_ahead import NAMES

PARTITIONS = 12
ROUNDS = 8


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as broker:
        broker.create_topic("t", PARTITIONS)
        yield broker


def logs(data: Path) -> int:
    """How many bytes the partitions' own files have."""
    return sum(path.stat().st_size for path in data.glob("topics/*/*.log"))


def ahead(data: Path) -> bool:
    return any((data / name).exists() for name in NAMES)


def fill(broker: Broker, size: int = 100) -> None:
    """ROUNDS records for each partition, all partitions' under way together."""
    with RawClient(broker.bootstrap) as client:
        for _ in range(ROUNDS):
            for number in range(PARTITIONS):
                client.send_produce("t", b"x" * size, partition=number)
            for _ in range(PARTITIONS):
                assert client.produced()[0] == 0


def ends(broker: Broker) -> set[int]:
    with RawClient(broker.bootstrap) as client:
        return {client.end("t", number) for number in range(PARTITIONS)}


def test_what_was_acknowledged_is_there_after_a_power_cut_that_took_it_from_its_own_files(
    broker: Broker, tmp_path: Path
) -> None:
    fill(broker)
    before = logs(tmp_path)
    broker.cut_power()
    assert logs(tmp_path) < before / 2
    broker.start()
    assert ends(broker) == {ROUNDS}
    assert logs(tmp_path) == before


def test_and_where_the_broker_follows_another_from_then_on(broker: Broker, tmp_path: Path) -> None:
    fill(broker)
    before = logs(tmp_path)
    broker.cut_power()
    with Broker(tmp_path, follow="127.0.0.1:9"):
        assert logs(tmp_path) == before
        assert not ahead(tmp_path)


def test_and_after_many_power_cuts_and_turns_of_the_log(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(knobs, "_present", Knobs(ahead_room=5000))
    for count in range(1, 4):
        fill(broker)
        broker.cut_power()
        broker.start()
        assert ends(broker) == {count * ROUNDS}


def test_a_stop_leaves_everything_in_its_own_files_and_no_log(broker: Broker, tmp_path: Path) -> None:
    fill(broker)
    assert ahead(tmp_path)
    broker.close()
    assert not ahead(tmp_path)
    broker.start()
    assert ends(broker) == {ROUNDS}
    assert not ahead(tmp_path)


def test_what_is_large_is_written_once(broker: Broker, tmp_path: Path) -> None:
    fill(broker, Knobs().ahead_small + 1)
    assert not ahead(tmp_path)
    broker.cut_power()
    broker.start()
    assert ends(broker) == {ROUNDS}


def test_without_room_for_a_log_the_files_themselves_are_flushed(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(log: write_ahead.WriteAheadLog) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write_ahead.WriteAheadLog, "_open", refuse)
    fill(broker)
    broker.cut_power()
    broker.start()
    assert ends(broker) == {ROUNDS}


def test_files_are_flushed_beside_the_loop_once_half_of_the_room_is_used(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.inside.ahead, "_room", 5000)
    fill(broker)
    until(lambda: not broker.inside.ahead.unsettled, "the full half stands in its own files")
    segments = broker.call(lambda: [p.active for p in broker.inside.topics.partitions()])
    assert any(segment.settled > 0 for segment in segments)
    assert all(segment.settled <= segment.durable == segment.size for segment in segments)


def test_a_half_that_is_full_before_the_other_one_is_flushed_is_flushed_too(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker.inside.ahead, "_room", 5000)
    first, go_on = threading.Event(), threading.Event()
    real = write_ahead.WriteAheadLog.settle

    def slow(log: write_ahead.WriteAheadLog) -> None:
        real(log)
        first.set()
        go_on.wait(PATIENCE_S)

    monkeypatch.setattr(write_ahead.WriteAheadLog, "settle", slow)
    fill(broker)
    assert first.wait(PATIENCE_S)
    fill(broker)
    assert broker.inside.ahead.unsettled
    go_on.set()
    until(lambda: not broker.inside.ahead.unsettled, "both halves stand in their own files")


def test_a_compaction_is_not_undone_by_the_log(tmp_path: Path) -> None:
    """The segments that it rewrites were appended through the log, which is still there after the power cut."""
    settings = {"log.cleaner.backoff.ms": "1", "log.initial.task.delay.ms": "1", "log.cleaner.min.cleanable.ratio": "0"}
    with Broker(tmp_path, settings=settings | {"log.segment.bytes": "4000"}) as broker:
        broker.create_topic("c", 1, {"cleanup.policy": "compact"})
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(150):
            producer.produce("c", key=f"k{number % 3}", value=f"v{number}")
            assert producer.flush(PATIENCE_S) == 0
        until(lambda: broker.inside.upkeep.compactions, "it is compacted")
        broker.cut_power()
        before = {path.name: path.read_bytes() for path in tmp_path.glob("topics/*/*.log")}
        broker.start()
        closed = sorted(before)[:-1]
        assert [next(tmp_path.glob(f"topics/*/{name}")).read_bytes() for name in closed] == [before[n] for n in closed]
