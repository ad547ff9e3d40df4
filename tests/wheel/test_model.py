"""Random lives of every wheel against a sorted list (model.py), half of them with `_check()` after every step, and of
both array wheels side by side; and each scenario in one jump, tick by tick, and in random steps.

In the other half a step is followed by the next: to look is a step of its own, and may mend what the one before left
for later.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.wheel.array_wheels import ARRAY_WHEELS, row
from tests.wheel.model import ModelWheel
from tests.wheel.wheels import WHEELS, Make
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


STEPS = st.one_of(
    st.integers(0, 6),  # many of one tick
    st.integers(-5, 300),
    st.integers(-(10**4), 10**7),
    st.builds(lambda power, off: 256**power + off, st.integers(1, 5), st.integers(-1, 1)),
    st.integers(0, 2**60),
)
BATCHES = st.one_of(
    st.lists(STEPS, max_size=5),
    st.builds(lambda delay, count: [delay] * count, STEPS, st.integers(60, 140)),  # fills chunks
    st.builds(
        lambda delay, step, count: [delay + step * n for n in range(count)],
        STEPS,
        st.integers(0, 9),
        st.integers(20, 90),
    ),
)
STRANGERS = [0, 1, -1, 7 << 32 | 1, 2**63 - 1, -(2**63)]
LIMITS = st.one_of(st.none(), st.integers(0, 4), st.integers(50, 80))


class ArrayLife(RuleBasedStateMachine):
    """One life, lived by both wheels and by the model; timers are named by their ids."""

    @initialize(tick=st.sampled_from([1, 1, 3, 10]), start=st.sampled_from([0, 1007, -1, -1000, 2**61, -(2**61)]))
    def begin(self, tick: int, start: int) -> None:
        self.wheels = [kind.values[0](tick, start) for kind in ARRAY_WHEELS]
        self.model = ModelWheel(tick, start, "late")
        self.deadlines: dict[int, int] = {}

    def same(self, answers: list[Any]) -> Any:
        """What all wheels answer."""
        assert all(answer == answers[0] for answer in answers)
        return answers[0]

    @rule(delays=BATCHES)
    def schedule(self, delays: list[int]) -> None:
        deadlines = [self.model.now + delay for delay in delays]
        ids = self.same([wheel.schedule(row(*deadlines)).tolist() for wheel in self.wheels])
        assert not self.deadlines.keys() & set(ids)
        for name, delay in zip(ids, delays, strict=True):
            self.deadlines[name] = self.model.now + delay
            self.model.put(name, delay)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        ids = data.draw(st.lists(st.sampled_from([*self.deadlines, *STRANGERS]), max_size=60))
        self.agree_to_cancel(ids)

    @rule(first=st.integers(0, 200), step=st.integers(1, 7))
    def cancel_many(self, first: int, step: int) -> None:
        self.agree_to_cancel(list(self.deadlines)[first::step])

    def agree_to_cancel(self, ids: list[int]) -> None:
        done = self.same([list(map(bool, wheel.cancel(row(*ids)))) for wheel in self.wheels])
        assert done == [self.model.remove(name) for name in ids]

    @rule(step=STEPS, limit=LIMITS)
    def advance(self, step: int, limit: int | None) -> None:
        self.agree_to_advance(min(self.model.now + step, 2**62), limit)

    def agree_to_advance(self, now: int, limit: int | None) -> None:
        found = self.same([[column.tolist() for column in wheel.advance(now, limit)] for wheel in self.wheels])
        expected = self.model.advance(now, limit)
        assert found == [expected, [self.deadlines[name] for name in expected]]

    @precondition(lambda self: self.model.waiting)
    @rule(limit=LIMITS)
    def advance_to_next(self, limit: int | None) -> None:
        to = self.model.next_deadline()
        assert to is not None
        if to > self.model.now:
            self.agree_to_advance(to - 1, None)
        self.agree_to_advance(to, limit)

    @rule(swap=st.booleans())
    def save_and_load(self, swap: bool) -> None:
        blobs = [wheel.to_bytes() for wheel in self.wheels]
        if swap:
            blobs.reverse()
        self.wheels = [type(wheel).from_bytes(blob) for wheel, blob in zip(self.wheels, blobs, strict=True)]

    @invariant()
    def agree(self) -> None:
        for wheel in getattr(self, "wheels", ()):
            wheel._check()
            assert (len(wheel), wheel.now) == (len(self.model.waiting), self.model.now)
            assert wheel.next_deadline() == self.model.next_deadline()


TestArrayLife = ArrayLife.TestCase
TestArrayLife.settings = settings(max_examples=40, stateful_step_count=40, deadline=None, print_blob=True)


END = 700
SEEDS = range(6)


def one_jump(start: int, end: int, seed: int) -> Iterator[int]:
    yield end


def tick_by_tick(start: int, end: int, seed: int) -> Iterator[int]:
    yield from range(start, end + 1)


def random_steps(start: int, end: int, seed: int) -> Iterator[int]:
    choose, now = random.Random(seed), start
    while now < end:
        now = min(end, now + choose.choice([0, 1, 2, 7, 16, 60, 250]))
        yield now


WAYS = [one_jump, tick_by_tick, random_steps]


def scattered(wheel: Any, log: list[Any], seed: int) -> None:
    choose = random.Random(seed)
    for number in range(150):
        wheel.add(choose.randrange(-3, END), lambda number=number: log.append(number))


def crowded(wheel: Any, log: list[Any], seed: int) -> None:
    for number in range(150):
        wheel.add(100 + number % 3, lambda number=number: log.append(number))


def half_cancelled(wheel: Any, log: list[Any], seed: int) -> None:
    choose = random.Random(seed)
    timers = [wheel.add(choose.randrange(END), lambda n=n: log.append(n)) for n in range(200)]
    for timer in choose.sample(timers, 100):
        timer.cancel()


def rescheduled(wheel: Any, log: list[Any], seed: int) -> None:
    choose = random.Random(seed)
    timers = [wheel.add(choose.randrange(END), lambda n=n: log.append(n)) for n in range(100)]
    for timer in choose.choices(timers, k=100):
        timer.reschedule(choose.randrange(END))


def chained(wheel: Any, log: list[Any], seed: int) -> None:
    """Callbacks that add at fixed times, cancel and move others: what happens does not hang on the steps."""
    choose = random.Random(seed)
    base, timers = wheel.now, []

    def link(at: int, left: int) -> None:
        log.append((at, left))
        if left:
            wheel.add_at(base + at + 60, lambda: link(at + 60, left - 1))
        if left % 3 == 2 and timers:
            log.append(timers.pop().cancel())

    for number in range(40):
        at = 60 * choose.randrange(1, 4)  # all at multiples of 60: whatever a tick adds is due at a later one
        wheel.add_at(base + at, lambda at=at, number=number: link(at, number % 4))
    timers += [wheel.add(END - 30 - n, lambda n=n: log.append(f"late {n}")) for n in range(20)]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", [scattered, crowded, half_cancelled, rescheduled])
@pytest.mark.parametrize(
    ("tick", "start", "slots"),
    [(1, 0, 4), (1, -301, 16), (7, 1000, 4), (60, 13, 2), (1, 0, 20), (1, -7, 3), (3, 13, (6, 5, 2)), (1, 1, 65_536)],
)
@pytest.mark.parametrize("make", WHEELS)
def test_the_same_timers_run_in_the_same_order_whatever_the_steps(
    make: Make, tick: int, start: int, slots: Any, scenario: Callable[..., None], seed: int
) -> None:
    logs = []
    for way in WAYS:
        wheel, log = make(tick, start, slots=slots), []
        scenario(wheel, log, seed)
        for now in way(start, start + END + tick, seed):
            wheel.advance(now)
        wheel._check()
        assert len(wheel) == 0
        logs.append(log)
    assert logs[0] == logs[1] == logs[2], f"seed {seed}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slots", [4, (3, 7)], ids=str)
@pytest.mark.parametrize("make", WHEELS)
def test_tick_by_tick_and_random_steps_of_one_driver_agree_when_callbacks_change_the_wheel(
    make: Make, slots: Any, seed: int
) -> None:
    """A driver that goes from next_deadline to next_deadline sees what one that ticks sees."""
    logs: list[list[Any]] = []
    for driven in (True, False):
        wheel, log = make(slots=slots), []
        chained(wheel, log, seed)
        if driven:
            while (to := wheel.next_deadline()) is not None:
                wheel.advance(to)
        for now in range(END + 1):
            wheel.advance(now)
        logs.append(log)
    assert logs[0] == logs[1], f"seed {seed}"


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("slots", [4, (5, 6, 3)], ids=str)
@pytest.mark.parametrize("make", WHEELS)
def test_limits_change_when_timers_run_and_not_in_which_order(make: Make, slots: Any, seed: int) -> None:
    choose, logs = random.Random(seed), []
    for limited in (False, True):
        wheel, log = make(slots=slots), []
        scattered(wheel, log, seed)
        while limited and len(wheel):
            wheel.advance(END, choose.randrange(0, 9))
            wheel._check()
        wheel.advance(END)
        logs.append(log)
    assert logs[0] == logs[1], f"seed {seed}"
