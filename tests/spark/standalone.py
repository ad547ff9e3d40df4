"""A standalone cluster of Spark on this machine: a master, two workers of one core, and a Python that is theirs alone."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import venv
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pyspark

HOME = Path(pyspark.__file__).parent
PATIENCE_S = 90
_HERE = "127.0.0.1"
# a command that has an empty folder in the place of one: as a machine on which nobody mounted it
WITHOUT = ("unshare", "--mount", "sh", "-c", 'mount -t tmpfs none "$0" && exec "$@"')


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as found:
        return int(found.getsockname()[1])


def python_without_waterclock(folder: Path) -> Path:
    """A Python that has this one's packages, but nothing that is installed in place."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = next(folder.glob("lib/python*/site-packages"))
    # a path that a .pth file names is not searched for .pth files itself: what they install in place is not there
    (site / "packages.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    python = folder / "bin" / "python"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([python, "-c", "import pyarrow, msgpack, waterclock"], capture_output=True, env=environment)
    assert b"No module named 'waterclock'" in done.stderr, done.stderr
    return python


class Cluster:
    """Its processes; everything they write lies in `folder`."""

    def __init__(self, folder: Path, unseen: Path | None = None, hosts: tuple[str, str] = (_HERE, _HERE)) -> None:
        """The workers, and what they start, see nothing of what lies in the folder `unseen`."""
        self.folder, self.web = folder, free_port()
        self._unseen = unseen
        port = free_port()
        self.url = f"spark://127.0.0.1:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("master.Master", "--host", _HERE, "--port", str(port), "--webui-port", str(self.web))
        for number, host in enumerate(hosts, 1):
            # a port of its own for each worker's pages: they would try one after another
            work = ("--host", host, "--work-dir", str(folder / f"work-{number}"), "--webui-port", str(free_port()))
            self._start("worker.Worker", "--cores", "1", "--memory", "1g", *work, self.url)

    def wait_for_workers(self) -> None:
        self._until("two workers are registered", lambda: self._state().get("aliveworkers") == 2)

    def executors(self) -> list[int]:
        """The process ids of the executors."""
        workers, found = {process.pid for process in self._processes}, []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                command = (stat.parent / "cmdline").read_bytes()
            except OSError:
                continue  # it has just ended
            if parent in workers and b"CoarseGrainedExecutorBackend" in command:
                found.append(int(stat.parent.name))
        return found

    def started_executors(self) -> int:
        """How many executors were ever started: each has a folder of its own."""
        return len(list(self.folder.glob("work-*/app-*/*")))

    def logs(self) -> str:
        """The ends of what executors wrote."""
        files = self.folder.glob("work-*/app-*/*/stderr")
        return "\n".join(f"{file}:\n{file.read_text(errors='replace')[-3000:]}" for file in files)

    def close(self) -> None:
        for process in self._processes:
            process.terminate()
        for process in self._processes:
            process.wait(timeout=30)

    def _start(self, name: str, *arguments: str) -> None:
        log = (self.folder / f"{name}-{len(self._processes)}.log").open("wb")
        command = [
            str(HOME / "bin" / "spark-class"),
            f"org.apache.spark.deploy.{name}",
            *arguments,
        ]
        if self._unseen is not None and name.startswith("worker"):
            command = [*WITHOUT, str(self._unseen), *command]
        with log:
            self._processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=environment()))

    def _state(self) -> Mapping[str, Any]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.web}/json/", timeout=5) as answer:
                found: Mapping[str, Any] = json.load(answer)
                return found
        except OSError:
            return {}  # it has not started yet

    def _until(self, what: str, holds: Any) -> None:
        for _ in range(PATIENCE_S * 5):
            if holds():
                return
            time.sleep(0.2)
        raise AssertionError(f"{what}: not within {PATIENCE_S} s")


def environment(**more: str) -> dict[str, str]:
    """What a process of the cluster sees: nothing of this Python's paths."""
    hidden = ("PYTHONPATH", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "VIRTUAL_ENV")
    kept = {name: value for name, value in os.environ.items() if name not in hidden}
    return {**kept, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m", "SPARK_HOME": str(HOME), **more}


@contextmanager
def cluster(folder: Path, unseen: Path | None = None, hosts: tuple[str, str] = (_HERE, _HERE)) -> Iterator[Cluster]:
    """A running cluster, whose workers see nothing of what lies in the folder `unseen`, and answer under `hosts`."""
    folder.mkdir(parents=True)
    made = Cluster(folder, unseen, hosts)
    try:
        made.wait_for_workers()
        yield made
    finally:
        made.close()


def kill(process_id: int) -> None:
    os.kill(process_id, signal.SIGKILL)


def driver_environment(python: Path) -> dict[str, str]:
    """What the driver sees: its own Python as it is, and the executors' one."""
    return {**os.environ, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}
