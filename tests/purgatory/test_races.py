"""Threads against each other in one purgatory: real threads that the interpreter switches as often as it can."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Barrier, Event, Thread
from typing import Any

import pytest

from tests.purgatory.purgatories import KINDS, Bench
from waterclock import PurgatoryClosed
from waterclock.purgatory.lock import PlainLock

ROUNDS = 300
PATIENCE_S = 10


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    bench = Bench(KINDS[request.param])
    yield bench
    sys.setswitchinterval(before)
    assert bench.errors == []
    assert bench.counts()[:2] == (0, 0)


@pytest.fixture(scope="module")
def runners() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(20) as pool:
        race(
            pool, *[lambda: None] * 20
        )  # all its threads: from 3.12 on it may count one as idle twice, and start too few
        yield pool


def race(runners: ThreadPoolExecutor, *players: Callable[[], Any]) -> list[Any]:
    """Start all at one moment, each in a thread of its own; what they returned."""
    start = Barrier(len(players))

    def play(player: Callable[[], Any]) -> Any:
        start.wait(PATIENCE_S)
        return player()

    futures = [runners.submit(play, player) for player in players]
    assert not wait(futures, PATIENCE_S).not_done, "two threads wait for each other"
    return [future.result() for future in futures]


# The stories of lock.py, played step by step


def test_a_trigger_during_a_question_is_answered_by_the_thread_that_asks(bench: Bench) -> None:
    asking, go_on, condition = Event(), Event(), Event()
    asked: list[bool] = []

    def try_complete(op: Any) -> bool:
        asked.append(condition.is_set())
        if len(asked) == 3:  # A's question, which began before B's trigger and answers after it
            asking.set()
            assert go_on.wait(PATIENCE_S)
        return asked[-1]

    op = bench.watch("a", "k", try_complete=try_complete)
    counted: list[int] = []
    a = Thread(target=lambda: counted.append(bench.purgatory.check_and_complete("k")), daemon=True)
    a.start()
    assert asking.wait(PATIENCE_S)
    condition.set()
    assert bench.purgatory.check_and_complete("k") == 0  # B leaves word, and does not wait
    assert (len(asked), op.completed) == (3, False)
    go_on.set()
    a.join(PATIENCE_S)
    assert (asked, counted, op.outcome) == ([False, False, False, True], [1], "completed")


def test_a_trigger_during_the_second_question_of_a_watch_is_answered_by_the_thread_that_watches(bench: Bench) -> None:
    asking, go_on, condition = Event(), Event(), Event()
    asked: list[bool] = []

    def try_complete(op: Any) -> bool:
        asked.append(condition.is_set())
        if len(asked) == 2:
            asking.set()
            assert go_on.wait(PATIENCE_S)
        return asked[-1]

    op, over = bench.make("a", 1, try_complete=try_complete), []
    a = Thread(target=lambda: over.append(bench.purgatory.try_complete_else_watch(op, ["k"])), daemon=True)
    a.start()
    assert asking.wait(PATIENCE_S)
    condition.set()
    assert bench.purgatory.check_and_complete("k") == 0
    go_on.set()
    a.join(PATIENCE_S)
    assert (asked, over, len(bench.timer)) == ([False, False, True], [True], 0)


@pytest.mark.parametrize("ending", ["force", "expire", "cancel", "close"])
def test_a_question_that_takes_long_holds_nobody_up_who_ends_the_operation(bench: Bench, ending: str) -> None:
    asking, go_on = Event(), Event()

    def try_complete(op: Any) -> bool:
        if bench.purgatory.watched_for("k") and len(bench.timer):
            asking.set()
            assert go_on.wait(PATIENCE_S)
            return True
        return False

    op = bench.watch("a", "k", timeout_s=1, try_complete=try_complete)
    counted: list[int] = []
    a = Thread(target=lambda: counted.append(bench.purgatory.check_and_complete("k")), daemon=True)
    a.start()
    assert asking.wait(PATIENCE_S)
    ways = {
        "force": op.force_complete,
        "expire": lambda: bench.timer.advance(1),
        "cancel": lambda: bench.purgatory.cancel_for_key("k"),
        "close": bench.purgatory.close,
    }
    ways[ending]()
    assert op.completed
    outcome = op.outcome
    go_on.set()
    a.join(PATIENCE_S)
    assert (counted, op.outcome) == ([0], outcome)
    assert [entry for entry in bench.diary if entry[0] == "complete"] == [("complete", "a", outcome)]


def test_operations_that_trigger_each_other_do_not_lock_each_other_up(
    bench: Bench, runners: ThreadPoolExecutor
) -> None:
    check = bench.purgatory.check_and_complete
    both, armed, triggered = Barrier(2), Event(), []

    def asks(other: str) -> Callable[[Any], bool]:
        def try_complete(op: Any) -> bool:
            if armed.is_set() and other not in triggered:
                triggered.append(other)
                both.wait(PATIENCE_S)
                check(other)  # its lock is with the other thread, which at this moment asks for ours
            return False

        return try_complete

    bench.watch("a", "k", try_complete=asks("l"))
    bench.watch("b", "l", try_complete=asks("k"))
    armed.set()
    assert race(runners, lambda: check("k"), lambda: check("l")) == [0, 0]
    assert sorted(triggered) == ["k", "l"]
    bench.purgatory.close()


def test_a_force_that_looked_before_the_purgatory_took_the_operation_in_finds_it_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Between the look and the lock comes a whole `try_complete_else_watch`; plain only, where a step can be split."""
    bench = Bench(KINDS["plain"])
    op = bench.make("a", 1)
    steps = [lambda: bench.purgatory.try_complete_else_watch(op, ["k"])]

    class Between(PlainLock):
        def acquire(self) -> bool:
            if steps:
                assert steps.pop()() is False
            return super().acquire()

    monkeypatch.setattr(bench.kind._NOWHERE, "_lock", Between())
    assert op.force_complete() is True
    assert (op.outcome, bench.counts(), len(bench.timer)) == ("completed", (0, 0, 1, 0, 0), 0)


# No code of the user under the lock of the watch lists


def elsewhere(fn: Callable[[], Any]) -> bool:
    """Whether another thread gets through with it while this one waits."""
    thread = Thread(target=fn, daemon=True)
    thread.start()
    thread.join(5)
    return not thread.is_alive()


def test_no_callable_runs_under_the_lock_of_the_watch_lists(bench: Bench) -> None:
    free: list[tuple[str, bool]] = []

    def look(name: str) -> Callable[..., None]:
        return lambda *_: free.append((name, elsewhere(bench.purgatory.statistics)))

    def fail(op: Any) -> None:
        raise KeyError

    bench = Bench(bench.kind, on_error=look("on_error"))
    bench.watch("a", "k", try_complete=look("try"), on_complete=look("complete"), timeout_s=1, on_expire=look("expire"))
    bench.purgatory.check_and_complete("k")
    bench.timer.advance(1)
    bench.watch("b", "k", on_complete=fail).force_complete()
    bench.watch("c", "k", on_complete=look("cancelled"))
    bench.purgatory.cancel_for_key("k")
    bench.watch("d", "k", on_complete=look("closed"))
    bench.purgatory.close()
    names = ["try", "try", "try", "complete", "expire", "on_error", "cancelled", "closed"]
    assert free == [(name, True) for name in names]


def test_a_payload_is_let_go_of_when_the_lock_of_the_watch_lists_is_free(bench: Bench) -> None:
    free: list[bool] = []

    class Payload:
        def ask(self, op: Any) -> bool:
            return False

        def __del__(self) -> None:
            free.append(elsewhere(bench.purgatory.statistics))

    bench.watch("a", "k", try_complete=Payload().ask, on_complete=id).force_complete()
    assert free == [True]


# Storms


def test_a_condition_of_two_parts_that_two_threads_make_true_is_never_missed(
    bench: Bench, runners: ThreadPoolExecutor
) -> None:
    for _ in range(ROUNDS):
        parts: set[int] = set()
        op = bench.watch("a", "k", try_complete=lambda op, parts=parts: len(parts) == 2)

        def bring(part: int, parts: set[int] = parts) -> int:
            parts.add(part)
            return bench.purgatory.check_and_complete("k")

        counted = race(runners, lambda: bring(1), lambda: bring(2))
        assert (sum(counted), op.outcome) == (1, "completed")


def test_a_condition_that_comes_while_the_operation_is_watched_is_never_missed(
    bench: Bench, runners: ThreadPoolExecutor
) -> None:
    for _ in range(ROUNDS):
        bench.done.clear()
        op = bench.make("a", 1)

        def bring() -> int:
            bench.done.add("a")
            return bench.purgatory.check_and_complete("k")

        race(runners, lambda op=op: bench.purgatory.try_complete_else_watch(op, ["k", "l"]), bring)
        assert (op.outcome, len(bench.timer)) == ("completed", 0)


def test_a_force_that_meets_the_watch_is_never_lost(bench: Bench, runners: ThreadPoolExecutor) -> None:
    for _ in range(ROUNDS * 3):
        op = bench.make("a", 1)
        _, forced = race(
            runners, lambda op=op: bench.purgatory.try_complete_else_watch(op, ["k", "l"]), op.force_complete
        )
        assert (forced, op.outcome, len(bench.timer)) == (True, "completed", 0)


def test_of_a_check_and_a_timeout_one_wins(bench: Bench, runners: ThreadPoolExecutor) -> None:
    won = set()
    for _ in range(ROUNDS):
        bench.done.clear()
        op = bench.watch("a", "k", "l", timeout_s=1)
        bench.done.add("a")
        checked, _ = race(runners, lambda: bench.purgatory.check_and_complete("k"), lambda: bench.timer.advance(1))
        assert checked == (op.outcome == "completed")
        told = [entry for entry in bench.diary if entry[0] != "try"]
        assert told == [("complete", "a", op.outcome), ("expire", "a", "expired")][: 2 - checked]
        won.add(op.outcome)
    assert won <= {"completed", "expired"}


def test_of_a_cancel_a_check_and_a_force_one_wins(bench: Bench, runners: ThreadPoolExecutor) -> None:
    for _ in range(ROUNDS):
        bench.done.clear()
        op = bench.watch("a", "k", "l")
        bench.done.add("a")
        cancelled, checked, forced = race(
            runners,
            lambda: bench.purgatory.cancel_for_key("l"),
            lambda: bench.purgatory.check_and_complete("k"),
            op.force_complete,
        )
        assert len(cancelled) + checked + forced == 1
        assert op.outcome == ("cancelled" if cancelled else "completed")
        assert [entry[0] for entry in bench.diary].count("complete") == 1


def test_a_list_that_is_emptied_by_one_thread_and_filled_by_another_loses_nobody(
    bench: Bench, runners: ThreadPoolExecutor
) -> None:
    """An emptied list goes. Who has just looked it up must not put its operation there, where no trigger finds it."""

    def come_and_go() -> list[Any]:
        ops = []
        for _ in range(2000):
            ops.append(bench.kind.DelayedOperation(lambda op: False, id, None))
            bench.purgatory.try_complete_else_watch(ops[-1], ("k", "l"))
            bench.purgatory.cancel_for_key("k")
        return ops

    ops = [op for told in race(runners, *[come_and_go] * 4) for op in told]
    assert {op.outcome for op in ops} == {"cancelled"}
    assert bench.counts() == (0, 0, 0, 0, 8000)


def test_of_two_that_watch_one_operation_one_is_refused(bench: Bench, runners: ThreadPoolExecutor) -> None:
    for _ in range(ROUNDS):
        op = bench.make("a")

        def watch(key: str, op: Any = op) -> int:
            try:
                bench.purgatory.try_complete_else_watch(op, [key])
            except ValueError:
                return 1
            return 0

        assert sum(race(runners, lambda: watch("k"), lambda: watch("l"))) == 1
        assert bench.counts()[:2] == (1, 1)
        op.force_complete()


def test_a_hundred_operations_that_twenty_threads_ask_twenty_times_complete_once_each(
    bench: Bench, runners: ThreadPoolExecutor
) -> None:
    """Each is true at a random one of its twenty triggers, and no trigger comes after."""
    rng = random.Random(20)
    triggers = {n: [0, rng.randint(1, 20)] for n in range(100)}
    ops = [
        bench.watch(f"op{n}", n, "all", try_complete=lambda op, n=n: triggers[n][0] >= triggers[n][1])
        for n in range(100)
    ]
    orders = [rng.sample(range(100), 100) for _ in range(20)]

    def ask(order: list[int]) -> int:
        completed = 0
        for n in order:
            triggers[n][0] += 1
            completed += bench.purgatory.check_and_complete(n)
        return completed

    counted = race(runners, *(lambda order=order: ask(order) for order in orders))
    assert (sum(counted), [op.outcome for op in ops]) == (100, ["completed"] * 100)
    assert sorted(entry[1] for entry in bench.diary if entry[0] == "complete") == sorted(f"op{n}" for n in range(100))


class Everything:
    """Two threads that watch, one that checks, one that cancels and one that turns the clock, around one purgatory."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.purgatory = bench.purgatory = bench.kind.Purgatory("test", bench.timer, bench.errors.append)
        self.ops: list[Any] = []
        self.refused: list[Any] = []
        bench.diary.clear()
        bench.done = {f"{place}/{n}" for place in range(2) for n in range(0, 20, 7)}

    def watch(self, place: int) -> None:
        for n in range(20):
            op = self.bench.make(f"{place}/{n}", 0.5)
            try:
                self.purgatory.try_complete_else_watch(op, [n % 3, "all"])
                self.ops.append(op)
            except PurgatoryClosed:
                self.refused.append(op)

    def check(self) -> int:
        return sum(self.purgatory.check_and_complete(key) for key in (0, 1, 2, "all"))

    def players(self) -> list[Callable[[], Any]]:
        first, second = lambda: self.watch(0), lambda: self.watch(1)
        return [
            first,
            second,
            self.check,
            lambda: self.purgatory.cancel_for_key("all"),
            lambda: self.bench.timer.advance(1),
        ]


def test_a_close_against_everything_leaves_nothing_waiting(bench: Bench, runners: ThreadPoolExecutor) -> None:
    for _ in range(60):
        all_of_it = Everything(bench)
        *_, checked, cancelled, _, closed = race(runners, *all_of_it.players(), all_of_it.purgatory.close)
        ops, refused = all_of_it.ops, all_of_it.refused
        assert (bench.counts()[:2], len(bench.timer), len(ops) + len(refused)) == ((0, 0), 0, 40)
        assert all(op.completed for op in ops)
        assert not any(op.completed for op in refused)
        told = [entry[1] for entry in bench.diary if entry[0] == "complete"]
        assert len(told) == len(set(told)) == sum(bench.counts()[2:]) == len(ops)
        assert {id(op) for op in closed + cancelled} == {id(op) for op in ops if op.outcome == "cancelled"}
        assert checked <= bench.counts()[2]
