"""An episode: topics of its own, two relays, a load, and fault after fault; then quiet, until all is done or too late.

Rule 1: the seed says which faults come and what they draw; the machine says at which steps they hit.
Rule 2: a fault may begin while another one lasts: both relays may be gone, and the broker too.
Rule 3: when the faults are over, everything runs, and within `PATIENCE_S` each request has its effect and its answer.
Rule 4: a relay that starts while there is no broker waits for it; one that has ended all the same is started again, as who
        runs one would.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from tests.relay.kills.checker import Checker, Late, Violation
from tests.relay.kills.load import Load
from tests.relay.kills.processes import RelayProcess, Suffering
from tests.relay.kills.reader import Reader
from waterclock.clock import SystemClock
from waterclock.kafka.admin import Admin
from waterclock.kafka.settings import base_settings
from waterclock.relay.wire.topics import Topics, prepare

PARTITIONS, TARGET_PARTITIONS = 4, 2
PATIENCE_S = 90.0
RELAY_FAULTS = ("killed", "killed", "killed", "killed", "files lost", "paused", "paused long", "ended")
BROKER_FAULTS = ("broker killed", "power cut", "broker paused")
BROKER_SHARE = 0.2
UNENDED = "transactions that Kafka did not end"


@dataclass(frozen=True)
class Plan:
    """`seconds`: how long faults are begun; `pause_s`: the longest time between two; `a_second`: requests."""

    seed: int
    seconds: float = 60.0
    pause_s: float = 2.5
    a_second: int = 200
    broker_faults: bool = True

    @property
    def standby(self) -> str:
        """Whether the relays stand by for each other: three times of four."""
        return "all" if self.seed % 4 else "none"


class Event(NamedTuple):
    """Something that was done to somebody."""

    at_ms: int
    what: str


@dataclass
class Result:
    """What came of it."""

    plan: Plan
    violations: list[Violation]
    figures: Counter[str] = field(default_factory=Counter)


class Episode:
    """One, on a broker that runs; `folder` holds what the processes write."""

    def __init__(self, folder: Path, broker: Suffering, plan: Plan) -> None:
        self.folder, self.broker, self.plan = folder, broker, plan
        self.dice, self.done = random.Random(plan.seed), Counter[str]()
        self.history: list[Event] = []
        self.topic = f"delays-{plan.seed}-{time.time_ns() // 1_000_000}"
        self._later: list[threading.Timer] = []
        self._clock = SystemClock()
        self._away: set[str] = set()
        self._unended_before = broker.unended

    def run(self) -> Result:
        self.folder.mkdir(parents=True, exist_ok=True)
        targets = self._topics()
        self.relays = [
            RelayProcess(self.folder, name, self.broker.bootstrap, self.topic, PARTITIONS, self.plan.standby)
            for name in ("one", "two")
        ]
        load = Load(self.broker.bootstrap, self.topic, PARTITIONS, targets, self.plan.seed, self.plan.a_second)
        own = (self.topic, f"{self.topic}.replies", f"{self.topic}.dead")
        reader = Reader(self.broker.bootstrap, partitions_of(self.broker.bootstrap, (*own, *targets)))
        try:
            reader.start()
            load.start()
            self._faults()
            load.stop()
            return self._judged(reader, load)
        finally:
            for relay in self.relays:
                relay.end(signal.SIGKILL)
            reader.stop()

    def _topics(self) -> list[str]:
        admin = Admin(base_settings(self.broker.bootstrap, {}))
        prepare(admin, Topics.of(self.topic), PARTITIONS, self.broker.bootstrap)
        targets = [f"{self.topic}.to-{name}" for name in "ab"]
        create(self.broker.bootstrap, targets)
        return targets

    # Faults

    def _faults(self) -> None:
        until_s = time.monotonic() + self.plan.seconds
        time.sleep(min(3.0, self.plan.seconds / 10))  # the moments are what is drawn here
        while time.monotonic() < until_s:
            broker = self.plan.broker_faults and self.dice.random() < BROKER_SHARE
            what = self.dice.choice(BROKER_FAULTS if broker else RELAY_FAULTS)
            if what in BROKER_FAULTS:
                self._note(what)
            if self.DEEDS[what](self):
                self.done[what] += 1
            if what in BROKER_FAULTS:
                self._note("the broker is back")
            time.sleep(self.dice.uniform(0.1, self.plan.pause_s))
            self._supervise()
        for timer in self._later:
            timer.join()
        for relay in self.relays:
            relay.send(signal.SIGCONT)
            if not relay.runs:
                self._start(relay)

    def _in(self, seconds: float, deed: Callable[[], Any]) -> None:
        self._later = [timer for timer in self._later if timer.is_alive()]
        self._later.append(threading.Timer(seconds, deed))
        self._later[-1].start()

    def _victim(self) -> RelayProcess | None:
        runs = [relay for relay in self.relays if relay.runs]
        return self.dice.choice(runs) if runs else None

    def _end(self, sig: signal.Signals, lose: bool = False) -> bool:
        if (relay := self._victim()) is None:
            return False
        self._away.add(relay.name)
        self._note(f"{relay.name} gets {sig.name}{' and loses its files' if lose else ''}")
        if not relay.end(sig):
            self.done[f"{relay.name} did not end by {sig.name}"] += 1
        if lose:
            relay.lose_files()
        self._in(self.dice.uniform(0, 2.0), lambda: self._start(relay))
        return True

    def _pause(self, seconds: float) -> bool:
        if (relay := self._victim()) is None:
            return False
        self._note(f"{relay.name} is paused")
        relay.send(signal.SIGSTOP)
        self._in(seconds, lambda: self._wake(relay))
        return True

    def _start(self, relay: RelayProcess) -> None:
        self._note(f"{relay.name} is started")
        relay.start()
        self._away.discard(relay.name)

    def _supervise(self) -> None:
        """Rule 4."""
        for relay in self.relays:
            if not relay.runs and relay.name not in self._away:
                self.done["ended by themselves"] += 1
                self._start(relay)

    def _wake(self, relay: RelayProcess) -> None:
        self._note(f"{relay.name} goes on")
        relay.send(signal.SIGCONT)

    def _note(self, what: str) -> None:
        self.history.append(Event(self._clock.wall_ms(), what))

    def _broker_killed(self) -> bool:
        self.broker.kill()
        time.sleep(self.dice.uniform(0, 2.0))
        self.broker.back()
        return True

    def _broker_paused(self) -> bool:
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(self.dice.uniform(0.1, 4.0))
        os.kill(self.broker.pid, signal.SIGCONT)
        return True

    DEEDS: ClassVar[dict[str, Callable[[Episode], bool]]] = {
        "killed": lambda self: self._end(signal.SIGKILL),
        "files lost": lambda self: self._end(signal.SIGKILL, lose=True),
        "ended": lambda self: self._end(signal.SIGTERM),
        "paused": lambda self: self._pause(self.dice.uniform(0.1, 3.0)),
        "paused long": lambda self: self._pause(self.dice.uniform(6.0, 12.0)),
        "broker killed": _broker_killed,
        "power cut": lambda self: self.broker.cut(),
        "broker paused": _broker_paused,
    }

    # What came of it

    def _judged(self, reader: Reader, load: Load) -> Result:
        began_s = time.monotonic()
        while True:
            checker = Checker(self.topic, list(reader.records), load.acknowledged)
            known = len(checker.asked) >= len(load.acknowledged)
            if (known and not checker.unfinished()) or time.monotonic() - began_s > PATIENCE_S:
                break
            time.sleep(0.5)
        time.sleep(1.0)  # for what would come twice
        checker = Checker(self.topic, list(reader.records), load.acknowledged)
        found = [
            *checker.violations(),
            *(Violation("strange", f"the reader was told {error}") for error in reader.errors),
        ]
        ended = [relay for relay in self.relays if not relay.runs]
        found += [Violation("lost", f"relay {relay.name} ended by itself: {relay.said[-500:]}") for relay in ended]
        figures = Counter(self.done)
        figures.update({
            UNENDED: self.broker.unended - self._unended_before,
            "requests": len(checker.asked), "delivered": sum(checker.fired.values()),
            "commands": sum(one.action in ("cancel", "replace") for one in checker.asked.values()),
            f"standby {self.plan.standby}": 1,
            "kills and pauses": sum(self.done[name] for name in self.DEEDS),
            "tracebacks": sum(relay.said.count("Traceback") for relay in self.relays),
        })  # fmt: skip
        self.latest = checker.latest()
        self.quiet_s = time.monotonic() - began_s
        (self.folder / "violations.json").write_text(json.dumps([list(map(str, one)) for one in found], indent=1))
        return Result(self.plan, found, figures)


def around(latest: Late, history: Sequence[Event]) -> list[str]:
    """What was done from ten seconds before a late message was expected until it came, in seconds from then."""
    return [
        f"{(event.at_ms - latest.expected_ms) / 1000:+.1f} s: {event.what}"
        for event in history
        if latest.expected_ms - 10_000 <= event.at_ms <= latest.came_ms
    ]


def partitions_of(bootstrap: str, names: Sequence[str]) -> dict[str, int]:
    """Of topics that were made just now: not every broker knows them at once."""
    admin, until_s = Admin(base_settings(bootstrap, {})), time.monotonic() + PATIENCE_S
    while not (found := admin.topics()).keys() >= set(names):
        assert time.monotonic() < until_s, f"there are no topics {names}"
        time.sleep(0.1)
    return {name: found[name] for name in names}


def create(bootstrap: str, names: list[str]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    client = AdminClient(base_settings(bootstrap, {}))
    for made in client.create_topics([NewTopic(name, TARGET_PARTITIONS) for name in names]).values():
        made.result()
