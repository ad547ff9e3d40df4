"""PostgreSQL's messages of logical decoding (`pgoutput`, protocol 1), turned into row changes: no connection, no clock.

Rule 1: values come as the text that PostgreSQL prints, and stay it: whole numbers, NUMERIC, floats, booleans and JSON
        stand bare, everything else is a string. NaN and Infinity, which JSON has not, are strings too.
Rule 2: what a message does not bring is left out of `data`, never made up: a large value that an update did not touch
        (TOAST), and all but the key of a deleted row. REPLICA IDENTITY FULL brings them.
Rule 3: messages come transaction by transaction in the order of their commits; the place moves at the commit.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple

from waterclock.cdc.mysql.jsonb import json_of
from waterclock.cdc.position import Position
from waterclock.cdc.source import Item, Mark
from waterclock.changes.maxwell_message import DELETE, INSERT, TRUNCATE, UPDATE, MaxwellMessage, next_sequence, quoted
from waterclock.errors import Unreadable

_NUMBERS = {20, 21, 23, 26, 700, 701, 1700}  # int8, int2, int4, oid, float4, float8, numeric
_JSON, _BOOLEAN = {114, 3802}, 16
_EPOCH_S = 946_684_800  # 2000-01-01, from which PostgreSQL counts
_UNTOUCHED = ""  # no JSON text is empty

Row = dict[str, str]


class Relation(NamedTuple):
    """A table as the message before its first row describes it. `key` are the columns of its primary key."""

    schema: str
    table: str
    names: tuple[str, ...]
    types: tuple[int, ...]
    key: tuple[str, ...]
    full: bool


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
    """Takes messages one by one; `key_of` asks the catalog for the primary key of a table whose identity is FULL."""

    def __init__(
        self, position: Position, wanted: Callable[[str, str], bool], key_of: Callable[[int], tuple[str, ...]]
    ) -> None:
        self.lsn = lsn_number(position.place)
        self._settled = self._sequence = position.sequence
        self._done, self._half_sent = position.rows, position.inside
        self._wanted, self._key_of = wanted, key_of
        self._relations: dict[int, Relation] = {}
        self._xoffset, self._ts, self._gtid = 0, 0, ""
        self._held: MaxwellMessage | None = None
        self._old = self._passed = False
        self._takes: dict[int, Callable[[bytes], Iterator[Item]]] = {
            ord("B"): self._begin,
            ord("C"): self._commit,
            ord("R"): self._relation,
            ord("I"): self._insert,
            ord("U"): self._update,
            ord("D"): self._delete,
            ord("T"): self._truncate,
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
        self._passed = commit_lsn < self.lsn  # it stands in Kafka already; a commit's end lies behind its beginning
        self._ts, self._gtid, self._xoffset = _EPOCH_S + microseconds // 1_000_000, lsn_text(commit_lsn), 0
        if self._passed:
            return iter(())
        self._sequence = next_sequence(self._sequence, self._ts)
        if self._done and self._half_sent != self._gtid:
            raise Unreadable(
                f"The transaction {self._half_sent} is half in Kafka, and PostgreSQL sends {self._gtid} first."
            )
        return iter(())

    def _commit(self, message: bytes) -> Iterator[Item]:
        if self._passed:
            return
        held, self._held = self._held, None
        if held is not None:
            yield held._replace(commit=True)
        self.lsn, self._done, self._settled = struct.unpack_from(">Q", message, 10)[0], 0, self._sequence
        yield Mark.COMMITTED

    def _relation(self, message: bytes) -> Iterator[Item]:
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
        found = tuple(key) if key and not full else self._key_of(number)  # REPLICA IDENTITY NOTHING says none
        if not set(found) <= set(names):
            raise Unreadable(
                f"The primary key of {schema}.{table} is ({', '.join(found)}) now, and was another one when these rows "
                "were written, which REPLICA IDENTITY FULL does not say. Give its columns the names they had, and once "
                "that is read, the new ones again."
            )
        self._relations[number] = Relation(schema or "pg_catalog", table, tuple(names), tuple(types), found, full)
        return iter(())

    def _insert(self, message: bytes) -> Iterator[Item]:
        relation = self._asked_for(message)
        if relation is not None:
            yield from self._hold(relation, INSERT, _row(relation, message, 6)[0])

    def _update(self, message: bytes) -> Iterator[Item]:
        relation = self._asked_for(message)
        if relation is None:
            return
        before: Row | None = None
        at = 5
        if message[at] != ord("N"):
            before, at = _row(relation, message, at + 1)
        after, _ = _row(relation, message, at + 1)
        if before is not None:  # where the identity is not FULL, all but the key of the former row are NULL for show
            known = relation.names if relation.full else relation.key
            after = {
                name: before[name] if text == _UNTOUCHED and name in known else text for name, text in after.items()
            }
        if before is not None and any(before[name] != after[name] for name in relation.key):
            yield from self._hold(relation, DELETE, _known(relation, before))
            yield from self._hold(relation, INSERT, _complete(relation, after))
            return
        old = None
        if before is not None and relation.full:
            old = {name: text for name, text in before.items() if after[name] != text}
        yield from self._hold(relation, UPDATE, {name: text for name, text in after.items() if text != _UNTOUCHED}, old)

    def _delete(self, message: bytes) -> Iterator[Item]:
        relation = self._asked_for(message)
        if relation is not None:
            yield from self._hold(relation, DELETE, _known(relation, _row(relation, message, 6)[0]))

    def _truncate(self, message: bytes) -> Iterator[Item]:
        (count,) = struct.unpack_from(">I", message, 1)
        for number in struct.unpack_from(f">{count}I", message, 6):
            relation = self._relations[number]
            if not self._passed and self._wanted(relation.schema, relation.table):
                yield from self._hold(relation._replace(key=()), TRUNCATE, {})

    def _asked_for(self, message: bytes) -> Relation | None:
        relation = self._relations[struct.unpack_from(">I", message, 1)[0]]
        return relation if not self._passed and self._wanted(relation.schema, relation.table) else None

    def _hold(self, relation: Relation, kind: str, data: Row, old: Row | None = None) -> Iterator[Item]:
        held, number = self._held, self._xoffset
        self._xoffset = number + 1
        if number >= self._done:
            where = (relation.schema, relation.table, kind, self._ts, self._gtid, self._sequence, number, False)
            self._held = MaxwellMessage(*where, relation.key, data, old)
        if held is not None:
            yield held


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


def _complete(relation: Relation, row: Row) -> Row:
    missing = [name for name, text in row.items() if text == _UNTOUCHED]
    if missing:
        raise Unreadable(
            f"A row of {relation.schema}.{relation.table} got another key, and PostgreSQL did not send its "
            f"{', '.join(missing)}. "
            f"ALTER TABLE {relation.schema}.{relation.table} REPLICA IDENTITY FULL; and write that row once more."
        )
    return row
