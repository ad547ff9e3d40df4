"""Callbacks in an executor, and how late callbacks start (semantics.md, section 3: 3)."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest

from tests.timer.timers import Diary, Make, by_hand, every_driver, nothing
from waterclock.timer.statistics import Histogram, Lateness, bucket_of, top_of


class Later(Executor):
    """Keeps what it is given until `run_all`: an executor whose threads are busy."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    def submit(self, fn: Any, /, *args: Any, **named: Any) -> Future[Any]:
        self.kept.append(lambda: fn(*args, **named))
        return Future()

    def run_all(self) -> int:
        kept, self.kept = self.kept, []
        for call in kept:
            call()
        return len(kept)


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2, thread_name_prefix="pool") as executor:
        yield executor


@every_driver
def test_callbacks_run_in_the_executors_threads(make: Make, pool: ThreadPoolExecutor) -> None:
    timer = by_hand(make, executor=pool)
    names: list[tuple[str, object]] = []
    both = threading.Barrier(3)

    def note(argument: object = None) -> None:
        names.append((threading.current_thread().name[:4], argument))
        both.wait(10)

    timer.call_later(1, note)
    timer.call_at(1, note, "argument")
    assert timer.advance(1) == 2
    both.wait(10)
    assert sorted(names, key=str) == [("pool", "argument"), ("pool", None)]


@every_driver
def test_an_error_in_the_executor_reaches_on_error_too(make: Make) -> None:
    errors: list[BaseException] = []
    executor = Later()
    timer = by_hand(make, executor=executor, on_error=errors.append)
    timer.call_later(1, int, "no number")
    timer.call_later(1, int, "nor this")
    timer.advance(1)
    assert errors == []
    executor.run_all()
    assert ([type(error) for error in errors], timer.statistics().failed) == ([ValueError] * 2, 2)


@every_driver
def test_an_executor_that_takes_nothing_is_an_error_like_another(make: Make) -> None:
    errors: list[BaseException] = []
    executor = ThreadPoolExecutor(1)
    executor.shutdown()
    timer = by_hand(make, executor=executor, on_error=errors.append)
    timer.call_later(1, nothing)
    beat = timer.every(1, nothing)
    timer.advance(2)
    assert [type(error) for error in errors] == [RuntimeError] * 3
    assert beat.pending


@every_driver
def test_what_cannot_be_called_is_refused_before_it_comes_to_the_executor(make: Make) -> None:
    timer = by_hand(make, executor=Later())
    with pytest.raises(TypeError):
        timer.call_later(1, None)


@every_driver
def test_a_periodic_call_is_planned_when_the_one_in_the_executor_has_ended(make: Make) -> None:
    executor = Later()
    timer = by_hand(make, executor=executor)
    diary = Diary(timer)
    timer.every(10, diary("beat"))
    timer.advance(25)
    assert (len(executor.kept), len(timer)) == (1, 0)
    executor.run_all()
    assert len(timer) == 1
    timer.advance(5)
    executor.run_all()
    assert [at_s for _, at_s in diary.lines] == [25.0, 30.0]


@every_driver
def test_lateness_counts_to_the_start_in_the_executor(make: Make) -> None:
    executor = Later()
    timer = by_hand(make, executor=executor)
    timer.call_later(1, nothing)
    timer.call_later(2, nothing)
    timer.advance(5)
    assert timer.statistics().lateness.count == 0
    executor.run_all()
    assert (timer.statistics().lateness.count, timer.statistics().lateness.max_s) == (2, 4.0)


# Lateness


@every_driver
def test_a_slow_callback_delays_the_others_and_is_seen(timer: Any) -> None:
    timer.call_later(1, timer._clock.advance_s, 2)
    for _ in range(99):
        timer.call_later(1, nothing)
    timer.advance(1)
    told = timer.statistics().lateness
    assert (told.count, told.max_s, told.p50_s, told.p99_s) == (100, 2.0, 2.0, 2.0)
    assert told.quantile_s(0.01) == 0.0


@every_driver
def test_a_slow_callback_in_the_midst_of_quick_ones_is_seen(timer: Any) -> None:
    for place in range(1000):
        timer.call_later(1, nothing) if place != 500 else timer.call_later(1, timer._clock.advance_s, 2)
    timer.advance(1)
    told = timer.statistics().lateness
    late = sum(count for top_ns, count in told.buckets if top_ns > 10**9)
    assert told.count == 1000
    assert 499 <= late <= 499 + 255  # those behind it, and at most the rest of its slice before it


@every_driver
def test_behind_a_slow_callback_each_start_is_measured_by_itself(timer: Any) -> None:
    for _ in range(1000):
        timer.call_later(0, nothing)
    timer.call_later(1, timer._clock.advance_s, 1)
    timer.advance(1)
    for _ in range(3):
        timer.call_later(1, timer._clock.advance_s, 1)
    timer.advance(1)
    late_s = [top_ns // 10**9 for top_ns, _ in timer.statistics().lateness.buckets]
    assert late_s == [0, 1, 2]


@every_driver
def test_a_slow_tick_makes_the_next_one_late(timer: Any) -> None:
    timer.call_later(1, timer._clock.advance_s, 0.5)
    timer.call_later(1.1, nothing)
    timer.advance(1)
    assert timer.statistics().lateness.buckets == ((0, 1), (top_of(bucket_of(400_000_000)), 1))
    assert timer.statistics().lateness.max_s == 0.4


@every_driver
def test_callbacks_that_fail_count_as_well(make: Make) -> None:
    timer = by_hand(make, on_error=lambda error: None)
    for _ in range(10):
        timer.call_later(1, int, "no number")
    timer.advance(1)
    assert timer.statistics().lateness.count == 10


def test_a_bucket_holds_what_is_at_most_an_eighth_below_its_top() -> None:
    values = [*range(1000), *(2**power + more for power in range(10, 63) for more in (-1, 0, 1)), 2**63 - 1]
    for value in values:
        top = top_of(bucket_of(value))
        assert value <= top <= value + value / 8
        assert bucket_of(top) == bucket_of(value)
        assert bucket_of(top + 1) == bucket_of(value) + 1


def test_quantiles_are_tops_of_buckets_and_never_beyond_the_largest() -> None:
    histogram = Histogram()
    for ns, count in ((5, 50), (1_000, 49), (1_000_001, 1)):
        histogram.record(ns, count)
    told = histogram.lateness()
    assert told.count == 100
    assert (told.p50_s, told.p99_s, told.quantile_s(1), told.max_s) == (5e-9, 1023e-9, 0.001000001, 0.001000001)
    assert (Lateness().p99_s, Lateness().max_s, Lateness().count) == (0.0, 0.0, 0)
    with pytest.raises(ValueError, match="share"):
        told.quantile_s(99)


def test_what_was_told_does_not_change_when_more_is_recorded() -> None:
    histogram = Histogram()
    histogram.record(5, 1)
    told = histogram.lateness()
    histogram.record(5, 1)
    assert told.count == 1
