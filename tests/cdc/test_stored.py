"""Binlogs that were stored by MySQL 5.5 and 5.7 decode to the last row; damaged ones are refused."""

from __future__ import annotations

import gzip
from collections import Counter
from pathlib import Path

import pytest

from waterclock.cdc.mysql import binlog
from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql.binlog import BinlogEvent, EventFramer
from waterclock.cdc.mysql.columns import BinlogColumn
from waterclock.cdc.mysql.tablemap import MYSQL, TableMap
from waterclock.cdc.mysql.tables import Tables
from waterclock.cdc.mysql.transactions import Transactions
from waterclock.cdc.position import MySqlGtidSet, Position
from waterclock.cdc.source import SourceMark
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.errors import Unreadable


class Unnamed:
    """A catalog for binlogs whose server is gone: columns by number, all text as UTF-8."""

    def charset_of(self, collation: int) -> str:
        return "utf8mb4"

    def complete(self, table: TableMap, written: int) -> tuple[list[BinlogColumn], tuple[str, ...]]:
        kinds = zip(table.types, table.sizes, strict=True)
        return [self._column(place, *kind) for place, kind in enumerate(kinds)], ("c0",)

    def _column(self, place: int, kind: int, size: int) -> BinlogColumn:
        charset = "binary" if kind in (types.BLOB, types.STRING) else "utf8mb4"
        labels = tuple(f"l{n}" for n in range(64)) if kind in (types.ENUM, types.SET) else ()
        return BinlogColumn(f"c{place}", kind, size, charset=charset, labels=labels)

    def settle(self, table: TableMap, columns: list[BinlogColumn], written: int) -> list[BinlogColumn]:
        return columns

    def virtual(self, table: TableMap) -> set[str]:
        return set()

    def hidden(self, table: TableMap, columns: list[BinlogColumn]) -> set[str]:
        return set()


UNNAMED = Unnamed()


def changes(raw: bytes, catalog: Unnamed = UNNAMED) -> list[MaxwellMessage]:
    tables = Tables(catalog, MYSQL, lambda database, table: True)
    transactions = Transactions(MySqlGtidSet(""), Position(""), tables, lambda database, table: True)
    framing, found, at = EventFramer(), list[MaxwellMessage](), len(b"\xfebin")
    while at < len(raw):
        size = int.from_bytes(raw[at + 9 : at + 13], "little")
        event = framing.event(raw[at : at + size])
        found += [item for item in transactions.take(event) if isinstance(item, MaxwellMessage)]
        at += size
    return found


def test_the_sakila_binlog_has_every_row_of_sakila(data: Path) -> None:
    found = changes(gzip.decompress((data / "binlog" / "mysql-bin.sakila.gz").read_bytes()))
    assert Counter(change.table for change in found) == {
        "actor": 200, "address": 603, "category": 16, "city": 600, "country": 109, "customer": 599, "film": 1000,
        "film_actor": 5462, "film_category": 1000, "film_text": 1000, "inventory": 4581, "language": 6,
        "payment": 16049, "rental": 16044, "staff": 2, "store": 2,
    }  # fmt: skip
    assert {change.type for change in found} == {"insert"}
    assert found[0].data == {"c0": "1", "c1": '"PENELOPE"', "c2": '"GUINESS"', "c3": '"2006-02-15 03:34:33"'}
    payment = next(change for change in found if change.table == "payment")
    assert payment.data["c4"] == "2.99"


def test_a_binlog_with_checksums_decodes_and_each_event_is_checked(data: Path) -> None:
    raw = (data / "binlog" / "mysql-bin.checksum-crc32").read_bytes()
    found = changes(raw)
    assert Counter(change.type for change in found) == {"insert": 34, "update": 23, "delete": 6}
    assert sum(change.commit for change in found) == 60
    for place in range(200, len(raw), 997):
        with pytest.raises(Unreadable, match=r"checksum|damaged|says"):
            changes(raw[:place] + bytes([raw[place] ^ 1]) + raw[place + 1 :])


def test_a_binlog_that_ends_within_an_event_is_refused(data: Path) -> None:
    raw = (data / "binlog" / "mysql-bin.checksum-crc32").read_bytes()
    with pytest.raises(Unreadable, match="damaged"):
        changes(raw[:-10])


class Misled(Unnamed):
    """Takes the numbers of one table, which has nothing else, for wider ones."""

    def complete(self, table: TableMap, written: int) -> tuple[list[BinlogColumn], tuple[str, ...]]:
        columns, key = super().complete(table, written)
        wide = table.table == "announcement_member"
        return [column._replace(type=types.LONGLONG) if wide else column for column in columns], key


def test_rows_that_were_read_with_a_wrong_type_are_refused(data: Path) -> None:
    with pytest.raises(Unreadable, match="do not fit its columns"):
        changes((data / "binlog" / "mysql-bin.checksum-crc32").read_bytes(), Misled())


def event(kind: int, body: bytes, ts: int = 1_700_000_000) -> BinlogEvent:
    return BinlogEvent(ts, kind, 1, 4, 0, body)


BEGINNING = Position("")


def gtid(number: int) -> BinlogEvent:
    return event(binlog.GTID, bytes(17) + number.to_bytes(8, "little"))


def statement(text: str) -> BinlogEvent:
    return event(binlog.QUERY, bytes(13) + b"\0" + text.encode())


def transactions(position: Position = BEGINNING, skip: frozenset[str] = frozenset()) -> Transactions:
    tables = Tables(Unnamed(), MYSQL, lambda database, table: True)
    return Transactions(MySqlGtidSet(position.place), position, tables, lambda database, table: True, skip=skip)


ZERO = "00000000-0000-0000-0000-000000000000"


def test_another_transaction_in_the_place_of_one_that_is_half_in_kafka_is_refused() -> None:
    half = Position("", 0, 5, f"{ZERO}:2")
    assert list(transactions(half).take(gtid(2))) == []
    with pytest.raises(Unreadable, match=f"{ZERO}:2 is half in Kafka and has to come first"):
        transactions(half).take(gtid(1))


def test_a_transaction_without_its_end_is_refused() -> None:
    taking = transactions()
    list(taking.take(gtid(1)))
    list(taking.take(statement("BEGIN")))
    with pytest.raises(Unreadable, match="before its commit"):
        taking.take(gtid(2))


def rows_of_two(taking: Transactions) -> list[object]:
    """Two rows of a table with one column, an INT that is named."""
    content = b"\x01d\0\x01t\0" + bytes([1, types.LONG, 0, 0]) + bytes([4, 3, 2]) + b"id"
    taken = [*taking.take(event(binlog.TABLE_MAP, bytes(8) + content))]
    written = bytes(8) + b"\2\0" + bytes([1, 1]) + b"\0\1\0\0\0" + b"\0\2\0\0\0"
    return [*taken, *taking.take(event(binlog.WRITE_V2, written))]


@pytest.mark.parametrize("skip", [frozenset[str](), frozenset([f"{ZERO}:1"])])
def test_a_transaction_that_was_cut_off_by_the_servers_end_is_refused_and_can_be_left_out(skip: frozenset[str]) -> None:
    taking = transactions(skip=skip)
    assert list(taking.take(gtid(1))) == list(taking.take(statement("BEGIN"))) == []
    sent = rows_of_two(taking)
    if skip:
        assert [*sent, *taking.take(event(binlog.FORMAT_DESCRIPTION, b"")), *taking.take(gtid(2))] == []
        assert list(taking.take(event(binlog.XID, bytes(8)))) == [SourceMark.COMMITTED]
    else:
        with pytest.raises(Unreadable, match=f"the server was killed.*--skip {ZERO}:1"):
            taking.take(event(binlog.FORMAT_DESCRIPTION, b""))


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (binlog.TRANSACTION_PAYLOAD, "binlog_transaction_compression=OFF"),
        (binlog.PARTIAL_UPDATE, "binlog_row_value_options=''"),
        (binlog.TAGGED_GTID, "GTID with a tag"),
        (binlog.INCIDENT, "events are missing"),
        (binlog.MARIA_ENCRYPTION, "from the server, not from its files"),
        (99, "an event of the kind 99"),
    ],
)
def test_an_event_that_cannot_be_read_is_refused_with_what_to_set(kind: int, told: str) -> None:
    taking = transactions()
    list(taking.take(gtid(1)))
    with pytest.raises(Unreadable, match=told):
        list(taking.take(event(kind, b"")))


def test_an_unknown_event_that_says_it_may_be_left_out_is_left_out() -> None:
    assert list(transactions().take(event(99, b"")._replace(flags=binlog.IGNORABLE))) == []


def test_mysqls_create_table_as_select_is_one_transaction() -> None:
    taking = transactions()
    for made in (gtid(1), statement("CREATE TABLE `t` (`c` int) START TRANSACTION")):
        assert list(taking.take(made)) == []
    assert list(taking.take(event(binlog.XID, bytes(8)))) == [SourceMark.COMMITTED]
    assert str(taking.position().place) == f"{ZERO}:1"
