"""What a driver and its handles are as Python objects: what they show, who may refer to them, no copies; the wheel for
threads if nothing is compiled; and the memory of a burst, which goes back though everybody sleeps
(src/waterclock/timer/memory.py).
"""

from __future__ import annotations

import copy
import inspect
import pickle
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from weakref import ref

import pytest

from tests.timer.timers import Make, by_hand, every_driver, nothing
from tests.wheel.test_packing import in_its_own_process
from waterclock import AsyncTimer, DelayedOperation, IdleTimeout, ManualClock, Purgatory, SystemClock, Timer, wheel
from waterclock.timer.locked import LockedWheel


def name_of(make: Any) -> str:
    return str(make.__name__)


@every_driver
def test_a_driver_says_how_many_wait_and_when_the_next_is_due(make: Make) -> None:
    timer = by_hand(make)
    assert repr(timer) == f"<{name_of(make)}, 0 waiting>"
    timer.call_later(1.5, nothing)
    timer.call_later(2.5, nothing)
    assert repr(timer) == f"<{name_of(make)}, 2 waiting, next=1.5>"
    timer.pause()
    assert repr(timer) == f"<{name_of(make)}, paused, 2 waiting, next=1.5>"
    timer.close()
    assert repr(timer) == f"<{name_of(make)}, closed, 0 waiting>"


@every_driver
def test_a_handle_says_when_in_seconds_and_how_it_ended(timer: Any) -> None:
    handle, beat = timer.call_later(1.5, nothing), timer.every(10, nothing)
    assert repr(handle).endswith(f"Handle, waiting, when=1.5, callback={nothing!r}>")
    assert repr(beat) == f"<PeriodicHandle, waiting, when=10.0, every=10.0, callback={nothing!r}>"
    handle.cancel()
    beat.cancel()
    assert "Handle, cancelled" in repr(handle)
    assert repr(beat) == "<PeriodicHandle, cancelled>"


@every_driver
@pytest.mark.parametrize("when_full", ["raise", "run", "block"])
def test_every_kind_of_handle_takes_weak_references(make: Make, when_full: str) -> None:
    if issubclass(make, AsyncTimer) and when_full == "block":
        return
    timer = by_hand(make, max_pending=1, when_full=when_full)
    handles = [timer.every(5, nothing)]
    if when_full != "raise":
        timer.call_later(1, nothing) if when_full == "run" else None  # one that ran: the timer is full
    handles[0].cancel()
    handles.append(timer.call_later(60, nothing))
    weak = [ref(handle) for handle in handles]
    assert [one() for one in weak] == handles
    timer.advance(60)
    handles.clear()
    assert [one() for one in weak] == [None, None]


@every_driver
def test_one_that_ran_in_its_caller_is_a_handle_like_the_others(make: Make) -> None:
    timer = by_hand(make, max_pending=1, when_full="run")
    timer.call_later(60, nothing)
    handle = timer.call_later(1.5, nothing)
    assert (ref(handle)() is handle, repr(handle)) == (True, "<RanHandle, over, when=1.5>")


def test_the_handle_of_a_capped_timer_shows_what_waits() -> None:
    timer = by_hand(Timer, max_pending=1, when_full="block")
    handle = timer.call_later(1.5, nothing)
    assert repr(handle).split("Handle", 1)[1].startswith(", waiting, when=1.5")


@every_driver
@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_driver_is_not_copied(make: Make, way: Any) -> None:
    timer = by_hand(make)
    with pytest.raises(TypeError, match=rf"^an? {name_of(make)} is neither copied nor pickled.*make another one$"):
        way(timer)
    with pytest.raises(TypeError, match="neither copied nor pickled"):
        way(timer.every(5, nothing))


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_nor_is_anything_that_waits_in_one(way: Any) -> None:
    timer, full = by_hand(AsyncTimer), by_hand(Timer, max_pending=1, when_full="run")
    waiting = {
        "a CappedHandle": by_hand(Timer, max_pending=1, when_full="block").call_later(1, nothing),
        "a RanHandle": [full.call_later(1, nothing) for _ in range(2)][1],
        "a Timeout": timer.timeout(1),
        "an IdleTimeout": IdleTimeout(timer, 1, nothing),
    }
    for name, something in waiting.items():
        with pytest.raises(TypeError, match=rf"^{name} is neither copied nor pickled"):
            way(something)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_purgatory_is_not_copied_either(way: Any) -> None:
    with pytest.raises(TypeError, match=r"^a Purgatory is neither copied nor pickled"):
        way(Purgatory("produce", by_hand(Timer)))


def test_a_purgatory_says_its_name_and_how_many_wait() -> None:
    purgatory = Purgatory("produce", by_hand(Timer))
    assert repr(purgatory) == "<Purgatory 'produce', 0 waiting>"
    purgatory.try_complete_else_watch(DelayedOperation(lambda op: False, lambda op: None, None), ["a", "b"])
    assert repr(purgatory) == "<Purgatory 'produce', 1 waiting>"
    purgatory.close()
    assert repr(purgatory) == "<Purgatory 'produce', closed, 0 waiting>"


def test_a_clock_and_a_timeout_say_what_time_it_is() -> None:
    timer = by_hand(AsyncTimer)
    assert repr(ManualClock(5.5)) == "<ManualClock, now=5.5>"
    assert repr(SystemClock()) == "<SystemClock>"
    assert repr(timer.timeout(2)) == "<Timeout, created, when=2.0>"


def test_a_purgatory_and_an_operation_have_signatures() -> None:
    assert list(inspect.signature(Purgatory).parameters) == ["name", "timer", "on_error"]
    assert list(inspect.signature(DelayedOperation).parameters) == [
        "try_complete",
        "on_complete",
        "timeout_s",
        "on_expire",
    ]
    assert list(inspect.signature(Purgatory.try_complete_else_watch).parameters) == ["self", "op", "keys"]
    assert list(inspect.signature(Purgatory.wait).parameters) == ["self", "keys", "predicate", "timeout_s"]
    assert str(inspect.getdoc(Purgatory)).startswith("Where delayed operations wait")
    assert str(inspect.getdoc(DelayedOperation)).startswith("Something that waits")


class Watched:
    """A wheel that notes how many threads are in it at once; each stays for a moment."""

    def __init__(self, wheel: Any) -> None:
        self._wheel = wheel
        self.inside = self.most = 0
        self._count = threading.Lock()

    @contextmanager
    def entered(self) -> Iterator[None]:
        with self._count:
            self.inside += 1
            self.most = max(self.most, self.inside)
        threading.Event().wait(0.002)
        yield
        with self._count:
            self.inside -= 1

    def add_at(self, *args: Any) -> WatchedHandle:
        with self.entered():
            return WatchedHandle(self, self._wheel.add_at(*args))

    def advance(self, *args: Any) -> Any:
        with self.entered():
            return self._wheel.advance(*args)

    def next_deadline(self) -> Any:
        with self.entered():
            return self._wheel.next_deadline()

    def statistics(self) -> Any:
        with self.entered():
            return self._wheel.statistics()


class WatchedHandle:
    def __init__(self, wheel: Watched, handle: Any) -> None:
        self._wheel, self._handle = wheel, handle

    def cancel(self) -> Any:
        with self._wheel.entered():
            return self._handle.cancel()


def at_once(*works: Callable[[], object]) -> None:
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_every_step_on_the_structure_is_taken_alone() -> None:
    wheel = LockedWheel(1, 0)
    wheel._wheel = watched = Watched(wheel._wheel)  # type: ignore[assignment]
    handles = [wheel.add_at(5, int) for _ in range(5)]
    at_once(
        lambda: [wheel.add_at(100, int) for _ in range(5)],
        lambda: [handle.cancel() for handle in handles],
        lambda: [wheel.advance(now) for now in range(5)],
        lambda: [wheel.next_deadline() for _ in range(5)],
        lambda: [wheel.statistics() for _ in range(5)],
    )
    assert (watched.most, len(wheel), len(wheel.clear()), watched.most) == (1, 5, 5, 1)


def test_while_a_callback_runs_others_may_use_the_wheel() -> None:
    wheel = LockedWheel(1, 0)
    added: list[Any] = []

    def callback() -> None:
        other = threading.Thread(target=lambda: added.append(wheel.add_at(9, int)), daemon=True)
        other.start()
        other.join(10)
        added.append("the callback has ended")

    wheel.add_at(1, callback)
    assert wheel.advance(1) == 1
    assert [type(one).__name__ for one in added] == ["LockedHandle", "str"]


def test_only_one_thread_turns_it() -> None:
    wheel = LockedWheel(1, 0)
    errors: list[str] = []

    def turn_again() -> None:
        with pytest.raises(RuntimeError, match="while advance"):
            wheel.advance(2)
        errors.append("refused")

    wheel.add_at(1, turn_again)
    assert (wheel.advance(1), errors) == (1, ["refused"])
    assert wheel.advance(2) == 0


def test_an_interrupt_stops_it_and_earlier_failures_are_its_cause() -> None:
    wheel = LockedWheel(1, 0)

    def interrupt() -> None:
        raise KeyboardInterrupt

    wheel.add_at(1, int, "no number")
    wheel.add_at(1, interrupt)
    wheel.add_at(1, int)
    with pytest.raises(KeyboardInterrupt) as raised:
        wheel.advance(1)
    assert isinstance(raised.value.__cause__, ExceptionGroup)
    assert (len(wheel), wheel.advance(1)) == (1, 1)


def test_limit_bounds_a_turn() -> None:
    wheel = LockedWheel(1, 0)
    for _ in range(5):
        wheel.add_at(1, int)
    assert [wheel.advance(1, 2), wheel.advance(1, 0), wheel.advance(1)] == [2, 0, 3]


CANCELLED = """
import asyncio, gc, sys, time
from pathlib import Path
from waterclock import AsyncTimer, Timer
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
async def burst():
    timer = {"asyncio": AsyncTimer, "thread": Timer, "closed": Timer}[sys.argv[1]]()
    kept = timer.call_later(3600, int)  # until which the driver sleeps
    before = resident()
    handles = [timer.call_later(1000 + n % 1000, int) for n in range(300_000)]
    grown = resident() - before
    for handle in handles:
        handle.cancel()
    del handle, handles
    gc.collect()
    if sys.argv[1] == "closed":
        timer.close()
    woken = timer.statistics().wakeups
    deadline = time.monotonic() + 60
    while resident() - before > grown / 2 and time.monotonic() < deadline:
        time.sleep(0.05)  # the loop has no turn either
    assert grown > 20_000_000, grown
    assert resident() - before <= grown / 2, (grown, resident() - before)
    assert timer.statistics().wakeups == woken  # no driver was woken for it
asyncio.run(burst())
"""


@pytest.mark.memory
@pytest.mark.skipif(not wheel.COMPILED, reason="the reserve is the compiled wheel's")
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the resident memory from /proc")
@pytest.mark.parametrize("driver", ["asyncio", "thread", "closed"])
def test_the_memory_of_a_burst_that_was_cancelled_goes_back_and_nobody_is_woken(driver: str) -> None:
    assert in_its_own_process(CANCELLED, driver) == (0, "")
