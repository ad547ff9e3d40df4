"""Maxwell's form of a row change: `MaxwellMessage`, which a capture writes, one for each changed row; and the messages read
again, of Maxwell's daemon too.

Rule 1: a value that is written is held as its JSON text, made once by whoever knows its type. So nothing on the way rounds
        a DECIMAL, an unsigned BIGINT or a number inside a JSON column, and the same change always has the same bytes.
Rule 2: two changes of one row are ordered by (sequence, xoffset), and by nothing else. A sequence is a whole number
        below 2**53 for about 280 years: every reader of JSON keeps it.
Rule 3: a table without a primary key is one key: its changes keep their order as a whole.
Rule 4: what a JSON value alone does not say stands in `types` beside it: that null, true or "a" is a value of a JSON
        column ("json"), that "NaN" is a number ("number"). Maxwell's own messages have no `types`: they are of MySQL, which
        has no booleans, so a true in them is one of a JSON column.
Rule 5: the position that is read is the writer's own if it is there: `sequence` and `xoffset` (ours), else Maxwell's
        `position` (output_binlog_position) and `xoffset`; else the message's offset. What was written twice is then known.
Rule 6: an update that changed the key is read as two changes: the old row goes, the new one comes.
Rule 7: numbers keep their digits: one with a point is read as a Decimal.
Rule 8: a row that compiled code has written (`Written`) makes its message itself: the same bytes as the plain code's here.
Rule 9: where a table's rows have come once more, behind the sequence `since`, a row that has no later position is gone: it
        is read as a truncate at that place. Maxwell's own word for the end of a table says nothing of rows.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from decimal import Decimal
from functools import lru_cache
from json.encoder import encode_basestring
from typing import Any, NamedTuple

from waterclock.changes.row_change import Json, Message, Operation, RowChange, fields_of, no_number
from waterclock.changes.sql_types import JSON, NUMBER, ColumnTypes
from waterclock.changes.written import Written
from waterclock.errors import Unreadable

INSERT, UPDATE, DELETE, TRUNCATE = "insert", "update", "delete", "truncate"
COMPLETE = "bootstrap-complete"  # a table's older rows have come; ours says which rows are gone
NULL, JSON_NULL = "null", " null"  # SQL's and JSON's: the same to who reads JSON, kept apart until it is written
NO_NUMBERS = frozenset({'"NaN"', '"Infinity"', '"-Infinity"'})  # numbers that JSON has not
_NO_TYPES = ColumnTypes()

# what a JSON string of any text is: quotes, backslashes and control characters escaped, everything else as it stands
quoted = encode_basestring
_name = lru_cache(maxsize=65_536)(encode_basestring)
_decode = json.JSONDecoder(parse_constant=no_number).decode


_LAST = 2**62  # Maxwell says no xoffset for the last change of a transaction
_OPERATIONS: dict[str, Operation] = {
    "insert": "insert",
    "bootstrap-insert": "insert",
    "update": "update",
    "delete": "delete",
    "truncate": "truncate",
}
_OTHERS = {"bootstrap-start", "bootstrap-complete", "table-create", "table-alter", "table-drop", "database-create",
           "database-alter", "database-drop"}  # fmt: skip


class MaxwellMessage(NamedTuple):
    """A change of one row. A named tuple, not a dataclass: it is made for every row, and costs a fifth.

    `ts` is in seconds since 1970, `gtid` the transaction (PostgreSQL: its commit's LSN), `xoffset` the number of the
    change in it from 0 on, `commit` whether it is the last. `key` names the columns of the primary key. `data` holds
    the row after the change (before it, for a delete), `old` the former values of what an update changed; both map a
    column to its value's JSON text. `types` are the table's, one object for all rows that were read in one way.

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
    types: ColumnTypes = _NO_TYPES

    def as_key(self) -> bytes:
        """The Kafka message's key, in Maxwell's form; equal for all changes of one row."""
        if isinstance(self.data, Written) and self.data.form.key == self.key:
            return self.data.as_key()
        columns = "".join([f',"pk.{_name(name)[1:]}:{self.data[name]}' for name in self.key]) if self.data else ""
        return f'{{"database":{_name(self.database)},"table":{_name(self.table)}{columns}}}'.encode()

    def as_json(self) -> bytes:
        """The Kafka message's value: Maxwell's form, and in it `gtid`, `sequence` and, on every row, `xoffset`."""
        former = self.old
        if isinstance(self.data, Written) and self.data.form.key == self.key and isinstance(former, Written | None):
            where = self.type, self.ts, self.gtid, self.sequence, self.xoffset, self.commit
            return self.data.as_json(*where, former, self.query)
        query = "" if self.query is None else f'"query":{quoted(self.query)},'
        commit = ',"commit":true' if self.commit else ""
        key = ",".join([_name(name) for name in self.key])
        old = "" if self.old is None else f',"old":{_object(self.old)}{self._types("old_types", self.old)}'
        types = self._types("types", self.data) if self.types.kinds else ""
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
        for name, kind in self.types.kinds.items():
            text = row.get(name, NULL)
            if text != NULL if kind == JSON else text in NO_NUMBERS:
                found[name] = quoted(kind)
        return f',"{word}":{_object(found)}' if found else ""


def _object(columns: Mapping[str, str]) -> str:
    return "{" + ",".join([f"{_name(name)}:{text}" for name, text in columns.items()]) + "}"


def next_sequence(last: int, ts: int) -> int:
    """The sequence of a transaction that began at `ts` seconds, after one with the sequence `last`.

    Microseconds since 1970 with the seconds' part from the source, pushed on by one if that would not rise: so it
    rises by every transaction, and goes on rising if a new capture of the same source takes over another day.

    >>> next_sequence(0, 1700000000), next_sequence(1700000000000000, 1700000000)
    (1700000000000000, 1700000000000001)
    """
    return max(last + 1, ts * 1_000_000)


def json_of(text: str) -> str:
    """`text` if it is JSON, else the JSON string of it: a table may have been filled while its check was off."""
    try:
        value = _decode(text)
    except (ValueError, RecursionError):
        return quoted(text)
    return JSON_NULL if value is None else text


def changes(message: Message) -> Iterator[RowChange]:
    """The changes that a message brings; none for a tombstone, a heartbeat or a word about a table's form.

    >>> row = b'{"database":"shop","table":"item","type":"insert","primary_key_columns":["id"],"data":{"id":4,"p":1.10}}'
    >>> next(changes(Message(None, row, 7)))
    RowChange(table='shop.item', operation='insert', key={'id': 4}, position=(7,), values={'id': 4, 'p': Decimal('1.10')})
    """
    if message.value is None:
        return
    fields = fields_of(message.value, "Maxwell")
    if fields.get("type") in _OTHERS and "sequence" not in fields:
        return
    if not isinstance(fields.get("database"), str) or not isinstance(fields.get("table"), str):
        raise Unreadable(f"The message at offset {message.offset} names no database and table, so it is not Maxwell's.")
    operation, data = _OPERATIONS.get(str(fields.get("type"))), fields.get("data")
    table, position = f"{fields['database']}.{fields['table']}", _position(fields, message.offset)
    if fields.get("type") == COMPLETE and isinstance(data, dict):
        operation, position = "truncate", (int(data["since"]), _LAST)  # rule 9
    if operation == "truncate":
        yield RowChange(table, operation, {}, position, {})
        return
    if operation is None or not isinstance(data, dict):
        what = f"has the type {fields.get('type')!r}, which Maxwell does not write"
        raise Unreadable(f"The message at offset {message.offset} {what if operation is None else 'has no data'}.")
    if "primary_key_columns" in fields:
        names = [str(name) for name in fields["primary_key_columns"]]
    else:
        key = {} if message.key is None else fields_of(message.key, "Maxwell")
        names = [name[3:] for name in key if name.startswith("pk.")]
    data = _typed(data, fields.get("types"), "sequence" in fields)
    former = {**data, **_typed(fields.get("old") or {}, fields.get("old_types"), "sequence" in fields)}
    if operation == "delete":
        yield RowChange(table, "delete", _key(data, names, message), position, {})
    elif operation == "update" and _key(former, names, message) != _key(data, names, message):
        yield RowChange(table, "delete", _key(former, names, message), position, {})
        yield RowChange(table, "insert", _key(data, names, message), position, data)
    else:
        yield RowChange(table, operation, _key(data, names, message), position, data)


def _position(fields: Mapping[str, Any], offset: int) -> tuple[int, ...]:
    if "sequence" in fields:
        return int(fields["sequence"]), int(fields["xoffset"])
    if "position" in fields and ("xoffset" in fields or fields.get("commit")):
        file, _, place = str(fields["position"]).partition(":")
        return int(file.rpartition(".")[2]), int(place), int(fields.get("xoffset", _LAST))
    return (offset,)


def _typed(row: dict[str, Any], types: Mapping[str, str] | None, ours: bool) -> dict[str, Any]:
    """The values as what they are, if JSON does not say it."""
    if not ours:
        return {name: Json(value) if isinstance(value, bool) else value for name, value in row.items()}
    if not types:
        return row
    found = dict(row)
    for name, kind in types.items():
        if name not in row:
            continue
        if kind == JSON and not isinstance(row[name], dict | list):
            found[name] = Json(row[name])
        elif kind == NUMBER:
            found[name] = Decimal(row[name])
    return found


def _key(data: Mapping[str, Any], names: list[str], message: Message) -> dict[str, Any]:
    missing = [name for name in names if name not in data]
    if missing:
        raise Unreadable(f"The message at offset {message.offset} lacks {', '.join(missing)} of its own primary key.")
    return {name: data[name] for name in names}
