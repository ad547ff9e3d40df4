"""A broker that loses its power at a step of a turn, and comes back: nothing lost, nothing twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.relay.test_kills import TURN, check, fill
from tests.relay.world import World, step_quietly, step_until
from waterclock.kafka import library
from waterclock.kafka.settings import base_settings
from waterclock.relay.handlers.handler import Handler, HandlerOptions
from waterclock.relay.owner.turn import Turn
from waterclock.relay.relay import Relay
from waterclock.testing import Broker

QUICK = {"commit"}


def settings_of(relay: Relay) -> list[Mapping[str, Any]]:
    """What its clients are made with."""
    return [relay._settings, relay._context.settings, relay._logs._settings]


def test_a_relays_clients_keep_the_coordinator_when_no_broker_answers_whatever_a_user_sets(world: World) -> None:
    """Else a call within a transaction never comes back, whatever time it is given (librdkafka 2.16)."""
    given = {"metadata.recovery.strategy": "rebootstrap", "reconnect.backoff.ms": 70}
    found = settings_of(world.relay(settings=given))
    options = HandlerOptions(world.target, print, "group")
    handler = Handler(base_settings(world.broker.bootstrap, given), world.topic, options, world.clock)
    found.append(handler._settings)
    handler.close()
    for each in found:
        assert (each["metadata.recovery.strategy"], each["reconnect.backoff.ms"]) == ("none", 70)


@pytest.mark.parametrize(("given", "expected"), [({}, 10_000), ({"socket.timeout.ms": 8_000}, 8_000)])
def test_a_connection_that_died_without_a_word_is_given_up_soon_unless_a_user_says_otherwise(
    world: World, monkeypatch: pytest.MonkeyPatch, given: dict[str, Any], expected: int
) -> None:
    """The simulation cut a cable: the group's consumer waited a minute for an answer, and all its partitions with it."""
    made: list[Mapping[str, Any]] = []
    real = library.Consumer
    monkeypatch.setattr(library, "Consumer", lambda settings: (made.append(settings), real(settings))[1])
    world.started(settings=given)
    (member,) = [one for one in made if "session.timeout.ms" in one]
    assert (member["socket.timeout.ms"], member["fetch.max.bytes"]) == (expected, 8 << 20)


@pytest.fixture
def relay_broker(tmp_path: Path) -> Iterator[Broker]:
    """One of the test's own, which keeps its folder."""
    settings = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    with Broker(tmp_path / "broker", settings=settings) as broker:
        yield broker


@pytest.mark.parametrize(
    "step", [pytest.param(one, marks=() if one in QUICK else pytest.mark.long(seconds=4)) for one in TURN]
)
def test_a_broker_that_loses_its_power_at_a_step_loses_nothing_and_doubles_nothing(
    step: str, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = world.started()
    assert {each["metadata.recovery.strategy"] for each in settings_of(relay)} == {"none"}, "it would wait for ever"
    fill(world)
    real, calls = getattr(Turn, step), 0

    def around(self: Any) -> None:
        nonlocal calls
        calls += 1
        if calls in (1, 3):
            world.broker.cut_power()
            world.broker.start()
        real(self)

    monkeypatch.setattr(Turn, step, around)
    step_until(lambda: calls and relay._counts.turns, relay)
    world.advance_ms(2_000)
    step_until(lambda: world.advance_ms(10) or len(world.values()) >= 5, relay)
    check(world)


@pytest.mark.long(seconds=8)
def test_a_broker_that_is_away_for_longer_than_it_is_waited_for_ends_no_relay_and_is_said(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the input ends could not be asked for half a minute, and the relay ended."""
    monkeypatch.setattr("waterclock.kafka.transactions._FENCING_S", 0.2)
    relay = world.started()
    world.send("late", in_ms=1_000)
    step_quietly(relay)
    relay._logs._client.patience_s = 0.0
    world.broker.cut_power()
    step_until(lambda: any("does not say where" in str(error) for error in world.lost), relay)
    assert any(str(error).startswith("Kafka is away: ") for error in world.lost)
    world.broker.start()
    world.advance_ms(1_000)
    step_until(lambda: world.advance_ms(10) or relay._counts.delivered, relay)
    assert world.values() == ["late"]
