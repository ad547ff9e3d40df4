"""Seconds of people to nanoseconds of wheels, in one place.

Rule 1: to the nearest, so that 0.07 s are 70 million: a hair more would cost a whole tick.
"""

from __future__ import annotations

from math import floor


def nanoseconds(name: str, seconds: float, least: int | None = None) -> int:
    """Whole nanoseconds; an error names the argument: `ValueError` for nan and what is below `least`, else `TypeError`.

    >>> nanoseconds("delay_s", 0.07)
    70000000
    """
    try:
        value = floor(seconds * 1e9 + 0.5)
    except (OverflowError, ValueError):
        raise ValueError(f"{name} must be a number of seconds, got {seconds}") from None
    except TypeError:
        raise TypeError(f"{name} must be a number of seconds, got {seconds!r}") from None
    if least is not None and value < least:
        raise ValueError(f"{name} must be {'positive' if least else 'zero or more'}, got {seconds}")
    return value
