"""State that rests until it is needed, and the rules cannot tell: keys, and the stored wheel of deadlines."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rules.oracle import Spec
from tests.rules.test_properties import Stream, batches, build, cuts, few, keyed, many, run_in_batches, specs, streams
from waterclock.rules import Rules
from waterclock.rules.deadlines import LEVEL_BITS, Deadline, Deadlines
from waterclock.rules.engine import CLOSED, Engine
from waterclock.rules.events import Event


class Resting:
    """Keys whose state lies elsewhere between batches, and is woken when an event or a deadline of theirs comes."""

    def __init__(self, spec: Spec) -> None:
        self._rules = build(spec)
        self._lie: dict[str, Any] = {}
        self._engine = Engine(self._rules)

    def step(self, events: list[Any], watermark: int, rest: set[str]) -> list[Any]:
        self._wake([key for key, _ in events])
        found = self._engine.step(events, watermark)
        dump = json.loads(json.dumps(self._engine.dump()))
        assert [key for key, _ in dump["keys"]] == self._engine.keys()
        assert not self._lie.keys() & {key for key, _ in dump["keys"]}
        self._lie |= {key: state for key, state in dump["keys"] if key in rest}
        self._engine = Engine(self._rules, waking=self._wake)
        self._engine.load({**dump, "keys": [(key, state) for key, state in dump["keys"] if key not in rest]})
        return found

    def _wake(self, keys: Any) -> None:
        for key in keys:
            if key in self._lie:
                self._engine.wake(key, self._lie.pop(key))


def may_rest(spec: Spec, stream: Stream, some: set[int], rests: list[set[str]]) -> None:
    straight, _ = run_in_batches(spec, stream, some)
    resting, found = Resting(spec), []
    steps = [([keyed(spec, r, r.id) for r in rows], watermark) for watermark, rows in batches(stream, some)]
    for place, (events, watermark) in enumerate([*steps, ([], CLOSED)]):
        found += resting.step(events, watermark, rests[place % len(rests)])
    assert found == straight


rests = st.lists(st.sets(st.sampled_from("ab")), min_size=1, max_size=4)


@few
@given(specs(), streams(late=True), cuts, rests)
def test_a_key_that_rests_until_it_is_needed_changes_nothing(
    spec: Spec, stream: Stream, some: set[int], some_rest: list[set[str]]
) -> None:
    may_rest(spec, stream, some, some_rest)


@pytest.mark.long(seconds=25)
@many
@given(specs(), streams(late=True, max_size=40), cuts, rests)
def test_keys_of_a_long_stream_may_rest(spec: Spec, stream: Stream, some: set[int], some_rest: list[set[str]]) -> None:
    may_rest(spec, stream, some, some_rest)


@pytest.mark.parametrize("times", [[0], [0, 15], [40, 3, 39]])
def test_all_ids_of_a_key_are_forgotten_at_the_watermark_that_wake_by_names(times: list[int]) -> None:
    engine = Engine(Rules(key="key", time="time", id="id").deduplicate(within=80))
    engine.step([("a", Event(time, str(time), None, None, None, None)) for time in times], -1)
    by = engine.wake_by("a")
    assert by is not None
    engine.step((), by - 1)
    assert engine.keys() == ["a"]
    engine.step((), by)
    assert (engine.keys(), engine.wake_by("a")) == ([], None)


def rested(engine: Engine) -> Engine:
    """The same state in another engine."""
    woken = Engine(engine.rules)
    woken.load(json.loads(json.dumps(engine.dump())))
    return woken


def test_a_gap_that_was_told_before_its_key_rested_is_not_told_again() -> None:
    rules = Rules(key="key", time="time", id="id", sequence="n").order(wait=10, on_gap="hold")
    engine = Engine(rules)
    engine.step([("a", Event(time, str(n), n, None, None, None)) for time, n in ((0, 2), (5, 3))], -1)
    told = engine.step((), 10)
    assert [found.source_id for found in told + rested(engine).step((), 15)] == ["1"]


def test_events_of_one_time_and_id_keep_their_order_through_a_rest() -> None:
    engine = Engine(Rules(key="key", time="time", id="id").order())
    times = [(0, "first"), (5, "same"), (5, "same"), (5, "same")]
    engine.step([("a", Event(time, name, None, None, None, ref)) for ref, (time, name) in enumerate(times)], -1)
    engine.step((), 1)
    engine = rested(engine)
    engine.step([("a", Event(5, "same", None, None, None, 4))], 1)
    assert [found.ref for found in engine.step((), 6)] == [1, 2, 3, 4]


def test_ids_of_a_woken_key_are_forgotten_one_generation_after_the_other() -> None:
    engine = Engine(Rules(key="key", time="time", id="id").deduplicate(within=80))
    engine.step([("a", Event(time, str(time), None, None, None, None)) for time in (0, 45)], -1)
    engine = rested(engine)
    engine.step((), 90)
    assert [state[2] for _, state in engine.dump()["keys"]] == [[("45", 45)]]
    engine.step((), 130)
    assert engine.keys() == []


def test_a_delivery_lets_its_key_rest_and_another_deadline_wakes_it() -> None:
    woken: list[str] = []
    rules = Rules(key="key", time="time", id="id", type="type").deliver_at("to").delay(after="b", by=10, emit="later")
    engine = Engine(rules, waking=woken.extend)
    engine.step([(key, Event(0, key, None, key, 10, None)) for key in "ab"], -1)
    assert [found.kind for found in engine.step((), 10)] == ["event", "emit", "event"]
    assert woken == ["b"]


# Deadlines that rest


steps = st.lists(
    st.tuples(
        st.lists(st.tuples(st.sampled_from([0, 20, 24, 30, 32, 36, 37, 40, 44]), st.integers(1, 9)), max_size=5),
        st.tuples(st.sampled_from([0, 20, 24, 31, 32, 37, 38]), st.integers(0, 3)),
        st.booleans(),
    ),
    max_size=12,
)


class Kept:
    """Deadlines that are stored and loaded whenever it is asked, and a list that says what is right."""

    def __init__(self) -> None:
        self.watermark = self.made = self.unpacked = 0
        self.fired: list[Deadline] = []
        self.expected: list[Deadline] = []
        self.deadlines = self._fresh()

    def add(self, due: int) -> None:
        self.made += 1
        deadline = due, "x", "key", self.made, None
        self.deadlines.add(deadline)
        self.expected.append(deadline)

    def advance(self, watermark: int) -> None:
        self.watermark = max(self.watermark, watermark)
        self.deadlines.advance(self.watermark)
        due = sorted(d for d in self.expected if d[0] <= self.watermark)
        assert [d[:4] for d in self.fired] == [d[:4] for d in due]
        self.expected = [d for d in self.expected if d[0] > self.watermark]
        self.fired.clear()

    def store(self) -> None:
        plain = self.deadlines.dump()
        self.deadlines = self._fresh()
        self.deadlines.load(plain)

    def earliest_is_known(self) -> None:
        """An alarm at `next_due` must not ring too late; nor at a time that has passed, when it would do nothing."""
        known = self.deadlines.next_due()
        earliest = min((d[0] for d in self.expected), default=None)
        assert (known is None) == (earliest is None)
        if known is not None and earliest is not None:
            assert self.watermark < known <= earliest

    def _fresh(self) -> Deadlines:
        return Deadlines(self.fired.append, self.watermark, self._unpack)

    def _unpack(self, chunk: Any) -> list[Deadline]:
        self.unpacked += len(chunk)
        return list(chunk)


@settings(max_examples=150, deadline=None)
@given(steps)
def test_deadlines_of_all_distances_fire_in_order_and_the_earliest_is_known(todo: Any) -> None:
    kept = Kept()
    for added, (bits, times), stored in todo:
        for scale, number in added:
            kept.add(kept.watermark + number * 2**scale)
        kept.advance(kept.watermark + times * 2**bits)
        if stored:
            kept.store()
        kept.earliest_is_known()
    kept.advance(2**61)


def test_a_deadline_that_rests_is_looked_at_once_a_level() -> None:
    kept, day_us = Kept(), 86_400_000_000
    for number in range(100):
        kept.add(2 * day_us + number * 1_000_000)
    for quarter in range(4 * 24 * 2):
        kept.advance(quarter * day_us // 96)
        kept.store()
    kept.advance(2 * day_us - 1)
    assert 0 < kept.unpacked <= 100 * (len(LEVEL_BITS) - 1) + 20  # those of one slot of the lowest level, too
    kept.advance(3 * day_us)


def test_what_a_deadline_makes_due_comes_behind_older_ones_of_its_time() -> None:
    fired = []

    def fire(deadline: Deadline) -> None:
        fired.append(deadline[3])
        if deadline[3] == "first":
            deadlines.add((20, "x", "key", "made last", None))

    deadlines = Deadlines(fire, 0)
    for due, name in ((10, "first"), (20, "older"), (30, "later")):
        deadlines.add((due, "x", "key", name, None))
    deadlines.advance(30)
    assert fired == ["first", "older", "made last", "later"]


def test_of_deadlines_of_one_time_those_of_the_kinds_ahead_fire_first() -> None:
    fired: list[Deadline] = []
    deadlines = Deadlines(fired.append, 0, ahead=("ahead",))
    for due, kind in ((9, "x"), (10, "x"), (10, "ahead"), (10, "y"), (10, "ahead")):
        deadlines.add((due, kind, "key", None, None))
    deadlines.advance(10)
    assert [deadline[1] for deadline in fired] == ["x", "ahead", "ahead", "x", "y"]
