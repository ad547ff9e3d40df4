"""Which tests stay together in one process, and which begin: what takes longest first, so that all processes end together.

The tests of a file stay in one process, and share its servers. Beyond that:

Rule 1: in `make test` every test with a Spark session is in one process: a second session costs half a minute before
    its first answer. The campaigns are minutes of Spark, and have a session in each process.
Rule 2: the conformance suite has a process for Apache Kafka, which is started once in it, and another one for Spark,
    whose session needs the connector's jars from its start. The relay's tests have an Apache Kafka of their own.
Rule 3: a single process keeps pytest's order.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any

import pytest

from tests.campaign import MINUTES, cost_s, is_long

# about the seconds of who takes longest, without the long tests; who is not named begins last
SECONDS = {
    "tests/spark/test_pipeline.py": 180,  # and all with it
    "tests/kafka/test_transactions.py": 42,
    "tests/bench/test_bench.py": 37,
    "tests/cdc/test_capture.py": 31,
    "tests/rules/test_properties.py": 25,
    "tests/cdc/test_types.py": 34,
    "tests/test_cli.py": 21,
    "tests/relay/test_series.py": 11,
    "tests/relay/test_handlers.py": 10,
    "tests/broker/test_start.py": 20,
    "tests/examples/test_fines_report.py": 19,
    "tests/cdc/test_older.py": 18,
    "tests/streaming/files/test_ways.py": 16,
    "tests/bench/test_kafka.py": 16,
    "tests/cdc/test_server.py": 16,
    "tests/cdc/test_per_table.py": 15,
    "tests/sinks/test_contract.py": 40,
    "tests/conformance/test_clients.py": 14,
    "tests/cdc/test_kills.py": 13,
    "tests/test_pytest_plugin.py": 13,
    "tests/cdc/test_postgres.py": 13,
    "tests/examples/test_lessons.py": 13,
    "tests/cdc/test_letters.py": 12,
    "tests/broker/replication/test_frozen_leader.py": 12,
    "tests/streaming/topics/test_fetcher.py": 11,
    "tests/cdc/test_command.py": 11,
    "tests/kafka/test_client.py": 11,
    "tests/broker/groups/test_clients.py": 11,
    "tests/broker/test_crashes.py": 10,
}
SPARK = re.compile(
    r"tests/spark/((dataframe/)?test_\w+|rescaling/test_(kills|on_spark|rescale|topics)|checkpoint/test_unplanned|tables/test_refused)\.py|tests/examples/test_(fines|pipelines)\.py"
)


def together(nodeid: str) -> str:
    """The name of what stays in one process with this test."""
    file, _, name = nodeid.partition("::")
    if file.startswith("tests/installed/"):
        return name.partition("[")[2].partition("-")[0].strip("]")  # an environment is made once
    if file.startswith("tests/conformance/test_spark"):
        return "Spark with the connector"
    if file == "tests/relay/test_laps_on_kafka.py" or (file.startswith("tests/relay/") and name.endswith("[apache]")):
        return "the relay on Apache Kafka"
    if file.startswith("tests/conformance/") and re.search(r"[\[-]apache[\]-]", name):
        return "Apache Kafka"
    return "Spark" if SPARK.fullmatch(file) and MINUTES not in os.environ else file


@pytest.hookimpl(trylast=True)  # behind what chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        in_order(items)


def in_order(items: list[pytest.Item]) -> None:
    """What takes longest first; tests of one name stay together, in the order they have."""
    seconds, first = Counter[str](), dict[str, int]()
    for number, item in enumerate(items):
        first.setdefault(together(item.nodeid), number)
        seconds[together(item.nodeid)] += cost_s(item) if is_long(item) else 0.1
    for file in {item.nodeid.partition("::")[0] for item in items}:
        seconds[together(file)] += SECONDS.get(file, 0)
    items.sort(key=lambda item: (-seconds[name := together(item.nodeid)], first[name]))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

    return Scheduling(config, log)
