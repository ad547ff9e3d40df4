"""The Python door for asyncio: the loop goes on while the source is waited for, and a cancelled wait loses nothing."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import suppress
from pathlib import Path

import pytest

from tests.cdc.mariadb import MariaSource
from tests.cdc.postgres import run
from tests.cdc.test_door import of_maria, of_postgres
from waterclock.cdc import AsyncChangeStream, SqlPosition
from waterclock.cdc.postgres.session import ReplicationSlot
from waterclock.errors import UsageError


def test_a_loop_reads_and_commits_over_a_connection_of_its_own_thread(source: MariaSource, tmp_path: Path) -> None:
    source.run("create table t (id int primary key)", "insert into t values (1)", "insert into t values (2)")
    rows = sqlite3.connect(tmp_path / "own")
    rows.execute("create table copy (id int)")

    async def copied() -> int:
        other = 0

        async def beside() -> None:
            nonlocal other
            while True:
                await asyncio.sleep(0)
                other += 1

        task = asyncio.create_task(beside())
        async with AsyncChangeStream(of_maria(source, SqlPosition(rows), most=1)) as stream:
            async for batch in stream:
                rows.executemany("insert into copy values (?)", [(change.data["id"],) for change in batch])
                batch.commit()
        task.cancel()
        return other

    assert asyncio.run(copied()) > 10
    assert rows.execute("select id from copy").fetchall() == [(1,), (2,)]
    assert asyncio.run(copied()) > 10
    assert rows.execute("select id from copy").fetchall() == [(1,), (2,)]


def test_a_wait_that_is_cancelled_loses_nothing(source: MariaSource, tmp_path: Path) -> None:
    source.run("create table t (id int primary key)")

    async def found() -> list[int]:
        seen: list[int] = []
        async with AsyncChangeStream(of_maria(source, tmp_path / "p", once=False)) as stream:
            for number in range(3):
                with suppress(TimeoutError):
                    await asyncio.wait_for(anext(stream), 0.2)
                source.run(f"insert into t values ({number})")
                batch = await anext(stream)
                seen += [change.data["id"] for change in batch]
                batch.commit()
        return seen

    assert asyncio.run(found()) == [0, 1, 2]


def test_a_task_that_is_cancelled_frees_the_slot_and_the_next_one_goes_on(
    slot: ReplicationSlot, tmp_path: Path
) -> None:
    run(slot.conninfo, "create table t (id int primary key)")

    async def read(seen: list[int], come: asyncio.Event) -> None:
        async with AsyncChangeStream(of_postgres(slot, tmp_path / "p", once=False)) as stream:
            come.set()
            async for batch in stream:
                seen += [change.data["id"] for change in batch]
                batch.commit()

    async def cancelled(number: int) -> list[int]:
        seen: list[int] = []
        come = asyncio.Event()
        task = asyncio.create_task(read(seen, come))
        await come.wait()
        run(slot.conninfo, f"insert into t values ({number})")
        while not seen:
            await asyncio.sleep(0.05)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        active = f"select active from pg_replication_slots where slot_name = '{slot.name}'"
        assert run(slot.conninfo, active) == [(False,)]
        return seen

    assert [asyncio.run(cancelled(number)) for number in range(2)] == [[0], [1]]


def test_what_a_first_start_asks_is_raised_where_the_block_begins(slot: ReplicationSlot, tmp_path: Path) -> None:
    run(slot.conninfo, "create table t (id int primary key)", "insert into t values (1)")

    async def begun() -> None:
        async with AsyncChangeStream(of_postgres(slot, tmp_path / "p")):
            raise AssertionError

    with pytest.raises(UsageError, match="from_here=True"):
        asyncio.run(begun())
