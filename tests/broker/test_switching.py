"""How soon threads switch in a broker's own process: sooner while somebody works in bulk, and as before afterwards."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import pytest

from waterclock.broker import switching
from waterclock.broker.worker import Worker


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> Iterator[float]:
    usual = sys.getswitchinterval()
    monkeypatch.setattr(switching, "_usual_s", None)
    monkeypatch.setattr(switching, "_busy", set())
    yield usual
    sys.setswitchinterval(usual)


def test_in_somebody_elses_process_nothing_is_changed(own: float) -> None:
    switching.begins("a")
    assert sys.getswitchinterval() == own
    switching.ends("a")


def test_in_its_own_process_threads_switch_sooner_until_the_last_one_is_done(own: float) -> None:
    switching.own_process()
    switching.begins("a")
    switching.begins("b")
    switching.ends("a")
    assert sys.getswitchinterval() == pytest.approx(switching.QUICK_S)
    switching.ends("b")
    assert sys.getswitchinterval() == pytest.approx(own)


def test_while_many_deeds_wait_for_the_worker_threads_switch_sooner(own: float) -> None:
    switching.own_process()
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
    assert found[:2] == [pytest.approx(switching.QUICK_S)] * 2
    assert sys.getswitchinterval() == pytest.approx(own)
