"""What the tests of the relay need: a broker whose groups do not wait for more members, a world of topics for each."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.relay.brokers import Start
    from tests.relay.bystander import Beside, Bystander
    from tests.relay.world import World
    from waterclock.testing import Broker

_numbers = count()


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """No turn rests and no attempt pauses: the clocks of these tests stand still."""
    if {"relay_broker", "apache"} & set(request.fixturenames):
        monkeypatch.setattr("waterclock.relay.owner.pace.REST_NS", 0)
        monkeypatch.setattr("waterclock.relay.owner.take_over.RECONNECTING_S", (0.0,))
        monkeypatch.setattr("waterclock.relay.upkeep.upkeep.REST_NS", 0)


@pytest.fixture(scope="module")
def relay_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Ours; a file that shows something on both brokers has its own of this name, which asks for `either`."""
    pytest.importorskip("confluent_kafka", reason="it comes with the extra relay")
    pytest.importorskip("kio", reason="it comes with the extra broker")
    from tests.relay.brokers import running

    with running("ours", tmp_path_factory.mktemp("broker")) as broker:
        yield broker


@pytest.fixture(scope="session")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Apache Kafka, once for all files."""
    from tests.relay.brokers import running

    with running("apache", tmp_path_factory.mktemp("apache")) as broker:
        yield broker


def _world(broker: Broker, folder: Path, partitions: int) -> World:
    from tests.relay.world import World

    return World(broker, folder, f"delays{next(_numbers)}", partitions)


@pytest.fixture
def world(relay_broker: Broker, tmp_path: Path) -> Iterator[World]:
    """Topics of the test's own, one partition each, and a clock that is turned by hand."""
    with _world(relay_broker, tmp_path, 1) as made:
        yield made


@pytest.fixture
def wide(relay_broker: Broker, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[World]:
    """A world of as many partitions as the test's file says, or of two."""
    with _world(relay_broker, tmp_path, getattr(request.module, "PARTITIONS", 2)) as made:
        yield made


@pytest.fixture
def real(relay_broker: Broker, tmp_path: Path) -> Iterator[World]:
    """A world of two partitions whose time goes by itself."""
    from waterclock.clock import SystemClock

    with _world(relay_broker, tmp_path, 2) as made:
        made.clock = SystemClock()  # type: ignore[assignment]
        yield made


@pytest.fixture
def start(real: World, tmp_path: Path) -> Iterator[Start]:
    """Starts relays as processes."""
    from tests.relay.brokers import relays

    with relays(real, tmp_path) as starting:
        yield starting


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
