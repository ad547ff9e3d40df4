"""The suite of retries.py: a day of pauses in milliseconds, turned by hand. `python -m pytest examples/timers`.

Rule 1: no sleep, no patience, no tolerance: under a `ManualClock` a moment is equal to the one that was promised.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from examples.timers.retries import GIVE_UP_S, LONGEST_PAUSE_S, Delivery
from waterclock import ManualClock, Timer


@pytest.fixture
def timer() -> Timer:
    return Timer(clock=ManualClock())


class Receiver:
    """Takes the message at the so-many-th time, and remembers when it was asked."""

    def __init__(self, timer: Timer, takes_at: int) -> None:
        self.asked_s: list[float] = []
        self.ends: list[str] = []
        self._timer, self._takes_at = timer, takes_at

    def send(self) -> bool:
        self.asked_s.append(self._timer.time())
        return len(self.asked_s) >= self._takes_at


@pytest.fixture
def delivered(timer: Timer) -> Callable[[int, float], Receiver]:
    def run(takes_at: int, seconds: float) -> Receiver:
        receiver = Receiver(timer, takes_at)
        Delivery(timer, receiver.send, receiver.ends.append)
        timer.advance(seconds)
        return receiver

    return run


def test_pauses_double(delivered: Callable[[int, float], Receiver]) -> None:
    receiver = delivered(5, 60)
    assert receiver.asked_s == [0, 1, 3, 7, 15]
    assert receiver.ends == ["taken"]


def test_a_message_that_is_taken_leaves_no_timer(timer: Timer, delivered: Callable[[int, float], Receiver]) -> None:
    delivered(1, 0)
    assert len(timer) == 0


def test_no_pause_is_longer_than_an_hour(delivered: Callable[[int, float], Receiver]) -> None:
    asked_s = delivered(1_000, GIVE_UP_S - 1).asked_s
    pauses = {later - earlier for earlier, later in pairwise(asked_s[12:])}
    assert pauses == {LONGEST_PAUSE_S}


def test_after_a_day_it_is_given_up_and_nobody_is_asked_again(
    timer: Timer, delivered: Callable[[int, float], Receiver]
) -> None:
    receiver = delivered(1_000, GIVE_UP_S)
    asked = len(receiver.asked_s)
    timer.advance(60 * GIVE_UP_S)
    assert (receiver.ends, len(receiver.asked_s), len(timer)) == (["given up"], asked, 0)
