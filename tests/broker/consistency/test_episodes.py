"""Episodes of the campaign among the tests: what `python -m tests.broker.consistency` does for an hour, for half a minute.

The seed of the day draws the faults; a failure says how to repeat it, and its folder has the histories.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.consistency.crew import SMALL
from tests.broker.consistency.episode import Episode, Plan, Result
from tests.broker.consistency.nemesis import ONE, TWO, Nemesis


def check(result: Result) -> None:
    """Fail with the violations and with the command that repeats them."""
    if result.violations:
        pytest.fail("\n".join([*map(str, result.violations[:20]), f"again: {result.plan.again}"]), pytrace=False)


@pytest.mark.long(seconds=20)
def test_a_few_clients_and_a_few_faults_on_one_broker(tmp_path: Path, campaign_seed: int) -> None:
    result = Episode(tmp_path / "episode", Plan(campaign_seed, seconds=5, crew=SMALL)).run()
    check(result)
    assert result.figures["transactions ok"]
    assert result.figures["records in the end"]


@pytest.mark.long(seconds=50)
@pytest.mark.parametrize("number", [1, 2])
def test_one_broker_keeps_what_it_promised_whatever_befalls_it(tmp_path: Path, campaign_seed: int, number: int) -> None:
    result = Episode(tmp_path / "episode", Plan(campaign_seed + number, seconds=25)).run()
    check(result)


@pytest.mark.long(seconds=60)
@pytest.mark.parametrize("number", [1, 2])
def test_a_leader_and_its_follower_keep_what_they_promised(tmp_path: Path, campaign_seed: int, number: int) -> None:
    result = Episode(tmp_path / "episode", Plan(campaign_seed + number, brokers=2, seconds=30)).run()
    check(result)


def test_every_fault_that_is_drawn_can_be_done() -> None:
    for name in {*ONE, *TWO}:
        assert name in Nemesis.DEEDS
