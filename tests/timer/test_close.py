"""The end: close gives back what waited, and then nothing is taken (semantics.md, section 3: 8)."""

from __future__ import annotations

import weakref
from typing import Any

import pytest

from tests.timer.timers import DRIVERS, Diary, Make, by_hand, nothing
from waterclock import TimerClosed
from waterclock.errors import UsageError

pytestmark = pytest.mark.parametrize("make", DRIVERS)


def test_close_gives_back_what_waited_and_none_of_it_runs(timer: Any, diary: Diary) -> None:
    ran, cancelled = timer.call_later(0, nothing), timer.call_later(5, diary("cancelled"))
    waiting = {timer.call_later(delay_s, diary("never")) for delay_s in (0.5, 2, 3, 500, 10**8)}
    waiting |= {timer.every(0.7, diary("never"))}
    timer.advance(0)
    cancelled.cancel()
    closed = timer.close()
    assert (len(closed), set(closed)) == (6, waiting)
    assert [handle.pending for handle in closed] == [False] * 6
    assert [handle.cancelled() for handle in closed] == [True] * 6
    assert [handle.cancel() for handle in closed] == [False] * 6
    assert not ran.cancelled()
    assert (len(timer), timer.advance(10**9), diary.lines) == (0, 0, [])


def test_after_close_every_add_raises_also_one_that_is_due(timer: Any) -> None:
    timer.close()
    for add in (timer.call_later, timer.call_at, timer.every):
        for seconds in (0.0001, 60):
            with pytest.raises(TimerClosed, match="closed"):
                add(seconds, nothing)
    with pytest.raises(TimerClosed):
        timer.call_later(-5, nothing)
    assert issubclass(TimerClosed, UsageError)
    assert (len(timer), timer.close()) == (0, [])


@pytest.mark.parametrize("settings", [{"max_pending": 1}, {"max_pending": 1, "when_full": "run"}])
def test_a_closed_timer_with_a_cap_is_closed_too(make: Make, settings: dict[str, Any]) -> None:
    timer = by_hand(make, **settings)
    timer.call_later(1, nothing)
    timer.close()
    with pytest.raises(TimerClosed):
        timer.call_later(1, nothing)


def test_closing_again_gives_an_empty_list(timer: Any) -> None:
    timer.call_later(1, nothing)
    assert [len(timer.close()), timer.close(), timer.close()] == [1, [], []]


def test_close_from_inside_a_callback_ends_also_the_rest_of_its_tick(timer: Any, diary: Diary) -> None:
    closed: list[Any] = []
    timer.call_later(1, lambda: closed.extend(timer.close()))
    rest = [timer.call_later(1, diary("same tick")) for _ in range(100)]
    rest += [timer.call_later(2, diary("later"))]
    assert timer.advance(5) == 1
    assert diary.lines == []
    assert set(closed) == set(rest)
    assert timer.time() == 5.0


def test_a_callback_that_closes_cannot_add(make: Make) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)

    def close_and_add() -> None:
        timer.close()
        timer.call_later(0, nothing)

    timer.call_later(1, close_and_add)
    timer.advance(1)
    assert [type(error) for error in errors] == [TimerClosed]


def test_close_from_inside_a_periodic_callback_ends_it_and_gives_it_back(timer: Any) -> None:
    closed: list[Any] = []
    handle = timer.every(1, lambda: closed.extend(timer.close()))
    assert timer.advance(5) == 1
    assert (closed, handle.pending, handle.cancelled(), handle.cancel()) == ([handle], False, True, False)


def test_with_closes_at_the_end_also_behind_an_error(timer: Any) -> None:
    handle = timer.call_later(1, nothing)
    with pytest.raises(KeyError), timer as same:
        raise KeyError(same is timer)
    assert handle.cancelled()
    with pytest.raises(TimerClosed):
        timer.call_later(1, nothing)


def test_a_paused_timer_closes_and_a_closed_one_can_be_paused(timer: Any) -> None:
    handle = timer.call_later(1, nothing)
    timer.pause()
    assert timer.close() == [handle]
    timer.resume()
    timer.pause()
    with pytest.raises(TimerClosed):
        timer.call_later(1, nothing)
    timer.resume()
    with pytest.raises(TimerClosed):
        timer.call_later(1, nothing)


def test_close_lets_go_of_the_callbacks(make: Make) -> None:
    class Held:
        pass

    timer, held = by_hand(make), Held()
    seen = weakref.ref(held)
    timer.call_later(1, nothing_with, held)
    timer.call_later(1, nothing_with, held, held)
    handles = timer.close()
    del held
    assert seen() is None
    assert len(handles) == 2


def nothing_with(*args: object) -> None:
    pass
