"""Random lives of a driver under a ManualClock against a dumb oracle: a list that is searched for the earliest."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.timer.timers import DRIVERS, Make
from waterclock import ManualClock

TICK_MS = 10


class Oracle:
    """Whole milliseconds; what waits is a list of (deadline, order of adding, name)."""

    def __init__(self) -> None:
        self.now = self.added = 0
        self.waiting: list[tuple[int, int, str]] = []
        self.intervals: dict[str, int] = {}
        self.ran: list[tuple[str, int]] = []
        self.paused = False

    def add(self, deadline: int, name: str) -> None:
        # due when it is added: of the tick of now, behind all that is due
        tick = self.now if deadline <= self.now else -(-deadline // TICK_MS) * TICK_MS
        self.waiting.append((tick, self.added, name))
        self.added += 1

    def cancel(self, name: str) -> bool:
        before = len(self.waiting)
        self.waiting = [timer for timer in self.waiting if timer[2] != name]
        self.intervals.pop(name, None)
        return len(self.waiting) < before

    def move(self, deadline: int, name: str) -> bool:
        before = len(self.waiting)
        self.waiting = [timer for timer in self.waiting if timer[2] != name]
        if len(self.waiting) == before:
            return False
        self.add(deadline, name)
        return True

    def advance(self, duration: int) -> None:
        if self.paused:
            return
        until = self.now + duration
        while due := [timer for timer in self.waiting if timer[0] <= until]:
            tick, _, name = first = min(due)
            self.now = max(self.now, tick)
            self.waiting.remove(first)
            self.ran.append((name, self.now))
            if name in self.intervals:  # always whole ticks
                self.add(tick + self.intervals[name], name)
        self.now = until


class Life(RuleBasedStateMachine):
    """Names are numbers in the order of making."""

    def __init__(self, make: Make) -> None:
        super().__init__()
        self.make = make

    @initialize()
    def start(self) -> None:
        self.timer = self.make(TICK_MS / 1000, clock=ManualClock())
        self.oracle = Oracle()
        self.ran: list[tuple[str, int]] = []
        self.handles: dict[str, Any] = {}

    def note(self, name: str) -> None:
        self.ran.append((name, round(self.timer.time() * 1000)))

    @rule(delay=st.integers(-50, 3000), at=st.booleans())
    def add(self, delay: int, at: bool) -> None:
        name = str(len(self.handles))
        deadline = self.oracle.now + delay
        add, seconds = (self.timer.call_at, deadline / 1000) if at else (self.timer.call_later, delay / 1000)
        self.handles[name] = add(seconds, self.note, name)
        self.oracle.add(deadline, name)

    @rule(ticks=st.integers(1, 40))
    def add_periodic(self, ticks: int) -> None:
        name = str(len(self.handles))
        if self.oracle.now % TICK_MS:
            return  # beats between ticks: test_timer_periodic
        self.handles[name] = self.timer.every(ticks * TICK_MS / 1000, self.note, name)
        self.oracle.intervals[name] = ticks * TICK_MS
        self.oracle.add(self.oracle.now + ticks * TICK_MS, name)

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.handles)))
        assert self.handles[name].cancel() == self.oracle.cancel(name)
        assert not self.handles[name].pending

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), ticks=st.integers(-3, 300))
    def reschedule(self, data: st.DataObject, ticks: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.handles)))
        if self.oracle.now % TICK_MS and name in self.oracle.intervals:
            return  # beats between ticks: test_timer_periodic
        moved = self.oracle.move(self.oracle.now + ticks * TICK_MS, name)
        assert self.handles[name].reschedule(ticks * TICK_MS / 1000) == moved

    @rule(duration=st.one_of(st.integers(0, 100), st.integers(0, 5000)))
    def advance(self, duration: int) -> None:
        self.timer.advance(duration / 1000)
        self.oracle.advance(duration)

    @precondition(lambda self: not self.oracle.paused and self.oracle.waiting)
    @rule()
    def advance_to_next(self) -> None:
        self.timer.advance_to_next()
        self.oracle.advance(max(min(self.oracle.waiting)[0] - self.oracle.now, 0))

    @rule()
    def pause(self) -> None:
        self.timer.pause()
        self.oracle.paused = True

    @rule()
    def resume(self) -> None:
        self.timer.resume()
        self.oracle.paused = False

    @invariant()
    def they_agree(self) -> None:
        if not hasattr(self, "oracle"):
            return
        assert self.ran == self.oracle.ran
        assert len(self.timer) == len(self.oracle.waiting)
        assert self.timer.time() == self.oracle.now / 1000

    def teardown(self) -> None:
        if hasattr(self, "oracle"):
            waiting = {self.handles[name] for _, _, name in self.oracle.waiting}
            assert set(self.timer.close()) == waiting


@pytest.mark.parametrize("make", DRIVERS)
def test_a_driver_runs_what_the_oracle_runs_when_it_does(make: Make) -> None:
    run_state_machine_as_test(lambda: Life(make), settings=settings(max_examples=60, stateful_step_count=40))
