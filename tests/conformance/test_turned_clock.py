"""Waits to the millisecond: our broker under a clock that is turned by hand. Apache Kafka's clock cannot be turned.

Rule 1: before the clock is turned the request must be known to wait; `quiet` means not even now.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conformance.batches import LONG_AGO_MS, Record, batch
from tests.conformance.dialogue import Dialogue, fetch_fields
from tests.conformance.readiness import await_coordinators
from tests.conformance.transactions import Transactional
from tests.conformance.waiting import until
from tests.conformance.wire import Wire
from waterclock.broker import Broker
from waterclock.clock import ManualClock

pytestmark = pytest.mark.skipif("ours" not in os.environ.get("BROKERS", "ours"), reason="our broker was not chosen")
SETTINGS = {
    "log.message.timestamp.after.max.ms": str(2**62),
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1",
}


@pytest.fixture
def turned() -> Iterator[Broker]:
    with Broker(clock=ManualClock(), settings=SETTINGS) as broker:
        broker.create_topic("t")
        await_coordinators(broker.bootstrap)
        yield broker


@pytest.fixture
def talk(turned: Broker) -> Iterator[Dialogue]:
    with Wire(turned.bootstrap) as wire:
        yield Dialogue(wire)


def waiting(broker: Broker, purgatory: str, count: int = 1) -> None:
    until(lambda: broker.statistics().purgatories[purgatory].delayed == count)


@pytest.fixture
def reader(turned: Broker, talk: Dialogue) -> Iterator[Wire]:
    """A reader that waits 500 ms for two batches' bytes, of which there are none."""
    size = len(batch(b"a").encode())
    with Wire(turned.bootstrap) as wire:
        wire.send("fetch", 12, **fetch_fields("t", 0, max_wait=500, min_bytes=2 * size))
        waiting(turned, "fetch")
        yield wire


def test_a_reader_is_answered_when_its_longest_wait_is_over_and_not_a_millisecond_sooner(
    turned: Broker, reader: Wire
) -> None:
    turned.advance_s(0.499)
    assert reader.is_quiet()
    turned.advance_s(0.001)
    assert reader.receive("fetch", 12).responses[0].partitions[0].high_watermark == 0


def test_too_few_bytes_are_given_when_the_wait_is_over(turned: Broker, talk: Dialogue, reader: Wire) -> None:
    talk.produce("t", batch(b"a"))
    turned.advance_s(0.499)
    assert reader.is_quiet()
    turned.advance_s(0.001)
    assert reader.receive("fetch", 12).responses[0].partitions[0].high_watermark == 1


def test_bytes_enough_end_the_wait_without_any_time(talk: Dialogue, reader: Wire) -> None:
    talk.produce("t", batch(Record(b"a", timestamp_ms=LONG_AGO_MS), Record(b"a" * 200, timestamp_ms=LONG_AGO_MS)))
    assert reader.receive("fetch", 12).responses[0].partitions[0].high_watermark == 2


def test_a_transaction_is_aborted_when_its_time_is_over(turned: Broker, talk: Dialogue) -> None:
    slow = Transactional(talk, "x", timeout_ms=60_000)
    slow.put("t", b"gone")
    turned.advance_s(59.999)
    assert slow.described().transaction_state == "Ongoing"
    turned.advance_s(0.002)
    until(lambda: talk.fetch("t").partition.last_stable_offset == 2)
