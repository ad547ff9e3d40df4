"""Mirrored tables with the forms that the source's have: their types, and what ALTER TABLE made of them.

A capture's topic NAME.schema says from which position on a table has which columns. A change in hand is behind its schema
in Kafka, so the topic is read to its end before a batch is applied, from where the last one ended.

Rule 1: which schema a table stands at is kept beside its positions, in the batch's transaction: a kill takes both or none.
Rule 2: a table goes from there to the last schema at once, by its columns' numbers: RENAME, ADD, another type, DROP. A
        change that is older than the last schema, whenever it comes, has its columns renamed likewise, and is given what a
        new column has in older rows. So the order of partitions does not matter.
Rule 3: a column that the source dropped stays (on_drop = "keep"), or goes ("follow"). One that stays keeps its last name,
        until that is a new one's: then it is called NAME_dropped_NUMBER, for good. So its name follows from the history of
        schemas alone, and not from when a batch came.
Rule 4: a table that is there, and stands at no schema, stays as it is; it follows from then on. So does one that the source
        dropped and made anew with its key elsewhere.
Rule 5: what is not known is asked for, never guessed: whether a column was renamed; and a key's columns keep their names,
        since positions are kept under them.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from waterclock.changes.packed import CHANGES, PackedChange, as_table
from waterclock.changes.table_schema import ColumnSchema, SchemaHistory, TableSchema
from waterclock.errors import UsageError
from waterclock.sinks.mirrors import Form, MirroringDatabase, Replica, literal
from waterclock.sinks.tables import POSITION_COLUMNS, POSITION_KEY, another_key, listed, quoted

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("waterclock.sinks")
_SCHEMA = "schema"  # stands in the place of a key; a key is a JSON object
_AGAIN = "have its rows come again (waterclock cdc snapshot)"
# a type of PostgreSQL or MySQL, and no array of it
_NUMBER = re.compile(
    r"(?:(?:tiny|small|medium|big)?int(?:eger)?|year|numeric|decimal|real|float|double(?: precision)?)\b[^\[]*"
)
_PACKED = 32  # letters of a position of two parts


class FollowingDatabase(MirroringDatabase, Protocol):
    """A database whose mirrored tables may have types of their own."""

    def type_of(self, source: str, declared: str) -> str:
        """The type for a column that `source` declares so; "" for none."""

    def value(self, word: str, value: tuple[str, str]) -> str:
        """An expression for a value, its kind and its text, in a column of the type `word`."""

    def create(self, table: str, columns: dict[str, str], key: Sequence[str]) -> None: ...

    def retype(self, table: str, column: str, word: str) -> None: ...


class SchemaFollower:
    """A sink's knowledge of NAME.schema; `read` gives its messages from an offset on."""

    def __init__(self, history: SchemaHistory, on_drop: str, topic: str = "", servers: str = "") -> None:
        self.history, self._on_drop = history, on_drop
        self._topic, self._servers, self._offset = topic, servers, 0
        self._names: dict[tuple[str, tuple[int, int]], dict[int, str]] = {}

    @classmethod
    def of(cls, mirror: Replica) -> SchemaFollower | None:
        """None for a mirror that was told of no schemas."""
        parts = urlsplit(mirror.schemas)
        return cls(SchemaHistory(), mirror.on_drop, parts.path.strip("/"), parts.netloc) if mirror.schemas else None

    def mapped(self, changes: pa.Table) -> pa.Table:
        """The changes with the columns that their tables have now."""
        self._read_on()
        self._names.clear()
        rows = zip(*(changes.column(name).to_pylist() for name in CHANGES.names), strict=True)
        return as_table(self._present(PackedChange._make(row)) for row in rows)

    def follow(self, place: FollowingDatabase, positions: str, table: str, form: Form | None) -> Form | None:
        """The table's form, once it is that of the last schema."""
        last = self.history.last(table)
        if last is None or not last.key:
            return form
        row = f"FROM {positions} WHERE table_name = {literal(table)} AND key = '{_SCHEMA}'"
        stood = place.run(f"SELECT position {row}")
        if form is not None and stood and str(stood[0][0]) >= _packed(last.since):
            return form
        if form is None:
            columns = {column.name: place.type_of(last.source, column.type) for column in last.columns}
            place.create(table, columns, last.key)
            if any(each.unsure for each in self.history.of(table)):
                log.warning(
                    "Columns of %s went, others came. If one was renamed, older rows lack it: %s.", table, _AGAIN
                )
        elif stood:
            then = self.history.at(table, _unpacked(str(stood[0][0])))
            if then is not None and not _is_anew(then, last):
                self._alter(place, table, then, last, form)
        place.run(
            f"INSERT INTO {positions} ({listed(POSITION_COLUMNS)}) VALUES ({literal(table)}, '{_SCHEMA}', "
            f"'{_packed(last.since)}', true) ON CONFLICT ({listed(POSITION_KEY)}) "
            "DO UPDATE SET position = excluded.position"
        )
        return place.form(table)

    def _read_on(self) -> None:
        if not self._topic:
            return
        from waterclock.kafka.client import whole  # Kafka's client is needed by this alone

        for message in whole({"bootstrap.servers": self._servers}, self._topic, self._offset):
            self.history.add(TableSchema.parsed(message.value()))
            self._offset = message.offset() + 1

    def _present(self, change: PackedChange) -> PackedChange:
        """Rule 2, of a change."""
        last = self.history.last(change.table)
        if last is None or len(change.position) != _PACKED or change.position >= _packed(last.since):
            return change
        then = self.history.at(change.table, _unpacked(change.position))
        if then is None or not change.names or _is_anew(then, last):
            return change
        now, called = {column.number for column in last.columns}, self._called(change.table, last)
        numbers = {column.name: column.number for column in then.columns}
        brought: dict[str, tuple[str, str | None]] = {}
        for name, kind, text in zip(change.names, change.kinds, change.texts, strict=True):
            number = numbers.get(name, 0)
            if not number or number in now or self._on_drop == "keep":
                brought[called.get(number, name)] = (kind, text)
        if change.operation != "delete":
            there = set(numbers.values())
            for column in last.columns:
                if column.number not in there and column.older is not None:
                    brought[column.name] = _older(column)
        kinds = "".join(kind for kind, _ in brought.values())
        return change._replace(names=list(brought), kinds=kinds, texts=[text for _, text in brought.values()])

    def _alter(self, place: FollowingDatabase, table: str, then: TableSchema, last: TableSchema, form: Form) -> None:
        """In steps: what goes, names, new columns with what older rows have, types."""
        self._refuse(table, then, last)
        name, called, moves = place.name(table), self._called(table, last), {}
        former, now = ({column.number: column for column in each.columns} for each in (then, last))
        for number, before in self._called(table, then).items():
            if before not in form.columns or (number in now and number not in former):
                continue
            if number in former and number not in now and self._on_drop == "follow":
                place.run(f"ALTER TABLE {name} DROP COLUMN {quoted(before)}")
            else:
                moves[before] = called[number]
        for statement in _renames(name, moves):
            place.run(statement)
        renamed = place.form(table)
        assert renamed is not None
        for number, column in now.items():
            was, word = former.get(number), place.type_of(last.source, column.type)
            if column.name not in renamed.columns:
                place.run(f"ALTER TABLE {name} ADD COLUMN {quoted(column.name)} {word}")
                _fill(place, name, column, word)
            elif was is not None and was.type != column.type:
                is_json = place.type_of(last.source, was.type).lower().startswith("json")
                if is_json or renamed.columns[column.name] == "":
                    place.retype(table, column.name, word)

    def _called(self, table: str, at: TableSchema) -> dict[int, str]:
        """What the columns that there were up to the schema `at` are called since then, by number: rule 3."""
        if (found := self._names.get((table, at.since))) is not None:
            return found
        names: dict[int, str] = {}
        for schema in self.history.of(table):
            if schema.since <= at.since:
                now = {column.number: column.name for column in schema.columns}
                taken = {*now.values()}
                gone = {n: each for n, each in names.items() if n not in now and each in taken}
                names |= {n: f"{each}_dropped_{n}" for n, each in gone.items()} | now
        self._names[table, at.since] = names
        return names

    def _refuse(self, table: str, then: TableSchema, last: TableSchema) -> None:
        """Rule 5."""
        if any(each.unsure for each in self.history.of(table) if each.since > then.since):
            raise UsageError(
                f"columns of {table} went and others came, and nothing says whether one was renamed: "
                f"({', '.join(column.name for column in then.columns)}) became "
                f"({', '.join(column.name for column in last.columns)}). Drop the table in the target, begin with "
                f"--fresh, and {_AGAIN}"
            )
        if then.key != last.key:
            raise another_key(table, then.key, last.key)


def _is_anew(then: TableSchema, last: TableSchema) -> bool:
    """Whether it is another table of the name, as PostgreSQL counts the columns of each from 1: by them `last` is no ALTER
    TABLE of `then`, and a key's column would be taken for another one."""
    keys = [{each.name: each.number for each in of.columns if each.name in of.key} for of in (then, last)]
    return then.key == last.key and keys[0] != keys[1]


def _fill(place: FollowingDatabase, name: str, column: ColumnSchema, word: str) -> None:
    if column.older is not None:
        place.run(f"UPDATE {name} SET {quoted(column.name)} = {place.value(word, _older(column))}")
    elif not column.older_known:
        log.warning(
            "What %s has in rows of %s that are older than it is not known: it is null there.", column.name, name
        )


def _older(column: ColumnSchema) -> tuple[str, str]:
    """Kind and text of what rows have that are older than the column, as a change brings it.

    >>> _older(ColumnSchema("ok", "boolean", older="t")), _older(ColumnSchema("n", "int unsigned", older="7"))
    (('b', 'true'), ('i', '7'))
    """
    text = str(column.older)
    if column.type == "boolean":
        return "b", "true" if text in ("t", "true") else "false"
    if _NUMBER.fullmatch(column.type):
        return ("i" if re.fullmatch(r"-?\d{1,18}", text) else "n"), text
    return ("j" if column.type.startswith("json") else "t"), text


def _renames(name: str, moves: Mapping[str, str]) -> list[str]:
    """First out of each other's way: a and b may change their names.

    >>> _renames("t", {"a": "a", "b": "c"})
    ['ALTER TABLE t RENAME COLUMN "b" TO "_waterclock_0"', 'ALTER TABLE t RENAME COLUMN "_waterclock_0" TO "c"']
    """
    real = [(old, new) for old, new in moves.items() if old != new]
    steps = [(old, f"_waterclock_{place}") for place, (old, _) in enumerate(real)]
    steps += [(f"_waterclock_{place}", new) for place, (_, new) in enumerate(real)]
    return [f"ALTER TABLE {name} RENAME COLUMN {quoted(old)} TO {quoted(new)}" for old, new in steps]


def _packed(since: tuple[int, int]) -> str:
    return f"{since[0]:016x}{since[1]:016x}"


def _unpacked(position: str) -> tuple[int, int]:
    return int(position[:16], 16), int(position[16:], 16)
