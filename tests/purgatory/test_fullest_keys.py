"""`fullest_keys(n)`: where most operations wait, asked for by itself."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.purgatory.purgatories import KINDS, Bench
from waterclock.purgatory import delayed


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(KINDS[request.param])
    yield bench
    bench.purgatory.close()


def test_the_fullest_come_first_and_of_equal_ones_the_oldest(bench: Bench) -> None:
    for name, keys in enumerate(["b", "ac", "acd", "ce", "b"]):
        bench.watch(str(name), *keys)
    assert bench.purgatory.fullest_keys(3) == [("c", 3), ("b", 2), ("a", 2)]
    assert bench.purgatory.fullest_keys() == [("c", 3), ("b", 2), ("a", 2), ("d", 1), ("e", 1)]
    assert bench.purgatory.fullest_keys(0) == []


def test_what_is_over_counts_under_none_of_its_keys(bench: Bench) -> None:
    first = bench.watch("first", "a", "b")
    bench.watch("second", "a", timeout_s=1)
    first.force_complete()
    assert bench.purgatory.fullest_keys() == [("a", 1)]
    bench.timer.advance(2)
    assert bench.purgatory.fullest_keys() == []


def test_one_operation_counts_once_under_a_key_that_was_given_twice(bench: Bench) -> None:
    bench.watch("one", "a", "a")
    assert bench.purgatory.fullest_keys() == [("a", 1)]


def test_keys_need_no_order(bench: Bench) -> None:
    bench.watch("one", 1, "a", ("topic", 0), None)
    assert bench.purgatory.fullest_keys(2) == [(1, 1), ("a", 1)]


@pytest.mark.parametrize("wrong", [-1, True])
def test_what_is_no_count_is_refused_by_name(bench: Bench, wrong: int) -> None:
    with pytest.raises(ValueError, match="n must be a whole number from 0"):
        bench.purgatory.fullest_keys(wrong)


def test_what_is_no_number_is_a_type_error(bench: Bench) -> None:
    for wrong in ("3", 2.0, None):
        with pytest.raises(TypeError):
            bench.purgatory.fullest_keys(wrong)


def test_counts_are_of_one_moment_while_others_watch_and_complete(bench: Bench) -> None:
    """Every operation waits under all three keys or under none, so at any moment the three counts are the same."""
    stop, torn = threading.Event(), []

    def live() -> None:
        while not stop.is_set():
            op = bench.make("it")
            bench.purgatory.try_complete_else_watch(op, ("a", "b", "c"))
            op.force_complete()

    threads = [threading.Thread(target=live, daemon=True) for _ in range(3)]
    for thread in threads:
        thread.start()
    for _ in range(3000):
        counts = bench.purgatory.fullest_keys(5)
        if len({many for _, many in counts}) > 1 or len(counts) not in (0, 3):
            torn.append(counts)
    stop.set()
    for thread in threads:
        thread.join()
    assert torn == []


def test_counts_are_taken_under_the_lock() -> None:
    bench, held = Bench(delayed), []
    bench.watch("one", "a", "b")
    lock = bench.purgatory._lock

    class Counted(dict[Any, Any]):
        def __len__(self) -> int:
            held.append(lock._is_owned())
            return super().__len__()

    for watch_list in bench.purgatory._lists.values():
        watch_list.operations = Counted(watch_list.operations)
    assert bench.purgatory.fullest_keys() == [("a", 1), ("b", 1)]
    assert held == [True, True]
