"""A process of the bench's own, seen from outside: what puts messages in, and what takes them out, share no interpreter
with what is measured.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence

from waterclock.errors import WrongAnswer


class Apart:
    """Runs `waterclock.bench.relay.MODULE` with these words; `who` names it where it fails. What it prints is read here."""

    def __init__(self, who: str, module: str, words: Sequence[str]) -> None:
        self._who, command = who, [sys.executable, "-P", "-m", f"waterclock.bench.relay.{module}", *words]
        self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._out = self._process.stdout

    def wait(self) -> None:
        """Until it has ended; WrongAnswer if it failed."""
        if self._process.wait():
            raise self.failure()

    def failure(self) -> WrongAnswer:
        """That it failed."""
        return WrongAnswer(f"{self._who} has failed; what it said stands above")

    def kill(self) -> None:
        """Where it still runs."""
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._out.close()
