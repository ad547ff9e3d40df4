"""What a condition is made of, and what it says of a row: true, false, or unknown if a null takes part.

Rule 1: numbers compare by their value, whatever their size; if one is a double, the other is taken as a double, too.
        NaN is taken as null, infinity is larger than all numbers.
Rule 2: texts compare by code point, bytes byte by byte. A text that stands beside a time or a date is read as one. Nothing
        else is made to fit: two values of different kinds are an error, which names the column.
Rule 3: every part is computed, whatever the others say: what does not fit is an error at once, not when a row comes to it.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any, Literal

from waterclock.durations import TooFine, datetime_us, text_us

Kind = Literal["text", "number", "boolean", "time", "date", "binary"]
Kinds = Mapping[str, Kind | None]  # column -> its kind; None if it can be null or not, and nothing more be said of it
Row = Mapping[str, Any]
Truth = bool | None


class Moment(int):
    """A time in microseconds since 1970, to tell it from a number."""


class Day(int):
    """A date in days since 1970, to tell it from a number."""


class Unfit(ValueError):
    """Values that cannot be compared, or a value that no condition can look at."""


# Values --------------------------------------------------------------------------------------------------------


def plain(value: Any) -> Any:
    """A value as conditions compare it: a datetime is a Moment, a date a Day, NaN null; Unfit if it is of no kind."""
    if is_null(value):
        return None
    if isinstance(value, datetime):
        try:
            return Moment(datetime_us(value))
        except TooFine as error:
            raise Unfit(str(error)) from None
    if isinstance(value, date):
        return Day(value.toordinal() - _EPOCH_DAY)
    if isinstance(value, str | bool | int | float | Decimal | bytes | bytearray):
        return value
    raise Unfit(f"cannot look at a value such as {value!r}")


def is_null(value: Any) -> bool:
    """Whether a value of any kind is null, or NaN, which is taken for it."""
    if isinstance(value, Decimal):
        return value.is_nan()
    return value is None or (isinstance(value, float) and value != value)


def _kind_of(value: Any) -> Kind:
    return next(kind for types, kind in _KINDS if isinstance(value, types))


def _double(number: Any) -> float:
    """The nearest double; beyond the largest, infinity."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _day(text: str) -> Day:
    try:
        return Day(date.fromisoformat(text).toordinal() - _EPOCH_DAY)
    except ValueError:
        raise Unfit(f"compares a date with {text!r}, which is none: write it as '2026-01-31'") from None


def _moment(text: str) -> Moment:
    try:
        return Moment(text_us(text))
    except TooFine as error:
        raise Unfit(f"compares a time with a text that {error}") from None
    except ValueError:
        raise Unfit(f"compares a time with {text!r}, which is none: write it as '2026-01-31T12:00:00Z'") from None


_EPOCH_DAY = date(1970, 1, 1).toordinal()
_READERS: Mapping[Kind, Callable[[str], int]] = {
    "time": _moment,
    "date": _day,
}  # what a text beside such a value becomes
_KINDS: Sequence[tuple[Any, Kind]] = (
    (str, "text"),
    (bool, "boolean"),
    (Moment, "time"),
    (Day, "date"),
    (bytes | bytearray, "binary"),
    (object, "number"),
)


# What a condition is made of -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Column:
    name: str

    def __str__(self) -> str:
        return f"the column {self.name!r}"

    def value(self, row: Row) -> Any:
        return plain(row[self.name])

    def kind(self, kinds: Kinds) -> Kind:
        kind = kinds[self.name]
        if kind is None:
            raise Unfit(
                f"cannot look at {self}: texts, numbers, booleans, times, dates and bytes can be compared, and any column "
                "can be compared with None by `is None`"
            )
        return kind


@dataclass(frozen=True, slots=True)
class Value:
    literal: Any

    def __str__(self) -> str:
        return repr(str(self.literal) if isinstance(self.literal, Decimal) else self.literal)

    def value(self, row: Row) -> Any:
        return self.literal

    def kind(self, kinds: Kinds) -> Kind:
        return _kind_of(self.literal)


Operand = Column | Value


def _literal(operand: Operand) -> Any:
    return operand.literal if isinstance(operand, Value) else None


class Node:
    """A part of a condition that is true, false or unknown."""

    __slots__ = ()

    def truth(self, row: Row) -> Truth:
        raise NotImplementedError

    def check(self, kinds: Kinds) -> None:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Comparison(Node):
    left: Operand
    compare: Callable[[Any, Any], bool]
    right: Operand

    def truth(self, row: Row) -> Truth:
        left, right = self.left.value(row), self.right.value(row)
        if left is None or right is None:
            return None
        kinds = _kind_of(left), _kind_of(right)
        if kinds[0] != kinds[1]:
            left, right = self._fitted(left, right, kinds)
        elif kinds[0] == "boolean":
            self._check_order()
        if isinstance(left, float) != isinstance(right, float):
            left, right = _double(left), _double(right)
        return self.compare(left, right)

    def check(self, kinds: Kinds) -> None:
        found = self.left.kind(kinds), self.right.kind(kinds)
        if found[0] != found[1]:
            self._fitted(_literal(self.left), _literal(self.right), found)
        elif found[0] == "boolean":
            self._check_order()

    def _fitted(self, left: Any, right: Any, kinds: tuple[Kind, Kind]) -> tuple[Any, Any]:
        """A literal text beside a time or a date is read as one; anything else does not fit."""
        if kinds[1] == "text" and isinstance(self.right, Value) and kinds[0] in _READERS:
            return left, _READERS[kinds[0]](right)
        if kinds[0] == "text" and isinstance(self.left, Value) and kinds[1] in _READERS:
            return _READERS[kinds[1]](left), right
        raise Unfit(f"compares {self.left} (a {kinds[0]}) with {self.right} (a {kinds[1]})")

    def _check_order(self) -> None:
        if self.compare not in (operator.eq, operator.ne):
            raise Unfit(f"asks whether {self.left} is smaller or larger than {self.right}, and both are booleans")


@dataclass(frozen=True, slots=True)
class IsNull(Node):
    column: Column

    def truth(self, row: Row) -> Truth:
        return is_null(row[self.column.name])

    def check(self, kinds: Kinds) -> None:
        """Nothing: whatever a column holds, it may be null."""


@dataclass(frozen=True, slots=True)
class BooleanValue(Node):
    """A boolean column by itself, or True, or False."""

    operand: Operand

    def truth(self, row: Row) -> Truth:
        value = self.operand.value(row)
        if value is not None and not isinstance(value, bool):
            raise Unfit(f"takes {self.operand} for a boolean, and it is a {_kind_of(value)}")
        return value

    def check(self, kinds: Kinds) -> None:
        if self.operand.kind(kinds) != "boolean":
            raise Unfit(f"takes {self.operand} for a boolean, and it is a {self.operand.kind(kinds)}")


@dataclass(frozen=True, slots=True)
class Not(Node):
    part: Node

    def truth(self, row: Row) -> Truth:
        found = self.part.truth(row)
        return None if found is None else not found

    def check(self, kinds: Kinds) -> None:
        self.part.check(kinds)


@dataclass(frozen=True, slots=True)
class Several(Node):
    """Parts joined by `and` (decided by one that is False) or by `or` (by one that is True). All of them are computed."""

    decides: bool
    parts: Sequence[Node]

    def truth(self, row: Row) -> Truth:
        found = [part.truth(row) for part in self.parts]
        return self.decides if self.decides in found else None if None in found else not self.decides

    def check(self, kinds: Kinds) -> None:
        for part in self.parts:
            part.check(kinds)
