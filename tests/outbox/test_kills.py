"""What `python -m tests.outbox.kills` does by hand, in short, with the seed of the day."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.outbox.kills import DATABASES, Unended, play
from tests.relay.kills.processes import Apache, Own

BOTH = [pytest.param(kind, marks=getattr(pytest.mark, kind)) for kind in DATABASES]


@pytest.mark.long(seconds=40)
@pytest.mark.parametrize("kind", BOTH)
def test_500_orders_and_a_kill_of_each(kind: str, tmp_path: Path, campaign_seed: int) -> None:
    play(tmp_path, kind, Own(tmp_path / "broker"), 500, 4, campaign_seed)


@pytest.mark.long(seconds=300)
@pytest.mark.parametrize("kind", BOTH)
def test_10000_orders_and_20_kills(kind: str, tmp_path: Path, campaign_seed: int) -> None:
    play(tmp_path, kind, Own(tmp_path / "broker"), 10_000, 20, campaign_seed)


@pytest.mark.servers
@pytest.mark.long(seconds=60)
@pytest.mark.skipif("apache" not in os.environ.get("BROKERS", ""), reason="BROKERS names no apache")
@pytest.mark.parametrize("kind", BOTH)
def test_500_orders_and_a_kill_of_each_on_apache_kafka(kind: str, tmp_path: Path, campaign_seed: int) -> None:
    """A run in which Kafka itself says that it has not ended a transaction proves nothing: there is another one."""
    for number in range(4):
        folder = tmp_path / f"{number}"
        try:
            play(folder, kind, Apache(folder / "broker"), 500, 4, campaign_seed + number)
            return
        except Unended:
            continue
    pytest.fail("Kafka has not ended a transaction, four times of four")
