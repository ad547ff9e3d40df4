"""A process dies that has members of both protocols in one group: the rest goes on within the session's time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("kio")
pytest.importorskip("confluent_kafka")

import confluent_kafka as ck

from tests.broker.groups.clients import Turned
from tests.broker.groups.consumer_members import Reader
from tests.broker.groups.old_readers import OldReader
from waterclock.broker import Broker

SESSION_S = 6
STEP_MS = 2_000
CONFIG = {"group.id": "g", "auto.offset.reset": "earliest"}
PROTOCOLS = {"classic": {"group.protocol": "classic", "session.timeout.ms": SESSION_S * 1000},
             "consumer": {"group.protocol": "consumer"}}  # fmt: skip
VICTIM = """
import sys, confluent_kafka
from tests.broker.groups.test_mixed_killed import CONFIG, PROTOCOLS
both = [confluent_kafka.Consumer({"bootstrap.servers": sys.argv[1], **CONFIG, **how}) for how in PROTOCOLS.values()]
for one in both:
    one.subscribe(["t"])
while True:
    for one in both:
        one.poll(0.05)
    if all(one.assignment() for one in both):
        print("both", flush=True)
"""


def test_the_rest_has_everything_when_the_sessions_of_both_are_over() -> None:
    settings = {"group.consumer.session.timeout.ms": str(SESSION_S * 1000)}
    with ExitStack() as opened:
        served = opened.enter_context(Turned(settings))
        ann, bob, cid, dee = (kind(served, name) for kind, name in
                              ((OldReader, "ann"), (Reader, "bob"), (OldReader, "cid"), (Reader, "dee")))  # fmt: skip
        for one in (ann, bob, cid, dee):
            opened.callback(one.close)
        ann.create_topic("t", 4)
        ann.session = cid.session = SESSION_S * 1000
        assert isinstance(bob, Reader)
        assert isinstance(dee, Reader)
        ann.enters()
        bob.joins()
        dee.joins()
        cid.enters()
        for _ in range(6):
            for old in (ann, cid):
                old.follows()
            for new in (bob, dee):
                new.settles()
        assert [len(one.numbers) for one in (ann, bob, cid, dee)] == [1, 1, 1, 1]
        for _ in range(2 * SESSION_S * 1000 // STEP_MS):  # ann and bob say nothing any more
            served.advance_ms(STEP_MS)
            cid.follows()
            dee.settles()
        assert sorted([*cid.numbers, *dee.numbers]) == [0, 1, 2, 3]
        assert len(cid.numbers) == len(dee.numbers) == 2


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    settings = {"group.consumer.session.timeout.ms": str(SESSION_S * 1000),
                "group.consumer.min.session.timeout.ms": str(SESSION_S * 1000),
                "group.consumer.heartbeat.interval.ms": "1000"}  # fmt: skip
    with Broker(tmp_path, settings=settings) as started:
        started.create_topic("t", 8)
        yield started


@pytest.mark.long(seconds=20)
def test_after_kill_9_the_rest_has_everything_within_the_sessions_time(broker: Broker, tmp_path: Path) -> None:
    """Real clients of both protocols, in a process that is killed and in this one."""
    rest = [ck.Consumer({"bootstrap.servers": broker.bootstrap, **CONFIG, **how}) for how in PROTOCOLS.values()]
    for one in rest:
        one.subscribe(["t"])
    command = [sys.executable, "-c", VICTIM, broker.bootstrap]
    with (tmp_path / "err").open("w") as errors:
        victim = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, "PYTHONPATH": "."})
    try:
        assert victim.stdout is not None
        os.set_blocking(victim.stdout.fileno(), False)
        owned(rest, lambda sizes: sizes == [2, 2] and victim.stdout is not None and victim.stdout.read())
        victim.send_signal(signal.SIGKILL)
        killed = time.monotonic()
        owned(rest, lambda sizes: sizes == [4, 4])
        assert time.monotonic() - killed < SESSION_S + 4  # a heartbeat, and a rebalance of those that are left
    finally:
        victim.kill()
        victim.wait()
        assert victim.stdout is not None
        victim.stdout.close()
        for one in rest:
            one.close()


def owned(consumers: list[ck.Consumer], condition: object) -> None:
    """Poll until `condition` holds of how many partitions each has."""
    assert callable(condition)
    deadline = time.monotonic() + 60
    while not condition([len(one.assignment()) for one in consumers]):
        assert time.monotonic() < deadline, [one.assignment() for one in consumers]
        for one in consumers:
            one.poll(0.05)
