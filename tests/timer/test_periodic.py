"""`every`: beats without drift, what was missed, jitter, and its end (semantics.md, section 3: 5)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.timer.timers import DRIVERS, Diary, Make, by_hand, nothing
from waterclock.timer.periodic import NEXT_BEAT

pytestmark = pytest.mark.parametrize("make", DRIVERS)


def slow_once(timer: Any, starts: list[float], for_s: float) -> Callable[[], None]:
    """A callback that notes when it starts, and whose first call takes `for_s` of the clock."""

    def call() -> None:
        starts.append(timer.time())
        if len(starts) == 1:
            timer._clock.advance_s(for_s)

    return call


def test_every_calls_first_after_one_interval_and_then_on_the_beat(timer: Any, diary: Diary) -> None:
    handle = timer.every(10, diary("beat"))
    assert (handle.when(), handle.pending, handle.cancelled()) == (10.0, True, False)
    assert timer.advance(35) == 3
    assert [at_s for _, at_s in diary.lines] == [10.0, 20.0, 30.0]
    assert handle.when() == 40.0


def test_beats_count_from_the_first_and_do_not_drift(timer: Any) -> None:
    timer.advance(0.0005)  # between two ticks: each call starts half a tick after its beat
    handle = timer.every(0.0107, nothing)
    assert timer.advance(10.7) == 999
    assert handle.when() == 0.0005 + 1000 * 0.0107


def test_arguments_reach_each_call(timer: Any) -> None:
    calls: list[tuple[int, int]] = []
    timer.every(1, lambda *args: calls.append(args), 1, 2)
    timer.advance(2)
    assert calls == [(1, 2), (1, 2)]


@pytest.mark.parametrize(
    ("missed", "starts"),
    [
        ({}, [10, 40, 50]),  # skip is what one gets without saying
        ({"missed": "skip"}, [10, 40, 50]),
        ({"missed": "burst"}, [10, 35, 35, 40, 50]),
        ({"missed": "delay"}, [10, 45, 55]),
    ],
)
def test_calls_missed_behind_a_slow_one(timer: Any, missed: dict[str, str], starts: list[int]) -> None:
    seen: list[float] = []
    timer.every(10, slow_once(timer, seen, for_s=25), **missed)
    timer.advance(58)
    assert seen == starts


@pytest.mark.parametrize("missed", ["skip", "burst", "delay"])
@pytest.mark.parametrize("for_s", [9, 10])  # the second ends right on the next beat
def test_a_slow_call_that_misses_no_beat_moves_none(timer: Any, missed: str, for_s: int) -> None:
    seen: list[float] = []
    timer.every(10, slow_once(timer, seen, for_s), missed=missed)
    timer.advance(40)
    assert seen == [10, 20, 30, 40]


def test_an_interval_below_the_tick_is_called_once_a_tick_with_skip(timer: Any, diary: Diary) -> None:
    timer.every(0.0007, diary("beat"))
    timer.advance(0.005)
    assert [at_s for _, at_s in diary.lines] == [0.001, 0.002, 0.003, 0.004, 0.005]


def test_cancel_ends_it_and_is_true_once(timer: Any, diary: Diary) -> None:
    handle = timer.every(1, diary("beat"))
    timer.advance(2)
    assert [handle.cancel(), handle.cancel(), handle.cancelled(), handle.pending] == [True, False, True, False]
    assert (len(timer), timer.advance(5)) == (0, 0)


def test_cancel_from_inside_the_callback_ends_it(timer: Any) -> None:
    answers: list[bool] = []
    handle = timer.every(1, lambda: answers.append(handle.cancel()))
    timer.advance(1)
    assert (len(timer), handle.pending) == (0, False)
    timer.advance(5)
    assert answers == [True]


def test_an_error_in_a_call_is_reported_and_the_beat_goes_on(make: Make) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)
    timer.every(1, int, "no number")
    timer.advance(3)
    assert [type(error) for error in errors] == [ValueError] * 3


def test_another_word_for_missed_or_an_interval_of_nothing_is_refused(timer: Any) -> None:
    with pytest.raises(ValueError, match="missed must be 'skip', 'burst' or 'delay', got 'catch up'"):
        timer.every(1, nothing, missed="catch up")
    for interval_s in (0, -1, 1e-10):
        with pytest.raises(ValueError, match="interval_s must be positive"):
            timer.every(interval_s, nothing)
    assert len(timer) == 0


def test_pausing_moves_the_beats(timer: Any) -> None:
    ran: list[float] = []
    timer.every(10, lambda: ran.append(timer._clock.monotonic_s()))
    timer.advance(12)
    timer.pause()
    timer.advance(100)
    timer.resume()
    timer.advance(20)
    assert ran == [10.0, 120.0, 130.0]


@given(
    beat=st.integers(0, 10**12),
    interval=st.integers(1, 10**9),
    late=st.integers(0, 10**10),
    missed=st.sampled_from(sorted(NEXT_BEAT)),
)
def test_the_next_beat_is_later_and_where_it_belongs(
    make: Make, beat: int, interval: int, late: int, missed: str
) -> None:
    now = beat + late
    following = NEXT_BEAT[missed](beat, interval, now)
    assert following > beat
    if missed == "burst" or following == beat + interval:
        assert following == beat + interval
    elif missed == "skip":
        assert (following - beat) % interval == 0
        assert following - interval < now <= following
    else:
        assert following == now + interval


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
