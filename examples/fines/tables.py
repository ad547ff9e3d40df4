"""The pipeline's tables, in SQLite or PostgreSQL: what the check reads of them, and a dump to compare two runs by.

Rule 1: a dump is all that was written, in the order in which it was written; left out is only how long a batch took, and
        what Spark notes of it beside the source's offsets: the moment, and Spark's settings.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Protocol

Rows = list[tuple[Any, ...]]


class Tables(Protocol):
    """The tables of one run."""

    def days(self, kind: str, rule: str) -> Iterator[tuple[str, date]]:
        """(case, day) of the results of one rule."""

    def delivered(self) -> Iterator[tuple[str, str]]:
        """(case, id) of each event, in the order in which they were delivered."""

    def dump(self) -> Iterator[str]:
        """Every row of every table, a line each."""


@dataclass(frozen=True, slots=True)
class SQLiteTables:
    """Those in a file of SQLite."""

    path: Path

    def days(self, kind: str, rule: str) -> Iterator[tuple[str, date]]:
        """See `Tables`."""
        rows = self._ask("SELECT key, substr(due, 1, 10) FROM results WHERE kind = ? AND rule = ?", kind, rule)
        return ((case, date.fromisoformat(day)) for case, day in rows)

    def delivered(self) -> Iterator[tuple[str, str]]:
        """See `Tables`."""
        return iter(self._ask("SELECT key, event_event_id FROM results WHERE kind = 'event' ORDER BY rowid"))

    def dump(self) -> Iterator[str]:
        """See `Tables`."""
        for table in ("results", "results_dead_letters"):
            yield from map(repr, self._ask(f"SELECT * FROM {table} ORDER BY rowid"))
        query = "SELECT batch_id, offsets, counters, watermark FROM results_batches ORDER BY batch_id"
        yield from map(_batch, self._ask(query))

    def _ask(self, query: str, *values: object) -> Rows:
        with closing(sqlite3.connect(self.path)) as db:
            return db.execute(query, values).fetchall()


@dataclass(frozen=True, slots=True)
class PostgresTables:
    """Those in a schema of a database."""

    url: str
    schema: str

    def days(self, kind: str, rule: str) -> Iterator[tuple[str, date]]:
        """See `Tables`."""
        query = "SELECT key, (due AT TIME ZONE 'UTC')::date FROM results WHERE kind = %s AND rule = %s"
        return iter(self._ask(query, kind, rule))

    def delivered(self) -> Iterator[tuple[str, str]]:
        """See `Tables`."""
        query = "SELECT key, event_event_id FROM results WHERE kind = 'event' ORDER BY batch_id, batch_row"
        return iter(self._ask(query))

    def dump(self) -> Iterator[str]:
        """See `Tables`."""
        for table in ("results", "results_dead_letters"):
            yield from (row for (row,) in self._ask(f"SELECT {table}::text FROM {table} ORDER BY batch_id, batch_row"))
        query = "SELECT batch_id, offsets, counters::text, watermark::text FROM results_batches ORDER BY batch_id"
        yield from map(_batch, self._ask(query))

    def _ask(self, query: str, *values: object) -> Rows:
        import psycopg

        options = f"-c search_path={self.schema} -c timezone=UTC"
        with closing(psycopg.connect(self.url, autocommit=True, options=options)) as db:
            return db.execute(query, values or None).fetchall()  # type: ignore[no-any-return]


def _batch(row: tuple[Any, ...]) -> str:
    """A batch's row: of its offsets the sources' lines, which follow Spark's version and its notes of the batch."""
    number, offsets, counters, watermark = row
    return repr((number, offsets.splitlines()[2:], json.loads(counters), watermark))
