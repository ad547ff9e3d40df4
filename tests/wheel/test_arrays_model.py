"""Random lives of both array wheels side by side against a sorted list (model.py), with `_check()` after every step."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.wheel.array_wheels import ARRAY_WHEELS, row
from tests.wheel.model import ModelWheel

DELAYS = st.one_of(
    st.integers(0, 6),  # many of one tick
    st.integers(-5, 300),
    st.integers(-(10**4), 10**7),
    st.builds(lambda power, off: 256**power + off, st.integers(1, 5), st.integers(-1, 1)),
    st.integers(0, 2**60),
)
BATCHES = st.one_of(
    st.lists(DELAYS, max_size=5),
    st.builds(lambda delay, count: [delay] * count, DELAYS, st.integers(60, 140)),  # fills chunks
    st.builds(
        lambda delay, step, count: [delay + step * n for n in range(count)],
        DELAYS,
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

    @rule(step=DELAYS, limit=LIMITS)
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
