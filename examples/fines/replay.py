"""The replay: the log as a careless network would deliver it, from a seed.

Each event arrives up to 14 days of event time after it happened, so events overtake each other; one in twenty arrives
twice. Lines are in the order of arrival.
"""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from datetime import UTC, datetime, time
from typing import Any

from .log import LogEvent

LATEST_S = 14 * 86_400
DOUBLED = 0.05


@dataclass(frozen=True, slots=True)
class Replay:
    """What is to be sent: (case, JSON) of each line, how many of them are duplicates, and the first moment of all."""

    lines: list[tuple[str, str]]
    duplicates: int
    begin: datetime

    @property
    def events(self) -> int:
        return len(self.lines)


def make_replay(cases: dict[str, list[LogEvent]], seed: int) -> Replay:
    """The events of `cases` in the order of arrival."""
    arrivals = sorted(_arrivals(cases, random.Random(seed)), key=lambda a: a[:2])
    lines = [(row["case_id"], json.dumps(row)) for _, _, row in arrivals]
    first = min(event.day for events in cases.values() for event in events)
    return Replay(lines, len(lines) - sum(map(len, cases.values())), datetime.combine(first, time(), UTC))


def _arrivals(cases: dict[str, list[LogEvent]], chance: random.Random) -> list[tuple[float, int, dict[str, Any]]]:
    """(arrival in seconds, order of making, row), duplicates after the event they repeat."""
    arrivals: list[tuple[float, int, dict[str, Any]]] = []
    for events in cases.values():
        for sequence, event in enumerate(events, 1):
            happened, lag = datetime.combine(event.day, time(), UTC), chance.uniform(0, LATEST_S)
            row = _row(event, happened, sequence)
            arrivals.append((happened.timestamp() + lag, len(arrivals), row))
            if chance.random() < DOUBLED:
                again = happened.timestamp() + chance.uniform(lag, LATEST_S)
                arrivals.append((again, len(arrivals), row))
    return arrivals


def _row(event: LogEvent, happened: datetime, sequence: int) -> dict[str, Any]:
    return {
        "case_id": event.case_id,
        "ts": happened.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "activity": event.activity,
        "event_id": f"fine-{event.number}",
        "seq": sequence,
    }
