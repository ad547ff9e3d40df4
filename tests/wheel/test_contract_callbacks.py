"""The promises of a wheel by number (semantics.md, section 1): what a callback may do, also fail."""

from __future__ import annotations

from typing import Any

import pytest

from tests.wheel.wheels import SIZED, Make, fill, nothing

pytestmark = pytest.mark.parametrize("make", SIZED)


# 8: re-entrant


def test_a_callback_that_adds_for_now_is_served_in_the_same_advance_after_what_was_due(make: Make) -> None:
    wheel = make(tick=10)
    ran: list[str] = []

    def first() -> None:
        ran.append("first")
        wheel.add(0, lambda: ran.append("added for now"))
        wheel.add(-5, lambda: ran.append("added for the past"))

    wheel.add_at(10, first)
    fill_late = [wheel.add_at(d, lambda d=d: ran.append(f"due {d}")) for d in (10, 20, 40)]
    assert wheel.advance(45) == 6
    assert ran == ["first", "due 10", "due 20", "due 40", "added for now", "added for the past"]
    assert not any(timer.pending for timer in fill_late)


def test_limit_bounds_a_callback_that_adds_itself_again_and_again(wheel: Any) -> None:
    ran: list[int] = []

    def again() -> None:
        ran.append(wheel.now)
        if len(ran) < 1000:  # where limit is ignored this test fails, and does not hang
            wheel.add(0, again)

    wheel.add(1, again)
    assert wheel.advance(7, limit=50) == 50
    assert len(ran) == 50
    assert len(wheel) == 1


def test_what_limit_holds_back_runs_first_next_time_and_in_order(make: Make) -> None:
    wheel = make(slots=4)
    ran = fill(wheel, 5, 5, 5, 6, 70, 71)
    counts = []
    for now, limit in ((70, 2), (70, 0), (70, 1), (70, 2), (71, 10)):
        counts.append(wheel.advance(now, limit))
        wheel._check()
    assert counts == [2, 0, 1, 2, 1]
    assert ran == [5, 5, 5, 6, 70, 71]


def test_a_timer_added_between_two_limited_advances_keeps_the_order_by_tick(make: Make) -> None:
    wheel = make(slots=4)
    ran = fill(wheel, 5, 5, 40)
    wheel.advance(50, limit=1)
    ran2 = fill(wheel, 20, 51)  # 20 has passed: it counts as of now, behind 40
    assert wheel.next_deadline() == 50
    wheel.add_at(52, lambda: ran.extend(ran2))
    wheel.advance(50, limit=2)
    assert (ran, ran2) == ([5, 5, 40], [])
    wheel.advance(60)
    assert ran == [5, 5, 40, 20, 51]


def test_a_callback_may_cancel_one_that_is_due_in_the_same_bucket(wheel: Any) -> None:
    ran: list[str] = []
    timers: list[Any] = []
    wheel.add(5, lambda: ran.append(f"first, {[timer.cancel() for timer in timers]}"))
    timers += [wheel.add(5, lambda: ran.append("never")) for _ in range(100)]
    wheel.add(5, lambda: ran.append("last"))
    assert wheel.advance(5) == 2
    assert ran == [f"first, {[True] * 100}", "last"]
    wheel._check()


def test_cancel_while_a_coarse_bucket_is_half_run_leaves_no_counted_ghost(make: Make) -> None:
    wheel = make(slots=4)
    timers: list[Any] = []
    wheel.add_at(16, lambda: [timer.cancel() for timer in timers])
    timers += [wheel.add_at(deadline, nothing) for deadline in (16, 17, 19, 30, 31)]
    assert wheel.advance(16) == 1
    assert (len(wheel), wheel.next_deadline(), wheel.advance(100)) == (0, None, 0)
    wheel._check()


def test_a_callback_may_reschedule_others_into_the_past_and_the_future(wheel: Any) -> None:
    ran: list[str] = []
    soon, late = wheel.add(6, lambda: ran.append("soon")), wheel.add(900, lambda: ran.append("late"))
    wheel.add(5, lambda: ran.append(f"{soon.reschedule(100)} {late.reschedule(0)}"))
    assert wheel.advance(10) == 2
    assert ran == ["True True", "late"]
    assert soon.deadline == 110


def test_the_last_callback_may_start_the_wheel_anew_a_full_turn_later(make: Make) -> None:
    for later in (1, 3, 4, 15, 16, 17, 255, 256, 257):
        wheel = make(slots=16)
        ran: list[int] = []
        wheel.add(5, lambda w=wheel, r=ran, d=later: w.add(d, lambda: r.append(w.now)))
        assert wheel.advance(260) == 1
        assert wheel.next_deadline() == 260 + later
        assert wheel.advance(259 + later) == 0
        assert wheel.advance(260 + later) == 1
        assert ran == [260 + later]


def test_a_callback_that_cancels_all_others_may_start_the_wheel_anew(make: Make) -> None:
    for later in (*range(1, 20), 255, 256, 257, 261):
        wheel = make(slots=16)
        ran: list[int] = []
        others: list[Any] = []

        def anew(w: Any = wheel, r: list[int] = ran, o: list[Any] = others, d: int = later) -> None:
            assert all(timer.cancel() for timer in o)
            w.add(d, lambda: r.append(w.now))
            w._check()

        wheel.add(5, anew)
        others += [wheel.add(delay, nothing) for delay in (5, 5, 300)]
        assert wheel.advance(260) == 1
        assert wheel.next_deadline() == 260 + later
        assert [wheel.advance(259 + later), wheel.advance(260 + later)] == [0, 1]
        assert ran == [260 + later]


def test_advance_inside_advance_raises_and_the_wheel_goes_on(wheel: Any) -> None:
    ran = fill(wheel, 6)
    wheel.add(5, lambda: wheel.advance(9))
    with pytest.raises(ExceptionGroup) as caught:
        wheel.advance(8)
    assert isinstance(caught.value.exceptions[0], RuntimeError)
    assert ran == [6]
    assert wheel.advance(9) == 0


def test_next_deadline_and_len_inside_a_callback_speak_of_what_still_waits(wheel: Any) -> None:
    seen: list[Any] = []
    for deadline in (5, 5, 9, 40):
        wheel.add_at(deadline, lambda: seen.append((wheel.now, len(wheel), wheel.next_deadline())))
    wheel.advance(20)
    assert seen == [(20, 3, 20), (20, 2, 20), (20, 1, 40)]


# 10: exceptions


def test_exceptions_do_not_lose_the_others_and_come_as_one_group(wheel: Any) -> None:
    ran: list[int] = []

    def fail(error: Exception) -> None:
        raise error

    errors = [KeyError("a"), ValueError("b")]
    for n, error in enumerate(errors):
        wheel.add(5 + n, lambda error=error: fail(error))
        wheel.add(5 + n, lambda n=n: ran.append(n))
    with pytest.raises(ExceptionGroup) as caught:
        wheel.advance(10)
    assert list(caught.value.exceptions) == errors
    assert ran == [0, 1]
    assert (len(wheel), wheel.statistics().fired, wheel.advance(11)) == (0, 4, 0)
    wheel._check()


def test_a_failing_callback_counts_towards_limit(wheel: Any) -> None:
    wheel.add(1, lambda: 1 / 0)
    ran = fill(wheel, 1)
    with pytest.raises(ExceptionGroup):
        wheel.advance(1, limit=1)
    assert ran == []
    assert wheel.advance(1) == 1


def test_keyboard_interrupt_stops_at_once_and_what_was_due_stays_pending(wheel: Any) -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    wheel.add(1, lambda: 1 / 0)
    wheel.add(1, stop)
    ran = fill(wheel, 1, 2)
    with pytest.raises(KeyboardInterrupt) as caught:
        wheel.advance(5)
    assert isinstance(caught.value.__cause__, ExceptionGroup)
    assert ran == []
    wheel._check()
    assert wheel.advance(5) == 2
    assert ran == [1, 2]
