"""A standalone cluster of Spark on this machine for a benchmark: a master and two workers of one core each.

Rule 1: it is gone when the block ends, however that ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pyspark

from waterclock.errors import EnvironmentMissing

HOME = Path(pyspark.__file__).parent
WORKERS = 2
_PATIENCE_S = 300
_AGAIN_AFTER_S = 0.2


@contextmanager
def two_workers(folder: Path) -> Iterator[str]:
    """The URL of its master; what its processes write lies in `folder`."""
    port, web = _free_port(), _free_port()
    url = f"spark://127.0.0.1:{port}"
    with ExitStack() as running:
        master = ("master.Master", "--port", str(port), "--webui-port", str(web))
        running.enter_context(_started(folder, *master))
        for number in range(WORKERS):
            pages, work = str(_free_port()), str(folder / f"work-{number}")
            given = ("--cores", "1", "--memory", "1g", "--webui-port", pages, "--work-dir", work, url)
            running.enter_context(_started(folder, "worker.Worker", *given))
        _wait_for_workers(web)
        yield url


@contextmanager
def _started(folder: Path, name: str, *arguments: str) -> Iterator[None]:
    command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--host", "127.0.0.1", *arguments]
    surroundings = {
        **os.environ,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_HOME": str(HOME),
        "PYSPARK_PYTHON": sys.executable,
    }
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=surroundings)
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=30)


def _wait_for_workers(web: int) -> None:
    until = time.monotonic() + _PATIENCE_S
    while time.monotonic() < until:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{web}/json/", timeout=5) as answer:
                if json.load(answer).get("aliveworkers") == WORKERS:
                    return
        except OSError:
            pass  # it has not started yet
        time.sleep(_AGAIN_AFTER_S)
    raise EnvironmentMissing(f"Spark's cluster did not start within {_PATIENCE_S} s: Java 17 and free ports are needed")


def _free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        return int(found.getsockname()[1])
