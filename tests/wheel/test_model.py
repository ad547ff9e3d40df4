"""Random lives of a wheel against a sorted list (model.py), half of them with `_check()` after every step.

In the others a step is followed by the next: to look is a step of its own, and may mend what the one before left for later.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.wheel.model import ModelWheel
from waterclock.wheel import COMPILED, reference

DELAYS = st.one_of(
    st.integers(0, 6),  # many of one tick
    st.integers(-5, 70),
    st.integers(0, 10**7),
    st.builds(
        lambda size, power, off: size**power + off,
        st.sampled_from([2, 3, 4, 16, 60, 256]),
        st.integers(1, 5),
        st.integers(-1, 1),
    ),
    st.integers(0, 2**60),
)
SIZE = st.one_of(st.sampled_from([2, 3, 4, 16, 20, 256, 65_536]), st.integers(2, 70), st.integers(2, 65_536))
SLOTS = st.one_of(SIZE, st.lists(SIZE, min_size=1, max_size=5).map(tuple))
LAST = 2**62
WHICH = st.integers(0, 10**6)


class WheelLife(RuleBasedStateMachine):
    """One wheel and its model; timers are named by number, and say so when they run."""

    make: Any

    @initialize(
        tick=st.sampled_from([1, 1, 3, 10]),
        start=st.sampled_from([0, 1007, -1, -1000, 2**61, -LAST, LAST - 10**6]),
        slots=SLOTS,
        rounding=st.sampled_from(["late", "early"]),
        closely=st.booleans(),
    )
    def begin(self, tick: int, start: int, slots: Any, rounding: str, closely: bool) -> None:
        self.closely = closely
        self.wheel = self.make(tick, start, slots=slots, rounding=rounding)
        self.model = ModelWheel(tick, start, rounding)
        self.timers: list[Any] = []
        self.ran: list[int] = []

    def within_time(self, delay: int) -> int:
        """No deadline lies beyond 2**62, nor before its negative."""
        return max(min(delay, LAST - self.model.now), -LAST - self.model.now)

    @rule(delay=DELAYS, count=st.integers(1, 3))
    def add(self, delay: int, count: int) -> None:
        delay = self.within_time(delay)
        for _ in range(count):
            name = len(self.timers)
            self.model.put(name, delay)
            self.timers.append(self.wheel.add(delay, lambda name=name: self.ran.append(name)))

    @precondition(lambda self: self.timers)
    @rule(which=WHICH)
    def cancel(self, which: int) -> None:
        name = which % len(self.timers)
        assert self.timers[name].cancel() == self.model.remove(name)

    @precondition(lambda self: self.timers)
    @rule(which=WHICH, delay=DELAYS)
    def reschedule(self, which: int, delay: int) -> None:
        name, delay = which % len(self.timers), self.within_time(delay)
        waits = self.model.remove(name)
        assert self.timers[name].reschedule(delay) == waits
        if waits:
            self.model.put(name, delay)
            assert self.timers[name].deadline == self.model.now + delay

    @rule(step=DELAYS, limit=st.one_of(st.none(), st.integers(0, 4)))
    def advance(self, step: int, limit: int | None) -> None:
        now = self.model.now + self.within_time(step)
        self.ran.clear()
        count = self.wheel.advance(now, limit)
        assert self.ran == self.model.advance(now, limit)
        assert count == len(self.ran)

    @precondition(lambda self: self.model.waiting)
    @rule()
    def advance_to_next(self) -> None:
        to = self.wheel.next_deadline()
        if to > self.model.now:
            assert self.wheel.advance(to - 1) == len(self.model.advance(to - 1)) == 0
        self.ran.clear()
        assert self.wheel.advance(to) > 0
        assert self.ran == self.model.advance(to)

    @rule()
    def look(self) -> None:
        self.wheel._check()
        assert self.wheel.next_deadline() == self.model.next_deadline()

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "wheel"):
            return
        if self.closely:
            self.wheel._check()
            assert self.wheel.next_deadline() == self.model.next_deadline()
        assert (len(self.wheel), self.wheel.now) == (len(self.model.waiting), self.model.now)
        waiting = {timer.name for timer in self.model.waiting}
        assert [n for n, timer in enumerate(self.timers) if timer.pending] == sorted(waiting)


class ReferenceLife(WheelLife):
    make = staticmethod(reference.TimingWheel)


TestReferenceLife = ReferenceLife.TestCase
TestReferenceLife.settings = settings(max_examples=40, stateful_step_count=40, deadline=None, print_blob=True)

if COMPILED:
    from waterclock.wheel import _objects

    class CompiledLife(WheelLife):
        make = staticmethod(_objects.TimingWheel)

    TestCompiledLife = CompiledLife.TestCase
    TestCompiledLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None, print_blob=True)


def test_the_model_itself_runs_by_tick_and_then_by_adding() -> None:
    model = ModelWheel(10, 0, "late")
    for name, delay in enumerate((25, 5, 21, 10)):
        model.put(name, delay)
    assert model.next_deadline() == 10
    assert model.advance(30) == [1, 3, 0, 2]
    assert model.waiting == []
