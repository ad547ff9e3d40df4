"""What a statement in a row-format binlog means for the rows: nothing, a table changed, a table emptied, or rows unseen.

Rule 1: in row format a statement that writes rows must not be there. Where it is, its rows are nowhere else, and going
        on would lose them: it is refused, unless it writes to one table only, and nobody asked for that.
Rule 2: only the words that decide are read, without comments; the rest is the server's business. Where they cannot be
        known for certain (which table a TRUNCATE empties, which one an UPDATE of several writes to), it is refused.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from waterclock.cdc.mysql.binlog import EXECUTE_LOAD, MARIA_QUERY_COMPRESSED, BinlogEvent, uncompressed

# quoted text, which stays, or a comment; the marks of a comment that the server executes go, and what is in it stays
_COMMENTS = re.compile(
    r"""(`[^`]*`|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')|/\*M?!\d*|/\*.*?\*/|\*/|(?:--(?=\s|\Z)|#)[^\n]*""", re.DOTALL
)
_FOR = re.compile(r"SET\s+STATEMENT\b(?:'[^']*'|\"[^\"]*\"|[^'\"])*?\bFOR\s+", re.IGNORECASE | re.DOTALL)
_PART = r"(?:`(?:[^`]|``)+`|\"(?:[^\"]|\"\")+\"|[\w$]+)"
_NAME = rf"(?!TABLE\b)({_PART})(?:\s*\.\s*({_PART}))?"  # a table called "table" has to be quoted
_TRUNCATE = re.compile(rf"TRUNCATE\s*(?:TABLE\b\s*)?{_NAME}\s*(?:;|\Z|WAIT\b|NOWAIT\b)", re.IGNORECASE)
_ALTER = re.compile(rf"ALTER\s+(?:ONLINE\s+|IGNORE\s+)*TABLE\s*(?:IF\s+EXISTS\s*)?{_NAME}", re.IGNORECASE)
_PARTITION = re.compile(
    r"\b(?:DROP|TRUNCATE|EXCHANGE|CONVERT)\s+PARTITION\b|\bCONVERT\s+TABLE\b|\b(?:DISCARD|IMPORT)\b.*\bTABLESPACE\b"
    r"|\bDROP\s+SYSTEM\s+VERSIONING\b|\AALTER\s+(?:ONLINE\s+)*IGNORE\b",  # its history goes; what is there twice goes
    re.IGNORECASE | re.DOTALL,
)
_OTHER = re.compile(rf"\b(?:WITH|TO|CONVERT)\s+TABLE\s*{_NAME}", re.IGNORECASE)
_QUOTED = re.compile(r"""`[^`]*`|"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'""", re.DOTALL)
# CREATE TABLE ... SELECT; in row format the server writes the columns in its place (VALUES LESS THAN is of partitions)
_FILLED = re.compile(r"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\b.*(?:\bSELECT\b|\bVALUES\s*\()", re.IGNORECASE | re.DOTALL)
_HOW = r"(?:(?:LOW_PRIORITY|HIGH_PRIORITY|DELAYED|QUICK|IGNORE|HISTORY)\s+)*"
_END = r"\s*(?:;|\Z|(?:WHERE|ORDER|LIMIT|RETURNING|PARTITION|BEFORE)\b)"
# the one table that a statement writes to; what is written in another way may be of several
_WRITTEN = {
    "INSERT": rf"INSERT\s+{_HOW}(?:INTO\b\s*)?{_NAME}",
    "REPLACE": rf"REPLACE\s+{_HOW}(?:INTO\b\s*)?{_NAME}",
    "UPDATE": rf"UPDATE\s+{_HOW}{_NAME}(?:\s+(?:AS\s+)?(?!SET\b){_PART})?\s+SET\b",
    "DELETE": rf"DELETE\s+{_HOW}FROM\b\s*{_NAME}{_END}",
    "CREATE": rf"CREATE\s+(?:OR\s+REPLACE\s+)?TABLE\s+(?:IF\s+NOT\s+EXISTS\s+)?{_NAME}",
    "LOAD": r"LOAD\s+DATA\s+(?:LOW_PRIORITY\s+|CONCURRENT\s+)?(?:LOCAL\s+)?INFILE\s+'(?:[^'\\]|\\.)*'\s+"
    rf"(?:REPLACE\s+|IGNORE\s+)?INTO\s+TABLE\s*{_NAME}",
}
_CALLED = re.compile(r"(?:`((?:[^`]|``)+)`|([\w$]+))\s*\(")
_WRITES = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "SELECT", "WITH", "DO"}
_CHANGES = {"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"}
_WITHIN = _CHANGES | {"COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA", ""}  # what may stand beside rows

_UNTOLD = "\ufffd"  # stands for bytes that are no UTF-8


class Statement(NamedTuple):
    """A statement, the database that was in use when it ran, and when it ended: seconds, rounded up. `lowers`: names of
    tables are small letters, however they are written."""

    database: str
    text: str
    ended: int = 0
    lowers: bool = False

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

    def writes(self, within: bool = False) -> bool:
        """Whether it wrote rows of which the binlog only has this statement; `within` a transaction, whatever is none of
        the few that may stand there (ANALYZE UPDATE)."""
        filled = self.word == "CREATE" and _FILLED.match(_QUOTED.sub("``", self.text)) is not None
        return filled or self.word in _WRITES or (within and self.word not in _WITHIN)

    def written(self) -> tuple[str, str] | None:
        """The one table that a statement of `writes` names as its target; None for several, or if it is not certain.

        >>> [Statement("shop", text).written() for text in ("insert into theirs.t values (1)", "update a, b set x = 1")]
        [('theirs', 't'), None]
        """
        form = _WRITTEN.get(self.word)
        return self._table(re.match(form, self.text, re.IGNORECASE | re.DOTALL)) if form else None

    def called(self) -> set[str]:
        """All that may be the name of a function which it calls, in small letters."""
        return {(quoted or bare).replace("``", "`").lower() for quoted, bare in _CALLED.findall(self.text)}

    def changes(self) -> bool:
        """Whether it changed what tables there are, or how they are made."""
        return self.word in _CHANGES

    def emptied(self) -> tuple[str, str] | None:
        """The table of a TRUNCATE; None also if it is not certain.

        >>> Statement("shop", "truncate table `odd``name`").emptied()
        ('shop', 'odd`name')
        """
        return self._table(_TRUNCATE.match(self.text))

    def altered(self) -> tuple[str, str] | None:
        """The table of an ALTER TABLE."""
        return self._table(_ALTER.match(self.text))

    def moved(self) -> list[tuple[str, str] | None]:
        """The tables of which rows went, or came, as a whole and without the binlog; None for one that is not certain.

        >>> Statement("shop", "alter table a exchange partition p with table old.b").moved()
        [('shop', 'a'), ('old', 'b')]
        """
        if self.word != "ALTER" or not _PARTITION.search(self.text):
            return []
        return [self.altered(), *map(self._table, _OTHER.finditer(self.text))]

    def _table(self, match: re.Match[str] | None) -> tuple[str, str] | None:
        if not match:
            return None
        first, second = (_plain(match[1]), _plain(match[2] or ""))
        if _UNTOLD in first + second:  # of a client with another character set than UTF-8
            return None
        names = (first, second) if second else (self.database, first)
        return (names[0].lower(), names[1].lower()) if self.lowers else names


def _plain(name: str) -> str:
    """A name without its quotes."""
    return name[1:-1].replace(name[0] * 2, name[0]) if name[:1] in ("`", '"') else name


def statement(event: BinlogEvent, lowers: bool = False) -> Statement:
    """The statement of an event: thread, seconds it took, lengths, variables, the database in use, the text."""
    body = event.body
    name = body[8]
    start = (26 if event.kind == EXECUTE_LOAD else 13) + int.from_bytes(body[11:13], "little")
    raw = body[start + name + 1 :]
    text = (uncompressed(raw) if event.kind == MARIA_QUERY_COMPRESSED else raw).decode("utf-8", "replace")
    ended = event.ts + int.from_bytes(body[4:8], "little") + 1
    bare = _COMMENTS.sub(lambda match: match[1] or " ", text).strip()
    bare = _FOR.sub("", bare, count=1) if bare[:3].upper() == "SET" else bare
    return Statement(body[start : start + name].decode(), bare, ended, lowers)
