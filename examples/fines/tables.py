"""The pipeline's tables, in SQLite or PostgreSQL: what the check reads of them, and a dump to compare two runs by.

Rule 1: a dump is all that was written, in the order in which it was written, and the form of all tables that are there;
        left out is only how long a batch took, and what Spark notes of it beside the source's offsets: the moment, and
        Spark's settings.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

Rows = list[tuple[Any, ...]]
Result = tuple[str, str, str, datetime]
Delivered = tuple[str, str, str, datetime, str, int]
_QUERIES = "SELECT count(DISTINCT query_id) FROM results_batches"  # each run has one of its own, and keeps it
_EVENT = "key, event_case_id, event_activity, {}, event_event_id, event_seq"


class Tables(Protocol):
    """The tables of one run."""

    def results(self) -> Iterator[Result]:
        """(kind, rule, case, moment) of all that is no event."""

    def delivered(self) -> Iterator[Delivered]:
        """(key, case, activity, moment, id, sequence) of each event, in the order in which they were delivered."""

    def dump(self) -> Iterator[str]:
        """Every row of every table, a line each, and before them a line for each column of a table."""


@dataclass(frozen=True, slots=True)
class SQLiteTables:
    """Those in a file of SQLite."""

    path: Path

    def results(self) -> Iterator[Result]:
        """See `Tables`."""
        rows = self._ask("SELECT kind, rule, key, due FROM results WHERE kind <> 'event'")
        return ((kind, rule, case, datetime.fromisoformat(due)) for kind, rule, case, due in rows)

    def delivered(self) -> Iterator[Delivered]:
        """See `Tables`."""
        query = f"SELECT {_EVENT.format('event_ts')} FROM results WHERE kind = 'event' ORDER BY rowid"
        return map(_delivered, self._ask(query))

    def dump(self) -> Iterator[str]:
        """See `Tables`."""
        yield from map(repr, self._ask("SELECT name, sql FROM sqlite_master ORDER BY name"))
        for table in ("results", "results_dead_letters"):
            yield from map(repr, self._ask(f"SELECT * FROM {table} ORDER BY rowid"))
        yield from map(repr, self._ask(_QUERIES))
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

    def results(self) -> Iterator[Result]:
        """See `Tables`."""
        return iter(self._ask("SELECT kind, rule, key, due AT TIME ZONE 'UTC' FROM results WHERE kind <> 'event'"))

    def delivered(self) -> Iterator[Delivered]:
        """See `Tables`."""
        columns = _EVENT.format("(event_ts AT TIME ZONE 'UTC')::text")
        return map(
            _delivered, self._ask(f"SELECT {columns} FROM results WHERE kind = 'event' ORDER BY batch_id, batch_row")
        )

    def dump(self) -> Iterator[str]:
        """See `Tables`."""
        columns = "table_name, ordinal_position, column_name, data_type"
        schema = f"table_schema = '{self.schema}'"
        yield from map(
            repr, self._ask(f"SELECT {columns} FROM information_schema.columns WHERE {schema} ORDER BY 1, 2")
        )
        for table in ("results", "results_dead_letters"):
            yield from (row for (row,) in self._ask(f"SELECT {table}::text FROM {table} ORDER BY batch_id, batch_row"))
        yield from map(repr, self._ask(_QUERIES))
        query = "SELECT batch_id, offsets, counters::text, watermark::text FROM results_batches ORDER BY batch_id"
        yield from map(_batch, self._ask(query))

    def _ask(self, query: str, *values: object) -> Rows:
        import psycopg

        options = f"-c search_path={self.schema} -c timezone=UTC"
        with closing(psycopg.connect(self.url, autocommit=True, options=options)) as db:
            return db.execute(query, values or None).fetchall()  # type: ignore[no-any-return]


def _delivered(row: tuple[Any, ...]) -> Delivered:
    key, case, activity, moment, number, sequence = row
    return key, case, activity, datetime.fromisoformat(moment), number, sequence


def _batch(row: tuple[Any, ...]) -> str:
    """A batch's row: of its offsets the sources' lines, which follow Spark's version and its notes of the batch."""
    number, offsets, counters, watermark = row
    return repr((number, offsets.splitlines()[2:], json.loads(counters), watermark))
