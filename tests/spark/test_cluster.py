"""A pipeline on a cluster of two workers whose Python has no waterclock: it is sent there. A kill changes no answer."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import closing
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from tests.spark.pipelines import make_pipeline, orders, run, table
from tests.spark.standalone import HOME, WITHOUT, Cluster, cluster, driver_environment, kill, python_without_waterclock
from tests.spark.test_interrupt import wait_for_batches
from waterclock.errors import EnvironmentMissing, UsageError
from waterclock.spark.packing.operator import warn_of_refused
from waterclock.spark.session import session
from waterclock.spark.session.cluster import cluster_settings, packed
from waterclock.streaming.buckets import BUCKETS
from waterclock.wheel import COMPILED

pytestmark = pytest.mark.spark
MORE = """
"spark.driver.host" = "127.0.0.1"
"spark.executor.memory" = "512m"
"spark.executor.extraJavaOptions" = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""
PATIENCE_S = 400  # a minute or two on a quiet machine
RUN = "from waterclock.cli import main\nraise SystemExit(main())\n"


@pytest.fixture(scope="module")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster") / "of two") as made:
        yield made


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return python_without_waterclock(tmp_path_factory.mktemp("python") / "venv")


def for_a_cluster(file: Path) -> Path:
    head, conf = file.read_text().split("[spark.conf]")
    file.write_text(f"{head}[spark]\ncores = 2\n[spark.conf]{conf}{MORE}")
    return file


def driver(file: Path, master: str, python: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "waterclock.cli", "run", str(file), "--json", "--master", master]
    environment = driver_environment(python)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


# Without a cluster


def test_the_package_that_is_sent_holds_what_runs_here_and_is_always_the_same(tmp_path: Path) -> None:
    (tmp_path / "again").mkdir()
    first, again = packed(tmp_path), packed(tmp_path / "again")
    assert first.read_bytes() == again.read_bytes()
    names = set(zipfile.ZipFile(first).namelist())
    assert {"__init__.py", "rules/engine.py", "streaming/topics/fetcher.py"} <= names
    assert not [name for name in names if not name.endswith((".py", EXTENSION_SUFFIXES[0]))]


WORK = """
import waterclock.streaming.state.bucket as b
from waterclock.spark.packing.operator import refused_here
from waterclock.wheel import COMPILED
print(b.__file__, COMPILED, refused_here())
"""
FOREIGN = ".cpython-311-riscv64-linux-musl.so"


def said_by(python: Path, folder: Path) -> str:
    environment = {"PYTHONPATH": str(folder), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([python, "-c", WORK], capture_output=True, text=True, env=environment, timeout=60)
    assert done.stdout, done.stderr
    return done.stdout.strip()


def unpacked(folder: Path) -> list[Path]:
    """What an executor makes of the package that is sent; the value is its compiled modules."""
    with zipfile.ZipFile(packed(folder)) as archive:
        archive.extractall(folder / "waterclock")
    return sorted((folder / "waterclock").rglob("*.so"))


def test_a_python_that_has_only_what_was_sent_applies_rules_with_it_compiled_where_it_is_here(
    tmp_path: Path, python: Path
) -> None:
    unpacked(tmp_path)
    assert said_by(python, tmp_path) == f"{tmp_path}/waterclock/streaming/state/bucket.py {COMPILED}"


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled")
def test_modules_of_another_platform_or_a_broken_one_are_passed_over_and_told(tmp_path: Path, python: Path) -> None:
    for module in (found := unpacked(tmp_path)):
        module.rename(module.with_name(module.name.partition(".")[0] + FOREIGN))
    told = said_by(python, tmp_path)
    assert f"False {len(found)} of {len(found)} compiled modules on CPython 3." in told
    assert told.endswith(": it was compiled for another platform or Python")
    for module in (tmp_path / "waterclock").rglob(f"*{FOREIGN}"):
        module.unlink()
    (tmp_path / "waterclock" / "wheel" / f"_objects{EXTENSION_SUFFIXES[0]}").write_bytes(b"for another loader")
    told = said_by(python, tmp_path)
    assert "False 1 of 1 compiled modules on CPython 3." in told
    assert "such as _objects: " in told
    assert "another platform" not in told


def test_what_executors_cannot_load_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        warn_of_refused("1 of 5 compiled modules on CPython 3.12.1 on linux, s390x, such as _objects: why")
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "executors cannot load 1 of 5 compiled modules" in caplog.text


def test_settings_for_one_machine_do_not_hold_on_a_cluster() -> None:
    made = cluster_settings(session.settings(3), {}, 3)
    assert not {"spark.driver.host", "spark.driver.bindAddress"} & made.keys()
    assert (made["spark.cores.max"], made["spark.sql.shuffle.partitions"]) == ("3", "3")
    assert cluster_settings(session.settings(64), {}, 64, BUCKETS)["spark.sql.shuffle.partitions"] == str(BUCKETS)


def test_a_cluster_of_which_nobody_says_how_much_to_take_is_refused() -> None:
    with pytest.raises(UsageError, match=r"'cores' in \[spark\]"):
        cluster_settings(session.settings(2), {}, None)
    cluster_settings(session.settings(2), {"spark.sql.shuffle.partitions": "8"}, None)


def test_on_yarn_java_and_python_meet_at_a_port_for_a_containers_folder_is_too_long_a_path() -> None:
    name, ours = "spark.python.unix.domain.socket.enabled", session.settings(2)
    assert name not in cluster_settings(ours, {"spark.master": "yarn"}, 2)
    assert cluster_settings(ours, {"spark.master": "spark://one:7077"}, 2)[name] == "true"


@pytest.mark.parametrize(("master", "warned"), [("k8s://host:443", True), ("yarn", False), ("local[2]", False)])
def test_a_kind_of_cluster_that_was_never_tried_is_warned_of(
    master: str, warned: bool, caplog: pytest.LogCaptureFixture
) -> None:
    session._warn_of_untried(master)
    assert (f"waterclock was never tried on {master}" in caplog.text) == warned


def test_a_cluster_that_is_not_there_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    # it was a traceback of a hundred lines, most of them Java's
    def refuse(builder: object) -> None:
        raise Py4JError(
            "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": org.apache.spark.SparkException: Invalid master URL: spark://no such:1\n\tat org.apache.spark.util.Utils$"
        )

    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", refuse)
    with pytest.raises(EnvironmentMissing) as caught:
        session.start("none", 1, {"spark.master": "spark://no such:1"})
    assert str(caught.value) == (
        "Spark did not start on spark://no such:1: org.apache.spark.SparkException: Invalid master URL: spark://no such:1. "
        "Is the cluster's master there, and of the same release of Spark?"
    )


# On one


@pytest.mark.long(seconds=60)
def test_an_executor_that_is_killed_changes_no_answer(
    spark: SparkSession, two_workers: Cluster, python: Path, tmp_path: Path
) -> None:
    rows = orders(200)
    run(spark, make_pipeline(tmp_path / "here", rows, files=8))
    file = for_a_cluster(make_pipeline(tmp_path / "there", rows, files=8))
    process = driver(file, two_workers.url, python)
    try:
        wait_for_batches(file.parent, 3, patience_s=PATIENCE_S)
        assert len(two_workers.executors()) == 2
        kill(two_workers.executors()[0])
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    assert process.returncode == 0, f"{err}\n{two_workers.logs()}"
    assert table(file.parent) == table(tmp_path / "here")
    assert json.loads(out)["totals"]["events"] == len(rows)
    assert two_workers.started_executors() == 3


@pytest.mark.long(seconds=30)
def test_spark_submit_runs_a_pipeline_with_its_own_settings(two_workers: Cluster, python: Path, tmp_path: Path) -> None:
    rows = orders(20)
    file = for_a_cluster(make_pipeline(tmp_path, rows, files=1))
    (tmp_path / "run.py").write_text(RUN)
    submit = HOME / "bin" / "spark-submit"
    before = two_workers.started_executors()
    quick = ("--driver-java-options", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    command = [submit, "--master", two_workers.url, *quick, str(tmp_path / "run.py"), "run", str(file), "--json"]
    environment = {**driver_environment(Path(sys.executable)), "PYSPARK_DRIVER_PYTHON": sys.executable}
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, env=environment)
    assert done.returncode == 0, f"{done.stderr}\n{two_workers.logs()}"
    assert json.loads(done.stdout[done.stdout.index("{") :])["totals"]["events"] == len(rows)
    assert two_workers.started_executors() == before + 2


def can_hide_a_folder(tmp_path: Path) -> bool:
    return subprocess.run([*WITHOUT, str(tmp_path), "true"], capture_output=True, check=False).returncode == 0


@pytest.mark.long(seconds=40)
def test_a_folder_that_no_worker_has_mounted_ends_the_run_and_nothing_is_a_dead_letter(
    python: Path, tmp_path: Path
) -> None:
    if not can_hide_a_folder(tmp_path):
        pytest.skip("it takes rights to mount something over a folder")
    file = for_a_cluster(make_pipeline(tmp_path / "p", orders(20), files=2))
    with cluster(tmp_path / "cluster", unseen=tmp_path / "p" / "in") as made:
        process = driver(file, made.url, python)
        out, err = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 1, out
    assert "a machine of the cluster does not see it: mount the folder there" in err, err
    assert table(file.parent) == []
    with closing(sqlite3.connect(tmp_path / "p" / "out.db")) as db:
        assert db.execute("SELECT * FROM results_dead_letters").fetchall() == []


ASK = """
import sys
from waterclock.spark.session import session

def told(_):
    import waterclock.streaming.state.bucket as bucket
    from waterclock.wheel import COMPILED
    return bucket.__file__, COMPILED

more = {"spark.master": sys.argv[1], "spark.driver.host": "127.0.0.1", "spark.executor.memory": "512m"}
print(session.start("ask", 1, more).spark.sparkContext.parallelize([0], 1).map(told).collect()[0])
"""


@pytest.mark.long(seconds=25)
def test_executors_load_the_compiled_modules_that_were_sent(two_workers: Cluster, python: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", ASK, two_workers.url]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=PATIENCE_S, env=driver_environment(python), cwd=tmp_path
    )
    assert done.stdout.strip().endswith(f"/waterclock/streaming/state/bucket.py', {COMPILED})"), (
        f"{done.stdout}{done.stderr}"
    )
    assert str(two_workers.folder) in done.stdout
