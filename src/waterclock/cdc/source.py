"""The seam to a source of changes: what a database's log says, whichever database it is; what of it cannot be read; and the
rows that are older than the log.

Promises of every source: changes come in the order of their commits, whole transactions one after the other, each from
its first change to its last; what comes after a position comes again, the same, when that position is read from.

What is done about a record that cannot be read:

    stop        the default: nothing is passed over without the user's word; the message names the ways on
    put_aside   the record becomes a dead letter: as it came it goes to a topic of its own, in the same Kafka transaction
                as what stands beside it

Rule 1: only what is of a wanted table, or may be, is stopped at or put aside.
Rule 2: a dead letter takes a number among its transaction's changes: of two that stand in a topic one sees that something
        between them is missing.
Rule 3: older rows are counted once, if a capture has no position yet and nobody said where it begins (--from): they would
        be missing, so its first start says so.
Rule 4: up to COUNTED rows of a table are counted. For a larger one the server's estimate stands, and says so: to count a
        billion rows takes hours.
Rule 5: what lies before the log may be fewer rows than the table has now: then the number is the most there can be.
        (A snapshot, which would bring them, belongs here: between this question and the first position.)
"""

from __future__ import annotations

import fnmatch
import json
import logging
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, runtime_checkable

from waterclock.cdc.part import OlderPart
from waterclock.cdc.position import Position
from waterclock.cdc.schemas import ColumnsAltered, SchemaAt
from waterclock.changes.maxwell import MaxwellMessage, quoted
from waterclock.changes.table_schema import TableSchema
from waterclock.errors import Unreadable, UsageError
from waterclock.wording import counted

log = logging.getLogger("waterclock.cdc")
COUNTED = 100_000
POSITIONS = "waterclock_position"  # the table in which a program's positions lie (door/store.py)


class DeadLetter(NamedTuple):
    """A record of the log that cannot be read.

    `gtid`, `ts` and `xoffset` say where it stands, as those of a change do; `kind` what it is in the words of its log;
    `record` its bytes as they came. `database` and `table` are empty if the record is of no table, or of several.
    `data` is what could be read of a row: columns as JSON text, bytes of no known text as base64.
    """

    gtid: str
    ts: int
    xoffset: int
    kind: str
    reason: str
    record: bytes
    database: str = ""
    table: str = ""
    data: Mapping[str, str] | None = None

    def as_key(self) -> bytes:
        """The Kafka message's key: all of a table are in one partition."""
        return f'{{"database":{quoted(self.database)},"table":{quoted(self.table)}}}'.encode()

    def as_json(self) -> bytes:
        """The Kafka message's value.

        >>> DeadLetter("0-1-7", 1700000000, 2, "message U", "it is odd.", b"U").as_json().decode()[:57]
        '{"gtid": "0-1-7", "ts": 1700000000, "xoffset": 2, "kind":'
        """
        fields = {**self._asdict(), "record": b64encode(self.record).decode()}
        del fields["data"]  # whose texts are JSON already, with all their digits
        data = "null"
        if self.data is not None:
            data = "{" + ",".join([f"{quoted(name)}:{text}" for name, text in self.data.items()]) + "}"
        text = json.dumps(fields, ensure_ascii=False)
        return f'{text[:-1]}, "data": {data}}}'.encode("utf-8", "backslashreplace")


Refusal = Callable[[DeadLetter], DeadLetter]


def stop(letter: DeadLetter) -> DeadLetter:
    """Raise Unreadable, with the ways past the record; what a capture does unless the user says otherwise."""
    whole = f"without the transaction, and mend the target by hand: --skip {letter.gtid}; or "
    raise Unreadable(
        f"{letter.reason} To go on {whole if letter.gtid else ''}with this record alone put aside: --dead-letters TOPIC."
    )


def put_aside(letter: DeadLetter) -> DeadLetter:
    """The letter itself, which goes to the topic of dead letters."""
    return letter


class SourceMark(Enum):
    """What is no row change: a transaction's end; that the log went on without one of this source's; or that nothing has
    come for a moment."""

    COMMITTED = "committed"
    MOVED = "moved"
    QUIET = "quiet"


class TablesRenewed(NamedTuple):
    """Tables have other rows than their names had, for the reason `why`: they are to come again, behind the sequence
    `since`. It stands before the end of its transaction; behind that the source is made anew of its position."""

    tables: tuple[str, ...]
    since: int
    why: str


Record = MaxwellMessage | DeadLetter
# what is said of a table's columns comes before the first change that has them, and is no record: it has no number
Item = Record | OlderPart | TableSchema | ColumnsAltered | TablesRenewed | SourceMark


class Source(Protocol):
    """A database's changes after a position."""

    def items(self) -> Iterator[Item]:
        """Changes and marks, without end; ConnectionLost if the server went away, Unreadable if it must not go on."""

    def position(self) -> Position:
        """What may be stored after a COMMITTED or MOVED: everything before it was given out."""

    def reached(self, end: str) -> bool:
        """Whether everything up to the place `end` was given out."""

    def stored(self, position: Position) -> None:
        """Everything up to `position` is safe in Kafka: the source may throw away what it kept for us."""

    def close(self) -> None: ...


@runtime_checkable
class Recaller(Protocol):
    """A source that asks for the schema that a table had where it stands, if neither log nor catalog says it."""

    def recall(self, schema_at: SchemaAt) -> None: ...


class TableFilter:
    """Whose rows the capture wants: patterns of `database.table`, as in a shell; none stands for all but the server's own.
    Nobody's are those of POSITIONS: each commit of a position would be a change, and bring the next one.

    >>> wanted = TableFilter(["shop.*"])
    >>> wanted("shop", "orders"), wanted("mysql", "user")
    (True, False)
    """

    def __init__(self, patterns: Sequence[str], own: frozenset[str] = frozenset()) -> None:
        self.patterns, self.own = tuple(patterns), own

    def names(self) -> list[tuple[str, str]]:
        """The tables that are named whole."""
        whole = [pattern for pattern in self.patterns if not set(pattern) & set("*?[")]
        return [(database, table) for database, _, table in (name.partition(".") for name in whole)]

    def absent(self, there: Iterable[tuple[str, str]]) -> list[str]:
        """The patterns that none of these tables has.

        >>> TableFilter(["shop.*", "shop.imet"]).absent([("shop", "item")])
        ['shop.imet']
        """
        names = [".".join(table) for table in there]
        return [pattern for pattern in self.patterns if not fnmatch.filter(names, pattern)]

    def __call__(self, database: str, table: str) -> bool:
        if table == POSITIONS:
            return False
        if not self.patterns:
            return database not in self.own
        return any(fnmatch.fnmatchcase(f"{database}.{table}", pattern) for pattern in self.patterns)


def parts_of(name: str, there: Callable[[], Iterable[tuple[str, str]]]) -> tuple[str, str]:
    """Database and table of a name; each may have points in its own, and the tables that are `there` say where it parts.
    UsageError if two of them have the name.

    >>> parts_of("shop.item", list), parts_of("shop.de.item", lambda: [("shop", "item"), ("shop.de", "item")])
    (('shop', 'item'), ('shop.de', 'item'))
    """
    pairs = [(name[:at], name[at + 1 :]) for at, letter in enumerate(name) if letter == "."]
    if len(pairs) == 1:
        return pairs[0]
    tables = set(there())
    found = [pair for pair in pairs if pair in tables]
    if len(found) > 1:
        raise UsageError(
            f"Two tables are called {name}: {' and '.join(f'{table} of {database}' for database, table in found)}. Older "
            "rows of one cannot be told from the other's: begin without them (--snapshot never), or leave both out "
            "(--tables)."
        )
    return found[0] if found else pairs[0]


class OlderRows(NamedTuple):
    """How many rows a table holds that are, or may be, older than the log; None if this user may not look."""

    table: str
    rows: int | None
    estimated: bool = False

    def as_text(self) -> str:
        """
        >>> OlderRows("shop.item", 999).as_text(), OlderRows("shop.sale", 1_200_000, True).as_text()
        ('shop.item 999 rows (counted)', 'shop.sale about 1,200,000 rows (estimated)')
        """
        if self.rows is None:
            return f"{self.table} an unknown number of rows (this user may not read them)"
        about, how = ("about ", "estimated") if self.estimated else ("", "counted")
        return f"{self.table} {about}{counted(self.rows, 'row')} ({how})"


def sized(table: str, number: int, estimate: int) -> OlderRows:
    """Of a count that stopped behind COUNTED, and the server's estimate."""
    return OlderRows(table, number) if number <= COUNTED else OlderRows(table, max(number, estimate), True)


def check(older: Sequence[OlderRows], why: str, accepted: bool) -> None:
    """Refuse to begin if rows would be missing, unless that is `accepted` (--from-here): then say which."""
    if not older:
        return
    said = f"{why}: {', '.join(each.as_text() for each in older)}"
    if accepted:
        log.warning("%s. They do not come (--from-here).", said)
        return
    raise UsageError(f"{said}. They would not come. To begin without them, and copy them by hand: --from-here")
