"""Tables that mirror those of a database: each change goes to the table that it names, and tables are made as they come.

What a sink is given is a table of packed changes: CHANGES of changes/packed.py says what stands in its columns.

Promises, however often changes and batches come, and in whatever order; updates that do not bring all columns have to come
in the order of their partition, though their writer may send some of them a second time:

    for every key a table holds what the changes of that key say up to the largest position, and nothing if that is a
    delete, or if a truncate of its table has a larger one
    a column that an update does not bring keeps what it has; a table has the columns that were seen with a value

Rule 1: a batch is reduced to one row a key before it is written, in the order of positions.
Rule 2: positions, of deleted keys and of truncates too, stand in <table>_positions, and nowhere else: the mirrored tables
        hold what the source's hold.
Rule 3: a column's type is what its values need, and grows with them: whole numbers, numbers with a point, JSON. A table
        that is there, and empty, is taken with the types that it has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from waterclock.changes.packed import CHANGES, NULL, PackedChange
from waterclock.errors import UsageError
from waterclock.sinks.destination import SinkTable
from waterclock.sinks.tables import (
    POSITION_COLUMNS,
    POSITION_KEY,
    POSITIONS,
    Table,
    listed,
    quoted,
    refuse_other_keys,
    rows_gone,
    rows_of_somebody_else,
)
from waterclock.sinks.takeover import FROM_CAPTURE, is_others, older_rows, refuse_others, refuse_turned, turned_back

_ASKED = 500  # keys in one question
ON_DROP = ("keep", "follow")
_TRUNCATE = ""  # stands in the place of a key; a key's JSON is never empty
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")  # of a database, and none of JSON
STAGED = tuple(f"_waterclock_{name}" for name in ("key", "position", "gone", "whole"))  # beside the table's columns
KEY, POSITION, GONE, WHOLE = STAGED


@dataclass(frozen=True, slots=True)
class Replica:
    """Given to a sink as `mirror`: its batches are changes, and it mirrors each table that they name. `schemas` is the
    topic of their schemas, or ""; `on_drop` what becomes of a column that the source dropped (following.py)."""

    schemas: str = ""
    on_drop: str = "keep"

    @classmethod
    def from_table(cls, given: SinkTable) -> Replica:
        """What [sink] says; UsageError if that cannot be."""
        schemas, on_drop = given.text("schemas", ""), given.one_of("on_drop", ON_DROP, "keep")
        if schemas and not re.fullmatch(r"kafka://[^/@]+/[^/]+", schemas):
            raise UsageError(f"[sink]: schemas = {schemas!r}: write kafka://host:9092/NAME.schema")
        return cls(schemas, on_drop)


class ReducedRow(NamedTuple):
    """What a batch's changes of one key come to. `whole`: columns that are not in `values` are null, not kept."""

    key: str
    position: str
    gone: bool
    whole: bool
    values: dict[str, tuple[str, str | None]]


@dataclass(frozen=True, slots=True)
class Form:
    """A table as it stands: its columns with the kind that each takes ("" takes all), and its primary key."""

    columns: dict[str, str]
    key: tuple[str, ...]


@dataclass(slots=True)
class TableChanges:
    """A table's part of a batch: the last truncate's position, "" if there is none, and the rows after it. `several`
    are the changes of the keys that have more than one, and of them an update last, which may keep columns."""

    table: str
    truncated: str = ""
    rows: list[ReducedRow] = field(default_factory=list)
    several: dict[str, list[PackedChange]] = field(default_factory=dict)

    @property
    def positions(self) -> list[str]:
        return [self.truncated, *(row.position for row in self.rows)]


class TableMaker(Protocol):
    """Where mirrored tables get their forms; `table` is the source's name, such as shop.item."""

    def make(self, table: str, columns: dict[str, str], key: Sequence[str]) -> None: ...

    def add(self, table: str, column: str, kind: str) -> None: ...

    def widen(self, table: str, column: str, kind: str) -> None:
        """Give a column the type of `kind`, which holds all that it held."""


class MirroringDatabase(TableMaker, Protocol):
    """A database with mirrored tables in it."""

    def form(self, table: str) -> Form | None:
        """How it stands; None if it is not there."""

    def name(self, table: str) -> str:
        """Its name, quoted."""

    def stage(self, table: str, kinds: Mapping[str, str], rows: Sequence[ReducedRow]) -> str:
        """A temporary table of STAGED and the columns of `kinds`; the value is its name, quoted."""

    def drop(self, staged: str) -> None: ...

    def run(self, statement: str) -> list[tuple[Any, ...]]: ...


def positions_table(types: Sequence[str]) -> Table:
    """The table of positions, in a database's own types."""
    return Table(POSITIONS, tuple(zip(POSITION_COLUMNS, types, strict=True)), POSITION_KEY)


# A batch -------------------------------------------------------------------------------------------------------


def reduced(changes: pa.Table) -> Iterator[TableChanges]:
    """The changes of a batch by table, in the order of their names, one row a key."""
    columns = [changes.column(name).to_pylist() for name in CHANGES.names]
    packed = [PackedChange._make(row) for row in zip(*columns, strict=True)]
    refuse_turned(packed)
    rows = sorted(packed, key=lambda row: (row.table, row.key, row.position))
    for table, of_table in groupby(rows, key=lambda row: row.table):
        made = TableChanges(table)
        for key, of_key in groupby(of_table, key=lambda row: row.key):
            found = list(of_key)
            if key == _TRUNCATE:
                made.truncated = found[-1].position
                continue
            made.rows.append(_reduced_row(key, found))
            if found[-1].operation == "update" and found[0].position < found[-1].position:
                made.several[key] = found
        made.rows = [row if row.position > made.truncated else row._replace(gone=True) for row in made.rows]
        yield made


def _reduced_row(key: str, changes: Sequence[PackedChange]) -> ReducedRow:
    """What the changes of a key come to, the later ones behind."""
    gone, whole, last = False, False, ""
    values: dict[str, tuple[str, str | None]] = {}
    for _, operation, _, position, names, kinds, texts in changes:
        brought = dict(zip(names, zip(kinds, texts, strict=True), strict=True))
        if operation == "delete":
            gone, whole, values = True, True, brought
        else:
            begins = operation == "insert"
            values = brought if begins else {**values, **brought}
            gone, whole = False, whole or begins
        last = position
    return ReducedRow(key, last, gone, whole, values)


# Into the tables -----------------------------------------------------------------------------------------------


class Follower(Protocol):  # following.py
    def mapped(self, changes: pa.Table) -> pa.Table: ...
    def follow(self, place: Any, positions: str, table: str, form: Form | None) -> Form | None: ...


def apply(place: MirroringDatabase, positions: str, changes: pa.Table, follower: Follower | None = None) -> None:
    """Put a batch's changes where they belong; `positions` is the quoted name of the table of positions."""
    for changed in reduced(changes if follower is None else follower.mapped(changes)):
        form, of_table = place.form(changed.table), f"FROM {positions} WHERE table_name = {literal(changed.table)}"
        truncates = place.run(f"SELECT position {of_table} AND key = '{_TRUNCATE}'")
        before = str(truncates[0][0]) if truncates else ""
        rows = changed.rows if form is None else _of_newer_changes(place, positions, changed, form, before)
        rows = since(rows, before)
        known = place.run(f"SELECT position {of_table} LIMIT 1")  # none: the table is not ours
        if form is not None and not known and place.run(f"SELECT 1 FROM {place.name(changed.table)} LIMIT 1"):
            raise rows_of_somebody_else(place.name(changed.table))
        if form is None and place.run(f"SELECT 1 {of_table} AND NOT deleted LIMIT 1"):
            raise rows_gone(place.name(changed.table))
        refuse_others(changed.table, changed.positions, str(known[0][0]) if known else "", before)
        if follower is not None:
            form = follower.follow(place, positions, changed.table, form)
        if is_others(changed.truncated) and place.run(f"SELECT 1 {of_table} AND {FROM_CAPTURE} LIMIT 1"):
            raise turned_back(changed.table)
        if changed.truncated > before:
            _truncate(place, positions, changed)
        form = widened(place, changed.table, rows, form)
        for names, of_names in groupby(sorted(rows, key=_names), key=_names):
            _put(place, positions, changed.table, form, list(names), list(of_names))


def _of_newer_changes(
    place: MirroringDatabase, positions: str, changed: TableChanges, form: Form, truncated: str
) -> list[ReducedRow]:
    """The rows; one that keeps columns is made of those changes only that are newer than what is known of its key.

    A writer that begins again some way back brings changes a second time. If a batch has a new change that leaves
    columns out, and the first of the old ones, those would be put over what came between the two.
    """
    known = _known(place, positions, changed.table, list(_keeping(changed, form)))
    return newer_rows(changed, known, form, truncated)


def _keeping(changed: TableChanges, form: Form) -> dict[str, list[PackedChange]]:
    """The changes of the keys that have several, the last of which leaves columns out."""
    columns = form.columns.keys()
    return {key: of_key for key, of_key in changed.several.items() if not columns <= set(of_key[-1][4])}


def newer_rows(changed: TableChanges, known: Mapping[str, str], form: Form, truncated: str) -> list[ReducedRow]:
    """The rows as `_of_newer_changes` says; `known` has the positions of the keys of `_keeping` that have one."""
    some = _keeping(changed, form)

    def renewed(row: ReducedRow) -> ReducedRow:
        if row.gone or row.key not in known or row.key not in some:
            return row
        floor = max(known[row.key], truncated)  # not of this batch: a row that came again may lack columns
        newer = [change for change in some[row.key] if change[3] > floor]
        return _reduced_row(row.key, newer) if newer else row

    return [renewed(row) for row in changed.rows]


def since(rows: list[ReducedRow], truncated: str) -> list[ReducedRow]:
    """The rows; those that are older than a truncate are gone."""
    return [row if row.position > truncated else row._replace(gone=True) for row in rows]


def _known(place: MirroringDatabase, positions: str, table: str, keys: list[str]) -> dict[str, str]:
    """The position of each of the keys that has one."""
    found: dict[str, str] = {}
    for start in range(0, len(keys), _ASKED):
        some = ", ".join(map(literal, keys[start : start + _ASKED]))
        query = f"SELECT key, position FROM {positions} WHERE table_name = {literal(table)} AND key IN ({some})"
        found.update((str(key), str(position)) for key, position in place.run(query))
    return found


def _names(row: ReducedRow) -> tuple[str, ...]:
    """The columns that are written: those of the key for a row that is gone."""
    return tuple(sorted(json.loads(row.key))) if row.gone else tuple(row.values)


def _put(
    place: MirroringDatabase, positions: str, table: str, form: Form, names: list[str], rows: list[ReducedRow]
) -> None:
    """Rows that bring the same columns, in numbered steps."""
    names = [name for name in names if name in form.columns]
    staged = place.stage(table, {name: form.columns[name] for name in names}, rows)
    older = {int(letters) for (letters,) in place.run(older_rows(literal(table), positions, staged))}
    if older - {0}:
        raise turned_back(table)
    covered = set(names) >= set(form.columns)
    for statement in statements(table, place.name(table), positions, staged, names, form.key, covered)[not older :]:
        place.run(statement)
    place.drop(staged)


def statements(
    table: str, name: str, positions: str, staged: str, names: list[str], key: Sequence[str], covered: bool
) -> list[str]:
    """How staged rows get into a table, in SQL.

    1. forget changes that are not newer than what is known of their key
    2. remember the position of the others, deletes too
    3. delete the rows of deleted keys, and those that begin anew if columns would keep what they had
    4. insert the other rows, or put them in the place of older ones
    """
    of_table = literal(table)
    rest = [each for each in names if each not in key]
    update = ", ".join(f"{quoted(each)} = excluded.{quoted(each)}" for each in rest)
    begins = GONE if covered else f"({GONE} OR {WHOLE})"
    return [
        f"DELETE FROM {staged} AS c WHERE EXISTS (SELECT 1 FROM {positions} AS p "
        f"WHERE p.table_name = {of_table} AND p.key = c.{KEY} AND p.position >= c.{POSITION})",
        f"INSERT INTO {positions} ({listed(POSITION_COLUMNS)}) SELECT {of_table}, {KEY}, {POSITION}, {GONE} FROM {staged} "
        f"WHERE true ON CONFLICT ({listed(POSITION_KEY)}) DO UPDATE "
        "SET position = excluded.position, deleted = excluded.deleted",
        f"DELETE FROM {name} WHERE ({listed(list(key))}) IN (SELECT {listed(list(key))} FROM {staged} WHERE {begins})",
        f"INSERT INTO {name} ({listed(names)}) SELECT {listed(names)} FROM {staged} WHERE NOT {GONE} "
        f"ON CONFLICT ({listed(list(key))}) DO {f'UPDATE SET {update}' if update else 'NOTHING'}",
    ]


def _truncate(place: MirroringDatabase, positions: str, changed: TableChanges) -> None:
    """Rows whose position is smaller go, but those that the batch changes later; what comes later finds the truncate's."""
    table = literal(changed.table)
    older = f"table_name = {table} AND position < '{changed.truncated}' AND key <> '{_TRUNCATE}' AND NOT deleted"
    newer = {row.key for row in changed.rows if row.position > changed.truncated}
    keys = [key for (key,) in place.run(f"SELECT key FROM {positions} WHERE {older}") if key not in newer]
    if keys:
        form = place.form(changed.table)
        assert form is not None
        refuse_other_keys(changed.table, form.key, keys)
        rows = [ReducedRow(key, "", True, True, as_values(key)) for key in keys]
        staged = place.stage(changed.table, {name: form.columns[name] for name in form.key}, rows)
        columns = listed(list(form.key))
        place.run(f"DELETE FROM {place.name(changed.table)} WHERE ({columns}) IN (SELECT {columns} FROM {staged})")
        place.drop(staged)
        place.run(f"UPDATE {positions} SET deleted = true, position = '{changed.truncated}' WHERE {older}")
    place.run(
        f"INSERT INTO {positions} ({listed(POSITION_COLUMNS)}) "
        f"VALUES ({table}, '{_TRUNCATE}', '{changed.truncated}', true) "
        f"ON CONFLICT ({listed(POSITION_KEY)}) DO UPDATE SET position = excluded.position"
    )


def as_values(key: str) -> dict[str, tuple[str, str | None]]:
    """The columns of a key, as a change brings them."""
    return {name: (value[0], value[1:]) for name, value in json.loads(key).items()}


def empty_all(place: MirroringDatabase, positions: str) -> None:
    """Take all rows out of the tables that were written to; the tables stay, with the types that they have."""
    for (table,) in place.run(f"SELECT DISTINCT table_name FROM {positions}"):
        if place.form(table) is not None:
            place.run(f"DELETE FROM {place.name(table)}")


# Forms ---------------------------------------------------------------------------------------------------------


def widened(place: TableMaker, table: str, rows: list[ReducedRow], form: Form | None) -> Form:
    """The table's form once it can take `rows`."""
    if form is None and not rows:
        return Form({}, ())
    wanted, key = _kinds(rows), tuple(sorted(json.loads(rows[0].key))) if form is None else form.key
    refuse_other_keys(table, key, [row.key for row in rows])
    if form is None:
        place.make(table, wanted, key)
        return Form(wanted, key)
    columns = dict(form.columns)
    for column, kind in wanted.items():
        if column not in columns:
            place.add(table, column, kind)
            columns[column] = kind
        elif columns[column] and (wider := joined(columns[column], kind)) != columns[column]:
            place.widen(table, column, wider)
            columns[column] = wider
    return Form(columns, form.key)


def _kinds(rows: list[ReducedRow]) -> dict[str, str]:
    """The columns that rows bring with a value, and the kind that holds all of them."""
    found: dict[str, str] = {}
    for row in rows:
        for name, (kind, _) in row.values.items():
            if kind != NULL and found.get(name) != kind:
                found[name] = joined(found.get(name, kind), kind)
    return found


def joined(one: str, other: str) -> str:
    """The kind that holds the values of both.

    >>> joined("i", "n"), joined("t", "t"), joined("i", "t")
    ('n', 't', 'j')
    """
    if one == other:
        return one
    return "n" if {one, other} == {"i", "n"} else "j"


def literal(text: str) -> str:
    """A text as SQL writes it.

    >>> literal("shop.o'item")
    "'shop.o''item'"
    """
    return "'" + text.replace("'", "''") + "'"


def shown(kind: str, value: tuple[str, str | None] | None) -> str | None:
    """What a column of `kind` is given for a value: in one of JSON, a value that came as something else is JSON too.

    >>> shown("t", ("t", "a")), shown("j", ("t", "a")), shown("j", ("i", "4")), shown("j", ("n", "NaN")), shown("t", None)
    ('a', '"a"', '4', '"NaN"', None)
    """
    if value is None or value[1] is None:
        return None
    if kind == "j" and (value[0] in "tx" or value[1] in _NO_NUMBERS):
        return json.dumps(value[1], ensure_ascii=False)
    return value[1]
