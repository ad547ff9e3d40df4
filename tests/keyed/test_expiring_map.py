"""`ExpiringMap` (the rules of src/waterclock/keyed/expiring_map.py), time turned by hand."""

from __future__ import annotations

import copy
import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import ref

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.timer.timers import THREADED, Make, by_hand, every_driver
from waterclock import AsyncTimer, ExpiringMap, ManualClock, Timer, TimerClosed
from waterclock.timer.drive import Drive


class Told:
    """An `on_evict` that keeps what it was told."""

    def __init__(self) -> None:
        self.lines: list[Any] = []

    def __call__(self, *line: Any) -> None:
        self.lines.append(line)


@every_driver
def test_an_entry_is_there_until_its_time_has_come_and_leaves_by_itself(make: Make) -> None:
    timer, told = by_hand(make), Told()
    entries: ExpiringMap[str, int] = ExpiringMap(timer, 60, on_evict=told)
    entries["a"] = 1
    timer.advance(59.999)
    assert (entries["a"], "a" in entries, entries.get("a"), len(entries), entries.when("a")) == (1, True, 1, 1, 60.0)
    timer.advance(0.001)
    assert ("a" in entries, entries.get("a"), len(entries), told.lines) == (False, None, 0, [("a", 1, "expired")])
    for read in (entries.__getitem__, entries.when, entries.pop, entries.__delitem__):
        with pytest.raises(KeyError, match="'a'"):
            read("a")


@every_driver
def test_where_the_timer_is_late_an_entry_is_not_read_any_more(make: Make) -> None:
    timer, told = by_hand(make), Told()
    entries: ExpiringMap[str, int] = ExpiringMap(timer, 60, on_evict=told)
    entries.update(a=1, b=2)
    timer._clock.advance_s(60)  # time goes on, and the timer has not had its turn
    assert ("a" in entries, entries.get("a"), list(entries), list(entries.items()), list(entries.values())) == (
        False,
        None,
        [],
        [],
        [],
    )
    assert (entries.touch("a"), entries.pop("a", None), len(entries)) == (False, None, 2)
    entries["a"] = 3
    assert (told.lines, entries["a"]) == ([], 3)  # told by the timer, when it has its turn
    timer.advance(0)
    assert (told.lines, dict(entries)) == ([("a", 1, "expired"), ("b", 2, "expired")], {"a": 3})


@every_driver
def test_between_its_time_and_the_tick_an_entry_is_not_read(make: Make) -> None:
    timer = by_hand(make, tick_s=10)
    entries: ExpiringMap[str, int] = ExpiringMap(timer, 12)
    entries["a"] = 1
    timer.advance(15)
    assert ("a" in entries, len(entries)) == (False, 1)
    timer.advance(5)
    assert len(entries) == 0


@every_driver
def test_setting_and_touching_start_the_time_anew_and_reading_does_not(make: Make) -> None:
    timer, told = by_hand(make), Told()
    entries: ExpiringMap[str, int] = ExpiringMap(timer, 10, on_evict=told)
    entries.update({"set": 1, "touched": 1, "read": 1})
    timer.advance(9)
    entries["set"] = 2
    assert (entries.touch("touched"), entries.touch("none"), entries["read"]) == (True, False, 1)
    timer.advance(1)
    assert dict(entries) == {"set": 2, "touched": 1}
    timer.advance(9)
    assert (dict(entries), [key for key, _, _ in told.lines]) == ({}, ["read", "set", "touched"])


@every_driver
def test_an_entry_has_a_time_of_its_own_longer_or_shorter(make: Make) -> None:
    timer, told = by_hand(make), Told()
    entries: ExpiringMap[str, int] = ExpiringMap(timer, 10, on_evict=told)
    entries.set("long", 1, 100)
    entries.set("short", 1, 1)
    entries["cut"] = 1
    assert (entries.touch("cut", 2), entries.when("cut"), entries.when("long")) == (True, 2.0, 100.0)
    timer.advance(2)
    assert [key for key, _, _ in told.lines] == ["short", "cut"]
    entries["long"] = 2  # the time of the map
    timer.advance(10)
    assert told.lines[-1] == ("long", 2, "expired")


@every_driver
def test_one_more_than_the_bound_makes_room_by_the_entry_that_was_set_longest_ago(make: Make) -> None:
    timer, told = by_hand(make), Told()
    entries: ExpiringMap[str, int] = ExpiringMap(timer, 10, max_entries=2, on_evict=told)
    entries.update(a=1, b=2)
    entries["a"] = 3  # now b is the oldest
    entries["c"] = 4
    assert (dict(entries), told.lines, len(timer)) == ({"a": 3, "c": 4}, [("b", 2, "full")], 2)
    entries.touch("a")
    entries["d"] = 5
    assert told.lines[1:] == [("c", 4, "full")]


@every_driver
def test_what_its_user_takes_out_is_not_told(make: Make) -> None:
    timer, told = by_hand(make), Told()
    entries: ExpiringMap[str, int] = ExpiringMap(timer, 10, on_evict=told)
    entries.update(a=1, b=2, c=3, d=4, e=5)
    entries["a"] = 6
    del entries["b"]
    assert (entries.pop("c"), entries.popitem(), entries.setdefault("d", 0), entries.setdefault("f", 7)) == (
        3,
        ("a", 6),
        4,
        7,
    )
    assert (dict(entries), len(timer)) == ({"d": 4, "e": 5, "f": 7}, 3)
    entries.clear()
    timer.advance(100)
    assert (told.lines, len(entries), len(timer)) == ([], 0, 0)
    with pytest.raises(KeyError):
        entries.popitem()
    assert (entries.pop("gone", None), entries.pop("gone", default=8)) == (None, 8)
    with pytest.raises(TypeError):  # the second default was passed over
        entries.pop("gone", 1, 2)  # type: ignore[call-overload]


@every_driver
def test_a_callback_may_set_and_take_entries(timer: Any) -> None:
    back: list[float] = []

    def again(key: str, value: int, why: str) -> None:
        back.append(timer.time())
        if value < 3:
            entries[key] = value + 1

    entries: ExpiringMap[str, int] = ExpiringMap(timer, 5, on_evict=again)
    entries["a"] = 1
    timer.advance(100)
    assert (back, dict(entries)) == ([5.0, 10.0, 15.0], {})


@every_driver
def test_what_a_callback_raises_goes_where_the_timers_errors_go_and_stops_nothing(make: Make) -> None:
    errors: list[BaseException] = []
    timer = by_hand(make, on_error=errors.append)

    def wrong(key: str, value: int, why: str) -> None:
        raise LookupError(key, why)

    entries: ExpiringMap[str, int] = ExpiringMap(timer, 5, max_entries=2, on_evict=wrong)
    entries.update(a=1, b=2, c=3)
    assert dict(entries) == {"b": 2, "c": 3}
    timer.advance(5)
    assert [error.args for error in errors] == [("a", "full"), ("b", "expired"), ("c", "expired")]
    assert timer.statistics().failed == 3


@every_driver
def test_after_the_timers_close_entries_are_read_and_none_comes_in(make: Make) -> None:
    timer, told = by_hand(make), Told()
    entries: ExpiringMap[str, int] = ExpiringMap(timer, 10, on_evict=told)
    entries["a"] = 1
    timer.close()
    for key in ("a", "b"):
        with pytest.raises(TimerClosed):
            entries[key] = 2
    assert dict(entries) == {"a": 1}
    timer._clock.advance_s(10)
    assert (dict(entries), told.lines) == ({}, [])


@every_driver
def test_wrong_arguments_are_refused_at_the_call(timer: Any) -> None:
    for wrong in (0, -1, float("nan")):
        with pytest.raises(ValueError, match="ttl_s must be"):
            ExpiringMap(timer, wrong)
    for bound in (0, 1.5, -3):
        with pytest.raises(ValueError, match="max_entries must be"):
            ExpiringMap(timer, 1, max_entries=bound)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="on_evict must be callable"):
        ExpiringMap(timer, 1, on_evict=5)  # type: ignore[arg-type]
    entries: ExpiringMap[Any, int] = ExpiringMap(timer, 10)
    with pytest.raises(ValueError, match="ttl_s must be"):
        entries.set("a", 1, 0)
    with pytest.raises(TypeError, match="unhashable"):
        entries[[]] = 1
    assert (len(entries), len(timer)) == (0, 0)
    with pytest.raises(TypeError, match=r"dict\(map\) is a copy"):
        copy.copy(entries)
    assert repr(entries) == "<ExpiringMap, 0 entries, ttl=10.0>"


@every_driver
def test_what_left_is_let_go_of(make: Make) -> None:
    class Value:
        pass

    timer = by_hand(make)
    entries: ExpiringMap[str, Value] = ExpiringMap(timer, 10, max_entries=3)
    weak = []
    for key in "abcd":
        value = Value()
        weak.append(ref(value))
        entries[key] = value
    del value
    gc.disable()
    try:
        entries["b"] = Value()
        del entries["c"]
        timer.advance(10)
        assert [one() for one in weak] == [None] * 4
    finally:
        gc.enable()


def test_an_executor_is_told_of_what_expired() -> None:
    threads: list[int] = []
    with ThreadPoolExecutor(1) as executor:
        timer = by_hand(Timer, executor=executor, max_pending=1)
        entries: ExpiringMap[str, int] = ExpiringMap(
            timer, 1, on_evict=lambda *_: threads.append(threading.get_ident())
        )
        entries.update(a=1, b=2)  # max_pending refuses none
        timer.advance(1)
    assert (len(threads), threading.get_ident() in threads) == (2, False)


# Beside a dumb oracle

KEYS = st.sampled_from("abcde")
MS = st.integers(1, 60)


class Life(RuleBasedStateMachine):
    """The map beside a list of what was set: key, value, due, in the order of setting."""

    make: Any = staticmethod(Timer)

    @initialize(most=st.sampled_from([None, 1, 2, 4]), tick_ms=st.sampled_from([1, 10]))
    def start(self, most: int | None, tick_ms: int) -> None:
        self.timer: Drive = type(self).make(tick_ms / 1000, clock=ManualClock())
        self.told = Told()
        self.most = most
        self.now = 0
        self.tick = tick_ms
        self.map: ExpiringMap[str, int] = ExpiringMap(self.timer, 0.03, max_entries=most, on_evict=self.told)  # type: ignore[arg-type]
        self.rows: list[tuple[str, int, int]] = []
        self.ghosts: list[tuple[str, int, int]] = []  # expired, made room for, and not told yet: the tick has not come
        self.expected: list[Any] = []

    def row(self, key: str) -> tuple[str, int, int] | None:
        return next((row for row in self.rows if row[0] == key and row[2] > self.now), None)

    def put(self, key: str, value: int, due: int) -> None:
        old = next((row for row in self.rows if row[0] == key), None)
        if old is not None:
            self.rows.remove(old)
            if old[2] <= self.now:
                self.ghosts.append(old)
        elif self.most is not None and len(self.rows) == self.most:
            oldest = self.rows.pop(0)
            if oldest[2] <= self.now:
                self.ghosts.append(oldest)
            else:
                self.expected.append((*oldest[:2], "full"))
        self.rows.append((key, value, due))

    @rule(key=KEYS, value=st.integers(0, 9))
    def set(self, key: str, value: int) -> None:
        self.map[key] = value
        self.put(key, value, self.now + 30)

    @rule(key=KEYS, value=st.integers(0, 9), ms=MS)
    def set_for(self, key: str, value: int, ms: int) -> None:
        self.map.set(key, value, ms / 1000)
        self.put(key, value, self.now + ms)

    @rule(key=KEYS, ms=MS)
    def touch(self, key: str, ms: int) -> None:
        row = self.row(key)
        assert self.map.touch(key, ms / 1000) is (row is not None)
        if row is not None:
            self.rows.remove(row)
            self.rows.append((*row[:2], self.now + ms))

    @rule(key=KEYS)
    def pop(self, key: str) -> None:
        row = self.row(key)
        assert self.map.pop(key, None) == (None if row is None else row[1])
        if row is not None:
            self.rows.remove(row)

    @rule()
    def popitem(self) -> None:
        alive = [row for row in self.rows if row[2] > self.now]
        if alive:
            assert self.map.popitem() == alive[-1][:2]
            self.rows.remove(alive[-1])

    @rule(ms=st.integers(0, 40))
    def advance(self, ms: int) -> None:
        self.timer.advance(ms / 1000)
        until = self.now + ms
        for moment in range(self.now, until + 1):
            self.now = moment
            if self.now % self.tick == 0:
                gone = [row for row in self.rows if row[2] <= self.now]
                self.rows = [row for row in self.rows if row not in gone]
                self.expected += [(*row[:2], "expired") for row in gone + self.ghosts]
                self.ghosts.clear()

    @invariant()
    def the_same(self) -> None:
        if hasattr(self, "map"):
            alive = [row for row in self.rows if row[2] > self.now]
            assert list(self.map.items()) == [row[:2] for row in alive]
            assert {key: self.map.when(key) for key in self.map} == {row[0]: row[2] / 1000 for row in alive}
            assert len(self.map) == len(self.rows)
            assert len(self.timer) == len(self.rows) + len(self.ghosts)
            assert sorted(self.told.lines) == sorted(self.expected)

    def teardown(self) -> None:
        if hasattr(self, "timer"):
            self.timer.close()


class AsyncLife(Life):
    make = staticmethod(AsyncTimer)


TestLife = Life.TestCase
TestAsyncLife = AsyncLife.TestCase
TestLife.settings = TestAsyncLife.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


# Threads


@pytest.mark.parametrize("make", THREADED)
def test_threads_that_set_and_take_lose_nothing_and_are_told_of_each_once(make: Make) -> None:
    left, taken, lock = [], [], threading.Lock()

    def note(key: int, value: int, why: str) -> None:
        with lock:
            left.append(key)

    with make(tick_s=0.0001) as timer:
        entries: ExpiringMap[int, int] = ExpiringMap(timer, 0.002, max_entries=50, on_evict=note)

        def work(first: int) -> None:
            for key in range(first, first + 300):
                entries[key] = key
                if key % 3 == 0 and entries.pop(key, None) is not None:
                    with lock:
                        taken.append(key)

        threads = [threading.Thread(target=work, args=(first,)) for first in (0, 1000, 2000)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for _ in range(10_000):  # until the last has expired
            if len(entries) and len(left) + len(taken) < 900:
                threading.Event().wait(0.001)
    assert sorted(left + taken) == [key for first in (0, 1000, 2000) for key in range(first, first + 300)]
