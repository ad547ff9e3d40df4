"""The contract of docs/rules.md, sentence by sentence: rules that look at other columns of an event."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from tests.rules.events import NUMBERED, TIMED, heartbeat, numbered, run_but_events, timed, told
from waterclock.rules import Rules
from waterclock.rules.engine import CLOSED, Engine
from waterclock.rules.events import Answers, Event

# Conditions: `where=`


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


# Deadlines: `expect(by=)`


PROMISED = TIMED.expect("delivered", after="ordered", by="promised_at", otherwise="too late")


def test_the_deadline_is_the_time_in_the_column_of_the_event_that_opens_it() -> None:
    ordered = timed("a", 0, "ordered", promised_at=50)
    for at, kind in ((49, "met"), (50, "expired")):
        events = ordered, timed("b", at, "delivered", promised_at=None)
        assert run_but_events(PROMISED, *events) == [(kind, "too late", 50, "a")]


def test_each_event_has_a_deadline_of_its_own() -> None:
    events = [timed(id, 0, "ordered", promised_at=at) for id, at in (("a", 50), ("b", 20), ("c", 90))]
    found = list(PROMISED.run([*events, timed("d", 40, "delivered", promised_at=None)]))
    assert [told(r) for r in found if r.kind != "event"] == [
        ("expired", "too late", 20, "b"),
        ("met", "too late", 50, "a"),
        ("met", "too late", 90, "c"),
    ]


def test_where_the_column_is_null_no_expectation_is_opened() -> None:
    assert run_but_events(PROMISED, timed("a", 0, "ordered", promised_at=None), heartbeat(99)) == []


def test_a_deadline_before_the_event_itself_expires_once_it_is_passed() -> None:
    events = timed("a", 60, "ordered", promised_at=10), heartbeat(70)
    assert [(*told(r), r.emitted_at) for r in PROMISED.run(events, watermark_delay=9)] == [
        ("event", "order", 60, "a", 61),
        ("expired", "too late", 10, "a", 61),
    ]


def test_a_deadline_before_the_event_itself_is_met_by_an_earlier_time_later_in_the_sequence() -> None:
    rules = NUMBERED.order(wait=100).expect("b", after="a", by="to", otherwise="x")
    events = numbered(1, 60, "a", to=10), numbered(2, 9, "b", to=None)
    assert run_but_events(rules, *events, delay=100) == [("met", "x", 10, "e1")]


def test_the_times_may_be_datetimes() -> None:
    rules = Rules(key="k", time="t", type="w", id="i").expect("b", after="a", by="to", otherwise="x")
    day = [datetime(2026, 1, number) for number in range(1, 5)]
    events = [{"k": 1, "t": day[0], "w": "a", "i": "1", "to": day[2]}, {"k": None, "t": day[3]}]
    assert [r.due for r in rules.run(events) if r.kind == "expired"] == [day[2]]


def test_a_value_that_is_no_time_is_refused_by_number_and_column() -> None:
    with pytest.raises(ValueError, match="event 1, column 'promised_at': needs a datetime or integer microseconds"):
        list(PROMISED.run([timed("a", 0, "ordered", promised_at="soon")]))
    with pytest.raises(ValueError, match="event 1 has no column 'promised_at'"):
        list(PROMISED.run([timed("a", 0, "ordered")]))


@pytest.mark.parametrize("words", [{}, {"within": 5, "by": "to"}])
def test_an_expectation_has_one_deadline(words: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"expect\(\) needs a deadline: either within=, a duration, or by=, a column"):
        TIMED.expect("b", after="a", otherwise="x", **words)  # type: ignore[arg-type]


def test_the_repr_of_rules_that_could_be_written_before_is_as_it_was() -> None:
    """A checkpoint keeps it, and goes on where it is the same."""
    rules = NUMBERED.deduplicate(5).order(wait=7).delay("a", 3, "d").quiet(9, "q").deliver_at("at")
    assert repr(rules.expect("b", after="a", within=60, otherwise="x", cancel_by=["c"])) == (
        "Rules(key='key', time='time', type='type', id='id', sequence='number', within_us=5, "
        "ordering=Order(wait_us=7, on_gap='skip'), delays=(Delay(after='a', by_us=3, emit='d'),), "
        "expects=(Expect(type='b', after='a', within_us=60, otherwise='x', cancel_by=('c',)),), "
        "quiets=(Quiet(after_us=9, emit='q'),), deliver_column='at')"
    )
    assert "within_us=None, otherwise='too late', cancel_by=(), by='promised_at')" in repr(PROMISED)


# What results carry: `carry=`


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
