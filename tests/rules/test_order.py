"""The contract of docs/rules.md, sentence by sentence: `order`, by sequence and by time."""

import random
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.rules.events import NUMBERED, TIMED, heartbeat, numbered, released, run, run_but_events, timed, told

# ---------------------------------------------------------------- order by sequence


def test_the_next_number_is_released_at_once() -> None:
    results = list(NUMBERED.order(wait=10).run([numbered(1, 100), numbered(2, 100)], watermark_delay=50))
    assert [(r.source_id, r.emitted_at) for r in results] == [("e1", None), ("e2", 50)]


def test_the_sequence_is_the_order_whatever_the_times() -> None:
    events = numbered(1, 30), numbered(2, 20), numbered(3, 10)
    assert run(NUMBERED.order(wait=10), *events, delay=50) == [
        ("event", "order", 30, "e1"),
        ("event", "order", 20, "e2"),
        ("event", "order", 10, "e3"),
    ]


def test_events_behind_a_gap_are_held_until_it_is_filled() -> None:
    events = numbered(3, 0), numbered(2, 0), numbered(5, 0), numbered(1, 0), numbered(4, 0)
    assert released(NUMBERED.order(wait=10), *events) == ["e1", "e2", "e3", "e4", "e5"]


def test_a_gap_holds_until_the_watermark_reaches_the_time_of_a_held_event_plus_wait() -> None:
    events = numbered(2, 0), heartbeat(9), heartbeat(10), heartbeat(11)
    results = list(NUMBERED.order(wait=10).run(events))
    assert [(r.kind, r.source_id, r.emitted_at) for r in results] == [("gap", "1", 10), ("event", "e2", 10)]


def test_a_gap_filled_just_before_it_is_given_up_is_filled() -> None:
    assert released(NUMBERED.order(wait=10), numbered(2, 0), heartbeat(9), numbered(1, 9)) == ["e1", "e2"]


def test_without_a_wait_a_gap_holds_until_the_time_of_the_held_event_is_reached() -> None:
    events = numbered(2, 7), heartbeat(16), heartbeat(17)
    results = list(NUMBERED.order(wait=0).run(events, watermark_delay=10))
    assert [(r.kind, r.due, r.source_id, r.emitted_at) for r in results] == [
        ("gap", 7, "1", 7),
        ("event", 7, "e2", 7),
    ]


def test_skip_tells_each_run_of_missing_numbers_and_releases_the_held_events() -> None:
    events = numbered(2, 0), numbered(6, 0), numbered(8, 0), heartbeat(10)
    assert run_but_events(NUMBERED.order(wait=10), *events) == [
        ("gap", "skip", 10, "1"),
        ("gap", "skip", 10, "3-5"),
        ("gap", "skip", 10, "7"),
    ]
    assert released(NUMBERED.order(wait=10), *events) == ["e2", "e6", "e8"]


def test_every_gap_in_front_of_the_overdue_event_is_given_up_and_none_behind_it() -> None:
    events = numbered(3, 50), numbered(5, 0), numbered(7, 50), heartbeat(110), heartbeat(200)
    results = list(NUMBERED.order(wait=10).run(events, watermark_delay=100))
    assert [(r.due, r.source_id, r.emitted_at) for r in results if r.kind == "gap"] == [
        (10, "1-2", 10),
        (10, "4", 10),
        (60, "6", 100),
    ]
    assert [(r.due, r.source_id, r.emitted_at) for r in results if r.kind == "event"] == [
        (50, "e3", 10),
        (0, "e5", 10),
        (50, "e7", 100),
    ]


def test_what_was_released_is_never_missing() -> None:
    events = numbered(3, 0), numbered(2, 5), heartbeat(110), numbered(4, 111)
    assert run(NUMBERED.order(wait=10), *events, delay=100) == [
        ("gap", "skip", 10, "1"),
        ("event", "order", 5, "e2"),
        ("event", "order", 0, "e3"),
        ("event", "order", 111, "e4"),
    ]


def test_a_gap_of_a_thousand_million_numbers_is_one_result() -> None:
    assert run(NUMBERED.order(wait=10), numbered(1, 0), numbered(1_000_000_000, 0), heartbeat(10)) == [
        ("event", "order", 0, "e1"),
        ("gap", "skip", 10, "2-999999999"),
        ("event", "order", 0, "e1000000000"),
    ]


def test_hold_tells_a_gap_once_and_keeps_the_key_blocked() -> None:
    events = numbered(3, 0), heartbeat(10), heartbeat(90), numbered(4, 95)
    assert run(NUMBERED.order(wait=10, on_gap="hold"), *events) == [("gap", "hold", 10, "1-2")]


def test_hold_goes_on_when_the_gap_is_filled_after_all() -> None:
    events = numbered(3, 0), heartbeat(90), numbered(1, 90), numbered(2, 90)
    assert run(NUMBERED.order(wait=10, on_gap="hold"), *events) == [
        ("gap", "hold", 10, "1-2"),
        ("event", "order", 90, "e1"),
        ("event", "order", 90, "e2"),
        ("event", "order", 0, "e3"),
    ]


def test_hold_blocks_one_key_only() -> None:
    events = numbered(2, 0), heartbeat(90), numbered(1, 90, key="other")
    assert released(NUMBERED.order(wait=10, on_gap="hold"), *events) == ["e1"]


def test_dead_letter_sends_out_the_held_events_up_to_the_overdue_one() -> None:
    events = numbered(2, 50), numbered(4, 0), numbered(5, 50), numbered(7, 50), heartbeat(110)
    rules = NUMBERED.order(wait=10, on_gap="dead_letter")
    results = list(rules.run(events, watermark_delay=100))
    assert [told(r) for r in results if r.emitted_at is not None] == [
        ("gap", "dead_letter", 10, "e2"),
        ("gap", "dead_letter", 10, "e4"),
        ("event", "order", 50, "e5"),
    ]
    assert [r.event for r in results if r.rule == "dead_letter"] == [events[0], events[1], events[3]]


def test_dead_letters_are_not_seen_by_the_other_rules() -> None:
    rules = NUMBERED.order(wait=10, on_gap="dead_letter").delay(after="x", by=5, emit="later")
    assert run(rules, numbered(2, 0), heartbeat(10)) == [("gap", "dead_letter", 10, "e2")]


def test_the_key_goes_on_behind_its_dead_letters() -> None:
    events = numbered(2, 0), heartbeat(10), numbered(3, 11), numbered(2, 11, id="again"), numbered(1, 12)
    assert run(NUMBERED.order(wait=10, on_gap="dead_letter"), *events) == [
        ("gap", "dead_letter", 10, "e2"),
        ("event", "order", 11, "e3"),
        ("late", "late", 12, "e1"),
    ]


def test_a_number_that_was_released_is_a_duplicate() -> None:
    events = numbered(1, 0), numbered(1, 5, id="again")
    assert run(NUMBERED.order(wait=10), *events) == [("event", "order", 0, "e1")]


def test_a_number_that_was_given_up_is_late() -> None:
    events = numbered(2, 0), heartbeat(10), numbered(1, 20)
    assert run(NUMBERED.order(wait=10), *events) == [
        ("gap", "skip", 10, "1"),
        ("event", "order", 0, "e2"),
        ("late", "late", 20, "e1"),
    ]


def test_the_number_of_a_held_event_is_a_duplicate() -> None:
    events = numbered(2, 0), numbered(2, 5, id="again"), numbered(1, 6)
    assert released(NUMBERED.order(wait=10), *events) == ["e1", "e2"]


def test_the_duplicate_of_a_held_event_fills_no_gap() -> None:
    events = numbered(2, 10), numbered(3, 0), numbered(2, 10), numbered(1, 9)
    assert run(NUMBERED.order(wait=10), *events, delay=50) == [
        ("event", "order", 9, "e1"),
        ("event", "order", 10, "e2"),
        ("event", "order", 0, "e3"),
    ]


def test_an_event_at_the_deadline_of_one_held_behind_it_finds_the_gap_given_up() -> None:
    events = numbered(3, 0), numbered(2, 10), numbered(1, 9)
    assert run(NUMBERED.order(wait=10), *events, delay=50) == [
        ("gap", "skip", 10, "1-2"),
        ("event", "order", 0, "e3"),
        ("late", "late", 10, "e2"),
        ("late", "late", 9, "e1"),
    ]


def test_an_event_before_the_deadline_of_one_held_behind_it_fills_the_gap() -> None:
    assert released(NUMBERED.order(wait=10), numbered(2, 0), numbered(1, 9), delay=50) == ["e1", "e2"]


def test_an_event_is_not_judged_by_deadlines_in_front_of_it() -> None:
    events = numbered(2, 0), numbered(9, 90), numbered(4, 50), numbered(1, 5), numbered(3, 59)
    assert released(NUMBERED.order(wait=10), *events, delay=100)[:4] == ["e1", "e2", "e3", "e4"]


def test_a_gap_found_given_up_was_given_up_at_the_deadlines_before_too() -> None:
    events = numbered(2, 0), numbered(6, 30), numbered(4, 50)
    assert run(NUMBERED.order(wait=10), *events, delay=100) == [
        ("gap", "skip", 10, "1"),
        ("event", "order", 0, "e2"),
        ("gap", "skip", 40, "3-5"),
        ("event", "order", 30, "e6"),
        ("late", "late", 50, "e4"),
    ]


def test_an_event_passes_gaps_up_to_its_number_and_none_behind_with_the_same_deadline() -> None:
    events = numbered(3, 0), numbered(5, 0), numbered(2, 10), numbered(4, 9)
    assert run(NUMBERED.order(wait=10), *events, delay=50) == [
        ("gap", "skip", 10, "1-2"),
        ("event", "order", 0, "e3"),
        ("late", "late", 10, "e2"),
        ("event", "order", 9, "e4"),
        ("event", "order", 0, "e5"),
    ]


def test_what_is_given_up_at_one_instant_goes_before_the_deliveries_that_it_makes_due() -> None:
    rules = NUMBERED.order(wait=10).deliver_at("at")
    events = numbered(2, 0, at=1), numbered(4, 0, at=1), heartbeat(20)
    assert run(rules, *events) == [
        ("gap", "skip", 10, "1"),
        ("gap", "skip", 10, "3"),
        ("event", "deliver_at", 1, "e2"),
        ("event", "deliver_at", 1, "e4"),
    ]


def test_a_gap_that_hold_found_given_up_is_told_and_filled() -> None:
    events = numbered(2, 0), numbered(1, 10)
    assert run(NUMBERED.order(wait=10, on_gap="hold"), *events, delay=50) == [
        ("gap", "hold", 10, "1"),
        ("event", "order", 10, "e1"),
        ("event", "order", 0, "e2"),
    ]


# ---------------------------------------------------------------- order by time


def test_without_a_sequence_the_order_is_time_and_equal_times_go_in_the_order_of_arrival() -> None:
    events = timed("d", 3), timed("c", 2), timed("a", 3), timed("b", 1)
    assert run(TIMED.order(), *events, delay=10) == [
        ("event", "order", 1, "b"),
        ("event", "order", 2, "c"),
        ("event", "order", 3, "d"),
        ("event", "order", 3, "a"),
    ]


def test_equal_times_go_by_the_columns_of_tie_and_then_in_the_order_of_arrival() -> None:
    ranks = (("e", 2, "x"), ("d", None, "y"), ("c", 1, "z"), ("b", 10, "x"), ("a", 1, "z"), ("f", 1, "a"))
    events = [timed(id, 3, type, rank=rank) for id, rank, type in ranks]
    assert released(TIMED.order(tie=["rank"]), *events) == ["d", "c", "a", "f", "e", "b"]
    assert released(TIMED.order(tie=["rank", "type"]), *events) == ["d", "f", "c", "a", "e", "b"]
    assert released(TIMED.order(tie=["id"]), *events) == ["a", "b", "c", "d", "e", "f"]


def test_an_order_that_is_implied_is_by_time_and_arrival_too() -> None:
    """By id as text, 487 of 1,000 orders whose two events bear one time were unpaid."""
    chance, rules = random.Random(7), TIMED.expect("paid", after="created", within=9, otherwise="unpaid")
    events = [
        timed(f"{chance.getrandbits(64):x}", 5, what, key=str(order))
        for order in range(1000)
        for what in ("created", "paid")
    ]
    assert Counter(kind for kind, *_ in run_but_events(rules, *events)) == {"met": 1000}


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((1.5,), "event 1, column 'rank': needs a text, an integer, a boolean or a time to order by, got 1.5"),
        ((1, "1"), "event 2, column 'rank': needs the kind of value that the events before it have, got '1'"),
        ((1, None, True), "event 3, column 'rank': needs the kind of value that the events before it have, got True"),
    ],
)
def test_a_value_that_cannot_put_events_in_order_is_refused(values: tuple[Any, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        list(TIMED.order(tie=["rank"]).run([timed("a", 1, rank=value) for value in values]))


def test_a_tie_may_be_a_time_or_a_boolean() -> None:
    days = [datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 1), None]
    for values in (days, [True, False, None]):
        events = [timed(id, 3, rank=value) for id, value in zip("abc", values, strict=True)]
        assert released(TIMED.order(tie=["rank"]), *events) == ["c", "b", "a"]


def test_without_a_sequence_an_event_is_released_once_the_watermark_is_past_its_time() -> None:
    results = list(TIMED.order().run([timed("a", 5), heartbeat(5), heartbeat(6)]))
    assert [(r.source_id, r.emitted_at) for r in results] == [("a", 6)]


def test_without_a_sequence_wait_has_no_meaning() -> None:
    results = list(TIMED.order(wait="100 days").run([timed("a", 5), heartbeat(6)]))
    assert [(r.source_id, r.emitted_at) for r in results] == [("a", 6)]


def test_times_before_1970_are_times() -> None:
    assert run(TIMED.order().delay(after="x", by=5, emit="later"), timed("b", -5), timed("a", -9), delay=10) == [
        ("event", "order", -9, "a"),
        ("event", "order", -5, "b"),
        ("emit", "later", -4, "a"),
        ("emit", "later", 0, "b"),
    ]


def test_no_order_rule_passes_events_as_they_come() -> None:
    assert run(NUMBERED, numbered(2, 5), numbered(1, 3), numbered(2, 5), delay=10) == [
        ("event", "pass", 5, "e2"),
        ("event", "pass", 3, "e1"),
        ("event", "pass", 5, "e2"),
    ]
