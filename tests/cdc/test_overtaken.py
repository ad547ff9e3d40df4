"""Who is fenced: by another capture of the same name, which it says; or because a transaction was open for too long.

A broker that was away for longer than a transaction may be open, or a machine that slept, ended the capture: it said that
another process had taken the name, and there was none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial

import pytest

from tests.cdc.told import Hurried, Told
from tests.kafka.reader import committed
from waterclock.cdc.capture import Capture
from waterclock.cdc.position import Position
from waterclock.cdc.produce import Publisher, Target
from waterclock.cdc.source import Item, SourceMark
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.errors import ConnectionLost, Unreadable, UsageError
from waterclock.testing import Broker


def change(number: int, offset: int = 0, last: bool = True) -> MaxwellMessage:
    return MaxwellMessage("d", "t", "insert", 1, f"0-1-{number}", number, offset, last, (), {"id": f"{number}"})


class Once:
    """Does something, the first time that it is called."""

    def __init__(self, deed: object) -> None:
        self._deed = deed

    def __call__(self) -> None:
        deed, self._deed = self._deed, lambda: None
        deed()  # type: ignore[operator]


def ids(broker: Broker, topic: str) -> list[str]:
    return [json.loads(value)["gtid"] for _, value in committed(broker, topic).get(0, [])]


def test_a_transaction_that_kafka_has_ended_is_sent_again_if_nobody_else_captures(broker: Broker) -> None:
    """Kafka fences who began it, as it does for another producer of the name: here one that wrote nothing."""
    target = Target(broker.bootstrap, "late", "global")
    fence = Once(lambda: Publisher(target, "late").close())
    items: list[Item] = [change(1), SourceMark.COMMITTED]
    capture = Capture(
        partial(Publisher, target, "late"),
        lambda position: Told(list(items), fence),
        Hurried(),
        start=Position("0-1-0"),
    )
    assert capture.run("0-1-1").breaks == 1
    assert ids(broker, "late") == ["0-1-1"]


def test_one_that_another_has_overtaken_says_so_and_leaves_it_alone(broker: Broker) -> None:
    target = Target(broker.bootstrap, "taken", "global")

    def overtake() -> None:
        other = Publisher(target, "taken")
        other.send(change(1))
        other.commit(Position("0-1-1"))
        other.close()

    items: list[Item] = [change(1), SourceMark.COMMITTED]
    capture = Capture(
        partial(Publisher, target, "taken"), lambda position: Told(list(items), Once(overtake)), Hurried(),
        start=Position("0-1-0"),
    )  # fmt: skip
    with pytest.raises(UsageError, match=r"Another process captures under the name taken.*different names \(--name\)"):
        capture.run("0-1-1")
    assert ids(broker, "taken") == ["0-1-1"]


def test_one_that_the_source_refuses_for_a_position_that_another_has_gone_on_from_is_overtaken(broker: Broker) -> None:
    """It said that changes were lost, and to begin anew under another name."""
    target, gone = (
        Target(broker.bootstrap, "gone", "global"),
        UsageError("The slot has gone on: what lies between is lost."),
    )

    def refused(position: Position) -> Told:
        overtake()
        raise gone

    overtake = Once(lambda: None)
    capture = Capture(partial(Publisher, target, "gone"), refused, Hurried(), start=Position("0-1-0"))
    with pytest.raises(UsageError, match="what lies between is lost"):
        capture.run()

    overtake = Once(lambda: Publisher(target, "gone").commit(Position("0-1-1")))
    with pytest.raises(UsageError, match="Another process captures under the name gone"):
        capture.run()


class Broken(Told):
    """Ends with an error behind its items."""

    error: Exception

    def items(self) -> Iterator[Item]:
        yield from super().items()
        raise self.error


def test_a_break_while_the_rest_is_delivered_before_a_stop_is_tried_again(broker: Broker) -> None:
    """It ended the capture, which then said nothing of what cannot be read."""
    target, bad = Target(broker.bootstrap, "rest", "global"), Unreadable("shop.item: a row that nobody can read.")
    whole: list[Item] = [change(1), SourceMark.COMMITTED]
    answers: list[tuple[list[Item], Exception]] = [
        ([*whole, change(2, last=False)], bad), ([], ConnectionLost("it went away")), (whole, bad),
    ]  # fmt: skip

    def source(position: Position) -> Broken:
        items, error = answers.pop(0)
        made = Broken(items, lambda: None)
        made.error = error
        return made

    capture = Capture(partial(Publisher, target, "rest"), source, Hurried(), start=Position("0-1-0"))
    with pytest.raises(Unreadable):
        capture.run()
    assert ids(broker, "rest") == ["0-1-1"]
    assert capture.statistics().breaks == 1


class Deaf(Told):
    """Breaks when it is told how far Kafka has come."""

    def stored(self, position: Position) -> None:
        raise ConnectionLost("it went away")


def test_a_break_behind_a_commit_is_no_break_in_a_row(broker: Broker) -> None:
    """Kafka had it all, and it was not counted."""

    def source(position: Position) -> Deaf:
        number = int(position.place.removeprefix("0-1-"))
        made = Deaf([change(number + 1), SourceMark.COMMITTED, SourceMark.QUIET], lambda: None)
        made._place = number
        return made

    target, clock = Target(broker.bootstrap, "deaf", "global"), Hurried()
    told = Capture(partial(Publisher, target, "deaf"), source, clock, start=Position("0-1-0")).run("0-1-12")
    assert (told.changes, told.commits, told.breaks) == (12, 12, 12)
    assert len(ids(broker, "deaf")) == 12
