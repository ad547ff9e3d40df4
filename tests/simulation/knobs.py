"""Sizes that make things rare, which each universe has its own of: the broker's knobs, settings, values, speeds.

Rule 1: what a plan does not name is as the product has it. The first choice of a setting is near to that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from waterclock.broker import knobs
from waterclock.simulation.world import MS, US

KNOBS: dict[str, tuple[int, ...]] = {
    "ahead_room": (1 << 20, 64 << 10, 24 << 10, 6 << 10),
    "ahead_small": (16 << 10, 2 << 10, 300),
    "ahead_most": (16 << 10, 4 << 10),
    "snapshot_every": (4 << 20, 20 << 10, 2 << 10),
    "store_reserved": (64 << 10, 4 << 10, 256),
    "store_renew": (1 << 20, 8 << 10, 1 << 10),
    "journal_renew": (64 << 20, 64 << 10, 4 << 10),
}
SETTINGS: dict[str, tuple[str, ...]] = {
    "log.segment.bytes": ("1048576", "60000", "20000"),
    "log.initial.task.delay.ms": ("30000", "500"),
    "auto.create.topics.enable": ("false",),
}
OF_A_PAIR: dict[str, tuple[str, ...]] = {
    "min.insync.replicas": ("2",),
    "replica.lag.time.max.ms": ("30000", "5000", "1000"),
}


VALUES: dict[str, tuple[int, ...]] = {
    "all sizes": (0, 10, 100, 100, 1500, 5000),
    "small": (0, 10, 100, 300),
    "large": (100, 1500, 5000),
}
FLUSHES: dict[str, tuple[int, int]] = {
    "usual": (200 * US, 4 * MS),
    "slow": (3 * MS, 40 * MS),
    "fast": (20 * US, 200 * US),
}
NETS: dict[str, tuple[int, int]] = {"usual": (20 * US, 2 * MS), "near": (5 * US, 50 * US), "far": (1 * MS, 30 * MS)}

PACES: dict[str, float] = {"usual": 1, "eager": 0.15}
USUAL = {"values": "all sizes", "flushes": "usual", "net": "usual", "pace": "usual"}
"""Of these, by the names of a plan."""


def draw(stream: Callable[[str], Random]) -> dict[str, int]:
    """Each its own; in a quarter of the universes all of them the smallest. Half of the log's room holds a frame."""
    smallest = stream("knobs").random() < 0.25
    drawn = {
        name: choices[-1] if smallest else stream(f"knob {name}").choice(choices) for name, choices in KNOBS.items()
    }
    return {**drawn, "ahead_most": min(drawn["ahead_most"], drawn["ahead_room"] // 2)}


def turn(given: Mapping[str, int]) -> None:
    """Have these in every broker that is made from now on."""
    knobs.turn(knobs.Knobs(**given))


def defaults(pair: bool) -> dict[str, str]:
    return {name: choices[0] for name, choices in {**SETTINGS, **(OF_A_PAIR if pair else {})}.items()}
