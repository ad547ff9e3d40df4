"""The promises of a wheel by number (semantics.md, section 1): a timer runs once or is cancelled; arguments, statistics."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wheel.wheels import SIZED, Make, nothing

pytestmark = pytest.mark.parametrize("make", SIZED)


# 4: exactly once or cancelled


def test_cancel_is_true_once_and_the_callback_never_runs(wheel: Any) -> None:
    ran: list[int] = []
    timer = wheel.add(5, lambda: ran.append(1))
    assert timer.pending
    assert [timer.cancel(), timer.cancel()] == [True, False]
    assert not timer.pending
    assert wheel.advance(10) == 0
    assert ran == []


def test_cancel_after_it_ran_is_false_and_it_does_not_run_again(wheel: Any) -> None:
    ran: list[int] = []
    timer = wheel.add(5, lambda: ran.append(1))
    assert [wheel.advance(5), wheel.advance(500)] == [1, 0]
    assert not timer.cancel()
    assert not timer.pending
    assert ran == [1]


def test_inside_its_own_callback_a_timer_is_over(wheel: Any) -> None:
    seen: list[Any] = []
    timer = wheel.add(1, lambda: seen.extend((timer.pending, timer.cancel(), timer.reschedule(5), len(wheel))))
    wheel.advance(1)
    assert seen == [False, False, False, 0]


@pytest.mark.parametrize("count", [1, 2, 31, 95, 1000])
def test_len_counts_exactly_the_waiting_whatever_is_cancelled(wheel: Any, count: int) -> None:
    timers = [wheel.add(7, nothing) for _ in range(count)]
    for left, timer in enumerate(reversed(timers)):
        assert len(wheel) == count - left
        timer.cancel()
        wheel._check()
    assert len(wheel) == 0


@pytest.mark.parametrize("kept", [range(0, 1000, 7), range(993, 1000), range(7), [500]])
def test_cancelling_most_of_a_bucket_leaves_the_rest_in_order(wheel: Any, kept: Any) -> None:
    ran: list[int] = []
    timers = [wheel.add(7, lambda n=n: ran.append(n)) for n in range(1000)]
    for n, timer in enumerate(timers):
        if n not in set(kept):
            assert timer.cancel()
    wheel._check()
    assert wheel.advance(7) == len(list(kept))
    assert ran == list(kept)


def test_reschedule_moves_a_timer_it_is_in_the_wheel_once_and_runs_once_at_the_new_time(wheel: Any) -> None:
    ran: list[int] = []
    timer = wheel.add(5, lambda: ran.append(wheel.now))
    assert timer.reschedule(300)
    assert (len(wheel), timer.deadline, wheel.next_deadline()) == (1, 300, 300)
    assert [wheel.advance(now) for now in (5, 299, 300, 301)] == [0, 0, 1, 0]
    assert ran == [300]


def test_reschedule_to_an_earlier_time_is_seen_by_next_deadline(wheel: Any) -> None:
    timer = wheel.add(500, nothing)
    assert wheel.next_deadline() == 500
    timer.reschedule(5)
    assert wheel.next_deadline() == 5


@pytest.mark.parametrize("delay", [5, 500])
def test_a_rescheduled_timer_goes_behind_those_already_added_for_the_tick(make: Make, delay: int) -> None:
    wheel = make(slots=16)
    ran: list[int] = []
    timers = [wheel.add(delay, lambda n=n: ran.append(n)) for n in range(4)]
    timers[1].reschedule(delay)
    timers[0].reschedule(delay)
    wheel.advance(delay)
    assert ran == [2, 3, 1, 0]


def test_reschedule_of_a_timer_that_is_over_is_false_and_does_nothing(wheel: Any) -> None:
    ran, cancelled = wheel.add(1, nothing), wheel.add(1, nothing)
    cancelled.cancel()
    wheel.advance(1)
    assert [ran.reschedule(5), cancelled.reschedule(5), len(wheel)] == [False, False, 0]


# wrong arguments


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("tick", {"tick": 0}),
        ("tick", {"tick": -1}),
        ("tick", {"tick": 2**62}),
        ("start", {"start": 2**62 + 1}),
        ("slots", {"slots": 1}),
        ("slots", {"slots": 2**17}),
        ("rounding", {"rounding": "up"}),
    ],
)
def test_a_wrong_argument_of_a_wheel_is_named(make: Make, name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=name):
        make(**arguments)


def test_wrong_arguments_of_the_verbs_are_named_and_change_nothing(wheel: Any) -> None:
    with pytest.raises(TypeError, match="callback"):
        wheel.add(5, 7)
    for wrong in (1.5, "5", None):
        with pytest.raises(TypeError):
            wheel.add(wrong, nothing)
        with pytest.raises(TypeError):
            wheel.advance(wrong)
    with pytest.raises(ValueError, match="limit"):
        wheel.advance(5, limit=-1)
    with pytest.raises(ValueError, match="now"):
        wheel.advance(2**63)
    assert (len(wheel), wheel.now) == (0, 0)


def test_a_timer_cannot_be_made_by_hand_into_something_that_crashes(make: Make) -> None:
    kind = type(make().add(1, nothing))
    try:
        timer = kind.__new__(kind)
        assert not timer.pending
        assert not timer.cancel()
    except (TypeError, AttributeError):
        pass
    with pytest.raises(TypeError):
        kind()


# statistics


def test_statistics_count_what_happened(make: Make) -> None:
    wheel = make(slots=16)
    timers = [wheel.add(delay, nothing) for delay in (1, 2, 300, 400)]
    timers[3].cancel()
    wheel.advance(20)
    found = wheel.statistics()
    assert (found.now, found.added, found.fired, found.cancelled, found.pending) == (20, 4, 2, 1, 1)
    assert (found.buckets, found.cascaded) == (1, 0)
    with pytest.raises(AttributeError):
        found.now = 5  # type: ignore[misc]
