"""What the rules are given and what they give: results, the answers of an event to what they ask, the engine's tuples.

Rules ask of an event, beyond its key, time, type, id and sequence:

    dues         the times in the columns of `by`
    conditions   whether the conditions of `where` hold
    carried      the values of the columns of `carry`
    ties         what puts events of one time in order: the values of the columns of `tie`, null before all others

Rule 1: `Questions` names the columns, once for all rules; `Answers` has their values for one event, at the same places.
Rule 2: values are plain (numbers, texts, null), so that an event which is held can be stored with them.
Rule 3: events and results are tuples inside of the engine, because a bucket handles tens of thousands of events a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from hashlib import blake2b
from typing import Any, NamedTuple

from waterclock.rules.conditions import condition
from waterclock.rules.truth import Kinds, Row

# Results -------------------------------------------------------------------------------------------------------


Key = str | int

EVENT, EMIT, EXPIRED, MET, GAP, LATE, QUIET = "event", "emit", "expired", "met", "gap", "late", "quiet"
KINDS = (EVENT, EMIT, EXPIRED, MET, GAP, LATE, QUIET)


class Result(NamedTuple):
    """One result of the rules.

    `due` is event time in the kind the events carried (datetime or microseconds); `emitted_at` is the watermark it
    was made at, None at the close of a bounded input. `event` is the released or late event itself, or those columns of the
    event that opened the result which its rule carries, else None.
    """

    kind: str
    key: Key
    rule: str
    due: datetime | int
    emitted_at: datetime | int | None
    source_id: str
    result_id: str
    event: Mapping[str, Any] | None


def result_id(kind: str, key: Key, rule: str, source_id: str) -> str:
    """32 hex digits, the same for the same result in every run, so that a sink may upsert.

    >>> result_id("emit", "A1", "Add penalty", "e7") == result_id("emit", "A1", "Add penalty", "e7")
    True
    """
    return blake2b(f"{kind}\0{key!r}\0{rule}\0{source_id}".encode(), digest_size=16).hexdigest()


# Questions and answers -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Questions:
    """The columns that rules read, each once, by their purpose."""

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
        """Unfit if a condition cannot compare columns of these kinds."""
        for text in self.conditions:
            condition(text).check(kinds)

    def holds(self, row: Row) -> tuple[bool, ...]:
        """Which of the conditions hold of `row`; Unfit if one cannot compare its values."""
        return tuple([condition(text).holds(row) for text in self.conditions])


class Answers(NamedTuple):
    """What an event says to `Questions`; `dues` are microseconds, None if the column is null.

    Of `ties`, each is a tuple of the value, or an empty one for null: so they compare.
    """

    dues: tuple[int | None, ...] = ()
    holds: tuple[bool, ...] = ()
    carried: tuple[Any, ...] = ()
    ties: tuple[tuple[Any, ...], ...] = ()


def answers_of(plain: Any) -> Answers | None:
    """What was stored of an `Answers`, which is a list after a rest."""
    if plain is None:
        return None
    dues, holds, carried, ties = map(tuple, plain)
    return Answers(dues, holds, carried, tuple(map(tuple, ties)))


def tie(value: Any) -> tuple[Any, ...]:
    """A value of a column of `tie`, as `Answers` has it."""
    return () if value is None else (value,)


# Inside of the engine ------------------------------------------------------------------------------------------


class Event(NamedTuple):
    """One event inside the engine. `ref` is the caller's own handle on the whole row: a mapping, or a row number."""

    time: int
    id: str
    sequence: int | None
    type: str | None
    deliver: int | None
    ref: Any
    answers: Answers | None = None  # None if the rules ask for no more


class Outcome(NamedTuple):
    """One result inside the engine; `ref` is the event's handle if the result carries the event, else None.

    `carried` are the values of the columns that its rule carries, None if it carries none.
    """

    kind: str
    key: Key
    rule: str
    due: int
    source_id: str
    ref: Any
    carried: tuple[Any, ...] | None = None


@dataclass(slots=True)
class Counters:
    """What a bucket did since it was made, and what it holds now (the last two)."""

    events: int = 0
    heartbeats: int = 0
    duplicates: int = 0
    late: int = 0
    reordered: int = 0
    released: int = 0
    held: int = 0
    pending: int = 0

    def to_dict(self) -> dict[str, int]:
        return asdict(self)

    @classmethod
    def names(cls) -> tuple[str, ...]:
        return tuple(f.name for f in fields(cls))
