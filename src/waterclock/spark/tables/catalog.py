"""The catalogs of a Spark session, used by SQL and by names, so that each kind will do; and what Java threw, in a line.

Rule 1: nothing is used that only one kind of catalog knows. What a table's provider knows beyond it stands in lakes.py.
Rule 2: a session keeps tables that it has read: who wants to see what others wrote says `refresh` first.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import dropwhile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql.pandas.types import from_arrow_schema

from waterclock.errors import unstopped

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

# a jar that was built for another Spark: a method or class is not there, or is of another kind
_LINKAGE = (
    "NoSuchMethodError",
    "NoSuchFieldError",
    "NoClassDefFoundError",
    "IncompatibleClassChangeError",
    "AbstractMethodError",
    "ClassNotFoundException",
    "VerifyError",
)
_COLLISIONS = ("Concurrent", "ValidationException", "CommitFailedException")
_MANY = 20  # causes that are followed


def explained(error: Exception) -> str:
    """What is wrong with the tables of a session, and where to look."""
    said = unstopped(cause_of(error))
    if any(name in said for name in _LINKAGE):
        return (
            f"{said}. The library of Delta Lake or Iceberg is not in Spark's session, or was built for another Spark than "
            f"{pyspark.__version__}: docs/operations.md says which were tried together"
        )
    return f"{said}. Look at the catalogs and jars of Spark's session ([spark.conf]), and at the table's name"


def cause_of(error: Exception) -> str:
    """The last cause, in a line."""
    cause = _causes(error)[-1]
    return (cause.strip().partition("\n")[0] or type(error).__name__).rstrip(". ")


def is_collision(error: Exception) -> bool:
    """Whether somebody else's commit came in between."""
    return any(name in cause.partition(":")[0] for cause in _causes(error) for name in _COLLISIONS)


def _causes(error: Exception) -> list[str]:
    """What was thrown, and its causes: each in Java's words, with its class in front."""
    thrown: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    found: list[str] = []
    try:
        while thrown is not None and len(found) < _MANY:
            found.append(str(thrown.toString()))
            thrown = thrown.getCause()
    except Exception:  # Java itself is gone
        thrown = None
    return found or [str(error)]


_DETAILS, _PROVIDER = "# Detailed Table Information", "Provider"
_CATALOG = "spark.sql.catalog."
_FOR_ITSELF = "SparkSessionCatalog"  # Iceberg's, which leaves the choice to whoever makes a table


class Catalog:
    """The catalogs of `session`; tables are named as in SQL, with points."""

    def __init__(self, session: SparkSession) -> None:
        self.session = session

    def exists(self, table: str) -> bool:
        return bool(self.session.catalog.tableExists(quoted(table)))

    def provider(self, table: str) -> str:
        """Who writes the table's files, in Spark's word for it; empty if it is none that can be written to."""
        rows = self.session.sql(f"DESCRIBE TABLE EXTENDED {quoted(table)}").collect()
        details = dropwhile(lambda row: row["col_name"] != _DETAILS, rows)
        return next((row["data_type"].lower() for row in details if row["col_name"] == _PROVIDER), "")

    def provider_of_new(self, table: str) -> str | None:
        """What a catalog that makes tables of one kind alone makes; None if somebody has to say it."""
        parts = table.split(".")
        named = self.session.conf.get(_CATALOG + parts[0], "") if len(parts) > 1 else ""
        kind = named or self.session.conf.get(_CATALOG + self.session.catalog.currentCatalog(), "") or ""
        if ".iceberg." in kind and _FOR_ITSELF not in kind:
            return "iceberg"
        return "delta" if ".delta." in kind or ".unitycatalog." in kind else None

    def columns(self, table: str) -> tuple[tuple[str, str], ...]:
        """Name and type of each column, in Spark's words."""
        return described(self.rows(table).schema)

    def rows(self, table: str) -> DataFrame:
        return self.session.table(quoted(table))

    def refresh(self, table: str) -> None:
        """Forget what the session has read of the table."""
        self.session.catalog.refreshTable(quoted(table))

    def properties(self, table: str) -> dict[str, str]:
        rows = self.session.sql(f"SHOW TBLPROPERTIES {quoted(table)}").collect()
        return {row["key"]: row["value"] for row in rows}

    def set_property(self, table: str, name: str, value: str) -> None:
        """Set a property of the table, in a commit of its own."""
        self.session.sql(f"ALTER TABLE {quoted(table)} SET TBLPROPERTIES ({literal(name)} = {literal(value)})")

    def make_namespace(self, table: str) -> None:
        """Make the namespace of a table that is to be made; nothing if it is there."""
        namespace = table.rpartition(".")[0]
        if namespace and not self.session.catalog.databaseExists(quoted(namespace)):
            self.session.sql(f"CREATE NAMESPACE IF NOT EXISTS {quoted(namespace)}")

    def make(self, table: str, schema: pa.Schema, provider: str, properties: Mapping[str, str]) -> None:
        """Make a table; an error of Spark's if there is one."""
        writer = self.frame(schema.empty_table()).writeTo(quoted(table)).using(provider)
        for name, value in properties.items():
            writer = writer.tableProperty(name, value)
        writer.create()

    def drop(self, table: str, with_files: str = "") -> None:
        self.session.sql(f"DROP TABLE {quoted(table)} {with_files}")

    def frame(self, rows: pa.Table) -> DataFrame:
        """Rows of the driver's as a DataFrame; times without a zone stay such, whatever the session's zone is."""
        return self.session.createDataFrame(rows, from_arrow_schema(rows.schema, prefer_timestamp_ntz=True))


def described(schema: StructType) -> tuple[tuple[str, str], ...]:
    """Name and type of each column, in Spark's words."""
    return tuple((field.name, field.dataType.simpleString()) for field in schema)


def quoted(name: str) -> str:
    """A name with points as SQL writes it.

    >>> quoted("lake.shop-1.results")
    '`lake`.`shop-1`.`results`'
    """
    return ".".join(f"`{part}`" for part in name.split("."))


def literal(text: str) -> str:
    r"""A text as Spark's SQL writes it.

    >>> literal("it's")
    "'it\\'s'"
    """
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
