"""Places on a real HDFS and a real S3 server: the contract, and pipelines killed at each numbered step with their
checkpoint and their files there.

The S3 server is not brought by this: it takes 750 MB and Go; `python -m waterclock.bench.servers.s3` does.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from pyspark.sql import SparkSession

from tests.conftest import QUICK
from tests.spark.crash_driver import POINTS
from tests.spark.pipelines import behind, make_pipeline, orders, table
from tests.spark.place_contract import ServerContract
from tests.spark.test_crashes import DRIVER
from waterclock import Rules
from waterclock.bench.servers import hdfs, s3
from waterclock.errors import UsageError
from waterclock.sinks import SQLiteSink
from waterclock.spark import Pipeline, folder
from waterclock.spark.fresh import start_over
from waterclock.spark.pipeline import configured
from waterclock.spark.places.hadoop import HadoopPath
from waterclock.spark.session.session import start
from waterclock.spark.toml.config import load

pytestmark = [pytest.mark.spark, pytest.mark.servers]


class Store:
    """A server of files: what a session needs for it, and a new folder on it for each test."""

    def __init__(self, server: hdfs.Hdfs | s3.S3) -> None:
        self.server = server
        self.settings = server.settings if isinstance(server, s3.S3) else {}

    def folder(self) -> HadoopPath:
        return HadoopPath(f"{self.server.uri}/{uuid4().hex}")


@pytest.fixture(scope="module", params=["hdfs", "s3a"])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    if request.param == "s3a" and not s3.is_here():
        pytest.skip("the S3 server is not here: python -m waterclock.bench.servers.s3")
    folder = tmp_path_factory.mktemp(request.param) / "server"
    made = hdfs.Hdfs(folder) if request.param == "hdfs" else s3.S3(folder)
    try:
        yield Store(made)
    finally:
        made.stop()


@pytest.fixture(scope="module")
def spark(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session for each store. Java starts once, with what either of them needs of classes."""
    classes = {"spark.driver.extraClassPath": f"{s3.LIB}/*"} if s3.is_here() else {}
    log = tmp_path_factory.mktemp("spark") / "spark.log"
    session = start("places", 2, {**QUICK, **classes, **store.settings}, log).spark
    yield session
    session.stop()


@pytest.fixture
def place(spark: SparkSession, store: Store) -> HadoopPath:
    return store.folder()


class TestPlaces(ServerContract):
    """The contract."""


# Pipelines


def put_files(local: Path, place: HadoopPath) -> None:
    """The files of a folder of this machine, each written later than the one before it, by the clock of the store."""
    before_ms = 0
    for file in sorted(local.iterdir()):
        written_ms = before_ms
        while written_ms <= before_ms:  # an S3 server counts whole seconds
            (place / file.name).write_whole(file.read_bytes())
            written_ms = (place / file.name).written_ms()
        before_ms = written_ms


def pipeline_on(store: Store, folder: Path, files: int) -> Path:
    place = store.folder()
    file = behind(str(place), make_pipeline(folder, orders(60), files))
    conf = "".join(f'"{name}" = "{value}"\n' for name, value in store.settings.items())
    file.write_text(file.read_text() + conf)
    put_files(folder / "in", place / "in")
    return file


@pytest.fixture(scope="module")
def clean(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """What a run on this machine's own folders writes, without a kill."""
    here = make_pipeline(tmp_path_factory.mktemp("clean"), orders(60), 3)
    with closing(configured(load(here))) as pipeline:
        pipeline.run(spark)
    return table(here.parent)


@pytest.mark.long(seconds=25)
@pytest.mark.parametrize(("batch", "point"), [(n % 3, point) for n, point in enumerate(POINTS)])
def test_a_kill_at_a_numbered_step_changes_nothing(
    spark: SparkSession, store: Store, clean: list[tuple[Any, ...]], tmp_path: Path, batch: int, point: str
) -> None:
    file = pipeline_on(store, tmp_path, 3)
    command = [sys.executable, str(DRIVER), str(file), point, str(batch)]
    died = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]
    with closing(configured(load(file))) as pipeline:
        pipeline.run(spark)
    assert table(tmp_path) == clean


def test_a_pipeline_is_run_again_refused_and_started_over(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    file = pipeline_on(store, tmp_path, 1)
    config = load(file)
    with closing(configured(config)) as pipeline:
        pipeline.run(spark)
    with closing(configured(config)) as pipeline:
        assert pipeline.run(spark).events == 0
    source = config.source.path  # type: ignore[union-attr]
    assert isinstance(source, HadoopPath)
    (source / "late.jsonl").write_whole(b"rubbish")
    with closing(configured(config)) as pipeline, pytest.raises(UsageError, match="1 file came after that"):
        pipeline.run(spark)
    before = table(tmp_path)
    start_over(config)
    (source / "late.jsonl").unlink()
    with closing(configured(config)) as pipeline:
        pipeline.run(spark)
    assert table(tmp_path) == before


def test_sparks_own_readers_read_there_and_keep_what_they_inferred(
    spark: SparkSession, store: Store, tmp_path: Path
) -> None:
    place = store.folder()
    (place / "in" / "a.csv").write_whole(b"case,ts,n\na,2026-01-01T00:00:00Z,1\n")
    rules = Rules(key="case", time="ts")
    source = folder(str(place / "in"), format="csv", options={"header": "true"})
    sink = SQLiteSink(tmp_path / "out.db")
    with closing(Pipeline(source, rules, sink, str(place / "checkpoint"))) as pipeline:
        assert pipeline.run(spark).events == 1
    assert (place / "checkpoint" / "inferred.json").exists()
