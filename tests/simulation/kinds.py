"""The kinds of universes: what of a plan each kind has, beside what the seed draws.

    one       one broker                              damaged   one broker, whose files are damaged in the end
    pair      a leader and its follower               relay     one broker, and relays on it
    mixed     one broker, clients of one transactional id by both protocols
    misplaced    damaged, of the indexes alone       mistaken     damaged, of the snapshots of producers alone
    unreadable   one broker, whose files cannot be read for a while
    uneven    one broker, where flushes of some files take longer, and calls that the disk refuses
    capture   one broker, and captures of a database         rules     one broker, and pipelines on it
    local     the same, of pipelines without Spark

Rule 1: where several kinds are named a seed has one of them, by turns: a seed and its kind repeat a history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.simulation import damaged, faults, plan
from tests.simulation.plan import Plan

KINDS: dict[str, dict[str, Any]] = {
    "one": {},
    "mixed": {"mixed": True},
    "pair": {"pair": True, "past_known": True},
    "damaged": {"damaged": ""},
    "misplaced": {"damaged": ".index"},
    "mistaken": {"damaged": ".snapshot"},
    "unreadable": {"kinds": (*faults.kinds(pair=False), "break_reads")},
    "uneven": {"kinds": (*faults.kinds(pair=False), "slow_file", "refuse_once")},
    "relay": {"workloads": ("relay",)},
    "capture": {"workloads": ("capture",)},
    "rules": {"workloads": ("rules",)},
    "local": {"workloads": ("local",)},
}


def of(seed: int, kinds: Sequence[str]) -> str:
    """The one that the seed has."""
    return kinds[seed % len(kinds)]


def draw(seed: int, kind: str, seconds: float = 0, only: Sequence[str] = (), workloads: Sequence[str] = ()) -> Plan:
    """A universe of the kind; `seconds`: 0 for as many as the seed says; `only`: these kinds of faults."""
    words = dict(KINDS[kind])
    damages = words.pop("damaged", None)
    of_kind = words.pop("kinds", ())
    drawn = plan.draw(seed, seconds=seconds, kinds=only or of_kind, **{"workloads": tuple(workloads), **words})
    if damages is None:
        return drawn
    drawn = damaged.plan_of(drawn, damages)
    return drawn.only(tuple(workloads)) if workloads else drawn
