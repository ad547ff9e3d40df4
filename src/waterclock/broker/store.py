"""What the coordinators must remember, in one SQLite file: topics, groups, offsets, transactions, credentials.

The coordinators keep everything in memory and read the store once, at the start. It is a dictionary of namespaces of
keys that survives: what is written is JSON.

Rule 1: all that is handed in while one commit runs is committed with the next, in its order: one flush for many.
Rule 2: the changes of one `commit` are there together or not at all.
Rule 3: `then(True)` is called in the loop's thread once they are durable, `then(False)` if the disk refused them.
Rule 4: what a coordinator changes in memory before that it takes back in `then(False)`. All that was handed in behind a
    refused commit is refused with it, since it may have been made of it. Their `then` are called without a break, the
    latest first: each finds memory as it had left it. What cannot be taken back (files, answers, sessions) waits for
    `then(True)`.
Rule 5: a flush that fails ends the process: what was to be refused may stand on the disk all the same.
"""

from __future__ import annotations

import json
import os
import queue
import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import ExitStack, closing, suppress
from typing import Any, Final, NamedTuple, TypeAlias

from waterclock.broker.errors import LogDamaged
from waterclock.broker.log.durable import flush_failed

FLUSH_FAILED: Final = ("SQLITE_IOERR_FSYNC", "SQLITE_IOERR_DIR_FSYNC")
Then: TypeAlias = "Callable[[bool], Any]"


class Entry(NamedTuple):
    """One key of a namespace gets a value; with None it goes."""

    namespace: str
    key: str
    value: Any


class Forget(NamedTuple):
    """Every namespace but those of `but` is emptied: what a replica begins with."""

    but: frozenset[str]


class Snapshot(NamedTuple):
    """Everything that is kept, at its place in the order of the commits, is put into `into`."""

    into: list[Entry]


class RefusedByJournal(NamedTuple):
    """Of a commit that the journal refused: it fails, and those that are committed with it."""


Step: TypeAlias = "Entry | Forget | Snapshot | RefusedByJournal"


class PendingCommit(NamedTuple):
    """A commit on its way; `era` counts the refusals that had been handed back when it was handed in."""

    era: int
    steps: list[Step]


class Store:
    """`soon(callable, *arguments)` hands a call to the loop's thread. LogDamaged if the file is none, OSError."""

    def __init__(self, path: str, soon: Callable[..., Any]) -> None:
        self._soon = soon
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # it has users' keys; SQLite's other files take its mode
        self._database, self._reader = _opened(path)
        self._queue: queue.SimpleQueue[PendingCommit | None] = queue.SimpleQueue()
        self._waiting: deque[Then | None] = deque()  # whom to call for what is on its way, in its order
        self._era = 0
        self._journal: Callable[[list[Entry | Forget], Then | None], Then] | None = None
        self._thread = threading.Thread(target=self._commit_forever, name="store", daemon=True)
        self._thread.start()

    def load(self, namespace: str) -> dict[str, Any]:
        """Everything in a namespace that was durable when this was asked."""
        rows = self._reader.execute("SELECT key, value FROM kept WHERE room = ? ORDER BY key", (namespace,))
        return {key: json.loads(value) for key, value in rows}

    def commit(self, changes: Iterable[Entry | Forget], then: Then | None = None) -> None:
        """Make the changes durable; returns at once."""
        steps: list[Any] = list(changes)
        if self._journal is not None:
            try:
                then = self._journal(steps, then)
            except OSError:  # the journal's disk refuses: so nothing is committed here either
                steps = [RefusedByJournal()]
        self._hand_in(steps, then)

    def _hand_in(self, steps: list[Step], then: Then | None) -> None:
        self._waiting.append(then)
        self._queue.put(PendingCommit(self._era, steps))

    def journal(self, commit: Callable[[list[Entry | Forget], Then | None], Then] | None) -> None:
        """From now on `commit` is handed every commit, and says whom to call at its end. None: there is no journal."""
        self._journal = commit

    def tell_all(self, then: Callable[[list[Entry] | None], Any]) -> None:
        """Call `then` with everything that is kept at this place in the order of the commits; None if that failed."""
        everything: list[Entry] = []
        self._hand_in([Snapshot(everything)], lambda done: then(everything if done else None))

    def put(self, namespace: str, key: str, value: Any, then: Then | None = None) -> None:
        """One change; with None the key goes."""
        self.commit((Entry(namespace, key, value),), then)

    def commit_at_once(self, *changes: Entry) -> None:
        """Changes that are durable when this returns; OSError. For a start, which has nobody to serve yet."""
        try:
            with self._reader:
                for change in changes:
                    _apply(self._reader, change)
        except sqlite3.Error as error:
            raise OSError(f"the store cannot be written: {error}") from error

    def close(self) -> None:
        """Commit what is left and close the file."""
        self._queue.put(None)
        self._thread.join()
        self._database.close()
        self._reader.close()

    @staticmethod
    def kept_at(path: str, namespace: str) -> dict[str, Any]:
        """What a store that nobody has open holds in a namespace; nothing if there is none."""
        if not os.path.exists(path):
            return {}
        store = Store(path, lambda *arguments: None)
        try:
            return store.load(namespace)
        finally:
            store.close()

    # In its thread

    def _commit_forever(self) -> None:
        refused, last = -1, False  # the era of the last refusal: what is of it, or older, is refused by `_refused`
        while not last:
            several, last = self._next()
            group = [commit for commit in several if commit.era > refused]
            if group and self.commit_group(group):
                for _ in group:
                    self._soon(self._stored)
            elif group:
                refused = group[-1].era
                self._soon(self._refused)

    def _next(self) -> tuple[list[PendingCommit], bool]:
        """What has been handed in, at least one commit; True if the end was asked for behind it."""
        group: list[PendingCommit] = []
        while (commit := self._queue.get()) is not None:
            group.append(commit)
            if self._queue.empty():
                return group, False
        return group, True

    def commit_group(self, group: list[PendingCommit]) -> bool:
        """Write what was handed in meanwhile in one transaction of SQLite; False if the disk refuses it, all of it."""
        try:
            self._database.execute("BEGIN IMMEDIATE")
            for commit in group:
                for step in commit.steps:
                    _apply(self._database, step)
            self._database.execute("COMMIT")
            return True
        except sqlite3.Error as error:
            if getattr(error, "sqlite_errorname", "") in FLUSH_FAILED:
                flush_failed(error)
            if self._database.in_transaction:
                with suppress(sqlite3.Error):  # then nothing more can be begun: all is refused from now on
                    self._database.execute("ROLLBACK")
            return False

    # In the loop's thread

    def _stored(self) -> None:
        then = self._waiting.popleft()
        if then is not None:
            then(True)

    def _refused(self) -> None:
        """Rule 4: refuse all that is on its way."""
        refused, self._waiting = self._waiting, deque()
        self._era += 1
        with ExitStack() as latest_first:
            for then in refused:
                if then is not None:
                    latest_first.callback(then, False)


def _opened(path: str) -> tuple[sqlite3.Connection, sqlite3.Connection]:
    """One for the thread that commits, and one to read with."""
    with ExitStack() as opened:
        try:
            database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
            opened.enter_context(closing(database))
            database.execute("PRAGMA journal_mode=WAL")
            database.execute("PRAGMA synchronous=FULL")
            database.execute(
                "CREATE TABLE IF NOT EXISTS kept "
                "(room TEXT, key TEXT, value TEXT, PRIMARY KEY (room, key)) WITHOUT ROWID"
            )
            reader = opened.enter_context(closing(sqlite3.connect(path)))
            reader.execute("PRAGMA synchronous=FULL")
        except sqlite3.OperationalError as error:
            raise OSError(f"{path} cannot be opened: {error}") from error
        except sqlite3.DatabaseError as error:
            raise LogDamaged(
                f"{path} cannot be read ({error}). Restore it: it knows the topics and the offsets"
            ) from error
        opened.pop_all()
    return database, reader


def _apply(database: sqlite3.Connection, step: Step) -> None:
    if isinstance(step, RefusedByJournal):
        raise sqlite3.OperationalError("the journal refused it")
    if isinstance(step, Snapshot):
        rows = database.execute("SELECT room, key, value FROM kept ORDER BY room, key")
        step.into.extend(Entry(room, key, json.loads(value)) for room, key, value in rows)
    elif isinstance(step, Forget):
        places = ", ".join("?" * len(step.but))
        database.execute(f"DELETE FROM kept WHERE room NOT IN ({places})", tuple(step.but))
    elif step.value is None:
        database.execute("DELETE FROM kept WHERE room = ? AND key = ?", (step.namespace, step.key))
    else:
        row = (step.namespace, step.key, json.dumps(step.value, separators=(",", ":")))
        database.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", row)
