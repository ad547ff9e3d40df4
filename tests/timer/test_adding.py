"""The short way into the wheel, compiled beside the plain one: the same nanosecond, the same errors, the same clock."""

from __future__ import annotations

import inspect
import math
import re
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import waterclock
from tests.timer.timers import PlainTimer, by_hand, nothing
from waterclock import Debounce, ExpiringMap, IdleTimeout, ManualClock, Throttle, Timer
from waterclock.timer import adding as plain
from waterclock.timer import drive as built
from waterclock.wheel.bounds import MAX_TIME

PACKAGE = Path(waterclock.__file__).parent
YEARS_146_S = MAX_TIME / 1e9

ORDINARY = st.floats(-1e8, 1e8) | st.integers(-(10**9), 10**9)
STRANGE = (
    st.floats() | st.integers() | st.fractions() | st.sampled_from([True, YEARS_146_S, -YEARS_146_S, 1e300, "1", None])
)


def outcome(call: Callable[[], Any]) -> Any:
    """What it gives, or the kind and the words of its error."""
    try:
        return call()
    except Exception as error:
        return type(error), str(error)


def added(make: Any, start_s: float, delay_s: Any) -> Any:
    timer = make(clock=ManualClock(start_s))
    return outcome(lambda: timer.call_later(delay_s, nothing).deadline), len(timer)


def moved(make: Any, start_s: float, delay_s: Any) -> Any:
    timer = make(clock=ManualClock(start_s))
    handle = timer.call_later(1.0, nothing)
    return outcome(lambda: handle.reschedule(delay_s)), handle.deadline, len(timer)


@given(start_s=st.floats(-1e9, 1e9), delay_s=ORDINARY | STRANGE)
def test_a_delay_is_the_same_nanosecond_or_the_same_error_compiled_and_plain(start_s: float, delay_s: Any) -> None:
    assert added(Timer, start_s, delay_s) == added(PlainTimer, start_s, delay_s)
    assert moved(Timer, start_s, delay_s) == moved(PlainTimer, start_s, delay_s)


@pytest.mark.parametrize("make", [Timer, PlainTimer])
@pytest.mark.parametrize(
    ("delay_s", "ns"),
    [(0.07, 70_000_000), (5e-10, 1), (4e-10, 0), (-0.5e-9, 0), (3, 3 * 10**9), (Fraction(1, 2), 500_000_000)],
)
def test_a_delay_goes_to_the_nearest_nanosecond(make: Any, delay_s: Any, ns: int) -> None:
    assert added(make, 0.0, delay_s) == (ns, 1)


@pytest.mark.parametrize("make", [Timer, PlainTimer])
@pytest.mark.parametrize("delay_s", [math.nan, math.inf, -math.inf])
def test_a_delay_that_is_no_number_is_refused_and_leaves_nothing(make: Any, delay_s: float) -> None:
    wrong = (ValueError, f"delay_s must be a number of seconds, got {delay_s}")
    assert added(make, 0.0, delay_s) == (wrong, 0)
    assert moved(make, 0.0, delay_s) == (wrong, 10**9, 1)


@pytest.mark.parametrize("make", [Timer, PlainTimer])
def test_a_callback_gets_as_many_arguments_as_were_given(make: Any) -> None:
    timer, got = by_hand(make), list[tuple[Any, ...]]()
    for number in range(4):
        timer.call_later(0.5, lambda *args: got.append(args), *range(number))
    timer.advance(1)
    assert got == [(), (0,), (0, 1), (0, 1, 2)]


@pytest.mark.parametrize("make", [Timer, PlainTimer])
@pytest.mark.parametrize("arguments", [(), (1,), (1, 2)])
def test_what_cannot_be_called_is_refused_however_many_arguments_it_has(make: Any, arguments: Any) -> None:
    timer = by_hand(make)
    for add in (timer.call_later, timer.call_at):
        with pytest.raises(TypeError, match=r"^callback must be callable, got 7$"):
            add(1, 7, *arguments)
    assert len(timer) == 0


@pytest.mark.parametrize("make", [Timer, PlainTimer])
@pytest.mark.parametrize("wrong", ["3", None, 1j])
def test_what_is_no_number_of_seconds_is_a_type_error_that_names_the_argument(make: Any, wrong: Any) -> None:
    """It was Python's word for the product: can't multiply sequence by non-int of type 'float'."""
    timer = by_hand(make)
    handle = timer.call_later(1, nothing)
    calls = {
        "delay_s": [lambda: timer.call_later(wrong, nothing), lambda: handle.reschedule(wrong)],
        "when_s": [lambda: timer.call_at(wrong, nothing)],
        "interval_s": [lambda: timer.every(wrong, nothing)],
        "jitter": [lambda: timer.every(1, nothing, jitter=wrong)],
        "tick_s": [lambda: make(wrong)],
        "idle_s": [lambda: IdleTimeout(timer, wrong, nothing)],
        "ttl_s": [lambda: ExpiringMap(timer, wrong)],
        "quiet_s": [lambda: Debounce(timer, wrong, nothing)],
    }
    for name, several in calls.items():
        for call in several:
            with pytest.raises(TypeError, match=rf"^{name} must be a number of seconds, got {re.escape(repr(wrong))}$"):
                call()
    assert (len(timer), handle.when()) == (1, 1.0)


@pytest.mark.parametrize("wrong", [None, 5, ManualClock()])
def test_what_stands_on_a_timer_takes_nothing_else_for_one(wrong: Any) -> None:
    makes = (lambda: IdleTimeout(wrong, 1, nothing), lambda: ExpiringMap(wrong, 1),
             lambda: Debounce(wrong, 1, nothing), lambda: Throttle(wrong, 1, nothing))  # fmt: skip
    for make in makes:
        with pytest.raises(TypeError, match=r"^timer must be a Timer or an AsyncTimer, got "):
            make()


def test_the_compiled_way_reads_the_clock_of_the_machine_as_python_does() -> None:
    timer = Timer()
    for _ in range(100):
        before, now, after = time.monotonic_ns(), round(timer.time() * 1e9), time.monotonic_ns()
        assert before - 1000 <= now <= after + 1000  # seconds are floats, and round
        handle: Any = timer.call_later(3600, nothing)
        assert after <= handle.deadline - 3600 * 10**9 <= time.monotonic_ns()
    timer.close()


@pytest.mark.parametrize("make", [plain.Touch, built.Touch])
def test_a_touch_notes_the_drivers_time_which_stands_still_in_a_pause(make: Any) -> None:
    clock = ManualClock(5.0)
    touched, touched._drive = (one := make()), Timer(clock=clock)
    one.touch()
    assert touched._touched_ns == 5 * 10**9
    touched._drive.pause()
    clock.advance_s(60.0)
    one.touch()
    assert touched._touched_ns == 5 * 10**9
    touched._drive.resume()
    clock.advance_s(1.0)
    one.touch()
    assert touched._touched_ns == 6 * 10**9


@pytest.mark.parametrize(
    "settings", [{"max_pending": 3}, {"max_pending": 3, "when_full": "run"}, {"max_pending": 3, "when_full": "block"}]
)
def test_what_stands_before_the_wheel_is_asked_however_a_timer_is_added(settings: Any) -> None:
    timer = by_hand(Timer, **settings)
    handles = [timer.call_later(1.0, nothing) for _ in range(3)]
    if settings.get("when_full") == "run":
        assert timer.call_later(1.0, nothing).pending is False
    else:
        handles.pop().cancel()
    assert timer.call_later(1.0, max, 1, 2) is not None


def test_the_compiled_one_tells_its_signature_as_the_plain_one_does() -> None:
    for name in ("call_later", "call_at", "time"):
        wanted = [*inspect.signature(getattr(plain.Adder, name)).parameters]
        assert [*inspect.signature(getattr(built.Adder, name)).parameters] == wanted, name
    assert [*inspect.signature(IdleTimeout.touch).parameters] == ["self"]


def test_no_compiled_file_reads_a_clock_but_the_one_beside_clock_py() -> None:
    sources = [path for ending in ("*.pyx", "*.pxi", "*.pxd", "*.h") for path in PACKAGE.rglob(ending)]
    reads = re.compile(r"clock_gettime|PyTime_|gettimeofday|mach_absolute_time|QueryPerformanceCounter|\btime\(NULL")
    assert [path.name for path in sources if reads.search(path.read_text())] == ["clock.h"]
