"""The contract of docs/rules.md, sentence by sentence: its words, the columns, and `deduplicate`."""

from datetime import timedelta
from typing import Any

import pytest

from tests.rules.events import NUMBERED, TIMED, heartbeat, numbered, released, run, run_but_events, timed
from waterclock.rules import Rules

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


def test_an_id_is_remembered_until_no_duplicate_of_it_can_come() -> None:
    rules = TIMED.deduplicate(within=80)
    events = timed("a", 0), timed("b", 15), timed("c", 90), timed("b", 92)
    assert released(rules, *events, delay=0) == ["a", "b", "c"]
