"""PostgreSQL's messages of logical decoding (`pgoutput`, protocol 1), turned into row changes: no connection, no clock.

Rule 1: values come as the text that PostgreSQL prints, and stay it: whole numbers, NUMERIC, floats, booleans and JSON
        stand bare, everything else is a string. NaN and Infinity, which JSON has not, are strings too, and told as numbers.
Rule 2: what a message does not bring is left out of `data`, never made up: a large value that an update did not touch
        (TOAST), and all but the key of a deleted row. REPLICA IDENTITY FULL brings them. Only where a row gets another
        key are they asked for, by that key: under it no reader has them.
Rule 3: messages come transaction by transaction in the order of their commits; the place moves at the commit.
Rule 4: nothing is refused for a table that nobody asked for, nor in a transaction that is passed over.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from waterclock.cdc.letters import DeadLetter, Refusal, stop
from waterclock.cdc.mysql.jsonb import json_of
from waterclock.cdc.position import Position
from waterclock.cdc.source import Item, Mark
from waterclock.changes.maxwell_message import (
    DELETE,
    INSERT,
    JSON,
    NUMBER,
    TRUNCATE,
    UPDATE,
    MaxwellMessage,
    next_sequence,
    quoted,
)
from waterclock.errors import Unreadable

_NUMBERS = {20, 21, 23, 26, 700, 701, 1700}  # int8, int2, int4, oid, float4, float8, numeric
_JSON, _BOOLEAN = {114, 3802}, 16
_KINDS = {**dict.fromkeys(_JSON, JSON), **dict.fromkeys((700, 701, 1700), NUMBER)}  # whose values do not say it all
_EPOCH_S = 946_684_800  # 2000-01-01, from which PostgreSQL counts
_UNTOUCHED = ""  # no JSON text is empty

Row = dict[str, str]
Change = tuple[str, Row, Row | None]  # what it is, the row, former values


class Relation(NamedTuple):
    """A table as the message before its first row describes it. `key` are the columns of its primary key; `unsure` says
    why they are not known."""

    number: int
    schema: str
    table: str
    names: tuple[str, ...]
    types: tuple[int, ...]
    key: tuple[str, ...]
    full: bool
    kinds: Mapping[str, str]
    unsure: str = ""


class Catalog(Protocol):
    """What is asked of the database as it is now; see catalog.py."""

    def key_of(self, number: int, names: Sequence[str]) -> tuple[str, ...]:
        """The primary key of a table whose columns had these names; Unreadable where that cannot be known."""

    def values_of(self, number: int, key: Mapping[str, str], names: Sequence[str]) -> dict[str, str | None]:
        """Of the row with that key these columns, as PostgreSQL prints them; empty where there is no such row."""


def lsn_text(lsn: int) -> str:
    """An LSN as PostgreSQL writes it.

    >>> lsn_text(0x16B374D48), lsn_number("1/6B374D48") == 0x16B374D48
    ('1/6B374D48', True)
    """
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def lsn_number(text: str) -> int:
    high, _, low = text.partition("/")
    return (int(high, 16) << 32) + int(low, 16)


class Decoder:
    """Takes messages one by one; `skip` names transactions that are left out, by their commit's LSN; `refusal` says what
    is done about a row that cannot be read."""

    def __init__(
        self,
        position: Position,
        wanted: Callable[[str, str], bool],
        catalog: Catalog,
        *,
        skip: frozenset[str] = frozenset(),
        refusal: Refusal = stop,
    ) -> None:
        self.lsn = lsn_number(position.place)
        self._settled = self._sequence = position.sequence
        self._done, self._half_sent = position.rows, position.inside
        self._wanted, self._catalog, self._skip, self._refusal = wanted, catalog, skip, refusal
        self._relations: dict[int, Relation] = {}
        self._xoffset, self._given, self._ts, self._gtid = 0, 0, 0, ""
        self._held: MaxwellMessage | None = None
        self._passed = False  # whether the transaction stands in Kafka already, or is to be left out
        self._done_before = False  # the first of the two
        self._takes: dict[int, Callable[[bytes], Iterator[Item]]] = {
            ord("B"): self._begin,
            ord("C"): self._commit,
            ord("R"): self._relation,
            ord("T"): self._truncate,
            **dict.fromkeys(b"IUD", self._row_change),
            **dict.fromkeys(b"YOM", lambda message: iter(())),  # a type's name, an origin, a word of the application
        }

    def take(self, message: bytes) -> Iterator[Item]:
        """What follows from the next message; Unreadable where it is not known."""
        if message[0] not in self._takes:
            raise Unreadable(
                f"PostgreSQL sends a message {chr(message[0])!r}, which protocol 1 of pgoutput does not have."
            )
        return self._takes[message[0]](message)

    def position(self) -> Position:
        return Position(lsn_text(self.lsn), self._settled)

    def _begin(self, message: bytes) -> Iterator[Item]:
        commit_lsn, microseconds, _ = struct.unpack_from(">QqI", message, 1)
        self._done_before = commit_lsn < self.lsn  # a commit's end lies behind its beginning
        self._ts, self._gtid, self._xoffset = _EPOCH_S + microseconds // 1_000_000, lsn_text(commit_lsn), 0
        self._passed, self._given = self._done_before or self._gtid in self._skip, 0
        if self._done_before:
            return iter(())
        self._sequence = next_sequence(self._sequence, self._ts)
        if self._done and self._half_sent != self._gtid:
            raise Unreadable(
                f"The transaction {self._half_sent} is half in Kafka, and PostgreSQL sends {self._gtid} first."
            )
        return iter(())

    def _commit(self, message: bytes) -> Iterator[Item]:
        if self._done_before:
            return
        held, self._held = self._held, None
        if held is not None:
            yield from self._give(held._replace(commit=True))
        self.lsn, self._done, self._settled = struct.unpack_from(">Q", message, 10)[0], 0, self._sequence
        yield Mark.COMMITTED

    def _relation(self, message: bytes) -> Iterator[Item]:
        relation, replica_key = _described(message)
        key, unsure = replica_key, ""
        if self._wanted(relation.schema, relation.table) and (relation.full or not replica_key):
            try:
                key = self._catalog.key_of(relation.number, relation.names)
            except Unreadable as reason:
                key, unsure = (), str(reason)
        self._relations[relation.number] = relation._replace(key=key, unsure=unsure)
        return iter(())

    def _row_change(self, message: bytes) -> Iterator[Item]:
        relation = self._relations[struct.unpack_from(">I", message, 1)[0]]
        if self._passed or not self._wanted(relation.schema, relation.table):
            return
        try:
            if relation.unsure:
                raise Unreadable(f"{relation.schema}.{relation.table}: {relation.unsure}")
            changes = _READ[message[0]](relation, message, self._catalog)
        except (Unreadable, UnicodeError) as reason:
            yield from self._put_aside(relation, message, reason)
            return
        for kind, data, old in changes:
            yield from self._hold(relation, kind, data, old)

    def _truncate(self, message: bytes) -> Iterator[Item]:
        (count,) = struct.unpack_from(">I", message, 1)
        for number in struct.unpack_from(f">{count}I", message, 6):
            relation = self._relations[number]
            if not self._passed and self._wanted(relation.schema, relation.table):
                yield from self._hold(relation._replace(key=()), TRUNCATE, {})

    def _hold(self, relation: Relation, kind: str, data: Row, old: Row | None = None) -> Iterator[Item]:
        held, number = self._held, self._xoffset
        self._xoffset = number + 1
        where = (relation.schema, relation.table, kind, self._ts, self._gtid, self._sequence, number, False)
        self._held = MaxwellMessage(*where, relation.key, data, old, None, relation.kinds)
        if held is not None:
            yield from self._give(held)

    def _put_aside(self, relation: Relation, message: bytes, reason: Exception) -> Iterator[Item]:
        said = str(reason)
        if isinstance(reason, UnicodeError):
            said = f"A row of {relation.schema}.{relation.table} holds bytes that are no UTF-8 ({reason})."
        where = (self._gtid, self._ts, self._xoffset, f"message {chr(message[0])}", said, message)
        letter = self._refusal(DeadLetter(*where, relation.schema, relation.table))
        self._xoffset += 1
        yield from self._give(letter)

    def _give(self, record: MaxwellMessage | DeadLetter) -> Iterator[Item]:
        """What was given out before the last start stands in Kafka already."""
        self._given += 1
        if self._given > self._done:
            yield record


def _described(message: bytes) -> tuple[Relation, tuple[str, ...]]:
    """A relation, its key not looked up yet, and the key that the message itself tells."""
    (number,) = struct.unpack_from(">I", message, 1)
    schema, at = _text(message, 5)
    table, at = _text(message, at)
    full = message[at : at + 1] == b"f"
    (count,) = struct.unpack_from(">H", message, at + 1)
    at += 3
    names, types, key = [], [], []
    for _ in range(count):
        is_key = message[at]
        name, at = _text(message, at + 1)
        names.append(name)
        types.append(struct.unpack_from(">I", message, at)[0])
        key += [name] if is_key else []
        at += 8
    kinds = {name: _KINDS[kind] for name, kind in zip(names, types, strict=True) if kind in _KINDS}
    return Relation(number, schema or "pg_catalog", table, tuple(names), tuple(types), (), full, kinds), tuple(key)


# Rows ----------------------------------------------------------------------------------------------------------


def _inserted(relation: Relation, message: bytes, catalog: Catalog) -> list[Change]:
    return [(INSERT, _row(relation, message, 6)[0], None)]


def _deleted(relation: Relation, message: bytes, catalog: Catalog) -> list[Change]:
    return [(DELETE, _known(relation, _row(relation, message, 6)[0]), None)]


def _updated(relation: Relation, message: bytes, catalog: Catalog) -> list[Change]:
    before: Row | None = None
    at = 5
    if message[at] != ord("N"):
        before, at = _row(relation, message, at + 1)
    after, _ = _row(relation, message, at + 1)
    if before is not None:  # where the identity is not FULL, all but the key of the former row are NULL for show
        known = relation.names if relation.full else relation.key
        after = {name: before[name] if text == _UNTOUCHED and name in known else text for name, text in after.items()}
    if before is not None and any(before[name] != after[name] for name in relation.key):
        return [(DELETE, _known(relation, before), None), (INSERT, _complete(relation, after, catalog), None)]
    old = None
    if before is not None and relation.full:
        old = {name: text for name, text in before.items() if after[name] != text}
    return [(UPDATE, {name: text for name, text in after.items() if text != _UNTOUCHED}, old)]


_READ = {ord("I"): _inserted, ord("U"): _updated, ord("D"): _deleted}


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1


def _row(relation: Relation, message: bytes, at: int) -> tuple[Row, int]:
    """The columns of a tuple as JSON text, and what follows it."""
    (count,) = struct.unpack_from(">H", message, at)
    at += 2
    row = {}
    for name, kind in zip(relation.names[:count], relation.types, strict=False):
        how, at = message[at], at + 1
        row[name] = "null" if how == ord("n") else _UNTOUCHED
        if how == ord("t"):
            (length,) = struct.unpack_from(">I", message, at)
            at += 4 + length
            row[name] = _json(kind, message[at - length : at].decode())
    return row, at


def _json(kind: int, text: str) -> str:
    if kind in _NUMBERS:
        return text if text[-1].isdigit() else quoted(text)  # NaN, Infinity
    if kind == _BOOLEAN:
        return "true" if text == "t" else "false"
    return json_of(text) if kind in _JSON else quoted(text)


def _known(relation: Relation, row: Row) -> Row:
    """What a former row says for certain: all of it under REPLICA IDENTITY FULL, else its key."""
    return row if relation.full else {name: row[name] for name in relation.key}


def _complete(relation: Relation, row: Row, catalog: Catalog) -> Row:
    """A row under its new key, its large values as they are now under that key.

    What was read may be younger than the change: then the change that made it so is still to come, and brings it again. A
    row that is not there any more goes, or gets another key, with a later change: until then it lacks these columns.
    """
    missing = [name for name, text in row.items() if text == _UNTOUCHED]
    if not missing:
        return row
    kinds = dict(zip(relation.names, relation.types, strict=True))
    key = {name: _plain(kinds[name], row[name]) for name in relation.key}
    found = catalog.values_of(relation.number, key, missing)
    read = {name: "null" if text is None else _json(kinds[name], text) for name, text in found.items()}
    return {name: read.get(name, text) for name, text in row.items() if text != _UNTOUCHED or name in read}


def _plain(kind: int, text: str) -> str:
    """A value as PostgreSQL printed it, of its JSON text."""
    return str(json.loads(text)) if text.startswith('"') and kind not in _JSON else text
