"""Chunks of PostgreSQL's tables: a view that says which transactions it shows, against those that the log gave out.

Rule 1: the tables are locked (ACCESS SHARE, as SELECT does) before the view is opened: TRUNCATE and an ALTER that rewrites
        a table leave an empty one to a view from before.
Rule 2: step 3: all that was given out must be shown, or the chunk is read again. Step 4: what is given out while it waits,
        and is not shown, takes its keys out; TRUNCATE takes all.
Rule 3: a chunk waits for the end of the log as it is after the read: the commit of all that the view shows lies before it.
Rule 4: catalog and publication are asked in the view: columns, the key by the table's identity, filters. A key's columns
        stand in the order of the table's (catalog.py), and are read in the order of the index.
Rule 5: if several tables cannot be read together the first is read alone: then an error is its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

import psycopg
from psycopg import sql

from waterclock.cdc.chunks import BOOTSTRAP, BYTES, WHOLE_BYTES, WHOLE_ROWS, Chunk, Standing, too_large, whole
from waterclock.cdc.held import OlderRest
from waterclock.cdc.part import by_key
from waterclock.cdc.postgres.pgoutput import lsn_number
from waterclock.cdc.postgres.rows import Relation, Row, json_text, plan_of
from waterclock.cdc.postgres.session import ReplicationSlot, connected, errors_of_postgres
from waterclock.cdc.postgres.shape import shape
from waterclock.cdc.postgres.slot import SlotReader, end_of_log
from waterclock.cdc.postgres.sql_types import types_of
from waterclock.cdc.postgres.view import View, unseen
from waterclock.cdc.source import DeadLetter, Record, parts_of
from waterclock.changes.maxwell import TRUNCATE, MaxwellMessage
from waterclock.changes.sql_types import ColumnTypes
from waterclock.changes.table_schema import TableSchema
from waterclock.clock import WallClock
from waterclock.errors import UsageError, unstopped

_ALONE = psycopg.errors.UndefinedTable, psycopg.errors.LockNotAvailable
_PIECE = 500  # rows of a FETCH at most
_TABLE = (
    "select c.oid, c.relkind = 'p', case c.relreplident when 'i' then 'i' else 'p' end "
    "from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "where n.nspname = %s and c.relname = %s and c.relkind in ('r', 'p')"
)
_COLUMNS = (
    "select attname, atttypid, atttypmod from pg_attribute where attrelid = %s and attnum > 0 and not attisdropped "
    "and attgenerated = '' order by attnum"
)
_KEY = (
    "select a.attname, format_type(a.atttypid, a.atttypmod), a.attcollation::text from pg_index i join pg_attribute a "
    "on a.attrelid = i.indrelid and a.attnum = any(i.indkey) where i.indrelid = %s "
    "and case %s when 'i' then i.indisreplident else i.indisprimary end "
    "and array_position(i.indkey::int2[], a.attnum) < i.indnkeyatts order by array_position(i.indkey::int2[], a.attnum)"
)
_THERE = (
    "select n.nspname::text, c.relname::text from pg_class c join pg_namespace n on n.oid = c.relnamespace "
    "where c.relkind in ('r', 'p')"
)
_NAMES = "select schemaname || '.' || tablename from pg_publication_tables where pubname = %s"
_PUBLISHED = "select to_jsonb(t) from pg_publication_tables t where pubname = %s and schemaname = %s and tablename = %s"
_REMEDY = "Leave it out (--tables) and copy it by hand, or begin without what is older (--snapshot never)."


class SelectedTable(NamedTuple):
    """How a table, `names` with its schema, is asked for: its name as SQL, columns with their types, the key in the index's
    order with its types, and the publication's filter; `number` and `brackets` as a Relation has them; `is_whole`: it has
    rows and no key, and comes in one chunk; `order`: what the key's columns are, whose values are ordered by that."""

    names: tuple[str, str]
    name: sql.Composable
    columns: dict[str, int]
    key: dict[str, str]
    only: str
    types: ColumnTypes
    number: int = 0
    brackets: tuple[int, ...] = ()
    is_whole: bool = False
    order: str = ""

    def named_key(self) -> tuple[str, ...]:
        return tuple(name for name in self.columns if name in self.key)


class SlotChunks:
    """A `ChunkReader` beside a slot's reader."""

    def __init__(self, reader: SlotReader, slot: ReplicationSlot, clock: WallClock) -> None:
        self._reader, self._slot, self._clock = reader, slot, clock
        self._view: View | None = None  # the latest one
        with errors_of_postgres(slot):
            self._asking = connected(slot)
            self._unseen = unseen(self._asking)
        self._doubted = set(self._unseen)  # of these it is not known whether the log gave them out before

    def is_between(self) -> bool:
        return self._reader.is_between()

    def standing(self) -> Standing:
        return (self._reader.lsn(),)

    def numbered(self, seconds: int) -> int:
        return self._reader.numbered(seconds)

    def saw(self, record: Record, chunks: Mapping[str, Chunk]) -> None:
        """Rule 2."""
        number = self._reader.xid()
        if self._view is not None and self._view.shows(number):
            return
        self._unseen.add(number)
        self._doubted.discard(number)
        chunk = chunks.get(f"{record.database}.{record.table}")
        if chunk is None or isinstance(record, DeadLetter):
            return
        if chunk.whole is not None:
            chunk.whole.append(record)
        elif record.type == TRUNCATE:
            chunk.rows.clear()
        else:
            chunk.rows.pop(record.as_key(), None)

    def there(self) -> list[str]:
        with errors_of_postgres(self._slot):
            return [name for (name,) in self._asking.execute(_NAMES, (self._slot.publication,)).fetchall()]

    def look(self, tables: Iterable[str]) -> dict[str, int]:
        sizes = {}
        with errors_of_postgres(self._slot):
            for table in tables:
                plan = self._planned(self._parts(table))
                if plan.key:  # the planner knows a size of a table that nobody has analyzed too
                    asked = sql.SQL("explain (format json) select from {} t where {}")
                    (found,) = self._asking.execute(asked.format(plan.name, sql.SQL(plan.only))).fetchone() or ([],)
                    sizes[table] = int(found[0]["Plan"]["Plan Rows"])
        return sizes

    def close(self) -> None:
        with suppress(psycopg.Error):
            self._asking.close()

    def read(self, rests: Mapping[str, OlderRest], rows: int) -> list[Chunk]:
        table = next(iter(rests))
        with errors_of_postgres(self._slot):
            try:
                return self._read(rests, rows)
            except (*_ALONE, psycopg.errors.InsufficientPrivilege) as error:
                if len(rests) > 1:  # rule 5
                    return self.read({table: rests[table]}, rows)
                if isinstance(error, psycopg.errors.LockNotAvailable):
                    return []
                if isinstance(error, psycopg.errors.UndefinedTable):  # it is gone, and the log says what of it
                    return [Chunk(table, {}, None, self.standing(), absent="is gone")]
                raise UsageError(
                    f"The older rows of {table} may not be read: {unstopped(error)}. GRANT SELECT on it. A "
                    "policy of row-level security hides rows but from its owner and from who may bypass it (BYPASSRLS)."
                ) from None

    def _read(self, rests: Mapping[str, OlderRest], rows: int) -> list[Chunk]:
        chunks, names = list[Chunk](), {table: self._parts(table) for table in rests}
        if self._doubted:  # before the view: who is idle in its transaction by now had not begun to commit
            over = self._doubted - unseen(self._asking)
            self._doubted -= over
            self._unseen -= over
        with self._asking.transaction():
            self._asking.execute("set transaction isolation level repeatable read, read only")
            self._asking.execute("set local lock_timeout = '1s'")
            locked = sql.SQL("lock table {} in access share mode")
            self._asking.execute(locked.format(sql.SQL(", ").join(sql.Identifier(*each) for each in names.values())))
            (view,) = self._asking.execute("select pg_current_snapshot()::text").fetchone() or ("",)
            self._view = View.parsed(view)
            self._unseen = {number for number in self._unseen if not self._view.shows(number)}
            if self._unseen:
                return []
            left, most = rows, BYTES
            for table, rest in rests.items():
                plan = self._planned(names[table])
                if chunks and (left <= 0 or most <= 0 or plan.is_whole):
                    break
                self._asking.execute("close all")
                chunk, size = self._chunk(table, plan, rest, left, most)
                chunks.append(chunk)
                left, most = left - chunk.size(), most - size
        end = lsn_number(end_of_log(self._asking))
        return [replace(chunk, high=(end,)) for chunk in chunks]

    def _chunk(self, table: str, plan: SelectedTable, rest: OlderRest, rows: int, most: int) -> tuple[Chunk, int]:
        """What comes of a table now, and its bytes."""
        of, found, high = self._message(plan), list[Row](), self.standing()
        if plan.is_whole:
            last, _, size = self._rows(of, plan, rest, WHOLE_ROWS, WHOLE_BYTES, found)
            if last is not None:
                raise too_large(table)
            return Chunk(table, {}, None, high, of=of, whole=whole(of, found), schema=self._schema(plan)), size
        rest = rest.by(plan.order)
        upto = self._largest(plan) if plan.key and rest.upto is None else rest.upto
        if not upto:
            return Chunk(table, {}, None, high, of=of), 0
        last, is_cut, size = self._rows(of, plan, rest._replace(upto=upto), rows, most, found)
        left = None if last is None else rest._replace(after=last, upto=upto)
        return Chunk(table, by_key(of, found), left, high, is_cut, of, schema=self._schema(plan)), size

    def _schema(self, plan: SelectedTable) -> TableSchema:
        """As the log has it."""
        names, oids = tuple(plan.columns), tuple(plan.columns.values())
        key, is_full = plan.named_key(), False
        relation = Relation(plan.number, *plan.names, names, oids, plan.brackets, key, is_full, plan.types)
        return shape(self._asking, relation, (0, 0))

    def _parts(self, table: str) -> tuple[str, str]:
        return parts_of(table, lambda: self._asking.execute(_THERE).fetchall())

    def _message(self, plan: SelectedTable) -> MaxwellMessage:
        where = (*plan.names, BOOTSTRAP, self._clock.wall_ms() // 1000, "", 0, 0, False, plan.named_key())
        return MaxwellMessage(*where, {}, None, None, plan.types)

    def _planned(self, names: tuple[str, str]) -> SelectedTable:
        oid, is_divided, identity = self._asking.execute(_TABLE, names).fetchone() or (0, False, "p")
        named = sql.SQL("{}{}").format(sql.SQL("" if is_divided else "only "), sql.Identifier(*names))
        table = ".".join(names)
        described = self._asking.execute(_COLUMNS, (oid,)).fetchall()
        ordered = self._asking.execute(_KEY, (oid, identity)).fetchall()
        key, order = {column: kind for column, kind, _ in ordered}, ", ".join(map(" ".join, ordered))
        published = self._asking.execute(_PUBLISHED, (self._slot.publication, *names)).fetchone()
        fields = published[0] if published else {}
        listed = fields.get("attnames")
        described = [column for column in described if listed is None or column[0] in listed]
        columns = {name: kind for name, kind, _ in described}
        types, known = types_of(self._asking, described), (oid, tuple(brackets for _, _, brackets in described))
        if not key or not set(key) <= set(columns):
            rows = sql.SQL("select exists (select from {})").format(named)
            if not oid or self._asking.execute(rows).fetchone() == (False,):
                return SelectedTable(names, named, columns, {}, "true", types)
            if key:
                raise UsageError(
                    f"{table} is published without its primary key, so its older rows have none. {_REMEDY}"
                )
            if (self._asking.execute("select pg_table_size(%s)", (oid,)).fetchone() or (0,))[0] > WHOLE_BYTES:
                raise too_large(table)
            return SelectedTable(names, named, columns, {}, fields.get("rowfilter") or "true", types, *known, True)
        only = fields.get("rowfilter") or "true"
        return SelectedTable(names, named, columns, key, only, types, *known, order=order)

    def _largest(self, plan: SelectedTable) -> tuple[str, ...]:
        """The key of the last row; () if there is none. With `t.`: a bare name would be the output's, a text."""
        query = sql.SQL("select {} from {} t where {} order by {} limit 1").format(
            sql.SQL(", ").join(sql.SQL("t.{}::text").format(sql.Identifier(each)) for each in plan.key),
            plan.name,
            sql.SQL(plan.only),
            sql.SQL(", ").join(sql.SQL("t.{} desc").format(sql.Identifier(each)) for each in plan.key),
        )
        found = self._asking.execute(query).fetchone()
        return tuple(found) if found else ()

    def _rows(
        self, of: MaxwellMessage, plan: SelectedTable, rest: OlderRest, rows: int, most: int, read: list[Row]
    ) -> tuple[tuple[str, ...] | None, bool, int]:
        """Put rows into `read`; the key of the last one, None if the table is through, whether `most` bytes cut it, and the
        bytes."""
        names, key = list(plan.columns), list(plan.key)
        compiled = plan_of(of.database, of.table, plan.columns, of.key, plan.types)
        at = [names.index(each) for each in key]
        self._asking.execute(self._declared(plan, rest, rows))
        count, size, piece = 0, 0, 50
        while count < rows:
            found = self._asking.execute(f"fetch {min(piece, rows - count)} from chunk").pgresult
            assert found is not None
            value = found.get_value
            for row in range(found.ntuples):
                data, length = (compiled and compiled.fetched(value, row)) or _plain(plan.columns, value, row)
                read.append(data)
                size += length
            count += found.ntuples
            last = tuple((value(found.ntuples - 1, place) or b"").decode() for place in at) if found.ntuples else None
            if found.ntuples < min(piece, rows - count + found.ntuples) or last is None:
                return None, False, size
            if size > most:
                return last, True, size
            piece = max(1, min(_PIECE, 2 * piece, (BYTES // 8) * count // max(size, 1)))
        return last, False, size

    def _declared(self, plan: SelectedTable, rest: OlderRest, rows: int) -> sql.Composed:
        """A cursor over the next rows."""

        def row(values: tuple[str, ...]) -> sql.Composable:
            pairs = zip(values, plan.key.values(), strict=True)
            return sql.SQL("({})").format(
                sql.SQL(", ").join(sql.SQL("{}::{}").format(sql.Literal(text), sql.SQL(kind)) for text, kind in pairs)
            )

        key = sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(each)) for each in plan.key)
        bounds = sql.SQL("({}) <= {}").format(key, row(rest.upto or ())) if plan.key else sql.SQL("true")
        if rest.after is not None:
            bounds = sql.SQL("{} and ({}) > {}").format(bounds, key, row(rest.after))
        return sql.SQL(
            "declare chunk no scroll cursor for select {} from {} t where {} and {} order by {} limit {}"
        ).format(
            sql.SQL(", ").join(sql.SQL("t.{}").format(sql.Identifier(each)) for each in plan.columns),
            plan.name,
            bounds,
            sql.SQL(plan.only),
            key if plan.key else sql.SQL("(select null)"),
            sql.Literal(rows),
        )


def _plain(columns: dict[str, int], value: Callable[[int, int], bytes | None], row: int) -> tuple[Row, int]:
    """A row of a result as JSON texts, and the bytes of its values."""
    came = [(name, kind, value(row, place)) for place, (name, kind) in enumerate(columns.items())]
    texts = {name: "null" if raw is None else json_text(kind, raw.decode()) for name, kind, raw in came}
    return texts, sum(len(raw) for _, _, raw in came if raw)
