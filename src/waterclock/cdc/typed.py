"""What a column's JSON text is in Python, by its SQL type.

Rule 1: what Python has no value for stays text: a year before 1 or after 9999, "infinity", MySQL's 0000-00-00; intervals,
        arrays and ranges of PostgreSQL, and what was made in a database.
Rule 2: NULL is None, of SQL and of JSON: the text keeps them apart.
Rule 3: a number inside of JSON that has a point is a float.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from json.decoder import scanstring  # type: ignore[attr-defined]  # it has no stub
from typing import Any
from uuid import UUID

from waterclock.changes.sql_types import SqlType

Read = Callable[[str], Any]


def python_reader(of: SqlType) -> Read:
    """What makes a value of the JSON text of one, NULL excepted.

    >>> from waterclock.changes.sql_types import sql_type
    >>> [python_reader(sql_type(name))(text) for name, text in (("decimal(9,2)", "12.50"), ("date", '"2024-01-02"'))]
    [Decimal('12.50'), datetime.date(2024, 1, 2)]
    >>> python_reader(sql_type("time"))('"-00:00:01.5"'), python_reader(sql_type("date"))('"0000-00-00"')
    (datetime.timedelta(days=-1, seconds=86398, microseconds=500000), '0000-00-00')
    >>> python_reader(sql_type("bytea"))('"\\\\\\\\x00ff"'), python_reader(sql_type("int"))("7")
    (b'\\x00\\xff', 7)
    """
    return _READERS.get(of.name, _any)


def _any(text: str) -> Any:
    """Nearly all are strings: the inside of `json.loads`, which takes five times as long."""
    return scanstring(text, 1)[0] if text[0] == '"' else json.loads(text)


def _of_text(convert: Read) -> Read:
    def read(text: str) -> Any:
        value = _any(text)
        try:
            return convert(value)
        except (ValueError, OverflowError):
            return value  # rule 1

    return read


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


_INTEGERS = ("tinyint", "smallint", "mediumint", "int", "integer", "bigint", "year")
_READERS: dict[str, Read] = {
    **dict.fromkeys(_INTEGERS, int),
    **dict.fromkeys(("real", "double precision", "float", "double"), lambda text: float(text.strip('"'))),
    **dict.fromkeys(("numeric", "decimal"), lambda text: Decimal(text.strip('"'))),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _of_text(b64decode)),
    "bytea": _of_text(lambda text: bytes.fromhex(text.removeprefix("\\x"))),
    "date": _of_text(date.fromisoformat),
    "time": _of_text(_duration),  # MySQL's goes to 838 hours, and below zero
    "time without time zone": _of_text(time.fromisoformat),
    **dict.fromkeys(("datetime", "timestamp without time zone"), _of_text(datetime.fromisoformat)),
    **dict.fromkeys(("timestamp", "timestamp with time zone"), _of_text(_moment)),
    "uuid": _of_text(UUID),
}
