"""What a program writes over its own connection: a row in its own transaction, whichever driver it has."""

from __future__ import annotations

import asyncio
import json
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from pymysql.cursors import DictCursor

from tests.outbox.taking import MariaShop, PostgresShop, Shop
from waterclock.clock import ManualClock
from waterclock.errors import UsageError
from waterclock.outbox.table import OutboxTable
from waterclock.relay import Answer, AsyncDelays, Delays, Receipt, outbox_table

CLOCK = ManualClock()  # nobody turns it
NOW_MS = CLOCK.wall_ms()


@pytest.fixture
def delays() -> Delays:
    return Delays(clock=CLOCK)


@pytest.fixture
def made(shop: Shop) -> Shop:
    OutboxTable(shop.url, "delays", "any").make()
    return shop


@pytest.fixture
def postgres(postgres_shop: PostgresShop) -> PostgresShop:
    OutboxTable(postgres_shop.url, "delays", "any").make()
    return postgres_shop


def stored(shop: Shop) -> list[tuple[Any, ...]]:
    """What is committed: key, value, and headers."""
    with shop.connected() as connection, connection.cursor() as cursor:
        cursor.execute("select place, message_key, message_value, headers from waterclock_outbox order by number")
        return [(place, key, value, json.loads(text)) for place, key, value, text in cursor.fetchall()]


def test_a_row_names_the_moment_and_the_receipt_the_row(made: Shop, delays: Delays) -> None:
    with made.connected() as connection:
        receipt = delays.send("reminders", "hello", delay="3 s", key="k", id="cart-17", db=connection)
        connection.commit()
    assert stored(made) == [
        (
            None,
            b"k",
            b"hello",
            [["deliver-to", "reminders"], ["deliver-at", str(NOW_MS + 3000)], ["delay-id", "cart-17"]],
        )
    ]
    assert receipt == Receipt("delays", -1, receipt.offset, "cart-17")
    assert receipt.offset > 0


def test_a_cancel_and_a_replace_are_rows_too_and_are_answered_elsewhere(made: Shop, delays: Delays) -> None:
    with made.connected() as connection:
        receipt = delays.send("t", "a", delay="3 s", id="x", db=connection)
        assert delays.cancel(receipt, db=connection) == Answer("x", "written", 0)
        assert delays.cancel(Receipt("delays", 2, 17, "y"), db=connection) == Answer("y", "written", 0)
        assert delays.replace("x", "t", None, at=NOW_MS, db=connection) == Answer("x", "written", 0)
        connection.commit()
    _, cancelled, elsewhere, replaced = stored(made)
    assert cancelled == (None, None, None, [["delay-id", "x"], ["delay-action", "cancel"]])
    assert elsewhere[0] == 2  # the partition that the receipt names
    assert dict(replaced[3])["delay-action"] == "replace"


def test_a_header_of_any_bytes_comes_back_the_same(made: Shop, delays: Delays) -> None:
    with made.connected() as connection:
        delays.send("t", b"\x00\xff", delay="3 s", headers=[("odd", b"\xff\x00"), ("none", None)], db=connection)
        connection.commit()
    (row,) = OutboxTable(made.url, "delays", "any").rows()
    assert row.row.headers[2:] == [("odd", b"\xff\x00"), ("none", None)]
    assert row.row.value == b"\x00\xff"


def test_a_connection_that_commits_by_itself_is_refused_outside_of_a_transaction(made: Shop, delays: Delays) -> None:
    with made.connected(autocommit=True) as connection:
        with pytest.raises(UsageError, match="would not depend on your transaction"):
            delays.send("t", "alone", delay="3 s", db=connection)
        connection.cursor().execute("begin")
        delays.send("t", "in one", delay="3 s", db=connection)
        connection.cursor().execute("commit")
    assert [value for _, _, value, _ in stored(made)] == [b"in one"]


def test_a_table_that_is_missing_is_named_with_what_makes_it(shop: Shop, delays: Delays) -> None:
    with shop.connected() as connection:
        with pytest.raises(UsageError, match=r"waterclock relay --outbox.*CREATE TABLE waterclock_outbox"):
            delays.send("t", "a", delay="3 s", db=connection)
        connection.rollback()
        connection.cursor().execute(outbox_table("mysql" if shop.url.startswith("mysql") else "postgresql"))
        delays.send("t", "a", delay="3 s", db=connection)


def test_a_connection_may_make_dicts_of_its_rows(made: Shop, delays: Delays) -> None:
    """`KeyError: 0`, behind the row."""
    dicts = {"cursorclass": DictCursor} if isinstance(made, MariaShop) else {"row_factory": dict_row}
    with made.connected(**dicts) as connection:
        assert delays.send("t", "a", delay="3 s", db=connection).offset > 0
        connection.commit()
    assert [value for _, _, value, _ in stored(made)] == [b"a"]


@pytest.mark.parametrize("wrong", [17, 1.5, {"order": 17}, ["a"]])
def test_a_value_or_a_key_that_is_neither_text_nor_bytes_is_refused_before_the_database_hears_of_it(
    delays: Delays, wrong: Any
) -> None:
    said = f"must be a text, bytes or None, got .* of type {type(wrong).__name__}$"
    with pytest.raises(TypeError, match=f"^value {said}"):
        delays.send("t", wrong, delay="3 s", db=object())
    with pytest.raises(TypeError, match=f"^value {said}"):
        delays.replace("x", "t", wrong, delay="3 s", db=object())
    with pytest.raises(TypeError, match=f"^key {said}"):
        delays.cancel("x", key=wrong, db=object())
    with pytest.raises(TypeError, match=f"^value {said}"):
        asyncio.run(AsyncDelays(clock=CLOCK).send("t", wrong, delay="3 s", db=object()))


def test_whatever_has_bytes_is_written_as_bytes(made: Shop, delays: Delays) -> None:
    with made.connected() as connection:
        delays.send("t", memoryview(b"view"), delay="3 s", key=bytearray(b"k"), db=connection)  # type: ignore[arg-type]
        connection.commit()
    assert [(key, value) for _, key, value, _ in stored(made)] == [(b"k", b"view")]


def test_what_is_no_connection_is_refused(delays: Delays) -> None:
    with pytest.raises(TypeError, match="db must be a connection of psycopg or PyMySQL"):
        delays.send("t", "a", delay="3 s", db=sqlite3.connect(":memory:"))


def test_without_a_kafka_only_rows_are_written(delays: Delays) -> None:
    for call in (lambda: delays.send("t", "a", delay="3 s"), lambda: delays.cancel("a"), lambda: delays.handler("t")):
        with pytest.raises(UsageError, match="give db="):
            call()
    delays.close()


@contextmanager
def engine(shop: Shop) -> Iterator[Any]:
    sqlalchemy = pytest.importorskip("sqlalchemy")
    driver = "mysql+pymysql" if isinstance(shop, MariaShop) else "postgresql+psycopg"
    made = sqlalchemy.create_engine(f"{driver}://", creator=shop.opened)
    yield made
    made.dispose()


def test_a_session_of_sqlalchemy_has_it_in_its_transaction(made: Shop, delays: Delays) -> None:
    with engine(made) as each:
        from sqlalchemy.orm import Session

        with Session(each) as session:
            delays.send("t", "never", delay="3 s", db=session)
            session.rollback()
            delays.send("t", "session", delay="3 s", db=session)
            session.commit()
        with each.begin() as connection:
            delays.send("t", "connection", delay="3 s", db=connection)
    assert [value for _, _, value, _ in stored(made)] == [b"session", b"connection"]


def test_djangos_connection_has_it_in_an_atomic_block(made: Shop, delays: Delays) -> None:
    pytest.importorskip("django")
    from django.db import transaction

    from tests.outbox.djangos import connected

    with connected(made) as connection:
        with pytest.raises(UsageError, match=r"transaction\.atomic"):
            delays.send("t", "alone", delay="3 s", db=connection)
        with transaction.atomic():
            assert delays.send("t", "atomic", delay="3 s", db=connection).offset > 0
        with transaction.atomic():
            delays.send("t", "never", delay="3 s", db=connection)
            transaction.set_rollback(True)
    assert [value for _, _, value, _ in stored(made)] == [b"atomic"]


@pytest.mark.postgres
@pytest.mark.parametrize("driver", ["psycopg", "asyncpg"])
def test_an_asynchronous_connection_has_it_in_its_transaction(postgres: PostgresShop, driver: str) -> None:
    delays = AsyncDelays(clock=CLOCK)

    async def write(connection: Any) -> None:
        with pytest.raises(UsageError, match="would not depend on your transaction"):
            await delays.send("t", "alone", delay="3 s", db=connection)
        async with connection.transaction():
            receipt = await delays.send("t", "a", delay="3 s", id="x", db=connection)
            assert (receipt.partition, receipt.offset > 0) == (-1, True)
            assert await delays.cancel("x", db=connection) == Answer("x", "written", 0)
            await delays.replace("x", "t", "b", delay="3 s", db=connection)
        with pytest.raises(ZeroDivisionError):
            await fail(connection)

    async def fail(connection: Any) -> None:
        async with connection.transaction():
            await delays.send("t", "never", delay="3 s", db=connection)
            raise ZeroDivisionError

    async def main() -> None:
        if driver == "psycopg":
            opened = psycopg.AsyncConnection.connect(postgres.conninfo, autocommit=True, row_factory=dict_row)
            async with await opened as connection:
                await write(connection)
            return
        asyncpg = pytest.importorskip("asyncpg")
        given = psycopg.conninfo.conninfo_to_dict(postgres.conninfo)
        connection = await asyncpg.connect(host=given["host"], user=given["user"], database=given["dbname"])
        try:
            await write(connection)
        finally:
            await connection.close()

    asyncio.run(main())
    assert [value for _, _, value, _ in stored(postgres)] == [b"a", None, b"b"]
