"""Which thread makes an append durable: the loop's own where one comes alone and the disk is quick, else a flusher's."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.broker.record_batches import Rec, batch
from waterclock.broker import Broker
from waterclock.broker.log.write_ahead import SegmentBytes, WriteAheadLog
from waterclock.broker.wire.errors import Error


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path) as broker:
        broker.create_topic("t", 2)
        yield broker


@pytest.fixture
def writers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The threads that wrote ahead, one after the other."""
    found, real = list[str](), WriteAheadLog.write

    def write(self: WriteAheadLog, appended: list[SegmentBytes]) -> None:
        found.append(threading.current_thread().name)
        real(self, appended)

    monkeypatch.setattr(WriteAheadLog, "write", write)
    return found


def produced(broker: Broker, count: int) -> None:
    with RawClient(broker.bootstrap) as client:
        for _ in range(count):
            assert client.produce("t", b"x")[0] == Error.NONE


def test_one_that_comes_alone_is_written_by_the_loop(
    broker: Broker, writers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda fd: None)  # a quick disk, whatever else the machine does
    produced(broker, 40)
    assert writers.count("broker") > 10  # a busy machine is slow now and then


def test_on_a_slow_disk_it_is_left_to_a_flusher(
    broker: Broker, writers: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    produced(broker, 2)
    writers.clear()
    write = WriteAheadLog.write

    def slow(self: WriteAheadLog, appended: list[SegmentBytes]) -> None:
        time.sleep(0.002)
        write(self, appended)

    monkeypatch.setattr(WriteAheadLog, "write", slow)
    produced(broker, 10)
    assert writers.count("broker") <= 1
    assert len(writers) >= 9


def test_where_two_come_at_once_neither_holds_up_the_loop(broker: Broker, writers: list[str]) -> None:
    produced(broker, 2)
    writers.clear()
    flusher, partitions = broker.inside.flusher, list(broker.inside.topics.partitions())

    def append() -> None:
        for partition in partitions:
            partition.append(memoryview(bytearray(batch([Rec(b"k", b"v", 0)]))), 0)
            flusher.mark(partition)

    assert len(partitions) == 2
    for _ in range(3):
        broker.call(append)
        while broker.call(lambda: any(partition.durable < partition.end for partition in partitions)):
            time.sleep(0.001)
    assert set(writers) == {"flusher"}
