"""Durations as people write them, times as programs count them: everything inside is integer microseconds.

Rule 1: conversion happens here and nowhere else.
Rule 2: a duration of a year or a month is refused: they have no fixed length.
Rule 3: no floats: digits without a decimal point are exact, others are rounded once, to the microsecond.
Rule 4: a time that is finer than a microsecond is refused, never cut.
Rule 5: 0 <= duration <= LONGEST_US, so that a time and a duration make a number of 64 bits.
Rule 6: a number needs its unit; "0" alone has none, for it is the same in each.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from fractions import Fraction

Duration = str | int | timedelta
Time = datetime | int

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LONGEST_US = 2**60  # 36,533 years
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
_FINER = re.compile(r"[.,][0-9]{6}[0-9]*[1-9]")  # a fraction of a second with more than zeros behind its microseconds
_PART = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([a-z]+)")
_MOST_DIGITS = 60  # more than any duration has; Python refuses to read numbers of thousands of digits


class TooFine(ValueError):
    """A time with more digits than the microseconds that all is counted in."""


def duration_us(value: Duration, name: str = "duration") -> int:
    """A duration in microseconds; ValueError or TypeError names the argument.

    >>> duration_us("1 hour 30 minutes")
    5400000000
    >>> duration_us("60 days") == duration_us(timedelta(days=60))
    True
    """
    if isinstance(value, bool) or not isinstance(value, str | int | timedelta):
        raise TypeError(f'{name} must be a duration such as "14 days", a timedelta or microseconds, got {value!r}')
    if getattr(value, "nanoseconds", 0):  # a Timedelta of pandas is a timedelta
        raise ValueError(f"{name} must be no finer than a microsecond, got {value!r}")
    us = _parse_us(value, name) if isinstance(value, str) else _plain_us(value)
    if us < 0:
        raise ValueError(f"{name} must not be negative, got {_short(value)}")
    if us > LONGEST_US:
        raise ValueError(_too_long(value, name))
    return us


def _plain_us(value: int | timedelta) -> int:
    return value if isinstance(value, int) else value // _MICROSECOND


def _parse_us(text: str, name: str) -> int:
    lowered = text.strip().lower()
    if lowered == "0":
        return 0
    if lowered.startswith("-"):
        raise ValueError(f"{name} must not be negative, got {_short(text)}")
    parts = _PART.findall(lowered)
    words_fit = _PART.sub("", lowered).strip(" ,") == "" and all(unit in _US_OF for _, unit in parts)
    if not parts or not words_fit:
        raise ValueError(
            f'{name} must read like "14 days" or "1 hour 30 minutes" (us, ms, s, min, h, d, w), got {_short(text)}'
        )
    if any(len(number) > _MOST_DIGITS for number, _ in parts):
        raise ValueError(_too_long(text, name))
    return round(sum(Fraction(number) * _US_OF[unit] for number, unit in parts))


def _too_long(value: Duration, name: str) -> str:
    return f"{name} must be at most {LONGEST_US} us (about 36,500 years), got {_short(value)}"


def _short(value: Duration) -> str:
    # An integer of thousands of digits has no repr at all.
    shown = repr(value) if not isinstance(value, int) or value.bit_length() < 1000 else "a number beyond all times"
    return shown if len(shown) <= 100 else f"{shown[:100]}..."


def datetime_us(moment: datetime) -> int:
    """Microseconds since 1970 in UTC; a naive datetime is taken as UTC. TooFine where a subclass counts nanoseconds.

    >>> datetime_us(datetime(1970, 1, 2))
    86400000000
    """
    if getattr(moment, "nanosecond", 0):  # a Timestamp of pandas is a datetime
        raise TooFine(f"needs a time no finer than a microsecond, got {moment!r}")
    aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return (aware - EPOCH) // _MICROSECOND


def text_us(text: str) -> int:
    """Microseconds since 1970 of a text in ISO 8601; ValueError where it is none, TooFine where that would cut it.

    >>> text_us("1970-01-01T00:00:00.000001000Z")
    1
    """
    us = datetime_us(datetime.fromisoformat(text))
    if _FINER.search(text):  # Python cuts it without a word
        raise TooFine(f"needs a time no finer than a microsecond, got {text!r}")
    return us


def from_us(us: int) -> datetime:
    """The aware UTC datetime of `us` microseconds since 1970; ValueError outside of the years 1 to 9999."""
    try:
        return EPOCH + us * _MICROSECOND
    except OverflowError:
        raise ValueError(
            f"the time {us} (in microseconds since 1970) lies outside of the years 1 to 9999: "
            "give integers as times where such times are meant, or shorten the duration that leads there"
        ) from None
