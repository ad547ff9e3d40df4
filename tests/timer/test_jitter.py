"""`every` with jitter: programs that were started together do not beat together (semantics.md, section 3: 5)."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.timer.timers import DRIVERS, Diary, Make, by_hand, nothing

pytestmark = pytest.mark.parametrize("make", DRIVERS)


def test_a_beat_is_put_off_by_its_jitter_and_the_next_is_counted_from_the_beat_itself(timer: Any) -> None:
    diary, jitters = Diary(timer), iter([1, 0, 3, 10])
    handle = timer.every(10, diary("beat"), jitter=lambda: next(jitters))
    assert handle.when() == 11.0
    timer.advance(39)
    assert ([at for _, at in diary.lines], handle.when()) == ([11.0, 20.0, 33.0], 50.0)


def test_a_jitter_of_seconds_is_drawn_evenly_from_zero_to_it(timer: Any, diary: Diary) -> None:
    timer.every(10, diary("beat"), jitter=4)
    timer.advance(10 * 500)
    late = [at - 10 * (beat + 1) for beat, (_, at) in enumerate(diary.lines)]
    assert (len(late) >= 499, min(late) >= 0, max(late) <= 4.001) == (True, True, True)
    assert len(set(late)) > 300  # of 4,000 ticks
    assert 1.5 < sum(late) / len(late) < 2.5  # 2 +- 0.05: nine deviations


@pytest.mark.parametrize("missed", ["skip", "burst", "delay"])
def test_calls_with_jitter_never_come_before_their_beat_and_never_overlap(timer: Any, missed: str) -> None:
    diary, clock = Diary(timer), timer._clock
    note = diary("beat")

    def slow() -> None:
        note()
        clock.advance_s(3)

    timer.every(10, slow, missed=missed, jitter=10)
    timer.advance(1000)
    times_ms = [round(at * 1000) for _, at in diary.lines]  # whole ticks: of seconds 3 of 3 may be a bit less
    assert len(times_ms) > 40
    assert all(later - earlier >= 3000 for earlier, later in pairwise(times_ms))


def test_a_moved_beat_is_where_it_was_moved_to_and_the_next_has_its_jitter_again(timer: Any, diary: Diary) -> None:
    handle = timer.every(10, diary("beat"), jitter=lambda: 2)
    assert (handle.reschedule(3), handle.when()) == (True, 3.0)
    timer.advance(30)
    assert [at for _, at in diary.lines] == [3.0, 15.0, 25.0]


@pytest.mark.parametrize("wrong", [-1, 10.5, float("nan"), "none"])
def test_a_jitter_that_is_none_is_reported_and_the_beat_comes_in_time(make: Make, wrong: Any) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)
    diary, jitters = Diary(timer), iter([1, wrong, 1])
    timer.every(10, diary("beat"), jitter=lambda: next(jitters))
    timer.advance(32)
    assert [at for _, at in diary.lines] == [11.0, 20.0, 31.0]
    assert (len(errors) >= 1, type(errors[0]) in (ValueError, TypeError)) == (True, True)


def test_a_wrong_jitter_is_refused_at_the_call(timer: Any) -> None:
    for wrong in (-1, 11, float("nan")):
        with pytest.raises(ValueError, match="jitter must"):
            timer.every(10, nothing, jitter=wrong)
    with pytest.raises(ValueError, match="jitter must"):
        timer.every(10, nothing, jitter=lambda: 11)
    assert len(timer) == 0
