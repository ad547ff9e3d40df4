"""A Spark session as the rules need it, on this machine or on a cluster.

Every setting has its reason in docs/spark.md. A session that runs already is used as it is.
"""

from __future__ import annotations

import logging
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from waterclock.arguments import TRIED_MASTERS
from waterclock.errors import EnvironmentMissing, UsageError, unstopped
from waterclock.signals import StopSignal
from waterclock.spark.session import cluster
from waterclock.spark.session.runtimes import environment, quick_python, use_java
from waterclock.streaming.buckets import by_cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)
_STREAMING = "org.apache.spark.sql.execution.streaming"
_ROCKSDB = f"{_STREAMING}.state.RocksDBStateStoreProvider"
_FILES = f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
_CONTEXT = f"{_STREAMING}.checkpointing.FileContextBasedCheckpointFileManager"
_MANAGER = "spark.sql.streaming.checkpointFileManagerClass"
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
# The quick compiler alone: of a batch's processor time in Java, the thorough one took nearly half, beside the work itself.
_JAVA = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:MetaspaceSize=256m"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
_RETAINED, _FEWEST = "spark.sql.streaming.minBatchesToRetain", 3


def settings(cores: int, count: int | None = None) -> dict[str, str]:
    """The settings of a local session for `cores` cores and `count` buckets, by Spark's names."""
    log = files("waterclock.spark.session") / "log4j2.properties"
    return {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "2g",
        _JAVA_OPTIONS: f"-Dlog4j2.configurationFile=file:{log} {_JAVA}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.authenticate.socketTimeout": "120s",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(min(cores, count or by_cores(cores))),  # more than buckets would stay empty
        "spark.sql.streaming.stateStore.providerClass": _ROCKSDB,
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        _MANAGER: _FILES,
        _RETAINED: "20",
        "spark.sql.streaming.numRecentProgressUpdates": "100",
    }


def conf_for(checkpoint: object, given: Mapping[str, str], master: str | None = None) -> dict[str, str]:
    """The settings `given`, with another `master` if one is named, and what a `checkpoint` behind a URI needs: Spark's own
    way of putting files into their place, which knows more stores than the one for a local disk."""
    chosen = {**given, **({"spark.master": master} if master else {})}
    return chosen if isinstance(checkpoint, Path) else {_MANAGER: _CONTEXT, **chosen}


@dataclass(frozen=True, slots=True)
class Session:
    """A running session, and a line that says which Java it runs on."""

    spark: SparkSession
    java: str


def start(
    name: str,
    cores: int | None = None,
    extra: Mapping[str, str] | None = None,
    log: Path | None = None,
    count: int | None = None,
    beside: Path | None = None,
) -> Session:
    """A session named `name` on `cores` cores of this machine, or of the cluster that "spark.master" names.

    State is kept in as many parts as there are cores, but no more than `count`, the buckets.
    Modules of a user's own lie in the folder `beside`: on this machine, workers look there last.
    `extra` settings win over those that spark-submit gave, and those over ours.
    What the JVM and its Python workers say goes to the file `log` if one is given.
    Raises EnvironmentMissing if no Java is found, or Spark does not start; UsageError for a cluster without `cores`.
    """
    java = use_java()
    given = {**cluster.submitted(), **(extra or {})}
    local = cluster.is_local(given.get("spark.master", "local"))
    _warn_of_untried(given.get("spark.master", "local"))
    _have_unicode_names()
    if local:
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", given.get("spark.pyspark.python", sys.executable))
    here = cores or os.cpu_count() or 1
    ours = settings(here, count) if local else cluster.cluster_settings(settings(here, count), given, cores, count)
    # options for the JVM are added to ours, which silence its log
    java_options = f"{ours[_JAVA_OPTIONS]} {given.get(_JAVA_OPTIONS, '')}".strip()
    chosen = {"spark.master": f"local[{here}]", "spark.app.name": name, **ours, **given, _JAVA_OPTIONS: java_options}
    quick = quick_python(os.environ["PYSPARK_PYTHON"], beside)
    with environment(PYSPARK_PYTHON=quick) if local else cluster.shipped() as package:
        spark = _started(chosen, log)
    if package is not None:
        cluster.send(spark, package)
    if log is not None:
        # of an error in a user's query PySpark writes 30 kB to stderr, in front of our sentence; the JVM has logged it
        from pyspark.logger import PySparkLogger

        PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True
    return Session(spark, java)


def _warn_of_untried(master: str) -> None:
    if not re.fullmatch(TRIED_MASTERS, master):
        log.warning("waterclock was never tried on %s: compare its results before you trust them", master)


def _have_unicode_names() -> None:
    """Let the JVM see every name of a file: if the environment's locale is not UTF-8, it passes over some in silence.

    Under LC_ALL=C, as some cron jobs and services run, a file named é.jsonl was no file.
    """
    reported = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := os.environ.get(name))), "")
    if "utf8" not in reported.lower().replace("-", ""):
        os.environ["LC_ALL"] = "C.UTF-8"


@contextmanager
def interpreted(session: SparkSession) -> Iterator[None]:
    """A context; the queries that start in it have no Java compiled for each batch's plan, if the user set nothing else.

    It pays if many rows go through the plan. If they are packed, it is a third of the planning of a small batch.
    """
    ours = {name: value for name, value in _INTERPRETED.items() if session.conf.get(name, None) is None}
    for name, value in ours.items():
        session.conf.set(name, value)
    try:
        yield
    finally:
        for name in ours:
            session.conf.unset(name)


def start_session(
    name: str = "waterclock",
    cores: int | None = None,
    extra: Mapping[str, str] | None = None,
    log: str | Path | None = None,
) -> SparkSession:
    """A session as docs/spark.md describes it, for a program or a notebook; see `start`. What Java and its workers say
    goes to the file `log`, or if none is given to stderr."""
    return start(name, cores, extra, log=None if log is None else Path(log), beside=Path.cwd()).spark


def session_for(name: str, log: Path | None = None) -> SparkSession:
    """The session that is active in this process, or a new one, which writes its log into the file `log`."""
    from pyspark.sql import SparkSession

    return SparkSession.getActiveSession() or start(name, log=log, beside=Path.cwd()).spark


def refuse(setting: Callable[[str, str], str | None]) -> None:
    """Raise UsageError if a session has a setting that would keep results back, forgets what a start needs, or keeps state
    in a way that rules cannot be kept in; `setting` gives the value of a name, or what is taken without one."""
    if setting(_NO_DATA, "true") != "true":
        raise UsageError(
            f'"{_NO_DATA}" must be true: what is due when time has moved on, the close too, comes in a batch without '
            "input. Leave the setting out"
        )
    if setting(_RETAINED, "100") in [*map(str, range(_FEWEST))]:
        raise UsageError(
            f'"{_RETAINED}" must be {_FEWEST} at least: Spark may be two batches ahead of the sink, and a start goes '
            "back behind these after a kill. Leave the setting out"
        )
    name = "spark.sql.streaming.stateStore.providerClass"
    if "RocksDB" not in (setting(name, "") or ""):
        raise UsageError(
            f"the session's {name!r} is not RocksDB's, which the rules' state needs: set it with "
            f'spark.conf.set("{name}", "{_ROCKSDB}"), or let waterclock.spark.start_session() make the session'
        )


def check(spark: SparkSession, count: int) -> None:
    """`refuse` what whoever started the session has set; warn of what makes it slow with `count` buckets."""
    refuse(spark.conf.get)
    parts = int(spark.conf.get("spark.sql.shuffle.partitions", "200"))
    if parts > count:
        log.warning(
            "spark.sql.shuffle.partitions is %d: each batch commits that many state stores, and all but %d stay empty; set "
            "it to the number of cores before the first batch of a checkpoint, which keeps it",
            parts,
            count,
        )


def _started(chosen: Mapping[str, str], log: Path | None) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    with _stderr_to(log):
        try:
            # Ctrl-C counts when the JVM is there: PySpark would lose it on its way, and it would never end
            with StopSignal() as interrupted:
                SparkContext._ensure_initialized(conf=SparkConf().setAll(list(chosen.items())))
            if interrupted:
                raise KeyboardInterrupt
            return SparkSession.builder.config(map=dict(chosen)).getOrCreate()
        except PySparkException as error:
            raise _not_started(error, chosen, log) from error
        except Py4JError as error:  # Java runs, and threw something
            raise _refused(error, chosen["spark.master"], log) from error


def _not_started(error: Exception, chosen: Mapping[str, str], log: Path | None) -> EnvironmentMissing:
    """PySpark says no more than JAVA_GATEWAY_EXITED; why, the JVM wrote to its stderr."""
    packages = chosen.get("spark.jars.packages")
    where = f" (the story is in {log})" if log else ""
    if packages:
        return EnvironmentMissing(
            f"the packages {packages} could not be had{where}: mend their names or the way to their repository, put the "
            'jars beside the pipeline and name them as "spark.jars" under [spark.conf], or do without them: for Kafka, '
            'way = "python" in [source] needs none'
        )
    return EnvironmentMissing(f"Spark's Java did not start{where}: {error}", door="spark")


def _refused(error: Exception, master: str, log: Path | None) -> EnvironmentMissing:
    """What Java threw stands behind a colon; behind it, where it was thrown."""
    threw = re.search(r"^: (.+?)\.?$", str(error), re.MULTILINE)
    where = f" (the story is in {log})" if log else ""
    remedy = "Look at its settings"
    if not cluster.is_local(master):
        remedy = "Is the cluster's master there, and of the same release of Spark?"
    return EnvironmentMissing(
        f"Spark did not start on {master}{where}: {unstopped(threw[1] if threw else error)}. {remedy}"
    )


@contextmanager
def _stderr_to(log: Path | None) -> Iterator[None]:
    """The JVM inherits file descriptor 2 when it starts and keeps it: the only moment to choose another."""
    if log is None:
        yield
        return
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stderr.flush()
    before = os.dup(2)
    with log.open("ab") as file:
        os.dup2(file.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
