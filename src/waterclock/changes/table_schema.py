"""`TableSchema`: how a table was from a position on, as it stands in a capture's compacted topic NAME.schema.

Rule 1: a schema holds for the changes of its table from `since` on, (sequence, xoffset), until the next one's.
Rule 2: a message's key names the table and the position, so compaction keeps the whole history, and what is sent a second
        time is the same message.
Rule 3: a column keeps its `number` while it lives, whatever it is called: two schemas with one number under two names are
        a RENAME COLUMN. A number is never given to another column.
Rule 4: types are written as the source declares them, such as numeric(10,2) or int unsigned.
Rule 5: what is not known is said (`older_known`, `unsure`), never guessed.
"""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable
from typing import Any, NamedTuple

from waterclock.changes.maxwell import quoted
from waterclock.errors import UsageError

VERSION = 1


class ColumnSchema(NamedTuple):
    """A column. `number` 0: the log does not say which column of the former schema it is. `older` is the value of rows that
    are older than the column, as the source prints it (ADD COLUMN ... DEFAULT); None is null."""

    name: str
    type: str
    nullable: bool = True
    number: int = 0
    charset: str = ""
    default: str | None = None  # an expression of the source
    older: str | None = None
    older_known: bool = True


class TableSchema(NamedTuple):
    """A table from `since` on. `source` is mysql (MariaDB too) or postgres; `unsure` says that columns went and came, and
    nothing tells whether one of them was renamed. `doubtful`: columns that a statement at `since` may have given another
    type, which the log does not say."""

    source: str
    database: str
    table: str
    since: tuple[int, int]
    columns: tuple[ColumnSchema, ...]
    key: tuple[str, ...] = ()
    unsure: bool = False
    doubtful: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"

    def is_like(self, other: TableSchema) -> bool:
        """Whether it has the same columns and the same key, whatever else is known of them."""
        mine, its = ([(column.name, column.type) for column in each.columns] for each in (self, other))
        return (mine, self.key) == (its, other.key)

    def as_key(self) -> bytes:
        """The Kafka message's key.

        >>> TableSchema("postgres", "shop", "item", (7, 0), ()).as_key()
        b'{"database":"shop","table":"item","since":[7,0]}'
        """
        since = f"[{self.since[0]},{self.since[1]}]"
        return f'{{"database":{quoted(self.database)},"table":{quoted(self.table)},"since":{since}}}'.encode()

    def as_json(self) -> bytes:
        """The Kafka message's value.

        >>> schema = TableSchema("postgres", "shop", "item", (7, 0), (ColumnSchema("id", "bigint", False, 1),), ("id",))
        >>> TableSchema.parsed(schema.as_json()) == schema
        True
        """
        fields = {**self._asdict(), "columns": [column._asdict() for column in self.columns]}
        if not self.doubtful:  # a version before this one knows no such field
            del fields["doubtful"]
        return json.dumps({"version": VERSION, **fields}, ensure_ascii=False).encode()

    @classmethod
    def parsed(cls, text: bytes | None) -> TableSchema:
        """UsageError for a version that is newer than ours, and for what no capture wrote."""
        try:
            fields: dict[str, Any] = json.loads(text or b"")
            is_newer = int(fields.pop("version")) > VERSION
            if not is_newer:
                columns = tuple(ColumnSchema(**column) for column in fields.pop("columns"))
                since, key = (int(fields["since"][0]), int(fields["since"][1])), tuple(fields["key"])
                doubtful = tuple(fields.pop("doubtful", ()))
                return cls(**{**fields, "since": since, "key": key, "columns": columns, "doubtful": doubtful})
        except (ValueError, LookupError, TypeError, AttributeError):
            raise UsageError(
                f"{(text or b'')[:60]!r} is no table's schema, in a topic of schemas: somebody else writes to it. "
                "Give the capture another --name, or the topic back to it."
            ) from None
        raise UsageError("A table's schema was stored by a newer waterclock: start that one again.")


class SchemaHistory:
    """The schemas of every table, in the order of their positions, however they are met."""

    def __init__(self, schemas: Iterable[TableSchema] = ()) -> None:
        self._of: dict[str, list[TableSchema]] = {}
        for schema in schemas:
            self.add(schema)

    def add(self, schema: TableSchema) -> None:
        """One with a position that is there already takes its place."""
        found = [each for each in self._of.get(schema.name, []) if each.since != schema.since]
        self._of[schema.name] = sorted([*found, schema], key=lambda each: each.since)

    def of(self, table: str) -> list[TableSchema]:
        return self._of.get(table, [])

    def last(self, table: str) -> TableSchema | None:
        """The one that holds now; None if nothing is known of the table."""
        found = self.of(table)
        return found[-1] if found else None

    def at(self, table: str, position: tuple[int, int]) -> TableSchema | None:
        """The one that holds for a change at `position`; None if it is older than all that is known."""
        found = self.of(table)
        place = bisect_right(found, position, key=lambda schema: schema.since)
        return found[place - 1] if place else None
