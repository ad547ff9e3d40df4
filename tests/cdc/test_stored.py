"""Binlogs that were stored by MySQL 5.5 and 5.7 decode to the last row; damaged ones are refused."""

from __future__ import annotations

import gzip
import io
from collections import Counter
from pathlib import Path

import pytest

from waterclock.cdc.events import RowChange
from waterclock.cdc.mysql import columns as types
from waterclock.cdc.mysql.binlog import events_in
from waterclock.cdc.mysql.columns import Column
from waterclock.cdc.mysql.tablemap import MYSQL, TableMap
from waterclock.cdc.mysql.tables import Tables
from waterclock.cdc.mysql.transactions import Transactions
from waterclock.cdc.position import MySqlPlace, Position
from waterclock.errors import Unreadable


class Unnamed:
    """A catalog for binlogs whose server is gone: columns by number, all text as UTF-8."""

    def charset_of(self, collation: int) -> str:
        return "utf8mb4"

    def complete(self, table: TableMap, written: int) -> tuple[list[Column], tuple[str, ...]]:
        kinds = zip(table.types, table.sizes, strict=True)
        return [self._column(place, *kind) for place, kind in enumerate(kinds)], ("c0",)

    def _column(self, place: int, kind: int, size: int) -> Column:
        charset = "binary" if kind in (types.BLOB, types.STRING) else "utf8mb4"
        labels = tuple(f"l{n}" for n in range(64)) if kind in (types.ENUM, types.SET) else ()
        return Column(f"c{place}", kind, size, charset=charset, labels=labels)

    def settle(self, table: TableMap, columns: list[Column], written: int) -> list[Column]:
        return columns

    def virtual(self, table: TableMap) -> set[str]:
        return set()


def changes(raw: bytes) -> list[RowChange]:
    tables = Tables(Unnamed(), MYSQL, lambda database, table: True)
    transactions = Transactions(MySqlPlace(""), Position(""), tables, lambda database, table: True)
    events = events_in(io.BytesIO(raw))
    return [item for event in events for item in transactions.take(event) if isinstance(item, RowChange)]


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


def test_a_file_that_is_no_binlog_is_refused() -> None:
    with pytest.raises(Unreadable, match="no binlog"):
        changes(b"PK\x03\x04")


def test_a_binlog_that_ends_within_an_event_is_refused(data: Path) -> None:
    raw = (data / "binlog" / "mysql-bin.checksum-crc32").read_bytes()
    with pytest.raises(Unreadable, match="damaged"):
        changes(raw[:-10])
