"""The shop's twenty tables, and random values for their columns: all types of MariaDB that are easily got wrong.

Rule 1: every table has a column `rev`, which counts the versions of a row: so each version can be told from the others.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any
from uuid import UUID

NAMES = (
    "addresses", "buyers", "carriers", "cart_lines", "carts", "coupons", "events", "invoices", "items", "offers",
    "order_lines", "orders", "parcels", "payments", "refunds", "returns", "reviews", "stock", "suppliers", "tickets",
)  # fmt: skip
_WORDS = ("pen", "ink", "Füller", "铅笔", "\U0001f58b", "O'Hara", 'a "b"', "back\\slash", "tab\tnew\nline", "", " ")
_STATES = ("new", "paid", "sent", "gone")
_LABELS = ("red", "green", "fragile", "gift")


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its type in SQL, how it is compared (compare.py), and what makes a value that is not null."""

    name: str
    sql: str
    how: str
    make: Callable[[Random], Any]


@dataclass(frozen=True, slots=True)
class ShopTable:
    """A table: its key's columns, and the others."""

    name: str
    key: tuple[Column, ...]
    columns: tuple[Column, ...]

    def definition(self) -> str:
        """The statement that makes it."""
        key = [f"{each.name} {each.sql} not null" for each in self.key]
        rest = [f"{each.name} {each.sql} null" for each in self.columns]
        names = ", ".join(each.name for each in self.key)
        return f"create table {self.name} ({', '.join([*key, 'rev int not null', *rest])}, primary key ({names}))"


def _text(chance: Random) -> str:
    return " ".join(chance.choices(_WORDS, k=chance.randrange(1, 5)))


def _decimal(digits: int, scale: int) -> Callable[[Random], str]:
    def make(chance: Random) -> str:
        whole = chance.randrange(10 ** chance.randrange(1, digits - scale))
        return f"{chance.choice(['', '-'])}{whole}.{chance.randrange(10**scale):0{scale}d}"

    return make


def _moment(chance: Random) -> str:
    clock = f"{chance.randrange(24):02d}:{chance.randrange(60):02d}:{chance.randrange(60):02d}"
    return f"{_day(chance)} {clock}.{chance.randrange(10**6):06d}"


def _day(chance: Random) -> str:
    return f"{chance.randrange(1990, 2030)}-{chance.randrange(1, 13):02d}-{chance.randrange(1, 29):02d}"


def _took(chance: Random) -> str:
    hours = chance.choice((0, 1, 25, 838))
    seconds = f"{chance.randrange(60):02d}:{chance.randrange(59):02d}.{chance.randrange(10**6):06d}"
    return f"{chance.choice(['', '-'])}{hours:02d}:{seconds}"


def _note(chance: Random) -> str:
    value = {"n": chance.randrange(10**6), "who": _text(chance), "list": [chance.random(), None, True, []]}
    return json.dumps(value, ensure_ascii=False)


_COLUMNS = (
    Column("name", "varchar(120)", "text", _text),
    Column("price", "decimal(12,2)", "decimal", _decimal(12, 2)),
    Column("amount", "decimal(38,10)", "decimal", _decimal(38, 10)),
    Column("quantity", "int unsigned", "number", lambda chance: chance.randrange(2**32)),
    Column("number", "bigint unsigned", "number", lambda chance: chance.choice((2**64 - 1, chance.randrange(2**63)))),
    Column("ratio", "double", "float", lambda chance: repr(chance.choice((1e22, 5e-324, 0.1, chance.gauss(0, 1e3))))),
    Column("state", f"enum{_STATES}", "text", lambda chance: chance.choice(_STATES)),
    Column("labels", f"set{_LABELS}", "set", lambda chance: ",".join(w for w in _LABELS if chance.random() < 0.4)),
    Column(
        "made", "datetime(6)", "text", lambda chance: chance.choice((_moment(chance), "0000-00-00 00:00:00.000000"))
    ),
    Column("seen", "timestamp(3)", "text", lambda chance: f"{_moment(chance)[:-3]}"),
    Column("day", "date", "text", _day),
    Column("took", "time(6)", "text", _took),
    Column("flags", "bit(12)", "bits", lambda chance: chance.randrange(2**12)),
    Column("note", "json", "json", _note),
    Column("raw", "varbinary(40)", "bytes", lambda chance: chance.randbytes(chance.randrange(20))),
    Column("digest", "binary(16)", "bytes", lambda chance: chance.randbytes(chance.randrange(16))),
    Column("photo", "blob", "bytes", lambda chance: chance.randbytes(chance.choice((0, 10, 300)))),
    Column("active", "boolean", "number", lambda chance: chance.randrange(2)),
    Column("since", "year", "number", lambda chance: chance.randrange(1901, 2156)),
    Column("owner", "uuid", "text", lambda chance: str(UUID(bytes=chance.randbytes(16), version=4))),
)
_ID = Column("id", "bigint unsigned", "number", lambda chance: 0)
_CODE = Column("code", "varchar(40)", "text", lambda chance: "")
_LINE = Column("line", "int", "number", lambda chance: 0)


def tables() -> list[ShopTable]:
    """All twenty: each has every third of the columns; two have a key of two columns, one a key of text."""
    found = []
    for number, name in enumerate(NAMES):
        key = (_ID, _LINE) if name.endswith("_lines") else (_CODE,) if name == "coupons" else (_ID,)
        rest = [column for place, column in enumerate(_COLUMNS) if (place + number) % 3 == 0]
        found.append(ShopTable(name, key, tuple(rest)))
    return found
