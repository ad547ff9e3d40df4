"""The real log: traffic fines of an Italian police force, 10,000 cases, 34,724 events (licence beside the file).

In it "Add penalty" stands exactly 60 days after "Insert Fine Notification", every time: the log recorded a timer firing.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from importlib.resources import files

NOTIFIED, PENALTY, PAYMENT = "Insert Fine Notification", "Add penalty", "Payment"
PATIENCE = timedelta(days=60)


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One line of the log: a day, what happened, and the log's own number of it."""

    case_id: str
    activity: str
    day: date
    number: int


def read_log() -> dict[str, list[LogEvent]]:
    """The events of each case in the log's order."""
    cases: dict[str, list[LogEvent]] = {}
    for event in _lines():
        cases.setdefault(event.case_id, []).append(event)
    return cases


def penalties(cases: dict[str, list[LogEvent]]) -> set[tuple[str, date]]:
    """The real penalties: (case, day)."""
    return {(e.case_id, e.day) for events in cases.values() for e in events if e.activity == PENALTY}


def unpaid(cases: dict[str, list[LogEvent]]) -> set[tuple[str, date]]:
    """The fines without a payment between the notification and the day of the penalty: (case, that day)."""
    return {(case, day) for case, day, is_paid in _due(cases) if not is_paid}


def paid(cases: dict[str, list[LogEvent]]) -> set[tuple[str, date]]:
    """Those with one: (case, the day of the penalty)."""
    return {(case, day) for case, day, is_paid in _due(cases) if is_paid}


def without_penalties(cases: dict[str, list[LogEvent]]) -> dict[str, list[LogEvent]]:
    """What the pipeline is given: everything that people did, nothing that the timer did."""
    return {case: [e for e in events if e.activity != PENALTY] for case, events in cases.items()}


def _due(cases: dict[str, list[LogEvent]]) -> Iterator[tuple[str, date, bool]]:
    for events in cases.values():
        for place, event in enumerate(events):
            if event.activity == NOTIFIED:
                day = event.day + PATIENCE
                yield event.case_id, day, _paid(events[place + 1 :], day)


def _paid(later: list[LogEvent], penalty_day: date) -> bool:
    return any(e.activity == PAYMENT and e.day < penalty_day for e in later)


def _lines() -> Iterator[LogEvent]:
    packed = files(__package__) / "traffic_fines.csv.gz"
    with packed.open("rb") as raw, gzip.open(raw, "rt", newline="") as text:
        for row in csv.DictReader(text):
            day = date.fromisoformat(row["timestamp"])
            yield LogEvent(row["case_id"], row["activity"], day, int(row[".order"]))
