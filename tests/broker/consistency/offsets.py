"""Offsets that must not go back: the end of a partition, and what a group has committed.

    end back         a reader was told a lower end of a partition than before, or one below what was acknowledged
    committed back   a group was told offsets that a later commit, acknowledged before, had replaced

Rule 1: B is after A where B began when A had ended; what overlaps has no order.
Rule 2: a commit without an answer may take place at any later time, also after a commit that followed it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from tests.broker.consistency.checker import Violation
from tests.broker.consistency.facts import Facts, Place, outcome_of
from tests.broker.consistency.history import NEVER_NS, Op

Known = list[tuple[int, int, Op]]  # from when on it is known that the end is at least that


def ends(facts: Facts) -> Iterator[Violation]:
    known = _known_ends(facts)
    for op in facts.history.of("watermark"):
        before = known.get((op["topic"], op["partition"]), [])
        place = bisect_left(before, op.begin_ns, key=lambda one: one[0])
        if op.ok and place and before[place - 1][1] > op["high"]:
            story = f"{op['topic']}-{op['partition']} ended at {op['high']}, and before that at {before[place - 1][1]}"
            yield Violation("end back", story, (before[place - 1][2], op))


def _known_ends(facts: Facts) -> dict[Place, Known]:
    """For each partition the moments at which a higher end became known."""
    found: dict[Place, Known] = {}
    for op in facts.history.of("watermark"):
        if op.ok:
            found.setdefault((op["topic"], op["partition"]), []).append((op.end_ns, op["high"], op))
    for write in facts.writes.values():
        if write.offset is not None and write.op.kind == "send" and write.op.end_ns != NEVER_NS:
            found.setdefault(write.place, []).append((write.op.end_ns, write.offset + 1, write.op))
    for known in found.values():
        known.sort(key=lambda one: one[:2])
        for number, one in enumerate(known[1:], 1):
            if one[1] < known[number - 1][1]:
                known[number] = (one[0], *known[number - 1][1:])
    return found


def groups(facts: Facts) -> Iterator[Violation]:
    commits: dict[tuple[str, str], list[tuple[int, Op]]] = {}
    for op in facts.history.of("offsets", "txn"):
        for place, offset in op.get("offsets", {}).items() if outcome_of(op) != "fail" else ():
            commits.setdefault((op["group"], place), []).append((offset, op))
    for op in facts.history.of("fetched"):
        for place, offset in op.get("offsets", {}).items() if op.ok else ():
            later = _replaced(commits.get((op["group"], place), []), offset, op)
            if later:
                story = f"{op['group']} was told {offset} of {place}, where {later[0]} was acknowledged"
                yield Violation("committed back", story, (later[1], op))


def _replaced(commits: list[tuple[int, Op]], offset: int, read: Op) -> tuple[int, Op] | None:
    """The commit that had replaced `offset` when it was read; None where it may still stand."""
    done = [(one, op) for one, op in commits if op.ok and op.end_ns < read.begin_ns]
    if not done:
        return None
    newest = max(done, key=lambda one: one[1].begin_ns)
    # it may stand where its commit did not end before the newest one began
    if any(one == offset and op.end_ns >= newest[1].begin_ns and op.begin_ns < read.end_ns for one, op in commits):
        return None
    return None if newest[0] == offset else newest
