"""The contract of docs/rules.md, sentence by sentence: what is made of released events, by `delay`, `deliver_at`,
`expect`, `quiet` and `session`.
"""

from tests.rules.events import NUMBERED, TIMED, heartbeat, numbered, released, run, run_but_events, timed, told

# ---------------------------------------------------------------- delay


def test_each_event_of_the_type_makes_one_emit_at_its_time_plus_by() -> None:
    rules = TIMED.delay(after="fine", by=60, emit="penalty")
    events = timed("a", 0, "fine"), timed("b", 5, "other"), timed("c", 5, "fine")
    assert run_but_events(rules, *events) == [("emit", "penalty", 60, "a"), ("emit", "penalty", 65, "c")]


def test_a_type_that_is_a_number_is_compared_as_a_text() -> None:
    # on Spark it was, in process it met no rule: the same rules gave other results
    rules = TIMED.delay(after="3", by=60, emit="penalty").delay(after="true", by=60, emit="told")
    events = timed("a", 0, 3), timed("b", 5, True), timed("c", 5, None)  # type: ignore[arg-type]
    assert run_but_events(rules, *events) == [("emit", "penalty", 60, "a"), ("emit", "told", 65, "b")]


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


# ---------------------------------------------------------------- several types


def test_a_delay_after_several_types_is_made_by_each_of_them() -> None:
    rules = TIMED.delay(after=["fine", "pay"], by=5, emit="later")
    events = timed("a", 0, "fine"), timed("b", 1, "other"), timed("c", 2, "pay")
    assert run_but_events(rules, *events) == [("emit", "later", 5, "a"), ("emit", "later", 7, "c")]


def test_an_expectation_of_several_types_is_met_by_whichever_comes_first() -> None:
    rules = TIMED.expect(["pay", "appeal"], after="fine", within=60, otherwise="unpaid")
    for type in ("pay", "appeal"):
        assert run_but_events(rules, timed("a", 0, "fine"), timed("b", 59, type)) == [("met", "unpaid", 60, "a")]
    events = timed("a", 0, "fine"), timed("b", 5, "pay"), timed("c", 9, "appeal")
    assert run_but_events(rules, *events) == [("met", "unpaid", 60, "a")]


def test_an_expectation_after_several_types_is_opened_by_each_of_them() -> None:
    rules = TIMED.expect("pay", after=("fine", "penalty"), within=60, otherwise="unpaid")
    events = timed("a", 0, "fine"), timed("b", 5, "penalty"), heartbeat(99)
    assert run_but_events(rules, *events) == [("expired", "unpaid", 60, "a"), ("expired", "unpaid", 65, "b")]


def test_a_list_of_one_type_is_that_type() -> None:
    assert TIMED.delay(after=["a", "a"], by=5, emit="x") == TIMED.delay(after="a", by=5, emit="x")
    assert TIMED.expect(["a"], after=["b"], within=5, otherwise="x") == TIMED.expect(
        "a", after="b", within=5, otherwise="x"
    )


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


def test_expect_and_quiet_imply_order_by_time() -> None:
    for rules in (
        NUMBERED.expect("y", after="z", within=5, otherwise="no"),
        NUMBERED.quiet(after=99, emit="q"),
    ):
        events = numbered(1, 30), numbered(2, 20), numbered(3, 20, id="a")
        assert released(rules, *events, delay=50) == ["e2", "a", "e1"]


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
