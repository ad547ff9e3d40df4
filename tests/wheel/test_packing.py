"""Leaving a large bucket of the compiled wheel: packed in strides, whole after each of them.

Promises 6 and 7 of docs/semantics.md: no cancel walks a bucket; a bucket keeps 4 places for each living timer, and 64;
memory goes back when a burst is over. `_check()` has the bound in its own words.
"""

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.processes import alone
from waterclock import wheel

pytestmark = pytest.mark.skipif(not wheel.COMPILED, reason="the reference wheel has no places: a bucket is a ring")

FAR = 1 << 30  # all of them in one bucket of a high level


def leaving(count: int, choose: Callable[[list[Any]], list[Any]]) -> tuple[Any, list[Any]]:
    turning = wheel.TimingWheel()
    ran: list[int] = []
    handles = [turning.add(FAR + n, ran.append, n) for n in range(count)]
    left = set(range(count))
    for handle in choose(handles):
        assert handle.cancel()
        left.discard(handle.deadline - FAR)
        if len(left) % 7 == 0 or len(left) < 200:
            turning._check()
    turning._check()
    turning.advance(FAR + count)
    return ran, sorted(left)


ORDERS: dict[str, Callable[[list[Any]], list[Any]]] = {
    "all but the last": lambda handles: handles[:-1],
    "all but the first": lambda handles: handles[:0:-1],
    "at random": lambda handles: random.Random(1).sample(handles, len(handles) - 50),
    "every second, then the rest": lambda handles: handles[::2] + handles[1::2][:-3],
}


@pytest.mark.parametrize("order", ORDERS)
def test_whatever_leaves_a_bucket_it_is_whole_and_tight_after_each(order: str) -> None:
    ran, left = leaving(3000, ORDERS[order])
    assert ran == left


def test_timers_that_join_a_bucket_while_it_is_packed_keep_their_order() -> None:
    turning, chance, ran = wheel.TimingWheel(), random.Random(2), []
    waiting = [turning.add(FAR, ran.append, n) for n in range(4000)]
    wanted = dict(enumerate(waiting))
    for n in range(4000, 8000):
        wanted[n] = turning.add(FAR, ran.append, n)
        for number in chance.sample(sorted(wanted), 2) if len(wanted) > 3 else ():
            wanted.pop(number).cancel()
    turning._check()
    turning.advance(FAR)
    assert ran == sorted(wanted)


def test_timers_moved_within_a_bucket_that_is_packed_are_not_lost() -> None:
    turning, chance, ran = wheel.TimingWheel(), random.Random(3), []
    waiting = [turning.add(FAR, ran.append, n) for n in range(2000)]
    for _ in range(10_000):
        chance.choice(waiting).reschedule(FAR)
    turning._check()
    turning.advance(FAR)
    assert sorted(ran) == list(range(2000))


def test_callbacks_that_cancel_most_of_their_own_bucket_leave_it_tight() -> None:
    turning = wheel.TimingWheel()
    turning.add(1, lambda: [handle.cancel() for handle in handles[20:4900]])
    handles = [turning.add(1, lambda: None) for _ in range(5000)]
    turning.advance(1, limit=6)
    turning._check()
    assert turning.advance(1) == 5000 - 4880 - 5


def in_the_middle_of_packing(turning: Any, deadline: int, kept: int = 6000) -> tuple[list[int], list[Any]]:
    """Timers at `deadline` in a bucket that is just being packed: what will run, and the handles that wait."""
    assert turning._check() == 0
    ran: list[int] = []
    handles = [turning.add_at(deadline, ran.append, n) for n in range(4 * kept)]
    random.Random(4).shuffle(handles)
    while not turning._check() and handles:
        for handle in handles[-100:]:
            handle.cancel()
        del handles[-100:]
    assert turning._check() == 1, "packing is done in strides: there is a moment when it is not finished"
    return ran, handles


@pytest.mark.parametrize("deadline", [1, 300, FAR])
def test_a_bucket_whose_time_comes_while_it_is_packed_gives_each_timer_once(deadline: int) -> None:
    turning = wheel.TimingWheel()
    ran, waiting = in_the_middle_of_packing(turning, deadline)
    assert turning.advance(deadline) == len(waiting) == len(set(ran))
    assert ran == sorted(ran)


def test_a_bucket_that_fires_in_part_while_it_is_packed_goes_on_whole() -> None:
    turning = wheel.TimingWheel()
    ran, waiting = in_the_middle_of_packing(turning, 1)
    turning.advance(1, limit=3000)
    left = [handle for handle in waiting if handle.pending]
    for handle in left[5:]:
        handle.cancel()
    turning._check()
    turning.advance(1)
    assert len(ran) == 3000 + 5
    assert ran == sorted(set(ran))


def test_a_bucket_that_went_down_a_level_while_it_was_packed_is_packed_anew_when_it_is_used_again() -> None:
    turning = wheel.TimingWheel(slots=4)
    for _ in range(6):
        ran, waiting = in_the_middle_of_packing(turning, turning.now + 6, kept=1000)
        assert turning.advance(turning.now + 8) == len(waiting)
        assert ran == sorted(ran)


@pytest.mark.memory
def test_the_chunks_that_packing_empties_are_used_again() -> None:
    sizes = alone(sizes_of_rounds)
    assert sizes[-1] - sizes[3] < 1_000_000


def sizes_of_rounds() -> list[int]:
    turning = wheel.TimingWheel()
    sizes = []
    for _ in range(20):
        _, waiting = in_the_middle_of_packing(turning, turning.now + FAR)
        for handle in waiting[100:]:
            handle.cancel()
        turning.advance(turning.now + FAR)
        sizes.append(resident())
    return sizes


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


BURST = """
import resource, sys, time
from pathlib import Path
from waterclock.wheel import TimingWheel
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
wheel = TimingWheel()
kept = wheel.add(1 << 30, print)  # a wheel that is never quite empty
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
before, first = resident(), faults()
handles = [wheel.add(1 + n % 1000, int) for n in range(1_000_000)]
grown, first = resident() - before, faults() - first
if sys.argv[1] == "cancel":
    for handle in handles:
        handle.cancel()
    del handle
else:
    wheel.advance(1000)
del handles
if sys.argv[2] == "again":  # a burst after a burst finds its memory
    handles, second = [None] * 1_000_000, faults()
    for n in range(1_000_000):
        handles[n] = wheel.add(1 + n % 1000, int)
    second = faults() - second
    assert second < first / 5, (first, second)
    wheel.clear()
    del handles
    kept = wheel.add(1 << 30, print)
else:
    time.sleep(1.01)
    wheel.advance(wheel.now)
    assert resident() - before < grown / 4, (grown, resident() - before)
assert kept.pending
assert grown > 60_000_000, grown
"""


@pytest.mark.memory
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident memory from /proc")
@pytest.mark.parametrize("end", ["cancel", "advance"])
def test_the_memory_of_a_burst_goes_back_to_the_system_after_a_quiet_second(end: str) -> None:
    assert in_its_own_process(BURST, end, "quiet") == (0, "")


@pytest.mark.memory
@pytest.mark.skipif(not wheel.COMPILED, reason="the reserve is the compiled wheel's")
@pytest.mark.parametrize("end", ["cancel", "advance"])
def test_a_burst_after_a_burst_finds_the_memory_that_it_needs(end: str) -> None:
    assert in_its_own_process(BURST, end, "again") == (0, "")


def in_its_own_process(code: str, *arguments: str) -> tuple[int, str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=environment)
    return done.returncode, done.stderr


DRIVEN = """
import asyncio, sys, time
from pathlib import Path
from waterclock import AsyncTimer, Timer
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
async def burst():
    timer = AsyncTimer() if sys.argv[1] == "asyncio" else Timer()
    before = resident()
    for _ in range(1_000_000):
        timer.call_later(5.0, int)
    grown = resident() - before
    deadline = time.monotonic() + 30
    while resident() - before > grown / 4 and time.monotonic() < deadline:
        await asyncio.sleep(0.1)
    assert grown > 60_000_000, grown
    assert len(timer) == 0
    assert resident() - before <= grown / 4, (grown, resident() - before)
    woken = timer.statistics().wakeups
    await asyncio.sleep(1.5)
    assert timer.statistics().wakeups <= woken + 1  # and then nobody wakes
asyncio.run(burst())
"""


@pytest.mark.memory
@pytest.mark.long(seconds=12)
@pytest.mark.skipif(not wheel.COMPILED, reason="the reserve is the compiled wheel's")
@pytest.mark.parametrize("driver", ["asyncio", "thread"])
def test_a_driver_gives_the_memory_of_a_burst_back_though_nobody_asks_anything_of_it(driver: str) -> None:
    assert in_its_own_process(DRIVEN, driver) == (0, "")
