"""A sink as a user writes one: five verbs over a file of SQLite with tables of its own."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from waterclock.sinks import Batch


class FiveVerbs:
    """Of each result its kind and source, and which batch was the last."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        self._db.execute("CREATE TABLE IF NOT EXISTS mine (batch int, kind text, source text)")
        self._db.execute("CREATE TABLE IF NOT EXISTS last (query text, batch int)")

    def begin(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")

    def last_applied(self) -> tuple[str, int] | None:
        found: tuple[str, int] | None = self._db.execute("SELECT query, batch FROM last").fetchone()
        return found

    def write(self, batch: Batch) -> None:
        rows = [(batch.batch_id, row["kind"], row["source_id"]) for row in batch.results.to_pylist()]
        self._db.executemany("INSERT INTO mine VALUES (?, ?, ?)", rows)
        self._db.execute("DELETE FROM last")
        self._db.execute("INSERT INTO last VALUES (?, ?)", (batch.query_id, batch.batch_id))

    def commit(self) -> None:
        self._db.execute("COMMIT")

    def rollback(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def rows(self) -> list[tuple[Any, ...]]:
        """What is there, in the order in which it was written."""
        return self._db.execute("SELECT batch, kind, source FROM mine ORDER BY rowid").fetchall()

    def finish(self) -> None:
        """Close the file."""
        self._db.close()
