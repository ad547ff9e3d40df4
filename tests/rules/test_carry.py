"""The contract of docs/rules.md, sentence by sentence: results that carry columns of the event that opened them."""

import json
from typing import Any

import pytest

from tests.rules.events import NUMBERED, TIMED, heartbeat, numbered, timed
from waterclock.rules import Rules
from waterclock.rules.engine import CLOSED, Engine
from waterclock.rules.events import Answers, Event


def carried(rules: Rules, *events: dict[str, Any], delay: int = 0) -> list[tuple[str, str, Any]]:
    """(kind, source id, what it carries) of the results that are no events."""
    found = rules.run(events, watermark_delay=delay)
    return [(r.kind, r.source_id, r.event) for r in found if r.kind != "event"]


def test_a_delay_carries_columns_of_its_event_and_no_others() -> None:
    rules = TIMED.delay(after="x", by=5, emit="later", carry=["amount", "type"])
    assert carried(rules, timed("a", 0, amount=7, more=1)) == [("emit", "a", {"amount": 7, "type": "x"})]


def test_an_expectation_carries_columns_of_the_event_that_opened_it_met_or_not() -> None:
    rules = TIMED.expect("pay", after="fine", within=60, otherwise="unpaid", carry=["amount"])
    fine, paid = timed("a", 0, "fine", amount=7), timed("b", 5, "pay", amount=8)
    assert carried(rules, fine, paid) == [("met", "a", {"amount": 7})]
    assert carried(rules, fine) == [("expired", "a", {"amount": 7})]


def test_a_silence_carries_columns_of_the_last_event_before_it() -> None:
    rules = TIMED.quiet(9, "calm", carry=["amount"])
    events = [timed(id, time, amount=amount) for id, time, amount in (("a", 0, 1), ("b", 5, 2), ("c", 30, 3))]
    assert carried(rules, *events, heartbeat(99)) == [("quiet", "b", {"amount": 2}), ("quiet", "c", {"amount": 3})]


def test_a_silence_that_had_happened_before_its_key_woke_carries_its_own_event() -> None:
    rules = NUMBERED.order(wait=50).quiet(9, "calm", carry=["amount"])
    events = [numbered(n, time, amount=n) for n, time in ((3, 40), (1, 0), (2, 20))]
    assert carried(rules, *events, delay=45) == [
        ("quiet", "e1", {"amount": 1}),
        ("quiet", "e2", {"amount": 2}),
        ("quiet", "e3", {"amount": 3}),
    ]


def test_each_rule_carries_its_own_columns_and_one_without_carries_nothing() -> None:
    rules = TIMED.delay("x", 1, "a", carry=["m"]).delay("x", 2, "b", carry=["n", "m"]).delay("x", 3, "c")
    assert [event for _, _, event in carried(rules, timed("e", 0, m=1, n=2))] == [{"m": 1}, {"n": 2, "m": 1}, None]


def test_what_is_null_is_carried_as_null() -> None:
    rules = TIMED.quiet(9, "calm", carry=["amount"])
    assert carried(rules, timed("a", 0, amount=None)) == [("quiet", "a", {"amount": None})]


def test_values_that_are_not_equal_to_themselves_are_carried_too() -> None:
    """NaN, read anew from the state, was not found among what is open: nothing expired."""
    rules = (
        NUMBERED.order()
        .expect("pay", after="fine", within=5, otherwise="x", carry=["amount"])
        .quiet(5, "calm", carry=["amount"])
    )
    engine, nan = Engine(rules), float("nan")
    for number, time in ((1, 0), (2, 60)):
        event = Event(time, str(number), number, "fine", None, None, Answers(carried=(nan,)))
        engine.step([("k", event)], -1)
        state, engine = json.loads(json.dumps(engine.dump())), Engine(rules)
        engine.load(state)
    found = engine.step((), CLOSED)
    assert [(f.kind, f.source_id, str(f.carried)) for f in found] == [
        (kind, source, "(nan,)") for source in "12" for kind in ("expired", "quiet")
    ]


def test_a_result_that_carries_columns_has_the_id_that_it_has_without() -> None:
    event = timed("a", 0, amount=7)
    ids = [
        [r.result_id for r in TIMED.delay(after="x", by=5, emit="later", carry=carry).run([event])]
        for carry in ([], ["amount"])
    ]
    assert ids[0] == ids[1]


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda carry: TIMED.delay("a", 1, "x", carry=carry), "delay"),
        (lambda carry: TIMED.expect("a", after="b", within=1, otherwise="x", carry=carry), "expect"),
        (lambda carry: TIMED.quiet(1, "x", carry=carry), "quiet"),
        (lambda carry: TIMED.session(1, "x", carry=carry), "session"),
    ],
)
def test_what_is_no_list_of_columns_is_refused(make: Any, said: str) -> None:
    with pytest.raises(TypeError, match=rf"{said}\(carry=\) must be a list of columns, got the text 'amount'"):
        make("amount")
    with pytest.raises(TypeError, match=rf"{said}\(carry=\) must be a list of columns, got 5"):
        make(5)
    with pytest.raises(ValueError, match=rf"{said}\(carry=\) must be a name, got ''"):
        make([""])


def test_a_column_to_carry_that_an_event_lacks_is_refused_by_number() -> None:
    with pytest.raises(ValueError, match="event 1 has no column 'amount'"):
        list(TIMED.quiet(1, "x", carry=["amount"]).run([timed("a", 0)]))
