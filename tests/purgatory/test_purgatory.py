"""The purgatory, sentence by sentence (docs/semantics.md, section 4), plain and compiled."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.purgatory.purgatories import KINDS, Bench
from waterclock import ManualClock, PurgatoryClosed, Timer, TimerClosed, TimerFull


@pytest.fixture(params=KINDS)
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    bench = Bench(KINDS[request.param])
    yield bench
    assert bench.errors == []


# The states


def test_an_operation_waits_until_it_is_over_and_then_for_good(bench: Bench) -> None:
    op = bench.watch("a", "k", timeout_s=1)
    assert (op.completed, op.outcome) == (False, None)
    assert op.force_complete() is True
    assert (op.completed, op.outcome) == (True, "completed")
    bench.timer.advance(2)
    assert (bench.purgatory.cancel_for_key("k"), op.outcome) == ([], "completed")


def test_each_way_out_has_its_outcome(bench: Bench) -> None:
    asked, forced = bench.watch("asked", "k"), bench.watch("forced", "k")
    expired, cancelled = bench.watch("expired", "k", timeout_s=1), bench.watch("cancelled", "other")
    bench.done.add("asked")
    assert bench.purgatory.check_and_complete("k") == 1
    forced.force_complete()
    bench.timer.advance(1)
    bench.purgatory.cancel_for_key("other")
    outcomes = [op.outcome for op in (asked, forced, expired, cancelled)]
    assert outcomes == ["completed", "completed", "expired", "cancelled"]


def test_each_callable_is_called_with_the_operation(bench: Bench) -> None:
    seen: list[Any] = []
    op = bench.make("a", 1, try_complete=seen.append, on_complete=seen.append, on_expire=seen.append)
    bench.purgatory.try_complete_else_watch(op, ["k"])
    bench.timer.advance(1)
    assert [thing is op for thing in seen] == [True] * 4  # asked twice, completed, expired


# 1. No trigger is missed


@pytest.mark.parametrize("keys", [(), [], iter([])], ids=["tuple", "list", "iterator"])
def test_an_operation_needs_a_key_and_without_one_is_not_used_up(bench: Bench, keys: Any) -> None:
    op = bench.make("a")
    with pytest.raises(ValueError, match="keys must hold at least one key"):
        bench.purgatory.try_complete_else_watch(op, keys)
    assert bench.diary == []
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is False


@pytest.mark.parametrize("keys", ["orders", b"orders"])
def test_a_text_is_one_key_and_is_not_taken_for_several(bench: Bench, keys: Any) -> None:
    with pytest.raises(TypeError, match=r"write \[b?'orders'\]"):
        bench.purgatory.try_complete_else_watch(bench.make("a"), keys)


def test_an_operation_whose_condition_holds_is_asked_once_and_watched_nowhere(bench: Bench) -> None:
    bench.done.add("a")
    op = bench.make("a", timeout_s=1)
    assert bench.purgatory.try_complete_else_watch(op, ["k", "l"]) is True
    assert bench.diary == [("try", "a"), ("complete", "a", "completed")]
    assert (len(bench.timer), bench.counts()) == (0, (0, 0, 1, 0, 0))


def test_an_operation_under_three_keys_is_asked_twice_in_all(bench: Bench) -> None:
    op = bench.make("a")
    assert bench.purgatory.try_complete_else_watch(op, ["k", "l", "m"]) is False
    assert bench.diary == [("try", "a"), ("try", "a")]


def test_the_second_question_comes_when_it_is_watched_and_before_its_timeout_runs(bench: Bench) -> None:
    seen: list[tuple[int, int]] = []
    op = bench.make("a", 1, try_complete=lambda op: seen.append((bench.purgatory.watched_for("k"), len(bench.timer))))
    bench.purgatory.try_complete_else_watch(op, ["k"])
    assert (seen, len(bench.timer)) == ([(0, 0), (1, 0)], 1)


def test_what_becomes_true_during_the_first_question_is_seen_by_the_second(bench: Bench) -> None:
    """The trigger finds nobody, as the operation is in no list yet."""

    def try_complete(op: Any) -> bool:
        if bench.done:
            return True
        bench.done.add("a")
        assert bench.purgatory.check_and_complete("k") == 0
        return False

    op = bench.make("a", try_complete=try_complete)
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is True
    assert (bench.counts(), op.outcome) == ((0, 0, 1, 0, 0), "completed")


def test_a_trigger_inside_the_second_question_asks_again_behind_it(bench: Bench) -> None:
    asked: list[int] = []

    def try_complete(op: Any) -> bool:
        asked.append(len(asked))
        if len(asked) == 2:
            assert bench.purgatory.check_and_complete("k") == 0
        return len(asked) == 3

    op = bench.make("a", try_complete=try_complete)
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is True
    assert (asked, op.outcome) == ([0, 1, 2], "completed")


def test_an_operation_completed_between_the_questions_is_not_watched(bench: Bench) -> None:
    op = bench.make("a", 1, try_complete=lambda op: op.force_complete() and False)
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is True
    assert (bench.counts(), len(bench.timer)) == ((0, 0, 1, 0, 0), 0)


def test_a_key_given_twice_counts_once(bench: Bench) -> None:
    op = bench.watch("a", "k", "l", "k")
    assert (bench.counts()[:2], bench.purgatory.watched_for("k")) == ((2, 1), 1)
    bench.done.add("a")
    assert bench.purgatory.check_and_complete("k") == 1
    assert (bench.counts()[:2], op.completed) == ((0, 0), True)


@pytest.mark.parametrize("keys", [["k", []], [[], "k"], ["k", "l", {}]])
def test_a_key_that_cannot_be_hashed_is_refused_and_leaves_nothing_behind(bench: Bench, keys: Any) -> None:
    op = bench.make("a", timeout_s=1)
    with pytest.raises(TypeError, match="unhashable"):
        bench.purgatory.try_complete_else_watch(op, keys)
    assert (bench.counts(), len(bench.timer), op.outcome) == ((0, 0, 0, 0, 0), 0, None)
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is False


# 2. Once


def test_force_complete_is_true_once_and_on_complete_runs_once(bench: Bench) -> None:
    """It asks nothing, and cancels the timeout."""
    op = bench.watch("a", "k", timeout_s=1)
    assert (len(bench.timer), [op.force_complete() for _ in range(3)]) == (1, [True, False, False])
    assert (len(bench.timer), bench.timer.advance(10)) == (0, 0)
    assert bench.diary == [("complete", "a", "completed")]


def test_the_timeout_is_cancelled_before_on_complete_runs(bench: Bench) -> None:
    seen: list[int] = []
    bench.watch("a", "k", timeout_s=1, on_complete=lambda op: seen.append(len(bench.timer))).force_complete()
    assert seen == [0]


def test_on_a_timeout_on_complete_runs_first_and_then_on_expire(bench: Bench) -> None:
    bench.watch("a", "k", timeout_s=1)
    assert (bench.timer.advance(0.999), bench.diary) == (0, [])
    bench.timer.advance(0.001)
    assert bench.diary == [("complete", "a", "expired"), ("expire", "a", "expired")]


def test_on_expire_may_be_left_out(bench: Bench) -> None:
    op = bench.watch("a", "k", timeout_s=1, on_expire=None)
    bench.timer.advance(1)
    assert (bench.diary, op.outcome) == ([("complete", "a", "expired")], "expired")


def test_an_operation_completed_before_it_is_watched_is_over_already_and_is_not_asked(bench: Bench) -> None:
    op = bench.make("a", timeout_s=1)
    assert (op.force_complete(), op.force_complete()) == (True, False)
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is True
    assert bench.diary == [("complete", "a", "completed")]
    assert (bench.counts(), len(bench.timer)) == ((0, 0, 0, 0, 0), 0)


# 3. check_and_complete


def test_a_check_returns_how_many_it_completed_itself(bench: Bench) -> None:
    for name in "abc":
        bench.watch(name, "k")
    assert bench.purgatory.check_and_complete("k") == 0
    bench.done |= {"a", "c"}
    assert bench.purgatory.check_and_complete("k") == 2
    assert bench.purgatory.check_and_complete("k") == 0


def test_a_check_of_an_unknown_key_is_zero_and_asks_nobody(bench: Bench) -> None:
    bench.watch("a", "k")
    assert (bench.purgatory.check_and_complete("unknown"), bench.diary) == (0, [])


def test_a_check_asks_in_the_order_of_watching(bench: Bench) -> None:
    for name in "cab":
        bench.watch(name, "k")
    bench.purgatory.check_and_complete("k")
    assert bench.diary == [("try", "c"), ("try", "a"), ("try", "b")]


def test_a_question_that_completes_the_operation_itself_counts_as_well(bench: Bench) -> None:
    asked: list[Any] = []
    bench.watch("a", "k", try_complete=lambda op: asked.append(op) or (len(asked) == 3 and op.force_complete()))
    bench.watch("b", "k", try_complete=lambda op: len(asked) == 3 and op.force_complete() and False)
    assert bench.purgatory.check_and_complete("k") == 2


def test_a_trigger_within_a_trigger_is_counted_by_the_outer_one(bench: Bench) -> None:
    depth: list[int] = []
    inner: list[int] = []

    def try_complete(op: Any) -> bool:
        depth.append(1)
        if len(depth) == 3:  # asked by the check below, which asks again for this
            inner.append(bench.purgatory.check_and_complete("k"))
        return len(depth) >= 4

    bench.watch("a", "k", try_complete=try_complete)
    assert (bench.purgatory.check_and_complete("k"), inner) == (1, [0])
    assert bench.counts()[2] == 1


def test_one_cancelled_by_its_own_question_is_not_counted_as_completed(bench: Bench) -> None:
    ready: list[bool] = []
    op = bench.watch("a", "k", try_complete=lambda op: bool(ready and bench.purgatory.cancel_for_key("k")))
    ready.append(True)
    assert (bench.purgatory.check_and_complete("k"), op.outcome) == (0, "cancelled")


def test_a_callable_may_use_the_purgatory_again(bench: Bench) -> None:
    def follow(op: Any) -> None:
        bench.watch("b", "k")
        assert bench.purgatory.statistics().delayed == 1

    bench.watch("a", "k", on_complete=follow)
    bench.done.add("a")
    assert (bench.purgatory.check_and_complete("k"), bench.purgatory.watched_for("k")) == (1, 1)


# 4. Gone at once


def test_an_operation_that_is_over_leaves_the_lists_of_all_its_keys_at_once(bench: Bench) -> None:
    op = bench.watch("a", "k", "l", "m")
    assert [bench.purgatory.watched_for(key) for key in "klm"] == [1, 1, 1]
    op.force_complete()
    assert [bench.purgatory.watched_for(key) for key in "klm"] == [0, 0, 0]
    assert bench.counts()[:2] == (0, 0)


def test_inside_on_complete_the_operation_is_in_no_list_any_more(bench: Bench) -> None:
    seen: list[tuple[int, ...]] = []
    bench.watch("a", "k", "l", timeout_s=1, on_complete=lambda op: seen.append(bench.counts()))
    bench.timer.advance(1)
    assert seen == [(0, 0, 0, 1, 0)]


# 5. cancel_for_key


def test_cancel_for_key_ends_every_operation_of_the_key_in_all_its_keys(bench: Bench) -> None:
    a, b, other = bench.watch("a", "k", "l"), bench.watch("b", "m", "k", timeout_s=1), bench.watch("c", "l")
    assert bench.purgatory.cancel_for_key("k") == [a, b]
    assert bench.diary == [("complete", "a", "cancelled"), ("complete", "b", "cancelled")]
    assert ([bench.purgatory.watched_for(key) for key in "klm"], other.outcome) == ([0, 1, 0], None)
    assert (len(bench.timer), bench.counts()) == (0, (1, 1, 0, 0, 2))


def test_cancel_for_an_unknown_key_is_an_empty_list(bench: Bench) -> None:
    bench.watch("a", "k")
    assert (bench.purgatory.cancel_for_key("unknown"), bench.counts()[:2]) == ([], (1, 1))


def test_one_that_on_complete_of_another_ended_is_not_among_the_cancelled(bench: Bench) -> None:
    ops: list[Any] = []
    ops += [bench.watch("a", "k", on_complete=lambda op: ops[1].force_complete()), bench.watch("b", "k")]
    assert bench.purgatory.cancel_for_key("k") == [ops[0]]
    assert [op.outcome for op in ops] == ["cancelled", "completed"]


# 8. Timeouts


def test_a_timeout_of_none_waits_for_ever(bench: Bench) -> None:
    op = bench.watch("a", "k", timeout_s=None)
    assert (len(bench.timer), bench.timer.advance(1e9), op.outcome) == (0, 0, None)


@pytest.mark.parametrize("timeout_s", [0, -5, -0.001])
def test_a_timeout_of_zero_or_less_asks_twice_and_expires_at_the_timers_next_turn(
    bench: Bench, timeout_s: float
) -> None:
    op = bench.make("a", timeout_s)
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is False
    assert (bench.diary, op.outcome) == ([("try", "a"), ("try", "a")], None)
    bench.timer.advance(0)
    assert op.outcome == "expired"


# 9. statistics


def test_statistics_count_pairs_operations_and_outcomes(bench: Bench) -> None:
    bench.watch("a", 1), bench.watch("b", 1, 2), bench.watch("c", 1, 2, 3)
    assert bench.counts() == (6, 3, 0, 0, 0)
    bench.done |= {"a", "b"}
    assert bench.purgatory.check_and_complete(2) == 1
    assert bench.counts() == (4, 2, 1, 0, 0)


def test_statistics_are_a_record_that_stands_still(bench: Bench) -> None:
    before = bench.purgatory.statistics()
    bench.watch("a", "k")
    assert before.watched == 0
    with pytest.raises(AttributeError):
        before.watched = 5


# 10. close, and once


def test_close_ends_everything_as_cancelled_and_returns_it(bench: Bench) -> None:
    a, b = bench.watch("a", "k", "l"), bench.watch("b", "m", timeout_s=1)
    assert sorted(bench.purgatory.close(), key=id) == sorted([a, b], key=id)
    assert bench.diary == [("complete", "a", "cancelled"), ("complete", "b", "cancelled")]
    assert (bench.counts(), len(bench.timer)) == ((0, 0, 0, 0, 2), 0)
    assert bench.purgatory.close() == []


def test_after_close_nothing_is_taken_in_and_the_operation_is_not_asked_nor_used_up(bench: Bench) -> None:
    bench.purgatory.close()
    op = bench.make("a")
    with pytest.raises(PurgatoryClosed, match=r"purgatory 'test' was closed.*make a new one"):
        bench.purgatory.try_complete_else_watch(op, ["k"])
    assert bench.diary == []
    assert bench.kind.Purgatory("another", bench.timer).try_complete_else_watch(op, ["k"]) is False


def test_a_close_during_the_first_question_refuses_the_operation(bench: Bench) -> None:
    op = bench.make("a", 1, try_complete=lambda op: bool(bench.purgatory.close()))
    with pytest.raises(PurgatoryClosed):
        bench.purgatory.try_complete_else_watch(op, ["k"])
    assert (bench.counts(), len(bench.timer), op.outcome) == ((0, 0, 0, 0, 0), 0, None)


def test_a_close_during_the_second_question_cancels_the_operation(bench: Bench) -> None:
    asked: list[Any] = []
    op = bench.make("a", 1, try_complete=lambda op: asked.append(op) or (len(asked) == 2 and bench.purgatory.close()))
    assert bench.purgatory.try_complete_else_watch(op, ["k"]) is True
    assert (op.outcome, len(bench.timer)) == ("cancelled", 0)


def test_after_close_a_check_and_a_cancel_find_nobody(bench: Bench) -> None:
    bench.watch("a", "k")
    bench.purgatory.close()
    assert (bench.purgatory.check_and_complete("k"), bench.purgatory.cancel_for_key("k")) == (0, [])


def test_an_operation_is_used_once(bench: Bench) -> None:
    op = bench.watch("a", "k")
    with pytest.raises(ValueError, match="an operation is used once"):
        bench.purgatory.try_complete_else_watch(op, ["l"])
    op.force_complete()
    with pytest.raises(ValueError, match="make a new one"):
        bench.kind.Purgatory("another", Timer(clock=ManualClock())).try_complete_else_watch(op, ["l"])
    assert bench.purgatory.watched_for("l") == 0


def test_a_closed_timer_refuses_the_operation_and_leaves_nothing_behind(bench: Bench) -> None:
    bench.timer.close()
    op = bench.make("a", timeout_s=1)
    with pytest.raises(TimerClosed):
        bench.purgatory.try_complete_else_watch(op, ["k", "l"])
    assert (bench.counts(), op.outcome) == ((0, 0, 0, 0, 0), None)


def test_a_full_timer_refuses_the_operation_which_may_come_back(bench: Bench) -> None:
    timer = Timer(clock=ManualClock(), max_pending=1)
    purgatory = bench.kind.Purgatory("small", timer)
    first, second = bench.make("a", timeout_s=1), bench.make("b", timeout_s=1)
    purgatory.try_complete_else_watch(first, ["k"])
    with pytest.raises(TimerFull):
        purgatory.try_complete_else_watch(second, ["k"])
    first.force_complete()
    assert purgatory.try_complete_else_watch(second, ["k"]) is False
    timer.advance(1)
    assert (first.outcome, second.outcome) == ("completed", "expired")
