"""The contract of docs/rules.md, sentence by sentence: rules that look at events of which a condition holds."""

from typing import Any

import pytest

from tests.rules.events import TIMED, heartbeat, run_but_events, timed
from waterclock.rules import Rules
from waterclock.rules.engine import Engine
from waterclock.rules.events import Answers, Event

LARGE = "amount > 100"


def paid(id: str, time: int, amount: Any, type: str = "paid") -> dict[str, Any]:
    return timed(id, time, type, amount=amount)


def test_a_delay_is_made_by_events_of_which_its_condition_holds() -> None:
    rules = TIMED.delay(after="paid", by=5, emit="thank", where=LARGE)
    events = paid("a", 0, 101), paid("b", 1, 100), paid("c", 2, None), paid("d", 3, 500, "owed")
    assert run_but_events(rules, *events) == [("emit", "thank", 5, "a")]


def test_an_expectation_is_opened_by_events_of_which_where_holds() -> None:
    rules = TIMED.expect("paid", after="owed", within=9, otherwise="unpaid", where=LARGE)
    assert run_but_events(rules, paid("a", 0, 101, "owed"), paid("b", 1, 7, "owed"), heartbeat(99)) == [
        ("expired", "unpaid", 9, "a")
    ]


def test_an_expectation_is_met_by_events_of_which_met_where_holds() -> None:
    rules = TIMED.expect("paid", after="owed", within=9, otherwise="unpaid", met_where="amount >= 100")
    owed = paid("a", 0, None, "owed")
    assert run_but_events(rules, owed, paid("b", 1, 99), heartbeat(99)) == [("expired", "unpaid", 9, "a")]
    assert run_but_events(rules, owed, paid("b", 1, 99), paid("c", 2, 100)) == [("met", "unpaid", 9, "a")]


def test_an_expectation_is_withdrawn_by_events_of_which_cancel_where_holds() -> None:
    words: Any = {"otherwise": "unpaid", "cancel_by": ["waived"], "cancel_where": "amount is None"}
    rules = TIMED.expect("paid", after="owed", within=9, **words)
    owed = paid("a", 0, 500, "owed")
    assert run_but_events(rules, owed, paid("b", 1, None, "waived"), heartbeat(99)) == []
    assert run_but_events(rules, owed, paid("b", 1, 3, "waived"), heartbeat(99)) == [("expired", "unpaid", 9, "a")]


def test_a_type_that_meets_and_cancels_does_what_its_conditions_say() -> None:
    words: Any = {"otherwise": "unpaid", "cancel_by": ["paid"], "met_where": LARGE, "cancel_where": "amount < 100"}
    rules = TIMED.expect("paid", after="owed", within=9, **words)
    owed = paid("a", 0, None, "owed")
    assert run_but_events(rules, owed, paid("b", 1, 101)) == [("met", "unpaid", 9, "a")]
    assert run_but_events(rules, owed, paid("b", 1, 99), heartbeat(99)) == []
    assert run_but_events(rules, owed, paid("b", 1, 100), heartbeat(99)) == [("expired", "unpaid", 9, "a")]


@pytest.mark.parametrize("rule", ["quiet", "session"])
def test_a_silence_does_not_hear_events_of_which_its_condition_does_not_hold(rule: str) -> None:
    rules = TIMED.quiet(9, "calm", where=LARGE) if rule == "quiet" else TIMED.session(9, "calm", where=LARGE)
    events = paid("a", 0, 5), paid("b", 1, 101), paid("c", 6, 5), heartbeat(99)
    assert run_but_events(rules, *events) == [("quiet", "calm", 10, "b")]


def test_each_silence_hears_what_its_own_condition_says() -> None:
    rules = TIMED.quiet(9, "calm", where=LARGE).quiet(9, "silent")
    events = paid("a", 0, 101), paid("b", 5, 5), heartbeat(99)
    assert run_but_events(rules, *events) == [("quiet", "calm", 9, "a"), ("quiet", "silent", 14, "b")]


def test_an_event_that_no_silence_hears_leaves_no_state_behind() -> None:
    engine = Engine(TIMED.quiet(9, "calm", where=LARGE))
    engine.step([("k", Event(0, "a", None, "x", None, None, Answers(holds=(False,))))], -1)
    engine.step((), 1)
    assert engine.keys() == []


def test_a_value_that_a_condition_cannot_look_at_is_refused_by_number() -> None:
    rules = TIMED.delay(after="paid", by=5, emit="thank", where=LARGE)
    with pytest.raises(
        ValueError, match=r"event 2: the condition 'amount > 100' compares the column 'amount' \(a text\)"
    ):
        list(rules.run([paid("a", 0, 1), paid("b", 0, "1")]))
    with pytest.raises(ValueError, match="event 1 has no column 'amount'"):
        list(rules.run([timed("a", 0)]))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda where: TIMED.delay("a", 1, "x", where=where), r"delay\(where=\)"),
        (lambda where: TIMED.quiet(1, "x", where=where), r"quiet\(where=\)"),
        (lambda where: TIMED.session(1, "x", where=where), r"session\(where=\)"),
        (lambda where: TIMED.expect("a", after="b", within=1, otherwise="x", where=where), r"expect\(where=\)"),
        (lambda where: TIMED.expect("a", after="b", within=1, otherwise="x", met_where=where), r"expect\(met_where=\)"),
        (
            lambda where: TIMED.expect("a", after="b", within=1, otherwise="x", cancel_by=["c"], cancel_where=where),
            r"expect\(cancel_where=\)",
        ),
    ],
)
def test_what_is_no_condition_is_refused_when_the_rule_is_made(make: Any, said: str) -> None:
    with pytest.raises(ValueError, match=f"^{said}: 'a = 1' is no condition"):
        make("a = 1")
    for where in (5, ""):
        with pytest.raises(ValueError, match=f"^{said} must be a condition such as amount > 100, got {where!r}"):
            make(where)


def test_a_condition_on_what_cancels_needs_something_that_cancels() -> None:
    with pytest.raises(ValueError, match=r"expect\(cancel_where=\) looks at events that cancel: name their types"):
        TIMED.expect("a", after="b", within=1, otherwise="x", cancel_where="a > 1")


def test_the_columns_of_conditions_are_columns_of_the_rules() -> None:
    rules = (
        Rules(key="k", time="t", type="w")
        .delay("a", 1, "x", where="k == 'x' and b > 1")
        .quiet(1, "y", where="c is None")
    )
    assert rules.columns() == ("k", "t", "w", "b", "c")
