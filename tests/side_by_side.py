"""Which tests stay together in one process, and which begin: what takes longest first, so that all processes end together.

The tests of a file stay in one process, and share its servers. Beyond that:

Rule 1: in `make test` every test with a Spark session is in one process: a second session costs half a minute before
    its first answer. The campaigns are minutes of Spark, and have a session in each process.
Rule 2: the conformance suite has a process for Apache Kafka, which is started once in it, and another one for Spark,
    whose session needs the connector's jars from its start. The relay's tests have an Apache Kafka of their own.
Rule 3: a single process keeps pytest's order.
Rule 4: a process that dies fails the test that it was at, once. What it had not run is run by others. pytest-xdist 3.8
        gives that test to the next process again, which dies of it too, and waits for ever for a single one that is left.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from typing import Any

import pytest

from tests.campaign import MINUTES, cost_s, is_long
from tests.turns import named, read

QUICK_S = 0.1  # of a test that tests/seconds.txt does not name
SPARK = re.compile(
    r"tests/spark/((dataframe/)?test_\w+|rescaling/test_(kills|lagging|live|moving|on_spark|rescale|returning|topics)|checkpoint/test_unplanned|tables/test_refused)\.py|tests/examples/test_(fines|pipelines)\.py"
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
        in_order(items, read(config.rootpath / "tests" / "seconds.txt"))


def in_order(items: list[pytest.Item], known: dict[str, float]) -> None:
    """What takes longest first, as `known` says; tests of one name stay together, in the order they have."""
    seconds, first = Counter[str](), dict[str, int]()
    for number, item in enumerate(items):
        first.setdefault(together(item.nodeid), number)
        seconds[together(item.nodeid)] += cost_s(item) if is_long(item) else known.get(named(item.nodeid), QUICK_S)
    items.sort(key=lambda item: (-seconds[name := together(item.nodeid)], first[name]))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return together(nodeid)

        def schedule(self) -> None:
            """Rule 4: a process runs its last test when it knows the next one, or that there is none."""
            super().schedule()
            for node in self.nodes:
                self._reschedule(node)

        def remove_node(self, node: Any) -> str | None:
            """Rule 4; the test that a process died of."""
            units = self.assigned_work.pop(node)
            died = next((name for unit in units.values() for name, over in unit.items() if not over), None)
            if died is not None:
                units[together(died)][died] = True
                self.workqueue.update({name: unit for name, unit in units.items() if not all(unit.values())})
                for other in self.nodes:
                    self._reschedule(other)
            return died

    return Scheduling(config, log)
