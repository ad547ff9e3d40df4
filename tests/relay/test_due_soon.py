"""What is due soon, in both array wheels: in order, never early, found by origin, whatever its size; beside a dict."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

import pytest

pytest.importorskip("numpy")

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.wheel.array_wheels import ARRAY_WHEELS
from waterclock.relay.owner import due_soon as module
from waterclock.relay.owner.due_soon import STEP_MS, DueSoonWheel
from waterclock.relay.store import rows_of

NOW = 1_780_315_200_000


@pytest.fixture(params=ARRAY_WHEELS)
def due_soon(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> DueSoonWheel:
    monkeypatch.setattr(module, "ArrayWheel", request.param)
    return DueSoonWheel(NOW)


def add(due_soon: DueSoonWheel, *entries: tuple[int, int]) -> None:
    """Rows of (origin, ms from now)."""
    due_soon.add(rows_of([NOW + ahead for _, ahead in entries], [origin for origin, _ in entries]))


def take(due_soon: DueSoonWheel, ahead: int) -> list[int]:
    """The origins that are due by then."""
    origins: list[int] = due_soon.take(NOW + ahead)["origin"].tolist()
    return origins


def remove(due_soon: DueSoonWheel, *origins: int) -> int:
    return due_soon.remove(np.array(origins, "i8"))


def test_what_is_due_comes_by_due_time_then_by_origin(due_soon: DueSoonWheel) -> None:
    add(due_soon, (5, 10), (4, 7), (3, 10), (2, 8))
    add(due_soon, (1, 10), (9, 7))
    assert take(due_soon, 10) == [4, 9, 2, 1, 3, 5]


def test_nothing_comes_before_it_is_due(due_soon: DueSoonWheel) -> None:
    add(due_soon, (0, 10))
    assert (take(due_soon, 9), len(due_soon)) == ([], 1)
    assert (take(due_soon, 10), len(due_soon)) == ([0], 0)


def test_what_was_late_when_it_came_goes_first(due_soon: DueSoonWheel) -> None:
    take(due_soon, 100)
    add(due_soon, (3, 101), (2, 101), (1, -5_000), (0, 99))
    assert take(due_soon, 101) == [1, 0, 2, 3]


def test_what_is_late_comes_though_the_clock_stands(due_soon: DueSoonWheel) -> None:
    take(due_soon, 100)
    add(due_soon, (0, 50))
    assert due_soon.next_due() == NOW + 100
    assert take(due_soon, 100) == [0]


def test_next_due_is_when_a_take_gives_something(due_soon: DueSoonWheel) -> None:
    assert due_soon.next_due() is None
    add(due_soon, (0, 700), (1, 70_000))
    assert due_soon.next_due() == NOW + 700
    assert take(due_soon, 699) == []
    assert take(due_soon, 700) == [0]
    assert due_soon.next_due() == NOW + 70_000


def test_a_row_comes_out_as_it_went_in(due_soon: DueSoonWheel) -> None:
    rows = rows_of([NOW + 5], [7])
    rows["pos"], rows["length"], rows["crc"], rows["id"], rows["target"], rows["flags"] = 1, 2, 3, 4, 5, 6
    due_soon.add(rows)
    assert due_soon.take(NOW + 5).tolist() == rows.tolist()


def test_what_is_removed_does_not_come_and_is_counted_once(due_soon: DueSoonWheel) -> None:
    add(due_soon, (0, 5), (1, 5), (2, 9))
    assert remove(due_soon, 1, 2, 1, 77) == 2
    assert remove(due_soon, 1) == 0
    assert (take(due_soon, 100), len(due_soon)) == ([0], 0)
    assert remove(due_soon, 0) == 0


def test_an_origin_that_was_removed_can_come_again(due_soon: DueSoonWheel) -> None:
    add(due_soon, (0, 5), (1, 50))
    remove(due_soon, 0)
    add(due_soon, (0, 8))
    assert take(due_soon, 5) == []
    assert remove(due_soon, 0) == 1
    assert take(due_soon, 50) == [1]


def test_the_place_of_one_that_was_taken_is_not_removed_with_its_origin(due_soon: DueSoonWheel) -> None:
    add(due_soon, (0, 5), (1, 50))
    take(due_soon, 5)
    add(due_soon, (2, 60))  # gets the place of 0
    assert remove(due_soon, 0) == 0
    assert take(due_soon, 60) == [1, 2]


@pytest.mark.parametrize("back", [1, STEP_MS])
def test_a_small_step_back_of_the_clock_is_waited_for(due_soon: DueSoonWheel, back: int) -> None:
    take(due_soon, 5_000)
    add(due_soon, (0, 4_000), (1, 5_001))
    assert take(due_soon, 5_000 - back) == []
    assert take(due_soon, 5_001) == [0, 1]


def test_after_a_large_step_back_the_new_time_counts(due_soon: DueSoonWheel) -> None:
    take(due_soon, 50_000)
    add(due_soon, (0, 4_000), (1, 5_001), (2, 50_001))
    assert take(due_soon, 4_000) == [0]
    assert (due_soon.next_due(), remove(due_soon, 2)) == (NOW + 5_001, 1)
    assert (take(due_soon, 5_001), len(due_soon)) == ([1], 0)


def test_a_bucket_of_a_hundred_thousand_comes_whole_and_in_order(due_soon: DueSoonWheel) -> None:
    origins = list(range(100_000))
    random.Random(7).shuffle(origins)
    due_soon.add(rows_of([NOW + 1_000] * len(origins), origins))
    assert take(due_soon, 999) == []
    assert take(due_soon, 1_000) == list(range(100_000))


def test_the_memory_of_a_burst_goes_back(due_soon: DueSoonWheel) -> None:
    due_soon.add(rows_of([NOW + 1] * 10_000, range(10_000)))
    take(due_soon, 1)
    assert len(due_soon._rows) == 1_024
    add(due_soon, (0, 5))
    assert take(due_soon, 5) == [0]


class NearLife(RuleBasedStateMachine):
    """A random life in both wheels, beside a dict."""

    @initialize()
    def start(self) -> None:
        self.now, self.fence, self.waiting, self.next = NOW, NOW, dict[int, int](), 0
        self.nears: list[DueSoonWheel | None] = [None for _ in ARRAY_WHEELS]

    def each(self) -> Iterator[DueSoonWheel]:
        """Each of them, with its own kind of wheel in the place where it makes one."""
        for n, kind in enumerate(ARRAY_WHEELS):
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(module, "ArrayWheel", kind.values[0])
                due_soon = self.nears[n] = DueSoonWheel(NOW) if self.nears[n] is None else self.nears[n]
                yield due_soon
                assert type(due_soon._wheel) is kind.values[0]

    @rule(aheads=st.lists(st.one_of(st.integers(-9, 9), st.integers(-(10**4), 10**7)), max_size=30))
    def add(self, aheads: Sequence[int]) -> None:
        fresh = {self.next + n: self.now + ahead for n, ahead in enumerate(aheads)}
        self.next += len(aheads)
        self.add_all(fresh)

    @rule(count=st.integers(1_000, 3_000), ahead=st.integers(0, 50))
    def add_many(self, count: int, ahead: int) -> None:
        self.add_all({self.next + n: self.now + ahead for n in range(count)})
        self.next += count

    def add_all(self, fresh: dict[int, int]) -> None:
        self.waiting |= fresh
        for due_soon in self.each():
            due_soon.add(rows_of(fresh.values(), fresh.keys()))

    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        origins = data.draw(st.lists(st.integers(0, self.next), max_size=40))
        gone = {origin for origin in origins if self.waiting.pop(origin, None) is not None}
        assert [due_soon.remove(np.array(origins, "i8")) for due_soon in self.each()] == [len(gone)] * len(self.nears)

    @rule(by=st.one_of(st.integers(0, 60), st.integers(-STEP_MS, 10**6), st.integers(-(10**6), 0)))
    def take(self, by: int) -> None:
        self.now += by
        if self.now < self.fence - STEP_MS or self.now >= self.fence:
            self.fence = self.now
        waits = self.now < self.fence
        due = {} if waits else {origin: due for origin, due in self.waiting.items() if due <= self.now}
        expected = sorted((due, origin) for origin, due in due.items())
        for origin in due:
            del self.waiting[origin]
        for due_soon in self.each():
            rows = due_soon.take(self.now)
            assert list(zip(rows["due"].tolist(), rows["origin"].tolist(), strict=True)) == expected

    @invariant()
    def agree(self) -> None:
        for due_soon in self.each() if hasattr(self, "nears") else ():
            assert len(due_soon) == len(self.waiting)
            first = min(self.waiting.values(), default=None)
            assert due_soon.next_due() == (None if first is None else max(first, self.fence))


class LongNearLife(NearLife):
    """The same, longer."""


TestNearLife = NearLife.TestCase
TestNearLife.settings = settings(max_examples=12, stateful_step_count=25, deadline=None, print_blob=True)
TestLongNearLife = pytest.mark.long(seconds=10)(LongNearLife.TestCase)
TestLongNearLife.settings = settings(max_examples=150, stateful_step_count=40, deadline=None, print_blob=True)
