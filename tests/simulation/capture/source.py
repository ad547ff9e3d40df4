"""The log of the database that stands in, read at the seam of the capture: a `Source` as cdc/source.py promises one.

Rule 1: one object reads over one connection, from one position, once.
Rule 2: each record is a step: the capture may be killed there, and time passes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

from tests.simulation.capture.database import TABLES, Database, Row, Transaction
from waterclock.cdc.position import Position
from waterclock.cdc.source import DeadLetter, Item, Refusal, SourceMark
from waterclock.changes.maxwell import MaxwellMessage, next_sequence
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError
from waterclock.simulation.threads import Event
from waterclock.simulation.world import MS

DATABASE = "shop"
QUIET_S = 0.02


class Forgotten(UsageError):
    """The log begins behind the place that is asked for. `was_needed`: somebody took more of it than a reader can spare; an
    operator may have put it back since."""

    def __init__(self, words: str, was_needed: bool) -> None:
        super().__init__(words)
        self.was_needed = was_needed


def refuse_if_down(database: Database) -> None:
    if not database.is_up:
        raise EnvironmentMissing("There is no database to talk to. Is it running there?")


class LogSource:
    def __init__(self, database: Database, position: Position, skip: frozenset[str], refusal: Refusal) -> None:
        refuse_if_down(database)
        self._database, self._world, self._skip, self._refusal = database, database.world, skip, refusal
        self._rng: Random = self._world.stream("source")
        self._place, self._sequence = int(position.place), position.sequence
        self._rows, self._inside = position.rows, position.inside
        if self._place < database.forgotten:
            raise Forgotten(
                f"The server cannot go on from {self._place}: it begins at {database.forgotten}. Bring the target up to "
                "date by hand, and start anew under another --name.",
                database.has_forgotten_too_much,
            )
        self._is_broken, self.news = False, Event()
        database.connections.append(self)

    def break_off(self) -> None:
        self._is_broken = True
        self.news.set()

    def _step(self) -> None:
        """Time passes; ConnectionLost if it broke meanwhile."""
        self._world.running().process.step("source")
        if self._is_broken or not self._database.is_up:
            raise ConnectionLost("The database ended the stream.")

    def items(self) -> Iterator[Item]:
        while True:
            self._step()
            if self._place < self._database.end and self._world.now >= self._database.silent_until:
                yield from self._transaction(self._database.log[self._place])
            else:
                self.news = Event()
                self.news.wait(QUIET_S)
                self._step()
                yield SourceMark.QUIET

    def _transaction(self, one: Transaction) -> Iterator[Item]:
        sequence = next_sequence(self._sequence, one.ts)
        if self._rows and one.name != self._inside:
            self._world.problem(
                "position", f"{self._rows} rows of {self._inside} are said to be in Kafka, not {one.name}"
            )
        if one.name not in self._skip:
            for number, row in enumerate(one.rows):
                if number >= self._rows:
                    self._step()
                    if self._rng.random() < 0.02:  # a server that is slow within a transaction
                        self._world.sleep(self._rng.randrange(300 * MS))
                        yield SourceMark.QUIET
                    yield self._record(one, sequence, number, row)
        self._step()
        self._place, self._sequence = one.number, sequence
        self._rows, self._inside = 0, ""
        yield SourceMark.COMMITTED

    def _record(self, one: Transaction, sequence: int, number: int, row: Row) -> MaxwellMessage | DeadLetter:
        if row.is_bad:
            reason, record = f"shop.{row.table}: a row that nobody can read.", json.dumps(row.data).encode()
            return self._refusal(DeadLetter(one.name, one.ts, number, "row", reason, record, DATABASE, row.table))
        data, old = ({name: str(v) for name, v in (given or {}).items()} for given in (row.data, row.old))
        is_last = number == len(one.rows) - 1
        return MaxwellMessage(
            DATABASE,
            row.table,
            row.kind,
            one.ts,
            one.name,
            sequence,
            number,
            is_last,
            TABLES[row.table],
            data,
            old or None,
        )

    def position(self) -> Position:
        return Position(str(self._place), self._sequence)

    def reached(self, end: str) -> bool:
        return self._place >= int(end)

    def stored(self, position: Position) -> None:
        self._step()
        self._database.stored(int(position.place))

    def close(self) -> None:
        if self in self._database.connections:
            self._database.connections.remove(self)
