"""A session on a cluster: what differs from one on this machine, and how the executors come by waterclock.

    waterclock run orders.toml --master spark://host:7077        this process is the driver and starts Spark's Java
    spark-submit --master spark://host:7077 run.py               spark-submit has started it: its settings stand

Executors need a Python with the packages of the extra `spark` (and `kafka` for topics). waterclock itself is sent to them.

Rule 1: what is sent is the package's Python files and compiled modules in one zip. Executors unpack it, since a compiled
        module cannot be imported from a zip. One that was compiled for another platform or Python is passed over there, as
        its name or the system's loader says: the plain one gives the same results, and the same bytes of state
        (packing/operator.py).
Rule 2: an operator with state has Spark start a Python on the driver too, which does not see what was sent. It finds the
        package by the PYTHONPATH with which Java is started; and does not look into the caller's folder (PYTHONSAFEPATH),
        where a random.py would be taken for Python's own.
Rule 3: nothing of the loopback settings holds here: executors must be able to reach the driver.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

import waterclock.errors
from waterclock.errors import UsageError
from waterclock.spark.session.runtimes import environment
from waterclock.streaming.buckets import by_cores

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL_ONLY = ("spark.driver.host", "spark.driver.bindAddress", "spark.sql.streaming.checkpointFileManagerClass")
_SOCKET_FILES = "spark.python.unix.domain.socket.enabled"
_PARTITIONS = "spark.sql.shuffle.partitions"
_NAME = "waterclock"
_PACKAGE = Path(waterclock.errors.__file__).parent


def submitted() -> dict[str, str]:
    """The settings that spark-submit gave, where it started this process; empty otherwise."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()
    return dict(SparkConf().getAll())


def is_local(master: str) -> bool:
    """True if Spark's executors are threads of this machine's one process.

    >>> is_local("local[4]"), is_local("spark://host:7077"), is_local("local-cluster[2,1,1024]")
    (True, False, False)
    """
    return master == "local" or master.startswith("local[")


def cluster_settings(
    ours: Mapping[str, str], given: Mapping[str, str], cores: int | None, count: int | None = None
) -> dict[str, str]:
    """`ours`, for one machine, as they serve on a cluster with `count` buckets; UsageError if nobody said how much of it
    to take."""
    if cores is None and _PARTITIONS not in given:
        raise UsageError(
            "a pipeline on a cluster needs 'cores' in [spark]: how many of the cluster's cores it takes, and in how many "
            "parts its state is kept"
        )
    # a container's folder on YARN has a longer path than a socket's file may have: no Python worker would start
    left_out = (*_LOCAL_ONLY, _SOCKET_FILES) if given.get("spark.master") == "yarn" else _LOCAL_ONLY
    kept = {name: value for name, value in ours.items() if name not in left_out}
    if cores is not None:
        parts = min(cores, count or by_cores(cores))  # more than buckets would stay empty
        kept |= {"spark.cores.max": str(cores), _PARTITIONS: str(parts)}
    return kept


@contextmanager
def shipped() -> Iterator[Path]:
    """The zip of waterclock; inside, a Java that is started hands the package to Pythons that it starts itself."""
    folder = Path(tempfile.mkdtemp(prefix="waterclock-"))
    atexit.register(shutil.rmtree, folder, True)  # executors may fetch it as long as this process lives
    file = packed(folder)
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / _NAME)
    path = os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))
    with environment(PYTHONPATH=path, PYTHONSAFEPATH="1"):
        yield file


def packed(folder: Path) -> Path:
    """What is in waterclock's folder as a zip in `folder`: Python files, and modules that were compiled for this Python.

    The same files always give the same bytes.
    """
    file = folder / f"{_NAME}.zip"
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted([*_PACKAGE.rglob("*.py"), *_PACKAGE.rglob(f"*{EXTENSION_SUFFIXES[0]}")]):
            entry = zipfile.ZipInfo(path.relative_to(_PACKAGE).as_posix())  # the year 1980
            archive.writestr(entry, path.read_bytes(), zipfile.ZIP_DEFLATED)
    return file


def send(session: SparkSession, package: Path) -> None:
    """Have every executor import waterclock from `package`, before anything that it has installed."""
    session.sparkContext.addArchive(f"{package}#{_NAME}")  # unpacked as that folder, if Spark's Pythons look first


def cores_of(session: SparkSession) -> int:
    """How many tasks the session runs at once; of a cluster, as many as it was given."""
    context = session.sparkContext
    return int(context.getConf().get("spark.cores.max", str(context.defaultParallelism)))
