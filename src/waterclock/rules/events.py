"""What the rules hand to each other: an event as a tuple, the results as tuples, the counters.

Tuples, because a bucket handles tens of thousands of events a second; the names of their places are here only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, NamedTuple

from waterclock.rules.questions import Answers
from waterclock.rules.results import Key


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
    """One result inside the engine; `ref` is the event's handle where the result carries the event, else None.

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
