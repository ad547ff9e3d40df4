"""What a statement in a row-format binlog means for the rows: nothing, a table changed, a table emptied, or rows unseen.

Rule 1: in row format a statement that writes rows must not be there. Where it is, its rows are nowhere else, and going
        on would lose them: it is refused, whatever it says.
Rule 2: only the first words are read. They decide, and the rest is the server's business.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from waterclock.cdc.mysql.binlog import MARIA_QUERY_COMPRESSED, Event, uncompressed

_COMMENTS = re.compile(r"\A(?:\s+|/\*(?!!).*?\*/|--[ \t][^\n]*\n|#[^\n]*\n|/\*!\d*\s*)+", re.DOTALL)
_NAME = r"(?:`((?:[^`]|``)+)`|([\w$]+))"
_TRUNCATE = re.compile(rf"TRUNCATE\s+(?:TABLE\s+)?{_NAME}(?:\s*\.\s*{_NAME})?", re.IGNORECASE)
_ALTER = re.compile(
    rf"ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s+(?:IF\s+EXISTS\s+)?{_NAME}(?:\s*\.\s*{_NAME})?", re.IGNORECASE
)
_PARTITION = re.compile(r"\b(?:DROP|TRUNCATE|EXCHANGE)\s+PARTITION\b", re.IGNORECASE)
_WRITES = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "SELECT", "WITH", "DO"}
_CHANGES = {"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"}


class Statement(NamedTuple):
    """A statement, the database that was in use when it ran, and when it ended: seconds, rounded up."""

    database: str
    text: str
    ended: int = 0

    @property
    def word(self) -> str:
        """Its first word in capitals.

        >>> Statement("shop", "Truncate item").word
        'TRUNCATE'
        """
        match = re.match(r"[A-Za-z]+", self.text)
        return match[0].upper() if match else ""

    def begins(self) -> bool:
        """Whether a transaction's rows follow; MySQL 8 ends its CREATE TABLE ... SELECT with these words."""
        return self.word == "BEGIN" or self.text.startswith("XA START") or self.text.endswith("START TRANSACTION")

    def writes(self) -> bool:
        """Whether it wrote rows of which the binlog only has this statement."""
        return self.word in _WRITES

    def changes(self) -> bool:
        """Whether it changed what tables there are, or how they are made."""
        return self.word in _CHANGES

    def emptied(self) -> tuple[str, str] | None:
        """The table of a TRUNCATE.

        >>> Statement("shop", "truncate table `odd``name`").emptied()
        ('shop', 'odd`name')
        """
        return self._table(_TRUNCATE)

    def altered(self) -> tuple[str, str] | None:
        """The table of an ALTER TABLE."""
        return self._table(_ALTER)

    def partition(self) -> tuple[str, str] | None:
        """The table of which whole partitions went, or came, without a row in the binlog."""
        return self.altered() if _PARTITION.search(self.text) else None

    def _table(self, pattern: re.Pattern[str]) -> tuple[str, str] | None:
        match = pattern.match(self.text)
        if not match:
            return None
        first, second = (match[1] or match[2], match[3] or match[4])
        names = (first, second) if second else (self.database, first)
        return names[0].replace("``", "`"), names[1].replace("``", "`")


def statement(event: Event) -> Statement:
    """The statement of an event: thread, seconds it took, lengths, variables, the database in use, the text."""
    body = event.body
    name = body[8]
    start = 13 + int.from_bytes(body[11:13], "little")
    raw = body[start + name + 1 :]
    text = (uncompressed(raw) if event.kind == MARIA_QUERY_COMPRESSED else raw).decode("utf-8", "replace")
    ended = event.ts + int.from_bytes(body[4:8], "little") + 1
    return Statement(body[start : start + name].decode(), _COMMENTS.sub("", text), ended)
