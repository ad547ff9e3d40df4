"""A broker as a process of its own: started, killed, frozen, promoted, its date stepped, its disk filled.

Rule 1: what it says on stderr is kept, line by line: what is lost must be told there.
Rule 2: a disk that is full is a limit on the size of files (RLIMIT_FSIZE): a write fails in part or as a whole, as on
    a full file system, and needs no root.
Rule 3: a start that ends, or is not ready in time, is `NotStarted` with all that was said.
"""

from __future__ import annotations

import resource
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO

from tests.broker.consistency.stepping_broker import step_to

ROOT = Path(__file__).parents[3]
START_S = 60.0


class NotStarted(Exception):
    """The broker refused its folder, or said nothing in time; `said` is its stderr, `code` how it ended."""

    def __init__(self, code: int | None, said: str) -> None:
        super().__init__(f"exit {code}: {said[-2000:]}")
        self.code, self.said = code, said


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class Node:
    """A broker over the folder `data`; `settings` are Kafka's."""

    def __init__(self, data: Path, settings: dict[str, str]) -> None:
        self.data, self.settings, self.port = data, settings, free_port()
        self.process: subprocess.Popen[str] | None = None
        self.said: list[str] = []
        self._clock = data.with_suffix(".clock")
        data.mkdir(parents=True, exist_ok=True)
        step_to(self._clock, 0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, follow: str | None = None) -> None:
        """Ready when this returns."""
        command = [sys.executable, "-m", "tests.broker.consistency.stepping_broker", str(self._clock), "broker"]
        command += ["--port", str(self.port), "--data", str(self.data)]
        command += [word for name, value in self.settings.items() for word in ("--set", f"{name}={value}")]
        command += ["--follow", follow] if follow else []
        before = len(self.said)
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            errors="replace",
        )  # fmt: skip
        first, spoke = list[str](), threading.Event()
        deeds = ((self._greet, self.process.stdout, first, spoke), (self._listen, self.process.stderr))
        self._listeners = [threading.Thread(target=deed[0], args=deed[1:], daemon=True) for deed in deeds]
        for listener in self._listeners:
            listener.start()
        if not spoke.wait(START_S) or not first:
            self.end()
            raise NotStarted(self.code, "".join(self.said[before:]))

    @staticmethod
    def _greet(stream: IO[str], first: list[str], spoke: threading.Event) -> None:
        for line in stream:
            first.append(line)
            spoke.set()
        spoke.set()

    def _listen(self, stream: IO[str]) -> None:
        for line in stream:
            self.said.append(line)

    def send(self, number: int) -> None:
        if self.runs:
            assert self.process is not None
            self.process.send_signal(number)

    def end(self, number: int = signal.SIGKILL) -> bool:
        """Whether it ended by that signal within half a minute; where it did not it is killed."""
        if self.process is None:
            return True
        self.send(number)
        self.send(signal.SIGCONT)
        try:
            self.process.wait(30)
            return True
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return False
        finally:
            self._forget()

    def _forget(self) -> None:
        assert self.process is not None
        self.code = self.process.returncode
        for listener in self._listeners:
            listener.join(10)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        self.process = None

    def step_clock(self, offset_ms: int) -> None:
        step_to(self._clock, offset_ms)

    def fill_disk(self, limit: int | None) -> None:
        """No file may grow beyond `limit` bytes from now on; None: there is room again."""
        if self.runs:
            assert self.process is not None
            most = resource.RLIM_INFINITY
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (most if limit is None else limit, most))
