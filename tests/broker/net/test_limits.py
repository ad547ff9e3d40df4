"""What clients may take: connections, time in silence, bytes of requests and of answers. Others are served meanwhile."""

from __future__ import annotations

import os
import resource
import socket
import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.conformance.batches import batch
from tests.conformance.dialogue import Dialogue, fetch_fields
from tests.conformance.waiting import until
from tests.conformance.wire import Closed, Wire
from waterclock.broker import Access, Broker
from waterclock.broker.net.connection import INBOX, MOST_SLOTS, MOST_UNSENT, Connection
from waterclock.broker.net.limits import LEAST
from waterclock.clock import ManualClock
from waterclock.disk import allow_many_files

VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)  # ApiVersions 0
BIG = 900_000
MANY = 900  # small requests, whose answers are more than sockets and MOST_UNSENT take


def connections(broker: Broker) -> list[Connection]:
    return broker.call(lambda: list(broker.inside.listener.connections))


def held(broker: Broker) -> int:
    return broker.call(lambda: broker.inside.listener.memory.held)


def plug(bootstrap: str, buffer: int | None = None) -> socket.socket:
    """A bare socket; `buffer` bytes of what was not read yet fit into it."""
    host, port = bootstrap.split(":")
    made = socket.socket()
    if buffer is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    made.settimeout(20)
    made.connect((host, int(port)))
    return made


def read(plugged: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = plugged.recv(size - len(data))
        assert part
        data += part
    return data


def is_closed(plugged: socket.socket) -> bool:
    try:
        return plugged.recv(1) == b""
    except ConnectionError:
        return True


def is_served(broker: Broker) -> bool:
    with closing(plug(broker.bootstrap)) as plugged:
        plugged.sendall(VERSIONS)
        return len(plugged.recv(4)) == 4


# Silence


def idle_after_8_s() -> Broker:
    settings = {"connections.max.idle.ms": "8000", "socket.request.timeout.ms": "0"}
    return Broker(clock=ManualClock(), settings=settings)


def test_silent_connections_go_after_the_time_allowed_and_not_before() -> None:
    with idle_after_8_s() as broker:  # noqa: SIM117
        with closing(plug(broker.bootstrap)) as mute, closing(plug(broker.bootstrap)) as half:
            half.sendall(VERSIONS[:7])
            until(lambda: len(connections(broker)) == 2 and held(broker) == 14)
            broker.advance_s(8)
            assert len(connections(broker)) == 2
            broker.advance_s(1)
            assert [is_closed(mute), is_closed(half)] == [True, True]
            assert held(broker) == 0
            assert broker.call(lambda: broker.inside.listener.idle.closed) == 2


def test_who_says_something_stays() -> None:
    with idle_after_8_s() as broker:  # noqa: SIM117
        with closing(plug(broker.bootstrap)) as talker, closing(plug(broker.bootstrap)) as mute:
            until(lambda: len(connections(broker)) == 2)
            for _ in range(5):
                broker.advance_s(4)
                talker.sendall(VERSIONS)
                assert talker.recv(1 << 16)
            assert is_closed(mute)
            assert len(connections(broker)) == 1


def test_who_sends_one_request_slowly_stays() -> None:
    with idle_after_8_s() as broker, closing(plug(broker.bootstrap)) as slow:
        for sent, byte in enumerate(VERSIONS[:10], 1):
            slow.sendall(bytes([byte]))
            until(lambda sent=sent: broker.call(lambda: broker.inside.listener.received) == sent)
            broker.advance_s(4)
        slow.sendall(VERSIONS[10:])
        assert len(slow.recv(4)) == 4


def test_who_reads_its_answers_slowly_stays() -> None:
    with idle_after_8_s() as broker, closing(plug(broker.bootstrap, 4096)) as slow:
        slow.sendall(large(broker) * MANY)
        until(lambda: stuck(broker))
        for _ in range(5):
            sent = broker.call(lambda: broker.inside.listener.sent)
            while broker.call(lambda: broker.inside.listener.sent) == sent:
                read(slow, 100_000)
            broker.advance_s(4)
        assert len(connections(broker)) == 1


def test_a_client_that_never_reads_goes_too() -> None:
    with idle_after_8_s() as broker:  # noqa: SIM117
        with closing(plug(broker.bootstrap, 4096)) as deaf:
            deaf.sendall(large(broker) * MANY)
            until(lambda: stuck(broker))
            broker.advance_s(10)
            assert connections(broker) == []


def test_nobody_connected_sets_no_timer() -> None:
    with Broker(clock=ManualClock()) as broker:
        with closing(plug(broker.bootstrap)):
            until(lambda: len(connections(broker)) == 1)
        until(lambda: connections(broker) == [])
        broker.advance_s(10_000)
        assert not broker.call(lambda: broker.inside.listener.idle.turning)


# Connections


def test_1000_connections_are_served_and_one_more_is_refused() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limits[1] < 2500:
        pytest.skip("2,500 files are needed")
    allow_many_files()
    with ExitStack() as stack, Broker(settings={"max.connections": "1000"}) as broker:
        stack.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        plugged = [stack.enter_context(closing(plug(broker.bootstrap))) for _ in range(1000)]
        for _ in range(2):
            for one in plugged:
                one.sendall(VERSIONS)
            assert {struct.unpack(">ii", one.recv(1 << 16)[:8])[1] for one in plugged} == {7}
        with closing(plug(broker.bootstrap)) as one_more:
            assert is_closed(one_more)
        plugged.pop().close()
        until(lambda: len(connections(broker)) == 999)
        assert is_served(broker)


def test_a_client_may_change_how_many_connections_there_may_be() -> None:
    from tests.broker.admin import BROKER, SET, change

    with Broker() as broker, Wire(broker.bootstrap) as wire:
        assert change(wire, BROKER, "1", ("max.connections", SET, "1")) == "none"
        with closing(plug(broker.bootstrap)) as other:
            assert is_closed(other)


# Requests


def test_a_request_above_the_limit_is_closed_whole_or_begun() -> None:
    with Broker(settings={"socket.request.max.bytes": "1000"}) as broker:
        whole = struct.pack(">i", 1001) + VERSIONS[4:] + b"\0" * 991  # but for its size it could be served
        for data in (whole[:4], whole, struct.pack(">i", -1)):
            with closing(plug(broker.bootstrap)) as plugged:
                plugged.sendall(data)
                assert is_closed(plugged)
        assert is_served(broker)


def test_a_stranger_may_send_small_requests_only() -> None:
    with Broker(access=Access(users=("alice:secret",))) as broker, closing(plug(broker.bootstrap)) as plugged:
        plugged.sendall(struct.pack(">i", (512 << 10) + 1))
        assert is_closed(plugged)


@pytest.fixture
def narrow() -> Iterator[Broker]:
    with Broker(settings={"queued.max.request.bytes": "1000000"}) as broker:
        yield broker


def test_what_is_claimed_and_not_sent_is_not_held(narrow: Broker) -> None:
    """Six that claimed 100 MB each once stopped all reading for ten minutes."""
    with ExitStack() as stack:
        claimants = [stack.enter_context(closing(plug(narrow.bootstrap))) for _ in range(6)]
        for one in claimants:
            one.sendall(struct.pack(">i", 100 << 20) + VERSIONS[4:])
        until(lambda: held(narrow) == 6 * LEAST)
        assert is_served(narrow)


def test_small_requests_are_served_while_large_ones_fill_the_room(narrow: Broker) -> None:
    with ExitStack() as stack:
        plugged = [stack.enter_context(closing(plug(narrow.bootstrap))) for _ in range(4)]
        for one in plugged:
            one.sendall(struct.pack(">i", 10 * BIG) + b"\0" * 400_000)
        until(lambda: held(narrow) >= 1_000_000)
        for _ in range(3):
            assert is_served(narrow)


def test_large_requests_wait_for_room_but_one_that_goes_on_and_makes_some(narrow: Broker) -> None:
    with ExitStack() as stack:
        plugged = [stack.enter_context(closing(plug(narrow.bootstrap))) for _ in range(4)]
        for one in plugged[:2]:
            begin(one, 600_000)
        until(lambda: held(narrow) >= 1_200_000)
        for one in plugged[2:]:
            begin(one, 100_000)
        until(lambda: waiting(narrow) >= 1)  # of the last two one may go on, where neither of the first needs more
        assert all(is_quiet(one) for one in plugged)
        finish(
            narrow,
            {one: BIG - 10 - sent for one, sent in zip(plugged, (600_000, 600_000, 100_000, 100_000), strict=True)},
        )


def begin(plugged: socket.socket, size: int) -> None:
    plugged.sendall(struct.pack(">i", BIG) + VERSIONS[4:] + b"\0" * size)


def finish(broker: Broker, left: dict[socket.socket, int]) -> None:
    """Send what is `left` of each as the broker takes it, until all are answered and nothing is held."""

    def nothing_left() -> bool:
        for one in left:
            left[one] -= as_much_as_goes(one, left[one])
        return not any(left.values())

    until(nothing_left)
    assert [len(one.recv(4)) for one in left] == [4] * len(left)
    until(lambda: held(broker) == 0)


def as_much_as_goes(plugged: socket.socket, size: int) -> int:
    sent = 0
    plugged.setblocking(False)
    try:
        while sent < size:
            sent += plugged.send(b"\0" * min(size - sent, 1 << 16))
    except BlockingIOError:
        pass
    finally:
        plugged.settimeout(20)
    return sent


def waiting(broker: Broker) -> int:
    return broker.call(lambda: len(broker.inside.listener.memory.waiting))


def is_quiet(plugged: socket.socket) -> bool:
    """Nothing has come by now; it does not wait."""
    plugged.setblocking(False)
    try:
        return not plugged.recv(1) and False
    except BlockingIOError:
        return True
    finally:
        plugged.settimeout(20)


def test_a_client_that_goes_gives_its_room_back(narrow: Broker) -> None:
    with closing(plug(narrow.bootstrap)) as begun:
        begun.sendall(struct.pack(">i", 2 * BIG) + b"\0" * 100)
        until(lambda: held(narrow) == LEAST)
    until(lambda: held(narrow) == 0)


def test_no_two_begun_requests_wait_for_each_other(narrow: Broker) -> None:
    with ExitStack() as stack:
        plugged = [stack.enter_context(closing(plug(narrow.bootstrap))) for _ in range(6)]
        for one in plugged:
            begin(one, 1000)
        finish(narrow, dict.fromkeys(plugged, BIG - 10 - 1000))


# Answers


def large(broker: Broker) -> bytes:
    """A small request with a large answer: a record of 25 kB, fetched."""
    broker.create_topic("t")
    with Wire(broker.bootstrap) as wire:
        assert Dialogue(wire).produce("t", batch(os.urandom(25_000))).error_code == 0
        frame = wire.encoded("fetch", 12, **fetch_fields("t", 0))
    return struct.pack(">i", len(frame)) + frame


def stuck(broker: Broker) -> bool:
    found = connections(broker)
    return bool(found) and broker.call(lambda: found[0]._full() and not found[0]._reading)


def test_a_client_that_never_reads_holds_bounded_memory_and_others_are_served() -> None:
    with Broker() as broker, closing(plug(broker.bootstrap, 4096)) as deaf:
        request = large(broker)
        deaf.sendall(request * MANY)
        until(lambda: stuck(broker))
        (connection,) = connections(broker)
        answer = largest_answer(broker, request)
        assert MOST_UNSENT < broker.call(lambda: connection.unsent) <= MOST_UNSENT + answer
        assert broker.call(lambda: len(connection._kept)) <= INBOX
        assert is_served(broker)


def largest_answer(broker: Broker, request: bytes) -> int:
    with closing(plug(broker.bootstrap)) as plugged:
        plugged.sendall(request)
        return int(struct.unpack(">i", read(plugged, 4))[0]) + 4


def test_whoever_reads_late_gets_every_answer_in_order() -> None:
    with Broker() as broker, closing(plug(broker.bootstrap, 4096)) as late:
        request = large(broker)
        late.sendall(b"".join(request[:8] + struct.pack(">i", n) + request[12:] for n in range(MANY)))
        until(lambda: stuck(broker))
        answer = largest_answer(broker, request)
        reply = [struct.unpack(">ii", read(late, answer)[:8]) for _ in range(MANY)]
        assert reply == [(answer - 4, n) for n in range(MANY)]


def test_answers_that_wait_behind_another_count_too() -> None:
    """A long poll first, then many requests with large answers: they cannot be sent before the first is answered."""
    with Broker(clock=ManualClock()) as broker, Wire(broker.bootstrap) as wire:
        request = large(broker)
        wire.send("fetch", 12, **fetch_fields("t", 1, max_wait=60_000))
        wire.send_bytes(request * MANY)
        until(lambda: stuck(broker))
        (connection,) = connections(broker)
        assert broker.call(lambda: len(connection.slots)) < MOST_SLOTS
        assert broker.call(lambda: connection.unsent) < 2 * MOST_UNSENT
        broker.advance_s(60)
        assert wire.receive("fetch", 12).error_code.value == 0
        for _ in range(MANY):
            wire.receive_frame()


def test_a_request_that_makes_no_sense_closes_its_own_connection_only() -> None:
    with Broker() as broker, Wire(broker.bootstrap) as other:
        other.ask("metadata", 12, topics=[])
        for frame in (b"", b"\0", b"\xff" * 40, struct.pack(">hhih", 3, 12, 1, 30_000), b"GET / HTTP/1.1\r\n\r\n"):
            with Wire(broker.bootstrap) as wire:
                wire.send_frame(frame)
                with pytest.raises(Closed):
                    wire.receive_frame()
        other.ask("metadata", 12, topics=[])
