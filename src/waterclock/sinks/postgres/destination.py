"""format = "postgres": a database of PostgreSQL. The reference is made of this.

url      postgresql://user@host:5432/database, with libpq's parameters behind `?`, of a database in UTF8 that is there.
         No password: PGPASSWORD, or the file that PGPASSFILE names, has it
schema   where the tables stand; it is made if it is missing. Letters, digits and _, up to 50 bytes
table    the table of results; TABLE_dead_letters and TABLE_batches stand beside it. Letters, digits and _, up to
         50 bytes
schemas  for changes of tables: the capture's topic of schemas, kafka://host:9092/NAME.schema. Tables that are made get the
         types of the source, and follow its ALTER TABLE (sinks/following.py). Without it their columns are what their
         values need
on_drop  what becomes of a column that the source dropped: "keep" (the default) or "follow", which drops it
"""

from __future__ import annotations

from dataclasses import dataclass

from waterclock.errors import UsageError
from waterclock.postgres.url import postgres_url
from waterclock.sinks.base import Sink
from waterclock.sinks.destination import LONGEST_ENDING, Destination, SinkTable
from waterclock.sinks.mirrors import Replica

_NAME_BYTES = 63  # PostgreSQL cuts longer ones without an error


@dataclass(frozen=True, slots=True)
class PostgresDatabase(Destination):
    """A database of a PostgreSQL server."""

    kind = "a database of PostgreSQL"
    keys = ("url", "schema", "table", "schemas", "on_drop")
    records_inputs = True
    takes_changes = True

    url: str
    schema: str
    table: str
    mirror: Replica | None = None

    @classmethod
    def from_table(cls, given: SinkTable) -> PostgresDatabase:
        """See `Destination`."""
        table = given.text("table", "changes" if given.changes else "results")
        url, schema = given.text("url"), given.text("schema", "public")
        mirror = Replica.from_table(given) if given.changes else None
        return cls(postgres_url(url), postgres_name("schema", schema), postgres_name("table", table), mirror)

    @property
    def place(self) -> str:
        """See `Destination`."""
        return f"the table {self.table!r} in the schema {self.schema!r} of {self.url}"

    @property
    def alone(self) -> str:
        """See `Destination`."""
        return f"the source's tables in {self.url}" if self.mirror else self.place

    def sink(self) -> Sink:
        """See `Destination`."""
        from waterclock.sinks.postgres.postgres import PostgresSink  # its packages are those of the extra `postgres`

        return PostgresSink(self.url, self.table, schema=self.schema, mirror=self.mirror)


def postgres_name(what: str, name: str) -> str:
    """`name` of a table or schema; UsageError if it is no plain one, or too long for the tables beside it.

    >>> postgres_name("table", "results")
    'results'
    """
    if not name.isidentifier():
        raise UsageError(f"sink {what} {name!r} must be a plain name: letters, digits and _")
    longest = _NAME_BYTES - LONGEST_ENDING
    if len(name.encode()) > longest:
        raise UsageError(f"sink {what} {name!r} is too long: PostgreSQL leaves {longest} bytes for it")
    return name


def fitting_postgres(name: str, what: str, remedy: str) -> str:
    """`name`, which errors call `what`; UsageError with the remedy if PostgreSQL would cut it."""
    if len(name.encode()) > _NAME_BYTES:
        raise UsageError(f"{what} is too long for PostgreSQL, which takes {_NAME_BYTES} bytes: {remedy}")
    return name
