"""Properties of the rules, on random streams: disorder, duplicates, losses, several keys, all rules combined.

Rule 1: what is right comes from the oracle (oracle.py) or from the input, never from the engine.
Rule 2: `streams()` is never late unless it says so; late events are where a cut into batches may show.
"""

import json
from collections import Counter
from dataclasses import asdict
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.campaign import examples
from tests.rules.oracle import CONDITIONS, Expectation, Oracle, Out, Row, Spec
from waterclock.rules import Result, Rules
from waterclock.rules.engine import CLOSED, Engine
from waterclock.rules.events import Answers, Event, Questions, tie

pytestmark = pytest.mark.always

few = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
many = settings(max_examples=examples(6000), deadline=None, suppress_health_check=list(HealthCheck))

# ---------------------------------------------------------------- random rules and streams

EPOCHS = (0, -1_000, 1_700_000_000_000_000, -3_000_000_000_000_000)  # before 1970, too
TYPES = ("ask", "pay", "stop", "other")


@st.composite
def specs(draw: st.DrawFn, **fixed: Any) -> Spec:
    def some(*pool: Any) -> Any:
        return tuple(draw(st.lists(st.sampled_from(pool), max_size=2, unique=True)))

    chosen = {
        "within": draw(st.sampled_from([None, None, 0, 4, 25])),
        "wait": draw(st.sampled_from([None, 0, 3, 10, 30])),
        "tie": draw(st.sampled_from([(), (), ("id",), ("amount", "type"), ("type",)])),
        "on_gap": draw(st.sampled_from(["skip", "hold", "dead_letter"])),
        "sequence": draw(st.booleans()),
        "deliver": draw(st.booleans()),
        "events": draw(st.sampled_from([True, True, True, False])),
        "delays": some(
            (("ask", "pay"), 5, "for both", None, ("amount", "number")),
            ("ask", 7, "seven later", None, ()),
            ("pay", 0, "at once", None, ()),
            ("ask", 3, "large", "amount > 2", ()),
        ),
        "expects": some(
            Expectation("pay", "ask", 8, "unpaid", ("stop",)),
            Expectation(("pay", "stop"), ("ask", "pay"), 6, "nothing more", carry=("number", "amount")),
            Expectation("ask", "ask", 5, "asked once"),
            Expectation("other", "pay", 0, "never in time"),
            Expectation("pay", "ask", None, "promise broken", ("stop",)),
            Expectation(
                "pay", "ask", 9, "owed", ("stop",), "amount > 2", "amount is None or type == 'ask'", "amount > 2"
            ),
            Expectation("ask", "ask", None, "small", ("ask",), "not amount > 2", "amount > 2", "not amount > 2"),
        ),
        "quiets": some(
            (9, "quiet", None, ()),
            (0, "still", None, ("amount",)),
            (20, "gone", None, ()),
            (6, "not a word", "amount > 2", ("amount", "type")),
        ),
    }
    chosen |= fixed
    if chosen["sequence"] or chosen["wait"] is None:
        chosen["tie"] = ()  # a word of `order`, where there is no sequence
    chosen["deliver"] = chosen["deliver"] and chosen["events"]
    if not chosen["sequence"]:
        chosen["on_gap"] = "skip"  # there are no gaps
    return Spec(**chosen)


class Stream(NamedTuple):
    rows: list[Row]
    watermark_delay: int


@st.composite
def streams(draw: st.DrawFn, late: bool = False, max_size: int = 14) -> Stream:
    """Rows as they arrive, each at most `watermark_delay` behind the newest before it, unless `late`."""
    watermark_delay = draw(st.sampled_from([0, 1, 6, 20, 45]))
    disorder = watermark_delay * 2 + 12 if late else watermark_delay
    epoch, grain = draw(st.sampled_from(EPOCHS)), draw(st.sampled_from([1, 1, 10]))  # 10: much is due at one instant
    at = {"a": epoch, "b": epoch}
    number = {"a": 0, "b": 0}
    arrivals: list[tuple[int, int, Row]] = []
    for count in range(draw(st.integers(1, max_size))):
        key = draw(st.sampled_from(["a", "a", "b", None]))
        if key is None:
            when = max(at.values()) + draw(st.integers(-3, 8))
            arrivals.append((when, count, Row(None, when)))
            continue
        at[key] += draw(st.integers(-8, 12)) // grain * grain  # times need not follow the sequence
        number[key] += draw(st.sampled_from([1, 1, 1, 1, 2, 3, 0, 10**9]))
        number[key] = max(number[key], 1)
        near = st.none() | st.integers(-10, 40).map(lambda after, now=at[key]: now + after // grain * grain)
        more = draw(near), draw(near), draw(st.sampled_from([None, 1, 2, 3]))
        row = Row(key, at[key], f"e{count:02}", number[key], draw(st.sampled_from(TYPES)), *more)
        for _ in range(draw(st.sampled_from([1, 1, 1, 0, 2]))):  # kept, lost or doubled
            again = row._replace(time=row.time + draw(st.sampled_from([0, 0, 3])))
            arrivals.append((again.time + draw(st.integers(0, disorder)), len(arrivals), again))
    arrivals.sort(key=lambda arrival: arrival[:2])
    return Stream([row for _, _, row in arrivals], watermark_delay)


# ---------------------------------------------------------------- the rules under test


def build(spec: Spec) -> Rules:
    sequence = "number" if spec.sequence else None
    rules = Rules(key="key", time="time", type="type", id="id", sequence=sequence, events=spec.events)
    if spec.within is not None:
        rules = rules.deduplicate(within=spec.within)
    if spec.wait is not None:
        rules = rules.order(wait=spec.wait, on_gap=spec.on_gap, tie=spec.tie)
    if spec.deliver:
        rules = rules.deliver_at("deliver")
    for after, by, emit, where, carry in spec.delays:
        rules = rules.delay(after=after, by=by, emit=emit, where=where, carry=carry)
    for e in spec.expects:
        told = asdict(e) | {"by": "promised" if e.within is None else None}
        rules = rules.expect(told.pop("type"), **told)
    for after, emit, where, carry in spec.quiets:
        rules = rules.quiet(after=after, emit=emit, where=where, carry=carry)
    return rules


def run(spec: Spec, stream: Stream) -> list[Result]:
    return list(build(spec).run(map(mapping, stream.rows), watermark_delay=stream.watermark_delay))


def mapping(row: Row) -> dict[str, Any]:
    return {"key": None, "time": row.time} if row.key is None else row._asdict()


def told(result: Any) -> Out:
    opened = result.kind in ("emit", "expired", "met", "quiet") and result.event
    return Out(result.kind, result.key, result.rule, result.due, result.source_id, tuple((opened or {}).items()))


def in_order(results: list[Any], key: str, delivered: bool) -> list[Out]:
    """The released events of a key; those that `deliver_at` held apart from those that went out at once."""
    events = [told(r) for r in results if r.kind == "event" and r.key == key]
    return [out for out in events if (out.rule == "deliver_at") == delivered]


def fired(results: list[Any], key: str) -> list[int]:
    """When the deadlines of a key were due, as they fired."""
    return [r.due for r in results if r.kind in ("emit", "expired", "quiet") and r.key == key]


def keyed(spec: Spec, row: Row, ref: Any) -> tuple[str | None, Event]:
    return row.key, Event(
        time=row.time,
        id=row.id,
        sequence=row.number if spec.sequence else None,
        type=row.type,
        deliver=row.deliver if spec.deliver else None,
        ref=ref,
        answers=answers(build(spec).questions(), row),
    )


def answers(questions: Questions, row: Row) -> Answers | None:
    dues = tuple(row.promised for _ in questions.dues)
    holds = tuple(CONDITIONS[text](row) for text in questions.conditions)
    carried = tuple(getattr(row, name) for name in questions.carried)
    return (
        Answers(dues, holds, carried, tuple(tie(getattr(row, name)) for name in questions.ties)) if questions else None
    )


def batches(stream: Stream, cuts: set[int]) -> list[tuple[int, list[Row]]]:
    """(watermark, rows) for each batch: one starts at each cut, its watermark is that of EARLIER batches."""
    found, rows = [], stream.rows
    starts = sorted({0, *(cut for cut in cuts if cut < len(rows))})
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        seen = [row.time for row in rows[:start]]
        found.append((max(seen) - stream.watermark_delay if seen else -CLOSED, rows[start:end]))
    return found


def run_in_batches(spec: Spec, stream: Stream, cuts: set[int], reload: bool = False) -> tuple[list[Any], list[str]]:
    """(what was found, the dump after each batch), without and with dump and load between the batches."""
    rules = build(spec)
    engine = Engine(rules)
    found, dumps = [], []
    steps = [([keyed(spec, r, r.id) for r in rows], watermark) for watermark, rows in batches(stream, cuts)]
    for events, watermark in [*steps, ((), CLOSED)]:
        found += engine.step(events, watermark)
        dumps.append(json.dumps(engine.dump()))  # raises unless it is plain; the refs here are texts
        if reload:
            engine = Engine(rules)
            engine.load(json.loads(dumps[-1]))
    return found, dumps


cuts = st.sets(st.integers(1, 25), max_size=6)


# ---------------------------------------------------------------- (1) as the oracle says


def agrees_with_the_oracle(spec: Spec, stream: Stream) -> None:
    results = run(spec, stream)
    expected = Oracle(spec).run(stream.rows, stream.watermark_delay)
    assert Counter(expected) == Counter(map(told, results))
    for key in "ab":
        for delivered in (False, True):
            assert in_order(expected, key, delivered) == in_order(results, key, delivered)
        assert fired(expected, key) == fired(results, key)


@few
@given(specs(), streams())
def test_a_stream_in_disorder_gives_what_the_oracle_says(spec: Spec, stream: Stream) -> None:
    agrees_with_the_oracle(spec, stream)


@few
@given(specs(), streams(late=True))
def test_a_stream_with_late_events_gives_what_the_oracle_says(spec: Spec, stream: Stream) -> None:
    agrees_with_the_oracle(spec, stream)


@few
@given(specs(sequence=True, within=None), streams(late=True))
def test_a_stream_with_gaps_gives_what_the_oracle_says(spec: Spec, stream: Stream) -> None:
    agrees_with_the_oracle(spec, stream)


@pytest.mark.long(seconds=30)
@many
@given(specs(), streams(late=True, max_size=40))
def test_long_streams_give_what_the_oracle_says(spec: Spec, stream: Stream) -> None:
    agrees_with_the_oracle(spec, stream)


# ---------------------------------------------------------------- (2) cuts, and state carried over


def settled(found: list[Any]) -> Counter[Any]:
    """What no cut may change."""
    return Counter((f.kind, f.key, f.rule, f.due) for f in found)


def does_not_depend_on_cuts(spec: Spec, stream: Stream, some: set[int]) -> None:
    whole, _ = run_in_batches(spec, stream, set())
    pieces, _ = run_in_batches(spec, stream, some)
    singles, _ = run_in_batches(spec, stream, set(range(1, len(stream.rows))))
    assert settled(whole) == settled(pieces)
    assert settled(whole) == settled(singles)


@few
@given(specs(), streams(), cuts)
def test_the_cut_into_batches_changes_nothing_that_is_settled(spec: Spec, stream: Stream, some: set[int]) -> None:
    does_not_depend_on_cuts(spec, stream, some)


@few
@given(specs(sequence=True, within=None, deliver=False), streams(), cuts)
def test_the_cut_into_batches_changes_nothing_about_gaps(spec: Spec, stream: Stream, some: set[int]) -> None:
    does_not_depend_on_cuts(spec, stream, some)


@pytest.mark.long(seconds=30)
@many
@given(specs(), streams(max_size=40), cuts)
def test_no_cut_of_a_long_stream_changes_what_is_settled(spec: Spec, stream: Stream, some: set[int]) -> None:
    does_not_depend_on_cuts(spec, stream, some)


def by_key(dump: str) -> Any:
    """A dump with its keys in order: which one was first known is told by the straight run, not by a loaded one."""
    plain = json.loads(dump)
    return {**plain, "keys": sorted(plain["keys"])}


def is_carried_by_the_dump(spec: Spec, stream: Stream, some: set[int]) -> None:
    straight, dumps = run_in_batches(spec, stream, some)
    carried, dumps_carried = run_in_batches(spec, stream, some, reload=True)
    assert straight == carried  # the same results in the same order
    assert list(map(by_key, dumps)) == list(map(by_key, dumps_carried))


@few
@given(specs(), streams(late=True), cuts)
def test_the_dump_between_batches_carries_the_state_exactly(spec: Spec, stream: Stream, some: set[int]) -> None:
    is_carried_by_the_dump(spec, stream, some)


@pytest.mark.long(seconds=25)
@many
@given(specs(), streams(late=True, max_size=40), cuts)
def test_the_dump_of_a_long_stream_carries_the_state_exactly(spec: Spec, stream: Stream, some: set[int]) -> None:
    is_carried_by_the_dump(spec, stream, some)


@few
@given(specs(), streams(late=True), cuts)
def test_a_dump_stays_as_it_is_when_the_engine_goes_on(spec: Spec, stream: Stream, some: set[int]) -> None:
    engine, kept = Engine(build(spec)), []
    for watermark, rows in batches(stream, some):
        engine.step([keyed(spec, row, row.id) for row in rows], watermark)
        kept.append((dump := engine.dump(), json.dumps(dump)))
    engine.step((), CLOSED)
    assert [text for _, text in kept] == [json.dumps(dump) for dump, _ in kept]


# ---------------------------------------------------------------- (3) determinism


@few
@given(specs(), streams(late=True), cuts)
def test_the_same_batches_give_the_same_results_and_the_same_dump(spec: Spec, stream: Stream, some: set[int]) -> None:
    assert run_in_batches(spec, stream, some) == run_in_batches(spec, stream, some)
    assert run(spec, stream) == run(spec, stream)


@few
@given(specs(), streams(late=True), st.integers(-50, 50))
def test_moving_all_times_moves_the_results_and_nothing_else(spec: Spec, stream: Stream, by: int) -> None:
    def moved(time: int | None) -> int | None:
        return None if time is None else time + by

    rows = [
        row._replace(time=row.time + by, deliver=moved(row.deliver), promised=moved(row.promised))
        for row in stream.rows
    ]
    expected = [(told(r)._replace(due=r.due + by), moved(r.emitted_at)) for r in run(spec, stream)]
    assert expected == [(told(r), r.emitted_at) for r in run(spec, stream._replace(rows=rows))]


# ---------------------------------------------------------------- (4) in sequence, each once


@few
@given(specs(sequence=True, deliver=False, events=True, wait=10), streams(late=True))
def test_each_key_comes_out_in_sequence_and_each_number_once(spec: Spec, stream: Stream) -> None:
    results = run(spec, stream)
    for key in "ab":
        numbers = [r.event["number"] for r in results if r.kind == "event" and r.key == key]
        assert numbers == sorted(set(numbers))


@few
@given(specs(sequence=False, deliver=False, events=True, within=None, wait=0, tie=("id",)), streams(late=True))
def test_each_key_comes_out_in_order_of_time_and_tie(spec: Spec, stream: Stream) -> None:
    results = run(spec, stream)
    for key in "ab":
        places = [(r.event["time"], r.event["id"]) for r in results if r.kind == "event" and r.key == key]
        assert places == sorted(places)
    out = Counter((r.key, r.source_id, r.due) for r in results if r.kind in ("event", "late"))
    assert Counter((row.key, row.id, row.time) for row in stream.rows if row.key is not None) == out


# ---------------------------------------------------------------- (5) each deadline once, none early

DEADLINES = {
    "delays": (("ask", 7, "seven later", None, ()), ("pay", 0, "at once", None, ())),
    "expects": (Expectation("pay", "ask", 8, "unpaid"), Expectation("ask", "ask", 5, "asked once")),
}


@few
@given(specs(**DEADLINES, deliver=False), streams(late=True))
def test_no_deadline_fires_before_it_is_passed(spec: Spec, stream: Stream) -> None:
    for result in run(spec, stream):
        if result.kind in ("emit", "expired", "quiet") and result.emitted_at is not None:
            assert result.emitted_at >= result.due


@few
@given(specs(**DEADLINES, deliver=False, events=True), streams(late=True))
def test_every_deadline_fires_exactly_once_by_the_close(spec: Spec, stream: Stream) -> None:
    results = run(spec, stream)
    if any(r.rule == "hold" for r in results):
        return  # a key may stay blocked

    def sources(*kinds_and_rules: tuple[str, str]) -> Counter[Any]:
        return Counter((r.key, r.source_id) for r in results if (r.kind, r.rule) in kinds_and_rules)

    def of_type(wanted: str) -> Counter[Any]:
        return Counter((r.key, r.source_id) for r in results if r.kind == "event" and r.event["type"] == wanted)

    assert of_type("ask") == sources(("emit", "seven later"))
    assert of_type("pay") == sources(("emit", "at once"))
    assert of_type("ask") == sources(("expired", "unpaid"), ("met", "unpaid"))
    assert of_type("ask") == sources(("expired", "asked once"), ("met", "asked once"))
