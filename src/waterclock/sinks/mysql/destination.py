"""format = "mysql": a database of MySQL or MariaDB. The reference is made of this.

url     mysql://user@host:3306/database, or mariadb://, of a database that is there; ?tls=true has the certificate
        checked. No password: MYSQL_PWD has it
table   the table of results; TABLE_dead_letters and TABLE_batches stand beside it. Letters, digits and _, up
        to 51 characters
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

from waterclock.errors import UsageError
from waterclock.sinks.base import Sink
from waterclock.sinks.destination import LONGEST_ENDING, Destination, SinkTable

_NAME = 64  # characters of a name


@dataclass(frozen=True, slots=True)
class MySQLDatabase(Destination):
    """A database of a MySQL or MariaDB server."""

    kind = "a database of MySQL"
    keys = ("url", "table")
    records_inputs = True

    url: str
    table: str

    @classmethod
    def from_table(cls, given: SinkTable) -> MySQLDatabase:
        """See `Destination`."""
        url, table = given.text("url"), given.text("table", "results")
        address_of(url)
        return cls(url, mysql_table(table))

    @property
    def place(self) -> str:
        """See `Destination`."""
        return f"the table {self.table!r} in {self.url}"

    def sink(self) -> Sink:
        """See `Destination`."""
        from waterclock.sinks.mysql.mysql import MySQLSink  # its package is that of the extra `mysql`

        return MySQLSink(self.url, self.table)


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is, who comes, and which database is meant."""

    host: str
    port: int
    user: str
    database: str
    tls: bool


def address_of(url: str) -> Address:
    """The parts of the URL that a user names; UsageError, which does not show it, if it is none or holds a password.

    >>> address_of("mysql://reports@localhost:3306/shop")
    Address(host='localhost', port=3306, user='reports', database='shop', tls=False)
    """
    try:
        parts = urlsplit(url)
        port = parts.port or 3306
    except ValueError as error:
        raise UsageError(f"the sink's url is no URL: {error}") from error
    options = parse_qsl(parts.query, keep_blank_values=True)
    if parts.password is not None or any("pass" in name.lower() for name, _ in options):
        raise UsageError("the sink's url holds a password: leave it out, and set MYSQL_PWD in the environment")
    database = unquote(parts.path.removeprefix("/"))
    is_whole = url.isprintable() and parts.hostname and parts.username and database and "/" not in database
    if parts.scheme not in ("mysql", "mariadb") or not is_whole or options not in ([], [("tls", "true")]):
        raise UsageError(
            "the sink's url must read like mysql://user@host:3306/database, with ?tls=true behind it for TLS"
        )
    return Address(str(parts.hostname), port, unquote(str(parts.username)), database, bool(options))


def mysql_table(name: str) -> str:
    """`name` of a table; UsageError if it is no plain one, or too long for the tables beside it.

    >>> mysql_table("results")
    'results'
    """
    longest = _NAME - LONGEST_ENDING
    if not name.isidentifier() or len(name) > longest or max(name) > "\uffff":
        raise UsageError(f"sink table {name!r} must be a plain name of up to {longest} letters, digits and _")
    return name


def mysql_column(name: str) -> str:
    """`name` of a column; UsageError if MySQL has none of that name."""
    if len(name) > _NAME or max(name) > "\uffff" or name != name.rstrip():
        raise UsageError(
            f"the column {name!r} cannot be in a table of MySQL: up to {_NAME} characters, none beyond U+FFFF, and no "
            "space at the end. Rename it in [source.columns]"
        )
    return name
