"""A database that stands in: a log of committed transactions, which is restarted, silent, cut off, and forgets.

Rule 1: what is in the log is committed and never lost; a capture reads it by the connections of source.py.
Rule 2: a place is the number of the last transaction that was read, as text: the first one has the number 1.
Rule 3: as a slot, the log forgets what its reader has said is stored, at once. As a binlog it may forget more: then whoever
    stands before what is left is refused, until an operator has put the files back.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from waterclock.simulation.world import DATE_MS, MS, NS

TABLES = {"item": ("id",), "sale": ("id",), "note": ()}  # the columns of their primary keys


class Row(NamedTuple):
    """A change as the log has it; `is_bad`: nobody can read it."""

    table: str
    kind: str
    data: dict[str, int]
    old: dict[str, int] | None = None
    is_bad: bool = False


class Transaction(NamedTuple):
    number: int
    ts: int
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """What a skip names, and the message's `gtid`."""
        return f"tx-{self.number}"

    @property
    def is_bad(self) -> bool:
        return any(row.is_bad for row in self.rows)


class Database:
    def __init__(self, universe: Any) -> None:
        self.universe, self.world = universe, universe.world
        self.rng = self.world.stream("database")
        rng = self.rng
        self.log: list[Transaction] = []
        self.is_slot, self.forgotten, self.has_forgotten_too_much = rng.random() < 0.4, 0, False
        self.is_up, self.silent_until = True, 0
        self.connections: list[Any] = []
        self._rows: dict[str, dict[int, int]] = {table: {} for table in TABLES}
        self._value = 0
        self._most = rng.choice((1, 3, 8))
        self._large, self._bad = rng.choice((0, 0.02, 0.1)), rng.choice((0, 0, 0.02))
        self._pause_ns = rng.choice((50 * MS, 200 * MS, 800 * MS))
        self._burst = rng.choice((1, 1, 4))

    def begin(self) -> None:
        self._began_ns = self.world.now
        for _ in range(self.rng.choice((0, 3))):
            self._commit()
        self.world.at(self.world.now + 1, self._work)

    @property
    def end(self) -> int:
        return len(self.log)

    def _work(self) -> None:
        """Clients of the database commit something, now and then much at once."""
        if self.universe.quiet:
            return
        if self.is_up and self._value < 100 + 25 * (self.world.now - self._began_ns) // NS:  # what slow networks carry
            for _ in range(self.rng.randrange(self._burst) + 1):
                self._commit()
        self.world.at(self.world.now + self.rng.randrange(self._pause_ns) + MS, self._work)

    def _commit(self) -> None:
        rng, number = self.rng, self.end + 1
        count = rng.randrange(10, 60) if rng.random() < self._large else rng.randrange(self._most + 1)
        rows = [row for _ in range(count) for row in self._change(rng.choice((*TABLES, "item")))]
        ts = (DATE_MS + self.world.now // MS) // 1000
        self.log.append(Transaction(number, ts, tuple(rows)))
        for connection in self.connections:
            connection.news.set()

    def _change(self, table: str) -> list[Row]:
        """One statement's rows: what it does to a row that is there, or a new one."""
        rng, there = self.rng, self._rows[table]
        self._value += 1
        key, value = rng.randrange(12), self._value
        if rng.random() < 0.01:
            there.clear()
            return [Row(table, "truncate", {})]
        is_bad = rng.random() < self._bad
        if key not in there:
            there[key] = value
            return [Row(table, "insert", {"id": key, "value": value}, is_bad=is_bad)]
        old, fate = there[key], rng.random()
        if fate < 0.3:
            del there[key]
            return [Row(table, "delete", {"id": key, "value": old}, is_bad=is_bad)]
        if fate < 0.4 and key + 12 not in there:  # it gets another key
            there[key + 12] = there.pop(key)
            gone = Row(table, "delete", {"id": key, "value": old})
            return [gone, Row(table, "insert", {"id": key + 12, "value": old})]
        there[key] = value
        return [Row(table, "update", {"id": key, "value": value}, {"value": old}, is_bad)]

    # Faults

    def restart(self) -> None:
        """It goes down, and comes back."""
        self.is_up = False
        self.cut(1.0)
        self.world.at(self.world.now + self.rng.choice((10 * MS, NS, 6 * NS)), self.come_up)

    def come_up(self) -> None:
        self.is_up = True

    def cut(self, share: float = 0.7) -> None:
        """Connections break."""
        for connection in self.connections:
            if self.rng.random() < share:
                connection.break_off()

    def fall_silent(self) -> None:
        self.silent_until = self.world.now + self.rng.choice((100 * MS, 2 * NS, 8 * NS))

    def forget(self) -> None:
        """Old log files go, sometimes more of them than a reader can do without."""
        if not self.is_slot and self.end:
            self.forgotten = self.rng.randrange(self.end + 1)
            self.has_forgotten_too_much = True

    def put_back(self) -> None:
        """An operator has found the files."""
        if not self.is_slot:
            self.forgotten, self.has_forgotten_too_much = 0, False

    def stored(self, place: int) -> None:
        """A reader's word that it needs nothing up to there any more."""
        if self.is_slot:
            self.forgotten = max(self.forgotten, place)
