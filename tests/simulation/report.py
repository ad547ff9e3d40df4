"""What a failing universe tells: in a line, or its story in some thirty lines with the command that repeats it."""

from __future__ import annotations

import io
import re
from itertools import groupby

from tests.simulation import universe
from tests.simulation.plan import Plan
from tests.simulation.strike import Struck
from tests.simulation.universe import Universe

MOST = 14  # lines of what was asked
NAMES = re.compile(r"[a-z]+-[a-z0-9]+(?:\.\d+)?|\('[a-z]+', \d+\)")  # clients and partitions


def short(one: Universe) -> str:
    """A few lines: the problems, each cut short."""
    problems, kinds = one.world.problems, sorted({kind for kind, _ in one.world.problems})
    head = f"seed {one.plan.seed}: {len(problems)} of {kinds}; hash {one.world.digest.hexdigest()}"
    return "\n".join((head, *(f"    {kind}: {story[:300]}" for kind, story in problems[:4])))


def of(plan: Plan, path: str, plant: str | None = None) -> str:
    """The story of a plan that lies at `path`."""
    trace = io.StringIO()
    one = universe.run(plan, trace)
    lines = trace.getvalue().splitlines()
    return "\n".join((
        f"seed {plan.seed}, {'a pair' if plan.pair else 'one broker'}, {plan.seconds} s of faults, workloads "
        f"{', '.join(plan.workloads)}{', without ' + ', '.join(plan.absent) if plan.absent else ''}",
        f"sizes: {', '.join(f'{name} {size}' for name, size in plan.sizes.items()) or 'the usual'}",
        f"steps: {steps(one)}, of faults, workloads, clients and sizes",
        "broken:", *(f"  {kind}: {story[:240]}" for kind, story in one.world.problems[:3]),
        "faults:", *(_fault(one, struck) for struck in one.struck),
        "asked:", *_asked(one, lines),
        f"again: python -m tests.simulation {plan.seed} --plan {path}{' --plant ' + plant if plant else ''}",
    ))  # fmt: skip


def steps(one: Universe) -> int:
    """How much there is to understand."""
    return len(one.plan.faults) + len(one.plan.workloads) + len(one.working) + len(one.plan.sizes)


def _fault(one: Universe, struck: Struck) -> str:
    place = f", {struck.place}" if struck.place else ""
    return f"  {_seconds(one, struck.at_ns)}  {struck.number:2} {struck.what}: {struck.where}{place}"


def _seconds(one: Universe, at_ns: int) -> str:
    return f"{(at_ns - one.began_ns) / 1e9:9.4f} s"


def _asked(one: Universe, lines: list[str]) -> list[str]:
    """The lines of the history that name what the first problem names, the last ones; and the starts of brokers."""
    if not one.world.problems:
        return ["  nothing is broken"]
    names = set(NAMES.findall(one.world.problems[0][1])) or {""}
    told = [line for line in lines if " is up " in line or any(name in line for name in names)]
    told = told if len(told) > 2 else lines  # it names nothing that anybody asked for
    told = [line for line in told if " fsync " not in line and " PROBLEM " not in line]
    alike = groupby(told, lambda line: line.partition(" ")[2])  # asked again and again, and answered alike
    told = [next(lines) for _, lines in alike]
    return [f"  {_line(one, line)}" for line in told[-MOST:]]


def _line(one: Universe, line: str) -> str:
    at_ns, _, rest = line.partition(" ")
    return f"{_seconds(one, int(at_ns))}  {rest[:150]}"
