"""Kafka, a join of the user's own, rules, PostgreSQL, in Python and out of a pipeline's file: the driver is killed at each
numbered step and at random, on one machine and on a cluster of two workers; run again, the table is the same.

Every run is a process of its own: Java has Spark's connector on its class path from the start, or not at all.
"""

from __future__ import annotations

import importlib.util
import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

if not all(map(importlib.util.find_spec, ("psycopg", "pgpq", "confluent_kafka", "kio"))):
    pytest.skip("needs waterclock[postgres,kafka,broker]", allow_module_level=True)

from tests.postgres_server import PostgresServer
from tests.sinks.stores import PostgresStore
from tests.spark.join_crash_driver import DELAY, LIB, NAMES, RULES, Job
from tests.spark.pipelines import orders
from tests.spark.standalone import Cluster, cluster, driver_environment, python_without_waterclock
from tests.spark.test_crashes import TWO_STEPS
from tests.spark.topics import Sender
from waterclock.bench.servers import connector
from waterclock.testing import Broker

pytestmark = [pytest.mark.spark, pytest.mark.postgres, pytest.mark.servers]
ROOT = Path(__file__).parents[2]
PATIENCE_S = 400  # seconds on a quiet machine
ORDERS = 60
ON_A_CLUSTER = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraClassPath": f"{LIB}/*",
}


class Place:
    """Where the drivers run: on this machine alone, or as drivers of a cluster."""

    def __init__(self, workers: Cluster | None, environment: Mapping[str, str] | None) -> None:
        self._workers, self._environment = workers, environment
        self.conf = {} if workers is None else {**ON_A_CLUSTER, "spark.master": workers.url}

    def run(self, folder: Path, point: str, number: int) -> int:
        command = [sys.executable, "-m", "tests.spark.join_crash_driver", str(folder), point, str(number)]
        done = subprocess.run(command, capture_output=True, timeout=PATIENCE_S, cwd=ROOT, env=self._environment)
        told = "" if self._workers is None else self._workers.logs()
        assert done.returncode in (0, -signal.SIGKILL), f"{done.stderr.decode()[-3000:]}\n{told}"
        return done.returncode


@pytest.fixture(scope="module", autouse=True)
def jars() -> None:
    import pyspark

    connector.fetch(pyspark.__version__)


@pytest.fixture(scope="module", params=["one machine", "two workers"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if request.param == "one machine":
        yield Place(None, None)
        return
    python = python_without_waterclock(tmp_path_factory.mktemp("python") / "venv")
    with cluster(tmp_path_factory.mktemp("cluster") / "of two") as made:
        yield Place(made, driver_environment(python))


@pytest.fixture(scope="module")
def topic(kafka_broker: Broker) -> str:
    kafka_broker.create_topic("orders-to-join", 3)
    Sender(kafka_broker.bootstrap, "orders-to-join").orders(orders(ORDERS))
    return "orders-to-join"


@pytest.fixture
def store(postgres: PostgresServer) -> PostgresStore:
    return PostgresStore(postgres)


@pytest.fixture(params=["DataFrame", "file"])
def source(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def run(
    kafka_broker: Broker, topic: str, store: PostgresStore, place: Place, source: str, tmp_path: Path
) -> Callable[..., int]:
    """Run a driver of the pipeline, which dies at a point; the value is what it ended with."""
    job = Job(kafka_broker.bootstrap, topic, store.server.url(), store.schema, place.conf, source)
    (tmp_path / "job.json").write_text(json.dumps(asdict(job)))
    return lambda point="never", number=0: place.run(tmp_path, point, number)


def found(store: PostgresStore) -> Counter[Any]:
    """All results, whichever batch they came in."""
    due = "to_char(due AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')"
    return Counter(store.ask(f"SELECT kind, key, rule, {due}, source_id, event_name FROM results"))


def expected() -> Counter[Any]:
    """What the rules give in process of the joined rows."""
    rows = [{**row, "name": NAMES.get(row["what"])} for row in orders(ORDERS)]
    return Counter(
        (r.kind, r.key, r.rule, f"{r.due:%Y-%m-%d %H:%M:%S.%f}", r.source_id, (r.event or {}).get("name"))
        for r in RULES.run(rows, DELAY)
    )


@pytest.mark.long(seconds=60)
@TWO_STEPS
def test_a_kill_at_each_numbered_step_changes_nothing(
    run: Callable[..., int], store: PostgresStore, steps: Sequence[str]
) -> None:
    for batch, point in enumerate(steps):
        assert run(point, batch) == -signal.SIGKILL, f"the driver should have died at {point}"
    assert run() == 0
    assert found(store) == expected()


@pytest.mark.long(seconds=70)
def test_kills_at_random_moments_change_nothing(
    run: Callable[..., int], store: PostgresStore, campaign_seed: int
) -> None:
    chance = random.Random(campaign_seed)
    for _ in range(3):
        run("random", chance.randrange(5_000, 15_000))
    assert run() == 0
    assert found(store) == expected()
