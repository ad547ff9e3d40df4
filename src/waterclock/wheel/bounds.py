"""The numbers a wheel takes, and their bounds; bounds.pxd has those of time for the compiled wheels.

Rule 1: a number outside its bounds is a `ValueError` that names the argument; what is no whole number a `TypeError`.
Rule 2: `slots` is read here and nowhere else, so that every wheel means the same by it.
"""

from __future__ import annotations

from contextlib import suppress
from operator import index
from typing import Any, Final

MAX_TIME: Final = 2**62
"""No deadline lies beyond this: 146 years in nanoseconds, and sums of two still fit 64 bits."""

MAX_TICK: Final = 2**61
"""The coarsest tick: a deadline rounded up to it still fits 64 bits."""

MAX_NOW: Final = MAX_TIME + MAX_TICK
"""The latest clock `advance` takes: the last deadline rounded up to the coarsest tick lies before it."""

MIN_SLOTS: Final = 2
MAX_SLOTS: Final = 2**16
"""The fewest and the most buckets a level has."""


def whole(name: str, value: int, low: int, high: int) -> int:
    """`value` as an integer; `ValueError` outside of low .. high, `TypeError` for what is no whole number."""
    number = index(value)
    if not low <= number <= high:
        raise ValueError(f"{name} must lie within {low} and {high}, got {number}")
    return number


def sizes_of(slots: Any) -> tuple[int, ...]:
    """The buckets of each level, the finest first; the last size is that of all levels above, too.

    `ValueError` for anything but a whole number from 2 to 65,536, or a tuple of such.

    >>> sizes_of(256), sizes_of((60, 60, 12))
    ((256,), (60, 60, 12))
    """
    with suppress(TypeError):  # of what is no whole number
        sizes = tuple(map(index, slots if isinstance(slots, tuple) else (slots,)))
        if sizes and all(MIN_SLOTS <= size <= MAX_SLOTS for size in sizes):  # True and False are 1 and 0: no sizes
            return sizes
    raise ValueError(
        f"slots must lie within {MIN_SLOTS} and {MAX_SLOTS}, as one whole number or a tuple of one a level, "
        f"the finest first, got {slots!r}"
    )
