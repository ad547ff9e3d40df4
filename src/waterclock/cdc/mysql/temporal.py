"""Dates and times out of a row image, as the text that SELECT shows (TIMESTAMP: in UTC).

Rule 1: what no calendar has comes through: zero dates, 0003-00-00, 838 hours, times before zero.
Rule 2: all digits that the column's type has are written, no more and no fewer.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date

Reader = Callable[[bytes, int], tuple[str, int]]

_EPOCH = date(1970, 1, 1).toordinal()
_DATETIME_ZERO = 1 << 39
_TIME_ZERO = 1 << 23


def _fraction(stored: int, stored_bytes: int, digits: int) -> str:
    """`.` and `digits` digits. One to three bytes keep hundredths, ten-thousandths or millionths."""
    return "." + f"{stored:0{2 * stored_bytes}d}"[:digits] if digits else ""


def datetimes(digits: int) -> Reader:
    """DATETIME(digits): 17 bits of year * 13 + month, then day, hour, minute, second; then the fraction."""
    extra = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        packed = int.from_bytes(data[at : at + 5], "big") - _DATETIME_ZERO
        year, month = divmod(packed >> 22, 13)
        seconds = packed & 0x1FFFF
        end = at + 5 + extra
        return (
            f'"{year:04d}-{month:02d}-{packed >> 17 & 31:02d} '
            f"{seconds >> 12:02d}:{seconds >> 6 & 63:02d}:{seconds & 63:02d}"
            f'{_fraction(int.from_bytes(data[at + 5 : end], "big"), extra, digits)}"',
            end,
        )

    return read


def timestamps(digits: int) -> Reader:
    """TIMESTAMP(digits): seconds since 1970 in UTC, then the fraction; zero is the zero date."""
    extra = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + 4 + extra
        seconds, stored = int.from_bytes(data[at : at + 4], "big"), int.from_bytes(data[at + 4 : end], "big")
        return f'"{_moment(seconds, bool(stored))}{_fraction(stored, extra, digits)}"', end

    return read


def _moment(seconds: int, fraction: bool = False) -> str:
    if not seconds and not fraction:
        return "0000-00-00 00:00:00"
    day, second = divmod(seconds, 86_400)
    return f"{date.fromordinal(_EPOCH + day)} {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def times(digits: int) -> Reader:
    """TIME(digits): hours, minutes, seconds and fraction as ONE number beside zero: a negative one has its sign whole."""
    extra = (digits + 1) // 2

    def read(data: bytes, at: int) -> tuple[str, int]:
        end = at + 3 + extra
        packed = int.from_bytes(data[at:end], "big") - (_TIME_ZERO << 8 * extra)
        sign, packed = ("-", -packed) if packed < 0 else ("", packed)
        seconds, stored = packed >> 8 * extra, packed & (1 << 8 * extra) - 1
        return (
            f'"{sign}{seconds >> 12:02d}:{seconds >> 6 & 63:02d}:{seconds & 63:02d}{_fraction(stored, extra, digits)}"',
            end,
        )

    return read


def dates(data: bytes, at: int) -> tuple[str, int]:
    """DATE: 15 bits of year, 4 of month, 5 of day."""
    packed = int.from_bytes(data[at : at + 3], "little")
    return f'"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"', at + 3


def years(data: bytes, at: int) -> tuple[str, int]:
    """YEAR: years after 1900, and 0 for the year 0000."""
    return str(1900 + data[at] if data[at] else 0), at + 1


def old_datetimes(data: bytes, at: int) -> tuple[str, int]:
    """DATETIME of before MySQL 5.6: the digits YYYYMMDDhhmmss as one number."""
    text = f"{int.from_bytes(data[at : at + 8], 'little'):014d}"
    return f'"{text[:4]}-{text[4:6]}-{text[6:8]} {text[8:10]}:{text[10:12]}:{text[12:]}"', at + 8


def old_timestamps(data: bytes, at: int) -> tuple[str, int]:
    """TIMESTAMP of before MySQL 5.6: seconds since 1970."""
    return f'"{_moment(int.from_bytes(data[at : at + 4], "little"))}"', at + 4


def old_times(data: bytes, at: int) -> tuple[str, int]:
    """TIME of before MySQL 5.6: the digits hhmmss as one number, which may be negative."""
    packed = int.from_bytes(data[at : at + 3], "little", signed=True)
    sign, packed = ("-", -packed) if packed < 0 else ("", packed)
    return f'"{sign}{packed // 10_000:02d}:{packed // 100 % 100:02d}:{packed % 100:02d}"', at + 3
