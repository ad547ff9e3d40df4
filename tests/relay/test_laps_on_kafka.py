"""Laps, snapshots and trims on Apache Kafka: `make test-servers` runs them, with BROKERS=ours,apache."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.relay.brokers import ON_APACHE
from tests.relay.lapping import YEAR_MS, cut_off, lap, lapping, owner_of, until_delivered
from tests.relay.test_kills import dying
from tests.relay.test_lap_kills import LAP, SNAPSHOT, check, filled, until_death
from tests.relay.world import World, step_quietly
from waterclock.relay.upkeep.lap import LapTurn
from waterclock.relay.upkeep.upkeep import SnapshotTurn

pytestmark = list(ON_APACHE)


@pytest.fixture
def on_kafka(apache: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    with World(apache, tmp_path, f"delays-{zlib.crc32(request.node.name.encode())}") as made:
        yield made


def test_what_is_moved_on_is_delivered_once_when_both_logs_are_cut_off_and_the_files_are_lost(
    on_kafka: World,
) -> None:
    world = on_kafka
    relay = lapping(world)
    world.send("far", in_ms=YEAR_MS, id="cart-17")
    world.send("too", in_ms=YEAR_MS)
    step_quietly(relay)
    for _ in range(3):
        lap(world, relay)
    cut_off(world, relay)
    low, _ = relay._logs.bounds(world.topic, 0)
    assert low == owner_of(relay).log_span.low > 2
    world.crash(relay)
    relay = lapping(world, folder=world.folder / "empty")
    assert owner_of(relay).store.pending == 2
    world.advance_ms(YEAR_MS)
    until_delivered(world, relay, "far", "too")


@pytest.mark.parametrize(
    ("turn", "step"), [*((LapTurn, step) for step in LAP), *((SnapshotTurn, step) for step in SNAPSHOT)]
)
def test_a_death_before_each_step_loses_nothing_and_doubles_nothing(
    turn: Any, step: str, on_kafka: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    relay = filled(on_kafka)
    with monkeypatch.context() as patch:
        dying(patch, turn, step, "before")
        until_death(on_kafka, relay)
    check(on_kafka, lapping(on_kafka, folder=on_kafka.folder / "empty"))
