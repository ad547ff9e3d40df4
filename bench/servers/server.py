"""The seam: what a test may do to a broker, whichever it is.

Rule 1: a server that was started answers on `bootstrap`; after `kill()` or `stop()` nobody answers there.
Rule 2: `restart()` brings it back on the same address with what it had written; it works after `kill()` too.
Rule 3: settings carry Kafka's names and go to every broker alike.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

READY_WITHIN_S = 120.0
STOPPED_WITHIN_S = 30.0
# who may come in at a guarded listener
USERS = {"alice": "alice-secret", "bob": "bob-secret"}


class Server(Protocol):
    """A broker in a process of its own."""

    bootstrap: str  # HOST:PORT without security
    guarded: str | None  # HOST:PORT of a listener that asks for a name and password; None where there is none

    @property
    def pid(self) -> int:
        """Of the process that serves now."""

    def restart(self) -> None: ...

    def kill(self) -> None:
        """SIGKILL: a crash."""

    def stop(self) -> None:
        """SIGTERM, and wait."""


Start = Callable[[Path, Mapping[str, str]], Server]


class Process:
    """One process whose output goes to a file, and which is ready once it has written a certain word and listens."""

    def __init__(self, command: list[str], log: Path, ready: Callable[[str], bool]) -> None:
        self._log = log
        before = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, env=_environment()
            )
        self._await(before, ready)

    @property
    def pid(self) -> int:
        return self._process.pid

    def _await(self, before: int, ready: Callable[[str], bool]) -> None:
        deadline_s = time.monotonic() + READY_WITHIN_S
        while not ready(self._log.read_bytes()[before:].decode(errors="replace")):
            if self._process.poll() is not None:
                raise RuntimeError(f"the server ended while starting:\n{self._log.read_text()[-2000:]}")
            if time.monotonic() > deadline_s:
                self.end(signal.SIGKILL)
                raise RuntimeError(f"the server was not ready within {READY_WITHIN_S:.0f} s; see {self._log}")
            time.sleep(0.02)

    def end(self, sig: signal.Signals) -> None:
        """Send the signal and wait; who does not stop in time is killed, and that is an error."""
        if self._process.poll() is not None:
            return
        self._process.send_signal(sig)
        try:
            self._process.wait(STOPPED_WITHIN_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            raise RuntimeError(f"the server did not stop within {STOPPED_WITHIN_S:.0f} s") from None


def _environment() -> dict[str, str]:
    """What the process gets: Python keeps what it has compiled, as it does for a user, also where this one must not."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def listening(port: int) -> bool:
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0
