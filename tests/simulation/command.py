"""The command: which universes are run, with what planted in them, and what is told of them.

    SEED [COUNT]                            universes by their seeds
    SEED --plan FILE                        one of them as a file says, of a report
    SEED --shrink FILE                      its first failure, cut down to what still fails; the plan goes into the file
    attack --minutes N --json FILE          seeds on all cores; --add FILE ...: what was found, added up
    published FILE ...                      that, for the record and docs/reliability.md
    hashes COUNT                            how many fresh processes give a seed one hash
    ledger                                  how soon each plant is found
    reached                                 which rare branches of the product universes pass

Rule 1: nothing of the broker is imported before the plants are in.
"""

from __future__ import annotations

import argparse
import json
import signal
import time
from typing import TYPE_CHECKING, Any

from tests.simulation import attack, hashes, ledger, planting, published, reached
from tests.simulation.plants import PLANTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.plan import Plan
    from tests.simulation.universe import Universe


OTHERS: dict[str, Any] = {
    "attack": attack,
    "hashes": hashes,
    "ledger": ledger,
    "published": published,
    "reached": reached,
}


def parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("seed", type=int)
    parser.add_argument("count", type=int, nargs="?", default=1)
    parser.add_argument("--seconds", type=float, help="of faults; 0: each seed has its own")
    parser.add_argument("--cpu-seconds", type=float, default=float("inf"), help="no new universe after these")
    parser.add_argument("--pair", action="store_true", help="a leader and its follower")
    parser.add_argument("--plant", choices=[*PLANTS], help="a bug that is to be found")
    parser.add_argument(
        "--kind", help="of universe (kinds.py), seconds as the seed says; several with commas: by turns"
    )
    parser.add_argument("--damaged", action="store_true", help="one broker, whose files are damaged in the end")
    parser.add_argument("--faults", help="only these kinds, with commas")
    parser.add_argument("--workloads", help="only these, with commas")
    parser.add_argument("--few", action="store_true", help="up to three workloads each: more histories")
    parser.add_argument("--plan", help="a file with the plan of the one universe")
    parser.add_argument("--trace", help="a file for every line of its history")
    parser.add_argument("--shrink", metavar="FILE", help="cut the first failure down, and put its plan there")
    parser.add_argument("--shrink-seconds", type=float, default=120, help="CPU seconds for that")
    parser.add_argument("--until-found", action="store_true")
    parser.add_argument("--hash", action="store_true", help="show each history's")
    parser.add_argument("--past-known", action="store_true", help="empty a follower that cannot follow, and go on")
    parser.add_argument("--mixed", action="store_true", help="clients of one transactional id differ in the protocol")
    return parser


def main(arguments: list[str]) -> int:
    if arguments and (other := OTHERS.get(arguments[0])) is not None:
        return int(other.main(arguments[1:]))
    return run(arguments)


def run(arguments: list[str]) -> int:
    """Universes by their seeds."""
    told = parser().parse_args(arguments)
    planting.begin(PLANTS[told.plant].edits if told.plant else ())
    stopping: list[bool] = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    began_s, sums = time.process_time(), Sums()
    for plan in plans(told):
        found = _one(plan, told, sums)
        tidy(sums.histories)
        if found and told.until_found:
            spent_s = time.process_time() - began_s
            print(f"found after {sums.histories} histories, {spent_s:.1f} CPU s: {', '.join(found)}")
        if (
            stopping
            or time.process_time() - began_s > told.cpu_seconds
            or (found and (told.until_found or told.shrink))
        ):
            break
    spent_s = round(time.process_time() - began_s, 2)
    bad, shown = [one["seed"] for one in sums.bad], sorted({kind for one in sums.bad for kind in one["kinds"]})
    print(json.dumps({**sums.told(), "bad": bad, "shown": shown, "cpu_s": spent_s}))
    return 1 if sums.bad else 0


def plans(told: argparse.Namespace) -> Iterator[Plan]:
    from tests.simulation import damaged, plan
    from tests.simulation import kinds as universes

    if told.plan:
        yield plan.read(told.plan)
        return
    kinds = told.faults.split(",") if told.faults else ()
    seeds = range(told.seed, told.seed + told.count)
    names = tuple(told.workloads.split(",")) if told.workloads else ()
    if told.kind:
        for seed in seeds:
            yield universes.draw(seed, universes.of(seed, told.kind.split(",")), told.seconds or 0, kinds, names)
        return
    named = {"mixed": told.mixed, "past_known": told.past_known, "few": told.few}
    for seed in seeds:
        seconds = 6 if told.seconds is None else told.seconds
        drawn = plan.draw(seed, pair=told.pair, seconds=seconds, kinds=kinds, **named)
        drawn = damaged.plan_of(drawn) if told.damaged else drawn
        yield drawn.only(names) if names else drawn


def _one(plan: Plan, told: argparse.Namespace, sums: Sums) -> list[str]:
    """Run it; the kinds of problems."""
    from tests.simulation import report, shrinking, universe

    with open(told.trace or "/dev/null", "w") as trace:
        one = universe.run(plan, trace if told.trace else None)
    sums.add(one)
    if told.hash:
        print(f"hash {plan.seed} {one.world.digest.hexdigest()} {one.world.lines}", flush=True)
    kinds = sorted({kind for kind, _ in one.world.problems})
    if kinds:
        print(report.short(one), flush=True)
    if kinds and told.shrink:
        small = shrinking.shrink(plan, kinds, told.shrink_seconds)
        small.save(told.shrink)
        print(report.of(small, told.shrink, told.plant), flush=True)
    return kinds


def tidy(histories: int) -> None:
    """Behind so many histories: free what they left. What a process has after its first one it keeps."""
    from waterclock.simulation import install

    if histories == 1:
        install.settle()
    elif histories % 25 == 0:
        install.sweep()


class Sums:
    """Of what universes told of themselves."""

    def __init__(self) -> None:
        self.histories = 0
        self.bad: list[dict[str, Any]] = []
        self.counts: dict[str, float] = {}
        self.faults: dict[str, int] = {}
        self.passed: dict[str, int] = {}  # histories that passed a mark

    def add(self, one: Universe) -> None:
        self.histories += 1
        if one.world.problems:
            kinds = sorted({kind for kind, _ in one.world.problems})
            story, plan = one.world.problems[0][1][:300], json.loads(one.plan.to_json())
            self.bad.append({"seed": one.plan.seed, "kinds": kinds, "story": story, "plan": plan})
        _into(self.counts, figures(one))
        _into(self.faults, one.faults)
        _into(self.passed, dict.fromkeys(one.passed, 1))

    def told(self) -> dict[str, Any]:
        return {
            "histories": self.histories,
            **self.counts,
            "faults": self.faults,
            "passed": self.passed,
            "bad": self.bad,
        }


def _into(sums: dict[str, Any], more: dict[str, Any]) -> None:
    for what, count in more.items():
        sums[what] = sums.get(what, 0) + count


def figures(one: Universe) -> dict[str, Any]:
    history, world = one.history, one.world
    return {
        "requests": history.ops,
        "acknowledged": history.acked,
        "read": history.read,
        "transactions": len(history.txns),
        "system_calls": world.syscalls,
        "virtual_s": round(world.now / 1e9 - 1000, 3),
    }
