"""What the coordinators must remember, in one SQLite file: topics, groups, offsets, transactions, credentials.

The rooms keep everything in memory and read the store once, at the start. It is a dictionary of rooms of keys that
survives: what is written is JSON.

Rule 1: all that is handed in while one commit runs is committed with the next, in its order: one flush for many.
Rule 2: the changes of one `commit` are there together or not at all.
Rule 3: `then(True)` is called in the loop's thread once they are durable, `then(False)` where the disk refused them.
"""

from __future__ import annotations

import json
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeAlias

Then: TypeAlias = "Callable[[bool], Any]"


class Change(NamedTuple):
    """One key of a room gets a value; with None it goes."""

    room: str
    key: str
    value: Any


class Forget(NamedTuple):
    """Every room but those of `but` is emptied: what a copy begins with."""

    but: frozenset[str]


class Copy(NamedTuple):
    """Everything that is kept, at its place in the order of the commits, is put into `into`."""

    into: list[Change]


Step: TypeAlias = "Change | Forget | Copy"


class Store:
    """`soon(callable, *arguments)` hands a call to the loop's thread."""

    def __init__(self, path: str, soon: Callable[..., Any]) -> None:
        self._soon = soon
        os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))  # it has users' keys; SQLite's other files take its mode
        self._database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
        self._database.execute("PRAGMA journal_mode=WAL")
        self._database.execute("PRAGMA synchronous=FULL")
        self._database.execute(
            "CREATE TABLE IF NOT EXISTS kept (room TEXT, key TEXT, value TEXT, PRIMARY KEY (room, key)) WITHOUT ROWID"
        )
        self._reader = sqlite3.connect(path)
        self._reader.execute("PRAGMA synchronous=FULL")
        self._queue: queue.SimpleQueue[tuple[list[Step], Then | None] | None] = queue.SimpleQueue()
        self._journal: Callable[[list[Change | Forget], Then | None], Then] | None = None
        self._thread = threading.Thread(target=self._commit_forever, name="store", daemon=True)
        self._thread.start()

    def load(self, room: str) -> dict[str, Any]:
        """Everything in a room that was durable when this was asked."""
        rows = self._reader.execute("SELECT key, value FROM kept WHERE room = ? ORDER BY key", (room,))
        return {key: json.loads(value) for key, value in rows}

    def commit(self, changes: Iterable[Change | Forget], then: Then | None = None) -> None:
        """Make the changes durable; returns at once."""
        several: list[Any] = list(changes)
        if self._journal is not None:
            try:
                then = self._journal(several, then)
            except OSError:  # the journal's disk refuses: so nothing is committed here either
                if then is not None:
                    self._soon(then, False)
                return
        self._queue.put((several, then))

    def journal(self, commit: Callable[[list[Change | Forget], Then | None], Then]) -> None:
        """From now on `commit` is handed every commit, and says what to tell its end to."""
        self._journal = commit

    def tell_all(self, then: Callable[[list[Change] | None], Any]) -> None:
        """Call `then` with everything that is kept at this place in the order of the commits; None where that failed."""
        everything: list[Change] = []
        self._queue.put(([Copy(everything)], lambda done: then(everything if done else None)))

    def put(self, room: str, key: str, value: Any, then: Then | None = None) -> None:
        """One change; with None the key goes."""
        self.commit((Change(room, key, value),), then)

    def put_at_once(self, room: str, key: str, value: Any) -> None:
        """One change, durable when this returns: for a start, which has nobody to serve yet."""
        with self._reader:
            self._reader.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (room, key, json.dumps(value)))

    def close(self) -> None:
        """Commit what is left and close the file."""
        self._queue.put(None)
        self._thread.join()
        self._database.close()
        self._reader.close()

    @staticmethod
    def kept_at(path: str, room: str) -> dict[str, Any]:
        """What a store that nobody has open holds in a room; nothing where there is none."""
        if not os.path.exists(path):
            return {}
        store = Store(path, lambda *arguments: None)
        try:
            return store.load(room)
        finally:
            store.close()

    def _commit_forever(self) -> None:
        while (first := self._queue.get()) is not None:
            group = [first]
            last = self._gather(group)
            done = self._commit(group)
            for _, then in group:
                if then is not None:
                    self._soon(then, done)
            if last:
                return

    def _gather(self, group: list[tuple[list[Step], Then | None]]) -> bool:
        """Add what came meanwhile; True where the end was asked for."""
        while not self._queue.empty():
            more = self._queue.get()
            if more is None:
                return True
            group.append(more)
        return False

    def _commit(self, group: list[tuple[list[Step], Then | None]]) -> bool:
        try:
            self._database.execute("BEGIN IMMEDIATE")
            for changes, _ in group:
                for change in changes:
                    self._apply(change)
            self._database.execute("COMMIT")
            return True
        except sqlite3.Error:
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
            return False

    def _apply(self, change: Step) -> None:
        if isinstance(change, Copy):
            rows = self._database.execute("SELECT room, key, value FROM kept ORDER BY room, key")
            change.into.extend(Change(room, key, json.loads(value)) for room, key, value in rows)
        elif isinstance(change, Forget):
            places = ", ".join("?" * len(change.but))
            self._database.execute(f"DELETE FROM kept WHERE room NOT IN ({places})", tuple(change.but))
        elif change.value is None:
            self._database.execute("DELETE FROM kept WHERE room = ? AND key = ?", (change.room, change.key))
        else:
            row = (change.room, change.key, json.dumps(change.value, separators=(",", ":")))
            self._database.execute("INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", row)
