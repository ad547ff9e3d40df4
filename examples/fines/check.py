"""Is the answer right? The pipeline's tables against a plain computation over the clean log.

Rule 1: nothing here uses waterclock's rules; the two answers share the CSV file and nothing else.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from .log import LogEvent, penalties, unpaid, without_penalties
from .tables import Tables


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


def check(cases: dict[str, list[LogEvent]], tables: Tables) -> Verdict:
    """Compare the results in `tables` with what the clean log says."""
    made, found = Counter(tables.days("emit", "Add penalty")), Counter(tables.days("expired", "unpaid"))
    wrong_order = _wrong_order(tables, without_penalties(cases))
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


def _wrong_order(tables: Tables, expected: dict[str, list[LogEvent]]) -> set[str]:
    """The cases whose events did not come out in the log's order, each once."""
    delivered: dict[str, list[str]] = {}
    for case, event_id in tables.delivered():
        delivered.setdefault(case, []).append(event_id)
    wanted = {case: [f"fine-{e.number}" for e in events] for case, events in expected.items()}
    return {case for case in wanted.keys() | delivered.keys() if wanted.get(case, []) != delivered.get(case, [])}
