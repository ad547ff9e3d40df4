"""What goes wrong in a purgatory: callables that raise, arguments that are none, interrupts; plain and compiled."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest

from tests.purgatory.purgatories import Bench
from waterclock import ManualClock, Timer, TimerFull

BOOM = RuntimeError("boom")


def fail(op: Any) -> Any:
    raise BOOM


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What reached Python's hook."""
    seen: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", lambda told: seen.append(told.exc_value))
    return seen


# 6. Exceptions


def test_an_exception_in_a_question_counts_as_no_and_the_timeout_still_comes(bench: Bench) -> None:
    op = bench.make("a", 1, try_complete=fail)
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is False
    assert bench.purgatory.check_and_complete("k") == 0
    assert bench.errors == [("RuntimeError('boom')", op)] * 3
    bench.timer.advance(1)
    assert op.outcome == "expired"


def test_an_exception_in_a_question_stops_no_other_operation(bench: Bench) -> None:
    bench.watch("a", "k", try_complete=fail)
    bench.watch("b", "k")
    bench.done.add("b")
    assert (bench.purgatory.check_and_complete("k"), bench.diary[-1]) == (1, ("complete", "b", "completed"))


def test_an_answer_without_a_truth_is_an_exception_of_the_question(bench: Bench) -> None:
    class Unsure:
        def __bool__(self) -> bool:
            raise BOOM

    op = bench.make("a", try_complete=lambda op: Unsure())
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is False
    assert bench.errors == [("RuntimeError('boom')", op)] * 2


def test_what_on_complete_returns_is_nobodys_business(bench: Bench) -> None:
    class Unsure:
        def __bool__(self) -> bool:
            raise BOOM

    bench.watch("a", "k", on_complete=lambda op: Unsure()).force_complete()
    assert bench.errors == []


def test_an_exception_in_on_complete_stops_nobody_and_the_operation_is_over(bench: Bench) -> None:
    ops = [bench.watch("a", "k", on_complete=fail), bench.watch("b", "k")]
    bench.done |= {"a", "b"}
    for op in ops:
        op.force_complete()
    assert [op.outcome for op in ops] == ["completed"] * 2
    assert bench.errors == [("RuntimeError('boom')", ops[0])]


def test_on_expire_runs_though_on_complete_raised_and_its_own_exception_is_told_too(bench: Bench) -> None:
    op = bench.watch("a", "k", timeout_s=1, on_complete=fail, on_expire=fail)
    other = bench.watch("b", "k", timeout_s=1)
    bench.timer.advance(1)
    assert (bench.errors, other.outcome) == ([("RuntimeError('boom')", op)] * 2, "expired")


def test_an_exception_in_on_complete_does_not_stop_a_cancel_nor_a_close(bench: Bench) -> None:
    a, b, c = bench.watch("a", "k", on_complete=fail), bench.watch("b", "k"), bench.watch("c", "l", on_complete=fail)
    assert bench.purgatory.cancel_for_key("k") == [a, b]
    assert bench.purgatory.close() == [c]


def test_without_on_error_an_exception_goes_to_pythons_hook(bench: Bench, unraisable: list[Any]) -> None:
    bench = Bench(bench.kind, on_error=None)
    bench.watch("a", "k", timeout_s=1, on_complete=fail)
    bench.timer.advance(1)
    assert unraisable == [BOOM]


def test_an_on_error_that_fails_is_told_to_pythons_hook(bench: Bench, unraisable: list[Any]) -> None:
    def on_error(error: Exception, op: Any) -> None:
        raise KeyError("on_error")

    bench = Bench(bench.kind, on_error=on_error)
    op = bench.watch("a", "k", on_complete=fail)
    assert (op.force_complete(), repr(unraisable)) == (True, "[KeyError('on_error')]")


def test_an_exception_of_an_operation_that_no_purgatory_saw_goes_to_pythons_hook(
    bench: Bench, unraisable: list[Any]
) -> None:
    assert bench.make("a", on_complete=fail).force_complete() is True
    assert unraisable == [BOOM]


# What is no Exception stops at once


def elsewhere(fn: Callable[[], Any]) -> None:
    """In another thread, which the operation's lock would keep out."""
    thread = Thread(target=fn, daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()


def interrupt(op: Any) -> Any:
    raise KeyboardInterrupt


def test_an_interrupted_question_leaves_the_operation_waiting_and_it_can_be_asked_again(bench: Bench) -> None:
    asked: list[Any] = []
    op = bench.watch("a", "k", try_complete=lambda op: asked.append(op) or (len(asked) == 3 and interrupt(op)))
    with pytest.raises(KeyboardInterrupt):
        bench.purgatory.check_and_complete("k")
    assert (op.outcome, bench.counts()) == (None, (1, 1, 0, 0, 0))
    elsewhere(lambda: bench.purgatory.check_and_complete("k"))
    assert len(asked) == 4


def test_an_interrupted_watch_leaves_nothing_behind_and_the_operation_can_be_used_again(bench: Bench) -> None:
    asked: list[Any] = []
    op = bench.make("a", 1, try_complete=lambda op: asked.append(op) or (len(asked) == 2 and interrupt(op)))
    with pytest.raises(KeyboardInterrupt):
        bench.purgatory.try_complete_else_watch(op, ["k", "l"])
    assert (bench.counts(), len(bench.timer), op.outcome) == ((0, 0, 0, 0, 0), 0, None)
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is False
    elsewhere(lambda: bench.purgatory.check_and_complete("k"))
    assert len(asked) == 5


def test_word_that_was_left_during_an_interrupted_watch_is_forgotten(bench: Bench) -> None:
    asked: list[Any] = []

    def try_complete(op: Any) -> None:
        asked.append(op)
        if len(asked) == 2:
            elsewhere(lambda: bench.purgatory.check_and_complete("k"))
            interrupt(op)

    op = bench.make("a", try_complete=try_complete)
    with pytest.raises(KeyboardInterrupt):
        bench.purgatory.try_complete_else_watch(op, ["k"])
    assert (bench.purgatory.try_complete_else_watch(op, ["k"]), len(asked)) == (False, 4)


def test_an_operation_that_was_refused_can_be_watched_from_another_thread(bench: Bench) -> None:
    small = bench.kind.Purgatory("small", Timer(clock=ManualClock(), max_pending=1))
    assert small.try_complete_else_watch(bench.make("first", 1), ["k"]) is False
    op = bench.make("second", 1)
    with pytest.raises(TimerFull):
        small.try_complete_else_watch(op, ["k"])
    elsewhere(lambda: bench.purgatory.try_complete_else_watch(op, ["k"]))
    bench.diary.clear()
    elsewhere(lambda: bench.purgatory.check_and_complete("k"))
    assert bench.diary == [("try", "second")]


def test_a_timer_that_refuses_an_operation_that_is_over_by_then_is_no_error(bench: Bench) -> None:
    class Full:
        def call_later(self, delay_s: float, fn: Any, op: Any) -> Any:
            op.force_complete()  # a trigger came in just before
            raise TimerFull("no room")

    op = bench.make("a", 1)
    assert bench.kind.Purgatory("full", Full()).try_complete_else_watch(op, ["k"]) is True
    assert op.outcome == "completed"


def test_a_timeout_that_starts_when_the_operation_is_over_is_cancelled(bench: Bench) -> None:
    class Late:
        def call_later(self, delay_s: float, fn: Any, op: Any) -> Any:
            op.force_complete()
            return bench.timer.call_later(delay_s, fn, op)

    assert bench.kind.Purgatory("late", Late()).try_complete_else_watch(bench.make("a", 1), ["k"]) is True
    assert len(bench.timer) == 0


def test_an_operation_that_is_over_at_the_second_question_has_nothing_to_do_with_the_timer(bench: Bench) -> None:
    asked: list[Any] = []
    started: list[float] = []

    class Recorder:
        def call_later(self, delay_s: float, fn: Any, op: Any) -> Any:
            started.append(delay_s)

    op = bench.make("a", 1, try_complete=lambda op: asked.append(op) or len(asked) == 2)
    assert bench.kind.Purgatory("recorded", Recorder()).try_complete_else_watch(op, ["k"]) is True
    assert started == []


def test_an_operation_that_another_thread_completes_during_the_first_question_is_not_watched(bench: Bench) -> None:
    op = bench.make("a", 1, try_complete=lambda op: elsewhere(op.force_complete))
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is True
    assert (bench.counts(), len(bench.timer)) == ((0, 0, 1, 0, 0), 0)


def test_an_interrupt_in_on_complete_comes_through_and_the_operation_is_over(bench: Bench) -> None:
    op = bench.make("a", 1, try_complete=lambda op: True, on_complete=interrupt)
    with pytest.raises(KeyboardInterrupt):
        bench.purgatory.try_complete_else_watch(op, ["k"])
    assert (op.outcome, bench.counts()) == ("completed", (0, 0, 1, 0, 0))


def test_a_close_that_was_interrupted_can_be_finished(bench: Bench) -> None:
    bench.watch("a", "k", on_complete=interrupt)
    b = bench.watch("b", "k")
    with pytest.raises(KeyboardInterrupt):
        bench.purgatory.close()
    assert (bench.purgatory.close(), b.outcome) == ([b], "cancelled")


# Keys that misbehave


class Key:
    """A key whose hash is asked for, and which may refuse to be compared."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __hash__(self) -> int:
        return 7

    def __eq__(self, other: object) -> bool:
        assert isinstance(other, Key)
        if "refuses" in self.name + other.name:
            raise BOOM
        return self.name == other.name


def test_a_key_whose_comparison_raises_leaves_nothing_behind(bench: Bench) -> None:
    op = bench.make("a", 1)
    other = bench.watch("b", Key("present"))
    with pytest.raises(RuntimeError, match="boom"):
        bench.purgatory.try_complete_else_watch(op, [Key("good"), Key("refuses")])
    assert (bench.counts()[:2], bench.purgatory.watched_for(Key("good"))) == ((1, 1), 0)
    assert bench.purgatory.cancel_for_key(Key("present")) == [other]


def test_keys_that_are_equal_are_one_key(bench: Bench) -> None:
    op = bench.watch("a", Key("k"), Key("l"))
    assert (bench.purgatory.watched_for(Key("k")), bench.counts()[0]) == (1, 2)
    assert bench.purgatory.cancel_for_key(Key("l")) == [op]


def test_a_key_that_cannot_be_hashed_is_refused_everywhere_and_leaves_the_lock_free(bench: Bench) -> None:
    op = bench.watch("a", "k")
    for ask in (bench.purgatory.check_and_complete, bench.purgatory.cancel_for_key, bench.purgatory.watched_for):
        with pytest.raises(TypeError, match="unhashable"):
            ask([])
    elsewhere(op.force_complete)
    assert op.completed


# Arguments


@pytest.mark.parametrize("place", ["try_complete", "on_complete", "on_expire"])
def test_what_cannot_be_called_is_refused_by_name(bench: Bench, place: str) -> None:
    callables: dict[str, Any] = {"try_complete": fail, "on_complete": fail, "on_expire": fail, place: 5}
    with pytest.raises(TypeError, match=f"^{place} must be callable with the operation as its argument, got 5"):
        bench.kind.DelayedOperation(timeout_s=1, **callables)


@pytest.mark.parametrize("timeout_s", [float("nan"), float("inf"), -float("inf"), 10**400])
def test_a_timeout_that_is_not_finite_is_refused(bench: Bench, timeout_s: float) -> None:
    with pytest.raises(ValueError, match="timeout_s must be a finite number of seconds, or None to wait for ever"):
        bench.make("a", timeout_s)


@pytest.mark.parametrize("timeout_s", ["1", [], object()])
def test_a_timeout_that_is_no_number_is_refused(bench: Bench, timeout_s: Any) -> None:
    with pytest.raises(TypeError, match="timeout_s must be a number of seconds or None, got"):
        bench.make("a", timeout_s)


def test_a_timeout_is_not_left_out_by_accident(bench: Bench) -> None:
    with pytest.raises(TypeError, match="argument"):
        bench.kind.DelayedOperation(fail, fail)


@pytest.mark.parametrize("op", [None, 5, "op"])
def test_what_is_no_operation_is_refused(bench: Bench, op: Any) -> None:
    with pytest.raises(TypeError, match="op"):
        bench.purgatory.try_complete_else_watch(op, ["k"])


def test_a_timeout_beyond_all_time_is_refused_by_the_timer_and_leaves_nothing_behind(bench: Bench) -> None:
    with pytest.raises(
        ValueError, match=r"timeout_s must be a finite number of seconds.*within 146 years, got 1e\+300"
    ):
        bench.make("a", 1e300)
    op = bench.make("a", 2**62 / 1e9 - 1)
    bench.timer.advance(2)  # now it lies beyond
    with pytest.raises(ValueError, match="deadline must lie within"):
        bench.purgatory.try_complete_else_watch(op, ["k"])
    assert bench.counts() == (0, 0, 0, 0, 0)


def test_an_operation_takes_no_subclasses(bench: Bench) -> None:
    with pytest.raises(TypeError):
        type("Mine", (bench.kind.DelayedOperation,), {})(fail, fail, 1)


def test_an_operation_is_neither_copied_nor_pickled(bench: Bench) -> None:
    op = bench.make("a")
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="neither copied nor pickled"):
            attempt(op)


def test_an_operation_tells_its_state(bench: Bench) -> None:
    op = bench.make("a", 1.5)
    assert repr(op) == "<DelayedOperation, waiting, timeout_s=1.5>"
    op.force_complete()
    assert repr(op) == "<DelayedOperation, completed, timeout_s=1.5>"
