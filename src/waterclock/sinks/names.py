"""What a user names for a sink, checked before it becomes SQL or a connection."""

from __future__ import annotations

import re

from waterclock.errors import UsageError

_KAFKA_BYTES = 249  # of a topic's name
_POSTGRES_BYTES = 63  # of a name; PostgreSQL cuts longer ones without an error
_NOT_IN_DELTA = " ,;{}()\n\t="  # in a column's name; without it, every engine can read the table
_NOT_IN_A_LOCATION = "?#%*[]^|\\"  # the package deltalake takes them for parts of a URL, and dies of some
_FOLDER_BYTES = 255  # of a name in most file systems
_LONGEST_ENDING = len("_dead_letters")


def sqlite_table(name: str) -> str:
    """`name`, which is written into SQL; UsageError where it is no plain one.

    >>> sqlite_table("results")
    'results'
    """
    if not name.isidentifier() or name.lower().startswith("sqlite_"):
        raise UsageError(
            f"sink table {name!r} must be a plain name: letters, digits and _ (sqlite_... is SQLite's own)"
        )
    return name


def postgres_name(what: str, name: str) -> str:
    """`name` of a table or schema; UsageError where it is no plain one, or too long for the tables beside it.

    >>> postgres_name("table", "results")
    'results'
    """
    if not name.isidentifier():
        raise UsageError(f"sink {what} {name!r} must be a plain name: letters, digits and _")
    longest = _POSTGRES_BYTES - _LONGEST_ENDING
    if len(name.encode()) > longest:
        raise UsageError(f"sink {what} {name!r} is too long: PostgreSQL leaves {longest} bytes for it")
    return name


def postgres_column(name: str) -> str:
    """`name` of a column, whatever it is; UsageError where PostgreSQL would cut it."""
    return fitting_postgres(name, f"the column {name!r}", "rename it in [source.columns]")


def fitting_postgres(name: str, what: str, remedy: str) -> str:
    """`name`, which errors call `what`; UsageError with the remedy where PostgreSQL would cut it."""
    if len(name.encode()) > _POSTGRES_BYTES:
        raise UsageError(f"{what} is too long for PostgreSQL, which takes {_POSTGRES_BYTES} bytes: {remedy}")
    return name


def table_location(location: str) -> str:
    """`location` of a table, a path or a URL, without a slash at its end; UsageError where it is none, or holds a secret.

    >>> table_location("out/orders/"), table_location("s3://lake/orders")
    ('out/orders', 's3://lake/orders')
    """
    name = location.rstrip("/").rpartition("/")[2]
    if not location.isprintable() or not name.strip(". ") or location.rstrip("/").endswith(":"):
        raise UsageError(f"the sink's table must have a path or a URL with a name at its end, got {location!r}")
    if set(location) & set(_NOT_IN_A_LOCATION):
        raise UsageError(
            f"the sink's table {location!r} must be named without any of {' '.join(_NOT_IN_A_LOCATION)}, its folders too"
        )
    if "://" in location and "@" in location.split("://", 1)[1].split("/", 1)[0]:
        raise UsageError(
            "the sink's URL holds a user or a password: leave them out, and set what the store asks for in the "
            "environment (AWS_ACCESS_KEY_ID and the like)"
        )
    return location.rstrip("/")


def kafka_topic(name: str) -> str:
    """`name` of a topic; UsageError where Kafka takes none of that name, or has no room for those beside it.

    >>> kafka_topic("orders.late")
    'orders.late'
    """
    longest = _KAFKA_BYTES - _LONGEST_ENDING
    if not re.fullmatch(r"[a-zA-Z0-9._-]+", name) or name in (".", "..") or len(name) > longest:
        raise UsageError(
            f"sink topic {name!r} must be a name of up to {longest} letters, digits and . _ - (not only one or two dots)"
        )
    return name


def iceberg_table(name: str) -> str:
    """`name` of a table with its namespace; UsageError where it has none, or one that not every catalog takes.

    >>> iceberg_table("lake.orders")
    'lake.orders'
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)+", name):
        raise UsageError(
            f"sink table {name!r} must be named with its namespace, as lake.orders: letters, digits, _ and -, with points"
        )
    return name


def spark_table(name: str) -> str:
    """`name` of a table in one of Spark's catalogs, as SQL has it; UsageError where not every catalog takes it.

    >>> spark_table("lake.shop.orders")
    'lake.shop.orders'
    """
    if not re.fullmatch(r"[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*", name):
        raise UsageError(
            f"sink table {name!r} must be named as in Spark's SQL, with its catalog and schema, as lake.shop.orders: "
            "letters, digits, _ and -, with points"
        )
    return name


def delta_column(name: str) -> str:
    """`name` of a column; UsageError where Delta Lake takes none of that name.

    >>> delta_column("event_n")
    'event_n'
    """
    return fitting_delta_column(name, f"the column {name!r}", "Rename it in [source.columns]")


def fitting_delta_column(name: str, what: str, remedy: str) -> str:
    """`name`, which errors call `what`; UsageError with the remedy where Delta Lake has no such column."""
    if set(name) & set(_NOT_IN_DELTA):
        raise UsageError(
            f"{what} cannot be in a table of Delta Lake: no spaces, no , ; = and no brackets ( ) {{ }}. {remedy}"
        )
    return name


def fitting_delta_folder(name: str, what: str, remedy: str) -> str:
    """`name` of a folder, which errors call `what`; UsageError with the remedy where no table of Delta Lake lies there.

    >>> fitting_delta_folder("shop", "the table 'shop.item'", "rename it")
    'shop'
    """
    is_plain = name.isprintable() and name.strip(". ") and not set(name) & set(_NOT_IN_A_LOCATION + "/")
    if not is_plain or len(name.encode()) > _FOLDER_BYTES:
        raise UsageError(f"{what} cannot be a folder of Delta Lake: {remedy}")
    return name
