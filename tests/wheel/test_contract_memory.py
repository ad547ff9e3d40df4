"""The promises of a wheel by number (semantics.md, section 1): no memory held by the dead, and where memory ends; the
argument slot of a timer, and what a handle says of its end.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import weakref
from typing import Any

import pytest

from tests.wheel.wheels import WHEELS, Make, nothing
from waterclock.wheel import reference

pytestmark = pytest.mark.parametrize("make", WHEELS)


# 7: no memory held by the dead


class Thing:
    def __call__(self) -> None:
        pass


def test_a_cancelled_timer_lets_go_of_its_callback_at_once(make: Make) -> None:
    wheel, thing = make(), Thing()
    alive = weakref.ref(thing)
    timer = wheel.add(5, thing)
    del thing
    assert alive() is not None
    timer.cancel()
    assert alive() is None


def test_a_timer_that_ran_lets_go_of_its_callback_though_the_handle_is_kept(make: Make) -> None:
    wheel, thing = make(), Thing()
    alive = weakref.ref(thing)
    timer = wheel.add(5, thing)
    del thing
    wheel.advance(5)
    assert alive() is None
    assert not timer.pending


def test_a_dropped_wheel_with_waiting_timers_is_collected(make: Make) -> None:
    wheel, thing = make(), Thing()
    alive = weakref.ref(thing)
    for delay in range(100):
        wheel.add(delay**3, thing)
    del wheel, thing
    gc.collect()
    assert alive() is None


# A weak reference is cleared when a cycle is found, before it is freed; a reference count proves the freeing.


def test_a_cycle_of_wheel_callback_and_handle_is_collected(make: Make) -> None:
    class Owner:
        def __init__(self, kept: Thing) -> None:
            self.wheel = make()
            self.timers = [self.wheel.add(5, self.ring), self.wheel.add(6, kept)]

        def ring(self) -> None:
            pass

    kept = Thing()
    before = sys.getrefcount(kept)
    Owner(kept)
    gc.collect()
    assert sys.getrefcount(kept) == before


def test_a_cycle_that_only_the_wheel_itself_can_break_is_collected(make: Make) -> None:
    kept, wheel = Thing(), make()
    before = sys.getrefcount(kept)
    wheel.add(5, wheel.__len__)  # of the compiled wheel a method in C: the collector cannot empty that
    wheel.add(6, kept)
    assert sys.getrefcount(kept) == before + 1
    del wheel
    gc.collect()
    assert sys.getrefcount(kept) == before


def test_a_reachable_wheel_keeps_its_callbacks_through_a_collection(make: Make) -> None:
    wheel = make()
    ran: list[int] = []
    for n in range(100):
        wheel.add(n + 1, lambda n=n: ran.append(n))
    gc.collect()
    wheel.advance(100)
    assert ran == list(range(100))


def test_a_callback_that_adds_when_it_dies_does_not_harm_the_wheel(wheel: Any) -> None:
    class Revenant(Thing):
        def __del__(self) -> None:
            wheel.add(9, nothing)

    timers = [wheel.add(5, Revenant()) for _ in range(3)]
    timers[0].cancel()
    wheel.advance(5)
    wheel._check()
    assert len(wheel) == 3


# memory


EXHAUST = """
import resource, sys
from {module} import TimingWheel
def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
ran = [0]
def run():
    ran[0] += 1
wheel = TimingWheel()
wheel.add(1, run)
resource.setrlimit(resource.RLIMIT_AS, (used() + (24 << 20), resource.RLIM_INFINITY))
added = 1
try:
    while True:
        wheel.add(1 + added * 97 % 70000, run)
        added += 1
except MemoryError:
    pass
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
wheel._check()
assert len(wheel) == added > 1000, (len(wheel), added)
assert wheel.advance(70001) == added == ran[0]
"""


@pytest.mark.memory
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads the address space from /proc")
def test_where_memory_ends_add_raises_and_nothing_is_lost(make: Make) -> None:
    code = EXHAUST.format(module=make.__module__)
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert (done.returncode, done.stderr) == (0, "")


CASCADE = """
import resource
from waterclock.wheel._objects import TimingWheel
def used():
    return int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
ran = []
wheel = TimingWheel(slots=65536)
for n in range(65536):  # one bucket of level 2, which goes down into as many of level 1: 16 MB of chunks
    wheel.add(65536 + n, lambda n=n: ran.append(n))
resource.setrlimit(resource.RLIMIT_AS, (used() + (4 << 20), resource.RLIM_INFINITY))
try:
    wheel.advance(131072)
except MemoryError:
    pass
else:
    raise AssertionError("this was to run out of memory")
resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
wheel._check()
assert (len(wheel), ran) == (65536, [])
assert wheel.advance(131072) == 65536
assert ran == list(range(65536))
"""


@pytest.mark.memory
@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="reads the address space from /proc")
def test_where_memory_ends_in_a_cascade_advance_raises_and_the_next_one_loses_nothing(make: Make) -> None:
    if make is reference.TimingWheel:
        pytest.skip("plain Python may run out of memory between any two lines, and gives no such promise")
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", CASCADE],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert (done.returncode, done.stderr) == (0, "")


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
