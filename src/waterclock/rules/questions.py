"""What rules ask of an event beyond its key, time, type, id and sequence.

    dues         the times in the columns of `by`
    conditions   whether the conditions of `where` hold
    carried      the values of the columns of `carry`
    ties         what puts events of one time in order: the values of the columns of `tie`, null before all others

Rule 1: `Questions` names the columns, once for all rules; `Answers` has their values for one event, at the same places.
Rule 2: values are plain (numbers, texts, null), so that an event which is held can be stored with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from waterclock.rules.conditions import condition
from waterclock.rules.truth import Kinds, Row


@dataclass(frozen=True, slots=True)
class Questions:
    """The columns that rules ask for, each once, by what they are asked for."""

    dues: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    carried: tuple[str, ...] = ()
    ties: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.dues or self.conditions or self.carried or self.ties)

    def columns(self) -> tuple[str, ...]:
        return (*self.dues, *self.condition_columns(), *self.carried, *self.ties)

    def condition_columns(self) -> tuple[str, ...]:
        """The columns that conditions look at."""
        return tuple(dict.fromkeys(name for text in self.conditions for name in condition(text).columns))

    def check(self, kinds: Kinds) -> None:
        """Unfit if a condition cannot be asked of columns of these kinds."""
        for text in self.conditions:
            condition(text).check(kinds)

    def holds(self, row: Row) -> tuple[bool, ...]:
        """Which of the conditions hold of `row`; Unfit if one cannot be asked."""
        return tuple([condition(text).holds(row) for text in self.conditions])


class Answers(NamedTuple):
    """What an event says to `Questions`; `dues` are microseconds, None if the column is null.

    Of `ties`, each is a tuple of the value, or an empty one for null: so they compare.
    """

    dues: tuple[int | None, ...] = ()
    holds: tuple[bool, ...] = ()
    carried: tuple[Any, ...] = ()
    ties: tuple[tuple[Any, ...], ...] = ()


def restored(plain: Any) -> Answers | None:
    """What was stored of an `Answers`, which is a list after a rest."""
    if plain is None:
        return None
    dues, holds, carried, ties = map(tuple, plain)
    return Answers(dues, holds, carried, tuple(map(tuple, ties)))


def tie(value: Any) -> tuple[Any, ...]:
    """A value of a column of `tie`, as `Answers` has it."""
    return () if value is None else (value,)
