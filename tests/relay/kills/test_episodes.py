"""Episodes of the campaign among the tests: what `python -m tests.relay.kills` does for an hour, for half a minute.

The seed of the day draws the faults; the folder of one that fails has what the processes wrote.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.relay.kills.episode import UNENDED, Episode, Plan, Result
from tests.relay.kills.processes import Apache, Own, Suffering


def check(broker: Suffering, folder: Path, plan: Plan) -> None:
    result = run(broker, folder, plan)
    assert not result.violations, words_of(result)


def run(broker: Suffering, folder: Path, plan: Plan) -> Result:
    try:
        result = Episode(folder, broker, plan).run()
    finally:
        broker.kill()
    assert result.figures["delivered"]
    assert result.figures["kills and pauses"]
    return result


def words_of(result: Result) -> str:
    return "\n".join([*map(str, result.violations[:20]), f"again: {result.plan}"])


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
    """An episode in which Kafka itself says that it has not ended a transaction proves nothing: there is another one."""
    for number in range(4):
        result = run(
            Apache(tmp_path / f"broker-{number}"), tmp_path / f"episode-{number}", Plan(campaign_seed + number, 30)
        )
        if not (result.violations and result.figures[UNENDED]):
            assert not result.violations, words_of(result)
            return
    pytest.fail("Kafka has not ended a transaction, four times of four")
