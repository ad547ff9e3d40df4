"""One episode of the campaign: brokers, clients and faults for some seconds, then peace, a full read, and the checks.

1. The brokers start, the topics are made, the clients begin.
2. Faults, one after another (nemesis.py).
3. Peace: all brokers run, frozen clients are thawed. Producers end; open transactions end by their timeout; the
   transformers take what is left of their input; readers read to the end.
4. Everything is read, on the leader; after a restart, or a promotion, it is read again, and must be the same.
5. The history is checked. Damaged files are the simulation's (tests/simulation/damaged.py).

Rule 1: what does not come about within a minute of peace is a violation too ("stalled").
Rule 2: nothing is asked of the brokers but through clients; their files are looked at by nobody here.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import KafkaException

from tests.broker.consistency import logs
from tests.broker.consistency.checker import Violation
from tests.broker.consistency.cluster import Cluster
from tests.broker.consistency.crew import FULL, Crew
from tests.broker.consistency.cycles import allowed
from tests.broker.consistency.facts import COMMITTED, UNCOMMITTED, Facts
from tests.broker.consistency.fencing import INPUT
from tests.broker.consistency.history import History, Op, Writer
from tests.broker.consistency.logs import CLOCK, Stalled
from tests.broker.consistency.nemesis import Nemesis
from tests.broker.consistency.node import NotStarted
from tests.broker.consistency.promises import violations
from tests.broker.consistency.transforming import GROUP
from tests.broker.consistency.worker import PARTITIONS

PATIENCE_S = 60.0
DRAIN_S = 120.0  # with a transformer that is stuck, replaced, and the end of its session
READING = ("transformer", "member", "observer")  # who goes on until what was written is read: no writer
SHOWN = 5  # of each kind of violation


class Plan(NamedTuple):
    """What an episode is: with its seed it is the same again, the machine's moments aside."""

    seed: int
    brokers: int = 1
    seconds: float = 60.0
    crew: tuple[tuple[str, dict[str, Any]], ...] = FULL

    @property
    def again(self) -> str:
        """The command that repeats it."""
        words = f"--brokers {self.brokers} --seed {self.seed} --seconds {self.seconds:g} --episodes 1"
        return f"python -m tests.broker.consistency {words}"


class Result(NamedTuple):
    """What came of it."""

    plan: Plan
    violations: list[Violation]
    figures: Counter[str]


class Episode:
    """`folder` is made, and holds all that the episode leaves."""

    def __init__(self, folder: Path, plan: Plan) -> None:
        folder.mkdir(parents=True)
        self.folder, self.plan = folder, plan
        # each its own: a client that crashes and is replaced changes no fault that follows
        clients, faults, self.dice = (random.Random(f"{plan.seed} {what}") for what in ("clients", "faults", "files"))
        self.cluster = Cluster(folder / "data", plan.brokers)
        self.crew = Crew(folder / "histories", self.cluster.bootstrap, clients)
        self.history = Writer(self.crew.folder, "campaign")
        self.nemesis = Nemesis(self.cluster, self.crew, faults)
        self.found: list[Violation] = []
        self.figures: Counter[str] = Counter()

    def run(self) -> Result:
        try:
            self._faults()
            self._peace()
            self._read_all()
        except (Stalled, NotStarted, KafkaException) as error:
            self.crew.show_stacks()
            self._violated("stalled" if isinstance(error, Stalled) else "not served", str(error))
        finally:
            self.crew.close()
            for node in self.cluster.nodes:
                node.end()
                (self.folder / f"{node.data.name}.said").write_text("".join(node.said))
        self._check()
        return Result(self.plan, self.found, self.figures)

    def _violated(self, kind: str, story: str, *ops: Op) -> None:
        self.found.append(Violation(kind, story, ops))

    def _faults(self) -> None:
        self.cluster.begin()
        for kind, given in self.plan.crew:
            self.crew.start(kind, given)
        try:
            self.nemesis.run(self.plan.seconds)
        finally:
            self.figures.update(self.nemesis.done)

    def _peace(self) -> None:
        self.cluster.heal()
        self.crew.thaw()
        began_s = CLOCK.monotonic_s()
        self._ended("sender", "transactor")
        logs.settled(self.cluster.bootstrap, "lists", INPUT)
        self._drained()
        self._ended(*READING)
        logs.settled(self.cluster.bootstrap, *PARTITIONS)
        self._ended("reader")
        self.figures["seconds to peace"] += round(CLOCK.monotonic_s() - began_s)

    def _ended(self, *kinds: str) -> None:
        for late in self.crew.end(kinds, PATIENCE_S):
            self._violated("stalled", f"{late} did not come to its end within {PATIENCE_S:g} s of peace")

    def _drained(self) -> None:
        """The transformers have come to the end of their input."""
        ends = self._ends()
        until_s = CLOCK.monotonic_s() + DRAIN_S
        told: dict[str, int] = {}
        while CLOCK.monotonic_s() < until_s:
            told = logs.committed(self.cluster.bootstrap, GROUP, INPUT)
            if all(told[place] > last for place, last in ends.items()):
                self.history.tell("drained")
                return
            self.figures.update(self.crew.replace(*READING))
            CLOCK.sleep_s(0.2)
        raise Stalled(f"the transformers stand at {told}, and their input reaches {ends}")

    def _ends(self) -> dict[str, int]:
        rows = logs.everything(self.cluster.bootstrap, COMMITTED, INPUT)
        return {f"{topic}-{partition}": offset for topic, partition, offset, _ in rows}

    def _read_all(self) -> None:
        first = self._final()
        if self.plan.brokers == 1:
            self.cluster.leader.end(self.dice.choice((signal.SIGKILL, signal.SIGTERM)))
            self.cluster.back(self.cluster.leader)
        else:
            self._synced()
            why = self.cluster.promote()
            if why:
                self._violated("not promoted", why)
        again = self._final()
        for isolation, log in first.items():
            if log != again[isolation]:
                gone = [row for row in log if row not in again[isolation]]
                counts = f"{len(again[isolation])} records for {len(log)}, gone {gone[:5]}"
                self._violated("differs", f"after a restart or a promotion in peace {isolation} shows {counts}")

    def _synced(self) -> None:
        """acks=all is acknowledged, so the follower has everything: the members' commits and the records before this."""
        until_s = CLOCK.monotonic_s() + PATIENCE_S
        while not self.cluster.answers() and CLOCK.monotonic_s() < until_s:
            CLOCK.sleep_s(0.2)

    def _final(self) -> dict[str, list[list[Any]]]:
        found = {}
        for isolation in (COMMITTED, UNCOMMITTED):
            found[isolation] = sorted(logs.everything(self.cluster.bootstrap, isolation, *PARTITIONS))
            self.history.tell("final", isolation=isolation, rows=found[isolation])
        return found

    def _check(self) -> None:
        facts = Facts(History.load(self.crew.folder))
        if facts.history.of("final"):
            self.found += violations(facts)
            self.figures.update({f"{name} cycles (allowed)": n for name, n in allowed(facts)._asdict().items()})
        self.figures.update(counted(facts))
        for node in self.cluster.nodes:
            said = "".join(node.said)
            if "Traceback" in said:
                self._violated("traceback", f"a broker said: {said[said.index('Traceback') :][:1500]}")
        for words in self.crew.faults():
            self._violated("client", words)


def counted(facts: Facts) -> Counter[str]:
    """The figures of a history."""
    figures: Counter[str] = Counter()
    for op in facts.history.of("txn"):
        figures[f"transactions {op.outcome if op.ok or op.commit_ns else 'aborted'}"] += 1
    for write in facts.writes.values():
        figures[f"values written, {write.outcome}"] += 1
    for op in facts.history.of("init"):
        figures["producers begun"] += op.ok
    figures["records read"] = len(facts.reads)
    figures["records in the end"] = sum(map(len, facts.uncommitted.values()))
    figures["offsets committed"] = sum(op.ok for op in facts.history.of("offsets"))
    figures["offsets fetched"] = sum(op.ok for op in facts.history.of("fetched"))
    return figures
