"""Large values that a message left out (TOAST), read from the table by the row's key if no reader may have them.

PostgreSQL sends of an update only the large values that it touched: whoever has the row has the others. But a row that is
older than the slot never came, nor did one whose insert was left out, or is of another publication. No message says
which rows these are, so it is turned round: the capture remembers which rows it sent whole.

Rule 1: the values of a row that was not sent whole since this start are read, once; then it is remembered. The LATEST
        rows are: what was forgotten is read again, which is right too, and costs a look.
Rule 2: a table's rows of one transaction are read together, by one SELECT, up to AT_ONCE of them.
Rule 3: what is read is as it is then. It may be younger than the change: then the change that made it so comes later, and
        brings it again. A row that is not there any more goes, or gets another key, with a later change.
Rule 4: columns that were not found are left out of the row, never made up; if it is not a row's own end (the role may
        not look, the table was changed), that is said with the number of rows.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from waterclock.cdc.postgres.rows import UNTOUCHED, Relation, Row
from waterclock.errors import Unreadable

if TYPE_CHECKING:
    from waterclock.cdc.postgres.catalog import TableCatalog

log = logging.getLogger("waterclock.cdc")
AT_ONCE = 500
LATEST = 100_000  # of 16 bytes each: some 15 MB
SMALL = 1000  # bytes of a message; a row of fewer has hardly a value apart, and is read if it has


class LargeValues:
    """Which rows were sent whole, and the values of those that were not."""

    def __init__(self, table: TableCatalog) -> None:
        self._table = table
        self._sent: dict[bytes, None] = {}  # the latest last
        self._said: set[tuple[str, str]] = set()

    def sent(self, relation: Relation, row: Row) -> None:
        """This row goes out whole."""
        known = _known(relation, row)
        self._sent.pop(known, None)
        self._sent[known] = None
        if len(self._sent) > LATEST:
            del self._sent[next(iter(self._sent))]

    def has(self, relation: Relation, row: Row) -> bool:
        """Whether this row went out whole before."""
        return _known(relation, row) in self._sent

    def forget_all(self) -> None:
        """Something was left out, and nobody knows what."""
        self._sent.clear()

    def fill(self, rows: Iterable[tuple[Relation, Row]]) -> None:
        """Put what can be read into these rows, in their places; what was not found leaves its row."""
        tables: dict[tuple[int, tuple[str, ...]], tuple[Relation, list[Row]]] = {}
        for relation, row in rows:
            tables.setdefault((relation.number, relation.names), (relation, []))[1].append(row)
        for relation, lacking in tables.values():
            try:
                self.fill_table(relation, lacking)
            except Unreadable as reason:
                self._say(relation, len(lacking), reason)
                self._take_out(relation, lacking)

    def fill_table(self, relation: Relation, rows: Sequence[Row]) -> None:
        """The same for rows of one table; Unreadable if they cannot be looked up."""
        names = [name for name in relation.names if any(row.get(name) == UNTOUCHED for row in rows)]
        keys = list(dict.fromkeys(relation.key_of(row) for row in rows))
        found: dict[tuple[str, ...], dict[str, str]] = {}
        for printed in self._table.rows_of(relation, keys, names):
            read = {name: relation.as_json(name, text) for name, text in printed.items()}
            found[tuple(read[name] for name in relation.key)] = read
        for row in rows:
            now = found.get(tuple(row[name] for name in relation.key), {})
            row.update({name: text for name, text in now.items() if row[name] == UNTOUCHED})
        self._take_out(relation, rows)

    def _take_out(self, relation: Relation, rows: Iterable[Row]) -> None:
        """Rule 4."""
        for row in rows:
            absent = [name for name, text in row.items() if text == UNTOUCHED]
            for name in absent:
                del row[name]
            if absent:
                self._sent.pop(_known(relation, row), None)

    def _say(self, relation: Relation, count: int, reason: Unreadable) -> None:
        """Once for each table: a warning for each transaction would hide the others."""
        if (relation.schema, relation.table) not in self._said:
            self._said.add((relation.schema, relation.table))
            log.warning(
                "%s.%s: %d updated rows, and those to come, are sent without the large values that were not touched, "
                "which a reader of this capture may never have had. %s",
                relation.schema,
                relation.table,
                count,
                reason,
            )


def _known(relation: Relation, row: Row) -> bytes:
    """A row in few bytes. Columns are part of it: one that got another name has not come under that one yet."""
    said = (relation.number, relation.names, [row[name] for name in relation.key])
    return blake2b(repr(said).encode(), digest_size=16).digest()
