"""How full a wheel is: for each level, the finest first, how many timers wait in each bucket that has any.

A tick is read as digits, a digit a level: how many ticks it lies behind the wheel's base, in a base of as many digits as
the level has buckets. A timer stands in the level of the highest digit in which its tick differs from the tick that the
wheel has reached, in the bucket of that digit. (That is how the compiled wheels keep them: buckets.h, slots.h.)

    base       the tick of the wheel's now when it was made, or when a timer was added that found it empty
    reached    the tick of its now; where a limit holds timers back, that of the last one that ran

Rule 1: what is returned is a copy; buckets come in order, levels up to the highest in use, and an empty wheel has none.
Rule 2: all numbers together are the length of the wheel.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TypeAlias

Occupancy: TypeAlias = tuple[dict[int, int], ...]


def by_level(used: Iterable[tuple[int, int, int]]) -> Occupancy:
    """Buckets in use as (level, bucket, timers), levels from 0 and in order, as one mapping a level.

    >>> by_level([(0, 3, 1), (2, 0, 7), (2, 9, 1)])
    ({3: 1}, {}, {0: 7, 9: 1})
    """
    levels: list[dict[int, int]] = []
    for level, bucket, timers in used:
        levels += [{} for _ in range(len(levels), level + 1)]
        levels[level][bucket] = timers
    return tuple(levels)


def laid_out(ticks: Iterable[int], reached: int, sizes: tuple[int, ...]) -> Occupancy:
    """The same of timers at these ticks, both counted from the base; for wheels that keep them otherwise.

    >>> laid_out([450, 350, 350], reached=0, sizes=(20,))
    ({}, {17: 2}, {1: 1})
    """
    counted: Counter[tuple[int, int]] = Counter()
    for tick in ticks:
        level, here = 0, reached
        while tick // (size := sizes[min(level, len(sizes) - 1)]) != here // size:
            tick, here, level = tick // size, here // size, level + 1
        counted[level, tick % size] += 1
    return by_level((level, bucket, counted[level, bucket]) for level, bucket in sorted(counted))
