"""`changes`: a database's changes as batches that the caller commits, without Kafka; the same sources as the command's.

    1. take the position; where there is none, ask what a first start asks, and keep where it begins
    2. read the source from there, and hand out a batch
    3. the caller does with it what it likes
    4. batch.commit(): the position behind it is kept
    5. the source hears of it: it may throw away what it kept for us

A crash before 4 brings the batch again; one between 4 and 5 does nothing, for 5 is done at the next start.

Rule 1: a batch is committed before the next one is asked for. One that is not comes again, at the next start.
Rule 2: a connection that breaks is made anew from the last commit, with growing pauses; after ten in a row it is an error.
        What is not there at the start is an error at once.
Rule 3: the stream is one thread's at a time. `close` may be called by any: a thread that waits for a batch then ends.
Rule 4: Ctrl-C, an exception of the caller's and the end of the block close the source. With a SqlPosition what was written
        of a batch that is not committed is rolled back.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self, TypedDict, Unpack
from urllib.parse import unquote, urlsplit

from waterclock.cdc import command, origin
from waterclock.cdc.door.batch import Batch
from waterclock.cdc.door.gather import BatchAhead, BatchReader, Bounds
from waterclock.cdc.door.store import FilePosition, PositionStore
from waterclock.cdc.door.words import reworded
from waterclock.cdc.origin import Origin
from waterclock.cdc.position import Position
from waterclock.cdc.snapshot import WholePlace
from waterclock.cdc.source import DeadLetter, Source
from waterclock.clock import SystemClock
from waterclock.disk import AnyPath
from waterclock.errors import ConnectionLost, EnvironmentMissing, UsageError, WaterclockError
from waterclock.kafka.patience import Backoff
from waterclock.outside import threading

log = logging.getLogger("waterclock.cdc")
_PAUSES_S = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 30.0, 30.0, 30.0)


class SourceOptions(TypedDict, total=False):
    """As the command's options of the same name say (the reference of `waterclock cdc`)."""

    begin: str  # --from
    from_here: bool
    new_tables: str
    snapshot: str
    snapshot_rate: int
    skip: Sequence[str]
    types: Mapping[str, str]
    queries: bool
    server_id: int
    tls: bool
    partial_rows: bool
    slot: str
    publication: str
    as_published: bool
    skip_to: str


def changes(
    url: str,
    *,
    position: PositionStore | AnyPath,
    tables: Sequence[str] = (),
    password: str | None = None,
    once: bool = False,
    most: int = 10_000,
    largest: int = 100_000,
    dead_letters: bool = False,
    **options: Unpack[SourceOptions],
) -> ChangeStream:
    """The changes of the database at `url`, a `mysql://`, `mariadb://` or `postgresql://` address, from the `position` on.

    `position` is a store, or a path for a file. `tables` are patterns of `database.table` (PostgreSQL: `schema.table`);
    none: all of the database. With `once` the stream ends behind what was committed when it began. A batch has `most`
    changes or a transaction more; one of more than `largest` comes in parts. With `dead_letters` a record that cannot be
    read comes in the batch's `dead_letters`; else the stream ends there with an error.
    """
    store = position if isinstance(position, PositionStore) else FilePosition(position)
    with _own_words():
        plain, given = _without_password(url)
        origin.check_names(tables)
        where = origin.database(plain)
        arguments = _arguments(options)
        arguments.tables, arguments.password = list(tables), given if password is None else password
        arguments.dead_letters, arguments.once = "yes" if dead_letters else "", once
        made = origin.mysql if where.kind == "mysql" else origin.postgres
        return ChangeStream(
            made(arguments, where, store.name, SystemClock()), store, bool(tables), once, Bounds(most, largest)
        )


class ChangeStream:
    """An iterator over batches, and a context that ends it. It connects when it is entered, or at the first batch."""

    def __init__(self, source: Origin, store: PositionStore, by_names: bool, once: bool, bounds: Bounds) -> None:
        self._origin, self._store, self._once, self._bounds = source, store, once, bounds
        self._waits = by_names and not once
        self._clock = SystemClock()
        self._closing, self._is_over = threading.Event(), False
        self._at = Position("")  # from where the source reads
        self._stored: Position | None = None
        self._source: Source | None = None  # that reads now
        self._handed: Batch | None = None
        self._end: str | None = None
        self._batches: Generator[BatchAhead] | None = None

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def open(self) -> None:
        """Take the position, and look at the database: what a first start has to ask is raised here."""
        if self._is_over:
            raise UsageError(
                "This stream was closed: make another one by changes(). It goes on behind the last commit."
            )
        if self._batches is not None:
            return
        self.claim()
        try:
            self.begin(self.look())
        except BaseException:  # the position could not be kept, for instance: the next `open` begins as this one did
            self.shut()
            self._batches = None
            self.leave()
            raise

    def claim(self) -> None:
        """Step 1, of the store."""
        with _own_words():
            self._stored = self._store.claim()

    def look(self) -> BatchAhead | None:
        """Step 1, of the database; what of it is to be kept."""
        with _own_words():
            origin.say_what_is_missing(self._origin, self._waits, log.warning)
            begin = self._origin.begin
            self._at = self._stored or (begin if isinstance(begin, Position) else begin())
            self._end = WholePlace(self._origin.end()) if self._once else None
            try:
                return self._connected()
            except ConnectionLost as error:  # the earlier start reads the slot, until its next commit is refused
                log.warning("%s Trying again.", error)
                return None

    def begin(self, agreed: BatchAhead | None) -> None:
        """Keep it: nothing is read before."""
        self._batches = self._read()
        if agreed is not None:
            self.handed(agreed)

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if not self._closing.is_set():
            self.open()
        while (ahead := self.ahead()) is not None:
            if (batch := self.handed(ahead)) is not None:
                return batch
        raise StopIteration

    def ahead(self) -> BatchAhead | None:
        """Step 2: what comes next; None at the end. This alone waits for the source."""
        if self._handed is not None and not self._handed.is_committed:
            raise UsageError("The batch before is not committed: call its commit() when its changes are safe.")
        batches = self._batches
        if batches is None and not self._closing.is_set():
            raise UsageError("This stream is not open: begin its block, and after an error make another by changes().")
        try:
            with _own_words():
                found = next(batches, None) if batches is not None else None
        except BaseException:  # else the next wait would find an end, as if there were no more
            self._batches = batches if getattr(batches, "gi_running", False) else None  # another thread is in it
            raise
        if found is None and self._closing.is_set():
            self._store.release()
        return found

    def handed(self, ahead: BatchAhead) -> Batch | None:
        """It as a batch; None if the position alone moved on: then that is kept here."""
        keep = partial(self._keep, ahead.position)
        if not ahead.records:
            keep()
            return None
        letters = [record for record in ahead.records if isinstance(record, DeadLetter)]
        rows = [record for record in ahead.records if not isinstance(record, DeadLetter)]
        self._handed = Batch(rows, letters, ahead.position, keep)
        return self._handed

    def close(self) -> None:
        """End it; again is the same. Called by another thread than the one that reads, it ends that one's wait."""
        self.stop()
        try:
            self.shut()
        except ValueError:  # another thread is in it, and ends it now
            return
        self.leave()
        self._is_over = True

    def stop(self) -> None:
        """Who waits for a batch gets none any more."""
        self._closing.set()

    def shut(self) -> None:
        """Close the source; ValueError if a thread reads from it."""
        if self._batches is not None:
            self._batches.close()
        if self._source is not None:  # nothing was read from it
            self._source.close()
            self._source = None

    def leave(self) -> None:
        """Give the position back."""
        if self._handed is not None:
            self._handed.let_go(self._store.abandon)
            self._handed = None
        self._store.release()

    def _keep(self, position: Position) -> None:
        self._store.commit(position)  # 4
        self._at = self._stored = position
        if self._source is not None:
            self._source.stored(position)  # 5

    def _connected(self) -> BatchAhead | None:
        """Make a source at the position; what it agreed to is handed out to be kept, before anything is read from it."""
        self._source = self._origin.source(self._at)
        begun = self._source.position()
        at = self._at._replace(held=begun.held) if begun.place == self._at.place else begun
        return None if at == self._stored else BatchAhead([], at)

    def _read(self) -> Generator[BatchAhead]:
        backoff = Backoff(_PAUSES_S, self._clock)
        while True:
            before = self._at
            try:
                if self._source is None and (agreed := self._connected()) is not None:
                    yield agreed
                assert self._source is not None
                source, rows = self._source, self._at.rows
                reader = BatchReader(source, self._clock, self._bounds, rows, self._end, self._closing.is_set)
                yield from reader.batches()
                if not reader.is_renewed:
                    return
                continue
            except (ConnectionLost, EnvironmentMissing) as error:
                if self._at != before:
                    backoff.succeeded()
                if backoff.attempts == len(_PAUSES_S):
                    raise
                log.warning("%s Trying again.", error)
            finally:
                if self._source is not None:
                    self._source.close()
                    self._source = None
            if self._closing.wait(backoff.failed()):
                return


@contextmanager
def _own_words() -> Iterator[None]:
    try:
        yield
    except WaterclockError as error:
        raise reworded(error) from None


def _without_password(url: str) -> tuple[str, str | None]:
    """A program's address is in no list of processes: a password may stand in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return url, None  # it is no address, and will be refused
    if parts.password is None:
        return url, None
    user, host = parts.netloc.partition(":")[0], parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{user}@{host}").geturl(), unquote(parts.password)


def _arguments(options: SourceOptions) -> Namespace:
    """The command's own defaults, and in them what was given."""
    if unknown := sorted(set(options) - SourceOptions.__annotations__.keys()):
        raise TypeError(f"changes() got an unexpected keyword argument {unknown[0]!r}")
    given: dict[str, Any] = {**options, "skip": list(options.get("skip", ()))}
    given["type"] = [f"{column}={sort}" for column, sort in given.pop("types", {}).items()]
    return Namespace(**{**command.defaults(), **given})
