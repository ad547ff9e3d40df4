"""A purgatory against a dumb oracle, in random lives: a list of operations that is searched from end to end; and the
cases that Apache Kafka holds its purgatory to, by behaviour, in our names. Cancelling for a key, the fourth of them,
stands in test_purgatory.py (5).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from threading import Event
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.purgatory.purgatories import KINDS, Bench
from waterclock import SystemClock, Timer

KEYS = "klmno"
WHICH = st.integers(0, 10**6)
TIMEOUTS_S = st.one_of(st.none(), st.integers(-1, 6))


@dataclass
class Waiting:
    name: str
    keys: set[str]
    due_s: int | None


@dataclass
class Oracle:
    """What waits, in the order of watching; what is over, with how."""

    now_s: int = 0
    waiting: list[Waiting] = field(default_factory=list)
    over: dict[str, str] = field(default_factory=dict)
    held: set[str] = field(default_factory=set)

    def watch(self, name: str, keys: set[str], timeout_s: int | None) -> bool:
        if name in self.held:
            self.over[name] = "completed"
            return True
        self.waiting.append(Waiting(name, keys, None if timeout_s is None else self.now_s + max(timeout_s, 0)))
        return False

    def end(self, which: list[Waiting], outcome: str) -> list[str]:
        self.waiting = [waits for waits in self.waiting if waits not in which]
        self.over |= {waits.name: outcome for waits in which}
        return [waits.name for waits in which]

    def of_key(self, key: str) -> list[Waiting]:
        return [waits for waits in self.waiting if key in waits.keys]

    def check(self, key: str) -> list[str]:
        return self.end([waits for waits in self.of_key(key) if waits.name in self.held], "completed")

    def advance(self, duration_s: int) -> list[str]:
        self.now_s += duration_s
        due = [waits for waits in self.waiting if waits.due_s is not None and waits.due_s <= self.now_s]
        return self.end(sorted(due, key=lambda waits: waits.due_s or 0), "expired")


class PurgatoryLife(RuleBasedStateMachine):
    kind: Any

    @initialize()
    def begin(self) -> None:
        self.bench, self.oracle = Bench(self.kind), Oracle()
        self.ops: dict[str, Any] = {}

    def is_over(self, names: list[str]) -> None:
        """These completed in this order since the last step, and nothing else did."""
        completions = [entry[1] for entry in self.bench.diary if entry[0] == "complete"]
        assert completions == names
        assert [entry[1] for entry in self.bench.diary if entry[0] == "expire"] == [
            name for name in names if self.oracle.over[name] == "expired"
        ]
        self.bench.diary.clear()

    @rule(
        keys=st.lists(st.sampled_from(KEYS), min_size=1, max_size=4),
        timeout_s=TIMEOUTS_S,
        held=st.sampled_from([0, 0, 1]),
    )
    def watch(self, keys: list[str], timeout_s: int | None, held: int) -> None:
        name = f"op{len(self.ops)}"
        if held:
            self.oracle.held.add(name)
            self.bench.done.add(name)
        op = self.ops[name] = self.bench.make(name, timeout_s)
        over = self.oracle.watch(name, set(keys), timeout_s)
        assert self.bench.purgatory.try_complete_else_watch(op, keys) is over
        assert self.bench.diary.count(("try", name)) == (1 if over else 2)
        self.is_over([name] if over else [])

    @precondition(lambda self: self.ops)
    @rule(which=WHICH)
    def becomes_true(self, which: int) -> None:
        name = f"op{which % len(self.ops)}"
        self.oracle.held.add(name)
        self.bench.done.add(name)

    @rule(key=st.sampled_from(KEYS))
    def check(self, key: str) -> None:
        asked = [waits.name for waits in self.oracle.of_key(key)]
        completed = self.oracle.check(key)
        assert self.bench.purgatory.check_and_complete(key) == len(completed)
        assert [entry[1] for entry in self.bench.diary if entry[0] == "try"] == asked
        self.is_over(completed)

    @precondition(lambda self: self.ops)
    @rule(which=WHICH)
    def force(self, which: int) -> None:
        name = f"op{which % len(self.ops)}"
        ended = self.oracle.end([waits for waits in self.oracle.waiting if waits.name == name], "completed")
        assert self.ops[name].force_complete() is bool(ended)
        self.is_over(ended)

    @rule(key=st.sampled_from(KEYS))
    def cancel(self, key: str) -> None:
        ended = self.oracle.end(self.oracle.of_key(key), "cancelled")
        assert self.bench.purgatory.cancel_for_key(key) == [self.ops[name] for name in ended]
        self.is_over(ended)

    @rule(duration_s=st.integers(0, 4))
    def advance(self, duration_s: int) -> None:
        ended = self.oracle.advance(duration_s)
        assert self.bench.timer.advance(duration_s) == len(ended)
        self.is_over(ended)

    @invariant()
    def agrees(self) -> None:
        if not hasattr(self, "oracle"):
            return
        waiting, over = self.oracle.waiting, list(self.oracle.over.values())
        assert self.bench.counts() == (
            sum(len(waits.keys) for waits in waiting),
            len(waiting),
            over.count("completed"),
            over.count("expired"),
            over.count("cancelled"),
        )
        for key in KEYS:
            assert self.bench.purgatory.watched_for(key) == len(self.oracle.of_key(key))
        assert len(self.bench.timer) == sum(waits.due_s is not None for waits in waiting)
        assert {name: op.outcome for name, op in self.ops.items() if op.completed} == self.oracle.over

    def teardown(self) -> None:
        if not hasattr(self, "oracle"):
            return
        ended = self.oracle.end(list(self.oracle.waiting), "cancelled")
        assert {id(op) for op in self.bench.purgatory.close()} == {id(self.ops[name]) for name in ended}
        self.agrees()
        assert self.bench.errors == []


class PlainLife(PurgatoryLife):
    kind = KINDS["plain"]


TestPlainLife = PlainLife.TestCase
TestPlainLife.settings = settings(max_examples=50, stateful_step_count=40, deadline=None, print_blob=True)

if "compiled" in KINDS:

    class CompiledLife(PurgatoryLife):
        kind = KINDS["compiled"]

    TestCompiledLife = CompiledLife.TestCase
    TestCompiledLife.settings = settings(max_examples=70, stateful_step_count=40, deadline=None, print_blob=True)


def test_the_oracle_itself_expires_by_deadline_and_completes_by_key() -> None:
    oracle = Oracle()
    oracle.watch("late", {"k"}, 5), oracle.watch("soon", {"k", "l"}, 2), oracle.watch("ever", {"k"}, None)
    oracle.held.add("ever")
    assert (oracle.check("l"), oracle.check("k")) == ([], ["ever"])
    assert oracle.advance(9) == ["soon", "late"]
    assert oracle.over == {"ever": "completed", "soon": "expired", "late": "expired"}


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
