"""A flat wheel of a million buckets beside five levels of twenty: the same timers, what each keeps and what each does.

A flat wheel has one bucket for each millisecond up to its longest timer, and its hand looks at each of them. Levels cover
more with a hundred buckets, and a queue of the buckets in use says where the hands go next; in return a timer is moved down
a level now and then.

Rule 1: both are run; every number of the table is counted or measured in this run.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

from waterclock.trace.picture import folded, table
from waterclock.wheel.reference import TimingWheel
from waterclock.wording import show_duration

BUCKETS: Final = 1_000_000
SLOTS: Final = 20
DUE_MS: Final = (2, 8, 350, 450, 9_000, 160_001, 840_000, 999_999)


class FlatWheel:
    """One ring, a bucket a tick of 1 ms; a delay must be shorter than the ring.

    >>> wheel = FlatWheel(10)
    >>> wheel.add(3, "three"), wheel.advance(9), wheel.ran
    (None, 9, ['three'])
    """

    def __init__(self, buckets: int) -> None:
        self.buckets: list[list[Any]] = [[] for _ in range(buckets)]
        self.now = 0
        self.ran: list[Any] = []

    def add(self, delay: int, name: Any) -> None:
        """Into the bucket of its tick."""
        self.buckets[(self.now + delay) % len(self.buckets)].append(name)

    def advance(self, now: int) -> int:
        """Tick by tick; how many buckets were looked at."""
        looked_at = 0
        while self.now < now:
            self.now += 1
            looked_at += 1
            bucket = self.buckets[self.now % len(self.buckets)]
            self.ran += bucket
            bucket.clear()
        return looked_at

    def size_bytes(self) -> int:
        """Of the ring and its buckets."""
        return sys.getsizeof(self.buckets) + sum(map(sys.getsizeof, self.buckets))


def compare(buckets: int = BUCKETS, slots: int = SLOTS, due_ms: tuple[int, ...] = DUE_MS) -> dict[str, Any]:
    """Both wheels through the same timers."""
    return {"timers_ms": list(due_ms), "flat": _flat(buckets, due_ms), "levels": _levels(slots, due_ms)}


def _flat(buckets: int, due_ms: tuple[int, ...]) -> dict[str, Any]:
    wheel = FlatWheel(buckets)
    for due in due_ms:
        wheel.add(due, due)
    looked_at = wheel.advance(max(due_ms))
    return {
        "levels": 1,
        "buckets": len(wheel.buckets),
        "covers_ms": len(wheel.buckets),
        "bytes": wheel.size_bytes(),
        "wake_ups": looked_at,
        "moved_down": 0,
        "ran_ms": wheel.ran,
    }


def _levels(slots: int, due_ms: tuple[int, ...]) -> dict[str, Any]:
    wheel, ran = TimingWheel(slots=slots), list[int]()
    for due in due_ms:
        wheel.add_at(due, ran.append, due)
    levels = wheel.snapshot().levels
    size = 0
    for level in wheel._levels():
        rings = level.buckets.values()  # each with the sentinel that its timers hang around
        size += sum(map(sys.getsizeof, (level, level.buckets, *rings, *(ring._root for ring in rings))))
    wake_ups = 0
    while queue := wheel.snapshot().queue:
        wheel.advance(queue[0].expiration)
        wake_ups += 1
    return {
        "levels": len(levels),
        "buckets": sum(level.wheel_size for level in levels),
        "covers_ms": levels[-1].interval,
        "bytes": size,
        "wake_ups": wake_ups,
        "moved_down": wheel.statistics().cascaded,
        "ran_ms": ran,
    }


def as_text(found: dict[str, Any]) -> str:
    """The comparison as a table of two columns."""
    flat, levels = found["flat"], found["levels"]
    names = {
        "levels": "levels",
        "buckets": "buckets",
        "covers_ms": "covers, ms",
        "bytes": "bytes of rings and buckets",
        "wake_ups": "buckets looked at until all ran",
        "moved_down": "timers moved down a level",
    }
    rows = [(name, f"{flat[key]:,}", f"{levels[key]:,}") for key, name in names.items()]
    right = ["yes" if one["ran_ms"] == sorted(found["timers_ms"]) else "no" for one in (flat, levels)]
    rows.append(("ran in the order of deadlines", right[0], right[1]))
    timers = ", ".join(map(show_duration, found["timers_ms"]))
    head = folded(f"flat-wheel: one bucket a millisecond, beside levels of {SLOTS}; timers after {timers}", 0)
    return "\n".join([*head, "", *table(("", "flat", f"{levels['levels']} levels"), rows)])


def as_json(found: dict[str, Any]) -> str:
    """The comparison for programs."""
    return json.dumps(found, indent=1)
