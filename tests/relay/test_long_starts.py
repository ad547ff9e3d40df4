"""A new owner that has much to read stays in its group: a group shuts out who asks for no records for too long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.relay.world import World, step_quietly, step_until
from waterclock.relay.owner import follow_ups, take_over, turn
from waterclock.relay.owner.take_over import Replay
from waterclock.relay.relay import Relay
from waterclock.testing import Broker

INTERVAL_MS = 1_500  # with less, librdkafka's own heartbeats come too late now and then
LONG = pytest.mark.long(seconds=8)


@pytest.fixture
def relay_broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[Broker]:
    """One that takes sessions, and so intervals, that are short."""
    from waterclock.relay.cluster import group

    short = {"session.timeout.ms": INTERVAL_MS, "max.poll.interval.ms": INTERVAL_MS, "heartbeat.interval.ms": 100}
    monkeypatch.setattr(group, "_CONSUMER", {**group._CONSUMER, **short})
    settings = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
    with Broker(settings=settings) as broker:
        yield broker


def slow(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[float]:
    """Have each call take a sixth of the interval; when they were."""
    calls, real = list[float](), getattr(owner, name)

    def slowly(*arguments: Any) -> Any:
        calls.append(time.monotonic())
        time.sleep(INTERVAL_MS / 6_000)
        return real(*arguments)

    monkeypatch.setattr(owner, name, slowly)
    return calls


def lasted_too_long(calls: list[float]) -> bool:
    return calls[-1] - calls[0] > 1.5 * INTERVAL_MS / 1000


def is_in_its_group(relay: Relay, world: World) -> bool:
    """Whether it was not shut out, which it hears some polls later."""
    for _ in range(20):
        relay.step(0.02)
    return bool(relay.owners) and not world.lost


def test_while_much_is_read_the_client_is_asked_for_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[tuple[int, int]]()

    class Client:
        def consume(self, *most: int) -> None:
            asked.append(most)  # type: ignore[arg-type]

    relay = world.relay()
    with monkeypatch.context() as patch:
        patch.setattr(relay._member, "consumer", Client())
        relay._context.reading("a log", 1, 2)
    assert asked == [(0, 0)]


@LONG
def test_one_that_reads_long_what_is_settled_stays_in_its_group(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was shut out, joined again, and read it all again, for ever."""
    monkeypatch.setattr(take_over, "REPORT_EVERY", 1)
    relay = world.started()
    for number in range(12):
        world.send(str(number), in_ms=0)
        step_quietly(relay)
    world.close(relay)
    calls = slow(monkeypatch, Replay, "apply")
    relay = world.relay(folder=world.folder / "empty")
    step_until(lambda: relay.owners, relay)
    assert lasted_too_long(calls)
    assert is_in_its_group(relay, world)
    assert len(calls) == 12  # once


@LONG
def test_and_one_that_looks_long_for_what_stands_further_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow_ups, "REPORT_EVERY", 1)
    monkeypatch.setattr(turn, "MOST_WAITING", 0)
    world.put(None, delay_action="cancel", delay_id="x")
    world.send(*map(str, range(12)))
    calls = slow(monkeypatch, follow_ups, "headers_of")
    monkeypatch.setattr("waterclock.relay.relay.READ", 1)  # so that the end is not reached at once
    relay = world.relay()
    step_until(lambda: world.replies(), relay)
    assert lasted_too_long(calls)
    assert is_in_its_group(relay, world)


@LONG
def test_and_one_that_loads_much(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from waterclock.relay.owner import owner

    monkeypatch.setattr(owner, "SLICE", 1)
    relay = world.started()
    world.send(*map(str, range(12)), in_ms=3_600_000 * 3)
    step_quietly(relay)
    world.close(relay)
    world.advance_ms(3_600_000 * 3 - 1_000)
    calls = slow(monkeypatch, owner.DueSoonWheel, "add")
    relay = world.relay()
    step_until(lambda: relay.owners, relay)
    assert lasted_too_long(calls)
    assert is_in_its_group(relay, world)
