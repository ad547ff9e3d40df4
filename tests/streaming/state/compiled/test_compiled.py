"""The compiled engine beside the plain one: the same rows in the same order, ids, counters and alarms, step by step; states
that one of them wrote are read by the other. Rules and streams at random."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.rules.oracle import Row, Spec
from tests.rules.test_properties import Stream, build, cuts, many, specs, streams
from tests.streaming.state.compiled.buckets import NO_PAGES, PAGES, SEGMENTS, Life, lived, sizes, table
from waterclock import Rules
from waterclock.streaming.state.bucket import Bucket
from waterclock.streaming.state.compiled import COMPILED

pytestmark = pytest.mark.skipif(not COMPILED, reason="the compiled engine was not built")

few = settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
RULES = Rules(key="key", time="time", id="id")
NUMBERED = Rules(key="key", time="time", id="id", sequence="number")
KEYS: list[dict[str | None, Any]] = [
    {"a": "a", "b": "b"},
    {"a": 7, "b": -(2**60)},
    {"a": "it's \\ Ünïcödé\n", "b": ""},
    {"a": "x" * 300, "b": "x" * 299 + "y"},
]
keyed = st.sampled_from(KEYS)
ids = st.sampled_from(["", "an id that is longer than forty bytes, and is told in full each time: "])
turns = st.lists(st.booleans(), min_size=1, max_size=5)
stores = st.sampled_from([NO_PAGES, PAGES, SEGMENTS])


def named(stream: Stream, before: str) -> Stream:
    return stream._replace(rows=[row._replace(id=before + row.id) if row.key else row for row in stream.rows])


def agree(
    spec: Spec, stream: Stream, some: set[int], keys: dict[str | None, Any], by_turns: list[bool], by_clock: bool
) -> None:
    rules = build(spec)
    plain = lived(rules, stream, some, keys, lambda step: True, by_clock)
    assert lived(rules, stream, some, keys, lambda step: False, by_clock) == plain
    assert lived(rules, stream, some, keys, lambda step: by_turns[step % len(by_turns)], by_clock) == plain


@few
@given(specs(), streams(late=True), cuts, keyed, ids, turns, stores, st.booleans())
def test_both_engines_give_the_same_step_by_step(
    spec: Spec,
    stream: Stream,
    some: set[int],
    keys: Any,
    before: str,
    by_turns: list[bool],
    store: tuple[int, int, int],
    by_clock: bool,
) -> None:
    with sizes(*store):
        agree(spec, named(stream, before), some, keys, by_turns, by_clock)


@few
@given(specs(sequence=True, within=None), streams(late=True), cuts, keyed, turns, stores, st.booleans())
def test_both_engines_give_the_same_about_gaps(
    spec: Spec,
    stream: Stream,
    some: set[int],
    keys: Any,
    by_turns: list[bool],
    store: tuple[int, int, int],
    by_clock: bool,
) -> None:
    with sizes(*store):
        agree(spec, stream, some, keys, by_turns, by_clock)


@pytest.mark.long(seconds=60)
@many
@given(specs(), streams(late=True, max_size=40), cuts, keyed, ids, turns, stores, st.booleans())
def test_both_engines_give_the_same_of_long_streams(
    spec: Spec,
    stream: Stream,
    some: set[int],
    keys: Any,
    before: str,
    by_turns: list[bool],
    store: tuple[int, int, int],
    by_clock: bool,
) -> None:
    with sizes(*store):
        agree(spec, named(stream, before), some, keys, by_turns, by_clock)


@pytest.mark.parametrize("ordered", [RULES.order(), NUMBERED.order(wait=5)], ids=["by time", "by sequence"])
@pytest.mark.parametrize("store", [NO_PAGES, PAGES, SEGMENTS], ids=["no pages", "pages", "segments"])
def test_a_key_that_is_an_empty_text_is_woken_by_its_deadline_alone(
    ordered: Rules, store: tuple[int, int, int]
) -> None:
    """The texts of the keys due are no bytes then: that there is one is told by their number."""
    life, other = Life(ordered), Life(ordered)
    row = table([Row("b", 3, "e1", 3)], KEYS[2])
    with sizes(*store):
        for tables, watermark in [([row], 2), ([], 5), ([], 100)]:
            assert life.step(False, tables, watermark) == other.step(True, tables, watermark)


@pytest.mark.parametrize("count", [64, 65, 130])
def test_there_may_be_any_number_of_conditions(count: int) -> None:
    """Also of an event that is held from one step to the next: its answers lie in the state."""
    rules = Rules(key="key", time="time", id="id", type="type").order()
    for number in range(count):
        rules = rules.delay(after="ask", by=number, emit=f"{number}", where=f"amount == {number}")
    rows = table([Row("a", 3, f"e{n}", n, "ask", amount=n) for n in (0, 1, 62, 63, 64, 65, 129)], KEYS[0])
    for by_turns in ([False], [True], [True, False], [False, True]):
        life = Life(rules)
        steps = [([rows], 0), ([], 2), ([], 4), ([], 1000)]
        found = [life.step(by_turns[n % len(by_turns)], *step)[0] for n, step in enumerate(steps)]
        emitted = [r["rule"] for results in found for r in results if r["kind"] == "emit"]
        assert emitted == [f"{n}" for n in (0, 1, 62, 63, 64, 65, 129) if n < count]


TYPED = Rules(key="key", time="time", id="id", sequence="number", type="type")
STORIES: dict[str, tuple[Rules, list[tuple[list[Row], int]], list[str]]] = {
    "of equal deadlines those that complete an event come first": (
        Rules(key="key", time="time", id="id", type="type").order().delay(after="ask", by=4, emit="later"),
        [([Row("a", 1, "e1", 1, "ask")], 0), ([Row("b", 4, "e2", 1, "pay")], 3), ([], 5)],
        ["e2", "e1"],
    ),
    "a deadline that waited behind a gap goes out when that is closed": (
        TYPED.order(wait=100).delay(after="ask", by=3, emit="later"),
        [([Row("a", 1, "e1", 1, "ask"), Row("a", 2, "e3", 3, "pay")], 0), ([], 5), ([Row("a", 6, "e2", 2, "pay")], 5)],
        ["e2", "e3", "e1"],
    ),
    "what waited behind a gap goes out behind what its end made due earlier, and before what is due with it": (
        TYPED.order(wait=60).delay(after="ask", by=40, emit="waited").delay(after="pay", by=38, emit="made"),
        [
            ([Row("a", 1, "e1", 1, "ask"), Row("a", 0, "e4", 4, "pay"), Row("a", 3, "e2", 2, "pay")], 0),
            ([], 70),
        ],
        ["3", "e4", "e4", "e1", "e2"],
    ),
    "a delivery goes out behind what the end of a gap releases at its moment, whichever was there first": (
        TYPED.order(wait=10).deliver_at("deliver"),
        [
            ([Row("a", 9, "e1", 1, deliver=30), Row("a", 9, "e2", 2, deliver=32)], 0),
            ([Row("a", 20, "e4", 4, deliver=5), Row("a", 22, "e6", 6, deliver=4)], 1),
            ([], 40),
        ],
        ["3", "e4", "e1", "5", "e6", "e2"],
    ),
    "a delivery that was made before a deadline of its moment goes out before it, from a store too": (
        Rules(key="key", time="time", id="id", type="type")
        .deliver_at("deliver")
        .delay(after="ask", by=4, emit="later"),
        [([Row("a", 1, "e1", 1, "pay", 5), Row("a", 1, "e2", 1, "ask")], 0), ([], 5)],
        ["e1", "e2"],
    ),
    "what is opened behind one that has just expired is open": (
        Rules(key="key", time="time", id="id", type="type")
        .expect("pay", after="ask", within=100, otherwise="unpaid")
        .expect("pay", after="ask", within=5, otherwise="slow"),
        [([Row("a", 1, "e1", 1, "ask"), Row("a", 11, "e2", 2, "ask")], 0), ([], 20), ([], 200)],
        ["e1", "e2"],
    ),
    "of one time what has no value comes first, then the smaller one, then the next column, then the first that came": (
        Rules(key="key", time="time", id="id", type="type").order(tie=["amount", "type"]),
        [
            ([Row("a", 1, "e1", 1, "pay", amount=2), Row("a", 1, "e2", 1, "ask", amount=2)], 0),
            ([Row("a", 1, "e3", 1, "pay"), Row("a", 1, "e4", 1, "ask", amount=-1)], 0),
            ([Row("a", 1, "e5", 1, "ask", amount=-1), Row("a", 1, "e6", 1, "as", amount=2)], 0),
            ([], 5),
        ],
        ["e3", "e4", "e5", "e6", "e2", "e1"],
    ),
    "an id behind its horizon is forgotten, in the step that brought it too": (
        RULES.deduplicate(8),
        [([Row("a", 1, "e1", 1), Row("a", 1, "e1", 1)], 1000)],
        ["e1", "e1"],
    ),
    "one within it is known": (
        RULES.deduplicate(8),
        [([Row("a", 1, "e1", 1), Row("a", 1, "e1", 1)], 9)],
        ["e1"],
    ),
}


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "compiled"])
def test_what_chance_seldom_draws_comes_out_in_order(story: str, is_plain: bool) -> None:
    rules, steps, sources = STORIES[story]
    life = Life(rules)
    *_, (last, _, _) = [life.step(is_plain, [table(rows, KEYS[0])] if rows else [], at) for rows, at in steps]
    assert [row["source_id"] for row in last] == sources


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "compiled"])
def test_equal_deadlines_of_a_topic_keep_their_order_while_the_watermark_moves_within_their_slot(
    is_plain: bool,
) -> None:
    """What rested from a batch before goes back into the slot that has what this batch made; it was made earlier."""
    life = Life(Rules(key="key", time="time", id="id", type="type").deliver_at("deliver").delay("ask", 50, "later"))
    batches = [
        ([Row("a", 1, "e1", 1, "ask", 60), Row("a", 10, "e2", 1, "ask", 60)], 1),
        ([Row("a", 10, "e3", 1, "ask", 60)], 2),
        ([Row("a", 10, "e4", 1, "ask", 60)], 3),
        ([], 70),
    ]
    *_, (last, _, _) = [life.step(is_plain, [table(rows, KEYS[0])] if rows else [], at, True) for rows, at in batches]
    found = [(row["kind"], row["source_id"]) for row in last]
    assert found == [(kind, source) for source in ("e1", "e2", "e3", "e4") for kind in ("emit", "event")]


@pytest.mark.parametrize("column", ["id", "time", "number"])
def test_an_event_without_what_the_rules_need_is_an_error_and_no_guess(column: str) -> None:
    rules = Rules(key="key", time="time", id="id", sequence="number").order(wait=5)
    rows = table([Row("a", 1, "e1", 1)], KEYS[0])
    nothing = rows.set_column(rows.column_names.index(column), column, pa.nulls(1, rows.schema.field(column).type))
    nothing = nothing.append_column("_row_id", pa.nulls(1, pa.string()))
    with pytest.raises(ValueError, match="an event without its id, its time or its number"):
        Bucket(rules, None).step([nothing], 0)
