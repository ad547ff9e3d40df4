"""All checks in one place: a new one is an entry here and a history in test_checker.py in which it fails.

Rule 1: violations come in the order of the checks; of each kind a few are enough, and all are counted.
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.broker.consistency import checker, cycles, fencing, offsets
from tests.broker.consistency.checker import Check, Violation
from tests.broker.consistency.facts import Facts

ALL: tuple[Check, ...] = (
    *checker.CHECKS,
    fencing.fenced,
    fencing.inputs,
    offsets.ends,
    offsets.groups,
    cycles.circular,
)


def violations(facts: Facts) -> Iterator[Violation]:
    """Every promise that a history breaks."""
    for check in ALL:
        yield from check(facts)
