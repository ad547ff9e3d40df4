"""Pause and resume keep the remaining time (semantics.md, section 3: 6)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.timer.timers import DRIVERS, Diary

pytestmark = pytest.mark.parametrize("make", DRIVERS)


def test_what_waits_keeps_its_remaining_time(timer: Any, diary: Diary) -> None:
    handle = timer.call_later(10, diary("ran"))
    timer.advance(4)
    timer.pause()
    assert (timer.advance(1000), timer.time(), handle.pending) == (0, 4.0, True)
    timer.resume()
    assert [timer.advance(5), timer.advance(0.999), timer.advance(0.001)] == [0, 0, 1]
    assert diary.lines == [("ran", 10.0)]
    assert timer._clock.monotonic_s() == 1010.0


def test_what_is_added_in_between_waits_its_whole_delay(timer: Any, diary: Diary) -> None:
    timer.pause()
    timer.advance(50)
    later, at = timer.call_later(10, diary("later")), timer.call_at(timer.time() + 10, diary("at"))
    timer.advance(50)
    timer.resume()
    assert [timer.advance(9), timer.advance(1)] == [0, 2]
    assert (later.when(), at.when()) == (10.0, 10.0)


def test_what_is_due_while_time_stands_still_waits_for_the_resume(timer: Any, diary: Diary) -> None:
    timer.pause()
    timer.call_later(0, diary("ran"))
    assert [timer.advance(5), timer.advance_to_next()] == [0, 0]
    timer.resume()
    assert timer.advance(0) == 1


def test_pause_twice_is_once_and_so_is_resume(timer: Any) -> None:
    timer.resume()
    timer.pause()
    timer.advance(10)
    timer.pause()
    timer.advance(10)
    timer.resume()
    timer.advance(1)
    timer.resume()
    assert timer.time() == 1.0


def test_pauses_add_up(timer: Any, diary: Diary) -> None:
    timer.call_later(3, diary("ran"))
    for _ in range(3):
        timer.advance(0.5)
        timer.pause()
        timer.advance(100)
        timer.resume()
    assert [timer.advance(1.499), timer.advance(0.001)] == [0, 1]


def test_cancel_works_in_a_pause(timer: Any, diary: Diary) -> None:
    handle = timer.call_later(1, diary("ran"))
    timer.pause()
    assert handle.cancel()
    timer.resume()
    assert timer.advance(5) == 0


def test_a_callback_that_pauses_lets_its_tick_end_and_no_other_begin(timer: Any, diary: Diary) -> None:
    for _ in range(2):
        timer.call_later(1, timer.pause)
    timer.call_later(1, diary("same tick"))
    timer.call_later(1.001, diary("next tick"))
    timer.advance(10)
    assert diary.lines == [("same tick", 1.0)]
    timer.resume()
    timer.advance(0.001)
    assert diary.lines == [("same tick", 1.0), ("next tick", 1.001)]


def test_advance_to_next_goes_as_far_as_is_left_after_a_pause(timer: Any, diary: Diary) -> None:
    timer.call_later(10, diary("ran"))
    timer.pause()
    timer.advance(100)
    timer.resume()
    assert (timer.advance_to_next(), timer._clock.monotonic_s(), timer.time()) == (1, 110.0, 10.0)
