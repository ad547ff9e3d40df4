"""What the tests of the relay need: a broker whose groups do not wait for more members, a world of topics for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.relay.bystander import Beside, Bystander
    from tests.relay.world import World
    from waterclock.testing import Broker

_numbers = count()


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """No turn rests and no attempt pauses: the clocks of these tests stand still."""
    if "relay_broker" in request.fixturenames:
        monkeypatch.setattr("waterclock.relay.turn.REST_NS", 0)
        monkeypatch.setattr("waterclock.relay.relay._PAUSES_S", (0.0,))
        monkeypatch.setattr("waterclock.relay.upkeep.REST_NS", 0)


@pytest.fixture(scope="module")
def relay_broker() -> Iterator[Broker]:
    pytest.importorskip("confluent_kafka", reason="pip install 'waterclock[relay]'")
    pytest.importorskip("kio", reason="pip install 'waterclock[broker]'")
    from waterclock.testing import Broker

    settings = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}
    with Broker(settings=settings) as broker:
        yield broker


@pytest.fixture
def world(relay_broker: Broker, tmp_path: Path) -> Iterator[World]:
    """Topics of the test's own, one partition each, and a clock that is turned by hand."""
    from tests.relay.world import World

    with World(relay_broker, tmp_path, f"delays{next(_numbers)}") as made:
        yield made


@pytest.fixture
def beside(world: World) -> Iterator[Beside]:
    """Makes one that stands by: the relay that it stands beside, and what `Bystander` takes."""
    from tests.relay.bystander import Bystander

    made: list[Bystander] = []

    def make(*arguments: Any, **options: Any) -> Bystander:
        made.append(Bystander(world, *arguments, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
