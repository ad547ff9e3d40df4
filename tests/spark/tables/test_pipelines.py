"""Pipelines into tables of Spark's catalogs, also where the driver is killed, with its Java too: what SQLite would hold.

Of those that are killed, Delta Lake's are in a Hive metastore, Iceberg's in a catalog of files. They are read without
Spark, by the packages deltalake and pyiceberg.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable
from pyspark.sql import SparkSession

from tests.conftest import OF_SPARK
from tests.spark.lakes import PARTS
from tests.spark.pipelines import make_pipeline, orders, table
from waterclock.bench.servers import tables
from waterclock.spark.fresh import start_over
from waterclock.spark.pipeline import configured
from waterclock.streaming.summary import Summary
from waterclock.streaming.toml.config import load

pytestmark = [pytest.mark.spark, pytest.mark.servers]
PROVIDERS = [name.rpartition(" ")[2] for name in OF_SPARK]
NAMES = ["kind", "key", "rule", "source_id", "result_id", "event_id", "event_n"]
# the command, and SIGKILL in front of the commit of that number; -1: it is killed from outside
DRIVER = """
import os, signal, sys
from waterclock import cli
from waterclock.spark.tables import lakes
steps = iter(range(1000))
for lake in map(type, lakes.LAKES.values()):
    def dying(*arguments, append=lake.append):
        if next(steps) == int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        return append(*arguments)
    lake.append = dying
cli.main(["run", sys.argv[1]])
"""


def with_rubbish(folder: Path, rows: list[dict[str, Any]]) -> Path:
    file = make_pipeline(folder, rows, files=2)
    second = folder / "in" / "001.jsonl"
    second.write_text(second.read_text() + "rubbish\n")
    os.utime(second, (1_700_000_001, 1_700_000_001))
    return file


def into_tables(folder: Path, rows: list[dict[str, Any]], provider: str, spark: dict[str, str]) -> Path:
    """A pipeline into tables of that provider; `spark` says where the session keeps them."""
    file = with_rubbish(folder, rows)
    name = "shop.orders" if provider == "delta" else "lake.shop.orders"
    sink = f'format = "table"\ntable = "{name}"\nusing = "{provider}"'
    conf = "".join(f'"{key}" = "{value}"\n' for key, value in spark.items())
    file.write_text(file.read_text().replace('path = "out.db"', sink) + conf)
    return file


def metastore(folder: Path) -> dict[str, str]:
    """A Hive metastore in `folder`, of one process at a time."""
    place = f"jdbc:derby:;databaseName={folder}/metastore;create=true"
    return {"spark.sql.catalogImplementation": "hive", "spark.hadoop.javax.jdo.option.ConnectionURL": place}


def run(spark: SparkSession, file: Path) -> Summary:
    with closing(configured(load(file))) as pipeline:
        return pipeline.run(spark)


def rows_in(folder: Path, provider: str, part: str = "") -> pa.Table:
    """What a table holds, by batch and row."""
    if provider == "delta":
        found = DeltaTable(folder / "delta" / "shop.db" / f"orders{part}").to_pyarrow_table()
    else:
        place = folder / "iceberg" / "shop" / f"orders{part}" / "metadata"
        version = (place / "version-hint.text").read_text().strip()
        found = StaticTable.from_metadata(str(place / f"v{version}.metadata.json")).scan().to_arrow()
    order = [(name, "ascending") for name in ("batch_id", "batch_row") if name in found.column_names]
    return found.sort_by(order)


COLUMNS = [["batch_id", *NAMES], ["batch_id", "line", "reason", "text"], ["batch_id", "counters"]]


def held(folder: Path, provider: str) -> list[Any]:
    """All three tables, without what time and place make of them."""
    parts = zip(PARTS, COLUMNS, strict=True)
    found = [rows_in(folder, provider, part).select(names).to_pylist() for part, names in parts]
    return [[tuple(row.values()) for row in rows] for rows in found]


def held_by_sqlite(folder: Path) -> list[Any]:
    """The same of a file of SQLite."""
    with closing(sqlite3.connect(folder / "out.db")) as db:
        parts = zip(PARTS, COLUMNS, strict=True)
        asked = [f"SELECT {', '.join(names)} FROM results{part} ORDER BY batch_id, rowid" for part, names in parts]
        return [db.execute(statement).fetchall() for statement in asked]


@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_table_of_sparks_catalog_holds_what_sqlite_holds_and_goes_with_fresh(
    tables_spark: SparkSession, tmp_path: Path, provider: str
) -> None:
    rows = orders(12)
    file, sqlite = into_tables(tmp_path / provider, rows, provider, {}), with_rubbish(tmp_path / "sqlite", rows)
    totals = [run(tables_spark, each).totals for each in (file, sqlite)]
    name = "shop.orders" if provider == "delta" else "lake.shop.orders"
    found = tables_spark.table(name).orderBy("batch_id", "batch_row").select(*NAMES).collect()
    assert [tuple(row) for row in found] == table(tmp_path / "sqlite", ", ".join(NAMES))
    assert totals[0] == totals[1]
    assert [row["line"] for row in tables_spark.table(f"{name}_dead_letters").collect()] != []
    assert run(tables_spark, file).batches == 0
    start_over(load(file))
    assert not any(tables_spark.catalog.tableExists(name + part) for part in PARTS)


@pytest.mark.long(seconds=90)
@pytest.mark.parametrize("provider", PROVIDERS)
def test_a_driver_that_is_killed_between_two_commits_or_at_any_moment_leaves_each_batch_once(
    tmp_path: Path, provider: str, campaign_seed: int
) -> None:
    if reason := tables.missing():
        pytest.skip(f"{reason}: make test-tables brings that")
    rows, chance, folder = orders(12), Random(campaign_seed), tmp_path / "killed"
    conf = {**tables.settings(folder), **(metastore(folder) if provider == "delta" else {})}
    file, clean = into_tables(folder, rows, provider, conf), with_rubbish(tmp_path / "clean", rows)
    assert driver(clean, -1).wait(240) == 0
    commit, seconds = chance.randrange(6), chance.uniform(4, 16)
    assert driver(file, commit).wait(240) == -signal.SIGKILL
    live = driver(file, -1)
    try:
        live.wait(seconds)
    except subprocess.TimeoutExpired:
        os.killpg(live.pid, signal.SIGKILL)  # Java too, in the midst of a commit where chance has it
        live.wait()
    assert driver(file, -1).wait(240) == 0
    told = f"killed in front of commit {commit}, and after {seconds:.3f} s"
    assert held(folder, provider) == held_by_sqlite(tmp_path / "clean"), told


def driver(file: Path, commit: int) -> subprocess.Popen[bytes]:
    with (file.parent / "driver.log").open("ab") as log:
        command = [sys.executable, "-c", DRIVER, str(file), str(commit)]
        quiet = {"stdout": log, "stderr": log, "stdin": subprocess.DEVNULL}
        return subprocess.Popen(command, **quiet, cwd=file.parent, start_new_session=True)
