"""A column's SQL type. It is parsed once for each table, and made of it are Debezium's form, Python's values, and what a
message says of its values beside JSON (`kinds`).

Rule 1: a type has the name that its database prints: PostgreSQL's format_type `timestamp(3) with time zone`, MySQL and
        MariaDB `timestamp(3)`. Where both print one name, its values have one form.
Rule 2: what was made in a database may bear any name. What it is the catalog says, and not its name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

JSON, NUMBER = "json", "number"  # the words of `types` in a message
_KINDS = {"json": JSON, "jsonb": JSON, "numeric": NUMBER, "real": NUMBER, "double precision": NUMBER}
Made = TypeVar("Made")


class SqlType(NamedTuple):
    """`text` is all of it. `name` is without brackets and `unsigned`; or array; or of a type made in the database: enum,
    domain, hstore, else "". `sizes` are the numbers in brackets; `of` is of an array its items, of a domain its base.
    """

    text: str
    name: str
    sizes: tuple[int, ...] = ()
    unsigned: bool = False
    of: SqlType | None = None


def sql_type(text: str) -> SqlType:
    """The type that has this text, if it was not made in the database.

    >>> sql_type("numeric(10,2)[]").of
    SqlType(text='numeric(10,2)', name='numeric', sizes=(10, 2), unsigned=False, of=None)
    >>> sql_type("timestamp(3) with time zone")[1:3], sql_type("int unsigned")[1:4], sql_type("enum('a','(b)')").name
    (('timestamp with time zone', (3,)), ('int', (), True), 'enum')
    """
    if text.endswith("[]"):
        return SqlType(text, "array", of=sql_type(text[:-2]))
    before, _, rest = text.partition("(")
    inside, _, after = rest.rpartition(")")
    words = [word.strip('"') for word in f"{before}{after}".split()]  # "bit" is one of any length
    name = " ".join(words[:1] if words[0] == "interval" else [word for word in words if word != "unsigned"])
    sizes = tuple(map(int, inside.split(","))) if inside and "'" not in inside else ()
    return SqlType(text, name, sizes, "unsigned" in words)


class ColumnTypes(dict[str, SqlType]):
    """The types of a table's columns by their names. It does not change: what is made of it is kept."""

    def __init__(self, types: Mapping[str, SqlType] | None = None) -> None:
        super().__init__(types or {})
        self._made: dict[Callable[[SqlType], Any], dict[str, Any]] = {}

    @classmethod
    def parsed(cls, texts: Mapping[str, str]) -> ColumnTypes:
        """Of types that were not made in the database."""
        return cls({name: sql_type(text) for name, text in texts.items()})

    @cached_property
    def kinds(self) -> dict[str, str]:
        """The columns whose values do not say it all: of JSON, and of numbers that may be none (NaN)."""
        return {name: _KINDS[type_.name] for name, type_ in self.items() if type_.name in _KINDS}

    def each(self, make: Callable[[SqlType], Made]) -> dict[str, Made]:
        """What `make` makes of each type."""
        found = self._made.get(make)
        if found is None:
            found = self._made[make] = {name: make(type_) for name, type_ in self.items()}
        return found
