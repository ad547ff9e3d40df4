"""The processes that suffer: a broker, and two relays. Their output goes to files of an episode's folder.

Rule 1: a broker that is back serves again when the call returns. A relay is started and left alone.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

from waterclock.bench.servers.server import Process, free_ports

ROOT = Path(__file__).parents[3]
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}


class Suffering(Protocol):
    """A broker of either kind."""

    bootstrap: str

    @property
    def pid(self) -> int: ...

    def cut(self) -> bool:
        """Cut its power, and wait until it is back; False where that cannot be done."""

    def kill(self) -> None: ...

    def back(self) -> None:
        """Start it again, and wait."""

    @property
    def unended(self) -> int:
        """How often it has said, so far, that it does not end a transaction (docs/relay.md)."""


class Own:
    """Ours."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (self._port,) = free_ports(1)
        self.bootstrap = f"127.0.0.1:{self._port}"
        self.back()

    @property
    def pid(self) -> int:
        return self._process.pid

    def cut(self) -> bool:
        said = self._told()
        os.kill(self.pid, signal.SIGUSR1)
        self._process._await(said, lambda written: "power is back" in written)
        return True

    def kill(self) -> None:
        self._process.end(signal.SIGKILL)

    def back(self) -> None:
        command = [sys.executable, "-m", "tests.relay.kills.powered", str(self._folder / "data"), str(self._port)]
        self._process = Process(command, self._folder / "broker.txt", lambda written: "ready on" in written)

    unended = 0

    def _told(self) -> int:
        return (self._folder / "broker.txt").stat().st_size


class Apache:
    """Apache Kafka. Its power is not cut: it flushes when it likes, and lives by its replicas."""

    def __init__(self, folder: Path) -> None:
        from waterclock.bench.servers.apache import ApacheKafka

        self._server = ApacheKafka(folder / "apache", SETTINGS)
        self._log = folder / "apache" / "server.log"
        self.bootstrap = self._server.bootstrap

    @property
    def pid(self) -> int:
        return self._server.pid

    def cut(self) -> bool:
        return False

    def kill(self) -> None:
        self._server.kill()

    def back(self) -> None:
        self._server.restart()

    @property
    def unended(self) -> int:
        return self._log.read_text(errors="replace").count("likely deleted already and hence can be skipped")


class RelayProcess:
    """`waterclock relay` with files and output in `folder`/NAME."""

    def __init__(self, folder: Path, name: str, bootstrap: str, topic: str, partitions: int, standby: str) -> None:
        self.name, self._files, self._out = name, folder / name, folder / f"{name}.txt"
        options = {"bootstrap": bootstrap, "topic": topic, "folder": self._files, "partitions": partitions}
        options["standby"] = standby
        words = [str(word) for key, value in options.items() for word in (f"--{key}", value)]
        self._command = [sys.executable, "-m", "waterclock.cli", "relay", *words]
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        with self._out.open("ab") as out:
            self._process = subprocess.Popen(self._command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=out, stderr=out)

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def send(self, sig: signal.Signals) -> None:
        if self._process is not None and self.runs:
            self._process.send_signal(sig)

    def end(self, sig: signal.Signals, patience_s: float = 30.0) -> bool:
        """Whether it ended in time; it is gone in any case."""
        process = self._process
        assert process is not None
        self.send(signal.SIGCONT)
        self.send(sig)
        try:
            process.wait(patience_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            return False
        return True

    def lose_files(self) -> None:
        """All but its name in the group."""
        for each in self._files.iterdir() if self._files.is_dir() else ():
            if each.is_dir():
                shutil.rmtree(each)

    @property
    def said(self) -> str:
        return self._out.read_text(errors="replace")
