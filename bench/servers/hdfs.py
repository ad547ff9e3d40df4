"""HDFS on this machine: a namenode and a datanode, each a process of its own, from jars that Maven brings.

Rule 1: the jars lie in HDFS_LIB, or else in build/hdfs/lib; who lacks them gets them once.
Rule 2: everybody may do everything, and one copy of a block is enough: what is tried is waterclock, not HDFS.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from waterclock.bench.servers.server import Process, free_ports, listening

POM = Path(__file__).parent / "hadoop" / "pom.xml"
LIB = Path(os.environ.get("HDFS_LIB") or Path(__file__).parents[2] / "build" / "hdfs" / "lib")
JAVA = os.environ.get("JAVA", "java")
_NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
_DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
_OPENS = [f"--add-opens=java.base/java.{part}=ALL-UNNAMED" for part in ("lang", "util", "nio")]
_QUICK = ["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.net.preferIPv4Stack=true", *_OPENS]
_LOG = """log4j.rootLogger=INFO,A
log4j.appender.A=org.apache.log4j.ConsoleAppender
log4j.appender.A.layout=org.apache.log4j.PatternLayout
log4j.appender.A.layout.ConversionPattern=%p %c{2}: %m%n
"""


def fetch() -> None:
    """Bring the jars with Maven, once."""
    if any(LIB.glob("hadoop-hdfs-3*.jar")):
        return
    if not shutil.which("mvn") or not shutil.which(JAVA):
        raise RuntimeError("HDFS needs Java 17 and Maven: apt install default-jre-headless maven")
    copy = ["mvn", "-q", "-B", "-f", str(POM), "dependency:copy-dependencies", f"-DoutputDirectory={LIB}"]
    subprocess.run(copy, check=True, stdin=subprocess.DEVNULL, stdout=sys.__stderr__)


class Hdfs:
    """A running HDFS whose files lie in `folder`; `uri` is where it is."""

    def __init__(self, folder: Path) -> None:
        fetch()
        (folder / "conf").mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._port, web, *self._data = free_ports(5)
        self.uri = f"hdfs://127.0.0.1:{self._port}"
        self._configure(web)
        self._format()
        self._namenode = self._launch("namenode", _NAMENODE, "IPC Server listener on")
        self._datanode = self._launch("datanode", _DATANODE, "Successfully sent block report")

    def stop(self) -> None:
        """SIGTERM to both, and wait."""
        for process in (self._datanode, self._namenode):
            process.end(signal.SIGTERM)

    def _configure(self, web: int) -> None:
        data, http, ipc = self._data
        core = {"fs.defaultFS": self.uri, "hadoop.tmp.dir": str(self._folder / "tmp")}
        nodes = {
            "dfs.replication": 1,
            "dfs.permissions.enabled": "false",
            "dfs.namenode.name.dir": self._folder / "name",
            "dfs.namenode.http-address": f"127.0.0.1:{web}",
            "dfs.namenode.safemode.extension": 0,
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.heartbeat.interval": 1,
            "dfs.datanode.data.dir": self._folder / "data",
            "dfs.datanode.address": f"127.0.0.1:{data}",
            "dfs.datanode.http.address": f"127.0.0.1:{http}",
            "dfs.datanode.ipc.address": f"127.0.0.1:{ipc}",
            "dfs.datanode.hostname": "localhost",
        }
        conf = self._folder / "conf"
        (conf / "core-site.xml").write_text(_properties(core))
        (conf / "hdfs-site.xml").write_text(_properties(nodes))
        (conf / "log4j.properties").write_text(_LOG)

    def _command(self, name: str, *arguments: str) -> list[str]:
        return [JAVA, *_QUICK, "-cp", f"{self._folder / 'conf'}:{LIB}/*", name, *arguments]

    def _format(self) -> None:
        command = self._command(_NAMENODE, "-format", "-nonInteractive")
        done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise RuntimeError(f"HDFS was not formatted:\n{(done.stdout + done.stderr)[-2000:]}")

    def _launch(self, part: str, name: str, ready: str) -> Process:
        log = self._folder / f"{part}.log"
        return Process(self._command(name), log, lambda told: ready in told and listening(self._port))


def _properties(values: Mapping[str, object]) -> str:
    told = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in values.items())
    return f"<configuration>{told}</configuration>\n"
