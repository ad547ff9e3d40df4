"""The replay: the log as a careless network would deliver it, from a seed.

Each event arrives up to 14 days of event time after it happened, so events overtake each other; one in twenty arrives
twice. Lines are written in the order of arrival, into files of equal size.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass
from datetime import UTC, datetime, time
from pathlib import Path
from typing import Any

from .log import LogEvent

LATEST_S = 14 * 86_400
DOUBLED = 0.05


@dataclass(frozen=True, slots=True)
class Replay:
    """What was written: the number of lines, and how many of them are duplicates."""

    events: int
    duplicates: int


def write_replay(cases: dict[str, list[LogEvent]], folder: Path, seed: int, file_count: int) -> Replay:
    """Write `cases` into `file_count` files of JSON lines in `folder`, which is made."""
    arrivals = _arrivals(cases, random.Random(seed))
    lines = [json.dumps(row) + "\n" for _, _, row in sorted(arrivals, key=lambda a: a[:2])]
    folder.mkdir(parents=True)
    size, now_s = -(-len(lines) // file_count), folder.stat().st_mtime
    for number, start in enumerate(range(0, len(lines), size)):
        file = folder / f"events-{number:05d}.jsonl"
        file.write_text("".join(lines[start : start + size]))
        # Spark takes files by the time they were written, to the millisecond: let one have come every second
        os.utime(file, (now_s - file_count + number, now_s - file_count + number))
    return Replay(len(lines), len(lines) - sum(map(len, cases.values())))


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
