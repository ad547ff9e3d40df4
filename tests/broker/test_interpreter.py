"""A broker's own process: threads switch sooner while somebody works in bulk, and what a collection of garbage does not
look at again is freed without it."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("kio")

from tests.broker.raw_client import RawClient
from tests.processes import alone
from waterclock.broker import Broker, interpreter
from waterclock.broker.worker import Worker


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    usual = sys.getswitchinterval()
    monkeypatch.setattr(interpreter, "_usual_s", None)
    monkeypatch.setattr(interpreter, "_busy", set())
    yield usual
    sys.setswitchinterval(usual)


def test_in_somebody_elses_process_nothing_is_changed(own: float) -> None:
    interpreter.begins("a")
    assert sys.getswitchinterval() == own
    interpreter.ends("a")


def test_in_its_own_process_threads_switch_sooner_until_the_last_one_is_done(own: float) -> None:
    interpreter.own_process()
    interpreter.begins("a")
    interpreter.begins("b")
    interpreter.ends("a")
    assert sys.getswitchinterval() == pytest.approx(interpreter.QUICK_S)
    interpreter.ends("b")
    assert sys.getswitchinterval() == pytest.approx(own)


def test_while_many_deeds_wait_for_the_worker_threads_switch_sooner(own: float) -> None:
    interpreter.own_process()
    worker, begun, go = Worker(lambda call, *arguments: call(*arguments)), threading.Event(), threading.Event()
    found: list[float] = []

    def first() -> None:
        begun.set()
        assert go.wait(10)

    worker.do(first, lambda error: None)
    assert begun.wait(10)
    for _ in range(3):
        worker.do(lambda: found.append(sys.getswitchinterval()), lambda error: None)
    go.set()
    worker.close()
    assert found[:2] == [pytest.approx(interpreter.QUICK_S)] * 2
    assert sys.getswitchinterval() == pytest.approx(own)


# Garbage


def left_over() -> int:
    """Connections that are still there when their clients have gone, with a collector that never looks."""
    found: list[Any] = []
    with Broker() as broker:
        broker.create_topic("t")
        interpreter.pause_little()
        gc.disable()
        for _ in range(20):
            with RawClient(broker.bootstrap) as client:
                client.produce("t", b"v")
                client.ask("Metadata", 4, topics=None, allow_auto_topic_creation=False)
                found += broker.call(lambda: [weakref.ref(one) for one in broker.inside.listener.connections])
        with RawClient(broker.bootstrap) as client:
            client.produce("t", b"v")
            broker.call(lambda: None)
        return len({id(one()) for one in found if one() is not None})


def test_connections_and_requests_leave_no_circles() -> None:
    assert alone(left_over) <= 1  # the last may be closing


def looked_at() -> int:
    """Of 100,000 objects that are kept, how many a full collection looks at."""
    interpreter.pause_little()
    kept = [[number] for number in range(100_000)]
    gc.collect()
    return len(gc.get_objects()) * len(kept) // 100_000


def test_what_has_survived_a_full_collection_is_not_looked_at_again() -> None:
    assert alone(looked_at) < 10_000
