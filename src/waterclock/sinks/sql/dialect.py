"""What differs from database to database: words, types, and the way to it. A sink asks nothing else of a database.

Rule 1: a dialect keeps a connection, which is made when it is first needed. What goes wrong becomes an error of ours here.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from waterclock.sinks.base import Batch
from waterclock.sinks.ledger import added
from waterclock.sinks.mirrors import MirroringDatabase
from waterclock.sinks.tables import Table, quoted

Columns = tuple[tuple[str, str], ...]  # (name, type in the words of the database)


class SqlDialect(ABC):
    """A database, for a sink in it."""

    placeholder: ClassVar[str] = "?"  # stands for a parameter in a statement
    numbers: ClassVar[Columns]  # in front of results and dead letters: batch_id, and batch_row if rows have no order
    dead: ClassVar[Sequence[str]]  # types of file, line, reason, text
    batch: ClassVar[Sequence[str]]  # of query_id, batch_id, offsets, counters, watermark, seconds
    owner: ClassVar[Sequence[str]]  # of lineage, epoch
    positions: ClassVar[Sequence[str]] = ()  # of table_name, key, position, deleted; none: no changes of tables
    schema: str = ""  # in which its tables stand, if tables have schemas
    place: str  # of its tables, as it stands behind "in"

    def name(self, table: str) -> str:
        """The name of one of the sink's tables, quoted."""
        return quoted(table)

    @abstractmethod
    def columns_of(self, schema: pa.Schema) -> Columns:
        """The columns of a table that keeps rows of `schema`; UsageError if it cannot."""

    @abstractmethod
    def found(self, table: str) -> Table:
        """A table as it is there; without columns if it is not."""

    def faults_of(self, table: str) -> Sequence[str]:
        """What is wrong with a table that is there, beside its columns."""
        return ()

    def make(self, table: Table, name: str) -> None:
        """Make a table."""
        self.run(f"CREATE TABLE {self.name(name)} ({table.definition()})")

    @abstractmethod
    def begin(self, lock: str, may_be_taken_over: bool) -> None:
        """Begin a transaction, alone among those that name the same `lock`; if the run may be taken over, do not hold it
        for long while the run stands still."""

    @abstractmethod
    def commit(self) -> None:
        """See `Sink`."""

    @abstractmethod
    def rollback(self) -> None:
        """See `Sink`."""

    @abstractmethod
    def run(self, statement: str, *parameters: object) -> list[Any]:
        """The rows that a statement gives, if any."""

    def ask(self, query: str) -> list[Any]:
        """`run` outside of a transaction, by a new connection if the one that was there is gone."""
        return self.run(query)

    @abstractmethod
    def insert(self, table: str, rows: pa.Table) -> None:
        """Add `rows`, of which there are some, in their order to `table`, a quoted name; all in one transaction."""

    def storable(self, batch: Batch) -> Batch:
        """`batch`; the results that the database cannot hold are dead letters."""
        return batch

    def storable_letters(self, rows: pa.Table) -> pa.Table:
        """Dead letters as the database can hold them."""
        return rows

    def time(self, us: int) -> object:
        """A time, in microseconds since 1970, as a parameter."""
        return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us)

    def mirrored(self) -> MirroringDatabase:
        """The mirrored tables, in the transaction that has begun."""
        raise NotImplementedError

    def totals(self, batches: str) -> dict[str, int]:
        """The sums of the counters in the table of batches, a quoted name."""
        total: dict[str, int] = {}
        for (counters,) in self.ask(f"SELECT counters FROM {batches}"):
            total = added(total, json.loads(counters))
        return total

    def errors(self) -> AbstractContextManager[None]:
        """What goes wrong with the place, as an error of ours; nothing if each statement says so by itself."""
        return nullcontext()

    @abstractmethod
    def close(self) -> None:
        """See `Sink`."""


class SqlSession(Protocol):
    """A connection to a server, made anew if it is lost between two transactions."""

    url: str

    def begin(self, lock: str) -> None: ...

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def run(self, statement: str, *parameters: object) -> list[Any]: ...

    def ask(self, query: str) -> list[Any]: ...

    def close(self) -> None: ...


class ServerDialect(SqlDialect):
    """A database of a server, by a session that says what goes wrong. Rows stand in no order there: they are numbered."""

    placeholder = "%s"

    def __init__(self, session: SqlSession) -> None:
        self.place = session.url
        self._session = session

    def begin(self, lock: str, may_be_taken_over: bool) -> None:
        """See `SqlDialect`."""
        self._session.begin(lock)

    def commit(self) -> None:
        """See `SqlDialect`."""
        self._session.commit()

    def rollback(self) -> None:
        """See `SqlDialect`."""
        self._session.rollback()

    def run(self, statement: str, *parameters: object) -> list[Any]:
        """See `SqlDialect`."""
        return self._session.run(statement, *parameters)

    def ask(self, query: str) -> list[Any]:
        """See `SqlDialect`."""
        return self._session.ask(query)

    def close(self) -> None:
        """See `SqlDialect`."""
        self._session.close()


def text_times(times: pa.Array) -> pa.Array:
    """Times, or microseconds since 1970, as "2007-10-01 00:00:00.000000", in UTC; ValueError if that cannot be written."""
    texts = pc.cast(pc.cast(pc.cast(times, pa.int64()), pa.timestamp("us")), pa.string())
    if pc.any(pc.starts_with(texts, "<")).as_py():  # Arrow's "<value out of range: ...>"
        raise ValueError("a time lies too far from the years 1 to 9999 to be written: shorten the rules' durations")
    return texts
