"""Seconds of people to nanoseconds of wheels, in one place.

Rule 1: to the nearest, so that 0.07 s are 70 million: a hair more would cost a whole tick.
"""

from __future__ import annotations


def nanoseconds(name: str, seconds: float, least: int | None = None) -> int:
    """Whole nanoseconds; `ValueError` names the argument where it is no number, or below `least`.

    >>> nanoseconds("delay_s", 0.07)
    70000000
    """
    try:
        value = round(seconds * 1e9)
    except (OverflowError, ValueError):
        raise ValueError(f"{name} must be a number of seconds, got {seconds}") from None
    if least is not None and value < least:
        raise ValueError(f"{name} must be {'positive' if least else 'zero or more'}, got {seconds}")
    return value
