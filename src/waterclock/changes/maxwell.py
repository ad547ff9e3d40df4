"""Maxwell's JSON read as changes: what Maxwell's daemon writes, and what `waterclock cdc` does.

Rule 1: the position is the writer's own if it is reported: `sequence` and `xoffset` (ours), else Maxwell's `position`
        (output_binlog_position) and `xoffset`; else the message's offset. What was written twice is then known.
Rule 2: an update that changed the key is two changes: the old row goes, the new one comes.
Rule 3: numbers keep their digits: one with a point is read as a Decimal.
Rule 4: `types` says what a value does not (ours have it). Maxwell's own messages are of MySQL, which has no booleans: a
        true in them is one of a JSON column.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from decimal import Decimal
from typing import Any

from waterclock.changes.maxwell_message import JSON, NUMBER
from waterclock.changes.row_change import Json, Message, Operation, RowChange, fields_of
from waterclock.errors import Unreadable

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


def changes(message: Message) -> Iterator[RowChange]:
    """The changes that a message asks for; none for a tombstone, a heartbeat or a word about a table's form.

    >>> row = b'{"database":"shop","table":"item","type":"insert","primary_key_columns":["id"],"data":{"id":4,"p":1.10}}'
    >>> next(changes(Message(None, row, 7)))
    RowChange(table='shop.item', operation='insert', key={'id': 4}, position=(7,), values={'id': 4, 'p': Decimal('1.10')})
    """
    if message.value is None:
        return
    fields = fields_of(message.value, "Maxwell")
    if fields.get("type") in _OTHERS:
        return
    if not isinstance(fields.get("database"), str) or not isinstance(fields.get("table"), str):
        raise Unreadable(f"The message at offset {message.offset} names no database and table, so it is not Maxwell's.")
    operation, data = _OPERATIONS.get(str(fields.get("type"))), fields.get("data")
    table, position = f"{fields['database']}.{fields['table']}", _position(fields, message.offset)
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
