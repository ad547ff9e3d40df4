"""The table of an outbox, for who takes its rows: made, looked at, and emptied of what was taken.

Rule 1: each question has a connection of its own: they are few, and none is held while the database is away.
Rule 2: a row whose `relay` is empty is a mark: a text that its writer waits for in the log (taker.py). It is no request.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Iterable
from typing import Any, Final, NamedTuple

from waterclock.cdc import command, origin
from waterclock.errors import UsageError, unstopped
from waterclock.relay.client.outbox import COLUMNS, TABLE, OutboxRow, headers_of_text, outbox_table

PORTION: Final = 1000  # rows that are taken by a question, or removed, at once
MARK: Final = ""
_ASIDE: Final = "aside"  # in front of `relay`, of rows that can never be taken
_SCHEMA: Final = (
    "select n.nspname from pg_class c join pg_namespace n on n.oid = c.relnamespace where c.oid = to_regclass(%s)"
)
_NUMBERED: Final = f"number, {', '.join(COLUMNS)}"


class StoredRow(NamedTuple):
    """A row, and why it is no request, if it is none. `transaction`: that it came with; of one that was asked for, ""."""

    number: int
    transaction: str
    row: OutboxRow
    reason: str = ""

    @classmethod
    def read(cls, transaction: str, values: Iterable[Any]) -> StoredRow:
        """From the values of _NUMBERED."""
        number, relay, place, key, value, text = values
        try:
            headers, reason = headers_of_text(text), ""
        except ValueError as error:
            headers = [("outbox-headers", str(text).encode("utf-8", "backslashreplace"))]
            reason = f"{unstopped(error)}."
        return cls(int(number), transaction, OutboxRow(relay, place, key, value, headers), reason)


def values_of(columns: dict[str, Any]) -> list[Any]:
    """What `StoredRow.read` takes, of a change's columns."""
    return [columns[name] for name in _NUMBERED.split(", ")]


class OutboxTable:
    """In the database at `url`, for the relay of a topic; `name` is the capture's. Errors are those of a capture."""

    def __init__(self, url: str, relay: str, name: str) -> None:
        self._where, self._relay = origin.database(url), relay
        if not self._where.name:
            raise UsageError(f"--outbox {url}: name the database too: mysql://user@host:3306/shop.")
        given = Namespace(**command.defaults())
        if self._where.kind == "mysql":
            self._login = origin.login_of(given, self._where, name)
            self._table, self.name = f"`{self._where.name.replace('`', '``')}`.{TABLE}", f"{self._where.name}.{TABLE}"
        else:
            self._slot = origin.slot_of(given, self._where, name)
            self._table = self.name = TABLE

    def make(self) -> None:
        """Make the table if there is none; UsageError if this user may not."""
        if self._where.kind == "mysql":
            asked = "select 1 from information_schema.tables where table_schema = %s and table_name = %s"
            if not self._ask(asked, self._where.name, TABLE):
                self._ask(outbox_table("mysql").replace(TABLE, self._table, 1))
            return
        if not self._ask(_SCHEMA, TABLE):
            self._ask(outbox_table("postgresql"))
        self.name = f"{self._ask(_SCHEMA, TABLE)[0][0]}.{TABLE}"

    def has_slot(self) -> bool:
        """Whether a slot of PostgreSQL's keeps the log from some place on already."""
        if self._where.kind == "mysql":
            return False
        return bool(self._ask("select 1 from pg_replication_slots where slot_name = %s", self._slot.name))

    def rows(self, *, all: bool = False) -> list[StoredRow]:
        """The first PORTION of those that wait, by their number, or all."""
        limit = "" if all else f" limit {PORTION}"
        asked = f"select {_NUMBERED} from {self._table} where relay = %s order by number{limit}"
        return [StoredRow.read("", row) for row in self._ask(asked, self._relay)]

    def numbers(self) -> set[int]:
        """Of all that is there, marks too."""
        asked = f"select number from {self._table} where relay in (%s, %s)"
        return {int(number) for (number,) in self._ask(asked, self._relay, MARK)}

    def mark(self, text: str) -> None:
        """Rule 2."""
        self._ask(f"insert into {self._table} (relay, headers) values (%s, %s)", MARK, text)

    def put_aside(self, number: int) -> None:
        """A row that cannot be taken stays, and is nobody's."""
        self._ask(f"update {self._table} set relay = concat('{_ASIDE} ', relay) where number = %s", number)

    def inserted_anew(self, number: int) -> str:
        """The statement that makes another row of one that was put aside."""
        rest = ", ".join(COLUMNS[1:])
        return (
            f"INSERT INTO {self.name} ({', '.join(COLUMNS)}) SELECT '{self._relay}', {rest} FROM {self.name} "
            f"WHERE number = {number}; then delete that row"
        )

    def remove(self, numbers: Collection[int]) -> None:
        """In portions; what is gone already is as good."""
        left = sorted(numbers)
        for at in range(0, len(left), PORTION):
            portion = left[at : at + PORTION]
            marks = ", ".join(["%s"] * len(portion))
            self._ask(f"delete from {self._table} where number in ({marks})", *portion)

    def _ask(self, statement: str, *arguments: object) -> list[tuple[Any, ...]]:
        """Rule 1."""

        def ask(cursor: Any) -> list[tuple[Any, ...]]:
            cursor.execute(statement, arguments or None)
            return list(cursor.fetchall()) if cursor.description else []

        if self._where.kind == "mysql":
            from waterclock.cdc.mysql.server import answer

            return answer(self._login, ask)
        from waterclock.cdc.postgres.session import connected, errors_of_postgres

        with errors_of_postgres(self._slot), connected(self._slot) as connection:
            return ask(connection.cursor())
