"""Waits to the millisecond: our broker under a clock that is turned by hand. Apache Kafka's clock cannot be turned.

Rule 1: before the clock is turned the request must be known to wait; `quiet` means not even now.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from tests.conformance.batches import LONG_AGO_MS, Record, batch
from tests.conformance.dialogue import Dialogue, fetch_fields
from tests.conformance.groups import Member
from tests.conformance.readiness import await_coordinators
from tests.conformance.transactions import Transactional
from tests.conformance.waiting import until
from tests.conformance.wire import Wire
from waterclock.broker import Broker
from waterclock.clock import ManualClock

pytestmark = pytest.mark.skipif("ours" not in os.environ.get("BROKERS", "ours"), reason="our broker was not chosen")
SETTINGS = {
    "group.initial.rebalance.delay.ms": "3000",
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


def test_the_first_member_of_a_group_waits_for_others_as_long_as_is_set(turned: Broker) -> None:
    # each that joins meanwhile begins the delay anew, up to the members' rebalance timeout
    one = Member(turned.bootstrap, "g")
    with one.wire:
        one.ask_to_join(3)
        until(lambda: turned.statistics().requests.get("JoinGroup") == 1)
        turned.advance_s(2.999)
        assert one.wire.is_quiet()
        turned.advance_s(0.001)
        assert one.joined().error_code == 0


def settled(broker: Broker, **fields: int) -> Member:
    """A member alone in its group."""
    one = Member(broker.bootstrap, "g", **fields)
    one.ask_to_join(3)
    until(lambda: broker.statistics().requests.get("JoinGroup") == 1)
    broker.advance_s(3)
    assert one.joined().error_code == 0
    assert one.sync(**{one.id: b"all"}).error_code == 0
    return one


def test_a_session_ends_to_the_millisecond(turned: Broker) -> None:
    one = settled(turned, session_timeout=10_000)
    with one.wire:
        turned.advance_s(9.999)
        assert one.described().group_state == "Stable"
        turned.advance_s(0.001)
        assert one.described().group_state == "Empty"


def test_a_heartbeat_begins_the_session_anew(turned: Broker) -> None:
    one = settled(turned, session_timeout=10_000)
    with one.wire:
        for _ in range(5):
            turned.advance_s(9.999)
            assert one.heartbeat() == "none"
        turned.advance_s(10)
        assert one.heartbeat() == "unknown_member_id"


def test_a_member_that_does_not_join_again_is_left_out_to_the_millisecond(turned: Broker) -> None:
    one, two = settled(turned, rebalance_timeout=5_000), Member(turned.bootstrap, "g", rebalance_timeout=5_000)
    with one.wire, two.wire:
        two.ask_to_join(3)
        until(lambda: turned.statistics().requests.get("JoinGroup") == 2)
        turned.advance_s(4.999)
        assert two.wire.is_quiet()
        turned.advance_s(0.001)
        assert two.joined().generation_id == 2


def test_a_transaction_is_aborted_when_its_time_is_over(turned: Broker, talk: Dialogue) -> None:
    slow = Transactional(talk, "x", timeout_ms=60_000)
    slow.put("t", b"gone")
    turned.advance_s(59.999)
    assert slow.described().transaction_state == "Ongoing"
    turned.advance_s(0.002)
    until(lambda: talk.fetch("t").partition.last_stable_offset == 2)
