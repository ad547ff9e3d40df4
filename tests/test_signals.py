"""What a handler of signals may do to the thread that it interrupts."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from waterclock.signals import StopEvent, heard


@contextmanager
def interrupted(moment: int) -> Iterator[None]:
    """A signal comes at this step of what Python runs in the block."""
    left = moment

    def step(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        left -= 1
        if left == 0:
            signal.raise_signal(signal.SIGUSR1)
        return step

    sys.settrace(step)
    try:
        yield
    finally:
        sys.settrace(None)


def hangs(number: int, frame: FrameType | None) -> None:
    raise AssertionError("the handler waits for what it has interrupted")


def test_a_signal_at_any_moment_of_a_wait_ends_the_wait() -> None:
    moment, is_set = 0, True
    with heard(hangs, (signal.SIGALRM,)):
        while is_set:
            ended, moment = StopEvent(), moment + 1
            signal.setitimer(signal.ITIMER_REAL, 5)
            with heard(lambda *_, ended=ended: ended.set(), (signal.SIGUSR1,)), interrupted(moment):
                is_set = ended.wait(0.01)
            signal.setitimer(signal.ITIMER_REAL, 0)
    assert moment > 5


def test_it_is_waited_for_and_stays_set() -> None:
    ended = StopEvent()
    assert not ended.wait(0.0)
    ended.set()
    assert ended.is_set()
    assert ended.wait()
    assert ended.wait()
