"""The rows of a SELECT as they come: PyMySQL's, or where there is compiled code the packets, which that code reads at once.

Rule 1: nothing is written before all is there: whoever asked looks first whether the table is still the same.
Rule 2: behind the columns of a row stand the values of its key; those of the last row alone are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pymysql.cursors import SSCursor
from pymysql.err import raise_mysql_exception

from waterclock.cdc.mysql.binlog import length_encoded
from waterclock.cdc.mysql.selected import SelectedTable
from waterclock.cdc.part import Row
from waterclock.errors import ConnectionLost

try:
    from waterclock.cdc.mysql._images import passed
except ImportError:
    passed = None  # type: ignore[assignment]

_PIECE = 1 << 16


@dataclass(slots=True)
class SelectedRows:
    """Rows, `count` of them: of PyMySQL, or `packets` up to `end`; about how many bytes. `is_cut`: there are more than so
    many bytes hold; `is_last`: none is left behind them."""

    rows: list[Any] = field(default_factory=list)
    packets: bytearray = field(default_factory=bytearray)
    end: int = 0
    count: int = 0
    size: int = 0
    is_cut: bool = False
    is_last: bool = True

    def written(self, plan: SelectedTable) -> tuple[Sequence[Row], list[bytes]]:
        """The rows as JSON texts, and the values behind the last one; Unreadable for what cannot be written."""
        if plan.compiled is not None and self.end:
            found, behind = plan.compiled.rows(self.packets, self.end)
            return found, _values(behind)
        columns = plan.columns
        made = [
            {
                column.name: "null" if value is None else column.write(value)
                for column, value in zip(columns, row[: len(columns)], strict=True)
            }
            for row in self.rows
        ]
        return made, list(self.rows[-1][len(columns) :]) if made else []


def fetched(cursor: SSCursor, rows: int, most: int, raw: bool) -> SelectedRows:
    """What a cursor has, which is asked for `rows`; no more is taken behind `most` bytes. `raw`: as packets."""
    if raw:
        return _packets(cursor, rows, most)
    found = SelectedRows()
    while row := cursor.fetchone():
        found.rows.append(row)
        found.count += 1
        found.size += sum(map(len, filter(None, row)))
        if found.size > most and found.count < rows:
            found.is_cut = True
            break
    return found


def _packets(cursor: SSCursor, rows: int, most: int) -> SelectedRows:
    connection, result, found = cursor.connection, cursor._result, SelectedRows()
    data, is_end = found.packets, False
    while not is_end and not found.is_cut:
        piece = connection._rfile.read1(_PIECE)
        if not piece:
            raise ConnectionLost("The database closed the connection while rows were read.")
        data += piece
        found.end, more, is_end = passed(data, found.end)
        found.count += more
        found.size = found.end
        found.is_cut = not is_end and found.end > most and found.count < rows
    if is_end:  # its packet may be cut, and the next answer begins behind it
        size = 4 + int.from_bytes(data[found.end : found.end + 3], "little")
        data += connection._rfile.read(max(0, found.end + size - len(data)))
    result.unbuffered_active, result.connection = False, None  # nothing is left for PyMySQL to read
    if is_end and data[found.end + 4] == 0xFF:
        raise_mysql_exception(bytes(data[found.end + 4 :]))
    return found


def _values(data: bytes) -> list[bytes]:
    found, at = [], 0
    while at < len(data):
        size, at = length_encoded(data, at)
        found.append(data[at : at + size])
        at += size
    return found
