"""Episodes of the campaign among the tests: what `python -m tests.relay.kills` does for an hour, for half a minute.

The seed of the day draws the faults; the folder of one that fails has what the processes wrote.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.relay.kills.episode import Episode, Plan
from tests.relay.kills.processes import Apache, Own, Suffering


def check(broker: Suffering, folder: Path, plan: Plan) -> None:
    try:
        result = Episode(folder, broker, plan).run()
    finally:
        broker.kill()
    if result.violations:
        pytest.fail("\n".join([*map(str, result.violations[:20]), f"again: {plan}"]), pytrace=False)
    assert result.figures["delivered"]
    assert result.figures["kills and pauses"]


@pytest.mark.long(seconds=30)
def test_two_relays_that_are_killed_a_few_times_keep_their_promises(tmp_path: Path, campaign_seed: int) -> None:
    check(Own(tmp_path / "broker"), tmp_path / "episode", Plan(campaign_seed, 8, broker_faults=False))


@pytest.mark.long(seconds=60)
@pytest.mark.parametrize("number", [1, 2, 3])
def test_they_do_so_with_a_broker_that_suffers_too(tmp_path: Path, campaign_seed: int, number: int) -> None:
    check(Own(tmp_path / "broker"), tmp_path / "episode", Plan(campaign_seed + number, 30))


@pytest.mark.servers
@pytest.mark.long(seconds=90)
@pytest.mark.skipif("apache" not in os.environ.get("BROKERS", ""), reason="BROKERS names no apache")
def test_and_on_apache_kafka(tmp_path: Path, campaign_seed: int) -> None:
    check(Apache(tmp_path / "broker"), tmp_path / "episode", Plan(campaign_seed, 30))
