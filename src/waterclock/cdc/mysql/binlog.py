"""Events of a binlog, cut out of the bytes in which a file or a server brings them; and what a statement in one of them
means for the rows: nothing, a table changed, a table emptied, or rows that are not there. Other bodies are read elsewhere.

Rule 1: an event is whole or refused: its length has to fit, and if the server writes checksums, each is checked.
Rule 2: the format description, which opens every binlog, says whether there are checksums; before it none is checked.
Rule 3: in row format a statement that writes rows must not be there. If it is, its rows are nowhere else, and going on
        would lose them: it is refused, unless it writes to one table only, and nobody asked for that.
Rule 4: only the words of a statement that decide are read, without comments; the rest is the server's business. If they
        are not certain (which table a TRUNCATE empties, which one an UPDATE of several writes to), it is refused.
"""

from __future__ import annotations

import re
import struct
import zlib
from typing import NamedTuple

from waterclock.cdc.mysql.alterations import clauses
from waterclock.errors import Unreadable

QUERY, STOP, ROTATE, FORMAT_DESCRIPTION, XID, TABLE_MAP = 2, 3, 4, 15, 16, 19
WRITE_V1, UPDATE_V1, DELETE_V1, WRITE_V2, UPDATE_V2, DELETE_V2 = 23, 24, 25, 30, 31, 32
INCIDENT, HEARTBEAT, ROWS_QUERY, GTID, ANONYMOUS_GTID, PREVIOUS_GTIDS = 26, 27, 29, 33, 34, 35
XA_PREPARE, PARTIAL_UPDATE, TRANSACTION_PAYLOAD, HEARTBEAT_V2, TAGGED_GTID = 38, 39, 40, 41, 42
APPEND_BLOCK, DELETE_FILE, BEGIN_LOAD, EXECUTE_LOAD = 9, 11, 17, 18  # LOAD DATA as a statement
MARIA_ANNOTATE, MARIA_CHECKPOINT, MARIA_GTID, MARIA_GTID_LIST, MARIA_ENCRYPTION = 160, 161, 162, 163, 164
MARIA_QUERY_COMPRESSED, MARIA_WRITE_COMPRESSED, MARIA_UPDATE_COMPRESSED, MARIA_DELETE_COMPRESSED = 165, 166, 167, 168

IGNORABLE = 0x80  # a flag of an event's header: who does not know the event may leave it out

_HEADER = struct.Struct("<IBIIIH")
_CHECKSUM_BYTES = 4


class BinlogEvent(NamedTuple):
    """One event: when its statement began (seconds), what it is, whose it is, and its body without the checksum."""

    ts: int
    kind: int
    server: int
    end: int  # where the next one begins in the binlog's file; 0: made up by the server for this connection
    flags: int
    body: bytes


class EventFramer:
    """Cuts events out of their bytes. It learns from the format description whether they carry checksums.

    >>> EventFramer().event(bytes.fromhex("00000000 03 01000000 13000000 00000000 0000")).kind == STOP
    True
    """

    def __init__(self) -> None:
        self.checksums: bool | None = None  # None: nothing has said it yet

    def event(self, raw: bytes) -> BinlogEvent:
        """The event in `raw`, header and all; Unreadable if its length or its checksum is wrong."""
        ts, kind, server, size, end, flags = _HEADER.unpack_from(raw)
        if size != len(raw):
            raise Unreadable(
                f"A binlog event before {end} has {len(raw)} bytes and says {size}: the binlog is damaged."
            )
        if kind == FORMAT_DESCRIPTION:
            version = raw[_HEADER.size + 2 : _HEADER.size + 52].rstrip(b"\0").decode("ascii", "replace")
            numbers = tuple(int(part) for part in version.partition("-")[0].split(".") if part.isdigit())
            # older servers know none, and the last byte means something else
            knows_them = "MariaDB" in version or numbers >= (5, 6, 1)
            self.checksums = knows_them and raw[-1 - _CHECKSUM_BYTES] == 1
        last = size
        if self.checksums:
            last = size - _CHECKSUM_BYTES
            if zlib.crc32(raw[:last]) != int.from_bytes(raw[last:], "little"):
                raise Unreadable(
                    f"The checksum of the binlog event that ends at {end} is wrong: the binlog, or the way "
                    "from the server, "
                    "is damaged. Try again; if it stays, start from a later GTID (--from) and compare the tables."
                )
        return BinlogEvent(ts, kind, server, end, flags, raw[_HEADER.size : last])


def length_encoded(data: bytes, at: int) -> tuple[int, int]:
    """A whole number as MySQL packs it, and where the next byte is.

    >>> length_encoded(b"\\x07", 0), length_encoded(b"\\xfc\\x00\\x01", 0)
    ((7, 1), (256, 3))
    """
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    size = {0xFC: 2, 0xFD: 3, 0xFE: 8}.get(first)
    if size is None:
        raise Unreadable(f"A length in a binlog event begins with {first:#x}, which is none.")
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


def uncompressed(data: bytes) -> bytes:
    """What MariaDB packed (log_bin_compress=ON): a byte that says how, the length, and zlib's bytes."""
    if not data[0] & 0x80 or (data[0] >> 4) & 7:
        raise Unreadable("A compressed binlog event is not packed by zlib. Set log_bin_compress=OFF on the server.")
    head = 1 + (data[0] & 7)
    plain = zlib.decompress(data[head:])
    if len(plain) != int.from_bytes(data[1:head], "big"):
        raise Unreadable("A compressed binlog event unpacks to another length than it says: the binlog is damaged.")
    return plain


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
_RENAMES = re.compile(r"RENAME\s+TABLES?\b\s*(?:IF\s+EXISTS\s*)?", re.IGNORECASE)
_RENAME = re.compile(rf"{_NAME}\s*(?:(?:NO)?WAIT\b\s*\d*\s*)?\bTO\b\s*{_NAME}", re.IGNORECASE)
_RENAME_TO = re.compile(rf"RENAME\b(?!\s+(?:COLUMN|INDEX|KEY)\b)\s*(?:TO\b|AS\b|=)?\s*{_NAME}\s*\Z", re.IGNORECASE)
_DROPS = re.compile(r"DROP\s+TABLES?\b\s*(?:IF\s+EXISTS\b\s*)?", re.IGNORECASE)
_DROP = re.compile(rf"{_NAME}\s*(?:,|;|\Z|(?:WAIT|NOWAIT|RESTRICT|CASCADE)\b.*)", re.IGNORECASE | re.DOTALL)
_DROP_ALL = re.compile(rf"DROP\s+(?:DATABASE|SCHEMA)\b\s*(?:IF\s+EXISTS\b\s*)?({_PART})()", re.IGNORECASE)
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
    "CREATE": rf"CREATE\s+(OR\s+REPLACE\s+)?TABLE\b\s*(IF\s+NOT\s+EXISTS\b\s*)?{_NAME}",
    "LOAD": r"LOAD\s+DATA\s+(?:LOW_PRIORITY\s+|CONCURRENT\s+)?(?:LOCAL\s+)?INFILE\s+'(?:[^'\\]|\\.)*'\s+"
    rf"(?:REPLACE\s+|IGNORE\s+)?INTO\s+TABLE\s*{_NAME}",
}
_CALLED = re.compile(r"(?:`((?:[^`]|``)+)`|([\w$]+))\s*\(")
_WRITES = {"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "CALL", "SELECT", "WITH", "DO"}
_CHANGES = {"CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE"}
_WITHIN = _CHANGES | {"COMMIT", "ROLLBACK", "SAVEPOINT", "RELEASE", "XA", ""}  # what may stand beside rows

_NO_UTF8 = "\ufffd"  # stands for bytes that are no UTF-8


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
        found = re.match(form, self.text, re.IGNORECASE | re.DOTALL) if form else None
        return self._table(found, 3 if self.word == "CREATE" else 1)

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

    def renamed(self) -> list[tuple[tuple[str, str] | None, tuple[str, str] | None]]:
        """Former and new name of each table that it renamed, one after the other; None for one that is not certain.

        >>> Statement("shop", "rename table t to _t_del, `_t_gho` to t").renamed()[1]
        (('shop', '_t_gho'), ('shop', 't'))
        >>> Statement("shop", "alter table t add c int, rename old.t").renamed()
        [(('shop', 't'), ('old', 't'))]
        """
        if head := _RENAMES.match(self.text):
            pairs = _RENAME.finditer(self.text, head.end())
            return [(self._table(pair), self._table(pair, 3)) for pair in pairs] or [(None, None)]
        to = filter(None, map(_RENAME_TO.match, clauses(self.text))) if self.altered() else ()
        return [(self.altered(), self._table(found)) for found in to]

    def dropped(self) -> list[tuple[str, str] | None]:
        """The tables that it dropped, `*` for all of a database; None for one that is not certain.

        >>> Statement("shop", "drop table if exists `t`,old.t").dropped()
        [('shop', 't'), ('old', 't')]
        >>> Statement("shop", "drop database till").dropped(), Statement("shop", "drop temporary table t").dropped()
        ([('till', '*')], [])
        """
        if whole := _DROP_ALL.match(self.text):
            name = self._table(whole)
            return [name and (name[1], "*")]
        head = _DROPS.match(self.text)
        return [self._table(found) for found in _DROP.finditer(self.text, head.end())] if head else []

    def made(self) -> tuple[tuple[str, str], bool, bool] | None:
        """The table of a CREATE TABLE, whether it is OR REPLACE, and whether IF NOT EXISTS.

        >>> Statement("shop", "create or replace table old.t (id int)").made()
        (('old', 't'), True, False)
        """
        found = re.match(_WRITTEN["CREATE"], self.text, re.IGNORECASE)
        table = self._table(found, 3)
        return None if found is None or table is None else (table, bool(found[1]), bool(found[2]))

    def unlike(self) -> set[tuple[str, str]]:
        """The names of tables that are other tables behind it."""
        made = self.made()
        return {new for _, new in self.renamed() if new} | ({made[0]} if made else set())

    def moved(self) -> list[tuple[str, str] | None]:
        """The tables of which rows went, or came, as a whole and without the binlog; None for one that is not certain.

        >>> Statement("shop", "alter table a exchange partition p with table old.b").moved()
        [('shop', 'a'), ('old', 'b')]
        """
        if self.word != "ALTER" or not _PARTITION.search(self.text):
            return []
        return [self.altered(), *map(self._table, _OTHER.finditer(self.text))]

    def _table(self, match: re.Match[str] | None, group: int = 1) -> tuple[str, str] | None:
        if not match:
            return None
        first, second = (_plain(match[group]), _plain(match[group + 1] or ""))
        if _NO_UTF8 in first + second:  # of a client with another character set than UTF-8
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


def is_undone(gtid: bytes) -> bool:
    """Whether the statement behind this body of a MARIA_GTID has changed nothing: an ALTER TABLE that only begins, or that
    failed (binlog_alter_two_phase). Once it is done it stands in the binlog again, as ever."""
    flags, at = gtid[12], 21 if gtid[12] & 2 else 13  # behind the number of a group commit
    return not flags & 0xC0 and len(gtid) > at and bool(gtid[at] & 0b1010)
