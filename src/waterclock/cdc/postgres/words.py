"""What a column is, as a word that does not depend on the database: `decimal:10:2`, `datetime:6`.

Rule 1: a type that was made here (`create type`, an extension's) has a number that only this database's catalog knows;
        until that was asked its word is `own`.
Rule 2: a domain is what it was made of, as PostgreSQL prints it: `domain:int32`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import psycopg

_WORDS = {
    16: "boolean", 17: "hex", 20: "int64", 21: "int16", 23: "int32", 26: "int64", 114: "json", 142: "xml", 600: "point",
    700: "float", 701: "double", 790: "money", 1082: "date", 1186: "interval", 1266: "timetz", 2950: "uuid", 3802: "json",
}  # fmt: skip
_DIGITS = {1083: "time", 1114: "datetime"}  # whose type says how many of a second they have
_FIRST_OWN = 16384
_TYPE = (
    "select typname::text, typtype::text, typbasetype::bigint, typtypmod, case when typcategory = 'A' then typelem::bigint "
    "else 0 end from pg_type where oid = %s::bigint"
)
_NUMERIC, _INSTANT, _BIT, _VARBIT = 1700, 1184, 1560, 1562
_ARRAYS = {
    1000: 16, 1001: 17, 1016: 20, 1005: 21, 1007: 23, 1028: 26, 199: 114, 143: 142, 1021: 700, 1022: 701, 1182: 1082,
    1187: 1186, 1270: 1266, 2951: 2950, 3807: 3802, 1183: 1083, 1115: 1114, 1231: 1700, 1185: 1184,
    3905: 25, 3907: 25, 3909: 25, 3911: 25, 3913: 25, 3927: 25,
    1009: 25, 1015: 1043, 1014: 1042, 1002: 18, 1003: 19, 1041: 869, 651: 650, 1040: 829,
}  # fmt: skip


def word_of(oid: int, modifier: int) -> str:
    """Of a type's number, and of what stands in brackets behind its name (-1 for nothing).

    >>> word_of(1700, (10 << 16 | 2) + 4), word_of(1114, -1), word_of(1007, -1), word_of(869, -1)
    ('decimal:10:2', 'datetime:6', 'array:int32', 'text')
    """
    if oid in _ARRAYS:
        return f"array:{word_of(_ARRAYS[oid], modifier)}"
    if oid == _NUMERIC:
        packed = modifier - 4
        scale = (packed & 0x7FF ^ 1024) - 1024  # of eleven bits with a sign, since PostgreSQL 15
        return "number" if modifier < 0 else f"decimal:{packed >> 16 & 0xFFFF}:{scale}"
    if oid in _DIGITS:
        return f"{_DIGITS[oid]}:{6 if modifier < 0 else modifier}"
    if oid == _INSTANT:
        return f"instant:{6 if modifier < 0 else modifier}"
    if oid in (_BIT, _VARBIT):
        return f"bits:{max(modifier, 0)}"
    return f"own:{oid}:{modifier}" if oid >= _FIRST_OWN else _WORDS.get(oid, "text")


def known(asking: psycopg.Connection[Any], words: Mapping[str, str]) -> Mapping[str, str]:
    """The words of a table's columns, with what the catalog says of types that were made here."""
    if not any(word.startswith("own:") for word in words.values()):
        return words
    return {column: _known(asking, word) for column, word in words.items()}


def _known(asking: psycopg.Connection[Any], word: str) -> str:
    name, _, rest = word.partition(":")
    if name != "own":
        return word
    oid, _, modifier = rest.partition(":")
    found = asking.execute(_TYPE, (int(oid),)).fetchone()
    if found is None:
        return "text"
    called, kind, base, brackets, item = found
    if kind == "d":
        return f"domain:{_known(asking, word_of(base, brackets))}"
    if item:
        return f"array:{_known(asking, word_of(item, int(modifier)))}"
    return "enum" if kind == "e" else "hstore" if called == "hstore" else "text"
