"""The Python door without a server: what holds whichever database is read."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest

from waterclock.cdc import AsyncChangeStream, ChangeStream, FilePosition, SqlPosition, changes, origin
from waterclock.cdc.door.batch import Batch
from waterclock.cdc.door.gather import BatchAhead, Bounds
from waterclock.cdc.door.stream import _without_password
from waterclock.cdc.origin import Origin
from waterclock.cdc.position import Position
from waterclock.cdc.source import Source, TableFilter
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.errors import UsageError


def no_source(position: Position) -> Source:
    raise AssertionError


def handed(stream: ChangeStream) -> Batch:
    stream.claim()
    change = MaxwellMessage("a", "t", "insert", 0, "", 1, 0, True, (), {"id": "1"})
    batch = stream.handed(BatchAhead([change], Position("0-1-7")))
    assert batch is not None
    return batch


def test_a_batch_is_committed_no_more_once_the_stream_has_let_go_of_it() -> None:
    """What was written of it was rolled back, and its position was kept all the same: the rows were lost."""
    rows = sqlite3.connect(":memory:")
    rows.execute("create table copy (id int)")
    store = SqlPosition(rows)
    stream = ChangeStream(Origin(no_source, Position(""), str, list), store, False, False, Bounds())
    batch = handed(stream)
    rows.execute("insert into copy values (1)")
    stream.close()
    with pytest.raises(UsageError, match="comes again at the next start"):
        batch.commit()
    assert (store.claim(), rows.execute("select * from copy").fetchall()) == (None, [])


def test_a_loop_that_forgot_a_commit_goes_on_behind_it(tmp_path: Path) -> None:
    """The error was kept as what came next: it was raised for ever."""

    async def found() -> None:
        store = FilePosition(tmp_path / "p")
        stream = ChangeStream(Origin(no_source, Position(""), str, list), store, False, False, Bounds())
        loop, batch = AsyncChangeStream(stream), handed(stream)
        stream.begin(None)
        with pytest.raises(UsageError, match="The batch before is not committed"):
            await anext(loop)
        batch.commit()
        with pytest.raises(AssertionError):  # of no_source
            await anext(loop)
        await loop.__aexit__(None, None, None)

    asyncio.run(found())


@pytest.mark.parametrize("password", ["plain", "a:b:c", "a@b", "%3A%40", ""])
def test_a_password_of_any_letters_leaves_the_address(password: str) -> None:
    """A colon in it left its first part in the address: "leave it out, and give it in a file"."""
    address, given = _without_password(f"postgresql://user:{password}@h:5432/shop?host=/run/a@b")
    assert (address, given) == ("postgresql://user@h:5432/shop?host=/run/a@b", unquote(password))


def test_a_databases_name_is_no_pattern(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`shop[1]` brought the tables of `shop1`, and none of its own."""
    made = list[TableFilter]()

    class Kept(TableFilter):
        def __init__(self, patterns: Sequence[str], own: frozenset[str] = frozenset()) -> None:
            super().__init__(patterns, own)
            made.append(self)

    monkeypatch.setattr(origin, "TableFilter", Kept)
    changes("mysql://root@127.0.0.1/shop%5B1%5D", position=tmp_path / "p")
    assert (made[0]("shop[1]", "item"), made[0]("shop1", "item")) == (True, False)
