"""A broker without a file for one more connection: it takes nobody for a second, and then all."""

from __future__ import annotations

import os
import resource
import select
import socket
import struct
from contextlib import ExitStack, closing, suppress

import pytest

pytest.importorskip("kio")
pytest.importorskip("crc32c")

from tests.conformance.waiting import until
from waterclock.broker import Broker
from waterclock.clock import ManualClock

VERSIONS = struct.pack(">ihhih", 10, 18, 0, 7, -1)  # ApiVersions 0


def test_where_no_file_is_left_nobody_is_taken_for_a_second_and_then_all() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Broker(clock=ManualClock()) as broker, ExitStack() as stack:
        host, port = broker.bootstrap.split(":")
        several = [stack.enter_context(closing(socket.socket())) for _ in range(5)]
        highest = max(int(name) for name in os.listdir("/proc/self/fd"))
        spare = [os.dup(0) for _ in range(highest)]
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (max(spare) + 1, limits[1]))
            for waiting in several:  # what another test's threads close meanwhile is a file: then this one is served
                waiting.settimeout(20)
                with suppress(OSError):  # no hole below the limit is left
                    while True:
                        spare.append(os.dup(0))
                waiting.connect((host, int(port)))
                waiting.sendall(VERSIONS)
                until(lambda one=waiting: rests(broker) or readable(one))
                if rests(broker):
                    break
            assert rests(broker)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
            for fd in spare:
                os.close(fd)
        broker.advance_s(1)
        assert len(waiting.recv(4)) == 4


def rests(broker: Broker) -> bool:
    """Whether it takes nobody, until a timer says so."""
    return broker.call(lambda: broker.inside.timer.statistics().pending > 0) and not accepting(broker)


def readable(one: socket.socket) -> bool:
    """Without a file of its own."""
    poll = select.poll()
    poll.register(one, select.POLLIN)
    return bool(poll.poll(0))


def accepting(broker: Broker) -> bool:
    listener = broker.inside.listener
    return broker.call(lambda: listener.loop._selector.get_map().get(listener._socket.fileno()) is not None)
