"""The contract of docs/rules.md, sentence by sentence: a deadline from a column, `expect(by=)`."""

from datetime import datetime

import pytest

from tests.rules.events import NUMBERED, TIMED, heartbeat, numbered, run_but_events, timed, told
from waterclock.rules import Rules

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
