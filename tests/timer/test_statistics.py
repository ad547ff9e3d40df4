"""What a driver says of the moment it is asked in: its tick, and what is due next."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.timer.timers import DRIVERS, Make, by_hand, nothing
from waterclock.timer import TimerStatistics

pytestmark = pytest.mark.parametrize("make", DRIVERS)


def moment(told: TimerStatistics) -> tuple[int, int | None]:
    return told.current_tick_ns, told.next_due_ns


def test_where_nothing_waits_nothing_is_due(make: Make) -> None:
    assert moment(by_hand(make).statistics()) == (0, None)


def test_the_tick_is_that_of_now_and_the_next_due_one_the_earliest_that_waits(make: Make) -> None:
    timer = by_hand(make, tick_s=0.01)
    timer.call_later(0.5, nothing)
    early = timer.call_later(0.123, nothing)
    assert moment(timer.statistics()) == (0, 130_000_000)
    timer.advance(0.057)
    assert moment(timer.statistics()) == (50_000_000, 130_000_000)
    early.cancel()
    assert moment(timer.statistics()) == (50_000_000, 500_000_000)
    timer.advance(1)
    assert moment(timer.statistics()) == (1_050_000_000, None)


def test_the_tick_of_a_timer_that_is_late_lies_before_now(timer: Any) -> None:
    seen: list[TimerStatistics] = []
    timer.call_later(1, lambda: (timer._clock.advance_s(5), seen.append(timer.statistics())))
    timer.call_later(2, nothing)
    timer.advance(1)
    assert moment(seen[0]) == (6_000_000_000, 2_000_000_000)


def test_in_a_pause_both_stand_still(timer: Any) -> None:
    timer.call_later(2, nothing)
    timer.advance(1)
    timer.pause()
    timer.advance(60)
    assert moment(timer.statistics()) == (1_000_000_000, 2_000_000_000)


def test_the_record_is_frozen(make: Make) -> None:
    told = by_hand(make).statistics()
    with pytest.raises(dataclasses.FrozenInstanceError):
        told.next_due_ns = 5  # type: ignore[misc]
