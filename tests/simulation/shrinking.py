"""A failing history is cut down to the fewest faults, workloads, clients, unusual sizes and seconds that fail likewise.

1. What cannot matter goes: the seconds behind the problem, their faults, and those that hit nothing.
2. Delta debugging (Zeller, Hildebrandt: Simplifying and Isolating Failure-Inducing Input, 2002), the largest cuts first:
   none of a group, one or half of it alone; without a quarter of it, an eighth, one. Workloads first: fewer cost less.
3. Half of the seconds, the last ones or the first ones; all faults in half of the time.
And again, with more salts, until nothing more can go.

Rule 1: what is left has the same kind of problem. It need not be the same event: where something is left out, all that
    follows differs. So each is tried with a few salts, other orders of events, before it is given up.
Rule 2: a history ends with its first problem of these kinds: up to there it is the same one.
Rule 3: a cut is tried for its share of the CPU time left, by how much it takes away; no history is run twice.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from tests.simulation import knobs, universe
from tests.simulation.plan import Plan, settings_of
from tests.simulation.report import steps
from waterclock.simulation import install
from waterclock.simulation.world import NS

Item = tuple[str, object]
SALTS = (1, 4, 16)
"""How many are tried: the more, the less is left to cut."""
FEW = 8
"""Steps that are few enough."""
LEAST_S = 0.2
"""Seconds of faults."""
SWEPT_S = 2
"""CPU seconds of histories whose garbage lies about at most."""


def shrink(plan: Plan, kinds: Collection[str], budget_s: float = 120) -> Plan:
    """The smallest plan found within so much CPU time that fails with one of these kinds."""
    search = Search(plan, kinds, budget_s)
    for search.salts in SALTS:
        before = 1 + (left := search.steps)
        while FEW < left < before:
            search.round()
            before, left = left, search.steps
    return search.plan


class Search:
    """`plan` is the smallest so far; `one` is its history."""

    def __init__(self, plan: Plan, kinds: Collection[str], budget_s: float) -> None:
        self.kinds, self.plan, self.salts = frozenset(kinds), plan, 1
        self.swept_s = time.process_time()
        self.until_s = self.swept_s + budget_s
        self.peace_s = float(universe.PEACE_S)
        self.tried: dict[str, set[int]] = {}  # salts, by the plan
        self.fails(plan)

    @property
    def steps(self) -> int:
        return steps(self.one)

    def round(self) -> None:
        self.needless()
        for group in ("workloads", "clients", "sizes", "faults"):
            self.cut(group)
        self.hasten()

    def needless(self) -> None:
        """What came behind the problem, and what hit nothing."""
        ends_s = (self.one.world.now - self.one.began_ns) / NS
        seconds = min(self.plan.seconds, round(ends_s + 0.01, 2))
        struck = {one.number for one in self.one.struck}
        before = tuple(fault for fault in self.plan.faults if fault.at_ns < ends_s * NS)
        for kept in (before, tuple(fault for fault in before if fault.number in struck)):
            self.tries(self.plan.but(faults=kept, seconds=seconds), 1 + len(self.plan.faults) - len(kept))

    def hasten(self) -> None:
        while self.plan.seconds > LEAST_S and any(self.tries(*halved) for halved in halves_of_time(self.plan)):
            pass

    def cut(self, group: str) -> None:
        """Parts of a group alone, then all without parts of it."""
        single = group in ("workloads", "clients")  # one alone is soon tried
        while any(self.tries(without(self.plan, gone), len(gone)) for gone in all_but(self.items(group), single)):
            pass
        items = self.items(group)
        for size in halves(len(items)):
            for part in parts(items, size):
                left = self.items(group)
                if gone := [item for item in part if item in left]:
                    self.tries(without(self.plan, gone), len(gone))

    def items(self, group: str) -> list[Item]:
        """What may be left out. All clients of a history are known when it has been run."""
        plan = self.plan
        named = {
            "workloads": plan.workloads,
            "clients": sorted(self.one.working),
            "faults": [fault.number for fault in plan.faults],
            "sizes": [name for name in plan.sizes if name not in settings_of(plan.workloads)],
        }
        return [(group, name) for name in named[group]]

    def tries(self, smaller: Plan, gone: int) -> bool:
        """Whether it fails, with the present salt or another one; then it is the plan. It has so many steps less."""
        if not smaller.workloads or smaller == self.plan:
            return False
        tried, now_s = self.tried.setdefault(smaller.but(salt=0).to_json(), set()), time.process_time()
        until_s = now_s + (self.until_s - now_s) * gone / self.steps / 4
        for salt in dict.fromkeys((self.plan.salt, *range(self.salts))):
            if salt in tried or len(tried) >= self.salts or time.process_time() > until_s:
                continue
            tried.add(salt)
            if self.fails(smaller.but(salt=salt)):
                return True
        return False

    def fails(self, plan: Plan) -> bool:
        """Run it to its first problem of these kinds, or until it has been in peace for much longer than the last one."""
        one = universe.run(plan, sought=self.kinds, peace_s=self.peace_s)
        failed = any(kind in self.kinds for kind, _ in one.world.problems)
        if failed:
            self.plan, self.one = plan, one
            if "stalled" not in self.kinds:
                self.peace_s = min(self.peace_s, 5 + 1.25 * (one.world.now - one.peace_ns) / NS)
        if time.process_time() > self.swept_s + SWEPT_S:
            install.sweep()
            self.swept_s = time.process_time()
        return failed


def without(plan: Plan, gone: Sequence[Item]) -> Plan:
    """The plan without these; sizes are the usual ones then."""
    faults = tuple(fault for fault in plan.faults if ("faults", fault.number) not in gone)
    workloads = tuple(name for name in plan.workloads if ("workloads", name) not in gone)
    absent = (*plan.absent, *(name for group, name in gone if group == "clients"))
    sizes = [name for group, name in gone if group == "sizes"]
    usual = {**knobs.defaults(plan.pair), **settings_of(workloads)}
    settings = {name: text for name, text in plan.settings.items() if name not in sizes}
    return plan.but(
        faults=faults,
        workloads=workloads,
        absent=absent,
        knobs={name: size for name, size in plan.knobs.items() if name not in sizes},
        settings=settings | {name: usual[name] for name in sizes if name in usual and name in plan.settings},
        **{name: word for name, word in knobs.USUAL.items() if name in sizes},
    )


def halves_of_time(plan: Plan) -> Iterator[tuple[Plan, int]]:
    """In half of the seconds, and how many steps that takes away: the last half, the first half, all of it faster."""
    half_ns, faults = round(plan.seconds * NS / 2), plan.faults
    for kept in (
        [replace(one, at_ns=one.at_ns - half_ns) for one in faults if one.at_ns >= half_ns],
        [one for one in faults if one.at_ns < half_ns],
        [replace(one, at_ns=one.at_ns // 2) for one in faults],
    ):
        seconds = max(LEAST_S, round(plan.seconds / 2, 2))
        yield plan.but(seconds=seconds, faults=tuple(kept)), 1 + len(faults) - len(kept)


def all_but(items: Sequence[Item], single: bool) -> Iterator[list[Item]]:
    """All of them; all but one, if singles are asked for; all but half of them."""
    yield [*items]
    for size in (*([1] if single else []), *halves(len(items))[:1]):
        for part in parts(items, size):
            yield [item for item in items if item not in part]


def halves(size: int) -> list[int]:
    """Half of it, a quarter, and so on to 1."""
    return [size >> shift for shift in range(1, size.bit_length())] or [1]


def parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    """The last ones first: without those, what came before them stays as it was."""
    for at in range(len(items) - size, -size, -size):
        yield items[max(0, at) : at + size]
