"""A driver stands still while S3 is asked to write one of Spark's files; another takes the checkpoint over, and then the
request comes through: the file of the new owner is written over. The next start says so, and reads nothing twice.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import behind, make_pipeline, orders, run, table
from tests.spark.test_crashes import DRIVER
from tests.streaming.places.held_back import HeldBack
from tests.streaming.places.servers import Store, put_files
from waterclock.errors import StateMismatch
from waterclock.streaming import owner
from waterclock.streaming.places.hadoop import HadoopPath

pytestmark = [pytest.mark.spark, pytest.mark.servers]


@pytest.fixture
def drivers() -> Iterator[list[subprocess.Popen[bytes]]]:
    made: list[subprocess.Popen[bytes]] = []
    yield made
    for driver in made:
        with suppress(ProcessLookupError):
            os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()


def pipeline_of_two_at_once(store: Store, folder: Path) -> tuple[Path, HadoopPath]:
    """Of five files three are there: the first batch takes two."""
    place = store.folder()
    file = behind(str(place), make_pipeline(folder, orders(60), 5, files_per_batch=2))
    conf = "".join(f'"{name}" = "{value}"\n' for name, value in store.settings.items())
    text = file.read_text().replace('watermark_delay = "1 hour"', 'watermark_delay = "1 hour"\nclose = false')
    file.write_text(text + conf)
    (folder / "later").mkdir()
    for name in ("003.jsonl", "004.jsonl"):
        (folder / "in" / name).rename(folder / "later" / name)
    put_files(folder / "in", place / "in")
    return file, place


@pytest.mark.long(seconds=60)
@pytest.mark.parametrize("store", ["s3a"], indirect=True)
@pytest.mark.parametrize("name", ["sources/0/1", "offsets/1"])
def test_a_file_of_sparks_that_comes_late_is_told_and_no_row_is_read_twice(
    spark: SparkSession,
    store: Store,
    drivers: list[subprocess.Popen[bytes]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
) -> None:
    monkeypatch.setattr(owner, "LEASE_S", 3.0)
    file, place = pipeline_of_two_at_once(store, tmp_path)
    port = urlsplit(store.settings["spark.hadoop.fs.s3a.endpoint"]).port
    assert port is not None
    with closing(HeldBack(port, f"checkpoint/{name}")) as between:
        direct = file.read_text()
        file.write_text(direct.replace(f":{port}", f":{between.port}"))
        command = [sys.executable, str(DRIVER), str(file), "never", "0"]
        with (tmp_path / "driver.log").open("wb") as log:
            drivers.append(subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True))
        assert between.held.wait(120), (tmp_path / "driver.log").read_text()[-2000:]
        os.killpg(drivers[0].pid, signal.SIGSTOP)
        file.write_text(direct)
        put_files(tmp_path / "later", place / "in")
        run(spark, file)  # it takes over, and batch 1 of its own has other files
        written, before = table(tmp_path), (place / "checkpoint" / name).read_bytes()
        between.let_through()
        os.killpg(drivers[0].pid, signal.SIGCONT)
        assert drivers[0].wait(timeout=120) == 1
    assert (place / "checkpoint" / name).read_bytes() != before
    with pytest.raises(StateMismatch, match=f"{name} is not what it was when batch 1 was taken"):
        run(spark, file)
    assert table(tmp_path) == written
