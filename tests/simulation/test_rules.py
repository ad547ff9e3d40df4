"""A pipeline under the simulation keeps its promises, a seed has one history, and the checker notices what is planted."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("confluent_kafka")
pytest.importorskip("greenlet")

PAIR = ["--pair", "--past-known"]


def run(*arguments: str, hash_seed: str = "0", of: str = "rules") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.simulation", *arguments, "--workloads", of]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("of", ["rules", "local"])
@pytest.mark.parametrize("more", [[], PAIR], ids=["one broker", "a pair"])
def test_what_rules_make_of_a_topic_is_in_every_sink_once_in_order_and_on_time(more: list[str], of: str) -> None:
    found = run("1", "8", *more, of=of)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("of", ["rules", "local"])
def test_a_seed_with_rules_has_one_history_alone_and_among_others(of: str) -> None:
    first, second = (run("10", "3", "--hash", hash_seed=one, of=of).stdout for one in ("1", "2"))
    alone = run("12", "1", "--hash", of=of).stdout
    hashes = [[line for line in told.splitlines() if line.startswith("hash")] for told in (first, second, alone)]
    assert hashes[0] == hashes[1]
    assert hashes[0][2:] == hashes[2]


@pytest.mark.parametrize(
    "plant",
    [
        "rules-applied-unseen",
        "rules-watermark-early",
        "rules-mark-in-another-transaction",
        "rules-aborted-read",
        "local-snapshot-ahead-of-the-sink",
        "local-replay-begins-late",
        "local-watermarks-forgotten",
    ],
)
def test_what_is_planted_in_a_pipeline_is_found(plant: str) -> None:
    found = run("1000", "40", "--plant", plant, "--until-found", of="local" if plant.startswith("local") else "rules")
    assert found.returncode == 1, found.stdout


@pytest.mark.parametrize(
    ("seed", "more"), [("100", []), ("1002", PAIR), ("1030", PAIR)],
    ids=["results that are too large together", "late events that come twice", "two that begin at once"],
)  # fmt: skip
def test_a_seed_that_failed_does_not_fail_again(seed: str, more: list[str]) -> None:
    found = run(seed, "--seconds", "0", *more)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize(("port", "controller", "is_asked"), [(1, 7, True), (2, 7, False), (1, -1, False)])
def test_the_simulated_client_asks_the_controller_alone_what_a_topic_is(
    monkeypatch: pytest.MonkeyPatch, port: int, controller: int, is_asked: bool
) -> None:
    """As librdkafka does; who is no controller is left for another."""
    from tests.simulation.confluent import admin

    async def said(*asked: Any) -> Any:
        return SimpleNamespace(brokers=[SimpleNamespace(node_id=7, host="h", port=1)], controller_id=controller)

    async def topics(*asked: Any) -> Any:
        return {"t": SimpleNamespace(error_code=0, topic_id="id", partitions=[])}

    closed = list[bool]()
    link = SimpleNamespace(address=("h", port), close=lambda: closed.append(True))
    client = admin.AdminClient.__new__(admin.AdminClient)
    client._controls, client._kafka = None, SimpleNamespace(connection=lambda: link)
    monkeypatch.setattr(admin, "metadata", said)
    monkeypatch.setattr(admin, "topics", topics)
    if is_asked:
        assert asyncio.run(client._describe("t")).topic_id == "id"
    else:
        with pytest.raises(admin.Gone, match="not the controller"):
            asyncio.run(client._describe("t"))
    assert closed == [] if is_asked else [True]


def test_a_pipeline_whose_batches_go_on_is_not_stalled(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a few records a batch took longer than it was waited for, and had two left."""
    from tests.simulation.rules import workload

    node, told = SimpleNamespace(batches=0, is_done=False), SimpleNamespace(now=0)

    async def sleep(seconds: float) -> None:
        told.now += 100 * workload.NS
        node.batches = min(node.batches + 1, 5)
        node.is_done = told.now == 500 * workload.NS and not stalls

    monkeypatch.setattr(workload.asyncio, "sleep", sleep)
    pipeline = workload.SimulatedRules.__new__(workload.SimulatedRules)
    pipeline.world, pipeline.nodes = told, [node]  # type: ignore[assignment]
    for stalls in (False, True):
        told.now, node.batches, node.is_done = 0, 0, False
        asyncio.run(pipeline._until_closed())
        assert (node.is_done, told.now // workload.NS) == (not stalls, 700 if stalls else 500)
