"""Everything that runs: a broker and two relays, each the command that a user would type, each a process of its own.

Rule 1: a question to one that has just been killed is asked again later: nothing here waits for an answer.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from waterclock.bench.servers.server import free_ports
from waterclock.clock import Clock
from waterclock.errors import EnvironmentMissing, WaterclockError
from waterclock.examples.brokers import apache_kafka, check_for_kafka
from waterclock.examples.ends import undisturbed
from waterclock.examples.processes import Process
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import base_settings

from .sender import TARGET, TOPIC

PARTITIONS: Final = 4
RELAYS: Final = ("relay 1", "relay 2")
_PATIENCE_S: Final = 60.0
_ANSWER_S: Final = 1.0


class Stage:
    """Made in `folder`; `close` ends all of it."""

    def __init__(self, folder: Path, on: str, clock: Clock) -> None:
        self._folder = folder
        self._on = on
        self._clock = clock
        self._stack = ExitStack()
        self.processes: list[Process] = []
        self._doors: dict[str, int] = {}
        self.servers = ""

    def start(self) -> None:
        """A broker with the topic of the reminders, then both relays, until each has its partitions."""
        self.servers = self._start_apache() if self._on == "servers" else self._start_own()
        self._until("the broker", self._make_target)
        for name, port in zip(RELAYS, free_ports(len(RELAYS)), strict=True):
            self._doors[name] = port
            self.processes.append(self._relay(name, port))
            self.processes[-1].start()
        self._until("the relays", self._share_the_work)

    def partitions(self) -> dict[str, int]:
        """How many each topic has."""
        return self._admin().topics()

    def keep(self) -> None:
        """Start again what has ended."""
        for process in self.processes:
            process.keep()

    def kill(self, name: str, rest_s: float) -> bool:
        """SIGKILL to the process of that name, which `keep` starts again after `rest_s`. False where it was not running, or
        where nobody else runs."""
        victim = next(each for each in self.processes if each.name == name)
        others = [each for each in self.processes if each.name in RELAYS and each is not victim]
        return all(each.runs for each in others) and victim.kill(rest_s)

    def pending(self) -> int | None:
        """How many messages wait, as both relays say; None where one of them does not answer."""
        told = [self._ask(name) for name in RELAYS]
        if not all(told) or sum(len(one["partitions"]) for one in told if one) < PARTITIONS:
            return None
        return sum(int(each["pending"]) for one in told if one for each in one["partitions"].values())

    def close(self) -> None:
        """End all of it."""
        with undisturbed():
            for process in reversed(self.processes):
                process.stop()
            self._stack.close()

    def _start_own(self) -> str:
        (port,) = free_ports(1)
        place = ["--port", str(port), "--data", str(self._folder / "broker")]
        self.processes.append(self._command("broker", "broker", *place))
        self.processes[0].start()
        return f"127.0.0.1:{port}"

    def _start_apache(self) -> str:
        check_for_kafka()
        return str(self._stack.enter_context(apache_kafka(self._folder / "kafka")))

    def _relay(self, name: str, port: int) -> Process:
        folder = self._folder / name.replace(" ", "-")
        what = ["--bootstrap", self.servers, "--topic", TOPIC, "--folder", str(folder), "--metrics", str(port)]
        return self._command(name, "relay", *what, "--partitions", str(PARTITIONS))

    def _command(self, name: str, *arguments: str) -> Process:
        log = self._folder / f"{name.replace(' ', '-')}.log"
        return Process(name, [sys.executable, "-P", "-m", "waterclock.cli", *arguments], log, self._clock)

    def _admin(self) -> Admin:
        return Admin(base_settings(self.servers, {}))

    def _make_target(self) -> bool:
        self._admin().make(TARGET, PARTITIONS, {"retention.ms": "-1"})
        return TARGET in self.partitions()

    def _share_the_work(self) -> bool:
        told = [self._ask(name) for name in RELAYS]
        each = [list(one["partitions"].values()) if one else [] for one in told]
        return (
            all(each) and sum(map(len, each)) == PARTITIONS and all(one["caught_up"] for some in each for one in some)
        )

    def _ask(self, name: str) -> dict[str, Any] | None:
        with suppress(OSError, ValueError, KeyError):
            url = f"http://127.0.0.1:{self._doors[name]}/statistics.json"
            with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:
                found: dict[str, Any] = json.load(answer)["statistics"]
                return found
        return None

    def _until(self, what: str, asked: Any) -> None:
        until_s = self._clock.monotonic_s() + _PATIENCE_S
        while True:
            with suppress(EnvironmentMissing):
                if asked():
                    return
            self.keep()
            if self._clock.monotonic_s() > until_s:
                raise WaterclockError(
                    f"{what} did not start within {_PATIENCE_S:.0f} s; see the logs in {self._folder}"
                )
            self._clock.sleep_s(0.1)
