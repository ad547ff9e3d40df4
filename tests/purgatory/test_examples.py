"""The three worked examples: a quorum write, a long poll, futures with a timeout (examples/purgatory)."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from examples.purgatory import futures, long_poll, quorum_write
from examples.purgatory.futures import when_all
from examples.purgatory.long_poll import Broker
from examples.purgatory.quorum_write import Leader, Partition

from waterclock import ManualClock, Purgatory, Timer


@pytest.fixture
def timer() -> Timer:
    return Timer(clock=ManualClock())


@pytest.fixture
def answers() -> list[Any]:
    return []


# A quorum write


@pytest.fixture
def leader(timer: Timer) -> Leader:
    return Leader(Purgatory("produce", timer), {name: Partition(quorum=2) for name in ("p0", "p1")})


def test_a_write_that_a_quorum_holds_already_is_answered_at_once(leader: Leader, answers: list[Any]) -> None:
    leader.ack("p0", "b1", 9), leader.ack("p0", "b2", 9)
    leader.write({"p0": 7}, 1.5, answers.append)
    assert answers == [{"p0": "done"}]


def test_a_write_is_answered_by_the_ack_that_makes_the_quorum(leader: Leader, answers: list[Any]) -> None:
    leader.write({"p0": 7}, 1.5, answers.append)
    leader.ack("p0", "b1", 7)
    leader.ack("p0", "b2", 6)
    assert answers == []
    leader.ack("p0", "b2", 7)
    leader.ack("p0", "b3", 7)
    assert answers == [{"p0": "done"}]


def test_a_write_to_two_partitions_waits_for_both(leader: Leader, answers: list[Any]) -> None:
    leader.write({"p0": 7, "p1": 3}, 1.5, answers.append)
    leader.ack("p0", "b1", 7), leader.ack("p0", "b2", 7), leader.ack("p1", "b1", 3)
    assert answers == []
    leader.ack("p1", "b2", 3)
    assert answers == [{"p0": "done", "p1": "done"}]


def test_a_part_whose_leader_moved_away_is_an_error_and_the_other_part_waits_on(
    leader: Leader, answers: list[Any]
) -> None:
    leader.write({"p0": 7, "p1": 3}, 1.5, answers.append)
    leader.step_down("p1")
    assert answers == []
    leader.ack("p0", "b1", 7), leader.ack("p0", "b2", 7)
    assert answers == [{"p0": "done", "p1": "not leader"}]


def test_at_the_timeout_what_is_pending_timed_out_and_what_is_done_stays_done(
    leader: Leader, timer: Timer, answers: list[Any]
) -> None:
    leader.write({"p0": 7, "p1": 3}, 1.5, answers.append)
    leader.ack("p0", "b1", 7), leader.ack("p0", "b2", 7)
    timer.advance(1.499)
    assert answers == []
    timer.advance(0.001)
    leader.ack("p1", "b1", 3), leader.ack("p1", "b2", 3)
    assert answers == [{"p0": "done", "p1": "timed out"}]


def test_writes_that_wait_when_the_leader_closes_are_answered_as_cancelled(leader: Leader, answers: list[Any]) -> None:
    leader.write({"p0": 7}, 1.5, answers.append)
    assert len(leader.purgatory.close()) == 1
    assert answers == [{"p0": "cancelled"}]


# A long poll


@pytest.fixture
def broker(timer: Timer) -> Broker:
    return Broker(Purgatory("fetch", timer), ["p0", "p1"])


def test_a_poll_with_enough_to_read_is_answered_at_once(broker: Broker, answers: list[Any]) -> None:
    broker.append("p0", b"abcd")
    broker.poll({"p0": 1}, 3, 0.5, answers.append)
    assert answers == [{"p0": b"bcd"}]


def test_a_poll_is_answered_by_the_write_that_makes_it_enough_over_all_its_logs(
    broker: Broker, answers: list[Any]
) -> None:
    broker.poll({"p0": 0, "p1": 0}, 4, 0.5, answers.append)
    broker.append("p0", b"abc")
    assert answers == []
    broker.append("p1", b"x")
    broker.append("p1", b"y")
    assert answers == [{"p0": b"abc", "p1": b"x"}]


def test_after_the_longest_wait_a_poll_is_answered_with_what_is_there(
    broker: Broker, timer: Timer, answers: list[Any]
) -> None:
    broker.poll({"p0": 0, "p1": 0}, 100, 0.5, answers.append)
    broker.append("p0", b"a")
    timer.advance(0.5)
    assert answers == [{"p0": b"a", "p1": b""}]


def test_a_poll_of_a_log_that_is_closed_is_answered_now(broker: Broker, answers: list[Any]) -> None:
    broker.poll({"p0": 0, "p1": 0}, 100, 0.5, answers.append)
    broker.close("p1")
    assert answers == [{"p0": b"", "p1": b""}]


# Futures with a timeout


@pytest.fixture
def purgatory(timer: Timer) -> Purgatory:
    return Purgatory("futures", timer)


def done(result: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(result)
    return future


def test_where_all_are_done_the_callback_runs_inline(purgatory: Purgatory, answers: list[Any]) -> None:
    op = when_all(purgatory, [done(1), done(2)], 1.0, answers.append)
    assert (answers, op.outcome, purgatory.statistics().watched) == ([[1, 2]], "completed", 0)


def test_where_some_are_pending_it_is_over_when_the_last_one_is_done(
    purgatory: Purgatory, timer: Timer, answers: list[Any]
) -> None:
    first, second = Future[int](), Future[int]()
    op = when_all(purgatory, [done(1), first, second], 1.0, answers.append)
    second.set_result(3)
    assert (answers, purgatory.statistics().watched) == ([], 3)
    first.set_exception(KeyError("two"))
    assert (repr(answers), op.outcome, len(timer)) == ("[[1, KeyError('two'), 3]]", "completed", 0)


def test_at_the_timeout_what_is_pending_is_a_timeout_error_and_the_callback_runs_once(
    purgatory: Purgatory, timer: Timer, answers: list[Any]
) -> None:
    late = Future[int]()
    op = when_all(purgatory, [done(1), late], 1.0, answers.append)
    timer.advance(1.0)
    late.set_result(2)
    assert (repr(answers), op.outcome) == ("[[1, TimeoutError('not done in time')]]", "expired")


# As programs


@pytest.mark.parametrize(
    ("example", "printed"),
    [
        (
            quorum_write,
            "first: {'orders-0': 'done'}\nsecond: {'orders-0': 'timed out', 'orders-1': 'not leader'}\n",
        ),
        (long_poll, "enough: {'orders-0': b'abcde', 'orders-1': b'xyz'}\nin time: {'orders-0': b'f'}\n"),
        (futures, "both: ['one', 'two']\nin time: ['one', TimeoutError('not done in time')]\n"),
    ],
    ids=["quorum_write", "long_poll", "futures"],
)
def test_an_example_prints_what_the_guide_says(example: Any, printed: str, capsys: pytest.CaptureFixture[str]) -> None:
    example.main()
    assert capsys.readouterr().out == printed
