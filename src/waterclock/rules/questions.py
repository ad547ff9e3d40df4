"""What rules ask of an event beyond its key, time, type, id and sequence: the times in the columns of `by`.

Rule 1: `Questions` names the columns, once for all rules; `Answers` has their values for one event, at the same places.
Rule 2: values are plain (numbers, texts, null), so that an event which is held can be stored with them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True, slots=True)
class Questions:
    """The columns that rules ask for, each once, by what they are asked for."""

    dues: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.dues)

    def columns(self) -> tuple[str, ...]:
        return self.dues


class Answers(NamedTuple):
    """What an event says to `Questions`; `dues` are microseconds, None where the column is null."""

    dues: tuple[int | None, ...] = ()


def restored(plain: Any) -> Answers | None:
    """What was stored of an `Answers`, which is a list after a rest."""
    return None if plain is None else Answers(*map(tuple, plain))
