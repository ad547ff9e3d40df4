"""The contract of docs/rules.md, sentence by sentence: what a result carries; and the counters, beside an oracle's."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given

from tests.rules.events import NUMBERED, TIMED, heartbeat, numbered, timed, told
from tests.rules.oracle import FOREVER, Oracle, Spec
from tests.rules.test_properties import Stream, build, few, keyed, many, specs, streams
from waterclock.rules.engine import CLOSED, NO_WATERMARK, Engine


def test_a_released_event_and_a_late_one_carry_the_event_and_the_others_do_not() -> None:
    rules = NUMBERED.order(wait=5).delay(after="x", by=1, emit="later").quiet(after=99, emit="silent")
    rules = rules.expect("y", after="x", within=9, otherwise="no")
    events = [numbered(2, 10), heartbeat(15), numbered(1, 10, "y"), numbered(3, 16, "y")]
    results = list(rules.run(events))
    assert {r.kind for r in results if r.event is None} == {"gap", "emit", "met", "quiet"}
    assert [r.event for r in results if r.kind == "event"] == [events[0], events[3]]
    assert [r.event for r in results if r.kind == "late"] == [events[2]]


def test_with_events_switched_off_no_event_is_a_result_and_all_else_is_as_it_was() -> None:
    events = [numbered(2, 10), heartbeat(15), numbered(1, 10, "y"), numbered(3, 16, "y"), numbered(9, 17)]
    for on_gap in ("skip", "dead_letter"):
        found = []
        for rules in (NUMBERED, replace(NUMBERED, events=False)):
            rules = (
                rules.order(wait=5, on_gap=on_gap).delay(after="x", by=1, emit="later").quiet(after=99, emit="silent")
            )
            found.append([told(r) for r in rules.run(events)])
        assert found[1] == [f for f in found[0] if f[0] != "event"]
        assert {f[0] for f in found[1]} == {"gap", "late", "quiet", *(["emit"] if on_gap == "skip" else [])}


def test_events_that_are_switched_off_cannot_be_delivered() -> None:
    with pytest.raises(ValueError, match=r"deliver_at\(\) delivers events, and Rules\(events=False\) leaves them out"):
        replace(TIMED, events=False).deliver_at("at")
    with pytest.raises(TypeError, match=r"Rules\(events=\) must be True or False, got 'no'"):
        replace(TIMED, events="no")


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


# Counters, at random


def counts_as_the_oracle(spec: Spec, stream: Stream) -> None:
    engine, oracle = Engine(build(spec)), Oracle(spec)
    for row in stream.rows:
        engine.step([keyed(spec, row, row.id)], NO_WATERMARK)
        engine.step((), row.time - stream.watermark_delay)
        oracle.arrive(row)
        oracle.advance(row.time - stream.watermark_delay)
        assert oracle.counters() == engine.counters.to_dict()
    engine.step((), CLOSED)
    oracle.advance(FOREVER)
    assert oracle.counters() == engine.counters.to_dict()


@few
@given(specs(), streams(late=True))
def test_the_counters_say_what_the_oracle_counts(spec: Spec, stream: Stream) -> None:
    counts_as_the_oracle(spec, stream)


@few
@given(specs(sequence=True, wait=3, within=None), streams(late=True))
def test_the_counters_of_streams_with_gaps_say_what_the_oracle_counts(spec: Spec, stream: Stream) -> None:
    counts_as_the_oracle(spec, stream)


@pytest.mark.long(seconds=30)
@many
@given(specs(), streams(late=True, max_size=40))
def test_the_counters_of_long_streams_say_what_the_oracle_counts(spec: Spec, stream: Stream) -> None:
    counts_as_the_oracle(spec, stream)
