"""Random lives of relays on a real broker, years in seconds, held against the promises (oracle.py, life.py, draw.py)."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from tests.relay.draw import lives
from tests.relay.life import Life
from waterclock.testing import Broker

_numbers = count()


@pytest.fixture(autouse=True)
def read_little_by_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """So few records are in these lives that all would come at once."""
    monkeypatch.setattr("waterclock.relay.relay.READ", 2)


def lived(broker: Broker, folder: Path, seed: int, steps: int, partitions: int) -> None:
    """One life; a failure says its seed, and its steps."""
    print(f"seed {seed}")
    topic = f"life{next(_numbers)}"
    Life(broker, folder / topic, topic, partitions).play(lives(seed, steps))


@pytest.mark.parametrize("partitions", [1, pytest.param(2, marks=pytest.mark.long(seconds=6))])
def test_a_short_life_keeps_every_promise(partitions: int, relay_broker: Broker, tmp_path: Path) -> None:
    lived(relay_broker, tmp_path, partitions, 25, partitions)


@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("which", range(4))
@pytest.mark.parametrize("partitions", [1, 2, 3])
def test_so_do_long_lives(
    partitions: int, which: int, relay_broker: Broker, tmp_path: Path, campaign_seed: int
) -> None:
    for number in range(3):
        lived(relay_broker, tmp_path, campaign_seed + number, 120, partitions)
