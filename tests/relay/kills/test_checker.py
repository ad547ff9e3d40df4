"""The checker finds each kind of violation, and nothing where all is well."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.relay.kills.checker import LATE_MS, Checker, Origin, Record

DUE_MS = 1_000_000


@dataclass
class History:
    """Records made by hand, all of input partition 0 and target partition 0."""

    records: list[Record] = field(default_factory=list)
    acknowledged: list[Origin] = field(default_factory=list)

    def _add(self, topic: str, value: bytes | None, timestamp_ms: int, **headers: Any) -> int:
        offset = sum(record.topic == topic for record in self.records)
        named = {name.replace("_", "-"): str(text).encode() for name, text in headers.items()}
        self.records.append(Record(topic, 0, offset, b"k", value, named, timestamp_ms))
        return offset

    def ask(self, due_ms: int = DUE_MS, at_ms: int = 0, **more: Any) -> int:
        more = {"deliver_to": "t", "deliver_at": due_ms, **more}
        origin = self._add("d", b"v", at_ms, **more)
        self.acknowledged.append((0, origin))
        return origin

    def cancel(self, id: str) -> int:
        return self._add("d", None, 0, delay_action="cancel", delay_id=id)

    def deliver(self, origin: int, due_ms: int = DUE_MS, at_ms: int = 0, value: bytes = b"v") -> None:
        self._add("t", value, at_ms or due_ms, delayed_from=f"d-0-{origin}", delayed_until=due_ms)

    def answer(self, origin: int, outcome: str, count: int) -> None:
        self._add("d.replies", json.dumps({"request": f"d-0-{origin}", "outcome": outcome, "count": count}).encode(), 0)

    def put_aside(self, origin: int) -> None:
        self._add("d.dead", b"v", 0, dead_from=f"d-0-{origin}")

    def check(self) -> Checker:
        return Checker("d", self.records, self.acknowledged)

    def kinds(self) -> list[str]:
        return [violation.kind for violation in self.check().violations()]


@pytest.fixture
def history() -> History:
    return History()


def test_a_life_as_it_should_be(history: History) -> None:
    a, b, c = history.ask(), history.ask(delay_id="x"), history.ask(delay_id="y")
    first, second = history.cancel("x"), history.cancel("x")
    replaced = history.ask(delay_id="y", delay_action="replace")
    bad = history._add("d", b"v", 0)
    history.deliver(a)
    history.deliver(replaced)
    last = history.cancel("y")
    for origin, *told in ((first, "cancelled", 1), (second, "cancelled", 0), (replaced, "replaced", 1)):
        history.answer(origin, *told)  # type: ignore[arg-type]
    assert history.check().unfinished() == 2
    history.answer(last, "already delivered", 0)
    history.put_aside(bad)
    assert (history.kinds(), history.check().unfinished(), b, c) == ([], 0, 1, 2)


def test_what_is_not_delivered_is_lost(history: History) -> None:
    history.ask()
    assert (history.kinds(), history.check().unfinished()) == (["lost"], 1)


def test_what_was_acknowledged_and_is_not_there_is_lost(history: History) -> None:
    history.acknowledged.append((0, 7))
    assert history.kinds() == ["lost"]


def test_what_comes_twice_is_found(history: History) -> None:
    origin = history.ask()
    history.deliver(origin)
    history.deliver(origin)
    assert history.kinds() == ["twice"]


def test_what_nobody_asked_for_or_not_so_is_found(history: History) -> None:
    history.deliver(5)
    history.deliver(history.ask(), value=b"else")
    history.deliver(history.ask(), due_ms=DUE_MS + 1)
    assert history.kinds() == ["strange"] * 3


def test_what_is_early_is_found(history: History) -> None:
    history.deliver(history.ask(), at_ms=DUE_MS - 1)
    assert history.kinds() == ["early"]


@pytest.mark.parametrize("later_ms", [0, 1])
def test_what_is_overtaken_is_found(history: History, later_ms: int) -> None:
    first, second = history.ask(), history.ask(DUE_MS + later_ms)
    history.deliver(second, DUE_MS + later_ms)
    history.deliver(first, at_ms=DUE_MS + later_ms)
    assert history.kinds() == ["overtaken"]


def test_what_came_late_may_be_overtaken(history: History) -> None:
    first, second = history.ask(at_ms=DUE_MS - LATE_MS), history.ask()
    history.deliver(second)
    history.deliver(first)
    assert history.kinds() == []


@pytest.mark.parametrize(
    "told", [("cancelled", 0), ("cancelled", 2), ("unknown", 0), ("already delivered", 0), ("replaced", 1)]
)
def test_an_answer_that_is_not_true_is_found(history: History, told: tuple[str, int]) -> None:
    history.ask(delay_id="x")
    history.answer(history.cancel("x"), *told)
    assert history.kinds() == ["untrue"]


def test_one_that_says_cancelled_of_what_was_delivered_is_found(history: History) -> None:
    history.deliver(history.ask(delay_id="x"))
    history.answer(history.cancel("x"), "cancelled", 1)
    assert history.kinds() == ["untrue"]


def test_no_answer_and_two_answers_are_found(history: History) -> None:
    first, second = history.cancel("x"), history.cancel("y")
    for _ in range(2):
        history.answer(second, "unknown", 0)
    assert (history.kinds(), first) == (["untrue"] * 2, 0)


def test_an_answer_to_nothing_is_found(history: History) -> None:
    history.answer(history.ask(), "unknown", 0)
    assert history.kinds() == ["lost", "strange"]


def test_what_is_put_aside_without_need_or_not_though_it_is_bad_is_found(history: History) -> None:
    origin = history.ask()
    history.deliver(origin)
    history.put_aside(origin)
    history._add("d", b"v", 0)
    history.put_aside(9)
    assert history.kinds() == ["strange"] * 3
