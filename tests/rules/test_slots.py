"""The stored wheel of deadlines against a sorted list, over times from microseconds to years."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from waterclock.rules.deadlines import LEVEL_BITS, Deadline, Deadlines

steps = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from([0, 20, 24, 30, 32, 36, 37, 40, 44]), st.integers(1, 9)), max_size=5),
        st.tuples(st.sampled_from([0, 20, 24, 31, 32, 37, 38]), st.integers(0, 3)),
        st.booleans(),
    ),
    max_size=12,
)


class Kept:
    """Deadlines that are stored and loaded whenever it is asked, and a list that says what is right."""

    def __init__(self) -> None:
        self.watermark = self.made = self.unpacked = 0
        self.fired: list[Deadline] = []
        self.expected: list[Deadline] = []
        self.deadlines = self._fresh()

    def add(self, due: int) -> None:
        self.made += 1
        deadline = due, "x", "key", self.made, None
        self.deadlines.add(deadline)
        self.expected.append(deadline)

    def advance(self, watermark: int) -> None:
        self.watermark = max(self.watermark, watermark)
        self.deadlines.advance(self.watermark)
        due = sorted(d for d in self.expected if d[0] <= self.watermark)
        assert [d[:4] for d in self.fired] == [d[:4] for d in due]
        self.expected = [d for d in self.expected if d[0] > self.watermark]
        self.fired.clear()

    def store(self) -> None:
        plain = self.deadlines.dump()
        self.deadlines = self._fresh()
        self.deadlines.load(plain)

    def earliest_is_known(self) -> None:
        """An alarm at `next_due` must not ring too late; nor at a time that has passed, when it would do nothing."""
        known = self.deadlines.next_due()
        earliest = min((d[0] for d in self.expected), default=None)
        assert (known is None) == (earliest is None)
        if known is not None and earliest is not None:
            assert self.watermark < known <= earliest

    def _fresh(self) -> Deadlines:
        return Deadlines(self.fired.append, self.watermark, self._unpack)

    def _unpack(self, chunk: Any) -> list[Deadline]:
        self.unpacked += len(chunk)
        return list(chunk)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_deadlines_of_all_distances_fire_in_order_and_the_earliest_is_known(todo: Any) -> None:
    kept = Kept()
    for added, (bits, times), stored in todo:
        for scale, number in added:
            kept.add(kept.watermark + number * 2**scale)
        kept.advance(kept.watermark + times * 2**bits)
        if stored:
            kept.store()
        kept.earliest_is_known()
    kept.advance(2**61)


def test_a_deadline_that_rests_is_looked_at_once_a_level() -> None:
    kept, day_us = Kept(), 86_400_000_000
    for number in range(100):
        kept.add(2 * day_us + number * 1_000_000)
    for quarter in range(4 * 24 * 2):
        kept.advance(quarter * day_us // 96)
        kept.store()
    kept.advance(2 * day_us - 1)
    assert 0 < kept.unpacked <= 100 * (len(LEVEL_BITS) - 1) + 20  # those of one slot of the lowest level, too
    kept.advance(3 * day_us)


def test_what_a_deadline_makes_due_comes_behind_older_ones_of_its_time() -> None:
    fired = []

    def fire(deadline: Deadline) -> None:
        fired.append(deadline[3])
        if deadline[3] == "first":
            deadlines.add((20, "x", "key", "made last", None))

    deadlines = Deadlines(fire, 0)
    for due, name in ((10, "first"), (20, "older"), (30, "later")):
        deadlines.add((due, "x", "key", name, None))
    deadlines.advance(30)
    assert fired == ["first", "older", "made last", "later"]


def test_of_deadlines_of_one_time_those_of_the_kind_ahead_fire_first() -> None:
    fired: list[Deadline] = []
    deadlines = Deadlines(fired.append, 0, ahead="ahead")
    for due, kind in ((9, "x"), (10, "x"), (10, "ahead"), (10, "y"), (10, "ahead")):
        deadlines.add((due, kind, "key", None, None))
    deadlines.advance(10)
    assert [deadline[1] for deadline in fired] == ["x", "ahead", "ahead", "x", "y"]
