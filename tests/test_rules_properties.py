"""Properties of the rules, on random streams: disorder, duplicates, losses, several keys, all rules combined.

Rule 1: what is right comes from the oracle (rules_oracle.py) or from the input, never from the engine.
Rule 2: `streams()` is never late unless it says so; late events are where a cut into batches may show.
"""

import json
import time
from collections import Counter
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from rules_oracle import Expectation, Oracle, Out, Row, Spec

from waterclock.rules import Result, Rules
from waterclock.rules.engine import CLOSED, Engine
from waterclock.rules.events import Event

few = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
many = settings(max_examples=6000, deadline=None, suppress_health_check=list(HealthCheck))

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
        "on_gap": draw(st.sampled_from(["skip", "hold", "dead_letter"])),
        "sequence": draw(st.booleans()),
        "deliver": draw(st.booleans()),
        "delays": some(("ask", 7, "seven later"), ("pay", 0, "at once")),
        "expects": some(
            Expectation("pay", "ask", 8, "unpaid", ("stop",)),
            Expectation("ask", "ask", 5, "asked once"),
            Expectation("other", "pay", 0, "never in time"),
        ),
        "quiets": some((9, "quiet"), (0, "still"), (20, "gone")),
    }
    chosen |= fixed
    if not chosen["sequence"]:
        chosen["on_gap"] = "skip"  # there are no gaps
    return Spec(**chosen)


class Stream(NamedTuple):
    rows: list[Row]
    watermark_delay: int


@st.composite
def streams(draw: st.DrawFn, late: bool = False, max_size: int = 14) -> Stream:
    """Rows in the order of arrival; each at most `watermark_delay` behind the newest before it, unless `late`."""
    watermark_delay = draw(st.sampled_from([0, 1, 6, 20, 45]))
    disorder = watermark_delay * 2 + 12 if late else watermark_delay
    epoch = draw(st.sampled_from(EPOCHS))
    at = {"a": epoch, "b": epoch}
    number = {"a": 0, "b": 0}
    arrivals: list[tuple[int, int, Row]] = []
    for count in range(draw(st.integers(1, max_size))):
        key = draw(st.sampled_from(["a", "a", "b", None]))
        if key is None:
            when = max(at.values()) + draw(st.integers(-3, 8))
            arrivals.append((when, count, Row(None, when)))
            continue
        at[key] += draw(st.integers(-8, 12))  # times need not follow the sequence
        number[key] += draw(st.sampled_from([1, 1, 1, 1, 2, 3, 0, 10**9]))
        number[key] = max(number[key], 1)
        deliver = draw(st.none() | st.integers(-10, 40).map(lambda after, now=at[key]: now + after))
        row = Row(key, at[key], f"e{count:02}", number[key], draw(st.sampled_from(TYPES)), deliver)
        for _ in range(draw(st.sampled_from([1, 1, 1, 0, 2]))):  # kept, lost or doubled
            again = row._replace(time=row.time + draw(st.sampled_from([0, 0, 3])))
            arrivals.append((again.time + draw(st.integers(0, disorder)), len(arrivals), again))
    arrivals.sort(key=lambda arrival: arrival[:2])
    return Stream([row for _, _, row in arrivals], watermark_delay)


# ---------------------------------------------------------------- the rules under test


def build(spec: Spec) -> Rules:
    rules = Rules(key="key", time="time", type="type", id="id", sequence="number" if spec.sequence else None)
    if spec.within is not None:
        rules = rules.deduplicate(within=spec.within)
    if spec.wait is not None:
        rules = rules.order(wait=spec.wait, on_gap=spec.on_gap)
    if spec.deliver:
        rules = rules.deliver_at("deliver")
    for after, by, emit in spec.delays:
        rules = rules.delay(after=after, by=by, emit=emit)
    for e in spec.expects:
        rules = rules.expect(
            e.type, after=e.after, within=e.within, otherwise=e.otherwise, cancel_by=e.cancel_by
        )
    for after, emit in spec.quiets:
        rules = rules.quiet(after=after, emit=emit)
    return rules


def run(spec: Spec, stream: Stream) -> list[Result]:
    return list(
        build(spec).run([row._asdict() for row in stream.rows], watermark_delay=stream.watermark_delay)
    )


def told(result: Any) -> Out:
    return Out(result.kind, result.key, result.rule, result.due, result.source_id)


def in_order(results: list[Any], key: str, delivered: bool) -> list[Out]:
    """The released events of a key; those that `deliver_at` held apart from those that went out at once."""
    events = [told(r) for r in results if r.kind == "event" and r.key == key]
    return [out for out in events if (out.rule == "deliver_at") == delivered]


def keyed(spec: Spec, row: Row, ref: Any) -> tuple[str | None, Event]:
    return row.key, Event(
        time=row.time,
        id=row.id,
        sequence=row.number if spec.sequence else None,
        type=row.type,
        deliver=row.deliver if spec.deliver else None,
        ref=ref,
    )


def batches(stream: Stream, cuts: set[int]) -> list[tuple[int, list[Row]]]:
    """(watermark, rows) for each batch; a new one starts at each cut. The watermark is that of EARLIER batches."""
    found, rows = [], stream.rows
    starts = sorted({0, *(cut for cut in cuts if cut < len(rows))})
    for start, end in zip(starts, [*starts[1:], len(rows)], strict=True):
        seen = [row.time for row in rows[:start]]
        found.append((max(seen) - stream.watermark_delay if seen else -CLOSED, rows[start:end]))
    return found


def run_in_batches(
    spec: Spec, stream: Stream, cuts: set[int], reload: bool = False
) -> tuple[list[Any], list[Any]]:
    """(what was found, the dump after each batch), without and with dump and load between the batches."""
    rules = build(spec)
    engine = Engine(rules)
    found, dumps = [], []
    steps = [([keyed(spec, r, r.id) for r in rows], watermark) for watermark, rows in batches(stream, cuts)]
    for events, watermark in [*steps, ((), CLOSED)]:
        found += engine.step(events, watermark)
        dumps.append(engine.dump())
        if reload:
            plain = json.loads(json.dumps(engine.dump()))  # the refs here are texts, so all of it is plain
            engine = Engine(rules)
            engine.load(plain)
    return found, dumps


def plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(k) in (str, int) and plain(v) for k, v in value.items())
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(plain(v) for v in value)
    return value is None or type(value) in (str, int, float, bool)


cuts = st.sets(st.integers(1, 25), max_size=6)


# ---------------------------------------------------------------- (1) as the oracle says


def agrees_with_the_oracle(spec: Spec, stream: Stream) -> None:
    results = run(spec, stream)
    expected = Oracle(spec).run(stream.rows, stream.watermark_delay)
    assert Counter(expected) == Counter(map(told, results))
    for key in "ab":
        for delivered in (False, True):
            assert in_order(expected, key, delivered) == in_order(results, key, delivered)


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
