"""The URL of a PostgreSQL that a user names, checked before it becomes a connection."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlsplit

from waterclock.errors import UsageError


def postgres_url(url: str) -> str:
    """`url`; UsageError, which does not show it, if it is none of PostgreSQL's or holds a password.

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
