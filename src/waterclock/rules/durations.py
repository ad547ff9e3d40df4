"""Durations as people write them, times as programs count them: everything inside is integer microseconds.

Rule 1: conversion happens here and nowhere else.
Rule 2: a duration of a year or a month is refused: they have no fixed length.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

Duration = str | int | timedelta
Time = datetime | int

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_UNITS_US = {
    ("us", "microsecond", "microseconds"): 1,
    ("ms", "millisecond", "milliseconds"): 1_000,
    ("s", "sec", "second", "seconds"): 1_000_000,
    ("min", "minute", "minutes"): 60_000_000,
    ("h", "hour", "hours"): 3_600_000_000,
    ("d", "day", "days"): 86_400_000_000,
    ("w", "week", "weeks"): 604_800_000_000,
}
_US_OF = {word: us for words, us in _UNITS_US.items() for word in words}
_PART = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]+)")


def duration_us(value: Duration, name: str = "duration") -> int:
    """A duration in microseconds; ValueError or TypeError names the argument.

    >>> duration_us("1 hour 30 minutes")
    5400000000
    >>> duration_us("60 days") == duration_us(timedelta(days=60))
    True
    """
    if isinstance(value, bool) or not isinstance(value, str | int | timedelta):
        raise TypeError(f'{name} must be a duration such as "14 days", a timedelta or microseconds, got {value!r}')
    us = _parse_us(value, name) if isinstance(value, str) else _plain_us(value)
    if us < 0:
        raise ValueError(f"{name} must not be negative, got {value!r}")
    return us


def _plain_us(value: int | timedelta) -> int:
    return value if isinstance(value, int) else value // _MICROSECOND


def _parse_us(text: str, name: str) -> int:
    lowered = text.strip().lower()
    parts = _PART.findall(lowered)
    words_fit = _PART.sub("", lowered).strip(" ,") == "" and all(unit in _US_OF for _, unit in parts)
    if not parts or not words_fit:
        raise ValueError(
            f'{name} must read like "14 days" or "1 hour 30 minutes" (us, ms, s, min, h, d, w), got {text!r}'
        )
    return round(sum(float(number) * _US_OF[unit] for number, unit in parts))


def datetime_us(moment: datetime) -> int:
    """Microseconds since 1970 in UTC; a naive datetime is taken as UTC.

    >>> datetime_us(datetime(1970, 1, 2))
    86400000000
    """
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // _MICROSECOND


def from_us(us: int) -> datetime:
    """The aware UTC datetime of `us` microseconds since 1970."""
    return EPOCH + us * _MICROSECOND
