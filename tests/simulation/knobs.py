"""Sizes that make things rare, which each universe has its own of; the first of each is the product's, and never drawn.

Rule 1: a knob is read where something is made, so it is set before a universe begins, and each universe sets all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

KNOBS: dict[str, tuple[int, ...]] = {
    "ROOM": (4 << 20, 1 << 20, 64 << 10, 24 << 10),
    "SMALL": (16 << 10, 16 << 10, 2 << 10, 300),
    "MOST": (1 << 20, 16 << 10, 4 << 10),
    "SNAPSHOT_EVERY": (4 << 20, 4 << 20, 20 << 10, 2 << 10),
    "RESERVED": (256 << 10, 64 << 10, 4 << 10, 256),
    "RENEW": (4 << 20, 1 << 20, 8 << 10, 1 << 10),
}
WHERE = {
    "ROOM": ("log.write_ahead",),
    "SMALL": ("log.write_ahead", "flusher"),
    "MOST": ("log.write_ahead", "flusher"),
    "SNAPSHOT_EVERY": ("log.partition",),
    "RESERVED": ("store.file",),
    "RENEW": ("store.file",),
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


def turn(given: Mapping[str, int]) -> None:
    """Set every knob: to what is given, or to its first choice."""
    for name, modules in WHERE.items():
        for module in modules:
            setattr(import_module(f"waterclock.broker.{module}"), name, given.get(name, KNOBS[name][0]))


def defaults(pair: bool) -> dict[str, str]:
    return {name: choices[0] for name, choices in {**SETTINGS, **(OF_A_PAIR if pair else {})}.items()}
