"""The clients of a campaign: who they are, and how they are killed, frozen and replaced.

Rule 1: every process has a number of its own, and a history of its own; one that was killed is followed by a new one.
Rule 2: a zombie is a transactional client that is frozen, replaced under its id, and thawed once its successor is ready.
Rule 3: a client that ends with a traceback is a fault of the campaign, and is told with it.
"""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from tests.broker.consistency.history import read
from tests.broker.consistency.node import ROOT
from tests.broker.consistency.worker import PARTITIONS, STUCK
from waterclock.clock import SystemClock

FULL: tuple[tuple[str, dict[str, Any]], ...] = (
    ("sender", {}),
    ("sender", {}),
    ("transactor", {"id": "own-1"}),
    ("transactor", {"id": "own-2"}),
    ("transactor", {"id": "shared", "again": True}),
    ("transactor", {"id": "shared", "again": True}),
    ("transformer", {"id": "transform-1"}),
    ("transformer", {"id": "transform-2"}),
    ("reader", {"isolation": "read_committed", "topics": sorted(PARTITIONS)}),
    ("reader", {"isolation": "read_uncommitted", "topics": sorted(PARTITIONS)}),
    ("member", {}),
    ("member", {}),
    ("observer", {}),
)
SMALL = tuple(FULL[place] for place in (0, 2, 4, 6, 8, 10, 12))


class Client(NamedTuple):
    """A process of the crew."""

    kind: str
    given: dict[str, Any]
    name: str
    process: subprocess.Popen[bytes]

    @property
    def runs(self) -> bool:
        return self.process.poll() is None


class Crew:
    """`bootstrap` is the brokers' addresses; histories and what clients print go to `folder`."""

    def __init__(self, folder: Path, bootstrap: str, dice: random.Random) -> None:
        self.folder, self.bootstrap, self._dice = folder, bootstrap, dice
        self._numbers = count(1)
        self.all: list[Client] = []
        self._replaced: list[Client] = []
        folder.mkdir(parents=True)

    def start(self, kind: str, given: dict[str, Any]) -> Client:
        number = next(self._numbers)
        name = f"{kind}-{number}"
        told = {**given, "name": name, "number": number, "bootstrap": self.bootstrap,
                "histories": str(self.folder), "seed": self._dice.random()}  # fmt: skip
        command = [sys.executable, "-m", "tests.broker.consistency.worker", kind, json.dumps(told)]
        with open(self.folder / f"{name}.err", "wb") as errors:
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=errors, stderr=errors)
        self.all.append(Client(kind, given, name, process))
        return self.all[-1]

    def running(self, *kinds: str) -> list[Client]:
        return [one for one in self.all if one.runs and (not kinds or one.kind in kinds)]

    def kill(self, client: Client) -> None:
        """It is gone at once, and another one takes its place."""
        self._replaced.append(client)
        client.process.kill()
        client.process.wait()
        self.start(client.kind, client.given)

    def replace(self, *kinds: str) -> dict[str, int]:
        """Others take the places of those that ended by themselves, of these kinds; how many, by how they ended."""
        ended = [one for one in self.all if one not in self._replaced and one.process.poll() not in (None, 0)]
        ended = [one for one in ended if not kinds or one.kind in kinds]
        self._replaced += ended
        for one in ended:
            self.start(one.kind, one.given)
        return Counter("clients stuck" if one.process.returncode == STUCK else "clients crashed" for one in ended)

    def has(self, client: Client, kind: str) -> bool:
        """Whether an operation of that kind went well."""
        path = self.folder / f"{client.name}.jsonl"
        return path.exists() and any(op.ok for op in read(path) if op.kind == kind)

    def thaw(self) -> None:
        for one in self.running():
            one.process.send_signal(signal.SIGCONT)

    def end(self, kinds: Iterable[str], patience_s: float) -> list[str]:
        """Ask these to end; the names of those that did not within `patience_s`, and were killed."""
        asked, late = self.running(*kinds), []
        for one in asked:
            one.process.send_signal(signal.SIGTERM)
        for one in asked:
            try:
                one.process.wait(patience_s)
            except subprocess.TimeoutExpired:
                late.append(one.name)
                self.show_stacks()
                one.process.kill()
                one.process.wait()
        return late

    def show_stacks(self) -> None:
        """Each client that runs writes where it stands beside its history, as NAME.err."""
        for one in self.running():
            one.process.send_signal(signal.SIGUSR1)
        SystemClock().sleep_s(0.5)

    def faults(self) -> list[str]:
        """What clients printed before they died by themselves."""
        texts = {one.name: (self.folder / f"{one.name}.err").read_text(errors="replace") for one in self.all}
        return [f"{name}: {text[-800:]}" for name, text in texts.items() if "Traceback" in text]

    def close(self) -> None:
        for one in self.running():
            one.process.kill()
            one.process.wait()
