"""Days, times and spans: from the text that SELECT shows to the counts and the ISO texts that Debezium writes.

Rule 1: None is what the type that Debezium has for it cannot say: a zero date, a day of infinity.
Rule 2: Python's calendar is not used: it ends with the year 9999, and a database's does not.
"""

from __future__ import annotations

import re

from waterclock.changes.debezium import ENDS, civil

_MOMENT = re.compile(
    r"(\d{4,})-(\d\d)-(\d\d)(?: (\d\d):(\d\d):(\d\d)(?:\.(\d+))?)?([+-]\d\d(?::\d\d){0,2})?( BC)?", re.ASCII
)
_TIME = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?([+-]\d\d(?::\d\d){0,2})?", re.ASCII)
_SPAN = re.compile(r"([+-]?\d+) (year|mon|day)s?")
DAY_US = 86_400_000_000


def days(text: str) -> int | None:
    """Days since 1970 of a date, or of the date in a moment.

    >>> days("1970-01-02"), days("2024-02-29"), days("0000-00-00"), days("infinity")
    (1, 19782, None, None)
    """
    found = _MOMENT.fullmatch(text)
    if found is None or found[2] == "00" or found[3] == "00":
        return None
    year = 1 - int(found[1]) if found[9] else int(found[1])
    return _days(year, int(found[2]), int(found[3]))


def moment_us(text: str) -> int | None:
    """Microseconds since 1970 of a date with a time; a zone that stands behind it is taken off.

    >>> moment_us("1970-01-01 00:00:01.5"), moment_us("1970-01-01 05:30:00+05:30")
    (1500000, 0)
    """
    if text in ENDS:
        return ENDS[text]
    day, found = days(text), _MOMENT.fullmatch(text)
    if day is None or found is None or found[4] is None:
        return None
    seconds = int(found[4]) * 3600 + int(found[5]) * 60 + int(found[6]) - _zone_s(found[8])
    return day * DAY_US + seconds * 1_000_000 + _fraction_us(found[7])


def time_us(text: str) -> int | None:
    """Microseconds of a time, which may be negative, and longer than a day; a zone is taken off.

    >>> time_us("-838:59:59"), time_us("23:59:59.000001"), time_us("01:00:00+01")
    (-3020399000000, 86399000001, 0)
    """
    found = _TIME.fullmatch(text)
    if found is None:
        return None
    seconds = int(found[2]) * 3600 + int(found[3]) * 60 + int(found[4])
    count = seconds * 1_000_000 + _fraction_us(found[5])
    return (-count if found[1] else count) - _zone_s(found[6]) * 1_000_000


def instant(text: str, digits: int) -> str | None:
    """A moment as ISO text in UTC, with so many digits of a second.

    >>> instant("2024-01-02 03:04:05.000600+05:30", 6), instant("0044-03-15 00:00:00+00 BC", 0), instant("infinity", 6)
    ('2024-01-01T21:34:05.000600Z', '-0043-03-15T00:00:00Z', 'infinity')
    """
    if text in ENDS:
        return text
    count = moment_us(text)
    if count is None:
        return None
    day, rest = divmod(count, DAY_US)
    year, month, day = civil(day)
    sign = "-" if year < 0 else "+" if year > 9999 else ""
    return f"{sign}{abs(year):04d}-{month:02d}-{day:02d}T{_clock(rest, digits)}Z"


def zoned_time(text: str) -> str | None:
    """A time with a zone, in UTC.

    >>> zoned_time("04:05:06.789+05:30"), zoned_time("04:05:00+00")
    ('22:35:06.789Z', '04:05:00Z')
    """
    count = time_us(text)
    return None if count is None else f"{_clock(count % DAY_US, -1)}Z"


def span_us(text: str) -> int | None:
    """Microseconds of PostgreSQL's interval, a month as the twelfth part of 365.25 days.

    >>> span_us("1 mon"), span_us("-2 days +00:00:01.5"), span_us("infinity")
    (2629800000000, -172798500000, None)
    """
    parts, count = _span(text)
    months = parts["year"] * 12 + parts["mon"]
    return None if count is None else months * 2_629_800_000_000 + parts["day"] * DAY_US + count


def span(text: str) -> str | None:
    """PostgreSQL's interval as Debezium's `interval.handling.mode=string` has it, with all of its six parts.

    >>> span("1 year 2 mons -3 days +04:05:06.7"), span("00:00:00"), span("-infinity")
    ('P1Y2M-3DT4H5M6.7S', 'P0Y0M0DT0H0M0S', None)
    """
    parts, count = _span(text)
    if count is None:
        return None
    sign, (seconds, micro) = "-" if count < 0 else "", divmod(abs(count), 1_000_000)
    hours, minutes, seconds = seconds // 3600, seconds // 60 % 60, seconds % 60
    clock = [f"{sign if number else ''}{number}{letter}" for number, letter in ((hours, "H"), (minutes, "M"))]
    tail = f".{micro:06d}".rstrip("0") if micro else ""
    last = f"{sign if seconds or micro else ''}{seconds}{tail}S"
    return f"P{parts['year']}Y{parts['mon']}M{parts['day']}DT{''.join(clock)}{last}"


def _span(text: str) -> tuple[dict[str, int], int | None]:
    """The parts of a day and more, and the microseconds of the rest; none of infinity."""
    parts = {"year": 0, "mon": 0, "day": 0} | {name: int(count) for count, name in _SPAN.findall(text)}
    rest = text.rpartition(" ")[2].lstrip("+")
    return parts, time_us(rest) if ":" in rest or rest.endswith("infinity") else 0


def _clock(count: int, digits: int) -> str:
    seconds, micro = divmod(count, 1_000_000)
    fraction = f".{micro:06d}".rstrip("0.") if digits < 0 else f".{micro:06d}"[: digits + 1] if digits else ""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}{fraction}"


def _fraction_us(digits: str | None) -> int:
    return int(digits[:6].ljust(6, "0")) if digits else 0


def _zone_s(text: str | None) -> int:
    if not text:
        return 0
    seconds = sum(int(part) * unit for part, unit in zip(text[1:].split(":"), (3600, 60, 1), strict=False))
    return -seconds if text[0] == "-" else seconds


def _days(year: int, month: int, day: int) -> int:
    """Of the proleptic Gregorian calendar, whose 400 years have 146,097 days; a year begins with March here."""
    year -= month <= 2
    day_of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return year * 365 + year // 4 - year // 100 + year // 400 + day_of_year - 719_468
