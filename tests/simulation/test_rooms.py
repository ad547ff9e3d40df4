"""Relays, captures and pipelines under the simulation keep their promises, and the checkers notice what is planted."""

from __future__ import annotations

import asyncio
import subprocess
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("greenlet")

from tests.simulation.hashes import simulated
from tests.simulation.plants import PLANTS

PAIR = ("--pair", "--past-known")
spark = pytest.mark.skipif(find_spec("pyspark") is None, reason="pipelines need pyspark")
rooms = pytest.mark.parametrize(
    "room", ["relay", "capture", pytest.param("rules", marks=spark), pytest.param("local", marks=spark)]
)


def run(room: str, *arguments: str, hashes: int = 0) -> subprocess.CompletedProcess[str]:
    return simulated(*arguments, "--workloads", room, hashes=hashes)


@rooms
@pytest.mark.parametrize("more", [(), PAIR], ids=["one broker", "a pair"])
def test_all_is_there_once_in_order_on_time_and_as_it_was_told(room: str, more: tuple[str, ...]) -> None:
    found = run(room, "1", "8", *more)
    assert found.returncode == 0, found.stdout


@rooms
def test_a_seed_has_one_history_alone_and_among_others(room: str) -> None:
    told = [run(room, "10", "3", "--hash", hashes=one) for one in (1, 2)] + [run(room, "12", "--hash")]
    first, second, alone = ([line for line in one.stdout.splitlines() if line.startswith("hash")] for one in told)
    assert len(first) == 3
    assert first == second
    assert first[2:] == alone


@pytest.mark.parametrize(
    "plant",
    [
        *("relay-settled-forgotten", "relay-before-due", "relay-end-unread"),
        *("capture-position-apart", "capture-cut-at-most", "capture-fenced-late"),
        *(pytest.param(f"rules-{one}", marks=spark)
          for one in ("applied-unseen", "watermark-early", "mark-in-another-transaction", "aborted-read")),
        *(pytest.param(f"local-{one}", marks=spark)
          for one in ("snapshot-ahead-of-the-sink", "replay-begins-late", "watermarks-forgotten")),
    ],
)  # fmt: skip
def test_what_is_planted_is_found(plant: str) -> None:
    found = run(PLANTS[plant].kinds[0], "1000", "200", "--plant", plant, "--until-found")
    assert found.returncode == 1, found.stdout


@spark
@pytest.mark.parametrize(
    ("seed", "more"), [("100", ()), ("1002", PAIR), ("1030", PAIR)],
    ids=["results that are too large together", "late events that come twice", "two that begin at once"],
)  # fmt: skip
def test_a_seed_that_failed_does_not_fail_again(seed: str, more: tuple[str, ...]) -> None:
    found = run("rules", seed, "--seconds", "0", *more)
    assert found.returncode == 0, found.stdout


def test_a_capture_that_is_fenced_by_nobody_goes_on() -> None:
    """Kafka ends a transaction that is open for too long, and fences who began it: it said that another had its name."""
    found = run("capture", "324", "1")
    assert found.returncode == 0, found.stdout
    assert '"a capture is fenced": 1' in found.stdout


@pytest.mark.parametrize(("port", "controller", "is_asked"), [(1, 7, True), (2, 7, False), (1, -1, False)])
def test_the_simulated_client_asks_the_controller_alone_what_a_topic_is(
    monkeypatch: pytest.MonkeyPatch, port: int, controller: int, is_asked: bool
) -> None:
    """As librdkafka does; who is no controller is left for another."""
    from tests.simulation.confluent import admin

    async def said(*asked: Any) -> Any:
        return SimpleNamespace(brokers=[SimpleNamespace(id=7, host="h", port=1)], controller=controller)

    async def topics(*asked: Any) -> Any:
        return {"t": SimpleNamespace(error=0, id=bytes(15) + b"\1", partitions=[])}

    closed = list[bool]()
    link = SimpleNamespace(address=("h", port), close=lambda: closed.append(True))
    client = admin.AdminClient.__new__(admin.AdminClient)
    client._controls, client._kafka = None, SimpleNamespace(connection=lambda: link)
    monkeypatch.setattr(admin, "metadata", said)
    monkeypatch.setattr(admin, "topics", topics)
    if is_asked:
        assert asyncio.run(client._describe("t")).topic_id == "00000000-0000-0000-0000-000000000001"
    else:
        with pytest.raises(admin.Gone, match="not the controller"):
            asyncio.run(client._describe("t"))
    assert closed == [] if is_asked else [True]


@spark
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
