"""Seconds of people to nanoseconds of wheels, in one place.

Rule 1: every verb that takes a time has it checked here, before anything is changed.
Rule 2: to the nearest, so that 0.07 s are 70 million: a hair more would cost a whole tick.
"""

from __future__ import annotations

from math import floor
from typing import Final

from waterclock.wheel.bounds import MAX_TIME, whole

MOST_NS: Final = MAX_TIME
MOST_S: Final = MAX_TIME / 1e9
"""146 years: no wheel holds what is further off."""


def nanoseconds(name: str, seconds: float, least: int | None = None) -> int:
    """Whole nanoseconds; an error names the argument: `ValueError` for nan, what is below `least` and what is more than
    146 years, which no wheel holds; else `TypeError`.

    >>> nanoseconds("delay_s", 0.07)
    70000000
    """
    try:
        value = floor(seconds * 1e9 + 0.5)
    except (OverflowError, ValueError):
        raise ValueError(f"{name} must be a number of seconds, got {seconds}") from None
    except TypeError:
        raise TypeError(f"{name} must be a number of seconds, got {seconds!r}") from None
    if abs(value) > MAX_TIME:
        raise ValueError(f"{name} must be a number of seconds within 146 years, got {seconds}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be {'positive' if least else 'zero or more'}, got {seconds}")
    return value


def within_reach(deadline_ns: int) -> int:
    """A deadline that a wheel holds; `ValueError` for one beyond."""
    return whole("deadline", deadline_ns, -MOST_NS, MOST_NS)
