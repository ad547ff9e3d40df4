"""A program that copies changes into its own tables, and kills itself, with SIGKILL, before or after a step.

python -m tests.cdc.door_steps URL OPTIONS TARGET STEP NUMBER

OPTIONS are JSON. TARGET is a file of SQLite, or the address of a PostgreSQL. A step is write (after the batch's rows),
position (after the position, before the commit of both), commit, stored (the source has heard of it) or none.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
from typing import Any

import psycopg

from waterclock.cdc import SqlPosition, changes
from waterclock.cdc.position import Position

COPY = "create table if not exists copy (id int, c text, kind text)"


def connected(target: str) -> Any:
    return psycopg.connect(target) if target.startswith("postgres") else sqlite3.connect(target)


def main(url: str, options: str, target: str, step: str, number: str) -> None:
    left = int(number)

    def die(now: str) -> None:
        nonlocal left
        left -= now == step
        if now == step and left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    connection = connected(target)
    connection.execute(COPY)
    connection.commit()
    mark = "?" if isinstance(connection, sqlite3.Connection) else "%s"

    class Dying(SqlPosition):
        """Dies around the commit of a batch; `claim` and what a start keeps are commits too."""

        def _changed(self, statement: str, *arguments: str) -> bool:
            found = super()._changed(statement, *arguments)
            die("position")
            return found

        def commit(self, position: Position) -> None:
            super().commit(position)
            die("commit")

    with changes(url, position=Dying(connection), once=True, most=3, largest=5, **json.loads(options)) as stream:
        for batch in stream:
            rows = [(change.data["id"], change.data.get("c"), change.type) for change in batch]
            connection.cursor().executemany(f"insert into copy values ({mark}, {mark}, {mark})", rows)
            die("write")
            batch.commit()
            die("stored")
    connection.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
