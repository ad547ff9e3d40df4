"""What the number of levels costs: the same hour of delays in wheels of two levels up to twenty-two.

The fewer buckets a level has, the more levels an hour of milliseconds needs. Kafka's way walks up level by level to find a
timer's bucket, and takes the timer down level by level as its time comes; the compiled wheel reads the bucket off the
deadline, and takes it down likewise. Both are measured: the compiled wheel, and with fewer timers the plain one, built as
Kafka's is.

Rule 1: the verbs are those of verbs.py, with its checks and its delays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from waterclock.bench.timers import verbs
from waterclock.bench.timers.keepers import HOUR_MS, Keeper, Wheel
from waterclock.bench.timers.verbs import Contender, Report
from waterclock.wheel import TimingWheel, reference

SLOTS: Final = (4_096, 256, 64, 16, 4, 2)
MOST: Final = {"compiled": 1_000_000, "plain": 10_000}  # timers pending
MAKERS: Final = {"compiled": TimingWheel, "plain": reference.TimingWheel}


@dataclass(frozen=True, slots=True)
class WheelOfSlots(Contender):
    """One of the wheels, with so many buckets a level."""

    which: str = "compiled"
    buckets: int = 256

    def load(self) -> type[Keeper]:
        make, buckets = MAKERS[self.which], self.buckets

        class Sized(Wheel):
            def make(self) -> Any:
                return make(slots=buckets)

        return Sized


def levels_of(slots: int, ticks: int = HOUR_MS) -> int:
    """How many levels so many ticks need.

    >>> [levels_of(slots) for slots in (4_096, 256, 2)]
    [2, 3, 22]
    """
    levels, covered = 1, slots
    while covered < ticks:
        levels, covered = levels + 1, covered * slots
    return levels


def measure(size: int, rounds: int, report: Report, slots: Sequence[int] = SLOTS) -> list[dict[str, Any]]:
    """A record for each wheel and number of levels: ns by verb."""
    found: list[dict[str, Any]] = []
    for which, most in MOST.items():
        contenders = [WheelOfSlots(f"{which}, {one} a level", "", which=which, buckets=one) for one in slots]
        pending = min(size, most)
        verbs.measure(contenders[:1], [pending], 1, report)  # not shown: it pays for the memory that all then find
        ns = verbs.measure(contenders, [pending], rounds, report)["ns"]
        for one in contenders:
            costs = {verb: by_size[pending] for verb, by_size in ns[one.name].items()}
            levels = levels_of(one.buckets)
            found.append({"wheel": which, "pending": pending, "slots": one.buckets, "levels": levels, **costs})
    return found
