"""Is the answer right? The pipeline's tables against a plain computation over the clean log.

Rule 1: nothing here uses waterclock's rules; the two answers share the CSV file and nothing else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, time

from .log import PENALTY, LogEvent, paid, penalties, unpaid, without_penalties
from .tables import Delivered, Tables

Counted = Counter[tuple[str, datetime]]


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
    others_wrong: int
    wrong_cases: tuple[str, ...]

    @property
    def right(self) -> bool:
        wrong = self.missing, self.extra, self.unpaid_wrong, self.out_of_order_cases, self.others_wrong
        return not any(wrong) and self.unpaid_found == self.unpaid_expected


def check(cases: dict[str, list[LogEvent]], tables: Tables) -> Verdict:
    """Compare the results in `tables` with what the clean log says."""
    written = _by_kind(tables)
    made, found = written.pop(("emit", PENALTY), Counter()), written.pop(("expired", "unpaid"), Counter())
    met = written.pop(("met", "unpaid"), Counter())
    real, owing, settled = (Counter(_moments(days)) for days in (penalties(cases), unpaid(cases), paid(cases)))
    others = sum(written.values(), _apart(settled, met))  # nothing else was asked for
    wrong_order = _wrong_order(tables, without_penalties(cases))
    different = _apart(real, made) + _apart(owing, found) + others
    return Verdict(
        recreated=(made & real).total(),
        missing=(real - made).total(),
        extra=(made - real).total(),
        unpaid_expected=owing.total(),
        unpaid_found=found.total(),
        unpaid_wrong=_apart(owing, found).total(),
        out_of_order_cases=len(wrong_order),
        others_wrong=others.total(),
        wrong_cases=tuple(sorted({case for case, _ in different} | wrong_order)),
    )


def _by_kind(tables: Tables) -> dict[tuple[str, str], Counted]:
    found: dict[tuple[str, str], Counted] = {}
    for kind, rule, case, moment in tables.results():
        found.setdefault((kind, rule), Counter())[case, moment] += 1
    return found


def _moments(days: Iterable[tuple[str, date]]) -> Iterable[tuple[str, datetime]]:
    """The log says days; a result has the first moment of one."""
    return ((case, datetime.combine(day, time())) for case, day in days)


def _apart(one: Counted, other: Counted) -> Counted:
    return (one - other) + (other - one)


def _wrong_order(tables: Tables, expected: dict[str, list[LogEvent]]) -> set[str]:
    """The cases whose events did not come out as they are in the log, in its order, each once."""
    delivered: dict[str, list[Delivered]] = {}
    for event in tables.delivered():
        delivered.setdefault(event[0], []).append(event)
    wanted = {case: list(_deliveries(case, events)) for case, events in expected.items()}
    return {case for case in wanted.keys() | delivered.keys() if wanted.get(case, []) != delivered.get(case, [])}


def _deliveries(case: str, events: list[LogEvent]) -> Iterable[Delivered]:
    for sequence, event in enumerate(events, 1):
        moment = datetime.combine(event.day, time())
        yield case, event.case_id, event.activity, moment, f"fine-{event.number}", sequence
