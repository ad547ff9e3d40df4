"""What Kafka promises, held against a history: each check yields the violations of one promise, and nothing else.

    lost          what was acknowledged is not there in the end
    doubled       one value stands at two places, though its producer is idempotent
    aborted       a reader of committed records sees a value of an aborted transaction (G1a)
    early         ... sees a value before its transaction's commit was asked for (G1b)
    torn          of a transaction's values some are there in the end and some not
    phantom       a value that nobody wrote, or that is in another partition
    vanished      what was read at an offset is another value, or gone, later
    misplaced     the acknowledged offset is not the value's
    skipped       a reader went past a record that is there
    backwards     a reader got an offset twice, or a lower one after a higher
    unordered     a producer's values of one key are not in the order in which it sent them

The other promises stand in fencing.py, offsets.py and cycles.py. What Kafka does NOT promise is no violation, and is
counted in cycles.py: transactions that write the same partitions interleave.

Rule 1: a check says nothing about what is unknown: an unknown write may be there or not, but is there once, and whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import NamedTuple

from tests.broker.consistency.facts import COMMITTED, Facts, Place, Row, Write, outcome_of
from tests.broker.consistency.history import Op


class Violation(NamedTuple):
    """A promise that was broken, in a sentence, with the operations that show it."""

    kind: str
    story: str
    ops: tuple[Op, ...] = ()

    def __str__(self) -> str:
        return "\n    ".join([f"{self.kind}: {self.story}", *(str(op) for op in self.ops[:6])])


Check = Callable[[Facts], Iterator[Violation]]


def lost(facts: Facts) -> Iterator[Violation]:
    for write in facts.writes.values():
        if write.outcome == "ok" and write.value not in facts.visible:
            yield Violation("lost", f"{write.value} in {write.place} was acknowledged and is not there", (write.op,))


def doubled(facts: Facts) -> Iterator[Violation]:
    for place, log in facts.uncommitted.items():
        counted = Counter(value for _, value in log)
        for value, count in counted.items():
            if count > 1:
                at = [offset for offset, one in log if one == value]
                yield Violation("doubled", f"{value} stands at {at} of {place}", _ops(facts, value))


def aborted(facts: Facts) -> Iterator[Violation]:
    seen = {row.value: row for row in _committed_reads(facts)}
    for write in facts.writes.values():
        if write.op.kind == "txn" and write.outcome == "fail" and (write.value in seen or write.value in facts.visible):
            reader = (seen[write.value].op,) if write.value in seen else ()
            story = f"{write.value} in {write.place} is of a transaction that was not committed, and was read"
            yield Violation("aborted", story, (write.op, *reader))


def early(facts: Facts) -> Iterator[Violation]:
    for row in _committed_reads(facts):
        write = facts.writes.get(row.value)
        if write and write.op.kind == "txn" and write.op.commit_ns and row.op.end_ns < write.op.commit_ns:
            yield Violation("early", f"{row.value} was read before its commit was asked for", (write.op, row.op))


def torn(facts: Facts) -> Iterator[Violation]:
    for op in facts.history.of("txn"):
        values = [value for *_, value in op["writes"]]
        there = [value for value in values if value in facts.visible]
        if there and len(there) < len(values) and outcome_of(op) != "fail":
            yield Violation("torn", f"of {values} only {there} are there", (op,))


def phantom(facts: Facts) -> Iterator[Violation]:
    for place, log in facts.uncommitted.items():
        for offset, value in log:
            write = facts.writes.get(value)
            if write is None or write.place != place:
                yield Violation("phantom", f"{value} at {offset} of {place} was not written there", _ops(facts, value))


def vanished(facts: Facts) -> Iterator[Violation]:
    known = {(place, offset): value for place, log in facts.uncommitted.items() for offset, value in log}
    ends = {place: log[-1][0] for place, log in facts.uncommitted.items()}
    told = set()
    for row in facts.reads:
        now = known.get((row.place, row.offset))
        if now != row.value and (row.place, row.offset) not in told:
            told.add((row.place, row.offset))
            end = ends.get(row.place)
            story = (
                f"{row.value} was read at {row.offset} of {row.place}, where {now} is in the end (last offset {end})"
            )
            yield Violation("vanished", story, (row.op, *_ops(facts, row.value)))


def misplaced(facts: Facts) -> Iterator[Violation]:
    standing: dict[int, list[tuple[Place, int]]] = {}
    for place, log in facts.uncommitted.items():
        for offset, value in log:
            standing.setdefault(value, []).append((place, offset))
    for write in facts.writes.values():
        found = standing.get(write.value, [])
        if found and write.offset is not None and (write.place, write.offset) not in found:
            story = f"{write.value} was acknowledged at {write.offset} of {write.place} and stands at {found}"
            yield Violation("misplaced", story, (write.op,))


def skipped(facts: Facts) -> Iterator[Violation]:
    for (session, place), rows in _sessions(facts).items():
        isolation = rows[0].op["isolation"]
        log = (facts.committed if isolation == COMMITTED else facts.uncommitted).get(place, [])
        seen = {row.offset for row in rows}
        first, last = rows[0].offset, max(seen)
        missed = [(offset, value) for offset, value in log if first < offset < last and offset not in seen]
        if missed:
            after = max(offset for offset in seen if offset < missed[0][0])
            story = f"{session} ({isolation}) missed {len(missed)} of {place}, first {missed[0]}, after {after}"
            yield Violation("skipped", story, tuple(row.op for row in rows if row.offset >= after)[:2])


def backwards(facts: Facts) -> Iterator[Violation]:
    for (session, place), rows in _sessions(facts).items():
        for row, following in pairwise(rows):
            if following.offset <= row.offset:
                story = f"{session} got {following.offset} of {place} after {row.offset}"
                yield Violation("backwards", story, (row.op, following.op))
                break


def unordered(facts: Facts) -> Iterator[Violation]:
    for place, log in facts.committed.items():
        last: dict[tuple[str, str], Write] = {}
        for _, value in log:
            write = facts.writes.get(value)
            if write is None:
                continue
            before = last.get((write.op.process, write.key))
            if before is not None and before.value > value:
                story = f"{value} of key {write.key} stands behind {before.value} in {place}, and was sent before it"
                yield Violation("unordered", story, (before.op, write.op))
            last[write.op.process, write.key] = write


CHECKS: tuple[Check, ...] = (
    lost, doubled, aborted, early, torn, phantom, vanished, misplaced, skipped, backwards, unordered,
)  # fmt: skip


def _committed_reads(facts: Facts) -> Iterator[Row]:
    return (row for row in facts.reads if row.op["isolation"] == COMMITTED)


def _sessions(facts: Facts) -> dict[tuple[str, Place], list[Row]]:
    """What each reader saw of each partition, from one seek to the next."""
    found: dict[tuple[str, Place], list[Row]] = {}
    for row in facts.reads:
        found.setdefault((f"{row.op.process}/{row.op['session']}", row.place), []).append(row)
    return found


def _ops(facts: Facts, value: int) -> tuple[Op, ...]:
    return (facts.writes[value].op,) if value in facts.writes else ()
