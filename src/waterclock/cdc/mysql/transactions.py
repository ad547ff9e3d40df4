"""Binlog events in, row changes and the ends of transactions out: no connection, no thread, no clock.

Rule 1: a transaction begins with its GTID and ends with its commit. What is between is in the binlog only because it
        was committed; so it is passed on as it comes, and a transaction of any size needs the memory of one event.
Rule 2: a change is held back until the next one comes: only the last one carries `commit`.
Rule 3: what would lose rows is refused: statements that write, prepared (XA) transactions, packed or partial ones, rows
        that cannot be read. `refusal` says whether that ends the capture or is put aside. What shows only at a
        transaction's end that its rows are none ends it always: they were given out. The GTID can be left out (--skip).
Rule 4: the place moves at the commit, never before.
Rule 5: a table that gets another one's name has other rows than a target has of that name: all of it comes again, and what
        is not in it goes (snapshot.py). So with a table that takes the place of one that is put away (gh-ost, pt-osc); the
        one that is put away does not come. Without a snapshot the rows are told of.
Rule 6: a table that is dropped, or put away, stays in a target, and its name in the position until one of that name is
        made: a TRUNCATE goes before its rows. DROP DATABASE names no tables: any that is made counts, but one that may have
        been there (IF NOT EXISTS) is told of.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from typing import NoReturn
from uuid import UUID

from waterclock.cdc.held import EVERY, Held
from waterclock.cdc.mysql import binlog
from waterclock.cdc.mysql.alterations import ColumnAlteration, altered_columns
from waterclock.cdc.mysql.binlog import BinlogEvent, Statement, statement
from waterclock.cdc.mysql.tables import ROWS, BadRow, TablePlan, Tables, changes_of
from waterclock.cdc.position import MariaGtidList, MySqlGtidSet, Position
from waterclock.cdc.schemas import ColumnsAltered, SchemaAt
from waterclock.cdc.source import DeadLetter, Item, Record, Refusal, SourceMark, TablesRenewed, stop
from waterclock.changes.maxwell import TRUNCATE, MaxwellMessage, next_sequence
from waterclock.errors import Unreadable

log = logging.getLogger("waterclock.cdc")
# flags of MariaDB's GTID: one statement, and no commit after it; XA, and not committed yet
_STANDALONE, _PREPARED = 1, 64
# without meaning here, among them those that bring a file's bytes (LOAD DATA): the statement follows
_SILENT = {binlog.BEGIN_LOAD, binlog.APPEND_BLOCK, binlog.DELETE_FILE, binlog.STOP, 5, 13, 14, binlog.PREVIOUS_GTIDS,
           binlog.MARIA_CHECKPOINT, binlog.MARIA_GTID_LIST, 28}  # fmt: skip
_NO_WAY_PAST = {binlog.TAGGED_GTID, binlog.MARIA_ENCRYPTION}  # without their GTID there is no place to go on from
_REMEDIES = {
    binlog.XA_PREPARE: "rows of an XA transaction that is prepared and not yet committed, which is not supported here",
    binlog.PARTIAL_UPDATE: "parts of JSON values. Set binlog_row_value_options='' on the server",
    binlog.TRANSACTION_PAYLOAD: "a packed transaction. Set binlog_transaction_compression=OFF on the server",
    binlog.TAGGED_GTID: "a GTID with a tag, which is not supported here",
    binlog.INCIDENT: "the server's word that events are missing",
    binlog.MARIA_ENCRYPTION: "an encrypted binlog file: read it from the server, not from its files",
}

Table = tuple[str, str]
_RENAMED = "%s was renamed to %s (transaction %s). %s To have all of a table again: waterclock cdc snapshot."
_MAY_BE_NEW = (
    "%s may have been made anew behind a DROP DATABASE or hundreds of DROP TABLE (transaction %s): then a target has rows "
    "that are gone. To have all of it again: waterclock cdc snapshot."
)
_LATER = {
    True: "Of its rows from before a target has none under the new name; its changes come.",
    False: "The new name is not asked for: its changes do not come any more.",
}


class Transactions:
    """Takes events one by one. `place` is moved along; `position()` says what may be stored after a COMMITTED."""

    def __init__(
        self,
        place: MariaGtidList | MySqlGtidSet,
        position: Position,
        tables: Tables,
        wanted: Callable[[str, str], bool],
        *,
        skip: frozenset[str] = frozenset(),
        lowers: bool = False,
        refusal: Refusal = stop,
        renews: bool = False,
    ) -> None:
        self._place, self._renews = place, renews
        self._tables = tables
        self._wanted = wanted
        self._skip = skip
        self._lowers = lowers  # lower_case_table_names=1: rows bear small letters, statements what somebody wrote
        self._refusal = refusal
        self._sequence = self._settled = position.sequence
        self._done, self._half_sent, self._holds = position.rows, position.inside, position.held
        self._dropped = (self._holds or Held()).dropped()  # rule 6, of what was read
        self._gtid = ""
        self._open = self._skipping = self._prepares = self._is_undone = False
        self._xoffset = self._given = 0  # records of the open transaction: read, and given out
        self._held: MaxwellMessage | None = None
        self._query: str | None = None
        self._shown: dict[tuple[str, str], TablePlan] = {}  # the tables whose schemas were given out
        self._passed: set[tuple[str, str]] = set()  # tables of nobody's that were written to by statements
        self._harmless: set[tuple[tuple[str, str], frozenset[str]]] = set()  # those of which the catalog has said so
        self._takes: dict[int, Callable[[BinlogEvent], Iterator[Item]]] = {
            **dict.fromkeys((binlog.GTID, binlog.ANONYMOUS_GTID, binlog.MARIA_GTID), self._begin),
            binlog.TABLE_MAP: self._table_map,
            **dict.fromkeys((binlog.MARIA_ANNOTATE, binlog.ROWS_QUERY), self._annotated),
            **dict.fromkeys(ROWS, self._rows),
            binlog.XID: self._commit,
            binlog.XA_PREPARE: self._prepared,
            **dict.fromkeys((binlog.QUERY, binlog.MARIA_QUERY_COMPRESSED, binlog.EXECUTE_LOAD), self._statement),
            **dict.fromkeys((binlog.ROTATE, binlog.FORMAT_DESCRIPTION), self._another),
            **dict.fromkeys((binlog.HEARTBEAT, binlog.HEARTBEAT_V2), lambda _: iter((SourceMark.QUIET,))),
        }

    def take(self, event: BinlogEvent) -> Iterator[Item]:
        """What follows from the next event; Unreadable if going on would lose something."""
        return self._takes.get(event.kind, self._unknown)(event)

    def position(self) -> Position:
        """Where the last COMMITTED was."""
        return Position(str(self._place), self._settled, held=self._holds)

    def recall(self, schema_at: SchemaAt) -> None:
        """See `Recaller`."""
        self._tables.recalled = lambda table: schema_at(table, (self._sequence, self._xoffset))

    def is_between(self) -> bool:
        """Whether what was taken last ended a transaction, or stood behind one; none is half in Kafka."""
        return not self._gtid and not self._open and self._held is None and not self._done

    def numbered(self, seconds: int) -> int:
        """Between two transactions: a sequence of its own, from which the next one counts on."""
        self._sequence = self._settled = next_sequence(self._settled, seconds)
        return self._settled

    def covers(self, target: MariaGtidList | MySqlGtidSet) -> bool:
        """Whether everything up to `target` was taken."""
        return self._place.covers(target)  # type: ignore[arg-type]

    def _begin(self, event: BinlogEvent) -> Iterator[Item]:
        """A GTID, or MySQL's event in the place of one."""
        gtid, flags = "", _STANDALONE  # MySQL says BEGIN if more follows
        if event.kind == binlog.MARIA_GTID:
            number, domain, flags = struct.unpack_from("<QIB", event.body)
            gtid = f"{domain}-{event.server}-{number}"
        elif event.kind == binlog.GTID:
            gtid = f"{UUID(bytes=event.body[1:17])}:{int.from_bytes(event.body[17:25], 'little')}"
        if self._open or self._held is not None:
            self._refuse("the beginning of another transaction before its commit")
        self._gtid = gtid
        self._open = not flags & _STANDALONE
        self._prepares = bool(flags & _PREPARED)
        self._is_undone = event.kind == binlog.MARIA_GTID and binlog.is_undone(event.body)
        self._skipping = gtid in self._skip
        self._sequence = next_sequence(self._sequence, event.ts)
        self._query = None
        self._xoffset = self._given = 0
        if self._done and gtid != self._half_sent:
            self._refuse(f"another place than before: {self._half_sent} is half in Kafka and has to come first")
        return iter(())

    def _another(self, event: BinlogEvent) -> Iterator[Item]:
        """No transaction goes over two binlogs: one without an end was cut off, and rolled back when the server came up."""
        if self._gtid and self._xoffset > 1 and not self._skipping:
            self._refuse("rows without a commit: the server was killed while it wrote them, and rolled them back")
        self._open = self._skipping = False
        self._held = None
        self._gtid = ""
        self._tables.forget()
        return iter(())

    def _annotated(self, event: BinlogEvent) -> Iterator[Item]:
        start = 1 if event.kind == binlog.ROWS_QUERY else 0  # MySQL writes a length of one byte, which may be too small
        self._query = event.body[start:].decode("utf-8", "replace")
        return iter(())

    def _table_map(self, event: BinlogEvent) -> Iterator[Item]:
        if not self._skipping:
            self._tables.introduce(event)
        return iter(())

    def _rows(self, event: BinlogEvent) -> Iterator[Item]:
        if self._skipping:
            return
        try:
            found = self._tables.rows(event)
            if found is not None and self._prepares:
                raise Unreadable(f"The binlog has {_REMEDIES[binlog.XA_PREPARE]}.")
        except Unreadable as refusal:
            yield from self._put_aside(event, str(refusal))
            return
        if found is None:
            return
        table, rows = found
        if self._shown.get((table.database, table.table)) is not table:
            self._shown[table.database, table.table] = table
            yield table.schema((self._sequence, self._xoffset))
        for row in rows:
            if isinstance(row, BadRow):
                yield from self._put_aside(event, row.reason, row)
                continue
            for kind, data, old in changes_of(table.key, *row):
                held, number = self._held, self._xoffset
                self._xoffset = number + 1
                self._held = MaxwellMessage(
                    table.database, table.table, kind, event.ts, self._gtid, self._sequence, number, False, table.key,
                    data, old, self._query, table.types,
                )  # fmt: skip
                if held is not None:  # as _give does, without a generator for each row
                    self._given += 1
                    if self._given > self._done:
                        yield held

    def _give(self, record: Record) -> Iterator[Item]:
        """What was given out before the last start stands in Kafka already."""
        self._given += 1
        if self._given > self._done:
            yield record

    def _commit(self, event: BinlogEvent | None = None) -> Iterator[Item]:
        held, self._held = self._held, None
        if held is not None:
            yield from self._give(held._replace(commit=True))
        if self._gtid:
            self._place.add(self._gtid)
        self._open = self._skipping = False
        self._done, self._gtid = 0, ""
        self._settled = self._sequence
        if self._holds is not None and self._dropped != self._holds.dropped():
            self._holds = self._holds.with_dropped(self._dropped)
            self._dropped = self._holds.dropped()
        yield SourceMark.COMMITTED

    def _statement(self, event: BinlogEvent) -> Iterator[Item]:
        found = statement(event, self._lowers)
        if self._is_undone:
            return self._commit()
        if found.begins():
            self._open, self._prepares = True, self._prepares or found.text.startswith("XA START")
            return iter(()) if self._skipping else self._made(found, event)
        if self._skipping:
            return self._skipped(found)
        if found.writes(self._open):
            return self._wrote(found, event)
        return self._ended(found, event) if self._open else self._alone(found, event)

    def _skipped(self, found: Statement) -> Iterator[Item]:
        """What it made of a table counts all the same."""
        if found.changes():
            self._changed_tables(found)
            yield from self._altered(found)
        if not self._open or found.word in ("COMMIT", "ROLLBACK"):
            yield from self._commit()

    def _wrote(self, found: Statement, event: BinlogEvent) -> Iterator[Item]:
        """A statement in the place of its rows."""
        table = found.written()
        if table is None or self._wanted(*table) or self._reaches_further(table, found):
            what = f"the statement {found.text[:80]!r} and not the rows it wrote. Set binlog_format=ROW everywhere"
            yield from self._put_aside(event, self._sentence(what))
        elif table not in self._passed:
            self._passed.add(table)
            log.warning(
                "The binlog has, in the transaction %s, a statement and not the rows it wrote into %s.%s. Nobody asked for "
                "that table. What a trigger of it wrote elsewhere would be missing: the catalog shows none to this user, "
                "who needs the TRIGGER privilege to see them. This is said once for each table.",
                self._gtid,
                *table,
            )
        if not self._open:
            yield from self._commit()

    def _changed_tables(self, found: Statement) -> None:
        self._tables.changed(found.altered(), found.ended)
        self._harmless.clear()

    def _reaches_further(self, table: tuple[str, str], found: Statement) -> bool:
        """The catalog says it once for each table and its functions, and again once a statement has changed anything."""
        pair = (table, frozenset(found.called()))
        if pair not in self._harmless and not self._tables.reaches_further(table, found.called()):
            self._harmless.add(pair)
        return pair not in self._harmless

    def _ended(self, found: Statement, event: BinlogEvent) -> Iterator[Item]:
        """A statement inside a transaction: its end, or one that changes a table, as CREATE TABLE ... SELECT does."""
        if found.word == "ROLLBACK" and self._held is not None:
            self._refuse("a transaction that was rolled back after it had written rows that stay (MyISAM)")
        if found.word == "XA" and self._xoffset and not self._prepares:
            self._refuse(_REMEDIES[binlog.XA_PREPARE])
        if found.changes():
            self._changed_tables(found)
            yield from self._altered(found)
            yield from self._made(found, event)
        ends = found.text.upper().startswith(("COMMIT", "ROLLBACK", "XA PREPARE", "XA COMMIT"))
        if ends and "ROLLBACK TO" not in found.text.upper():
            yield from self._commit()

    def _alone(self, found: Statement, event: BinlogEvent) -> Iterator[Item]:
        if found.changes():
            self._changed_tables(found)
            yield from self._altered(found)
        emptied, refused = found.emptied(), ""
        if any(moved is None or self._wanted(*moved) for moved in found.moved()):
            refused = (
                f"that partitions or rows went or came as a whole, and not a word of each row: {found.text[:80]!r}"
            )
        elif emptied is None and found.word == "TRUNCATE":
            refused = f"the statement {found.text[:80]!r}, whose table is not certain"
        elif any(None in pair for pair in found.renamed()):
            refused = f"the statement {found.text[:80]!r}, whose tables are not certain"
        if refused:
            yield from self._put_aside(event, self._sentence(refused))
        elif emptied and self._wanted(*emptied):
            yield from self._empty(emptied, event)
        elif found.changes():
            yield from self._renamed(found.renamed())
            for each in filter(None, found.dropped()):
                if each[1] == EVERY or self._wanted(*each):
                    self._dropped |= (self._holds or Held()).names(*each)
            yield from self._made(found, event)
        yield from self._commit()

    def _empty(self, table: Table, event: BinlogEvent) -> Iterator[Item]:
        held, number = self._held, self._xoffset
        self._xoffset = number + 1
        where = (*table, TRUNCATE, event.ts, self._gtid, self._sequence, number, False)
        self._held = MaxwellMessage(*where, (), {}, None, None)
        if held is not None:
            yield from self._give(held)

    def _made(self, found: Statement, event: BinlogEvent) -> Iterator[Item]:
        """Rule 6."""
        made = found.made()
        if made is None or not self._wanted(*made[0]):
            return
        table, replaces, if_absent = made
        name = ".".join(table)
        whole = any(fnmatchcase(name, pattern) for pattern in self._dropped)
        if replaces or name in self._dropped or (whole and not if_absent):
            yield from self._empty(table, event)
        elif whole:
            log.warning(_MAY_BE_NEW, name, self._gtid)
        self._dropped.discard(name)

    def _renamed(self, pairs: Iterable[tuple[Table | None, Table | None]]) -> Iterator[Item]:
        """Rule 5."""
        whose: dict[Table, Table] = {}  # names that were given -> the former ones of these rows
        for former, new in pairs:
            assert former is not None
            assert new is not None
            whose[new] = whose.pop(former, former)
        formers = set(whose.values())
        self._dropped -= {".".join(new) for new in whose}
        self._dropped |= {".".join(former) for former in formers - whose.keys() if self._wanted(*former)}
        comes = []
        for new, former in whose.items():
            is_put_away = former in whose and new not in formers
            if self._wanted(*new) and not is_put_away and self._renews:
                comes.append(".".join(new))
            elif self._wanted(*new) or (self._wanted(*former) and former not in whose):
                log.warning(_RENAMED, ".".join(former), ".".join(new), self._gtid, _LATER[self._wanted(*new)])
        if comes:
            yield TablesRenewed(tuple(comes), self._sequence, "Renamed")

    def _altered(self, found: Statement) -> Iterator[Item]:
        """What the next table map will not say."""
        for each in found.unlike():
            yield ColumnsAltered(*each, (self._sequence, 0), {}, (), None)
        if (table := found.altered()) and (made := altered_columns(found.text)) != ColumnAlteration():
            yield ColumnsAltered(*table, (self._sequence, 0), made.renamed, made.added, made.doubted, made.dropped)

    def _prepared(self, event: BinlogEvent) -> Iterator[Item]:
        if self._xoffset and not self._skipping and not self._prepares:
            self._refuse(_REMEDIES[binlog.XA_PREPARE])
        return self._commit()

    def _unknown(self, event: BinlogEvent) -> Iterator[Item]:
        """An event that is not read here."""
        if event.kind in _SILENT or event.flags & binlog.IGNORABLE:
            return
        what = _REMEDIES.get(event.kind, f"an event of the kind {event.kind}, which is not known here")
        if event.kind in _NO_WAY_PAST:
            self._refuse(what)
        if not self._skipping:
            yield from self._put_aside(event, self._sentence(what))
        if event.kind == binlog.TRANSACTION_PAYLOAD:  # the commit is packed with the rest
            yield from self._commit()

    def _put_aside(self, event: BinlogEvent, reason: str, row: BadRow | None = None) -> Iterator[Item]:
        """What cannot be read, an event or a row of one, to whatever is done about it."""
        where = (self._gtid, event.ts, self._xoffset, f"{'row of ' if row else ''}event {event.kind}")
        record, data = (event.body, None) if row is None else (row.raw, row.data)
        letter = self._refusal(DeadLetter(*where, reason, record, *self._tables.name_of(event), data))
        self._xoffset += 1
        yield from self._give(letter)

    def _sentence(self, what: str) -> str:
        return (
            f"The binlog has, in the transaction {self._gtid or 'without a GTID'}, {what}. What it wrote would be lost."
        )

    def _refuse(self, what: str) -> NoReturn:
        raise Unreadable(
            f"{self._sentence(what)} To go on without it, and mend the target by hand: --skip {self._gtid}"
        )
