"""What a column's JSON text is in Python, by a word that its source gives it.

    FLOAT       float        real, double; NaN and Infinity too
    DECIMAL     Decimal      numeric, decimal: all digits
    DATE        date
    TIME        time         PostgreSQL's time
    DURATION    timedelta    MySQL's time, which goes to 838 hours and below zero
    TIMESTAMP   datetime     without a zone: timestamp of PostgreSQL, datetime of MySQL
    MOMENT      datetime     in UTC: timestamptz of PostgreSQL, timestamp of MySQL
    HEX         bytes        PostgreSQL's bytea
    BASE64      bytes        MySQL's binary, varbinary, blob
    UUID        UUID
    JSON        dict, list   and what else JSON has; a number with a point is a float
    no word     int, bool, str, or a list of str (MySQL's set): as JSON says

Rule 1: what Python has no value for stays text: a year before 1 or after 9999, "infinity", MySQL's 0000-00-00; intervals,
        arrays and ranges of PostgreSQL.
Rule 2: NULL is None, of SQL and of JSON: the text keeps them apart.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID as PythonsUUID

FLOAT, DECIMAL, DATE, TIME, DURATION, TIMESTAMP, MOMENT = (
    "float", "decimal", "date", "time", "duration", "timestamp", "moment",
)  # fmt: skip
HEX, BASE64, UUID, JSON = "hex", "base64", "uuid", "json"


def python_value(text: str, sort: str = "") -> Any:
    """The value of a column's JSON text.

    >>> python_value("12.50", DECIMAL), python_value('"2024-01-02"', DATE), python_value('"-00:00:01.5"', DURATION)
    (Decimal('12.50'), datetime.date(2024, 1, 2), datetime.timedelta(days=-1, seconds=86398, microseconds=500000))
    >>> python_value('"0000-00-00"', DATE), python_value('"\\\\\\\\x00ff"', HEX), python_value("7")
    ('0000-00-00', b'\\x00\\xff', 7)
    """
    text = text.strip()
    if sort in (FLOAT, DECIMAL) and text != "null":
        return (float if sort == FLOAT else Decimal)(text.strip('"'))
    value = json.loads(text)
    if sort not in _READ or not isinstance(value, str):
        return value
    try:
        return _READ[sort](value)
    except (ValueError, OverflowError):
        return value  # rule 1


def _moment(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _duration(text: str) -> timedelta:
    hours, minutes, seconds = text.lstrip("-").split(":")
    whole, _, fraction = seconds.partition(".")
    found = timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(whole), microseconds=int(fraction.ljust(6, "0"))
    )
    return -found if text.startswith("-") else found


_READ: dict[str, Callable[[str], Any]] = {
    DATE: date.fromisoformat,
    TIME: time.fromisoformat,
    DURATION: _duration,
    TIMESTAMP: datetime.fromisoformat,
    MOMENT: _moment,
    HEX: lambda text: bytes.fromhex(text.removeprefix("\\x")),
    BASE64: b64decode,
    UUID: PythonsUUID,
}
