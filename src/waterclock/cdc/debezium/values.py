"""A column in Debezium's form: the schema that Kafka Connect gives it, and values as Connect's JSON converter writes them.

Rule 1: Debezium's defaults, and where a default overflows the mode that does not: an unsigned bigint is `precise` where a
        schema says so.
Rule 2: what Debezium's type has no form for (a zero date, infinity, NaN of a numeric) becomes null, as Debezium has it. It
        is told once for each column; in a key it is refused.
Rule 3: a type that is not known here is text, as the database prints it: it is never left out.
"""

from __future__ import annotations

import json
import re
import struct
from base64 import b64encode
from collections.abc import Callable, Iterator
from decimal import Decimal
from math import isfinite
from typing import Any, NamedTuple

from waterclock.cdc.debezium import moments
from waterclock.changes.maxwell import JSON_NULL, json_of, quoted
from waterclock.changes.sql_types import SqlType

PRECISE, NUMERIC, STRING = "precise", "numeric", "string"
Convert = Callable[[str], str | None]
Form = tuple[dict[str, Any], Convert]  # a schema, and what makes a value of it
_UNAVAILABLE = "__debezium_unavailable_value"
_PAIR = re.compile(r'"((?:[^"\\]|\\.)*)"=>(NULL|"((?:[^"\\]|\\.)*)")', re.DOTALL)  # of hstore
_CENTS = re.compile(r"[0-9][^0-9][0-9]{2}[^0-9]*$")  # of money
_TIME = "io.debezium.time."
_DATA = "io.debezium.data."
_POINT = [
    {"type": "double", "optional": False, "field": "x"},
    {"type": "double", "optional": False, "field": "y"},
    {"type": "bytes", "optional": True, "field": "wkb"},
    {"type": "int32", "optional": True, "field": "srid"},
]
_VARIABLE = [
    {"type": "int32", "optional": False, "field": "scale"},
    {"type": "bytes", "optional": False, "field": "value"},
]


class ColumnForm(NamedTuple):
    """`schema` without the column's name and whether it may be null; `convert` from our JSON text to Connect's, None for
    what has no form; `absent` stands for a large value that an update did not touch."""

    schema: dict[str, Any]
    convert: Convert
    absent: str


class Modes(NamedTuple):
    """`decimals` and `intervals` are Debezium's decimal.handling.mode and interval.handling.mode; `schemas`: whether they
    travel with the messages; `has_uuids`: whether the connector has a schema for a UUID."""

    decimals: str = PRECISE
    intervals: str = NUMERIC
    schemas: bool = False
    has_uuids: bool = True


def column_form(of: SqlType, modes: Modes = Modes()) -> ColumnForm:  # noqa: B008
    """The form of a column of this type.

    >>> from waterclock.changes.sql_types import sql_type
    >>> [column_form(sql_type("decimal(10,2)"), Modes(mode)).convert("12.34") for mode in (PRECISE, STRING)]
    ['"BNI="', '"12.34"']
    >>> column_form(sql_type("datetime(6)")).convert('"1970-01-01 00:00:01.000002"')
    '1000002'
    """
    if of.of is not None and of.name == "domain":
        return _domain(column_form(of.of, modes), of.of)
    if of.of is not None and of.of.name in _FORMS.keys() - _NO_ITEMS:
        return _array(column_form(of.of, modes), of.of)
    schema, convert = _FORMS.get(of.name, _TEXT)(of, modes)
    absent = quoted(b64encode(_UNAVAILABLE.encode()).decode() if schema["type"] == "bytes" else _UNAVAILABLE)
    return ColumnForm(schema, convert, absent)


def _same(text: str) -> str:
    return text


def _as_string(text: str) -> str:
    """JSON is a text to Debezium, of the same letters; a number's digits may be one too."""
    return text if text.startswith('"') else quoted(text)


def _json(text: str) -> str:
    return quoted("null" if text == JSON_NULL else text)


def _of_text(convert: Callable[[str], Any]) -> Convert:
    """Of the text inside of a JSON string to a number or a text."""

    def converted(text: str) -> str | None:
        found = convert(json.loads(text))
        return quoted(found) if isinstance(found, str) else None if found is None else str(found)

    return converted


def _millis(convert: Callable[[str], int | None]) -> Callable[[str], int | None]:
    return lambda text: None if (found := convert(text)) is None else found // 1000


def _unscaled(number: Decimal, scale: int) -> str:
    """Connect's bytes of a decimal: its digits as one signed number, the point `scale` digits before their end."""
    sign, digits, exponent = number.as_tuple()
    zeros = scale + int(exponent)
    whole = int("".join(map(str, digits))) * 10 ** max(zeros, 0) // 10 ** max(-zeros, 0) * (-1 if sign else 1)
    return b64encode(whole.to_bytes((whole + (whole < 0)).bit_length() // 8 + 1, "big", signed=True)).decode()


def _integer(of: SqlType, modes: Modes) -> Form:
    kind = _INTEGERS[of.name][of.unsigned]
    return _fixed(20, 0, modes) if kind == "uint64" and modes.schemas else ({"type": kind.lstrip("u")}, _same)


def _fixed(precision: int, scale: int, modes: Modes) -> Form:
    if modes.decimals == STRING:
        return {"type": "string"}, _as_string
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    schema = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "version": 1, "parameters": parameters}
    return schema, lambda text: None if text.startswith('"') else f'"{_unscaled(Decimal(text), scale)}"'


def _decimal(of: SqlType, modes: Modes) -> Form:
    if of.sizes or modes.decimals == STRING:
        precision, scale = of.sizes or (0, 0)
        return _fixed(precision, scale, modes)

    def convert(text: str) -> str | None:
        if text.startswith('"'):
            return None
        number = Decimal(text)
        scale = len(f"{number:f}".partition(".")[2].rstrip("0"))
        return f'{{"scale":{scale},"value":"{_unscaled(number, scale)}"}}'

    schema = {"type": "struct", "fields": _VARIABLE, "name": f"{_DATA}VariableScaleDecimal", "version": 1}
    return schema, convert


def _digits(of: SqlType) -> int:
    """How many of a second: where none are said, PostgreSQL's `time without time zone` has all, and MySQL's `time` none."""
    return of.sizes[0] if of.sizes else 6 if " " in of.name else 0


def _datetime(of: SqlType, modes: Modes) -> Form:
    if _digits(of) <= 3:
        return _named("int64", f"{_TIME}Timestamp"), _of_text(_millis(moments.moment_us))
    return _named("int64", f"{_TIME}MicroTimestamp"), _of_text(moments.moment_us)


def _instant(of: SqlType, modes: Modes) -> Form:
    digits = _digits(of)
    return _named("string", f"{_TIME}ZonedTimestamp"), _of_text(lambda text: moments.instant(text, digits))


def _time(of: SqlType, modes: Modes) -> Form:
    if _digits(of) <= 3:
        return _named("int32", f"{_TIME}Time"), _of_text(_millis(moments.time_us))
    return _named("int64", f"{_TIME}MicroTime"), _of_text(moments.time_us)


def _money(of: SqlType, modes: Modes) -> Form:
    """Of text in the server's lc_monetary: `$1,234.56`, `-1.234,56 €`, and of a currency without a fraction `¥1,235`."""
    schema, convert = _fixed(19, 2, modes)

    def converted(text: str) -> str | None:
        digits = "".join(letter for letter in text if letter in "0123456789")
        whole, cents = (digits[:-2], digits[-2:]) if _CENTS.search(text) else (digits, "00")
        return convert(f"{'-' if '-' in text or '(' in text else ''}{whole}.{cents}")

    return schema, converted


def _interval(of: SqlType, modes: Modes) -> Form:
    if modes.intervals == STRING:
        return _named("string", f"{_TIME}Interval"), _of_text(moments.span)
    return _named("int64", f"{_TIME}MicroDuration"), _of_text(moments.span_us)


def _float(text: str) -> str:
    """Java writes 1.0 where PostgreSQL prints 1."""
    return f"{text}.0" if text.lstrip("-").isdigit() else text


def _hstore(text: str) -> str:
    pairs = _PAIR.findall(json.loads(text))
    found = {_bare(key): None if bare == "NULL" else _bare(value) for key, bare, value in pairs}
    return quoted(json.dumps(found, ensure_ascii=False, separators=(",", ":")))


def _bare(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _uuid(of: SqlType, modes: Modes) -> Form:
    return _named("string", f"{_DATA}Uuid") if modes.has_uuids else {"type": "string"}, _same


def _bits(of: SqlType, modes: Modes) -> Form:
    """MySQL's number, or PostgreSQL's text of zeros and ones; the low byte first, and of PostgreSQL no zeros behind it."""
    size = of.sizes[0] if of.sizes else 0

    def convert(text: str) -> str:
        is_text = text.startswith('"')
        number = int(f"0{json.loads(text)}", 2) if is_text else int(text)
        if size == 1:
            return "true" if number else "false"
        count = (number.bit_length() if is_text else size) + 7 >> 3
        return f'"{b64encode(number.to_bytes(count, "little")).decode()}"'

    if size == 1:
        return {"type": "boolean"}, convert
    return {**_named("bytes", f"{_DATA}Bits"), "parameters": {"length": str(size or 2**31 - 1)}}, convert


def _point(text: str) -> str:
    printed = json.loads(text).strip("()").split(",")
    numbers = [float(each) for each in printed]
    wkb = b64encode(struct.pack("<BIdd", 1, 1, *numbers)).decode()
    x, y = [repr(number) if isfinite(number) else quoted(each) for number, each in zip(numbers, printed, strict=True)]
    return f'{{"x":{x},"y":{y},"wkb":"{wkb}","srid":null}}'


def _domain(form: ColumnForm, of: SqlType) -> ColumnForm:
    """Its values come as text, whatever it was made of."""
    return form._replace(convert=lambda text: _item(json.loads(text), True, form, of))


def _array(form: ColumnForm, of: SqlType) -> ColumnForm:
    def convert(text: str) -> str | None:
        printed = json.loads(text)
        try:
            found = _items(iter(printed[printed.find("{") :]), form, of)  # its bounds may stand before: [0:1]={1,2}
        except StopIteration:
            return None
        return "[" + ",".join(found) + "]"

    items = {**form.schema, "optional": True}
    return ColumnForm({"type": "array", "items": items}, convert, f"[{quoted(_UNAVAILABLE)}]")


def _items(letters: Iterator[str], form: ColumnForm, of: SqlType) -> list[str]:
    """The members of PostgreSQL's `{1,NULL,"a b"}`; one of several dimensions has lists in it."""
    found, bare, kept = list[str](), "", False
    if next(letters) != "{":
        raise StopIteration
    for letter in letters:
        if letter == '"':
            kept = True
            for inner in letters:
                if inner == '"':
                    break
                bare += next(letters) if inner == "\\" else inner
        elif letter == "{":
            found.append("[" + ",".join(_items(_again(letters), form, of)) + "]")
            bare, kept = "", False
            continue
        elif letter in ",}":
            if bare or kept:
                found.append(_item(bare, kept, form, of))
            bare, kept = "", False
            if letter == "}":
                break
        else:
            bare += next(letters) if letter == "\\" else letter
    return found


def _again(letters: Iterator[str]) -> Iterator[str]:
    yield "{"
    yield from letters


def _item(text: str, kept: bool, form: ColumnForm, of: SqlType) -> str:
    if text == "NULL" and not kept:
        return "null"
    if of.name == "boolean":
        return "true" if text == "t" else "false"
    is_bare = of.name in _BARE and text[-1].isdigit()
    printed = json_of(text) if of.name in ("json", "jsonb") else text if is_bare else quoted(text)
    found = form.convert(printed)
    return "null" if found is None else found


def _named(kind: str, name: str) -> dict[str, Any]:
    return {"type": kind, "name": name, "version": 1}


def _plain(kind: str, convert: Convert = _same, name: str = "") -> Callable[[SqlType, Modes], Form]:
    return lambda of, modes: (_named(kind, name) if name else {"type": kind}, convert)


_INTEGERS = {  # signed, unsigned
    "tinyint": ("int16", "int16"), "smallint": ("int16", "int32"), "mediumint": ("int32", "int32"),
    "int": ("int32", "int64"), "integer": ("int32", ""), "bigint": ("int64", "uint64"), "oid": ("int64", ""),
}  # fmt: skip
_BARE = {*_INTEGERS, "real", "double precision", "numeric"}
_TEXT = _plain("string", _as_string)
_TEXTS = ("", "text", "character varying", "character", "bpchar", "char", "name", "inet", "cidr", "macaddr", "int4range",
          "int8range", "numrange", "tsrange", "tstzrange", "daterange")  # fmt: skip
_NO_ITEMS = {"money", "point", "bit", "bit varying"}  # whose arrays are text
_FORMS: dict[str, Callable[[SqlType, Modes], Form]] = {
    **dict.fromkeys(_INTEGERS, _integer),
    **dict.fromkeys(_TEXTS, _TEXT),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _plain("bytes")),
    **dict.fromkeys(("real", "float"), _plain("float", _float)),
    **dict.fromkeys(("double precision", "double"), _plain("double", _float)),
    **dict.fromkeys(("numeric", "decimal"), _decimal),
    **dict.fromkeys(("bit", "bit varying"), _bits),
    **dict.fromkeys(("timestamp without time zone", "datetime"), _datetime),
    **dict.fromkeys(("timestamp with time zone", "timestamp"), _instant),
    **dict.fromkeys(("json", "jsonb"), _plain("string", _json, f"{_DATA}Json")),
    "boolean": _plain("boolean"),
    "bytea": _plain("bytes", lambda text: f'"{b64encode(bytes.fromhex(json.loads(text)[2:])).decode()}"'),
    "date": _plain("int32", _of_text(moments.days), f"{_TIME}Date"),
    "year": _plain("int32", _same, f"{_TIME}Year"),
    "time": _plain("int64", _of_text(moments.time_us), f"{_TIME}MicroTime"),
    "time without time zone": _time,
    "time with time zone": _plain("string", _of_text(moments.zoned_time), f"{_TIME}ZonedTime"),
    "interval": _interval,
    "money": _money,
    "hstore": _plain("string", _hstore, f"{_DATA}Json"),
    "xml": _plain("string", _same, f"{_DATA}Xml"),
    "uuid": _uuid,
    "enum": _plain("string", _same, f"{_DATA}Enum"),
    "set": _plain("string", lambda text: quoted(",".join(json.loads(text))), f"{_DATA}EnumSet"),
    "domain": _TEXT,
    "point": lambda of, modes: (
        {"type": "struct", "fields": _POINT, "name": "io.debezium.data.geometry.Point", "version": 1},
        _point,
    ),
}
