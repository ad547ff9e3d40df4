"""What the capture promises (docs/cdc.md), held against what it was told and what stands in Kafka in the end.

    lost, twice, invented    each committed change, and each letter of a dead one, is there once
    changed, misplaced       as the database has it, in its topic, all of a key in one partition
    order                    a partition has the changes in the order of their commits
    torn                     a transaction of the source, and the position behind it, are in one of Kafka's; a larger
                             one goes in parts of `largest`, and the position says how many of its records are there
    back                     a start reads the position that was committed last, or a later one: last when it had fenced
                             all others. While it reads, a later one may fence it and commit: it has no say any more
    overtaken                one that another has overtaken commits nothing more, and says so when it ends
    ended                    whoever ends says why, and that is true

`Mark` is a place between records: (number of a transaction, records of it that are before).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from tests.simulation.capture.database import TABLES, Database, Row
from tests.simulation.capture.source import Forgotten
from tests.simulation.kafka.batches import Record

Mark = tuple[int, int]
OVERTAKEN = "Another process captures under the name till"


class Options(NamedTuple):
    """`largest` is what a transaction may have to stay whole; the topics as the command has them."""

    largest: int
    order: str
    partitions: int
    dead_letters: str
    per_table: bool
    begins_at_place: bool

    def topic_of(self, row: Row) -> str:
        return self.dead_letters if row.is_bad else f"till.shop.{row.table}" if self.per_table else "till"

    @property
    def topics(self) -> dict[str, int]:
        """Of changes and of letters, with their partitions."""
        names = [f"till.shop.{table}" for table in TABLES] if self.per_table else ["till"]
        count = 1 if self.order == "global" else self.partitions
        return {**dict.fromkeys(names, count), **({self.dead_letters: 1} if self.dead_letters else {})}


def mark_of(position: Any) -> Mark:
    return int(position.place) + 1, position.rows


def last_of(position: Any) -> Mark:
    """Before everything, if there is no position yet."""
    return (0, 0) if position is None else mark_of(position)


class Promises:
    def __init__(self, world: Any, database: Database, options: Options) -> None:
        self.world, self.database, self.options = world, database, options
        self.skip: set[str] = set()  # names of transactions that the operator leaves out
        self._fences: list[tuple[Any, int, int]] = []  # who has fenced the others; when it asked, and was answered
        self._acknowledged: Mark = (0, 0)

    # While it goes on

    def fenced(self, process: Any, asked_ns: int) -> None:
        if process.is_overtaken:
            self.world.problem("overtaken", f"{process.name} takes the name back, though another has committed")
        process.fenced_at = self._acknowledged
        self._fences.append((process, asked_ns, self.world.now))

    def _later(self, process: Any, surely: bool) -> list[tuple[Any, int]]:
        """Who has fenced it since it was the last, surely or perhaps, and when: of two that ask at once nobody knows."""
        _, asked_ns, answered_ns = next(one for one in reversed(self._fences) if one[0] is process)
        since = answered_ns if surely else asked_ns
        return [
            (by, end) for by, begin, end in self._fences if by is not process and (begin if surely else end) > since
        ]

    def began(self, process: Any, stored: Any) -> None:
        process.position = stored
        if last_of(stored) < process.fenced_at:
            self.world.problem("back", f"{process.name} begins at {stored}, {process.fenced_at} was committed")

    def committed(self, process: Any, position: Any, asked_ns: int) -> None:
        process.position, process.lost = position, 0
        self._acknowledged = max(self._acknowledged, mark_of(position))
        for by, since_ns in self._later(process, surely=True):
            if since_ns < asked_ns:
                self.world.problem("overtaken", f"{process.name} committed {position} behind {by.name}'s start")

    def lost(self, process: Any, error: Exception) -> None:
        """A break, after which it goes on: if it was fenced, and another has committed by now, it must not."""
        process.is_overtaken = "another process" in str(error) and last_of(process.position) < self._acknowledged

    def ended(self, process: Any, error: Exception) -> None:
        """It ends with an error: is it said with a remedy, and true?"""
        kind, said = type(error).__name__, str(error)
        if kind == "Unreadable":
            why = self._unreadable(process, said)
        elif isinstance(error, Forgotten):
            why = "" if error.was_needed else "the log has all that Kafka lacks"
        elif kind == "UsageError" or (kind == "NameLost" and not process.has_begun):
            is_last = any(by is process for by, _, _ in self._fences) and not self._later(process, surely=False)
            why = "it says no remedy" if OVERTAKEN not in said or "--name" not in said else ""
            why = why or ("nobody has overtaken it" if is_last else "")
        elif kind == "ConnectionLost":
            why = "it gave up too early" if process.has_begun and process.lost < 10 else ""
        else:
            why = "a break is tried again" if kind != "EnvironmentMissing" or process.has_begun else ""
        if why:
            self.world.problem("ended", f"{process.name}: {why}: {kind}: {said}")

    def _unreadable(self, process: Any, said: str) -> str:
        bad = next((one for one in self.database.log if f"--skip {one.name};" in said), None)
        if bad is None or not bad.is_bad or bad.name in process.skips:
            return "it names no way on"
        number, _ = mark_of(process.position) if process.position is not None else (1, 0)
        return "" if number == bad.number else f"what was committed before is not delivered: {process.position}"

    def ran_to(self, process: Any, end: str | None) -> None:
        if end is None and not process.stops:
            self.world.problem("ended", f"{process.name} ended without a word")
        if end is not None and int(end) and (process.position is None or int(process.position.place) < int(end)):
            self.world.problem("ended", f"{process.name} said that all up to {end} is there, of {process.position}")

    # In the end

    def check(self, found: Found) -> None:
        marks = [(1, 0)] if self.options.begins_at_place else []
        marks += [mark_of(position) for position in found.positions]
        self._check_positions(marks, found)
        expected, self._sequences = dict(self._expected(marks)), self._numbered(marks)
        came: dict[Mark, list[tuple[str, int]]] = {}
        partitions: dict[bytes | None, set[tuple[str, int]]] = {}
        for place, transactions in found.changes.items():
            last, part = (0, 0), -1
            for records in transactions:
                before = part
                for record in records:
                    mark, row = self._check_content(place, record, expected)
                    came.setdefault(mark, []).append(place)
                    if row is not None and row.kind != "truncate":
                        partitions.setdefault(record.key, set()).add(place)
                    if mark <= last:
                        self._problem("order", f"{mark} stands behind {last} in {place}")
                    part_of = sum(one <= mark for one in marks)
                    if part_of <= before or part not in (before, part_of):
                        self._problem("torn", f"{mark} of {place} is not in the transaction of its position {marks}")
                    last, part = mark, part_of
        self._check_each(expected, came)
        for key, places in partitions.items():
            if len(places) > 1 + sum(topic == self.options.dead_letters for topic, _ in places):
                self._problem("misplaced", f"{key!r} is in {sorted(places)}")

    def _check_positions(self, marks: list[Mark], found: Found) -> None:
        for before, after in pairwise(marks):
            if after < before:
                self._problem("back", f"the position {after} stands behind {before}")
        for position in found.positions:
            rows = position.rows
            of = self.database.log[int(position.place)] if rows else None
            if of and (rows % self.options.largest or rows >= len(of.rows) or position.inside != of.name):
                self._problem("torn", f"{position} is within {of.name}, of {len(of.rows)} records")

    def _expected(self, marks: list[Mark]) -> Iterator[tuple[Mark, Row]]:
        """Each record between the first position and the last, but for what was skipped."""
        for one in self.database.log if marks else ():
            for number, row in enumerate(one.rows):
                mark = one.number, number
                is_skipped = one.name in self.skip and not any(m[0] == one.number and m[1] > number for m in marks)
                if marks[0] <= mark < marks[-1] and not is_skipped:
                    yield mark, row

    def _numbered(self, marks: list[Mark]) -> dict[int, int]:
        """The sequence of each transaction: it rises, and is near to the microsecond of its date."""
        last, found = 0, dict[int, int]()
        for one in self.database.log[marks[0][0] - 1 :] if marks else ():
            last = found[one.number] = max(last + 1, one.ts * 1_000_000)
        return found

    def _check_content(
        self, place: tuple[str, int], record: Record, expected: dict[Mark, Row]
    ) -> tuple[Mark, Row | None]:
        given = json.loads(record.value or b"{}")
        mark = int(given["gtid"].removeprefix("tx-")), given["xoffset"]
        row = expected.get(mark)
        if row is None:
            self._problem("invented", f"{place} has {given}")
        elif (self._wanted(mark, row), self._key(row)) != (self._relevant(given, row), record.key):
            self._problem("changed", f"{row} of {mark} came as {record.key!r} {given}")
        elif place[0] != self.options.topic_of(row):
            self._problem("misplaced", f"{mark} is in {place}")
        return mark, row

    def _relevant(self, given: dict[str, Any], row: Row) -> dict[str, Any]:
        """A letter is in the product's words; what it is about has to be there."""
        letter = ("database", "table", "gtid", "xoffset", "ts", "kind")
        return {name: given.get(name) for name in letter} if row.is_bad else given

    def _wanted(self, mark: Mark, row: Row) -> dict[str, Any]:
        one = self.database.log[mark[0] - 1]
        said = {"database": "shop", "table": row.table, "ts": one.ts, "gtid": one.name, "xoffset": mark[1]}
        if row.is_bad:
            return said | {"kind": "row"}
        said |= {"type": row.kind, "primary_key_columns": list(TABLES[row.table]), "data": row.data}
        said |= {"sequence": self._sequences[mark[0]]}
        said |= {"commit": True} if mark[1] == len(one.rows) - 1 else {}
        return said | ({"old": row.old} if row.old else {})

    def _key(self, row: Row) -> bytes:
        is_keyed = TABLES[row.table] and row.kind != "truncate" and not row.is_bad
        more = f',"pk.id":{row.data["id"]}' if is_keyed else ""
        return f'{{"database":"shop","table":"{row.table}"{more}}}'.encode()

    def _check_each(self, expected: dict[Mark, Row], came: dict[Mark, list[tuple[str, int]]]) -> None:
        topics = self.options.topics
        for mark, row in expected.items():
            places = came.get(mark, [])
            wanted = topics[self.options.topic_of(row)] if row.kind == "truncate" else 1
            if len(places) < wanted:
                self._problem("lost", f"{mark}, {row}, is in {places}")
            if len(places) > wanted or len(set(places)) < len(places):
                self._problem("twice", f"{mark}, {row}, is in {places}")

    def _problem(self, kind: str, story: str) -> None:
        self.world.problem(kind, story)


class Found:
    """What stands in Kafka: the positions, and of each partition the committed transactions."""

    def __init__(self) -> None:
        self.positions: list[Any] = []
        self.changes: dict[tuple[str, int], list[list[Record]]] = {}
