"""Chunks of MySQL's tables: the server does not say at which place of its binlog a view lies, only what lies before it, and
what it may show. The rest is as with MariaDB (chunks.py).

A transaction is written to the binlog, then the engine commits it, then its GTID goes into gtid_executed. So

    1. `before`, the set gtid_executed asked BEFORE the view is opened: the view shows all of it
    2. the view is opened
    3. `high`, the binlog's end asked AFTER that: all that the view shows is written before it. (gtid_executed is no such
       bound: asked here, it lacked what the view showed in 5 of 5,274 views beside four writers, MySQL 9.7.)

Rule 1: step 3 of snapshot.py: `before` has all that the reader has given out, or the view is thrown away: semi-sync holds a
        commit between the binlog and the engine as long as somebody likes.
Rule 2: step 4: a chunk waits until the reader stands at `high`. A transaction that comes meanwhile, and is not in `before`,
        is in doubt: the view may show it or not. Its rows go out of the chunk, and TRUNCATE takes all. That is right either
        way, for the log has brought the row as it is from there on; so no row is from the future, and none from the past.
Rule 3: what cannot be taken out by a key makes the chunk be read again: a row of a table without a key, which would be
        there once too often or not at all, and an update in part (--partial-rows), for the rest is in the chunk alone.
"""

from __future__ import annotations

from collections.abc import Mapping

from waterclock.cdc.chunks import Chunk, Standing
from waterclock.cdc.mysql.chunks import VIEW, BinlogChunks
from waterclock.cdc.mysql.file_place import file_number
from waterclock.cdc.position import MySqlGtidSet
from waterclock.cdc.source import DeadLetter, Record
from waterclock.changes.maxwell import TRUNCATE

_AT_ONCE: Standing = ()  # before every place


class MySqlChunks(BinlogChunks):
    """The same for MySQL, which has no place for a view."""

    is_exact = False
    _before = MySqlGtidSet("")
    _doubted = "", False  # a transaction, and whether it is in doubt

    def saw(self, record: Record, chunks: Mapping[str, Chunk]) -> None:
        """Rules 2 and 3."""
        chunk = chunks.get(f"{record.database}.{record.table}")
        if chunk is None or isinstance(record, DeadLetter) or not self._is_in_doubt(record.gtid):
            return
        if record.type == TRUNCATE:
            chunk.rows.clear()
        gone = chunk.rows.pop(record.as_key(), None)
        if chunk.whole is not None or (record.type == "update" and gone and not set(gone) <= set(record.data)):
            chunk.high, chunk.is_exact = _AT_ONCE, True

    def _is_in_doubt(self, gtid: str) -> bool:
        if self._doubted[0] != gtid:
            self._doubted = gtid, not self._before.covers(MySqlGtidSet(gtid))
        return self._doubted[1]

    def _accepted(self) -> Standing | None:
        """Open a view, by steps 1 to 3; None for rule 1."""
        ((executed,),) = self._run("select @@global.gtid_executed")
        self._before, self._doubted = MySqlGtidSet(str(executed, "ascii").replace("\n", "")), ("", False)
        if not self._before.covers(MySqlGtidSet(self._reader.position().place)):
            return None
        self._run(VIEW)
        ((name, offset, *_),) = self._run(self._reader.server.asks_place)
        self._reader.file_place.learn(str(name, "ascii"))
        return file_number(str(name, "ascii")), int(offset)
