"""Recurring schedules: when the next occurrence of a series is, by a cron expression and a time zone.

    minute  hour  day of month  month  day of week        0 9 * * MON-FRI: at nine o'clock, Monday to Friday

Rule 1: the next occurrence is later than the moment that is asked about, whatever clocks are turned to meanwhile.
Rule 2: where clocks are put forward or back, it is as with Debian's cron. An expression that names its minutes and hours is
        kept to once a day: what falls into the hour that is left out comes right behind it, what falls into the hour that
        comes twice comes the first time. One whose minute or hour begins with * goes by the time that passes: nothing in
        the hour that is left out, twice in the one that comes twice.
Rule 3: what time it is in a zone is for the machine's zone database to say, on the day that the occurrence before is
        delivered: a government that changes its mind is followed from the next occurrence on.
Rule 4: what the package would read as something else than is written is refused: a step that never comes to a second value
        (*/61 would be hourly), one behind a range of one value, or behind L.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

from waterclock.durations import datetime_us
from waterclock.errors import EnvironmentMissing, pip_install, unstopped

LONGEST: Final = 255  # characters of an expression, or of a zone's name
_FIELDS: Final = (
    ("minutes", 60, 59), ("hours", 24, 23), ("days", 31, 31), ("months", 12, 12), ("weekdays", 7, 7)
)  # fmt: skip
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@lru_cache(16_384)
def next_ms(cron: str, zone: str, after_ms: int) -> int | None:
    """When the series occurs next after a moment, both in ms since 1970; None if it never does within 50 years.

    ValueError, a sentence, for an expression or a zone that cannot be read.

    >>> next_ms("0 9 * * MON-FRI", "Europe/Berlin", 0) // 3_600_000  # 1970 began on a Thursday; Berlin was an hour ahead
    8
    """
    after = (_EPOCH + timedelta(milliseconds=after_ms)).astimezone(_zone(zone))
    for moment in _moments(cron, after):
        moment_ms = datetime_us(moment) // 1000
        if moment_ms > after_ms:  # in the hour that comes twice, the first of the two may have passed
            return moment_ms
    return None


def _moments(cron: str, after: datetime) -> Any:
    try:
        from cronsim import CronSim, CronSimError
    except ImportError:
        why = f"Recurring schedules need the package cronsim: {pip_install('relay')}"
        raise EnvironmentMissing(why, door="relay") from None
    if len(cron.split()) != 5 or len(cron) > LONGEST:
        raise ValueError(f"{_wanted(cron)}.")
    try:
        found = CronSim(cron, after)
    except (CronSimError, ValueError) as error:
        raise ValueError(f"{_wanted(cron)}: {unstopped(error).lower()}.") from None
    for place, field in enumerate(cron.split()):
        for term in field.split(","):
            base, slash, step = term.partition("/")
            if slash and int(step) > _longest_step(place, base):
                raise ValueError(f"{_wanted(cron)}: {term!r} has a step that leads to no second value.")
    return found


@lru_cache(1024)
def _longest_step(place: int, base: str) -> int:
    """The largest step that means something behind this part of a field. Rule 4."""
    from cronsim import CronSim

    fields = ["*"] * 5
    fields[place] = base
    name, count, last = _FIELDS[place]
    values = getattr(CronSim(" ".join(fields), _EPOCH), name)
    if base == "*":
        return count
    low, high = min(values), max(values)
    return 0 if low < 0 else high - low if "-" in base else last - low  # L is a number below 0


def _wanted(cron: str) -> str:
    return f"delay-cron must be five fields such as 0 9 * * MON-FRI, got {cron[:LONGEST]!r}"


@lru_cache(1024)
def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    try:
        if name == "localtime":  # another one on each machine
            raise ValueError
        return ZoneInfo(name[:LONGEST])
    except (KeyError, ValueError, OSError):
        raise ValueError(f"delay-zone must be a time zone such as Europe/Berlin, got {name[:LONGEST]!r}.") from None
