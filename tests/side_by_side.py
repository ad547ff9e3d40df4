"""Which tests stay together in one process, and which begin: what takes longest first, so that all processes end together.

The tests of a file stay in one process, and share its servers. Beyond that:

Rule 1: in `make test` every test with a Spark session is in one process: a second session costs half a minute before
    its first answer. The campaigns are minutes of Spark, and have a session in each process.
Rule 2: the conformance suite has a process for Apache Kafka, which is started once in it, and another one for Spark,
    whose session needs the connector's jars from its start.
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
    "tests/spark/test_pipeline.py": 170,  # and all with it
    "tests/examples/test_lessons.py": 35,
    "tests/cdc/test_capture.py": 30,
    "tests/bench/test_bench.py": 20,
    "tests/cdc/test_catalog.py": 18,
    "tests/spark/kafka/test_fetcher.py": 17,
    "tests/sinks/test_contract.py": 15,
    "tests/examples/test_fines_report.py": 14,
    "tests/broker/test_crashes.py": 13,
    "tests/test_house.py": 13,
    "tests/conformance/test_clients.py": 12,
    "tests/cdc/test_types.py": 11,
    "tests/rules/test_properties.py": 11,
    "tests/broker/test_start.py": 10,
    "tests/bench/test_kafka.py": 9,
    "tests/broker/groups/test_clients.py": 9,
    "tests/broker/net/test_fuzz.py": 9,
    "tests/cdc/test_postgres.py": 9,
    "tests/cdc/test_transactions.py": 9,
    "tests/conformance/test_client_transactions.py": 9,
    "tests/test_cli.py": 9,
}
SPARK = re.compile(r"tests/spark/test_\w+\.py|tests/examples/test_fines\.py")


def together(nodeid: str) -> str:
    """The name of what stays in one process with this test."""
    file, _, name = nodeid.partition("::")
    if file.startswith("tests/conformance/test_spark"):
        return "Spark with the connector"
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
