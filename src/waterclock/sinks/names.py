"""What a user names for a sink, checked before it becomes SQL or a connection."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from waterclock.errors import UsageError

_POSTGRES_BYTES = 63  # of a name; PostgreSQL cuts longer ones without an error
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
    if len(name.encode()) > _POSTGRES_BYTES:
        raise UsageError(
            f"the column {name!r} is too long for PostgreSQL, which takes {_POSTGRES_BYTES} bytes: rename it in "
            "[source.columns]"
        )
    return name


def postgres_url(url: str) -> str:
    """`url`; UsageError, which does not show it, where it is none of PostgreSQL's or holds a password.

    >>> postgres_url("postgresql://reports@localhost:5432/shop")
    'postgresql://reports@localhost:5432/shop'
    """
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise UsageError(f"the sink's url is no URL: {error}") from error
    if not url.isprintable() or parts.scheme not in ("postgresql", "postgres") or "://" not in url:
        raise UsageError("the sink's url must read like postgresql://user@host:5432/database")
    secret = [name for name, _ in parse_qsl(parts.query, keep_blank_values=True) if "password" in name.lower()]
    if parts.password is not None or secret:
        raise UsageError(
            "the sink's url holds a password: leave it out, and set PGPASSWORD in the environment, or name a file of "
            "passwords (only you may read it) in PGPASSFILE"
        )
    return url
