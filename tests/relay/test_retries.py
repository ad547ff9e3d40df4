"""Where a message goes that could not be handled: the record that is sent, without a Kafka."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from waterclock.relay.handlers.retries import Retries, RetryAfter, SentOn, delivery_of, id_of
from waterclock.relay.wire.request import BadRequest, Header, request_of


class Record(NamedTuple):
    """What confluent_kafka's Message says of itself."""

    name: str
    at: int
    heads: list[Header]

    def topic(self) -> str:
        return self.name

    def partition(self) -> int:
        return 2

    def offset(self) -> int:
        return self.at

    def key(self) -> bytes:
        return b"k"

    def value(self) -> bytes:
        return b"v"

    def headers(self) -> list[Header]:
        return self.heads


def delivered(outgoing: SentOn, at: int = 9) -> Record:
    """What the relay makes of it."""
    request = request_of(outgoing.headers, 1_000)
    return Record(request.target, at, [*request.headers, ("delayed-from", b"delays-0-99"), ("delayed-until", b"7")])


RETRIES = Retries("mailer.retry", "mailer.dead", waits=["1 s", "1 min"], relay="delays")
FIRST = Record("reminders", 7, [("trace", b"x"), ("delayed-from", b"delays-0-5"), ("delayed-until", b"3")])


def test_it_goes_to_the_relay_for_each_of_the_waits_and_then_it_is_dead() -> None:
    first = RETRIES.after(FIRST, ValueError("no such cart"))
    assert (first.topic, first.value, first.key, first.is_dead) == ("delays", b"v", b"k", False)
    assert request_of(first.headers, 1_000)[1:3] == ("mailer.retry", 2_000)
    second = RETRIES.after(delivered(first), KeyError("x"))
    assert request_of(second.headers, 1_000)[1:3] == ("mailer.retry", 61_000)
    third = RETRIES.after(delivered(second, 10), OSError("the disk"))
    assert (third.topic, third.is_dead) == ("mailer.dead", True)
    assert third.headers == [
        ("trace", b"x"),
        ("retry-attempts", b"3"),
        ("retry-error", b"ValueError: no such cart"),
        ("retry-topic", b"reminders"),
        ("retry-of", b"delays-0-5"),
        ("dead-reason", b"OSError: the disk"),
        ("dead-from", b"mailer.retry-2-10"),
    ]


def test_it_is_known_by_the_same_id_however_often_it_is_tried() -> None:
    message = FIRST
    for attempt in (1, 2):
        delivery = delivery_of(message)
        assert (delivery.id, delivery.topic, delivery.attempt) == ("delays-0-5", "reminders", attempt)
        message = delivered(RETRIES.after(message, ValueError()))


def test_a_message_that_no_relay_delivered_is_known_by_where_it_stood() -> None:
    plain = Record("orders", 3, [])
    assert id_of(plain) == "orders-2-3"
    again = delivery_of(delivered(RETRIES.after(plain, ValueError())))
    assert (again.id, again.topic, again.due_ms) == ("orders-2-3", "orders", 7)


def test_a_handler_that_knows_better_says_how_long_to_wait_and_it_counts() -> None:
    error = RetryAfter("2 hours", "too many requests")
    first = RETRIES.after(FIRST, error)
    assert request_of(first.headers, 0).due_ms == 7_200_000
    assert dict(first.headers)["retry-error"] == b"RetryAfter: too many requests"
    assert RETRIES.after(delivered(RETRIES.after(delivered(first), error)), error).is_dead


def test_headers_by_which_the_relay_would_take_it_for_something_else_are_left_out() -> None:
    strange = Record("orders", 3, [("delay-id", b"x"), ("delay-action", b"cancel"), ("a", None), ("deliver-to", b"t")])
    request = request_of(RETRIES.after(strange, ValueError()).headers, 0)
    assert (request.target, request.id, request.headers[0]) == ("mailer.retry", b"", ("a", None))


def test_numbers_that_strangers_write_are_no_attempts() -> None:
    strange = Record("orders", 3, [("retry-attempts", b"many"), ("retry-of", b"\xff")])
    assert dict(RETRIES.after(strange, ValueError()).headers)["retry-attempts"] == b"1"


def test_an_error_is_cut_and_a_record_that_is_too_large_is_named() -> None:
    first = RETRIES.after(FIRST, ValueError("x" * 100_000))
    assert len(dict(first.headers)["retry-error"] or b"") == 1_000
    letter = RETRIES.named(FIRST, ValueError())
    assert (letter.value, letter.is_dead) == (None, True)
    assert b"it stands at reminders-2-7" in (dict(letter.headers)["dead-record"] or b"")


class Strange(Record):
    """One with a header's name that is no UTF-8."""

    def headers(self) -> list[Header]:
        raise UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte")


def test_a_message_whose_headers_cannot_be_read_is_put_aside_at_once() -> None:
    strange = Strange("orders", 3, [])
    with pytest.raises(ValueError, match="its headers cannot be read"):
        delivery_of(strange)
    letter = RETRIES.after(strange, ValueError("its headers cannot be read"))
    assert (letter.topic, letter.is_dead, letter.value) == ("mailer.dead", True, None)
    assert dict(letter.headers)["dead-record"] == b"it stands at orders-2-3"


@pytest.mark.parametrize("waits", [["soon"], [-1], [None]])
def test_waits_are_durations(waits: list[str]) -> None:
    with pytest.raises((ValueError, TypeError), match="waits must"):
        Retries("a", "b", waits=waits)


def test_no_waits_means_one_attempt() -> None:
    assert Retries("a", "b", waits=[]).after(FIRST, ValueError()).is_dead


def test_a_dead_letter_is_no_request() -> None:
    with pytest.raises(BadRequest):
        request_of(Retries("a", "b", waits=[]).after(FIRST, ValueError()).headers, 0)


def test_one_that_stood_in_another_groups_dead_letters_is_this_groups_own_when_it_fails_here() -> None:
    letter = Record("reminders", 7, [("retry-topic", b"orders"), ("retry-of", b"orders-0-5")])
    assert RETRIES.stray(letter, "reminders") is None
    again = delivered(RETRIES.after(letter, ValueError("x")))
    assert dict(again.heads)["retry-topic"] == b"reminders"
    assert RETRIES.stray(Record("mailer.retry", 1, again.heads), "reminders") is None
    assert "came to that of orders" in str(RETRIES.stray(Record("mailer.retry", 1, again.heads), "orders"))


def test_a_dead_letter_that_somebody_puts_into_the_retry_topic_is_tried_as_often_as_a_new_message() -> None:
    by_hand = Record("mailer.retry", 3, [])
    again = [delivered(RETRIES.after(by_hand, ValueError("no")))]
    again.append(delivered(RETRIES.after(again[0], ValueError("no"))))
    assert [RETRIES.stray(record, "reminders") for record in (by_hand, *again)] == [None, None, None]
    assert RETRIES.after(again[1], ValueError("no")).is_dead
