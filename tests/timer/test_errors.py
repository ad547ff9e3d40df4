"""What a callback raises: where it goes, and that it costs no other timer (semantics.md, section 3: 4)."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.timer.timers import DRIVERS, Diary, Make, by_hand

pytestmark = pytest.mark.parametrize("make", DRIVERS)


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
