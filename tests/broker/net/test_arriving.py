"""How long a request may take to arrive once it has begun, and a client to say who he is."""

from __future__ import annotations

import struct
from contextlib import ExitStack, closing

import pytest

pytest.importorskip("kio")

from tests.broker.net.test_limits import BIG, VERSIONS, connections, held, is_closed, is_served, plug, waiting
from tests.conformance.waiting import until
from waterclock.broker import Access, Broker
from waterclock.broker.net.limits import RATE
from waterclock.clock import ManualClock


def slow_after_8_s(**settings: str) -> Broker:
    return Broker(clock=ManualClock(), settings={"socket.request.timeout.ms": "8000", **settings})


def test_a_request_that_does_not_arrive_closes_its_connection_after_the_time_allowed_and_not_before(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with slow_after_8_s() as broker, closing(plug(broker.bootstrap)) as begun, closing(plug(broker.bootstrap)) as idle:
        begun.sendall(struct.pack(">i", BIG) + b"\0" * 100)
        until(lambda: held(broker) > 0 and len(connections(broker)) == 2)
        broker.advance_s(8)
        assert len(connections(broker)) == 2
        broker.advance_s(1)
        assert (is_closed(begun), held(broker), len(connections(broker))) == (True, 0, 1)  # who asks nothing stays
        idle.sendall(VERSIONS)
        assert len(idle.recv(4)) == 4
    assert "did not arrive within 8000 ms (socket.request.timeout.ms); 104 bytes of it came" in caplog.text


def test_what_comes_gives_a_large_request_more_time() -> None:
    with slow_after_8_s() as broker, closing(plug(broker.bootstrap)) as begun:
        begun.sendall(struct.pack(">i", BIG) + VERSIONS[4:] + b"\0" * (10 * RATE))
        until(lambda: broker.call(lambda: broker.inside.listener.received) == 14 + 10 * RATE)
        broker.advance_s(18)
        assert len(connections(broker)) == 1
        broker.advance_s(2)
        assert is_closed(begun)


def test_who_holds_what_others_wait_for_has_an_eighth_of_the_time() -> None:
    with ExitStack() as stack, slow_after_8_s(**{"queued.max.request.bytes": "500000"}) as broker:
        plugged = [stack.enter_context(closing(plug(broker.bootstrap))) for _ in range(3)]
        for one in plugged:
            one.sendall(struct.pack(">i", BIG) + b"\0" * RATE)
        until(lambda: held(broker) >= 3 * RATE)
        for one in plugged:
            one.sendall(b"\0" * (3 * RATE))
        until(lambda: waiting(broker) > 0)
        broker.advance_s(7)
        assert len(connections(broker)) < 3


@pytest.mark.parametrize("sent", [b"", VERSIONS, struct.pack(">i", 500 << 10) + b"\0" * 5000])
def test_who_does_not_say_who_he_is_goes_after_that_time_too(sent: bytes) -> None:
    access = Access(users=("alice:secret",))
    settings = {"socket.request.timeout.ms": "8000"}
    with Broker(clock=ManualClock(), settings=settings, access=access) as broker:  # noqa: SIM117
        with closing(plug(broker.bootstrap)) as stranger:
            stranger.sendall(sent)
            until(lambda: broker.call(lambda: broker.inside.listener.received) == len(sent) and connections(broker))
            broker.advance_s(8)
            assert len(connections(broker)) == 1
            broker.advance_s(1)
            assert connections(broker) == []


def test_what_strangers_claim_takes_nothing_from_those_who_are_in() -> None:
    """1,060 claims before anybody had said who he is once stopped the reading of those who were in."""
    settings = {"queued.max.unauthenticated.bytes": "100000", "queued.max.request.bytes": "100000"}
    with ExitStack() as stack, Broker(settings=settings, access=Access(users=("alice:secret",))) as broker:
        for _ in range(30):
            stranger = stack.enter_context(closing(plug(broker.bootstrap)))
            stranger.sendall(struct.pack(">i", 500 << 10) + b"\0" * 20_000)
        until(lambda: broker.call(lambda: broker.inside.listener.memory_of_strangers.full))
        assert held(broker) == 0
        assert is_served(broker)  # another stranger with a small request, too
