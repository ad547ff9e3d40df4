"""A chunk of a table's older rows, and what a database does so that one can be brought beside its log (snapshot.py).

Rule 1: a chunk is read in one short transaction, whose view says what it shows: nothing is written to the source, no table
        is locked against writers.
Rule 2: it is as large as was asked for, in rows, and no larger than BYTES; its rows are in memory until they are sent.
Rule 3: a value of a chunk has the bytes that the log would bring for it.
Rule 4: columns and key are those that the table has in the view.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from waterclock.cdc.held import OlderRest
from waterclock.cdc.part import Row
from waterclock.cdc.source import Record
from waterclock.changes.maxwell import MaxwellMessage

BYTES = 16 << 20
BOOTSTRAP = "bootstrap-insert"

_NONE = MaxwellMessage("", "", BOOTSTRAP, 0, "", 0, 0, False, (), {})

Standing = tuple[int, ...]  # a point of the log, in numbers that compare


@dataclass(slots=True)
class Chunk:
    """Rows by their message's key, and the message of each, `of` (part.py). `rest`: what is left of the table behind them,
    None if nothing is; `high`: a point of the log behind all that the view shows; `cut`: whether there were more rows than
    BYTES hold."""

    table: str
    rows: dict[bytes, Row]
    rest: OlderRest | None
    high: Standing
    cut: bool = False
    of: MaxwellMessage = _NONE


class ChunkReader(Protocol):
    """One database's part of a snapshot. Numbers of steps are those of snapshot.py."""

    def look(self, tables: Iterable[str]) -> None:
        """Before anything is read: UsageError for a table whose older rows cannot come."""

    def read(self, table: str, rest: OlderRest, rows: int) -> Chunk | None:
        """Steps 2 and 3; None if the view lacks what the log has given out: read again later."""

    def saw(self, record: Record, chunk: Chunk | None) -> None:
        """Step 4: the log gives this out, and `chunk` waits."""

    def is_between(self) -> bool:
        """Whether the log's reader stands between two transactions."""

    def standing(self) -> Standing:
        """Where it stands, if it is between two: everything before that was given out."""

    def numbered(self) -> int:
        """A sequence of a chunk's own, behind all that was given out; the log counts on from it."""

    def close(self) -> None: ...
