"""Debezium's JSON read as changes: its envelopes with `op`, `before`, `after` and `source`, with a schema or without.

Rule 1: with the schema in the message (schemas.enable=true) every logical type becomes what it means: decimals, dates
        and times as text in SQL's form, bytes. Without it `types` says what a column is, or its value stays as it came.
Rule 2: the position is the source's own: PostgreSQL's LSN, MySQL's file, place and row, SQL Server's LSNs, a capture's of
        waterclock sequence and number; else the message's offset.
Rule 3: a tombstone after a delete says nothing new. A change of the key comes from Debezium as a delete and an insert.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from waterclock.changes.row_change import Json, Message, Operation, RowChange, decode, fields_of
from waterclock.errors import Unreadable

_DECIMAL = "org.apache.kafka.connect.data.Decimal"
# what stands for a large value that an update did not touch, and in the place of bytes, of arrays and of hstore
_UNTOUCHED = "__debezium_unavailable_value"
_UNTOUCHED_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
_UNTOUCHED_TEXTS = {
    _UNTOUCHED,
    b64encode(_UNTOUCHED.encode()).decode(),
    _UNTOUCHED.encode().hex(),
    f'{{"{_UNTOUCHED}":"{_UNTOUCHED}"}}',
}
_UNTOUCHED_PARTS = ([_UNTOUCHED], [_UNTOUCHED_UUID], [*_UNTOUCHED.encode()], {_UNTOUCHED: _UNTOUCHED})
_FLOATS = ("double", "float")
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")  # Connect writes them as texts
ENDS = {
    "infinity": 9_223_372_036_825_200_000,
    "-infinity": -9_223_372_036_832_400_000,
}  # as PostgreSQL's driver has them
_FIRST_YEAR, _LAST_YEAR = -4712, 5_874_897  # of PostgreSQL's dates
# created, read by a snapshot, updated, deleted, truncated
_OPERATIONS: dict[str, Operation] = {"c": "insert", "r": "insert", "u": "update", "d": "delete", "t": "truncate"}
Field = Mapping[str, Any]


def check_types(types: Mapping[str, str]) -> None:
    """Raise ValueError for a word that is no type: what it was meant for would stay as it came, in silence.

    >>> check_types({"price": "Decimal:2", "day": "Date", "raw": "bytes"})
    """
    for column, word in types.items():
        name, colon, scale = word.partition(":")
        if name not in (*_BY_WORD, *_FLOATS, "bytes") or (colon and (name != "Decimal" or not scale.isdecimal())):
            known = ", ".join(sorted(_BY_WORD.keys() - {"Decimal"}))
            raise ValueError(
                f"the type of {column!r} must be Decimal:2 (or another scale), bytes, double, float, {known}, got {word!r}"
            )


def changes(message: Message, types: Mapping[str, str] | None = None) -> Iterator[RowChange]:
    """The changes that a message brings; none for a tombstone, a heartbeat or a transaction's mark.

    `types` maps a column to a logical type's name, for messages without a schema: `{"price": "Decimal:2"}`.
    """
    if message.value is None:
        return
    schema, payload = _unwrapped(fields_of(message.value, "Debezium"))
    if payload is None:
        return  # a tombstone in a schema
    word = payload.get("op")
    if (word is None and ("status" in payload or set(payload) == {"ts_ms"})) or word == "m":
        return  # a transaction's beginning or end, a heartbeat, an application's own word
    operation = _OPERATIONS.get(str(word))
    if operation is None or not isinstance(payload.get("source"), dict):
        raise Unreadable(
            f"The message at offset {message.offset} is no envelope of Debezium: it has no op. Was it unwrapped?"
        )
    source = payload["source"]
    table = f"{source.get('schema') or source['db']}.{source.get('table') or source.get('collection')}"
    position = _position(source, message.offset)
    key_schema, key = (None, None) if message.key is None else _unwrapped(fields_of(message.key, "Debezium"))
    # key and row may be written differently, one with a schema: both have to say the same of a key's column
    fields = {**_by_name(_by_name(schema).get("after")), **_by_name(key_schema)}
    reported = {} if operation == "truncate" else _converted(key or {}, fields, types or {})
    values: dict[str, Any] = {}
    if operation in ("insert", "update"):
        values = _converted(payload["after"], fields, types or {})
    yield RowChange(table, operation, reported, position, values)


def _unwrapped(envelope: dict[str, Any]) -> tuple[Field | None, dict[str, Any] | None]:
    """Schema and payload, if they travel together; a payload may be null there."""
    if "payload" in envelope and "schema" in envelope:
        return envelope["schema"], envelope["payload"]
    return None, envelope


def _position(source: Mapping[str, Any], offset: int) -> tuple[int, ...]:
    if str(source.get("version")).startswith("waterclock"):  # whose places in the log are those of whole transactions
        return tuple(int(part) for part in decode(source["sequence"]))
    if source.get("lsn") is not None:
        return (int(source["lsn"]),)
    if source.get("file") is not None and source.get("pos") is not None:
        return int(str(source["file"]).rpartition(".")[2]), int(source["pos"]), int(source.get("row") or 0)
    if source.get("commit_lsn"):
        commit = str(source["commit_lsn"]).split(":")
        # a snapshot's row has no LSN of its own: it stands before all changes of that commit
        change = str(source["change_lsn"]).split(":") if source.get("change_lsn") else ["0"] * len(commit)
        return (*(int(part, 16) for part in (*commit, *change)), int(source.get("event_serial_no") or 0))
    return (offset,)


def _by_name(schema: Field | None) -> dict[str, Field]:
    return {field["field"]: field for field in (schema or {}).get("fields", ())}


def _converted(row: Mapping[str, Any], fields: Mapping[str, Field], types: Mapping[str, str]) -> dict[str, Any]:
    found = {}
    for name, value in row.items():
        if value in (_UNTOUCHED_TEXTS if isinstance(value, str) else _UNTOUCHED_PARTS):
            continue  # it keeps what it has
        field = fields.get(name)
        if field is None:  # the type's word, `Decimal:2`, as the schema would say it
            word, _, scale = types.get(name, "").partition(":")
            field = {"name": _BY_WORD.get(word), "type": word, "parameters": {"scale": scale or "0"}}
        found[name] = None if value is None else _value(value, field)
    return found


def _value(value: Any, field: Field) -> Any:
    name = field.get("name") or ""
    if name == _DECIMAL and isinstance(value, str):
        return _scaled(b64decode(value), int(field["parameters"]["scale"]))
    if name == "io.debezium.data.VariableScaleDecimal":
        return _scaled(b64decode(value["value"]), int(value["scale"]))
    if name in _LOGICAL:
        return _LOGICAL[name](value)
    if field.get("type") in _FLOATS and value in _NO_NUMBERS:
        return Decimal(value)
    return b64decode(value) if field.get("type") == "bytes" and isinstance(value, str) else value


def _scaled(raw: bytes, scale: int) -> Decimal:
    """Kafka Connect's decimal: the digits as one signed number, and where the point stands."""
    digits = Decimal(int.from_bytes(raw, "big", signed=True)).as_tuple()
    return Decimal((digits.sign, digits.digits, -scale))


def civil(day: int) -> tuple[int, int, int]:
    """Year (0 is 1 BC), month and day of a day since 1970: Python's own calendar ends with 9999, and begins with 1."""
    era, rest = divmod(day + 719_468, 146_097)
    of_era = (rest - rest // 1460 + rest // 36_524 - rest // 146_096) // 365
    of_year = rest - (365 * of_era + of_era // 4 - of_era // 100)
    shifted = (5 * of_year + 2) // 153
    month = shifted + 3 if shifted < 10 else shifted - 9
    return era * 400 + of_era + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1


def _moment(per_second: int, digits: int) -> Callable[[int], str]:
    ends = {count * per_second // 1_000_000: word for word, count in ENDS.items()}

    def convert(count: int) -> str:
        seconds, rest = divmod(count, per_second)
        day, second = divmod(seconds, 86_400)
        clock = f" {second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{rest:0{digits}d}"
        return ends.get(count) or _day(day, clock)

    return convert


def _time(per_second: int, digits: int) -> Callable[[int], str]:
    def convert(count: int) -> str:
        sign = "-" if count < 0 else ""
        seconds, rest = divmod(abs(count), per_second)
        return f"{sign}{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}.{rest:0{digits}d}"

    return convert


def _day(count: int, clock: str = "") -> str:
    """As PostgreSQL prints it. A day before its first one is infinity, of which Debezium does not say the sign."""
    year, month, day = civil(count)
    if not _FIRST_YEAR <= year <= _LAST_YEAR:
        raise ValueError(f"a day {count}")
    return f"{year if year > 0 else 1 - year:04d}-{month:02d}-{day:02d}{clock}{'' if year > 0 else ' BC'}"


def _json(text: str) -> Any:
    value = decode(text)
    return value if isinstance(value, dict | list) else Json(value)


def _bits(value: Any) -> Any:
    """Bits, the low byte first, as a number."""
    return int.from_bytes(b64decode(value), "little") if isinstance(value, str) else value


_LOGICAL: dict[str, Callable[[Any], Any]] = {
    "io.debezium.time.Date": _day,
    "io.debezium.time.Timestamp": _moment(1000, 3),
    "io.debezium.time.MicroTimestamp": _moment(1_000_000, 6),
    "io.debezium.time.NanoTimestamp": _moment(1_000_000_000, 9),
    "io.debezium.time.Time": _time(1000, 3),
    "io.debezium.time.MicroTime": _time(1_000_000, 6),
    "io.debezium.time.NanoTime": _time(1_000_000_000, 9),
    "io.debezium.data.Bits": _bits,
    "io.debezium.data.EnumSet": lambda text: text.split(",") if text else [],
    "io.debezium.data.Json": _json,
    "org.apache.kafka.connect.data.Date": _day,
    "org.apache.kafka.connect.data.Timestamp": _moment(1000, 3),
    "org.apache.kafka.connect.data.Time": _time(1000, 3),
}
# what a user writes: the last part of Debezium's own names, and Connect's decimal
_BY_WORD = {name.rpartition(".")[2]: name for name in reversed(_LOGICAL)} | {"Decimal": _DECIMAL}
