"""What is over is freed at once, without the garbage collector; and memory stays flat. Plain and compiled."""

from __future__ import annotations

import gc
import random
import sys
import tracemalloc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.purgatory.purgatories import Bench


@pytest.fixture(autouse=True)
def without_collector() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


class Payload:
    """What a request carries; its methods are the callables."""

    def ask(self, op: Any) -> bool:
        return False

    def answer(self, op: Any) -> None:
        pass


WAYS_OUT: dict[str, Callable[[Bench, Any], Any]] = {
    "force": lambda bench, op: op.force_complete(),
    "expire": lambda bench, op: bench.timer.advance(1),
    "cancel": lambda bench, op: bench.purgatory.cancel_for_key("k"),
    "close": lambda bench, op: bench.purgatory.close(),
}


def watch(bench: Bench, *keys: Any) -> tuple[Any, weakref.ref[Payload]]:
    payload = Payload()
    op = bench.kind.DelayedOperation(payload.ask, payload.answer, 1, payload.answer)
    assert bench.purgatory.try_complete_else_watch(op, keys) is False
    return op, weakref.ref(payload)


@pytest.mark.parametrize("way", WAYS_OUT)
def test_an_operation_that_is_over_lets_go_of_its_callables_at_once(bench: Bench, way: str) -> None:
    op, payload = watch(bench, "k", "l")
    assert payload() is not None
    WAYS_OUT[way](bench, op)
    assert (op.completed, payload()) == (True, None)


@pytest.mark.parametrize("way", WAYS_OUT)
def test_an_operation_that_is_over_is_itself_freed_at_once(bench: Bench, way: str) -> None:
    op, _ = watch(bench, "k", "l")
    gone = weakref.ref(op)
    WAYS_OUT[way](bench, op)
    del op
    assert gone() is None


def test_an_operation_is_freed_though_its_callables_know_it(bench: Bench) -> None:
    known: list[Any] = []
    known.append(bench.watch("a", "k", timeout_s=1, on_complete=lambda op: known.clear()))
    gone = weakref.ref(known[0])
    bench.timer.advance(1)
    assert gone() is None


def test_one_that_is_over_at_its_first_question_is_freed_at_once(bench: Bench) -> None:
    payload = Payload()
    op = bench.kind.DelayedOperation(lambda op, payload=payload: True, payload.answer, 1)
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is True
    gone = weakref.ref(payload)
    del payload
    assert gone() is None


def test_keys_that_nobody_waits_for_are_forgotten(bench: Bench) -> None:
    class Key:
        pass

    key = Key()
    op = bench.watch("a", key, "l")
    gone = weakref.ref(key)
    op.force_complete()
    del key
    assert gone() is None


def test_a_purgatory_that_is_dropped_with_operations_waiting_is_collected(bench: Bench) -> None:
    payload = watch(bench, "k")[1]
    gone = weakref.ref(bench.purgatory)
    del bench.purgatory, bench.timer
    gc.collect()
    assert (gone(), payload()) == (None, None)


def test_an_operation_that_is_ended_by_the_collector_in_the_middle_of_a_step_locks_nobody_up(bench: Bench) -> None:
    """Its owner's `__del__` ends it, and runs wherever something is allocated: also under the lock of the lists."""

    class Owner:
        def __init__(self, n: int) -> None:
            self.me = self
            self.op = bench.watch("owned", n % 5)

        def __del__(self) -> None:
            self.op.force_complete()

    before = gc.get_threshold()
    gc.set_threshold(3)
    gc.enable()
    try:
        for n in range(2000):
            Owner(n)
            bench.watch("other", n, n % 5, (n,)).force_complete()
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert bench.counts() == (0, 0, 4000, 0, 0)


def test_a_burst_under_one_key_gives_its_memory_back_while_the_key_lives_on(bench: Bench) -> None:
    keeper = bench.watch("keeper", "k")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        ops = [bench.kind.DelayedOperation(lambda op: False, id, None) for _ in range(20_000)]
        for op in ops:
            bench.purgatory.try_complete_else_watch(op, ("k",))
        for op in ops:
            op.force_complete()
        del ops, op
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 20_000
    assert (bench.purgatory.cancel_for_key("k"), bench.counts()[0]) == ([keeper], 0)


# The soak


def run_for(bench: Bench, seconds: int, rate: int, rng: random.Random) -> None:
    """`rate` requests a second of the clock, under 3 keys of 100; two in three are answered before 200 ms."""
    ring: dict[int, list[Any]] = {}
    for ms in range(seconds * 1000):
        if ms % (1000 // rate) == 0:
            op = bench.kind.DelayedOperation(lambda op: False, id, 0.2)
            key = rng.randrange(100)
            bench.purgatory.try_complete_else_watch(op, (key, (key + 1) % 100, ("request", ms)))
            ring.setdefault(ms + rng.randrange(1, 300), []).append(op)
        for op in ring.pop(ms, ()):
            op.force_complete()
        bench.timer.advance(0.001)


@pytest.mark.long(seconds=10)
def test_in_ten_minutes_of_requests_memory_stays_flat_and_watched_exact(bench: Bench) -> None:
    rng = random.Random(5)
    run_for(bench, 20, 500, rng)
    blocks = sys.getallocatedblocks()
    for _ in range(30):
        run_for(bench, 20, 500, rng)
        told = bench.purgatory.statistics()
        assert told.watched == 3 * told.delayed
        bench.timer.advance(1)
        assert bench.counts()[:2] == (0, 0)
        assert sys.getallocatedblocks() < blocks + 2000
    assert bench.counts()[2] + bench.counts()[3] == 31 * 20 * 500
