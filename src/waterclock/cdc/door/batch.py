"""What the caller is handed: a batch of whole transactions, and in it changes whose values are Python's when one looks.

Rule 1: a batch holds whole source transactions, one behind the other, or a part of one that is larger than the bound: then
        `is_part` is true, and the position says how far into it the caller is.
Rule 2: `commit` says that all of the batch is safe where the caller wants it. It is called once, before the next batch is
        asked for. Once the stream has let go of it, it comes again, and is committed no more.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, overload

from waterclock.cdc.position import Position
from waterclock.cdc.source import DeadLetter
from waterclock.cdc.typed import python_reader
from waterclock.changes.maxwell import NULL, MaxwellMessage
from waterclock.errors import UsageError
from waterclock.outside import threading


class Change:
    """A change of one row.

    `type` is insert, update, delete or truncate; bootstrap-insert, an older row; or bootstrap-complete: rows of the table
    of which no change has a sequence above data["since"] are gone. `table` is `database.table`, of PostgreSQL
    `schema.table`; `transaction` the GTID, of PostgreSQL the commit's LSN; `position`, (sequence, number), orders the
    changes of a source, whatever was restarted between.
    """

    def __init__(self, message: MaxwellMessage) -> None:
        self._message = message
        self.table = f"{message.database}.{message.table}"
        self.type = message.type
        self.transaction = message.gtid
        self.position = (message.sequence, message.xoffset)

    @cached_property
    def data(self) -> dict[str, Any]:
        """The row after the change; of a delete, what is known of the row: its key at least."""
        return self._values(self._message.data)

    @cached_property
    def old(self) -> dict[str, Any]:
        """The former values of what an update changed, as far as the source sends them; else empty."""
        return self._values(self._message.old or {})

    @property
    def key(self) -> dict[str, Any]:
        """The primary key; empty if the table has none."""
        return {name: self.data[name] for name in self._message.key} if self._message.data else {}

    @property
    def text(self) -> Mapping[str, str]:
        """`data` as the JSON text of each value, with all its digits."""
        return {name: text.strip() for name, text in self._message.data.items()}

    @property
    def time(self) -> datetime:
        """When it was committed, to the second; of MySQL, when its statement began."""
        return datetime.fromtimestamp(self._message.ts, UTC)

    @property
    def query(self) -> str | None:
        """The statement, if the server writes them and `queries` asks for them."""
        return self._message.query

    def as_json(self) -> bytes:
        """The message that the command would write to Kafka."""
        return self._message.as_json()

    def __repr__(self) -> str:
        return f"Change({self.table} {self.type} {self.data})"

    def _values(self, row: Mapping[str, str]) -> dict[str, Any]:
        read = self._message.types.each(python_reader)
        return {name: None if text == NULL else read[name](text) for name, text in row.items()}


class Batch(Sequence[Change]):
    """Changes in the order of their commits. `dead_letters` are records that could not be read, if the stream was asked to
    go on behind them: they stand in no change."""

    def __init__(
        self,
        rows: Sequence[MaxwellMessage],
        letters: Sequence[DeadLetter],
        position: Position,
        commit: Callable[[], None],
    ) -> None:
        self._rows, self.dead_letters = rows, letters  # a change is made when it is looked at, and not kept
        self._commit = commit
        self.place = position.place
        self.is_part = bool(position.rows)
        self.is_committed = False
        self._abandon: Callable[[], None] | None = None
        self._lock = threading.Lock()  # a stream may be closed by another thread

    def commit(self) -> None:
        """Keep the position behind this batch; with a SqlPosition, and all that was written over its connection."""
        with self._lock:
            if self.is_committed:
                raise UsageError("This batch is committed already: commit each once.")
            if self._abandon is not None:
                self._abandon()  # once more: what was written since, and all of it if sqlite3 refused the closing thread
                raise UsageError(
                    "The stream was closed before this batch was committed: it comes again at the next start, and what was "
                    "written of it over a SqlPosition's connection is rolled back. Commit each batch before the block ends."
                )
            self._commit()
            self.is_committed = True

    def let_go(self, abandon: Callable[[], None]) -> None:
        """The stream ends: `abandon` what was written of it, unless it is committed."""
        with self._lock:
            if not self.is_committed and self._abandon is None:
                self._abandon = abandon
                abandon()

    @overload
    def __getitem__(self, at: int) -> Change: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[Change]: ...

    def __getitem__(self, at: int | slice) -> Change | Sequence[Change]:
        return [Change(row) for row in self._rows[at]] if isinstance(at, slice) else Change(self._rows[at])

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Change]:
        return map(Change, self._rows)

    def __repr__(self) -> str:
        return f"Batch({len(self)} changes up to {json.dumps(self.place)})"
