"""Operations that complete each other: a chain is a loop however long it is, plain and compiled, in whichever thread."""

from __future__ import annotations

import gc
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from tests.purgatory.purgatories import Bench

LONG = 2999
LONGEST = 30_000


def chain(bench: Bench, length: int, timeout_s: float | None = 60, **callables: Callable[[Any], Any]) -> list[Any]:
    """Operations of which each, once it is over, makes the next one's condition true and triggers its key."""
    true = [False] * (length + 1)
    ops: list[Any] = []

    def one(number: int) -> Any:
        def on_complete(op: Any) -> None:
            true[number + 1] = True
            if "on_complete" in callables:
                callables["on_complete"](number)
            bench.purgatory.check_and_complete(number + 1)

        return bench.kind.DelayedOperation(lambda op: true[number], on_complete, timeout_s)

    for number in range(length):
        ops.append(one(number))
        assert bench.purgatory.try_complete_else_watch(ops[-1], [number]) is False
    return ops


@pytest.mark.parametrize("length", [LONG, LONGEST])
def test_a_chain_of_completions_comes_to_its_end(bench: Bench, length: int) -> None:
    """Once 991 of 2,999 were completed, one was a RecursionError, and 2,008 waited for their timeouts."""
    ops = chain(bench, length)
    assert ops[0].force_complete() is True
    assert (bench.errors, bench.counts(), len(bench.timer)) == ([], (0, 0, length, 0, 0), 0)


@pytest.mark.parametrize("end", ["expire", "cancel", "check", "close"])
def test_a_chain_begins_however_its_first_operation_ends(bench: Bench, end: str) -> None:
    ops = chain(bench, LONG, timeout_s=None)
    true: list[bool] = []
    first = bench.kind.DelayedOperation(lambda op: bool(true), lambda op: ops[0].force_complete(), 1)
    bench.purgatory.try_complete_else_watch(first, ["first"])
    true.append(True)
    ways: dict[str, Callable[[], Any]] = {
        "expire": lambda: bench.timer.advance(1),
        "cancel": lambda: bench.purgatory.cancel_for_key("first"),
        "check": lambda: bench.purgatory.check_and_complete("first"),
        "close": bench.purgatory.close,
    }
    ways[end]()
    assert (bench.errors, bench.counts()[:2]) == ([], (0, 0))
    assert all(op.completed for op in ops)


def test_a_chain_through_two_purgatories_comes_to_its_end(bench: Bench) -> None:
    other = Bench(bench.kind)
    done = [False] * (LONG + 1)

    def one(number: int) -> None:
        here, there = (bench, other) if number % 2 else (other, bench)

        def on_complete(op: Any) -> None:
            done[number + 1] = True
            there.purgatory.check_and_complete(number + 1)

        op = bench.kind.DelayedOperation(lambda op: done[number], on_complete, 60)
        here.purgatory.try_complete_else_watch(op, [number])

    for number in range(LONG):
        one(number)
    done[0] = True
    assert other.purgatory.check_and_complete(0) == 1
    assert (bench.errors, other.errors, bench.counts()[1], other.counts()[1]) == ([], [], 0, 0)


def test_chains_in_eight_threads_come_to_their_ends_each_in_its_own(bench: Bench) -> None:
    from threading import get_ident

    done = {(n, thread): False for n in range(LONG + 1) for thread in range(8)}
    where: dict[int, set[int]] = {thread: set() for thread in range(8)}

    def one(number: int, thread: int) -> None:
        def on_complete(op: Any) -> None:
            where[thread].add(get_ident())
            done[number + 1, thread] = True
            bench.purgatory.check_and_complete((number + 1, thread))

        op = bench.kind.DelayedOperation(lambda op: done[number, thread], on_complete, 60)
        bench.purgatory.try_complete_else_watch(op, [(number, thread)])

    for thread in range(8):
        for number in range(LONG):
            one(number, thread)

    def begin(thread: int) -> None:
        done[0, thread] = True
        assert bench.purgatory.check_and_complete((0, thread)) == 1

    threads = [Thread(target=begin, args=(thread,), daemon=True) for thread in range(8)]
    for one_thread in threads:
        one_thread.start()
    for one_thread in threads:
        one_thread.join(60)
    assert (bench.errors, bench.counts()) == ([], (0, 0, 8 * LONG, 0, 0))
    assert [len(found) for found in where.values()] == [1] * 8


def test_a_chain_of_questions_comes_to_its_end(bench: Bench) -> None:
    """Each question triggers the next key, and says yes when it is asked by that."""
    begun = [False]

    def one(number: int) -> Any:
        def try_complete(op: Any) -> bool:
            if begun[0]:
                bench.purgatory.check_and_complete(number + 1)
            return begun[0]

        return bench.watch("one", number, timeout_s=60, try_complete=try_complete)

    ops = [one(number) for number in range(LONG)]
    begun[0] = True
    assert bench.purgatory.check_and_complete(0) == 1
    assert (bench.errors, [op for op in ops if not op.completed]) == ([], [])


# What runs when


def test_what_an_on_complete_completes_is_over_at_once_and_its_on_complete_runs_behind_it(bench: Bench) -> None:
    seen: list[Any] = []
    second = bench.watch("b", "l", on_complete=lambda op: seen.append("second"))
    third = bench.watch("c", "m", on_complete=lambda op: seen.append("third"))

    def first(op: Any) -> None:
        bench.done.add("b")
        seen.append((bench.purgatory.check_and_complete("l"), third.force_complete(), second.outcome, third.outcome))

    bench.watch("a", "k", on_complete=first).force_complete()
    assert seen == [(1, True, "completed", "completed"), "second", "third"]


def test_what_is_watched_in_an_on_complete_and_over_at_once_is_told_behind_it(bench: Bench) -> None:
    seen: list[Any] = []

    def first(op: Any) -> None:
        bench.done.add("b")
        another = bench.make("b", on_complete=lambda op: seen.append("second"))
        seen.append(bench.purgatory.try_complete_else_watch(another, ["l"]))

    bench.watch("a", "k", on_complete=first).force_complete()
    assert seen == [True, "second"]


def test_on_expire_runs_behind_its_own_on_complete_and_before_what_that_completed(bench: Bench) -> None:
    seen: list[str] = []
    second = bench.watch("b", "l", on_complete=lambda op: seen.append("second"))
    bench.watch(
        "a", "k", timeout_s=1, on_complete=lambda op: second.force_complete(), on_expire=lambda op: seen.append("expire")
    )  # fmt: skip
    bench.timer.advance(1)
    assert seen == ["expire", "second"]


# Errors in the middle


def test_an_exception_in_the_middle_of_a_chain_is_told_with_its_operation_and_the_chain_goes_on(bench: Bench) -> None:
    def fail_at_100(number: int) -> None:
        if number == 100:
            bench.purgatory.check_and_complete(number + 1)
            raise RuntimeError("boom")

    ops = chain(bench, 300, on_complete=fail_at_100)
    ops[0].force_complete()
    assert (bench.errors, bench.counts()[1:3]) == ([("RuntimeError('boom')", ops[100])], (0, 300))


def test_an_interrupt_in_the_middle_reaches_who_began_and_nothing_that_is_over_goes_untold(bench: Bench) -> None:
    seen: list[str] = []

    def interrupt(op: Any) -> None:
        raise KeyboardInterrupt

    third = bench.watch("c", "m", on_complete=lambda op: seen.append("third"))
    second = bench.watch("b", "l", on_complete=interrupt)
    first = bench.watch("a", "k", on_complete=lambda op: (second.force_complete(), third.force_complete()))
    with pytest.raises(KeyboardInterrupt):
        first.force_complete()
    assert (seen, bench.counts()) == (["third"], (0, 0, 3, 0, 0))
    other = bench.watch("d", "n", on_complete=lambda op: seen.append("fourth"))
    assert (other.force_complete(), seen) == (True, ["third", "fourth"])  # the purgatory goes on as before


def test_an_operation_that_dies_with_its_garbage_in_a_chain_is_told_too(bench: Bench) -> None:
    """A `__del__` may end an operation in the middle of any step."""
    seen: list[int] = []

    class Ends:
        def __init__(self, op: Any) -> None:
            self.op, self.itself = op, self

        def __del__(self) -> None:
            self.op.force_complete()

    for number in range(300):
        Ends(bench.watch("x", ("garbage", number), on_complete=lambda op, number=number: seen.append(number)))
    before = gc.get_threshold()
    gc.set_threshold(5)
    try:
        chain(bench, 500)[0].force_complete()
        gc.collect()
    finally:
        gc.set_threshold(*before)
    assert (sorted(seen), bench.counts()[:2]) == (list(range(300)), (0, 0))


# A question that triggers its own key


@pytest.mark.parametrize("way", ["check", "watch"])
def test_a_question_that_always_triggers_its_own_key_is_asked_once_more(bench: Bench, way: str) -> None:
    asked: list[int] = []

    def try_complete(op: Any) -> bool:
        asked.append(bench.purgatory.check_and_complete("k"))
        return False

    op = bench.make("a", try_complete=try_complete)
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is False
    assert asked == [0, 0, 0]  # first in no list; then watched, and once more
    asked.clear()
    if way == "check":
        assert (bench.purgatory.check_and_complete("k"), asked) == (0, [0, 0])


def test_a_question_that_is_true_when_it_is_asked_once_more_is_counted_by_who_asks(bench: Bench) -> None:
    asked: list[int] = []

    def try_complete(op: Any) -> bool:
        asked.append(len(asked))
        if len(asked) == 3:
            assert bench.purgatory.check_and_complete("k") == 0
        return len(asked) == 4

    op = bench.watch("a", "k", try_complete=try_complete)
    assert (bench.purgatory.check_and_complete("k"), len(asked), op.outcome) == (1, 4, "completed")
