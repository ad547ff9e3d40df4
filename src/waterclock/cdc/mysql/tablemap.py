"""The table map, which stands before the rows of a table: its name, its columns' types, and what else the server says.

Rule 1: names, signs, character sets and labels come from the map itself (binlog_row_metadata=FULL), which says how the
        table was when its rows were written. What the map lacks is not guessed here.
Rule 2: a field of the map that is not known is left out; the ones that are known do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql.binlog import length_encoded
from waterclock.cdc.mysql.columns import BINARY, BinlogColumn, decoder

_SIGNS, _CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS, _KEY, _KEY_PREFIXES = 1, 2, 3, 4, 5, 6, 8, 9
_LABEL_CHARSET, _LABEL_CHARSETS = 10, 11

_INTEGERS = {types.TINY, types.SHORT, types.INT24, types.LONG, types.LONGLONG}
_SIGNED = frozenset(_INTEGERS | {types.NEWDECIMAL, types.FLOAT, types.DOUBLE, types.YEAR})
_TEXTS = frozenset({types.STRING, types.VAR_STRING, types.VARCHAR, types.BLOB})
_LABELLED = {types.ENUM, types.SET}
_SIZE_BYTES = {
    types.FLOAT: 1, types.DOUBLE: 1, types.BLOB: 1, types.GEOMETRY: 1, types.JSON: 1, types.BLOB_COMPRESSED: 1,
    types.TIME2: 1, types.DATETIME2: 1, types.TIMESTAMP2: 1,
    types.VARCHAR: 2, types.BIT: 2, types.NEWDECIMAL: 2, types.STRING: 2, types.VAR_STRING: 2,
    types.VARCHAR_COMPRESSED: 2,
}  # fmt: skip


class BinlogDialect(NamedTuple):
    """Which columns a server counts when it gives signs and character sets, one after the other: the map does not say."""

    signed: frozenset[int]
    texts: frozenset[int]


MARIADB = BinlogDialect(_SIGNED, _TEXTS | {types.GEOMETRY})
MYSQL = BinlogDialect(_SIGNED, _TEXTS)


class TableMap(NamedTuple):
    """What the event says: of every column its type and size; `fields` are the optional ones, as bytes."""

    database: str
    table: str
    types: tuple[int, ...]
    sizes: tuple[int, ...]
    fields: Mapping[int, bytes]
    nulls: bytes = b""  # a bit for each column that may be null

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"

    def is_full(self) -> bool:
        """Whether everything is there that its rows need."""
        return _NAMES in self.fields


def table_id(body: bytes) -> int:
    """The number by which the rows' events call their table; it means something until the binlog ends, at most."""
    return int.from_bytes(body[:6], "little")


def table_map(body: bytes) -> TableMap:
    """The table map in an event's body."""
    at = 8
    database, at = _named(body, at)
    table, at = _named(body, at)
    count, at = length_encoded(body, at)
    raw_types, at = body[at : at + count], at + count
    size, at = length_encoded(body, at)
    real, sizes = _typed(raw_types, body[at : at + size])
    at += size
    nulls, at = body[at : at + (count + 7) // 8], at + (count + 7) // 8
    fields = {}
    while at < len(body):
        length, start = length_encoded(body, at + 1)
        fields[body[at]] = body[start : start + length]
        at = start + length
    return TableMap(database, table, real, sizes, fields, nulls)


def _named(body: bytes, at: int) -> tuple[str, int]:
    end = at + 1 + body[at]
    return body[at + 1 : end].decode(), end + 1  # a zero byte follows


def _typed(raw_types: bytes, raw_sizes: bytes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Types and sizes. ENUM and SET come as strings, and a long CHAR has two bits of its length among the type's."""
    real, sizes, at = [], [], 0
    for kind in raw_types:
        width = _SIZE_BYTES.get(kind, 0)
        low, high = (*raw_sizes[at : at + width], 0, 0)[:2]
        at += width
        size = low | high << 8
        if kind == types.STRING:
            kind, size = low | 0x30, high | (low & 0x30 ^ 0x30) << 4
        elif kind == types.NEWDECIMAL:
            size = low << 8 | high
        elif kind == types.BIT:
            size = high * 8 + low
        real.append(kind)
        sizes.append(size)
    return tuple(real), tuple(sizes)


def described(table: TableMap, dialect: BinlogDialect, charset_of: Callable[[int], str]) -> list[BinlogColumn]:
    """The columns of a map that is full; `charset_of` gives a collation's character set."""
    # a bit for every number's column, the high bits first
    bits = table.fields.get(_SIGNS, b"")
    numbers = [place for place, kind in enumerate(table.types) if kind in dialect.signed]
    unsigned = {place for bit, place in enumerate(numbers[: 8 * len(bits)]) if bits[bit // 8] << bit % 8 & 0x80}
    collations = _collations(table, dialect.texts)
    enums, sets = (_labels(table.fields.get(kind, b"")) for kind in (_ENUMS, _SETS))
    found = []
    for place, (name, kind, size) in enumerate(zip(names(table), table.types, table.sizes, strict=True)):
        collation = collations.get(place, 0)
        charset = charset_of(collation) if collation else BINARY
        raw = next(enums if kind == types.ENUM else sets) if kind in _LABELLED else []
        decode = decoder("utf8mb4" if charset == BINARY else charset)
        labels = tuple(decode(label) for label in raw)
        found.append(BinlogColumn(name, kind, size, place in unsigned, charset, labels, collation))
    return found


def names(table: TableMap) -> list[str]:
    return [raw.decode() for raw in _strings(table.fields[_NAMES])]


def key_of(table: TableMap, columns: list[BinlogColumn]) -> tuple[str, ...]:
    """The columns of the primary key, in the key's order; none if the table has no such key."""
    places = list(_numbers(table.fields.get(_KEY, b"")))
    places += list(_numbers(table.fields.get(_KEY_PREFIXES, b"")))[::2]
    return tuple(columns[place].name for place in places)


def _numbers(raw: bytes) -> Iterator[int]:
    at = 0
    while at < len(raw):
        number, at = length_encoded(raw, at)
        yield number


def _strings(raw: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(raw):
        length, start = length_encoded(raw, at)
        at = start + length
        yield raw[start:at]


def _labels(raw: bytes) -> Iterator[list[bytes]]:
    """Of every ENUM, or every SET, its labels."""
    at = 0
    while at < len(raw):
        count, at = length_encoded(raw, at)
        labels = []
        for _ in range(count):
            length, start = length_encoded(raw, at)
            at = start + length
            labels.append(raw[start:at])
        yield labels


def _collations(table: TableMap, texts: frozenset[int]) -> dict[int, int]:
    """place of a column -> collation, of texts, and of ENUM and SET, which are given on their own."""
    found: dict[int, int] = {}
    for default, each, kinds in (
        (_CHARSET, _CHARSETS, texts),
        (_LABEL_CHARSET, _LABEL_CHARSETS, _LABELLED),
    ):
        places = [place for place, kind in enumerate(table.types) if kind in kinds]
        if default in table.fields:
            first, *pairs = _numbers(table.fields[default])
            others = dict(zip(pairs[::2], pairs[1::2], strict=True))
            found.update({place: others.get(index, first) for index, place in enumerate(places)})
        elif each in table.fields:
            found.update(zip(places, _numbers(table.fields[each]), strict=True))
    return found
