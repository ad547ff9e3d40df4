"""`MaxwellMessage`: one row that was inserted, updated or deleted, in the form that Maxwell made known.

Rule 1: a value is held as its JSON text, written once by whoever knows its type. So nothing on the way rounds a
        DECIMAL, an unsigned BIGINT or a number inside a JSON column, and the same change always has the same bytes.
Rule 2: two changes of one row are ordered by (sequence, xoffset), and by nothing else. A sequence is a whole number
        below 2**53 for about 280 years: every reader of JSON keeps it.
Rule 3: a table without a primary key is one key: its changes keep their order as a whole.
Rule 4: what a JSON value alone does not tell stands in `types` beside it: that null, true or "a" is a value of a JSON
        column ("json"), that "NaN" is a number ("number").
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from functools import lru_cache
from json.encoder import encode_basestring
from types import MappingProxyType
from typing import Any, NamedTuple

INSERT, UPDATE, DELETE, TRUNCATE = "insert", "update", "delete", "truncate"
JSON, NUMBER = "json", "number"  # the words of `types`
NULL, JSON_NULL = "null", " null"  # SQL's and JSON's: the same to who reads JSON, kept apart until it is written
NO_NUMBERS = frozenset({'"NaN"', '"Infinity"', '"-Infinity"'})  # numbers that JSON has not
_NONE: Mapping[str, str] = MappingProxyType({})

# what a JSON string of any text is: quotes, backslashes and control characters escaped, everything else as it stands
quoted = encode_basestring
_name = lru_cache(maxsize=65_536)(encode_basestring)


class MaxwellMessage(NamedTuple):
    """A change of one row. A named tuple, not a dataclass: it is made for every row, and costs a fifth.

    `ts` is in seconds since 1970, `gtid` the transaction (PostgreSQL: its commit's LSN), `xoffset` the number of the
    change in it from 0 on, `commit` whether it is the last. `key` names the columns of the primary key. `data` holds
    the row after the change (before it, for a delete), `old` the former values of what an update changed; both map a
    column to its value's JSON text. `kinds` names the columns of JSON and of numbers: the message names
    those whose values do not say it.

    >>> change = MaxwellMessage("shop", "item", "update", 1700000000, "0-1-7", 1700000000000001, 0, True, ("id",),
    ...                    {"id": "4", "price": "12.50"}, {"price": "9.00"})
    >>> change.as_key().decode()
    '{"database":"shop","table":"item","pk.id":4}'
    >>> change.values()["price"]
    Decimal('12.50')
    """

    database: str
    table: str
    type: str
    ts: int
    gtid: str
    sequence: int
    xoffset: int
    commit: bool
    key: tuple[str, ...]
    data: Mapping[str, str]
    old: Mapping[str, str] | None = None
    query: str | None = None
    kinds: Mapping[str, str] = _NONE

    def as_key(self) -> bytes:
        """The Kafka message's key, in Maxwell's form; equal for all changes of one row."""
        columns = "".join([f',"pk.{_name(name)[1:]}:{self.data[name]}' for name in self.key]) if self.data else ""
        return f'{{"database":{_name(self.database)},"table":{_name(self.table)}{columns}}}'.encode()

    def as_json(self) -> bytes:
        """The Kafka message's value: Maxwell's form, and in it `gtid`, `sequence` and, on every row, `xoffset`."""
        query = "" if self.query is None else f'"query":{quoted(self.query)},'
        commit = ',"commit":true' if self.commit else ""
        key = ",".join([_name(name) for name in self.key])
        old = "" if self.old is None else f',"old":{_object(self.old)}{self._types("old_types", self.old)}'
        types = self._types("types", self.data) if self.kinds else ""
        return (
            f'{{"database":{_name(self.database)},"table":{_name(self.table)},{query}"type":"{self.type}",'
            f'"ts":{self.ts},"gtid":"{self.gtid}","sequence":{self.sequence},"xoffset":{self.xoffset}{commit},'
            f'"primary_key_columns":[{key}],"data":{_object(self.data)}{types}{old}}}'
        ).encode()

    def values(self) -> dict[str, Any]:
        """`data` as Python's values; a number with a point is a Decimal."""
        return {name: json.loads(text, parse_float=Decimal) for name, text in self.data.items()}

    def _types(self, word: str, row: Mapping[str, str]) -> str:
        """What the values of a row do not say of themselves; "" if they say it all."""
        found = {}
        for name, kind in self.kinds.items():
            text = row.get(name, NULL)
            if text != NULL if kind == JSON else text in NO_NUMBERS:
                found[name] = quoted(kind)
        return f',"{word}":{_object(found)}' if found else ""


def _object(columns: Mapping[str, str]) -> str:
    return "{" + ",".join([f"{_name(name)}:{text}" for name, text in columns.items()]) + "}"


def next_sequence(last: int, ts: int) -> int:
    """The sequence of a transaction that began at `ts` seconds, after one with the sequence `last`.

    Microseconds since 1970 with the seconds' part from the source, pushed on by one if that would not rise: so it
    rises by every transaction, and goes on rising where a new capture of the same source takes over another day.

    >>> next_sequence(0, 1700000000), next_sequence(1700000000000000, 1700000000)
    (1700000000000000, 1700000000000001)
    """
    return max(last + 1, ts * 1_000_000)
