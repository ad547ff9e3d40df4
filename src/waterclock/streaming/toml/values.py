"""The values of a TOML table, each looked at for its kind; UsageError names the table, the key and what it got."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from waterclock.durations import duration_us
from waterclock.errors import UsageError
from waterclock.rules.toml import check_names

LONGEST_US = 10_000 * 366 * 86_400_000_000  # Arrow writes times up to the year 32,767: 9,999 and this lie before it
_LARGEST_COUNT = 2**31 - 1  # Spark's integers
_REQUIRED: Any = object()
_NAMES: Mapping[type, str] = {
    str: "a text",
    int: "an integer",
    bool: "true or false",
    dict: "a table",
    list: "a list",
}


def part(table: Mapping[str, Any], name: str, known: tuple[str, ...] | None) -> Mapping[str, Any]:
    """The table `name` in `table`, empty where there is none; with `known`, no other keys are allowed in it."""
    found = table.get(name, {})
    if not isinstance(found, Mapping):
        raise UsageError(f"[{name}] must be a table, got {found!r}")
    if known is not None:
        check_names(f"[{name}]", found, known, ())
    return found


def get(table: Mapping[str, Any], where: str, name: str, kind: type, default: Any = _REQUIRED) -> Any:
    """The value of a key, which must be of `kind`; without a default it must be there."""
    if name not in table:
        if default is _REQUIRED:
            raise UsageError(f"{where}: {name!r} is missing")
        return default
    value = table[name]
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise UsageError(f"{where}: {name!r} must be {_NAMES[kind]}, got {value!r}")
    return value


def texts(table: Mapping[str, Any], where: str, name: str, default: Any = _REQUIRED) -> list[str]:
    """A list of texts."""
    values = get(table, where, name, list, default)
    if not all(isinstance(value, str) for value in values):
        raise UsageError(f"{where}: {name!r} must be a list of texts, got {values!r}")
    return list(values)


def duration(table: Mapping[str, Any], where: str, name: str, default: int) -> int:
    """A duration in microseconds, up to 10,000 years."""
    try:
        us = duration_us(table.get(name, default), name)
    except (TypeError, ValueError) as error:
        raise UsageError(f"{where}: {error}") from error
    if us > LONGEST_US:
        raise UsageError(f"{where}: {name} must be at most 10,000 years, got {table[name]!r}")
    return us


def count(table: Mapping[str, Any], where: str, name: str, default: int) -> int:
    """A number from 1 to what Spark's integers hold."""
    number: int = get(table, where, name, int, default)
    if number < 1:
        raise UsageError(f"{where}: {name!r} must be at least 1, got {number}")
    if number > _LARGEST_COUNT:
        raise UsageError(f"{where}: {name!r} must be at most {_LARGEST_COUNT}, got {number}")
    return number


def one_of(where: str, name: str, value: Any, allowed: tuple[str, ...]) -> Any:
    """`value`, which must be one of the allowed ones."""
    if value not in allowed:
        raise UsageError(f"{where}: {name!r} must be one of {', '.join(allowed)}, got {value!r}")
    return value


def flat(where: str, table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Settings by their dotted names, as text: without quotes, TOML takes `spark.ui.port` for tables in tables."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(where, value, f"{prefix}{name}.")
        elif isinstance(value, str | int | float):
            yield f"{prefix}{name}", str(value).lower() if isinstance(value, bool) else str(value)
        else:
            raise UsageError(f"{where}: '{prefix}{name}' must be a text, a number, true or false, got {value!r}")
