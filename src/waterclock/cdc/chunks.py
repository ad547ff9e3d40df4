"""A chunk of a table's older rows, and what a database does so that one can be brought beside its log (snapshot.py).

Rule 1: a chunk is read in one short transaction, whose view says what it shows: nothing is written to the source, no table
        is locked against writers.
Rule 2: chunks of several tables share a view: together they are as large as was asked for, in rows, and no larger than
        BYTES; their rows are in memory until they are sent.
Rule 3: a value of a chunk has the bytes that the log would bring for it.
Rule 4: columns and key are those that the table has in the view.
Rule 5: rows of a table without a primary key have no order to be read in, and who has one of them twice has two. Such a
        table comes in one chunk, the first of its view, behind a TRUNCATE, which takes away what the log brought before: up
        to WHOLE_BYTES and WHOLE_ROWS. What is given out while it waits and is not in it follows it once more.
Rule 6: a table that gets another primary key, or whose key gets another type or order, begins anew: what is behind the last
        key in one order is not what is behind it in another.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from waterclock.cdc.held import OlderRest
from waterclock.cdc.part import Row
from waterclock.cdc.source import Record
from waterclock.changes.maxwell import COMPLETE, TRUNCATE, MaxwellMessage
from waterclock.changes.sql_types import ColumnTypes
from waterclock.changes.table_schema import TableSchema
from waterclock.errors import UsageError

BYTES = 16 << 20
WHOLE_BYTES, WHOLE_ROWS = 64 << 20, 500_000
BOOTSTRAP = "bootstrap-insert"
_OF_COMPLETED = ColumnTypes.parsed({"since": "bigint"})

_NONE = MaxwellMessage("", "", BOOTSTRAP, 0, "", 0, 0, False, (), {})

Standing = tuple[int, ...]  # a point of the log, in numbers that compare


@dataclass(slots=True)
class Chunk:
    """Rows by their message's key, and the message of each, `of` (part.py). `rest`: what is left of the table behind them,
    None if nothing is; `high`: a point of the log behind all that the view shows; `cut`: whether there were more rows than
    BYTES hold. `whole` are the messages of a table of rule 5, which has no rows by keys; None for any other. `absent`:
    why nothing is known of the table, such as "is gone"; `is_exact`: it holds at `high` alone, and behind that is to
    be read again. `schema`: the table's as the view has it, from no position on yet."""

    table: str
    rows: dict[bytes, Row]
    rest: OlderRest | None
    high: Standing
    cut: bool = False
    of: MaxwellMessage = _NONE
    whole: list[MaxwellMessage] | None = None
    absent: str = ""
    is_exact: bool = False
    schema: TableSchema | None = None

    def size(self) -> int:
        return len(self.rows if self.whole is None else self.whole)


def whole(of: MaxwellMessage, rows: Sequence[Row]) -> list[MaxwellMessage]:
    """The messages of a table of rule 5; none of no row."""
    emptied = [of._replace(type=TRUNCATE)] if rows else []
    return [*emptied, *(of._replace(data=row) for row in rows)]


def completed(of: MaxwellMessage, since: int, seconds: int) -> MaxwellMessage:
    """The message behind a table's last chunk, whose rows have the message `of`: what a target has of it up to the sequence
    `since`, and of no later one, is gone from the source."""
    data = {"since": str(since)}
    return MaxwellMessage(of.database, of.table, COMPLETE, seconds, "", 0, 0, True, (), data, types=_OF_COMPLETED)


def too_large(table: str) -> UsageError:
    """Rule 5, of a table that is larger."""
    return UsageError(
        f"{table} has no primary key, and comes in one piece only up to {WHOLE_BYTES >> 20} MB and {WHOLE_ROWS:,} rows. "
        "Give it a primary key; leave it out (--tables) and copy it by hand; or begin without what is older (--snapshot "
        "never)."
    )


class ChunkReader(Protocol):
    """One database's part of a snapshot. Numbers of steps are those of snapshot.py."""

    def there(self) -> list[str]:
        """The tables that the source has now, and brings."""

    def look(self, tables: Iterable[str]) -> dict[str, int]:
        """Before anything is read: UsageError for a table whose older rows cannot come; about how many rows each has."""

    def read(self, rests: Mapping[str, OlderRest], rows: int) -> list[Chunk]:
        """Steps 2 and 3: of one view a chunk of each table, in their order, until there are so many rows: at least of the
        first. None of any if the view lacks what the log has given out, or somebody locks a table: read again later. No
        lock is waited for: the log stands still meanwhile."""

    def saw(self, record: Record, chunks: Mapping[str, Chunk]) -> None:
        """Step 4: the log gives this out, and `chunks` wait, by their tables."""

    def is_between(self) -> bool:
        """Whether the log's reader stands between two transactions."""

    def standing(self) -> Standing:
        """Where it stands, if it is between two: everything before that was given out."""

    def numbered(self, seconds: int) -> int:
        """A sequence of a chunk's own, behind all that was given out; the log counts on from it. `seconds`, since 1970, are
        now: what a former capture wrote to the same target is older, though this one's log has had no transaction."""

    def close(self) -> None: ...
