"""An audit table in SQLite: `python -m examples.changes.audit mysql://reader@127.0.0.1/shop audit.db`, or postgresql://...

Each change of a row becomes as many rows here as it changed columns: what a value was, what it is, and since when. It ends
when all is there that was committed; the next run goes on behind it.

Rule 1: rows and position are committed together. So each change is here once, though the program is killed anywhere.
"""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Iterator

from waterclock.cdc import Change, SqlPosition, changes

TABLE = "create table if not exists audit (at text, place text, what text, key text, column text, was text, now text)"
Row = tuple[str, str, str, str, str, str | None, str | None]


def rows(change: Change) -> Iterator[Row]:
    """What a change says of each column; of an update, of those that it changed."""
    where = (change.time.isoformat(), change.table, change.type, repr(tuple(change.key.values())))
    for name, text in change.text.items():
        if change.type == "delete":
            yield (*where, name, text, None)
        elif change.type != "update" or name in change.old:
            yield (*where, name, str(change.old[name]) if name in change.old else None, text)


def audit(url: str, file: str, *tables: str) -> int:
    """Bring the table up to date; how many changes came."""
    own, count = sqlite3.connect(file), 0
    own.execute(TABLE)
    own.commit()
    with changes(url, tables=tables, position=SqlPosition(own, "audit"), once=True, from_here=True) as stream:
        for batch in stream:
            for change in batch:
                own.executemany("insert into audit values (?, ?, ?, ?, ?, ?, ?)", rows(change))
            batch.commit()
            count += len(batch)
    own.close()
    return count


if __name__ == "__main__":
    print(f"{audit(*sys.argv[1:])} changes")
