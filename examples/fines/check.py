"""Is the answer right? The pipeline's table against a plain computation over the clean log.

Rule 1: nothing here uses waterclock's rules; the two answers share the CSV file and nothing else.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from .log import LogEvent, penalties, unpaid, without_penalties


@dataclass(frozen=True, slots=True)
class Verdict:
    """The figures of the answer. It is right when everything that should be equal or zero is."""

    recreated: int
    missing: int
    extra: int
    unpaid_expected: int
    unpaid_found: int
    unpaid_wrong: int
    out_of_order_cases: int
    wrong_cases: tuple[str, ...]

    @property
    def right(self) -> bool:
        wrong = self.missing, self.extra, self.unpaid_wrong, self.out_of_order_cases
        return not any(wrong) and self.unpaid_found == self.unpaid_expected


def check(cases: dict[str, list[LogEvent]], database: Path) -> Verdict:
    """Compare the results in `database` with what the clean log says."""
    with closing(sqlite3.connect(database)) as db:
        made, found = _dated(db, "emit", "Add penalty"), _dated(db, "expired", "unpaid")
        wrong_order = _wrong_order(db, without_penalties(cases))
    real, owing = Counter(penalties(cases)), Counter(unpaid(cases))
    different = (real - made) + (made - real) + (owing - found) + (found - owing)
    return Verdict(
        recreated=(made & real).total(),
        missing=(real - made).total(),
        extra=(made - real).total(),
        unpaid_expected=owing.total(),
        unpaid_found=found.total(),
        unpaid_wrong=((owing - found) + (found - owing)).total(),
        out_of_order_cases=len(wrong_order),
        wrong_cases=tuple(sorted({case for case, _ in different} | wrong_order)),
    )


def _dated(db: sqlite3.Connection, kind: str, rule: str) -> Counter[tuple[str, date]]:
    rows = db.execute("SELECT key, substr(due, 1, 10) FROM results WHERE kind = ? AND rule = ?", (kind, rule))
    return Counter((case, date.fromisoformat(day)) for case, day in rows)


def _wrong_order(db: sqlite3.Connection, expected: dict[str, list[LogEvent]]) -> set[str]:
    """The cases whose events did not come out in the log's order, each once."""
    delivered: dict[str, list[str]] = {}
    for case, event_id in db.execute("SELECT key, event_event_id FROM results WHERE kind = 'event' ORDER BY rowid"):
        delivered.setdefault(case, []).append(event_id)
    wanted = {case: [f"fine-{e.number}" for e in events] for case, events in expected.items()}
    return {case for case in wanted.keys() | delivered.keys() if wanted.get(case, []) != delivered.get(case, [])}
