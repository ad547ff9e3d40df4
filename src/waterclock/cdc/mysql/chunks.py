"""Chunks of MariaDB's tables: the view of a transaction IS a place in the binlog.

START TRANSACTION WITH CONSISTENT SNAPSHOT takes the lock under which commits get their order, while InnoDB opens its view
and the binlog notes where it is (Binlog_snapshot_file, Binlog_snapshot_position): the view has exactly the transactions
before that place. So a chunk waits until the log's reader stands exactly there, and nothing is taken out of it (step 4).

Rule 1: the view must not lie before the reader. A commit may be in the log, and given out, before a query sees it: for a
        moment always, for as long as somebody likes under semi-sync. At the first chunk of a start that is asked by GTID,
        for which the server reads the file from its beginning; afterwards files and offsets are compared.
Rule 2: under READ COMMITTED the words open no view, without an error: the session has its own isolation.
Rule 3: the catalog is asked behind the read, while the read keeps everybody from altering the table. If it is not as the
        chunk was asked for, the chunk is thrown away. So is one whose table was altered behind the view (error 1412).
Rule 4: what has no views or no order is refused in a sentence: other engines than InnoDB, tables with system versioning.
Rule 5: the rest of a chunk that is cut is not waited for: its connection is ended, and another one made.
Rule 6: rows are written once rule 3 says that they are what was asked for (fetched.py).
Rule 7: no transaction need end at the view's place: a binlog that was begun anew has its head there. The reader says when
        it stands behind such events too. A chunk that it has passed is read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any, NoReturn

import pymysql
from pymysql.converters import encoders
from pymysql.cursors import SSCursor

from waterclock.cdc.chunks import BOOTSTRAP, BYTES, WHOLE_BYTES, WHOLE_ROWS, Chunk, Standing, too_large, whole
from waterclock.cdc.held import OlderRest
from waterclock.cdc.mysql.fetched import SelectedRows, fetched
from waterclock.cdc.mysql.file_place import file_number
from waterclock.cdc.mysql.reader import BinlogReader
from waterclock.cdc.mysql.selected import SelectedTable, beyond, escaped, selected
from waterclock.cdc.mysql.server import MySqlLogin, refused
from waterclock.cdc.mysql.server import tables as every_table
from waterclock.cdc.mysql.wire import Connection
from waterclock.cdc.part import by_key
from waterclock.cdc.position import MariaGtidList
from waterclock.cdc.source import Record, parts_of
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.changes.sql_types import ColumnTypes
from waterclock.clock import WallClock
from waterclock.errors import ConnectionLost, Unreadable, UsageError, unstopped

VIEW = "start transaction with consistent snapshot, read only"
_ALTERED = 1412  # since the view was opened
_LOCKED = 1205
_MAY_NOT = (1142, 1143)
_NO_SUCH = (1146, 1049)  # table, or database
_SESSION = (
    "set session transaction isolation level repeatable read",
    "set time_zone = '+00:00', sql_mode = '', character_set_results = null, lock_wait_timeout = 1, "
    "max_sort_length = 16384, sort_buffer_size = 8388608",  # a key has up to 3072 bytes, and its order needs more
)
_BYTES = "select data_length from information_schema.tables where concat(table_schema, '.', table_name) = %s"
_VERSIONED = (
    "select 1 from information_schema.tables where table_schema = %s and table_name = %s and table_type = "
    "'SYSTEM VERSIONED'"
)
_SIZES = "select concat(table_schema, '.', table_name), table_rows from information_schema.tables where table_rows > 0"
_REMEDY = "Leave it out (--tables) and copy it by hand, or begin without what is older (--snapshot never)."


class BinlogChunks:
    """A `ChunkReader` beside a binlog's reader. `overrides`: what the user says of columns (--type)."""

    is_exact = True

    def __init__(
        self, reader: BinlogReader, login: MySqlLogin, clock: WallClock, overrides: dict[str, str] | None = None
    ) -> None:
        self._reader, self._login, self._clock, self._overrides = reader, login, clock, overrides or {}
        self._connection: pymysql.connections.Connection | None = None
        self._plans: dict[str, SelectedTable] = {}
        self._is_sure = False  # rule 1: whether files and offsets say enough

    def is_between(self) -> bool:
        return self._reader.is_between()

    def standing(self) -> Standing:
        return self._reader.file_place.at

    def numbered(self, seconds: int) -> int:
        return self._reader.numbered(seconds)

    def saw(self, record: Record, chunks: Mapping[str, Chunk]) -> None:
        """Nothing to do: all that the reader gives out before it stands at the view's place is in the view."""

    def there(self) -> list[str]:
        """Nobody's are not: the server's own, with the passwords of its users, and a program's positions."""
        reader = self._reader
        return [".".join(each) for each in every_table(reader.questions) if each[1] and reader.wanted(*each)]

    def look(self, tables: Iterable[str]) -> dict[str, int]:
        for table in tables:
            try:
                self._planned(table)
            except pymysql.MySQLError as error:
                self._refuse(table, error)
        self._reader.questions.execute(_SIZES)
        return {name: int(rows or 0) for name, rows in self._reader.questions.fetchall()}

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(pymysql.MySQLError, OSError):
                connection.close()

    def read(self, rests: Mapping[str, OlderRest], rows: int) -> list[Chunk]:
        table = next(iter(rests))
        try:
            for table in rests:
                if table not in self._plans:
                    self._plans[table] = self._planned(table)
            try:
                found, high = dict[str, tuple[OlderRest, SelectedRows]](), self._accepted()
                for table, rest in rests.items() if high is not None else ():
                    left = rows - sum(each.count for _, each in found.values())
                    most = BYTES - sum(each.size for _, each in found.values())
                    if found and (left <= 0 or most <= 0 or self._is_whole(table)):
                        break
                    found[table] = self._read(table, rest, left, most)
                    if self._is_another(table):  # rule 3
                        del self._plans[table]
                        return []
            finally:
                if self._connection is not None:
                    self._run("rollback")
        except pymysql.MySQLError as error:
            self.close()
            code = error.args[0] if error.args else 0
            if code == _LOCKED:
                return []
            with suppress(pymysql.MySQLError):
                if code not in _MAY_NOT and (code == _ALTERED or self._is_another(table)):
                    self._plans.pop(table, None)
                    return []
            self._refuse(table, error)
        except OSError as error:
            self.close()
            raise ConnectionLost(f"The connection to the database broke: {unstopped(error)}.") from None
        return [self._chunk(table, *each, high) for table, each in found.items() if high is not None]

    def _refuse(self, table: str, error: pymysql.MySQLError) -> NoReturn:
        if error.args and error.args[0] in _MAY_NOT:
            raise UsageError(
                f"The older rows of {table} may not be read: {unstopped(error.args[-1])}. GRANT SELECT on it; or begin "
                "without what is older (--snapshot never)."
            ) from None
        refused(self._login, error)

    def _is_another(self, table: str) -> bool:
        """Whether it is not as its plan has it."""
        return table in self._plans and self._planned(table).definition != self._plans[table].definition

    def _is_whole(self, table: str) -> bool:
        """Whether it comes in one chunk."""
        return bool(self._plans[table].columns and not self._plans[table].key)

    def _read(self, table: str, rest: OlderRest, rows: int, most: int) -> tuple[OlderRest, SelectedRows]:
        """What comes of it now, with the largest key in what is left of it."""
        plan = self._plans[table]
        if not plan.columns:
            return rest, SelectedRows()
        if self._is_whole(table):
            found = self._rows(plan, ["true"], WHOLE_ROWS + 1, WHOLE_BYTES)
            if found.is_cut or found.count > WHOLE_ROWS:
                raise too_large(table)
            return rest, found
        rest = rest.by(plan.definition.order)
        upto = self._largest(plan) if rest.upto is None else rest.upto
        if not upto:
            return rest._replace(upto=upto), SelectedRows()
        where = [f"not {beyond(plan.key, upto)}", *([] if rest.after is None else [beyond(plan.key, rest.after)])]
        found = self._rows(plan, where, rows, most)
        found.is_last = not found.is_cut and found.count < rows
        return rest._replace(upto=upto), found

    def _chunk(self, table: str, rest: OlderRest, found: SelectedRows, high: Standing) -> Chunk:
        plan = self._plans[table]
        if not plan.columns:  # it is gone, and the log has said so or will; or it has no rows
            absent = "is not InnoDB's" if plan.definition.columns else "is gone"
            return Chunk(table, {}, None, high, absent=absent, is_exact=self.is_exact)
        try:
            written, behind = found.written(plan)
        except Unreadable as refusal:
            raise Unreadable(f"An older row of {table}: {refusal} {_REMEDY}") from None
        of = self._message(plan)
        chunk = Chunk(table, {}, None, high, found.is_cut, of, is_exact=self.is_exact, schema=plan.schema())
        if not plan.key:
            chunk.whole = whole(of, written)
            return chunk
        chunk.rows = by_key(of, written)
        if not found.is_last:
            last = tuple(column.kept(value) for column, value in zip(plan.key, behind, strict=True))
            chunk.rest = rest._replace(after=last)
        return chunk

    def _accepted(self) -> Standing | None:
        """Open a view. Rule 1: its place; None if the reader has given out what lies behind it."""
        self._run(VIEW)
        found = {str(name, "ascii").lower(): value for name, value in self._run("show status like 'binlog_snapshot_%'")}
        name, offset = str(found["binlog_snapshot_file"], "ascii"), int(found["binlog_snapshot_position"])
        self._reader.file_place.learn(name)
        high: Standing = (file_number(name), offset)
        if not self._is_sure:
            ((gtids,),) = self._run(f"select binlog_gtid_pos('{name}', {offset})")
            shown, given = MariaGtidList(str(gtids or b"", "ascii")), MariaGtidList(self._reader.position().place)
            if not shown.covers(given):
                return None
            if str(shown) == str(given):  # nothing lies between, so no event will say where the reader stands
                self._reader.file_place.at = max(self.standing(), high)
            self._is_sure = True
        return high if high >= self.standing() else None

    def _largest(self, plan: SelectedTable) -> tuple[str, ...]:
        """The key of the last row; () if there is none."""
        asked, order = (
            ", ".join(parts)
            for parts in zip(*[(column.asked, f"{column.order} desc") for column in plan.key], strict=True)
        )
        last = self._run(f"select {asked} from {plan.named()} t order by {order} limit 1")
        return tuple(column.kept(value) for column, value in zip(plan.key, last[0], strict=True)) if last else ()

    def _rows(self, plan: SelectedTable, where: list[str], rows: int, most: int) -> SelectedRows:
        """Rows with their keys behind them; `is_cut` if there are more than `most` bytes hold."""
        asked = ", ".join([*(column.asked for column in plan.columns), *(column.asked for column in plan.key)])
        order = ", ".join(column.order for column in plan.key) or "null"
        connection = self._connected()
        cursor = connection.cursor(SSCursor)
        cursor.execute(
            f"select {asked} from {plan.named()} t where {' and '.join(where)} order by {order} limit {rows}"
        )
        found = fetched(cursor, rows, most, plan.compiled is not None)
        if found.is_cut:  # rule 5
            self._reader.questions.execute(f"kill {connection.thread_id()}")
            with suppress(pymysql.MySQLError, OSError):
                cursor.close()
            self.close()
        else:
            cursor.close()
        return found

    def _message(self, plan: SelectedTable) -> MaxwellMessage:
        key, seconds = tuple(column.name for column in plan.key), self._clock.wall_ms() // 1000
        where = (*plan.names, BOOTSTRAP, seconds, "", 0, 0, False, key)
        return MaxwellMessage(*where, {}, None, None, plan.types)

    def _planned(self, table: str) -> SelectedTable:
        names = parts_of(table, lambda: every_table(self._reader.questions))
        definition, why = self._reader.catalog.declared(*names), ""
        rows = f"select 1 from {'.'.join(map(escaped, names))} limit 1"
        if not definition.columns and not self._is_gone(rows):
            raise pymysql.OperationalError(_LOCKED, f"{table} is locked")
        if definition.columns and definition.created == 1 << 62:
            why = "is not InnoDB's, which alone shows it as it was at a place of the binlog"
        elif definition.columns and self._asked(_VERSIONED, *names):
            why = "has system versioning, and its former rows are rows of their own, which no SELECT shows"
            rows = rows.replace(" limit 1", " for system_time all limit 1")
        elif definition.columns and not definition.key:
            size = int(self._asked(_BYTES, table)[0][0] or 0)
            if size > WHOLE_BYTES and self._run(rows):
                raise too_large(table)
        if why and self._run(rows):
            raise UsageError(f"{table} {why}. {_REMEDY}")
        if why:  # nothing is older than the log
            return SelectedTable(names, definition, (), (), ColumnTypes())
        try:
            return selected(names, definition, self._overrides)
        except Unreadable as refusal:
            raise Unreadable(f"{table}: {refusal}") from None

    def _is_gone(self, rows: str) -> bool:
        """The catalog does not show a table either that somebody locks, or this user may no longer read."""
        try:
            self._run(rows)
        except pymysql.MySQLError as error:
            if error.args[0] not in _NO_SUCH:
                raise
            return True
        return False

    def _asked(self, question: str, *arguments: str) -> list[Any]:
        self._reader.questions.execute(question, arguments)
        return list(self._reader.questions.fetchall())

    def _run(self, statement: str) -> list[Any]:
        with self._connected().cursor() as cursor:
            cursor.execute(statement)
            return list(cursor.fetchall())

    def _connected(self) -> pymysql.connections.Connection:
        if self._connection is None:
            try:
                self._connection = Connection(
                    **self._login.settings(), autocommit=True, conv=dict(encoders), use_unicode=False
                )
                for statement in _SESSION:
                    with self._connection.cursor() as cursor:
                        cursor.execute(statement)
            except (pymysql.MySQLError, OSError) as error:
                with suppress(pymysql.MySQLError, OSError):
                    self.close()
                refused(self._login, error)
        return self._connection
