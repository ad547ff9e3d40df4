"""The addresses of the command: `mysql://user@host:3306/shop`, `postgres://...`, `kafka://host:9092/topic`.

Rule 1: a password does not stand in an address: everyone on the machine can list a process's arguments.
Rule 2: what is wrong with an address is said in one sentence that shows a right one.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from waterclock.errors import UsageError

SCHEMES = {"mysql": "mysql", "mariadb": "mysql", "postgres": "postgres", "postgresql": "postgres"}
_PORTS = {"mysql": 3306, "postgres": 5432}


@dataclass(frozen=True, slots=True)
class Database:
    """Where changes come from: `kind` is mysql (MariaDB too) or postgres; `name` is empty where none is named."""

    kind: str
    host: str
    port: int
    user: str
    name: str


def database(text: str) -> Database:
    """A database's address.

    >>> database("mysql://reader@127.0.0.1/shop")
    Database(kind='mysql', host='127.0.0.1', port=3306, user='reader', name='shop')
    """
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise UsageError(f"{text!r} is no address: {error}.") from None
    kind = SCHEMES.get(parts.scheme)
    if kind is None or not parts.hostname or not parts.username:
        raise UsageError(
            f"{text!r} is no address of a database: write mysql://user@host:3306/shop, or postgres://user@host/shop."
        )
    if parts.password is not None:
        raise UsageError(
            "A password in an address is seen by everyone who lists this machine's processes: leave it out, and give "
            "it in a file (--password-file) or in MYSQL_PWD or PGPASSWORD."
        )
    name = unquote(parts.path.strip("/"))
    if kind == "postgres" and not name:
        raise UsageError(
            f"{text!r} names no database: a slot of PostgreSQL belongs to one. Write postgres://user@host/shop."
        )
    return Database(kind, parts.hostname, port or _PORTS[kind], unquote(parts.username), name)


def kafka(text: str) -> tuple[str, str]:
    """Servers and topic of `kafka://one:9092,two:9092/topic`.

    >>> kafka("kafka://127.0.0.1:9092/shop")
    ('127.0.0.1:9092', 'shop')
    """
    scheme, _, rest = text.partition("://")
    servers, _, topic = rest.partition("/")
    if scheme != "kafka" or not servers or not topic or "/" in topic or "@" in servers:
        raise UsageError(f"{text!r} is no address of a topic: write kafka://host:9092/topic.")
    return servers, topic
