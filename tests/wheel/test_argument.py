"""The argument slot of a timer, and what a handle tells of its end: one suite for both wheels."""

import gc
import weakref

import pytest

from tests.wheel.wheels import WHEELS, Make

pytestmark = pytest.mark.parametrize("make", WHEELS)


class Payload:
    """Something that a weak reference can watch."""


def test_a_callback_is_called_with_its_argument(make: Make) -> None:
    turning, ran = make(), []
    turning.add(1, ran.append, "first")
    turning.add_at(2, ran.append, None)
    assert (turning.advance(2), ran) == (2, ["first", None])


def test_a_callback_without_an_argument_is_called_with_nothing(make: Make) -> None:
    turning, calls = make(), []
    turning.add(1, lambda *arguments: calls.append(arguments))
    turning.advance(1)
    assert calls == [()]


def test_a_second_argument_is_refused(make: Make) -> None:
    with pytest.raises(TypeError):
        make().add(1, print, "one", "two")


def test_a_moved_timer_keeps_its_argument(make: Make) -> None:
    turning, ran = make(), []
    turning.add(1, ran.append, "moved").reschedule(5)
    turning.advance(5)
    assert ran == ["moved"]


@pytest.mark.parametrize("end", ["cancelled", "ran", "wheel gone"])
def test_an_argument_is_let_go_at_the_end(make: Make, end: str) -> None:
    turning, payload = make(), Payload()
    seen = weakref.ref(payload)
    handle = turning.add(1, lambda given: None, payload)
    del payload
    assert seen() is not None
    if end == "cancelled":
        handle.cancel()
    elif end == "ran":
        turning.advance(1)
    else:
        del turning
        handle = None
        gc.collect()
    assert seen() is None


def test_a_cycle_through_an_argument_is_collected(make: Make) -> None:
    turning, payload = make(), Payload()
    payload.wheel = turning  # type: ignore[attr-defined]
    turning.add(1, print, payload)
    seen = weakref.ref(payload)
    del turning, payload
    gc.collect()
    assert seen() is None


def test_cancelled_is_true_after_a_cancel_only(make: Make) -> None:
    turning = make()
    waits, ran, cancelled = turning.add(9, print), turning.add(1, lambda: None), turning.add(1, print)
    cancelled.cancel()
    turning.advance(1)
    assert [handle.cancelled() for handle in (waits, ran, cancelled)] == [False, False, True]


def test_cancelled_is_false_inside_the_callback(make: Make) -> None:
    turning, told = make(), []
    handle = turning.add(1, lambda: told.append((handle.cancelled(), handle.pending)))
    turning.advance(1)
    assert told == [(False, False)]


def test_when_is_the_deadline_in_seconds_of_a_wheel_of_nanoseconds(make: Make) -> None:
    assert make(start=500_000_000).add(1_000_000_000, print).when() == 1.5


def test_clear_cancels_all_that_waits_and_gives_it_back_by_deadline(make: Make) -> None:
    turning, ran = make(slots=4), []
    handles = [turning.add(delay, ran.append, delay) for delay in (500, 3, 0, 70, 70)]
    handles[1].cancel()
    cleared = turning.clear()
    assert [handle.deadline for handle in cleared] == [0, 70, 70, 500]
    assert set(cleared) == set(handles) - {handles[1]}
    assert [handle.cancelled() for handle in handles] == [True] * 5
    assert (len(turning), turning.advance(1000), turning.clear()) == (0, 0, [])


def test_a_callback_may_clear_its_wheel(make: Make) -> None:
    turning, ran = make(), []
    turning.add(1, lambda: ran.extend(turning.clear()))
    later = [turning.add(1, print), turning.add(2, print)]
    assert (turning.advance(5), ran) == (1, later)
    turning._check()
