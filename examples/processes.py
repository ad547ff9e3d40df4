"""The processes of a demo: started, killed with SIGKILL, started again where they ended, all gone at the end.

Rule 1: each is the head of a group of its own: Ctrl-C reaches the demo alone. A kill takes all with it that it started.
Rule 2: one that ends by itself is started again, as a service manager would; one that ends again and again without the
        job having come any further is reported, with its last words.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from waterclock.clock import Clock
from waterclock.errors import WaterclockError
from waterclock.examples.ends import kill_all

_AGAIN_AFTER_S = 0.5
_MOST_IN_A_ROW = 12
_LAST_WORDS = 600  # characters
_PARENT, _SESSION, _TIMES = 1, 3, slice(11, 15)  # of /proc/PID/stat behind the name: its own time, and its children's


class Process:
    """A program that is kept running. `user` runs it, where the demo is root and the program refuses to be."""

    def __init__(self, name: str, command: Sequence[str], log: Path, clock: Clock, user: str | None = None) -> None:
        self.name = name
        self._command = list(command)
        self._log = log
        self._clock = clock
        self._user = user
        self._process: subprocess.Popen[bytes] | None = None
        self._ended_s: float | None = None
        self._in_a_row = 0
        self._rest_s = _AGAIN_AFTER_S
        self.kills = self.ends = 0

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, user=self._user,
                env=_environment(),
            )  # fmt: skip
        self._ended_s = None

    def kill(self, rest_s: float = _AGAIN_AFTER_S) -> bool:
        """SIGKILL to it and all that it started; `keep` starts it again after `rest_s`. False where it was not running."""
        if self._process is None or self._process.poll() is not None:
            return False
        self._end()
        self._rest_s = rest_s
        self.kills += (killed := self._process.returncode == -signal.SIGKILL)
        return killed

    def keep(self) -> None:
        """Start it again a moment after it ended. WaterclockError where that does not help."""
        assert self._process is not None
        if self._process.poll() is None:
            return
        if self._ended_s is None:
            self._ended_s = self._clock.monotonic_s()
            by_itself = self._process.returncode != -signal.SIGKILL
            self.ends += by_itself
            self._in_a_row += by_itself
            if self._in_a_row > _MOST_IN_A_ROW:
                raise WaterclockError(f"{self.name} ended {_MOST_IN_A_ROW} times in a row: {self._last_words()}")
        elif self._clock.monotonic_s() - self._ended_s > self._rest_s:
            self._rest_s = _AGAIN_AFTER_S
            self.start()

    def cpu_s(self) -> float:
        """Seconds of processor that it has used since it was last started, with all that it started; 0 where the system
        does not say."""
        assert self._process is not None
        ticks = 0
        for file in Path("/proc").glob("[0-9]*/stat"):
            with suppress(OSError):
                fields = file.read_text().rpartition(")")[2].split()
                if str(self._process.pid) in (file.parent.name, fields[_PARENT], fields[_SESSION]):
                    ticks += sum(map(int, fields[_TIMES]))
        return ticks / os.sysconf("SC_CLK_TCK")

    def came_further(self) -> None:
        """The job goes on: what ended before is forgiven."""
        self._in_a_row = 0

    def finish(self) -> None:
        """Run it to its own end, once. WaterclockError if that is none."""
        self.start()
        assert self._process is not None
        if self._process.wait():
            raise WaterclockError(f"{self.name} did not come to its end: {self._last_words()}")

    def stop(self) -> None:
        """End it for good. Nothing is lost by SIGKILL that anybody still wants."""
        if self._process is not None:
            self._end()

    def _end(self) -> None:
        assert self._process is not None
        if self._process.poll() is None:
            kill_all(self._process.pid)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what it left behind
        self._process.wait()

    def _last_words(self) -> str:
        return " ".join(self._log.read_text(errors="replace")[-_LAST_WORDS:].split())


def _environment() -> Mapping[str, str]:
    """Without what one's own shell says of databases: it would be another one's password."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PG", "MYSQL"))}
