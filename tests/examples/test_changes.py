"""The audit table of examples/changes: each change of a column once, whatever is started again."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

pytest.importorskip("pymysqlreplication", reason="it comes with the extra cdc")

from examples.changes.audit import audit

from tests.cdc.mariadb import running_server

pytestmark = pytest.mark.mariadb


def test_an_audit_table_has_each_changed_column_once(tmp_path: Path) -> None:
    with running_server(tmp_path / "mariadb") as server:
        url, own = f"mysql://root@127.0.0.1:{server.port}/shop", str(tmp_path / "audit.db")
        server.run("create database shop", "create table shop.item (id int primary key, price decimal(6,2))")
        server.run("insert into shop.item values (1, 12.50)", "update shop.item set price = 9")
        assert audit(url, own) == 2
        server.run("delete from shop.item")
        assert audit(url, own) == 1
        assert audit(url, own) == 0
    found = sqlite3.connect(own).execute("select what, column, was, now from audit").fetchall()
    assert found == [
        ("insert", "id", None, "1"),
        ("insert", "price", None, "12.50"),
        ("update", "price", "12.50", "9.00"),
        ("delete", "id", "1", None),
        ("delete", "price", "9.00", None),
    ]
