"""A key whose state lies elsewhere until it is needed: the rules cannot tell. Rules and streams at random."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rules.oracle import Spec
from tests.rules.test_properties import Stream, batches, build, cuts, few, keyed, many, run_in_batches, specs, streams
from waterclock.rules import Rules
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
