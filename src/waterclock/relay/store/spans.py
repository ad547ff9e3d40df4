"""Spans of due time: hours near, days further out, then months, then years (UTC). Files belong to a span.

Rule 1: the edges between hours, days, months and years rise with the clock and never fall. What was filed in a coarse span
    is split into finer ones when an edge passes it, long before it is due.
Rule 2: an edge lies between two spans of the coarser kind: a span is before it or behind it, never both.
Rule 3: what is due more than a day in the past lies in one span, which begins at 0: however wild the due times of late
    messages are, they do not make files by the thousand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

import numpy as np

from waterclock.relay.store.rows import Array

HOUR_MS: Final = 3_600_000
DAY_MS: Final = 24 * HOUR_MS


class SpanLevel(IntEnum):
    """How long a span is."""

    HOUR = 0
    DAY = 1
    MONTH = 2
    YEAR = 3


_UNITS: Final = ("h", "D", "M", "Y")  # NumPy's


def starts_of(level: SpanLevel, dues: Array) -> Array:
    """Where the span of each due time begins, in ms.

    >>> starts_of(SpanLevel.MONTH, np.array([0, 31 * DAY_MS])).tolist()
    [0, 2678400000]
    """
    if level == SpanLevel.HOUR:
        return np.asarray(dues - dues % HOUR_MS)
    return dues.astype("M8[ms]").astype(f"M8[{_UNITS[level]}]").astype("M8[ms]").astype("<i8")


def start_of(level: SpanLevel, due_ms: int) -> int:
    """Where the span of one due time begins, in ms."""
    return int(starts_of(level, np.array([due_ms]))[0])


def end_of(level: SpanLevel, start_ms: int) -> int:
    """Where the span that begins at `start_ms` ends, in ms."""
    unit = np.datetime64(start_ms, "ms").astype(f"M8[{_UNITS[level]}]") + 1
    return int(unit.astype("M8[ms]").astype("i8"))


def label(level: SpanLevel, start_ms: int) -> str:
    """What its files are called.

    >>> label(SpanLevel.HOUR, 7 * HOUR_MS), label(SpanLevel.MONTH, 0)
    ('1970-01-01T07', '1970-01')
    """
    return str(np.datetime64(start_ms, "ms").astype(f"M8[{_UNITS[level]}]"))


@dataclass(frozen=True, slots=True)
class Span:
    """What is pending of a span of due time: how many messages, by the topic that they are for."""

    level: SpanLevel
    start_ms: int
    end_ms: int
    pending: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Edges:
    """Up to where spans are hours, days and months, in ms; behind the last edge they are years."""

    hours_until: int = 0
    days_until: int = 0
    months_until: int = 0

    @classmethod
    def at(cls, now_ms: int, loaded_until: int) -> Edges:
        """Hours for today and tomorrow at least, and for what is loaded; days for a month more, months for three years."""
        hours = start_of(SpanLevel.DAY, max(now_ms + 2 * DAY_MS, loaded_until + DAY_MS))
        days = start_of(SpanLevel.MONTH, hours + 62 * DAY_MS)
        return cls(hours, days, start_of(SpanLevel.YEAR, days + 3 * 366 * DAY_MS))

    def later(self, other: Edges) -> Edges:
        """The later of each two. Rule 1."""
        return Edges(
            max(self.hours_until, other.hours_until),
            max(self.days_until, other.days_until),
            max(self.months_until, other.months_until),
        )

    def level_at(self, start_ms: int) -> SpanLevel:
        """How long a span that begins there is to be."""
        edges = (self.hours_until, self.days_until, self.months_until)
        return SpanLevel(sum(start_ms >= edge for edge in edges))

    def places(self, dues: Array, past_ms: int) -> tuple[Array, Array]:
        """The level and the start of the span that each due time is filed in; what is due before `past_ms`: rule 3."""
        levels = np.zeros(len(dues), "u1")
        starts = starts_of(SpanLevel.HOUR, dues)
        edges = (self.hours_until, self.days_until, self.months_until)
        for level, edge in zip((SpanLevel.DAY, SpanLevel.MONTH, SpanLevel.YEAR), edges, strict=True):
            far = dues >= edge
            if not far.any():
                break
            levels[far], starts[far] = level, starts_of(level, dues[far])
        starts[dues < past_ms] = 0
        return levels, starts
