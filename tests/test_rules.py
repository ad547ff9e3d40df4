"""The contract of docs/rules.md, sentence by sentence: small literal streams, and what must come of them.

Rule 1: one sentence of the contract is one test; its name says the sentence.
Rule 2: expected results are literal and in order; an order that is promised is never sorted away.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from itertools import product
from typing import Any

import pytest

from waterclock.rules import Result, Rules
from waterclock.rules.engine import CLOSED, Engine
from waterclock.rules.events import Event

NUMBERED = Rules(key="key", time="time", type="type", id="id", sequence="number")
TIMED = Rules(key="key", time="time", type="type", id="id")


def numbered(number: int, time: Any, type: str = "x", id: str | None = None, **more: Any) -> dict[str, Any]:
    """Event e<number> of the key "k"."""
    row = {"key": "k", "time": time, "type": type, "id": id or f"e{number}", "number": number}
    return row | more


def timed(id: str, time: Any, type: str = "x", **more: Any) -> dict[str, Any]:
    return {"key": "k", "time": time, "type": type, "id": id} | more


def heartbeat(time: Any) -> dict[str, Any]:
    return {"key": None, "time": time}


def told(result: Result) -> tuple[str, str, Any, str]:
    return result.kind, result.rule, result.due, result.source_id


def run(rules: Rules, *events: Mapping[str, Any], delay: Any = 0) -> list[tuple[str, str, Any, str]]:
    return [told(result) for result in rules.run(events, watermark_delay=delay)]


def run_but_events(rules: Rules, *events: Mapping[str, Any], delay: Any = 0) -> list[tuple[str, str, Any, str]]:
    """Without the released events, where only what the rules make of them is of interest."""
    return [found for found in run(rules, *events, delay=delay) if found[0] != "event"]


def released(rules: Rules, *events: Mapping[str, Any], delay: Any = 0) -> list[str]:
    return [id for kind, _, _, id in run(rules, *events, delay=delay) if kind == "event"]


# ---------------------------------------------------------------- words


def test_an_event_before_the_watermark_is_late() -> None:
    assert run(TIMED, timed("a", 100), timed("b", 89), delay=10) == [
        ("event", "pass", 100, "a"),
        ("late", "late", 89, "b"),
    ]


def test_an_event_at_the_watermark_is_not_late() -> None:
    assert released(TIMED, timed("a", 100), timed("b", 90), delay=10) == ["a", "b"]


def test_the_watermark_never_goes_back() -> None:
    events = timed("a", 100), timed("b", 95), timed("c", 89)
    assert run_but_events(TIMED, *events, delay=10) == [("late", "late", 89, "c")]


def test_the_watermark_is_that_of_all_keys() -> None:
    assert run(TIMED, timed("a", 100), timed("b", 50, key="other"))[1] == ("late", "late", 50, "b")


def test_a_deadline_fires_when_the_watermark_reaches_it() -> None:
    rules = TIMED.delay(after="x", by=10, emit="reminder")
    results = list(rules.run([timed("a", 0), heartbeat(9), heartbeat(10), heartbeat(50)]))
    assert [(r.kind, r.due, r.emitted_at) for r in results if r.kind == "emit"] == [("emit", 10, 10)]


def test_a_heartbeat_moves_the_watermark_and_nothing_else() -> None:
    rules = NUMBERED.deduplicate(within=9).order(wait=5).quiet(after=5, emit="silent").deliver_at("deliver")
    assert run(rules, heartbeat(10), heartbeat(20), heartbeat(10)) == []
    assert run(TIMED, heartbeat(10), timed("a", 9)) == [("late", "late", 9, "a")]


def test_nothing_stays_held_after_the_close() -> None:
    rules = NUMBERED.order(wait="100 days").delay(after="x", by="100 days", emit="later")
    day = 86_400_000_000
    assert run(rules, numbered(2, 0), numbered(4, 0)) == [
        ("gap", "skip", 100 * day, "1"),
        ("event", "order", 0, "e2"),
        ("gap", "skip", 100 * day, "3"),
        ("event", "order", 0, "e4"),
        ("emit", "later", 100 * day, "e2"),
        ("emit", "later", 100 * day, "e4"),
    ]


@pytest.mark.parametrize(
    ("duration", "microseconds"),
    [
        ("14 days", 1_209_600_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("250 ms", 250_000),
        (timedelta(seconds=2), 2_000_000),
        (7, 7),
    ],
)
def test_a_duration_is_a_text_a_timedelta_or_microseconds(duration: Any, microseconds: int) -> None:
    rules = TIMED.delay(after="x", by=duration, emit="later")
    assert run_but_events(rules, timed("a", 0)) == [("emit", "later", microseconds, "a")]


# ---------------------------------------------------------------- the columns


def test_key_and_time_are_all_that_is_needed() -> None:
    results = Rules(key="who", time="when").run([{"who": "k", "when": 5}])
    assert [(r.kind, r.key, r.rule, r.due) for r in results] == [("event", "k", "pass", 5)]


def test_without_an_id_the_whole_row_is_the_id() -> None:
    rules = Rules(key="who", time="when").deduplicate(within=10)
    rows = [{"who": "k", "when": 5, "n": 1}, {"who": "k", "when": 5, "n": 2}, {"who": "k", "when": 5, "n": 1}]
    assert [r.event for r in rules.run(rows)] == rows[:2]


def test_the_sequence_starts_at_one() -> None:
    assert run(NUMBERED.order(wait=10), numbered(2, 0))[0] == ("gap", "skip", 10, "1")


def test_each_key_has_its_own_sequence() -> None:
    rules = NUMBERED.order(wait=10)
    events = numbered(1, 0), numbered(1, 0, key="other"), numbered(2, 0, key="other"), numbered(2, 0)
    assert [(r.key, r.source_id) for r in rules.run(events)] == [
        ("k", "e1"),
        ("other", "e1"),
        ("other", "e2"),
        ("k", "e2"),
    ]


# ---------------------------------------------------------------- deduplicate


def test_an_id_seen_for_its_key_is_dropped() -> None:
    assert released(TIMED.deduplicate(within=10), timed("a", 0), timed("b", 0), timed("a", 0)) == ["a", "b"]


def test_an_id_seen_for_another_key_is_no_duplicate() -> None:
    rules = TIMED.deduplicate(within=10)
    assert released(rules, timed("a", 0), timed("a", 0, key="other")) == ["a", "a"]


def test_a_duplicate_is_at_most_within_after_the_time_first_seen() -> None:
    rules = TIMED.deduplicate(within=10)
    dues = [r.due for r in rules.run([timed("a", 0), timed("a", 10), timed("a", 11)], watermark_delay=100)]
    assert dues == [0, 11]


def test_within_counts_from_the_time_first_seen_not_from_the_last() -> None:
    events = timed("a", 0), timed("a", 8), timed("a", 16)
    dues = [r.due for r in TIMED.deduplicate(within=10).run(events, watermark_delay=100)]
    assert dues == [0, 16]


def test_within_nothing_drops_only_what_is_not_after_the_first() -> None:
    events = timed("a", 5), timed("a", 5), timed("a", 4), timed("a", 6)
    dues = [r.due for r in TIMED.deduplicate(within=0).run(events, watermark_delay=100)]
    assert dues == [5, 6]


def test_a_duplicate_that_comes_late_is_a_duplicate() -> None:
    rules = TIMED.deduplicate(within=100)
    assert run(rules, timed("a", 0), heartbeat(50), timed("a", 0)) == [("event", "pass", 0, "a")]


def test_an_id_is_remembered_while_the_watermark_is_at_its_time_plus_within() -> None:
    rules = TIMED.deduplicate(within=10)
    assert run(rules, timed("a", 0), heartbeat(10), timed("a", 0)) == [("event", "pass", 0, "a")]


def test_an_id_is_forgotten_when_the_watermark_is_past_its_time_plus_within() -> None:
    rules = TIMED.deduplicate(within=10)
    assert run(rules, timed("a", 0), heartbeat(11), timed("a", 0)) == [
        ("event", "pass", 0, "a"),
        ("late", "late", 0, "a"),
    ]


def test_a_late_event_was_seen_too() -> None:
    rules = TIMED.deduplicate(within=100)
    assert run(rules, heartbeat(50), timed("a", 0), timed("a", 0)) == [("late", "late", 0, "a")]


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


def test_without_a_sequence_the_order_is_time_then_id() -> None:
    events = timed("d", 3), timed("c", 2), timed("a", 3), timed("b", 1)
    assert run(TIMED.order(), *events, delay=10) == [
        ("event", "order", 1, "b"),
        ("event", "order", 2, "c"),
        ("event", "order", 3, "a"),
        ("event", "order", 3, "d"),
    ]


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


# ---------------------------------------------------------------- delay


def test_each_event_of_the_type_makes_one_emit_at_its_time_plus_by() -> None:
    rules = TIMED.delay(after="fine", by=60, emit="penalty")
    events = timed("a", 0, "fine"), timed("b", 5, "other"), timed("c", 5, "fine")
    assert run_but_events(rules, *events) == [("emit", "penalty", 60, "a"), ("emit", "penalty", 65, "c")]


def test_several_delays_may_look_at_one_type() -> None:
    rules = TIMED.delay(after="x", by=9, emit="second").delay(after="x", by=3, emit="first")
    assert run_but_events(rules, timed("a", 0)) == [("emit", "first", 3, "a"), ("emit", "second", 9, "a")]


def test_a_delay_of_nothing_is_due_at_the_time_of_the_event() -> None:
    assert run_but_events(TIMED.delay(after="x", by=0, emit="now"), timed("a", 4)) == [("emit", "now", 4, "a")]


def test_a_delay_that_is_long_past_when_the_event_is_released_still_fires() -> None:
    rules = NUMBERED.order(wait=100).delay(after="x", by=5, emit="later")
    results = list(rules.run([numbered(2, 0), heartbeat(50), numbered(1, 50, "other")]))
    assert [told(r) for r in results] == [
        ("event", "order", 50, "e1"),
        ("event", "order", 0, "e2"),
        ("emit", "later", 5, "e2"),
    ]
    assert results[2].emitted_at == 50


# ---------------------------------------------------------------- deliver_at


def test_an_event_is_delivered_once_the_watermark_reaches_the_time_in_the_column() -> None:
    events = timed("a", 0, at=10), heartbeat(9), heartbeat(10), heartbeat(11)
    results = list(TIMED.deliver_at("at").run(events))
    assert [(*told(r), r.emitted_at, r.event) for r in results] == [("event", "deliver_at", 10, "a", 10, events[0])]


def test_an_event_without_a_time_to_deliver_goes_out_at_once() -> None:
    events = timed("a", 0, at=90), timed("b", 1, at=None), timed("c", 90, at=None)
    assert released(TIMED.deliver_at("at"), *events) == ["b", "c", "a"]


def test_events_to_deliver_at_one_time_keep_the_order_of_release() -> None:
    events = timed("c", 0, at=50), timed("a", 1, at=50), timed("b", 2, at=50), timed("d", 3, at=49)
    assert released(TIMED.deliver_at("at"), *events) == ["d", "c", "a", "b"]


def test_the_other_rules_see_an_event_when_it_is_released_not_when_it_is_delivered() -> None:
    rules = TIMED.deliver_at("at").delay(after="x", by=5, emit="later")
    assert run(rules, timed("a", 0, at=50)) == [("emit", "later", 5, "a"), ("event", "deliver_at", 50, "a")]


# ---------------------------------------------------------------- expect

UNPAID = TIMED.expect("pay", after="fine", within=60, otherwise="unpaid")


def test_an_expectation_is_met_by_an_event_before_its_deadline() -> None:
    assert run_but_events(UNPAID, timed("a", 0, "fine"), timed("b", 59, "pay")) == [("met", "unpaid", 60, "a")]


def test_an_event_at_the_deadline_does_not_meet_it() -> None:
    assert run_but_events(UNPAID, timed("a", 0, "fine"), timed("b", 60, "pay")) == [("expired", "unpaid", 60, "a")]


def test_an_expectation_expires_when_its_deadline_is_passed() -> None:
    results = list(UNPAID.run([timed("a", 0, "fine"), heartbeat(59), heartbeat(60), heartbeat(99)]))
    assert [(*told(r), r.emitted_at) for r in results[1:]] == [("expired", "unpaid", 60, "a", 60)]


def test_an_event_before_the_after_meets_nothing() -> None:
    assert run_but_events(UNPAID, timed("b", 0, "pay"), timed("a", 1, "fine")) == [("expired", "unpaid", 61, "a")]


def test_an_event_of_another_key_meets_nothing() -> None:
    events = timed("a", 0, "fine"), timed("b", 1, "pay", key="other")
    assert run_but_events(UNPAID, *events) == [("expired", "unpaid", 60, "a")]


def test_an_event_that_came_before_its_after_still_meets_it() -> None:
    rules = NUMBERED.order(wait=100).expect("pay", after="fine", within=60, otherwise="unpaid")
    events = numbered(2, 10, "pay"), numbered(1, 0, "fine")
    assert run_but_events(rules, *events, delay=20) == [("met", "unpaid", 60, "e1")]
    assert run_but_events(UNPAID, timed("b", 10, "pay"), timed("a", 0, "fine"), delay=20) == [
        ("met", "unpaid", 60, "a")
    ]


def test_a_type_in_cancel_by_withdraws_an_expectation_without_a_result() -> None:
    rules = TIMED.expect("pay", after="fine", within=60, otherwise="unpaid", cancel_by=["appeal", "void"])
    for type in ("appeal", "void"):
        assert run_but_events(rules, timed("a", 0, "fine"), timed("b", 59, type), timed("c", 59, "pay")) == []


def test_a_cancel_at_the_deadline_withdraws_nothing() -> None:
    rules = TIMED.expect("pay", after="fine", within=60, otherwise="unpaid", cancel_by=["appeal"])
    assert run_but_events(rules, timed("a", 0, "fine"), timed("b", 60, "appeal")) == [("expired", "unpaid", 60, "a")]


def test_one_event_meets_every_open_expectation_of_its_key() -> None:
    events = timed("a", 0, "fine"), timed("b", 30, "fine"), timed("c", 40, "fine"), timed("d", 65, "pay")
    assert run_but_events(UNPAID, *events) == [
        ("expired", "unpaid", 60, "a"),
        ("met", "unpaid", 90, "b"),
        ("met", "unpaid", 100, "c"),
    ]


def test_an_expectation_is_met_once() -> None:
    events = timed("a", 0, "fine"), timed("b", 5, "pay"), timed("c", 6, "pay")
    assert run_but_events(UNPAID, *events) == [("met", "unpaid", 60, "a")]


def test_an_event_that_is_both_meets_the_open_ones_first_and_then_opens_its_own() -> None:
    rules = TIMED.expect("beat", after="beat", within=10, otherwise="dead")
    assert run_but_events(rules, timed("a", 0, "beat"), timed("b", 9, "beat"), timed("c", 19, "beat")) == [
        ("met", "dead", 10, "a"),
        ("expired", "dead", 19, "b"),
        ("expired", "dead", 29, "c"),
    ]


def test_an_expectation_within_nothing_is_met_only_by_an_earlier_time_later_in_the_sequence() -> None:
    rules = NUMBERED.order(wait=9).expect("pay", after="fine", within=0, otherwise="unpaid")
    assert run_but_events(rules, numbered(1, 5, "fine"), numbered(2, 4, "pay"), delay=9) == [("met", "unpaid", 5, "e1")]
    assert run_but_events(rules, numbered(1, 5, "fine"), numbered(2, 5, "pay"), delay=9) == [
        ("expired", "unpaid", 5, "e1")
    ]


def test_expect_and_quiet_imply_order_by_time_and_id() -> None:
    for rules in (
        NUMBERED.expect("y", after="z", within=5, otherwise="no"),
        NUMBERED.quiet(after=99, emit="q"),
    ):
        events = numbered(1, 30), numbered(2, 20), numbered(3, 20, id="a")
        assert released(rules, *events, delay=50) == ["a", "e2", "e1"]


# ---------------------------------------------------------------- quiet and session


def test_a_key_silent_for_after_gives_a_quiet_result() -> None:
    results = list(TIMED.quiet(after=10, emit="silent").run([timed("a", 0), heartbeat(9), heartbeat(10)]))
    assert [(*told(r), r.emitted_at) for r in results[1:]] == [("quiet", "silent", 10, "a", 10)]


def test_an_event_before_the_due_of_a_quiet_moves_it_on() -> None:
    rules = TIMED.quiet(after=10, emit="silent")
    assert run_but_events(rules, timed("a", 0), timed("b", 9), timed("c", 18)) == [("quiet", "silent", 28, "c")]


def test_an_event_at_the_due_of_a_quiet_does_not_stop_it() -> None:
    rules = TIMED.quiet(after=10, emit="silent")
    assert run_but_events(rules, timed("a", 0), timed("b", 10)) == [
        ("quiet", "silent", 10, "a"),
        ("quiet", "silent", 20, "b"),
    ]


def test_an_earlier_time_later_in_the_sequence_does_not_move_a_quiet_back() -> None:
    rules = NUMBERED.order(wait=99).quiet(after=10, emit="silent")
    assert run_but_events(rules, numbered(1, 30), numbered(2, 25), delay=50) == [("quiet", "silent", 40, "e1")]


def test_each_key_has_its_own_silence() -> None:
    rules = TIMED.quiet(after=10, emit="silent")
    events = timed("a", 0), timed("b", 5, key="other")
    assert run_but_events(rules, *events) == [("quiet", "silent", 10, "a"), ("quiet", "silent", 15, "b")]


def test_session_is_quiet_under_another_name() -> None:
    events = timed("a", 0), timed("b", 5), timed("c", 15)
    assert run(TIMED.session(gap=10, emit="over"), *events) == run(TIMED.quiet(after=10, emit="over"), *events)


# ---------------------------------------------------------------- what every rule relies on


def test_a_deadline_waits_while_an_earlier_event_is_held_behind_a_gap() -> None:
    rules = NUMBERED.order(wait=100).expect("pay", after="fine", within=60, otherwise="unpaid")
    events = numbered(1, 0, "fine"), numbered(3, 59, "pay"), heartbeat(90), numbered(2, 90)
    assert run_but_events(rules, *events) == [("met", "unpaid", 60, "e1")]


def test_a_deadline_does_not_wait_for_a_held_event_at_its_own_time() -> None:
    rules = NUMBERED.order(wait=100).expect("pay", after="fine", within=60, otherwise="unpaid")
    events = numbered(1, 0, "fine"), numbered(3, 60, "pay"), heartbeat(60), heartbeat(99)
    results = list(rules.run(events))
    assert [(*told(r), r.emitted_at) for r in results[1:2]] == [("expired", "unpaid", 60, "e1", 60)]


def test_a_deadline_does_not_wait_for_what_another_key_holds() -> None:
    rules = NUMBERED.order(wait=100).delay(after="x", by=10, emit="later")
    events = numbered(1, 0), numbered(2, 5, key="other"), heartbeat(10)
    assert [(r.rule, r.emitted_at) for r in rules.run(events)][1] == ("later", 10)


def test_a_deadline_that_waited_fires_when_the_gap_is_given_up() -> None:
    rules = NUMBERED.order(wait=20).delay(after="x", by=10, emit="later")
    events = numbered(1, 0), numbered(3, 5, "other"), heartbeat(24), heartbeat(25)
    assert [(*told(r), r.emitted_at) for r in rules.run(events)][1:] == [
        ("gap", "skip", 25, "2", 25),
        ("event", "order", 5, "e3", 25),
        ("emit", "later", 10, "e1", 25),
    ]


def test_a_late_event_is_not_applied() -> None:
    rules = TIMED.expect("pay", after="fine", within=60, otherwise="unpaid").quiet(after=70, emit="silent")
    events = timed("a", 0, "fine"), heartbeat(50), timed("b", 49, "pay")
    assert run_but_events(rules, *events) == [
        ("late", "late", 49, "b"),
        ("expired", "unpaid", 60, "a"),
        ("quiet", "silent", 70, "a"),
    ]


def test_a_late_event_carries_the_event() -> None:
    late = timed("b", 4)
    assert [r.event for r in TIMED.run([heartbeat(5), late])] == [late]


def test_nothing_waits_for_the_number_of_a_late_event() -> None:
    events = numbered(1, 50), numbered(3, 50), numbered(2, 40), numbered(4, 51)
    assert run(NUMBERED.order(wait=10), *events) == [
        ("event", "order", 50, "e1"),
        ("late", "late", 40, "e2"),
        ("event", "order", 50, "e3"),
        ("event", "order", 51, "e4"),
    ]


def test_the_number_of_a_late_event_splits_the_gap_it_stood_in() -> None:
    events = numbered(6, 50), numbered(3, 40), heartbeat(60)
    assert run(NUMBERED.order(wait=10), *events) == [
        ("late", "late", 40, "e3"),
        ("gap", "skip", 60, "1-2"),
        ("gap", "skip", 60, "4-5"),
        ("event", "order", 50, "e6"),
    ]


def test_the_number_of_a_late_event_ahead_of_its_key_is_passed_when_its_turn_comes() -> None:
    events = numbered(1, 50), numbered(3, 40), numbered(2, 51), numbered(4, 52)
    assert run(NUMBERED.order(wait=10), *events) == [
        ("event", "order", 50, "e1"),
        ("late", "late", 40, "e3"),
        ("event", "order", 51, "e2"),
        ("event", "order", 52, "e4"),
    ]


def test_the_number_of_a_late_event_is_not_released_any_more() -> None:
    events = numbered(1, 50), numbered(3, 40), numbered(3, 51), numbered(2, 52)
    assert run(NUMBERED.order(wait=10), *events) == [
        ("event", "order", 50, "e1"),
        ("late", "late", 40, "e3"),
        ("event", "order", 52, "e2"),
    ]


def test_a_late_event_whose_number_was_given_up_splits_nothing() -> None:
    events = numbered(3, 0), numbered(2, -5), heartbeat(10)
    assert run(NUMBERED.order(wait=10), heartbeat(0), *events, numbered(4, 10)) == [
        ("late", "late", -5, "e2"),
        ("gap", "skip", 10, "1"),
        ("event", "order", 0, "e3"),
        ("event", "order", 10, "e4"),
    ]


def test_a_late_event_whose_number_is_held_or_released_is_a_duplicate() -> None:
    rules = NUMBERED.order(wait=100)
    events = (
        numbered(1, 50),
        numbered(3, 50),
        numbered(1, 40, id="y"),
        numbered(3, 40, id="z"),
        numbered(2, 50),
    )
    assert run(rules, *events) == [
        ("event", "order", 50, "e1"),
        ("event", "order", 50, "e2"),
        ("event", "order", 50, "e3"),
    ]


def test_deadlines_fire_by_due_time() -> None:
    rules = TIMED.delay(after="x", by=30, emit="slow").delay(after="x", by=10, emit="fast")
    events = timed("a", 0), timed("b", 5), heartbeat(100)
    assert run_but_events(rules, *events) == [
        ("emit", "fast", 10, "a"),
        ("emit", "fast", 15, "b"),
        ("emit", "slow", 30, "a"),
        ("emit", "slow", 35, "b"),
    ]


def test_equal_deadlines_fire_in_the_order_of_making() -> None:
    rules = TIMED.delay(after="x", by=20, emit="later").delay(after="y", by=10, emit="sooner")
    events = timed("a", 0, "x"), timed("b", 10, "y", key="other"), timed("c", 10, "y")
    assert run_but_events(rules, *events) == [
        ("emit", "later", 20, "a"),
        ("emit", "sooner", 20, "b"),
        ("emit", "sooner", 20, "c"),
    ]


def test_deliveries_overdue_when_they_are_made_go_out_by_their_due_time() -> None:
    rules = NUMBERED.order(wait=100).deliver_at("at")
    events = numbered(2, 0, at=40), numbered(3, 0, at=30), heartbeat(50), numbered(1, 50, at=None)
    assert released(rules, *events) == ["e1", "e3", "e2"]


def test_the_first_microsecond_of_1970_is_a_deadline_like_any_other() -> None:
    def delivered(epoch: int) -> list[str]:
        events = timed("a", epoch - 3, at=epoch), timed("b", epoch - 2, at=epoch - 2)
        return released(TIMED.order().deliver_at("at"), *events)

    assert delivered(0) == delivered(1000)
    assert delivered(2) == delivered(1000)


@pytest.mark.parametrize("on_gap", ["skip", "hold", "dead_letter"])
def test_no_cut_of_the_input_changes_kind_key_rule_and_due(on_gap: Any) -> None:
    rules = NUMBERED.order(wait=10, on_gap=on_gap).expect("b", after="a", within=7, otherwise="no")
    events = [
        ("k", Event(time=t, id=f"e{n}", sequence=n, type=type, deliver=None, ref=None))
        for n, t, type in ((3, 0, "b"), (1, -5, "a"), (5, 8, "a"), (4, 11, "b"), (9, 30, "b"), (6, 25, "a"))
    ]
    every = []
    for cuts in product([True, False], repeat=len(events) - 1):
        engine, batch, found, watermark = Engine(rules), [], [], -CLOSED
        for number, event in enumerate(events):
            batch.append(event)
            if number == len(events) - 1 or cuts[number]:
                found += engine.step(batch, watermark)
                watermark = max(e.time for _, e in events[: number + 1]) - 20
                batch = []
        found += engine.step((), CLOSED)
        every.append(sorted((f.kind, f.key, f.rule, f.due) for f in found))
    assert every == [every[0]] * 32


@pytest.mark.parametrize("on_gap", ["skip", "hold", "dead_letter"])
def test_finding_a_gap_given_up_gives_up_no_gap_that_is_not_its_own(on_gap: Any) -> None:
    # 3 and 5 are overdue at 0 and 10. If 2 (at 10) gave up the gap before 5, too, then 4 (at 5) would find
    # it given up; but where the watermark had reached 0 before 2 came, 2 is past and 4 is in time.
    rules = NUMBERED.order(wait=30, on_gap=on_gap)
    rows = [("k", 3, -30), ("k", 5, -20), (None, None, 10), ("k", 2, 10), ("k", 4, 5)]
    events = [(key, Event(t, f"e{n}", n, "x", None, None)) for key, n, t in rows]
    every = []
    for cut in (0, 3):  # as one batch; or with the watermark at 10 - 10 from the fourth on
        engine = Engine(rules)
        found = engine.step(events[:cut], -CLOSED) + engine.step(events[cut:], 0 if cut else -CLOSED)
        found += engine.step((), CLOSED)
        every.append(sorted((f.kind, f.key, f.rule, f.due) for f in found))
    assert every[0] == every[1]


# ---------------------------------------------------------------- results


def test_a_released_event_and_a_late_one_carry_the_event_and_the_others_do_not() -> None:
    rules = NUMBERED.order(wait=5).delay(after="x", by=1, emit="later").quiet(after=99, emit="silent")
    rules = rules.expect("y", after="x", within=9, otherwise="no")
    events = [numbered(2, 10), heartbeat(15), numbered(1, 10, "y"), numbered(3, 16, "y")]
    results = list(rules.run(events))
    assert {r.kind for r in results if r.event is None} == {"gap", "emit", "met", "quiet"}
    assert [r.event for r in results if r.kind == "event"] == [events[0], events[3]]
    assert [r.event for r in results if r.kind == "late"] == [events[2]]


def test_a_result_says_at_which_watermark_it_was_made_and_none_at_the_close() -> None:
    rules = TIMED.delay(after="x", by=10, emit="later")
    results = list(rules.run([timed("a", 0), timed("b", 10)]))
    assert [(r.kind, r.emitted_at) for r in results[1:]] == [("event", 0), ("emit", 10), ("emit", None)]


def test_a_rerun_makes_the_same_result_ids() -> None:
    rules = NUMBERED.order(wait=5).delay(after="x", by=1, emit="later").quiet(after=9, emit="silent")
    events = [numbered(2, 0), numbered(3, 4), heartbeat(50), numbered(1, 3)]
    first, second = list(rules.run(events)), list(rules.run(events, watermark_delay=3))
    assert {r.result_id for r in first} == {r.result_id for r in second}
    assert len({r.result_id for r in first}) == len(first) == 7


def test_a_result_id_tells_kinds_keys_rules_and_sources_apart() -> None:
    rules = TIMED.delay(after="x", by=1, emit="one").delay(after="x", by=1, emit="two")
    results = list(rules.run([timed("a", 0), timed("b", 0), timed("a", 0, key="other")]))
    assert len({r.result_id for r in results}) == 9


def test_a_result_id_tells_the_key_5_from_the_key_of_text_5() -> None:
    one, other = TIMED.run([timed("a", 0, key=5), timed("a", 0, key="5")])
    assert one.result_id != other.result_id


def test_a_result_id_does_not_run_its_parts_together() -> None:
    first = list(TIMED.run([timed("bc", 0, key="a"), timed("c", 0, key="ab")]))
    assert first[0].result_id != first[1].result_id


def test_the_result_id_is_the_same_in_every_process() -> None:
    import os
    import subprocess
    import sys

    code = (
        "from waterclock.rules import Rules;"
        "print(next(Rules(key='k', time='t', id='i').run([{'k': 'k', 't': 0, 'i': 'a'}])).result_id)"
    )
    ids = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(ids) == 1


LATER = TIMED.delay(after="x", by="1 day", emit="later")


def test_integer_microseconds_come_back_as_integers() -> None:
    results = list(LATER.run([timed("a", 5), heartbeat(86_400_000_005)]))
    assert [(type(r.due), r.due, r.emitted_at) for r in results] == [
        (int, 5, None),
        (int, 86_400_000_005, 86_400_000_005),
    ]


def test_naive_datetimes_come_back_naive() -> None:
    results = list(LATER.run([timed("a", datetime(1969, 12, 31, 12)), heartbeat(datetime(1970, 1, 2))]))
    assert [(r.due, r.emitted_at) for r in results] == [
        (datetime(1969, 12, 31, 12), None),
        (datetime(1970, 1, 1, 12), datetime(1970, 1, 2)),
    ]


def test_aware_datetimes_come_back_aware_at_the_same_instant() -> None:
    zone = timezone(timedelta(hours=2))
    results = list(LATER.run([timed("a", datetime(2020, 1, 1, tzinfo=zone))]))
    assert [r.due for r in results] == [
        datetime(2019, 12, 31, 22, tzinfo=UTC),
        datetime(2020, 1, 1, 22, tzinfo=UTC),
    ]


def test_a_naive_datetime_is_utc() -> None:
    events = (
        timed("a", datetime(2020, 1, 1, 5)),
        timed("b", datetime(2020, 1, 1, 6, tzinfo=timezone(timedelta(hours=2)))),
    )
    assert [told(r)[0] for r in TIMED.run(events)] == ["event", "late"]


def test_microseconds_of_a_datetime_are_kept() -> None:
    time = datetime(2255, 6, 5, 4, 3, 2, 123_457)
    assert [r.due for r in LATER.run([timed("a", time)])] == [time, time + timedelta(days=1)]


# ---------------------------------------------------------------- wrong events


@pytest.mark.parametrize(
    ("rules", "wrong", "said"),
    [
        (TIMED, ["a", 5], r"\b2\b"),
        (TIMED, {"key": "k", "id": "a", "type": "x"}, r"\b2\b.*time"),
        (TIMED, {"time": 5, "id": "a", "type": "x"}, r"\b2\b.*key"),
        (TIMED, {"key": "k", "time": 5, "type": "x"}, r"\b2\b.*id"),
        (TIMED, {"key": "k", "time": 5, "id": "a"}, r"\b2\b.*type"),
        (NUMBERED.order(wait=5), {"key": "k", "time": 5, "id": "a", "type": "x"}, r"\b2\b.*number"),
        (TIMED.deliver_at("at"), {"key": "k", "time": 5, "id": "a", "type": "x"}, r"\b2\b.*at\b"),
        (TIMED, timed("a", "2020-01-01"), r"\b2\b.*time"),
        (TIMED, timed("a", None), r"\b2\b.*time"),
        (TIMED, timed("a", 5.0), r"\b2\b.*time"),
        (TIMED, timed("a", True), r"\b2\b.*time"),
        (TIMED, timed("a", datetime(2020, 1, 1)), r"\b2\b.*time"),
        (TIMED, {"key": None, "time": "soon"}, r"\b2\b.*time"),
        (TIMED, {"key": None}, r"\b2\b.*time"),
        (TIMED.deliver_at("at"), timed("a", 5, at="soon"), r"\b2\b.*at\b"),
        (TIMED.deliver_at("at"), timed("a", 5, at=datetime(2020, 1, 1)), r"\b2\b.*at\b"),
        (NUMBERED.order(wait=5), numbered(1, 5) | {"number": "1"}, r"\b2\b.*number"),
        (NUMBERED.order(wait=5), numbered(1, 5) | {"number": 0}, r"\b2\b.*number"),
        (NUMBERED.order(wait=5), numbered(1, 5) | {"number": None}, r"\b2\b.*number"),
    ],
)
def test_a_wrong_event_is_refused_by_its_number_and_column(rules: Rules, wrong: Any, said: str) -> None:
    first = numbered(1, 0, at=None)
    with pytest.raises(ValueError, match=said):
        list(rules.run([first, wrong]))


def test_what_came_before_a_wrong_event_is_out() -> None:
    results = TIMED.run([timed("a", 0), {}])
    assert next(results).source_id == "a"


@pytest.mark.parametrize("delay", [-1, "soon", "-1 day"])
def test_a_wrong_watermark_delay_is_refused_by_name(delay: Any) -> None:
    with pytest.raises(ValueError, match="watermark_delay"):
        list(TIMED.run([timed("a", 0)], watermark_delay=delay))


# ---------------------------------------------------------------- wrong rules

UNTYPED = Rules(key="key", time="time")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Rules(key="", time="t"), "key"),
        (lambda: Rules(key="k", time=""), "time"),
        (lambda: Rules(key=5, time="t"), "key"),  # type: ignore[arg-type]
        (lambda: Rules(key="k", time="t", type=5), "type"),  # type: ignore[arg-type]
        (lambda: Rules(key="k", time="t", id=""), "id"),
        (lambda: Rules(key="k", time="t", sequence=""), "sequence"),
        (lambda: TIMED.deduplicate(within=-1), r"deduplicate.*within"),
        (lambda: TIMED.deduplicate(within="soon"), r"deduplicate.*within"),
        (lambda: TIMED.deduplicate(within=1.5), r"deduplicate.*within"),  # type: ignore[arg-type]
        (lambda: TIMED.deduplicate(within=1).deduplicate(within=2), "deduplicate"),
        (lambda: NUMBERED.order(wait=-1), r"order.*wait"),
        (lambda: NUMBERED.order(wait="3 moons"), r"order.*wait"),
        (lambda: NUMBERED.order(wait=1, on_gap="jump"), r"order.*on_gap.*jump"),  # type: ignore[arg-type]
        (lambda: NUMBERED.order(wait=1).order(wait=1), "order"),
        (lambda: UNTYPED.delay(after="a", by=1, emit="b"), r"delay.*type"),
        (lambda: TIMED.delay(after="", by=1, emit="b"), r"delay.*after"),
        (lambda: TIMED.delay(after="a", by=-1, emit="b"), r"delay.*by"),
        (lambda: TIMED.delay(after="a", by="soon", emit="b"), r"delay.*by"),
        (lambda: TIMED.delay(after="a", by=1, emit=""), r"delay.*emit"),
        (lambda: TIMED.deliver_at(""), r"deliver_at.*column"),
        (lambda: TIMED.deliver_at("a").deliver_at("b"), "deliver_at"),
        (lambda: UNTYPED.expect("a", after="b", within=1, otherwise="c"), r"expect.*type"),
        (lambda: TIMED.expect("", after="b", within=1, otherwise="c"), r"expect.*type"),
        (lambda: TIMED.expect("a", after="", within=1, otherwise="c"), r"expect.*after"),
        (lambda: TIMED.expect("a", after="b", within=-1, otherwise="c"), r"expect.*within"),
        (lambda: TIMED.expect("a", after="b", within=1, otherwise=""), r"expect.*otherwise"),
        (lambda: TIMED.expect("a", after="b", within=1, otherwise="c", cancel_by="d"), r"expect.*cancel_by"),
        (lambda: TIMED.expect("a", after="b", within=1, otherwise="c", cancel_by=[""]), r"expect.*cancel_by"),
        (
            lambda: TIMED.expect("a", after="b", within=1, otherwise="c", cancel_by=[5]),  # type: ignore[list-item]
            r"expect.*cancel_by",
        ),
        (lambda: TIMED.quiet(after=-1, emit="a"), r"quiet.*after"),
        (lambda: TIMED.quiet(after="soon", emit="a"), r"quiet.*after"),
        (lambda: TIMED.quiet(after=1, emit=""), r"quiet.*emit"),
        (lambda: TIMED.session(gap=-1, emit="a"), r"session.*gap"),
        (lambda: TIMED.session(gap="soon", emit="a"), r"session.*gap"),
        (lambda: TIMED.session(gap=1, emit=""), r"session.*emit"),
        (lambda: TIMED.quiet(after=1, emit="a").delay(after="x", by=1, emit="a"), "'a'"),
    ],
)
def test_a_wrong_rule_is_refused_when_it_is_made_and_says_where(make: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        make()


def test_rules_are_values() -> None:
    first = NUMBERED.order(wait="1 minute").delay(after="a", by=1, emit="b")
    second = NUMBERED.order(wait=60_000_000).delay(after="a", by=1, emit="b")
    assert first == second
    assert hash(first) == hash(second)


def test_a_builder_leaves_the_rules_it_is_called_on_as_they_were() -> None:
    TIMED.delay(after="x", by=1, emit="later")
    assert run(TIMED, timed("a", 0)) == [("event", "pass", 0, "a")]


def test_an_id_is_remembered_until_no_duplicate_of_it_can_come() -> None:
    rules = TIMED.deduplicate(within=80)
    events = timed("a", 0), timed("b", 15), timed("c", 90), timed("b", 92)
    assert released(rules, *events, delay=0) == ["a", "b", "c"]


def test_a_deadline_that_waited_behind_a_held_gap_fires_when_the_gap_is_filled_after_all() -> None:
    rules = NUMBERED.order(wait=100, on_gap="hold").delay(after="a", by=10, emit="ten later")
    events = numbered(1, 0, type="a"), numbered(3, 5), numbered(1, 150, key="z"), numbered(2, 150)
    assert [r.due for r in rules.run(events) if r.kind == "emit"] == [10]
