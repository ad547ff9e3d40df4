"""The cases that Apache Kafka holds its purgatory to, by behaviour, in our names; plain and compiled.

Cancelling for a key, the fourth of its cases, stands in test_purgatory.py (5).
"""

from __future__ import annotations

from threading import Event
from typing import Any

from tests.purgatory.purgatories import Bench
from waterclock import SystemClock, Timer


def test_satisfaction_nobody_then_nobody_then_one_and_then_nobody_again(bench: Bench) -> None:
    assert bench.purgatory.check_and_complete("first") == 0  # nothing waits
    first, second = bench.watch("first", "first"), bench.watch("second", "second")
    assert bench.purgatory.check_and_complete("first") == 0  # not satisfied
    bench.done.add("first")
    assert bench.purgatory.check_and_complete("first") == 1
    assert bench.purgatory.check_and_complete("first") == 0  # it left
    assert (first.outcome, second.outcome) == ("completed", None)
    bench.done.add("second")
    assert bench.purgatory.check_and_complete("second") == 1


def test_expiry_comes_not_before_the_timeout_and_the_long_one_waits(bench: Bench) -> None:
    """On a real clock and a real thread."""
    clock, expired = SystemClock(), Event()
    with Timer() as timer:
        purgatory = bench.kind.Purgatory("real", timer)
        begin_s = clock.monotonic_s()
        short = bench.make("short", 0.02, on_expire=lambda op: expired.set())
        long = bench.make("long", 200.0)
        assert purgatory.try_complete_else_watch(short, ["k"]) is False
        assert purgatory.try_complete_else_watch(long, ["k"]) is False
        assert expired.wait(30)
        assert clock.monotonic_s() - begin_s >= 0.02
        assert (short.outcome, long.outcome) == ("expired", None)
        assert purgatory.close() == [long]


def test_accounting_of_three_operations_under_one_two_and_three_keys(bench: Bench) -> None:
    ops = [bench.watch("one", 1), bench.watch("two", 1, 2), bench.watch("three", 1, 2, 3)]
    assert bench.counts()[:2] == (6, 3)
    assert [bench.purgatory.watched_for(key) for key in (1, 2, 3)] == [3, 2, 1]
    for op, left in zip(ops, [(5, 2), (3, 1), (0, 0)], strict=True):
        op.force_complete()
        assert bench.counts()[:2] == left  # at once: no purge has to come first


def test_a_group_may_complete_its_operations_under_its_own_lock(bench: Bench) -> None:
    """A coordinator holds a lock of its own while it triggers, and so do its operations' questions."""
    from threading import RLock

    group = RLock()
    members: list[Any] = []

    def try_complete(op: Any) -> bool:
        with group:
            return len(members) == 2

    op = bench.watch("join", "group", try_complete=try_complete)
    with group:
        members += ["a", "b"]
        assert bench.purgatory.check_and_complete("group") == 1
    assert op.outcome == "completed"
