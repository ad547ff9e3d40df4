"""What befalls brokers and clients, by a seed: one fault after another, with quiet moments between them.

Rule 1: a fault ends before the next one begins: then all brokers run, and all clients but those that were fenced.
Rule 2: every fault stands in the history, with the moments at which it began and ended.
Rule 3: the seed says which faults come and what they draw; the machine says at which requests they hit.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from collections.abc import Callable
from typing import ClassVar

from tests.broker.consistency.cluster import Cluster
from tests.broker.consistency.crew import Client, Crew
from tests.broker.consistency.history import Writer
from waterclock.clock import SystemClock

CLIENTS = ("client killed", "client killed", "client frozen", "zombie", "zombie")
ONE = ("kill", "kill", "kill", "stop", "freeze", "frozen and killed", "disk full", "clock", *CLIENTS)
TWO = ("leader killed, promotion", "leader killed, promotion", "leader killed", "follower killed", "follower frozen",
       "follower late, promotion", "leader frozen, promotion", "promotion", "both killed", "disk full", "clock",
       *CLIENTS)  # fmt: skip
QUIET_S, SHORT_S, LONG_S, LATE_S, STEP_MS = 4.0, 2.0, 8.0, 8.5, 40 * 60_000
TRANSACTIONAL = ("transactor", "transformer")


class Nemesis:
    """Faults for `cluster` and `crew`."""

    def __init__(self, cluster: Cluster, crew: Crew, dice: random.Random) -> None:
        self.cluster, self.crew, self.dice = cluster, crew, dice
        self.history = Writer(crew.folder, "nemesis")
        self.done: Counter[str] = Counter()
        self._clock = SystemClock()

    def run(self, seconds: float) -> None:
        """Faults for so long."""
        until_s = self._clock.monotonic_s() + seconds
        self._rest(QUIET_S)
        while self._clock.monotonic_s() < until_s:
            self.strike(self.dice.choice(ONE if len(self.cluster.nodes) == 1 else TWO))
            self._rest(QUIET_S)

    def strike(self, what: str) -> None:
        number = self.history.begin("fault", what=what)
        self.DEEDS[what](self)
        self.done[what] += 1
        self.done.update(self.crew.replace())
        self._revive()
        self.history.end(number, "ok")

    def _revive(self) -> None:
        """A broker that ended by itself, as one whose disk is full may, is started again."""
        for node in (self.cluster.leader, self.cluster.follower):
            if node is not None and not node.runs:
                self.done["brokers that ended by themselves"] += 1
                self.history.tell("ended", said=node.said[-5:])
                self.cluster.back(node)

    def _rest(self, longest_s: float) -> None:
        self._clock.sleep_s(self.dice.random() * longest_s)

    # One broker

    def _kill(self, number: int) -> None:
        node = self.cluster.leader
        if not node.end(number):
            self.history.tell("late", what="no end within 30 s of SIGTERM", said=node.said[-5:])
        self._rest(SHORT_S)
        self.cluster.back(node)

    def _freeze(self) -> None:
        self.cluster.leader.send(signal.SIGSTOP)
        self._rest(self.dice.choice((SHORT_S, LONG_S)))
        self.cluster.leader.send(signal.SIGCONT)

    def _frozen_and_killed(self) -> None:
        self.cluster.leader.send(signal.SIGSTOP)
        self._rest(SHORT_S)
        self._kill(signal.SIGKILL)

    def _disk_full(self) -> None:
        node = self.dice.choice(self.cluster.nodes)
        node.fill_disk(self.dice.choice((0, 4096, 32_768)))
        self._rest(SHORT_S)
        node.fill_disk(None)

    def _clock_step(self) -> None:
        self.dice.choice(self.cluster.nodes).step_clock(self.dice.randint(-STEP_MS, STEP_MS))

    # Clients

    def _victim(self, *kinds: str) -> Client | None:
        found = self.crew.running(*kinds)
        return self.dice.choice(found) if found else None

    def _client_killed(self) -> None:
        victim = self._victim()
        if victim is not None:
            self.crew.kill(victim)

    def _client_frozen(self) -> None:
        victim = self._victim()
        if victim is not None:
            victim.process.send_signal(signal.SIGSTOP)
            self._rest(self.dice.choice((SHORT_S, LONG_S)))
            victim.process.send_signal(signal.SIGCONT)

    def _zombie(self) -> None:
        victim = self._victim(*TRANSACTIONAL)
        if victim is None:
            return
        victim.process.send_signal(signal.SIGSTOP)
        successor = self.crew.start(victim.kind, victim.given)
        until_s = self._clock.monotonic_s() + LONG_S + 4
        while self._clock.monotonic_s() < until_s and not self.crew.has(successor, "init"):
            self._clock.sleep_s(0.1)
        self._rest(SHORT_S)
        victim.process.send_signal(signal.SIGCONT)

    # Two brokers

    def _promoted(self) -> bool:
        old, why = self.cluster.leader, self.cluster.promote()
        self.history.tell("promotion", of=str(self.cluster.leader.address), refused=why)
        self.done["promotions" if not why else "promotions refused"] += 1
        return old is not self.cluster.leader

    def _leader_lost(self) -> None:
        old = self.cluster.leader
        old.end()
        self._rest(1.0)
        self._promoted()
        self._rest(SHORT_S)
        self.cluster.back(old)

    def _leader_back(self) -> None:
        self.cluster.leader.end()
        self._rest(SHORT_S)
        self.cluster.back(self.cluster.leader)

    def _follower_killed(self) -> None:
        follower = self.cluster.follower
        assert follower is not None
        follower.end()
        self._rest(self.dice.choice((SHORT_S, LONG_S)))
        self.cluster.back(follower)

    def _follower_frozen(self) -> None:
        follower = self.cluster.follower
        assert follower is not None
        follower.send(signal.SIGSTOP)
        self._rest(self.dice.choice((SHORT_S, LONG_S)))
        follower.send(signal.SIGCONT)

    def _follower_late(self) -> None:
        """It leaves the in-sync set, and leads all the same: nothing may have been acknowledged without it."""
        old, follower = self.cluster.leader, self.cluster.follower
        assert follower is not None
        follower.send(signal.SIGSTOP)
        self._clock.sleep_s(LATE_S)
        self._rest(SHORT_S)
        old.end()
        follower.send(signal.SIGCONT)
        self._promoted()
        self._rest(SHORT_S)
        self.cluster.back(old)

    def _leader_frozen(self) -> None:
        old = self.cluster.leader
        old.send(signal.SIGSTOP)
        self._rest(SHORT_S)
        self._promoted()
        self._rest(self.dice.choice((SHORT_S, LONG_S)))
        old.send(signal.SIGCONT)

    def _promotion(self) -> None:
        self._promoted()

    def _both(self) -> None:
        first, second = self.dice.sample(self.cluster.nodes, 2)
        for node in (first, second):
            node.end()
        if first is not self.cluster.leader and self.dice.random() < 0.7:
            first, second = second, first  # who leads comes first, mostly
        self.cluster.back(first)
        self._rest(self.dice.choice((SHORT_S, LONG_S)))
        self.cluster.back(second)

    DEEDS: ClassVar[dict[str, Callable[[Nemesis], None]]] = {
        "kill": lambda self: self._kill(signal.SIGKILL), "stop": lambda self: self._kill(signal.SIGTERM),
        "freeze": _freeze, "frozen and killed": _frozen_and_killed, "disk full": _disk_full, "clock": _clock_step,
        "client killed": _client_killed, "client frozen": _client_frozen, "zombie": _zombie,
        "leader killed, promotion": _leader_lost, "leader killed": _leader_back, "follower killed": _follower_killed,
        "follower frozen": _follower_frozen, "follower late, promotion": _follower_late,
        "leader frozen, promotion": _leader_frozen, "promotion": _promotion, "both killed": _both,
    }  # fmt: skip
