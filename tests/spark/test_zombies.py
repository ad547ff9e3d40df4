"""A driver that stands still (SIGSTOP) while another one takes its checkpoint over wakes up and writes nothing.

Its whole group of processes is stopped, Java and the workers too, right before the transaction of a batch that nobody has
written yet: behind all that looks at the lease.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conformance.waiting import until
from tests.sinks.stores import Database, PostgresStore
from tests.spark.pipelines import behind, into_postgres, make_pipeline, orders
from tests.spark.pipelines import table as rows_of
from tests.spark.test_crashes import DRIVER
from waterclock.errors import WaterclockError
from waterclock.spark.pipeline import configured
from waterclock.streaming import owner
from waterclock.streaming.toml.config import load

pytestmark = [pytest.mark.spark, pytest.mark.long(seconds=60)]
COLUMNS = "batch_id, kind, key, rule, source_id, result_id"


class Driver:
    """A driver of its own group of processes, which stops itself before the transaction of batch 1."""

    def __init__(self, file: Path) -> None:
        command = [sys.executable, str(DRIVER), str(file), "taken", "1", "SIGSTOP"]
        self._log = file.with_name("driver.log")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def stands_still(self) -> bool:
        assert self._process.poll() is None, self._log.read_text()[-2000:]
        return Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"

    def end(self) -> tuple[int, str]:
        """Wake it up, and wait: its code, and what it said."""
        os.killpg(self._process.pid, signal.SIGCONT)
        return self._process.wait(timeout=120), self._log.read_text()

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@pytest.fixture
def drivers() -> Iterator[list[Driver]]:
    made: list[Driver] = []
    yield made
    for driver in made:
        driver.kill()


def run(spark: SparkSession, file: Path, dying: bool = False) -> None:
    config = load(file)
    sink: Any = config.sink.sink()
    if dying:
        sink.write = die
    with closing(configured(config, sink)) as pipeline:
        pipeline.run(spark)


def die(*_: object) -> None:
    raise WaterclockError("the end of this run")


def results(database: Database, file: Path) -> list[tuple[Any, ...]]:
    found = database.look(COLUMNS) if isinstance(database, PostgresStore) else rows_of(file.parent, COLUMNS)
    return sorted(found, key=repr)


def test_a_driver_that_wakes_up_behind_a_take_over_writes_nothing(
    spark: SparkSession, database: Database, drivers: list[Driver], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "LEASE_S", 3.0)
    here = make_pipeline(tmp_path / "here", orders(60), files=3)
    run(spark, here)
    file = behind(f"file://{tmp_path}/there", make_pipeline(tmp_path / "there", orders(60), files=3))
    if isinstance(database, PostgresStore):
        file = into_postgres(file, database.server.url(), database.schema)
    drivers.append(Driver(file))
    until(drivers[0].stands_still, 120)
    before = results(database, file)
    with pytest.raises(WaterclockError, match="the end of this run"):
        run(spark, file, dying=True)  # it takes over, and has not written batch 1 either
    code, said = drivers[0].end()
    assert code == 1
    assert "StateMismatch" in said
    assert "another run took the checkpoint over" in said
    assert results(database, file) == before
    run(spark, file)
    assert results(database, file) == sorted(rows_of(here.parent, COLUMNS), key=repr)
