"""A failing history is cut down: to the fewest faults, workloads, clients, knobs and seconds that still fail likewise.

1. What came after the problem goes: the seconds behind it, and the faults.
2. Faults are left out, half of them, a quarter, one by one; then workloads, then clients.
3. Knobs, settings, values and speeds become the usual ones; settings go that a workload wanted which is gone.
And again, until nothing more can go.

Rule 1: what is left has the same kind of problem. It need not be the same event: where something is left out, all that
    follows differs. So each is tried with a few salts, other orders of events, before it is given up.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Collection, Iterator

from tests.simulation import knobs, universe
from tests.simulation.plan import Plan, settings_of
from waterclock.simulation.world import NS

SALTS = 6
Fails = Callable[[Plan], "Plan | None"]


def shrink(plan: Plan, kinds: Collection[str], budget_s: float = 120) -> Plan:
    """The smallest plan found within so much CPU time that fails with one of these kinds."""
    until_s = time.process_time() + budget_s

    def fails(one: Plan) -> Plan | None:
        for salt in dict.fromkeys((one.salt, *range(SALTS))):
            if time.process_time() < until_s and problems(one.but(salt=salt)) & set(kinds):
                return one.but(salt=salt)
        return None

    before = None
    while before != plan:
        before = plan
        for step in (shorter, fewer_faults, fewer_workloads, fewer_clients, usual_sizes):
            plan = step(plan, fails)
    return plan


def problems(plan: Plan) -> set[str]:
    """The kinds of problems that it has."""
    kinds = {kind for kind, _ in universe.run(plan).world.problems}
    gc.collect()
    return kinds


def shorter(plan: Plan, fails: Fails) -> Plan:
    for seconds in (plan.seconds / 4, plan.seconds / 2, plan.seconds * 3 / 4):
        seconds = round(max(0.2, seconds), 2)
        kept = tuple(fault for fault in plan.faults if fault.at_ns < seconds * NS)
        if seconds < plan.seconds and (found := fails(plan.but(seconds=seconds, faults=kept))):
            return found
    return plan


def fewer_faults(plan: Plan, fails: Fails) -> Plan:
    size = len(plan.faults)
    while size >= 1:
        for gone in _parts(plan.faults, size):
            rest = tuple(fault for fault in plan.faults if fault not in gone)
            if len(rest) < len(plan.faults) and (found := fails(plan.but(faults=rest))):
                plan = found
        size //= 2
    return plan


def _parts(items: tuple[object, ...], size: int) -> Iterator[tuple[object, ...]]:
    """The last ones first: without those, what came before them stays as it was."""
    for at in range(len(items) - size, -size, -size):
        yield items[max(0, at) : at + size]


def fewer_workloads(plan: Plan, fails: Fails) -> Plan:
    for name in plan.workloads:
        rest = tuple(one for one in plan.workloads if one != name)
        if rest and (found := fails(plan.but(workloads=rest))):
            plan = found
    return plan


def fewer_clients(plan: Plan, fails: Fails) -> Plan:
    for name in sorted(universe.run(plan).working):
        if name not in plan.absent and (found := fails(plan.but(absent=(*plan.absent, name)))):
            plan = found
    return plan


def usual_sizes(plan: Plan, fails: Fails) -> Plan:
    """As few knobs and settings as may be that are not the product's own."""
    usual = knobs.defaults(plan.pair)
    for name, word in knobs.USUAL.items():
        if getattr(plan, name) != word and (found := fails(plan.but(**{name: word}))):
            plan = found
    if plan.knobs and (found := fails(plan.but(knobs={}))):
        plan = found
    for name in sorted(plan.knobs):
        if found := fails(plan.but(knobs={key: size for key, size in plan.knobs.items() if key != name})):
            plan = found
    needed = settings_of(plan.workloads)
    for name in sorted(plan.settings.keys() - needed.keys()):
        changed = {
            **{key: text for key, text in plan.settings.items() if key != name},
            **({name: usual[name]} if name in usual else {}),
        }
        if changed != plan.settings and (found := fails(plan.but(settings=changed))):
            plan = found
    return plan
