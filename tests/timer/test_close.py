"""The end, and what goes wrong: what close gives back, where a callback's error goes (semantics.md, section 3: 4, 8);
and what a driver says of a moment: its tick, and what is due next.
"""

from __future__ import annotations

import dataclasses
import re
import sys
import weakref
from typing import Any

import pytest

from tests.timer.timers import DRIVERS, Diary, Make, by_hand, nothing
from waterclock import TimerClosed
from waterclock.errors import UsageError
from waterclock.timer import TimerStatistics

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


def raising(error: BaseException) -> Any:
    def fail() -> None:
        raise error

    return fail


def test_an_error_goes_to_on_error_and_the_others_of_its_tick_run(make: Make) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)
    diary = Diary(timer)
    first, second = KeyError("first"), OSError("second")
    for callback in (diary("a"), raising(first), diary("b"), raising(second), diary("c")):
        timer.call_later(1, callback)
    assert timer.advance(1) == 5
    assert errors == [first, second]
    assert [name for name, _ in diary.lines] == ["a", "b", "c"]


def test_an_error_keeps_its_traceback(make: Make) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)
    timer.call_later(1, raising(KeyError("gone")))
    timer.advance(1)
    trace = errors[0].__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    assert trace is not None
    assert trace.tb_frame.f_code.co_name == "fail"


def test_a_group_that_a_callback_raises_is_one_error(make: Make) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)
    group = ExceptionGroup("mine", [KeyError(1), KeyError(2)])
    timer.call_later(1, raising(group))
    timer.advance(1)
    assert errors == [group]


def test_without_on_error_pythons_own_hook_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    timer = by_hand(make)
    error = KeyError("nobody asked")
    timer.call_later(1, raising(error))
    timer.advance(1)
    assert [(args.exc_type, args.exc_value) for args in told] == [(KeyError, error)]
    assert timer.statistics().failed == 1


class Shop:
    def opens(self) -> None:
        raise KeyError("the key")


def test_what_python_prints_names_the_timer_and_the_callback(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    # it was "<function _Unraisable.__del__ ...>", as if waterclock itself had failed
    timer = by_hand(make)
    timer.call_later(1, Shop().opens)
    timer.call_later(1, int, "no number")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", sys.__unraisablehook__)  # pytest has one of its own
        timer.advance(1)
    printed = capsys.readouterr().err
    assert re.search("the callback Shop.opens of (the Timer 'waterclock-timer'|an AsyncTimer)", printed)
    assert re.search(
        " a callback of (the Timer 'waterclock-timer'|an AsyncTimer)", printed
    )  # in C there is no frame of it
    assert "_Unraisable" not in printed


def test_an_on_error_that_fails_is_told_to_the_hook_and_stops_nobody(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", told.append)
    failure = RuntimeError("the handler too")
    timer = by_hand(make, on_error=lambda error: raising(failure)())
    diary = Diary(timer)
    timer.call_later(1, raising(KeyError("gone")))
    timer.call_later(1, diary("after"))
    timer.advance(1)
    assert [args.exc_value for args in told] == [failure]
    assert len(diary.lines) == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interrupt_comes_out_where_the_wheel_is_turned_by_hand_and_the_rest_stays(
    make: Make, kind: type[BaseException]
) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)
    diary = Diary(timer)
    callbacks = (diary("a"), diary("b"), diary("c"), raising(KeyError("before")), raising(kind()), diary("after"))
    for callback in callbacks:  # slices of 1, 2 and 4: the last three leave the wheel together
        timer.call_later(1, callback)
    with pytest.raises(kind):
        timer.advance(1)
    assert [type(error) for error in errors] == [KeyError]
    assert (timer.advance(0), [name for name, _ in diary.lines]) == (1, ["a", "b", "c", "after"])


def test_what_is_neither_an_exception_nor_an_interrupt_is_reported_and_the_rest_runs(make: Make) -> None:
    class Stop(BaseException):
        pass

    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)
    diary = Diary(timer)
    stop = Stop()
    timer.call_later(1, raising(stop))
    timer.call_later(1, diary("after"))
    assert timer.advance(1) == 2
    assert errors == [stop]
    assert len(diary.lines) == 1


def test_an_error_of_the_wheel_itself_comes_out_and_loses_nothing(make: Make) -> None:
    class Short:
        """The wheel, short of memory for once."""

        def __init__(self, wheel: Any) -> None:
            self._wheel = wheel
            self._short = True

        def __getattr__(self, name: str) -> Any:
            return getattr(self._wheel, name)

        def __len__(self) -> int:
            return len(self._wheel)

        def advance(self, now: int, limit: int) -> int:
            if self._short:
                self._short = False
                raise MemoryError
            return int(self._wheel.advance(now, limit))

    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)
    diary = Diary(timer)
    timer.call_later(1, diary("ran"))
    timer._wheel = Short(timer._wheel)
    with pytest.raises(MemoryError):
        timer.advance(1)
    assert (timer.advance(0), errors) == (1, [])
    assert diary.lines == [("ran", 1.0)]


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
