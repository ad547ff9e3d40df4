"""The file in which buckets are kept from run to run. Losing its last moments costs a replay, so it is flushed only where
that replay would not do (rule 4).

    bucket   number, query, the last batch that it has taken, its state
    shelf    its blobs by number: what rests, read when it is needed

Rule 1: a bucket is replaced whole, in one transaction.
Rule 2: a bucket that has taken a batch which the sink lacks is not believed: the sink was put back to an older copy. It is
        removed before the sink gets another batch of that number, and not by a start that is refused.
Rule 3: a file that is damaged is set aside under another name, and said: state is made anew from the source. SQLite sees
        damage to its pages, and tables that are none of these; each row has a checksum beside it, those of older versions
        have none.
Rule 4: two things outlast a power cut: a snapshot behind which the sink forgets what was read, and what rule 2 removed.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import reduce
from itertools import count
from pathlib import Path
from threading import Lock
from zlib import crc32

from waterclock.errors import EnvironmentMissing, StateMismatch, unstopped
from waterclock.streaming.state.bucket import StoredBucket

log = logging.getLogger(__name__)
NAME = "waterclock.state"
ASIDE = f"{NAME}.damaged-"
_TABLES = """
    PRAGMA journal_mode=WAL;
    CREATE TABLE IF NOT EXISTS bucket (bucket INTEGER PRIMARY KEY, query TEXT, batch INTEGER, engine BLOB, rows BLOB);
    CREATE TABLE IF NOT EXISTS shelf (bucket INTEGER, number INTEGER, blob BLOB, PRIMARY KEY (bucket, number))
        WITHOUT ROWID;
"""
_COLUMNS = {"bucket": "bucket, query, batch, engine, rows", "shelf": "bucket, number, blob"}
_SUMMED = "{0}, checksum({0})"
_IS_WHOLE = "(checksum IS NULL OR checksum = checksum({}))"


@dataclass(frozen=True, slots=True)
class Written:
    """A bucket as it is to be written, once `batch_id` is in the sink."""

    bucket: int
    batch_id: int
    stored: StoredBucket
    put: Mapping[int, bytes]
    gone: frozenset[int]
    grown: int  # bytes by which the state became larger


def stored_in(path: Path) -> list[tuple[int, int, bytes, int]]:
    """Of each bucket in the file its number, the last batch that it has taken, what every batch reads of it, and the bytes
    of all of it. Nothing is written, and a run may write meanwhile; EnvironmentMissing if it cannot be read."""
    blobs = "(SELECT total(length(blob)) FROM shelf WHERE shelf.bucket = bucket.bucket)"
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True)) as db:
            found = db.execute(
                f"SELECT bucket, batch, engine, length(engine) + length(rows) + {blobs} FROM bucket ORDER BY 1"
            ).fetchall()
    except sqlite3.Error as error:
        raise EnvironmentMissing(
            f"the state in {path} cannot be read: {unstopped(error)}. See to its disk and rights; where it is damaged, a "
            "run makes it anew from the source"
        ) from None
    return [(number, batch, engine, int(size)) for number, batch, engine, size in found]


class Snapshots:
    """Read by the thread of the rules, written by that of the sink."""

    def __init__(self, path: Path) -> None:
        """`path` may be SQLite's ":memory:"."""
        self._path, self._lock = path, Lock()
        try:
            self._db = self._opened()
        except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # whose words are no text
            if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode != sqlite3.SQLITE_ERROR:
                raise self._failing(error) from None  # no room, no right, another's lock: it says nothing of the file
            self._set_aside(error)
            self._db = self._opened()

    def load(self, query: str, last: int) -> dict[int, tuple[int, StoredBucket]]:
        """The buckets of a query that have no later batch than `last`, with the last batch of each."""
        ours = "SELECT bucket, batch, engine, rows FROM bucket WHERE query = ? AND batch <= ?"
        with self._errors(), self._lock:
            found = self._db.execute(ours, (query, last)).fetchall()
        return {bucket: (batch, StoredBucket(engine, rows)) for bucket, batch, engine, rows in found}

    def last(self, query: str) -> int:
        """The last batch that a bucket of the query has taken; -1 if there is none."""
        with self._errors(), self._lock:
            ((last,),) = self._db.execute("SELECT max(batch) FROM bucket WHERE query = ?", (query,))
        return -1 if last is None else int(last)

    def forget_others(self, query: str, last: int) -> None:
        """Remove those that `load` does not give: they belong to no batch of the sink."""
        with self._transaction(lasts=True):
            self._db.execute("DELETE FROM bucket WHERE query <> ? OR batch > ?", (query, last))
            self._db.execute("DELETE FROM shelf WHERE bucket NOT IN (SELECT bucket FROM bucket)")

    def shelf(self, bucket: int) -> dict[int, bytes]:
        """All blobs of a bucket."""
        with self._errors(), self._lock:
            numbers = self._db.execute("SELECT number FROM shelf WHERE bucket = ?", (bucket,)).fetchall()
        return {number: self.blob(bucket, number) for (number,) in numbers}

    def blob(self, bucket: int, number: int) -> bytes:
        asked = f"SELECT blob FROM shelf WHERE bucket = ? AND number = ? AND {_IS_WHOLE.format(_COLUMNS['shelf'])}"
        with self._errors(), self._lock:
            found = self._db.execute(asked, (bucket, number)).fetchone()
        if found is None:
            raise StateMismatch(
                f"the state in {self._path} lacks the blob {number} of bucket {bucket}, or it is damaged: remove that "
                "file, and start again: the state is made anew from the source"
            )
        return found[0]  # type: ignore[no-any-return]

    def write(self, query: str, written: Iterable[Written], lasts: bool = False) -> None:
        """Replace these buckets; if it `lasts`, what the file holds now outlasts a power cut."""
        with self._transaction(lasts):
            for each in written:
                row = (each.bucket, query, each.batch_id, each.stored.engine, each.stored.rows)
                self._db.execute(f"INSERT OR REPLACE INTO bucket VALUES ({_SUMMED.format('?1, ?2, ?3, ?4, ?5')})", row)
                gone = ((each.bucket, number) for number in each.gone)
                self._db.executemany("DELETE FROM shelf WHERE bucket = ? AND number = ?", gone)
                put = ((each.bucket, number, blob) for number, blob in each.put.items())
                self._db.executemany(f"INSERT OR REPLACE INTO shelf VALUES ({_SUMMED.format('?1, ?2, ?3')})", put)

    def close(self) -> None:
        self._db.close()

    def _opened(self) -> sqlite3.Connection:
        db = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        try:
            db.executescript(_TABLES)
            db.create_function("checksum", -1, _checksum)
            for table, columns in _COLUMNS.items():
                with suppress(sqlite3.OperationalError):  # it has it
                    db.execute(f"ALTER TABLE {table} ADD COLUMN checksum INTEGER")
                db.execute(f"EXPLAIN INSERT INTO {table} SELECT {columns}, checksum FROM {table}")
            (found,) = db.execute("PRAGMA quick_check(1)").fetchone()
            is_whole = _IS_WHOLE.format(_COLUMNS["bucket"])
            ((wrong,),) = db.execute(f"SELECT count(*) FROM bucket WHERE NOT {is_whole}")
            if found != "ok" or wrong:
                raise sqlite3.DatabaseError(f"{wrong} buckets are not as written" if wrong else found)
        except BaseException:
            db.close()
            raise
        return db

    @contextmanager
    def _transaction(self, lasts: bool) -> Iterator[None]:
        with self._errors(), self._lock:
            self._db.execute(f"PRAGMA synchronous={'FULL' if lasts else 'NORMAL'}")
            with self._db:
                self._db.execute("BEGIN IMMEDIATE")
                yield

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._failing(error) from None

    def _failing(self, error: sqlite3.Error) -> EnvironmentMissing:
        return EnvironmentMissing(
            f"the state in {self._path} cannot be written or read: {unstopped(error)}. See to its disk and rights, and "
            "start again: what was committed stays, and the run goes on behind it"
        )

    def _set_aside(self, error: Exception) -> None:
        names = (f"{ASIDE}{number}" for number in count(1))
        aside = next(path for path in map(self._path.with_name, names) if not path.exists())
        log.warning(
            "%s is damaged (%s): it is now %s, and the state is made anew from the source", self._path, error, aside
        )
        for end in ("-wal", "-shm"):
            with suppress(FileNotFoundError):
                self._path.with_name(f"{NAME}{end}").replace(f"{aside}{end}")
        self._path.replace(aside)


def _checksum(*row: object) -> int:
    parts = (part if isinstance(part, bytes) else f" {part} ".encode() for part in row)
    return reduce(lambda found, part: crc32(part, found), parts, 0)
