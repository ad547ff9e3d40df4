"""What is asked of the cluster is heard in a later step. That a relay has one AdminClient: test_away.py."""

from __future__ import annotations

from concurrent.futures import Future

import pytest

from waterclock.clock import ManualClock
from waterclock.relay.cluster.watcher import Answers, Watcher


class Asked:
    """Notes what was asked, and what was heard."""

    def __init__(self) -> None:
        self.futures: list[Future[str]] = []
        self.heard: list[str] = []

    def ask(self) -> Answers:
        self.futures.append(Future())
        return {"one": self.futures[-1]}

    def hear(self, answers: Answers) -> None:
        self.heard.append(answers["one"].result())


def test_nothing_is_asked_anew_before_it_was_heard_and_nobody_waits(clock: ManualClock) -> None:
    watcher, asked = Watcher(None, clock), Asked()
    watcher.ask(1_000_000_000, asked.ask, asked.hear)
    watcher.step()
    assert not asked.futures
    clock.advance_s(1)
    for _ in range(3):
        watcher.step()
        clock.advance_s(1)
    assert (len(asked.futures), watcher.is_waiting, asked.heard) == (1, True, [])
    asked.futures[0].set_result("a")
    watcher.step()
    assert (len(asked.futures), watcher.is_waiting, asked.heard) == (1, False, ["a"])
    watcher.step()
    assert len(asked.futures) == 2


def test_what_was_asked_once_is_heard_once(clock: ManualClock) -> None:
    watcher, asked = Watcher(None, clock), Asked()
    watcher.once(asked.ask(), asked.hear)
    watcher.step()
    asked.futures[0].set_result("a")
    watcher.step()
    watcher.step()
    assert (asked.heard, watcher.is_waiting) == (["a"], False)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()
