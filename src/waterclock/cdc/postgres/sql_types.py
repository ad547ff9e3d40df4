"""Columns' SQL types as format_type prints them, and what those are that were made in this database (`create type`, an
extension's), as the catalog has it now."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import psycopg

from waterclock.changes.sql_types import ColumnTypes, SqlType, sql_type

Column = tuple[str, int, int]  # its name, its type's number, and what stands in brackets behind that, -1 for nothing
_FIRST_OWN = 16384
_TYPES = """
    select c.oid >= %s, format_type(c.oid, brackets), typtype::text, typname::text, typbasetype::bigint, typtypmod,
        brackets, case when typcategory = 'A' then typelem::bigint else 0 end
    from unnest(%s::bigint[], %s::int[]) with ordinality as c (oid, brackets, place) left join pg_type t on t.oid = c.oid
    order by place
"""


def types_of(asking: psycopg.Connection[Any], columns: Iterable[Column]) -> ColumnTypes:
    """The types of a table's columns."""
    found = list(columns)
    texts = _types(asking, [(number, brackets) for _, number, brackets in found])
    return ColumnTypes(dict(zip((name for name, _, _ in found), texts, strict=True)))


def _types(asking: psycopg.Connection[Any], numbers: list[tuple[int, int]]) -> list[SqlType]:
    asked = (_FIRST_OWN, [number for number, _ in numbers], [brackets for _, brackets in numbers])
    return [
        _made(asking, *what) if own else sql_type(what[0]) for own, *what in asking.execute(_TYPES, asked).fetchall()
    ]


def _made(
    asking: psycopg.Connection[Any],
    text: str, kind: str | None, called: str, base: int, of_base: int, brackets: int, item: int | None,
) -> SqlType:  # fmt: skip
    """One that was made here; it may be gone from the catalog since."""
    if kind == "d":
        return SqlType(text, "domain", of=_types(asking, [(base, of_base)])[0])
    if item:
        return SqlType(text, "array", of=_types(asking, [(item, brackets)])[0])
    return SqlType(text, "enum" if kind == "e" else "hstore" if called == "hstore" else "")
