"""The contract of docs/rules.md, sentence by sentence: what every rule relies on. In which order deadlines fire, and
what becomes of late events.
"""

from itertools import product
from typing import Any

import pytest

from tests.rules.events import NUMBERED, TIMED, heartbeat, numbered, released, run, run_but_events, timed, told
from waterclock.rules.engine import CLOSED, Engine
from waterclock.rules.events import Event


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


def test_a_deadline_that_waited_behind_a_held_gap_fires_when_the_gap_is_filled_after_all() -> None:
    rules = NUMBERED.order(wait=100, on_gap="hold").delay(after="a", by=10, emit="ten later")
    events = numbered(1, 0, type="a"), numbered(3, 5), numbered(1, 150, key="z"), numbered(2, 150)
    assert [r.due for r in rules.run(events) if r.kind == "emit"] == [10]


def test_of_deadlines_that_waited_behind_a_gap_and_those_that_its_end_makes_the_earlier_fires_first() -> None:
    """They fired in front of all that the end of the gap made, whichever was due: a simulation of pipelines found it."""
    rules = (
        NUMBERED.order(wait=100, on_gap="hold").delay(after="a", by=40, emit="first").delay(after="b", by=5, emit="b")
    )
    events = numbered(1, 0, type="a"), numbered(3, 5, type="b"), numbered(1, 150, key="z"), numbered(2, 150)
    assert [r.due for r in rules.run(events) if r.kind == "emit"] == [10, 40]


def test_of_equal_ones_that_which_waited_behind_a_gap_fires_first() -> None:
    """It was made before what the end of the gap makes."""
    rules = NUMBERED.order(wait=100).delay(after="a", by=40, emit="waited").delay(after="b", by=35, emit="made")
    events = numbered(1, 0, type="a"), numbered(3, 5, type="b"), heartbeat(90), numbered(2, 90)
    assert [(r.rule, r.due) for r in rules.run(events) if r.kind == "emit"] == [("waited", 40), ("made", 40)]


def test_what_waited_fires_before_what_is_due_with_it_and_was_made_later() -> None:
    """Also where the gap ends at the moment of both: the watermark has passed the second one before the first is back."""
    rules = NUMBERED.order(wait=35).delay(after="a", by=40, emit="waited").delay(after="b", by=38, emit="made")
    events = numbered(1, 0, type="a"), numbered(4, 5), numbered(2, 2, type="b"), heartbeat(50)
    assert [(r.rule, r.due) for r in rules.run(events, 10) if r.kind == "emit"] == [("waited", 40), ("made", 40)]


def test_what_waited_does_not_wait_for_a_later_deadline_that_has_to_wait_on() -> None:
    """A deadline that the end of one gap makes may wait behind the next one: it stood behind a later one that waited."""
    rules = NUMBERED.order(wait=500, on_gap="hold").delay(after="a", by=40, emit="a").delay(after="b", by=5, emit="b")
    events = [numbered(1, 0, type="a"), numbered(3, 5, type="b"), numbered(5, 8), numbered(7, 20), heartbeat(90)]
    rows = [*events, numbered(2, 90), numbered(4, 91), numbered(6, 92)]
    emitted = [(r.rule, r.due, r.emitted_at) for r in rules.run(rows) if r.kind == "emit"]
    assert emitted == [("b", 10, 90), ("a", 40, 91)]
