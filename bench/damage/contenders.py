"""Who is damaged: how each is started, which files it keeps, and which of its lines are no mere information.

Rule 1: all flush before they acknowledge but Apache Kafka, which leaves that to the operating system by default; no
        trial takes the machine's memory away.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, NamedTuple

from waterclock.bench.damage.harm import BESIDE, INDEX, NEWEST, SERVER
from waterclock.bench.servers.apache import JAVA, ApacheKafka
from waterclock.bench.servers.ours import OurBroker
from waterclock.bench.servers.server import Process, free_ports


class Contender(NamedTuple):
    """`roles`: patterns of paths, and what such a file is; the first that fits counts."""

    name: str
    kind: str  # of client
    start: Callable[[Path], Any]
    roles: Mapping[str, str]
    loud: str  # lines that warn


class Command:
    """A server that is one command over a folder; it does what `waterclock.bench.servers.server.Server` says."""

    def __init__(self, folder: Path, words: Callable[[Path, int], list[str]], ready: str) -> None:
        (folder / "data").mkdir(parents=True)
        (port,) = free_ports(1)
        self.bootstrap = f"127.0.0.1:{port}"
        self._folder, self._words, self._ready = folder, words(folder, port), ready
        self.restart()

    def restart(self) -> None:
        self._process = Process(self._words, self._folder / "server.log", lambda written: self._ready in written)

    def kill(self) -> None:
        self._process.end(signal.SIGKILL)

    def stop(self) -> None:
        self._process.end(signal.SIGTERM)


def _nats(program: str) -> Callable[[Path], Command]:
    def words(folder: Path, port: int) -> list[str]:
        text = f'listen: "127.0.0.1:{port}"\njetstream {{ store_dir: "{folder}/data", sync_interval: always }}\n'
        (folder / "nats.conf").write_text(text)
        return [program, "-c", str(folder / "nats.conf")]

    return lambda folder: Command(folder, words, "Server is ready")


def _redis(program: str) -> Callable[[Path], Command]:
    def words(folder: Path, port: int) -> list[str]:
        kept = ["--save", "", "--appendonly", "yes", "--appendfsync", "always", "--dir", str(folder / "data")]
        return [program, "--port", str(port), "--bind", "127.0.0.1", *kept]

    return lambda folder: Command(folder, words, "Ready to accept connections")


OURS: Final = Contender(
    "waterclock", "kafka", lambda folder: OurBroker(folder, {}),
    {r"topics/.*\.log$": NEWEST, r"topics/.*\.index$": INDEX, "topics/": BESIDE, r"(^|/)lock$": "", ".": SERVER},
    "^(?!waterclock broker ready)",
)  # fmt: skip
APACHE: Final = Contender(
    "Apache Kafka", "kafka", lambda folder: ApacheKafka(folder, {}),
    {r"^plain-0/.*\.log$": NEWEST, r"^plain-0/.*index$": INDEX, "^plain-0/": BESIDE, r"\.lock$": "", ".": SERVER},
    "] (WARN|ERROR|FATAL) ",
)  # fmt: skip
NATS_FILES: Final = {r"msgs/.*\.blk$": NEWEST, "msgs/": INDEX, "obs/": BESIDE, ".": SERVER}
REDIS_FILES: Final = {r"\.(aof|rdb)$": NEWEST, ".": SERVER}  # the base file, then what was added


def contenders() -> tuple[list[Contender], list[str]]:
    """Those that are here, and what others need. NATS_SERVERS may name several programs, with colons between."""
    found, missing = [OURS], []
    nats = [one for one in os.environ.get("NATS_SERVERS", shutil.which("nats-server") or "").split(":") if one]
    for program in nats if find_spec("nats") else []:
        version = (
            subprocess.run([program, "--version"], capture_output=True, text=True, check=True)
            .stdout.split("v")[-1]
            .strip()
        )
        found.append(Contender(f"NATS {version}", "nats", _nats(program), NATS_FILES, r"\[(WRN|ERR|FTL)\]"))
    redis = shutil.which("redis-server")
    if redis and find_spec("redis"):
        found.append(Contender("Redis", "redis", _redis(redis), REDIS_FILES, r" # |^(?!\d+:)"))
    if shutil.which("mvn") and shutil.which(JAVA):
        found.append(APACHE)
    names = " ".join(one.name for one in found)
    needs = {
        "NATS": "nats-server and pip install nats-py",
        "Redis": "apt install redis-server, pip install redis",
        "Apache": "Java 17 and Maven",
    }
    missing = [f"{name} is left out: needs {what}" for name, what in needs.items() if name not in names]
    return found, missing
