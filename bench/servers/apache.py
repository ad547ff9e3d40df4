"""Apache Kafka in one process (broker and controller), from jars that Maven brings.

Rule 1: the jars lie in KAFKA_LIB, or else in build/kafka/lib; who lacks them gets them once.
Rule 2: small internal topics and no waiting for more members: a test should not pay for a cluster's caution.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from waterclock.bench.servers.server import USERS, Process, free_ports, listening

HERE = Path(__file__).parent / "kafka"
LIB = Path(os.environ.get("KAFKA_LIB") or Path(__file__).parents[2] / "build" / "kafka" / "lib")
JAVA = os.environ.get("JAVA", "java")
QUICK = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]
FOR_TESTS = ("-Xms256m", "-Xmx768m", *QUICK)  # quick to start, not quick to run
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
ALONE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,GUARDED:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": ",".join(["PLAIN", *MECHANISMS]),
    "default.replication.factor": "1",
    "log.cleaner.dedupe.buffer.size": "4194304",
    **{
        f"{topic}.{key}": value
        for topic in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")
        for key, value in {"replication.factor": "1", "num.partitions": "4"}.items()
    },
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "broker.session.timeout.ms": "2000",  # after a crash the controller waits this long for the old self
    "broker.heartbeat.interval.ms": "200",
}


def fetch() -> None:
    """Bring the jars with Maven, once."""
    if any(LIB.glob("kafka_*.jar")):
        return
    if not shutil.which("mvn") or not shutil.which(JAVA):
        raise RuntimeError("Apache Kafka needs Java 17 and Maven: apt install default-jre-headless maven")
    goal = ["dependency:copy-dependencies", f"-DoutputDirectory={LIB}"]
    subprocess.run(
        ["mvn", "-q", "-B", "-Dstyle.color=never", "-f", str(HERE / "pom.xml"), *goal],
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=sys.__stderr__,  # whoever fetches may have a result to print, which a program reads
    )


def tool(name: str, *arguments: str) -> list[str]:
    """The command of a console tool: `tool("org.apache.kafka.tools.TopicCommand", "--list", ...)`."""
    return [JAVA, "-Xmx256m", *QUICK, "-Dlog4j2.level=ERROR", "-cp", f"{LIB}/*", name, *arguments]


class ApacheKafka:
    """A server of the seam `waterclock.bench.servers.server.Server`."""

    def __init__(self, folder: Path, settings: Mapping[str, str], jvm: Sequence[str] = FOR_TESTS) -> None:
        fetch()
        self._jvm = jvm
        folder.mkdir(parents=True, exist_ok=True)
        self._port, guarded, controller = free_ports(3)
        self.bootstrap, self.guarded = f"127.0.0.1:{self._port}", f"127.0.0.1:{guarded}"
        self._folder = folder
        listeners = f"PLAINTEXT://{self.bootstrap},GUARDED://{self.guarded}"
        own = {
            "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": listeners,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "log.dirs": str(folder / "data"),
            "listener.name.guarded.plain.sasl.jaas.config": _plain_users(),
            **{f"listener.name.guarded.{m.lower()}.sasl.jaas.config": SCRAM for m in MECHANISMS},
        }
        text = "".join(f"{key}={value}\n" for key, value in {**ALONE, **own, **settings}.items())
        (folder / "server.properties").write_text(text)
        self._format()
        self._launch()

    def _format(self) -> None:
        cluster = base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=").replace("-", "a").replace("_", "b")
        config = ["--cluster-id", cluster, "--config", str(self._folder / "server.properties")]
        users = [f"{m}=[name={u},password={p}]" for m in MECHANISMS for u, p in USERS.items()]
        added = [word for user in users for word in ("--add-scram", user)]
        done = subprocess.run(
            tool("kafka.tools.StorageTool", "format", *config, *added), capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"Apache Kafka's folder was not formatted:\n{done.stdout}{done.stderr}")

    def _launch(self) -> None:
        command = [JAVA, *self._jvm, f"-Dlog4j2.configurationFile={HERE / 'log4j2.properties'}"]
        command += ["-cp", f"{LIB}/*", "kafka.Kafka"]
        self._process = Process(
            [*command, str(self._folder / "server.properties")],
            self._folder / "server.log",
            lambda written: "Kafka Server started" in written and listening(self._port),
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    def restart(self) -> None:
        self.stop()
        self._launch()

    def kill(self) -> None:
        self._process.end(signal.SIGKILL)

    def stop(self) -> None:
        self._process.end(signal.SIGTERM)


def _plain_users() -> str:
    return " ".join([PLAIN, *(f'user_{name}="{password}"' for name, password in USERS.items())]) + ";"
