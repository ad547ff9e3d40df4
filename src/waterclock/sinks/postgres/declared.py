"""The type that a mirrored column gets in PostgreSQL for the one that it has in its source, as NAME.schema says it.

    of PostgreSQL       its own, if it is one of the server's; text for what an extension or a user made
    of MySQL, MariaDB   whole numbers           smallint, integer, bigint; bigint unsigned is numeric(20)
                        decimal(p,s)            numeric(p,s); float and double: real and double precision
                        uuid, json              the same
                        all else                text: dates may be 0000-00-00, times 838 hours, bytes come as base64

Rule 1: a type holds every value of the source with all its digits; what cannot be certain of that is text.
"""

from __future__ import annotations

import re

_OWN = re.compile(
    r"(?:smallint|integer|bigint|boolean|text|bytea|uuid|jsonb?|date|interval|inet|cidr|macaddr8?|money|xml|oid|real"
    r"|double precision|numeric|character varying|character|bit|bit varying|int[48]range|numrange|tsrange|tstzrange"
    r"|daterange|time with(?:out)? time zone|timestamp with(?:out)? time zone)(?:\(-?\d+(?:,-?\d+)?\))?(?:\[\])?"
    r"|(?:time|timestamp)\(\d\) with(?:out)? time zone(?:\[\])?"
)
_OF_MYSQL = {
    "tinyint": "smallint", "smallint": "smallint", "mediumint": "integer", "int": "integer", "bigint": "bigint",
    "tinyint unsigned": "smallint", "smallint unsigned": "integer", "mediumint unsigned": "integer",
    "int unsigned": "bigint", "bigint unsigned": "numeric(20)", "year": "smallint", "uuid": "uuid", "json": "json",
    "float": "real", "double": "double precision",
}  # fmt: skip


def declared_type(source: str, declared: str) -> str:
    """
    >>> declared_type("mysql", "decimal(10,2) unsigned"), declared_type("mysql", "datetime(6)")
    ('numeric(10,2)', 'text')
    >>> declared_type("postgres", "timestamp(3) with time zone"), declared_type("postgres", "shop.mood")
    ('timestamp(3) with time zone', 'text')
    >>> declared_type("mysql", "year unsigned"), declared_type("mysql", "double unsigned")
    ('smallint', 'double precision')
    """
    if source == "postgres":
        return declared if _OWN.fullmatch(declared) else "text"
    if found := re.match(r"decimal\((\d+),(\d+)\)", declared):
        return f"numeric({found[1]},{found[2]})"
    return _OF_MYSQL.get(declared) or _OF_MYSQL.get(declared.removesuffix(" unsigned"), "text")
