"""The contract of docs/rules.md, sentence by sentence: wrong events and wrong rules."""

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.rules.events import NUMBERED, TIMED, numbered, run, timed
from waterclock.rules import Rules

# ---------------------------------------------------------------- wrong events


class Fine(datetime):
    """A time that counts nanoseconds, as those of pandas do."""

    nanosecond = 1


class FineDelta(timedelta):
    nanoseconds = 1


@pytest.mark.parametrize(
    ("rules", "wrong", "said"),
    [
        (TIMED, ["a", 5], r"\b2\b"),
        (TIMED, {"key": "k", "id": "a", "type": "x"}, r"\b2\b.*time"),
        (TIMED, {"time": 5, "id": "a", "type": "x"}, r"\b2\b.*key"),
        (TIMED, {"key": "k", "time": 5, "type": "x"}, r"\b2\b.*id"),
        (TIMED, {"key": "k", "time": 5, "id": "a"}, r"\b2\b.*type"),
        (NUMBERED.order(wait=5), {"key": "k", "time": 5, "id": "a", "type": "x"}, r"\b2\b.*number"),
        (TIMED.deliver_at("at"), {"key": "k", "time": 5, "id": "a", "type": "x"}, r"\b2\b.*at\b"),
        (TIMED, timed("a", "2020-01-01"), r"\b2\b.*time"),
        (TIMED, timed("a", None), r"\b2\b.*time"),
        (TIMED, timed("a", 5.0), r"\b2\b.*time"),
        (TIMED, timed("a", True), r"\b2\b.*time"),
        (TIMED, timed("a", datetime(2020, 1, 1)), r"\b2\b.*time"),
        (TIMED, {"key": None, "time": "soon"}, r"\b2\b.*time"),
        (TIMED, {"key": None}, r"\b2\b.*time"),
        (TIMED, {"key": None, "time": 5, "id": "a"}, r"\b2\b.*'key': needs a key, for the row says more.*'id'"),
        (
            Rules(key="k", time="t"),
            {"k": "a", "t": Fine(2026, 1, 1)},
            "1, column 't': needs a time no finer than a micro",
        ),
        (TIMED.deliver_at("at"), timed("a", 5, at=Fine(2020, 1, 1)), r"\b2\b.*at\b"),
        (TIMED.deliver_at("at"), timed("a", 5, at="soon"), r"\b2\b.*at\b"),
        (TIMED.deliver_at("at"), timed("a", 5, at=datetime(2020, 1, 1)), r"\b2\b.*at\b"),
        (NUMBERED.order(wait=5), numbered(1, 5) | {"number": "1"}, r"\b2\b.*number"),
        (NUMBERED.order(wait=5), numbered(1, 5) | {"number": 0}, r"\b2\b.*number"),
        (NUMBERED.order(wait=5), numbered(1, 5) | {"number": None}, r"\b2\b.*number"),
    ],
)
def test_a_wrong_event_is_refused_by_its_number_and_column(rules: Rules, wrong: Any, said: str) -> None:
    first = [] if said.startswith("1,") else [numbered(1, 0, at=None)]
    with pytest.raises(ValueError, match=said):
        list(rules.run([*first, wrong]))


def test_what_came_before_a_wrong_event_is_out() -> None:
    results = TIMED.run([timed("a", 0), {}])
    assert next(results).source_id == "a"


@pytest.mark.parametrize("delay", [-1, "soon", "-1 day"])
def test_a_wrong_watermark_delay_is_refused_by_name(delay: Any) -> None:
    with pytest.raises(ValueError, match="watermark_delay"):
        list(TIMED.run([timed("a", 0)], watermark_delay=delay))


# ---------------------------------------------------------------- wrong rules

UNTYPED = Rules(key="key", time="time")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: Rules(key="", time="t"), "key"),
        (lambda: Rules(key="k", time=""), "time"),
        (lambda: Rules(key=5, time="t"), "key"),  # type: ignore[arg-type]
        (lambda: Rules(key="k", time="t", type=5), "type"),  # type: ignore[arg-type]
        (lambda: Rules(key="k", time="t", id=""), "id"),
        (lambda: Rules(key="k", time="t", sequence=""), "sequence"),
        (lambda: TIMED.deduplicate(within=-1), r"deduplicate.*within"),
        (lambda: TIMED.deduplicate(within="soon"), r"deduplicate.*within"),
        (lambda: TIMED.deduplicate(within=1.5), r"deduplicate.*within"),  # type: ignore[arg-type]
        (lambda: TIMED.deduplicate(within=1).deduplicate(within=2), "deduplicate"),
        (lambda: NUMBERED.order(wait=-1), r"order.*wait"),
        (lambda: NUMBERED.order(wait=FineDelta(1)), r"order.*wait.*no finer than a microsecond"),
        (lambda: NUMBERED.order(wait="3 moons"), r"order.*wait"),
        (lambda: NUMBERED.order(wait=1, on_gap="jump"), r"order.*on_gap.*jump"),  # type: ignore[arg-type]
        (lambda: NUMBERED.order(wait=1).order(wait=1), "order"),
        (lambda: NUMBERED.order(tie=["a"]), r"order\(tie=\) has no meaning if the sequence 'number' is the order"),
        (lambda: TIMED.order(tie="a"), r"order\(tie=\) must be a list of columns, got the text 'a'"),
        (lambda: UNTYPED.delay(after="a", by=1, emit="b"), r"delay.*type"),
        (lambda: TIMED.delay(after="", by=1, emit="b"), r"delay.*after"),
        (lambda: TIMED.delay(after=[], by=1, emit="b"), r"delay.*after.*empty list"),
        (lambda: TIMED.delay(after=["a", 5], by=1, emit="b"), r"delay.*after.*5"),  # type: ignore[list-item]
        (lambda: TIMED.delay(after=5, by=1, emit="b"), r"delay.*after.*5"),  # type: ignore[arg-type]
        (lambda: TIMED.expect(["a", ""], after="b", within=1, otherwise="c"), r"expect.*type"),
        (lambda: TIMED.expect("a", after=(), within=1, otherwise="c"), r"expect.*after.*empty list"),
        (lambda: TIMED.delay(after="a", by=-1, emit="b"), r"delay.*by"),
        (lambda: TIMED.delay(after="a", by="soon", emit="b"), r"delay.*by"),
        (lambda: TIMED.delay(after="a", by=1, emit=""), r"delay.*emit"),
        (lambda: TIMED.deliver_at(""), r"deliver_at.*column"),
        (lambda: TIMED.deliver_at("a").deliver_at("b"), "deliver_at"),
        (lambda: UNTYPED.expect("a", after="b", within=1, otherwise="c"), r"expect.*type"),
        (lambda: TIMED.expect("", after="b", within=1, otherwise="c"), r"expect.*type"),
        (lambda: TIMED.expect("a", after="", within=1, otherwise="c"), r"expect.*after"),
        (lambda: TIMED.expect("a", after="b", within=-1, otherwise="c"), r"expect.*within"),
        (lambda: TIMED.expect("a", after="b", within=1, otherwise=""), r"expect.*otherwise"),
        (lambda: TIMED.expect("a", after="b", within=1, otherwise="c", cancel_by="d"), r"expect.*cancel_by"),
        (lambda: TIMED.expect("a", after="b", within=1, otherwise="c", cancel_by=[""]), r"expect.*cancel_by"),
        (
            lambda: TIMED.expect("a", after="b", within=1, otherwise="c", cancel_by=[5]),  # type: ignore[list-item]
            r"expect.*cancel_by",
        ),
        (lambda: TIMED.quiet(after=-1, emit="a"), r"quiet.*after"),
        (lambda: TIMED.quiet(after="soon", emit="a"), r"quiet.*after"),
        (lambda: TIMED.quiet(after=1, emit=""), r"quiet.*emit"),
        (lambda: TIMED.session(gap=-1, emit="a"), r"session.*gap"),
        (lambda: TIMED.session(gap="soon", emit="a"), r"session.*gap"),
        (lambda: TIMED.session(gap=1, emit=""), r"session.*emit"),
        (lambda: TIMED.quiet(after=1, emit="a").delay(after="x", by=1, emit="a"), "'a'"),
    ],
)
def test_a_wrong_rule_is_refused_when_it_is_made_and_says_where(make: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        make()


def test_rules_are_values() -> None:
    first = NUMBERED.order(wait="1 minute").delay(after="a", by=1, emit="b")
    second = NUMBERED.order(wait=60_000_000).delay(after="a", by=1, emit="b")
    assert first == second
    assert hash(first) == hash(second)


def test_a_builder_leaves_the_rules_it_is_called_on_as_they_were() -> None:
    TIMED.delay(after="x", by=1, emit="later")
    assert run(TIMED, timed("a", 0)) == [("event", "pass", 0, "a")]
