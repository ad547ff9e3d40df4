"""Times, read and written: a duration as 1h30m; a moment since the start, as a time of day, or by the start's letter.

Rule 1: the walk counts whole milliseconds; only what is printed for people is written so. `--json` has the numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from waterclock.errors import UsageError
from waterclock.wording import show_duration

UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration(text: str) -> int:
    """Milliseconds in a text such as 250ms, 1.5s, 1h30m or 1500 (ms); `UsageError` for anything else.

    >>> parse_duration("1m30s"), parse_duration("0.4s"), parse_duration("250")
    (90000, 400, 250)
    """
    if re.fullmatch(r"[0-9]+", text):
        return int(text)
    if text.startswith("-"):
        raise UsageError(f"{text!r} is negative: a duration is 0 or more, such as 250ms, 1.5s or 1h30m")
    parts = re.findall(r"([0-9]+(?:\.[0-9]+)?)(ms|[smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(f"{text!r} is no duration: write numbers with ms, s, m, h or d, such as 250ms, 1.5s or 1h30m")
    exact = sum(Fraction(number) * UNITS_MS[unit] for number, unit in parts)
    if exact.denominator != 1:
        raise UsageError(f"{text!r} is no whole number of milliseconds, which the walk counts in: round it")
    return int(exact)


Moments = Callable[[int], str]
DAY_MS: Final = 86_400_000


def since(start_ms: int) -> Moments:
    """As durations since the start.

    >>> since(1_000)(1_442), since(1_000)(0)
    ('442ms', '-1s')
    """
    return lambda ms: show_duration(ms - start_ms)


def by_letter(letter: str, start_ms: int) -> Moments:
    """As the letter of the start and what has passed since.

    >>> by_letter("c", 0)(0), by_letter("c", 0)(26)
    ('c', 'c+26')
    """
    return lambda ms: letter if ms == start_ms else f"{letter}{ms - start_ms:+}"


def on_the_clock(start_ms: int, clock_ms: int) -> Moments:
    """As times of day, where the start is at `clock_ms` since midnight; other days are counted behind.

    >>> [on_the_clock(0, parse_time_of_day("23:59:59.5"))(ms) for ms in (0, 500)]
    ['23:59:59.500', '00:00:00.000+1d']
    """

    def time_of_day(ms: int) -> str:
        days, rest = divmod(clock_ms + ms - start_ms, DAY_MS)
        hours, rest = divmod(rest, 3_600_000)
        minutes, rest = divmod(rest, 60_000)
        text = f"{hours:02}:{minutes:02}:{rest // 1_000:02}.{rest % 1_000:03}"
        return text + (f"{days:+}d" if days else "")

    return time_of_day


def parse_time_of_day(text: str) -> int:
    """Milliseconds since midnight in a text such as 14:40:20.558 or 09:30; `UsageError` for anything else.

    >>> parse_time_of_day("14:40:20.558"), parse_time_of_day("09:30")
    (52820558, 34200000)
    """
    found = re.fullmatch(r"([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d)(?:\.(\d{1,3}))?)?", text, re.ASCII)
    if found is None:
        raise UsageError(f"--clock {text!r} is no time of day: write hours, minutes and seconds, such as 14:40:20.558")
    hours, minutes, seconds, fraction = found.groups(default="0")
    return (int(hours) * 60 + int(minutes)) * 60_000 + int(seconds) * 1_000 + int(fraction.ljust(3, "0"))
