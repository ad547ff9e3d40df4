"""Waiting for Kafka: until it answers, until asking is no use, until patience is over; never a moment longer."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import pairwise

import pytest
from confluent_kafka import KafkaError, KafkaException

from waterclock.clock import ManualClock
from waterclock.kafka.patience import Backoff, patiently

AWAY, REFUSED = KafkaError(KafkaError._TRANSPORT), KafkaError(KafkaError._AUTHENTICATION)


def answers(clock: ManualClock, call_s: float, *given: KafkaError | str) -> tuple[Callable[[], str], list[float]]:
    """A call that takes `call_s` and answers so, the last one for ever; and when it was made."""
    asked: list[float] = []

    def ask() -> str:
        asked.append(clock.monotonic_s())
        clock.sleep_s(call_s)
        answer = given[min(len(asked), len(given)) - 1]
        if isinstance(answer, KafkaError):
            raise KafkaException(answer)
        return answer

    return ask, asked


def no_use(error: KafkaError) -> bool:
    return error == REFUSED


def test_an_answer_is_given_at_once() -> None:
    ask, asked = answers(clock := ManualClock(), 0.0, "yes")
    assert patiently(ask, no_use, 60.0, clock) == "yes"
    assert len(asked) == 1


def test_who_does_not_answer_is_asked_again_until_there_is_an_answer() -> None:
    ask, asked = answers(clock := ManualClock(), 1.0, AWAY, AWAY, AWAY, "yes")
    assert patiently(ask, no_use, 60.0, clock) == "yes"
    assert len(asked) == 4


def test_a_refusal_ends_it_at_once() -> None:
    ask, asked = answers(clock := ManualClock(), 0.0, AWAY, REFUSED, "yes")
    with pytest.raises(KafkaException) as raised:
        patiently(ask, no_use, 60.0, clock)
    assert (raised.value.args[0], len(asked)) == (REFUSED, 2)


@pytest.mark.parametrize(("call_s", "count"), [(1.0, 10), (5.0, 2), (60.0, 1)])
def test_when_patience_is_over_the_last_error_comes_out(call_s: float, count: int) -> None:
    ask, asked = answers(clock := ManualClock(), call_s, AWAY)
    with pytest.raises(KafkaException) as raised:
        patiently(ask, no_use, 10.0, clock)
    assert (raised.value.args[0], len(asked)) == (AWAY, count)


def test_without_patience_there_is_one_call() -> None:
    ask, asked = answers(clock := ManualClock(), 0.0, AWAY)
    with pytest.raises(KafkaException):
        patiently(ask, no_use, 0.0, clock)
    assert len(asked) == 1


def test_endless_patience_waits_on() -> None:
    ask, asked = answers(clock := ManualClock(), 1.0, *[AWAY] * 5000, "yes")
    assert patiently(ask, no_use, math.inf, clock) == "yes"
    assert len(asked) == 5001


def test_calls_that_fail_at_once_do_not_follow_on_each_other_without_a_rest() -> None:
    ask, asked = answers(clock := ManualClock(), 0.0, *[AWAY] * 10, "yes")
    patiently(ask, no_use, 60.0, clock)
    assert all(later > earlier for earlier, later in pairwise(asked))


def test_a_pause_grows_with_each_attempt_that_fails_and_is_the_first_one_again_behind_one_that_succeeded() -> None:
    backoff = Backoff((0.5, 2.0), clock := ManualClock())
    assert (backoff.is_time, backoff.failed(), backoff.failed(), backoff.failed()) == (True, 0.5, 2.0, 2.0)
    clock.advance_s(1.75)
    assert not backoff.is_time
    clock.advance_s(0.25)
    assert backoff.is_time
    backoff.succeeded()
    backoff.sleep()
    assert (clock.monotonic_s(), backoff.attempts, backoff.is_time, backoff.is_over) == (2.5, 1, True, False)
    assert Backoff((1.0,), clock, patience_s=0.0).is_over
