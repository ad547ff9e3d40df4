"""The Python door without a server: what holds whichever database is read."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

import pytest

from tests.cdc.told import Told
from waterclock.cdc import AsyncChangeStream, ChangeStream, FilePosition, SqlPosition, changes, origin
from waterclock.cdc.door.batch import Batch
from waterclock.cdc.door.gather import BatchAhead, Bounds
from waterclock.cdc.door.stream import _without_password
from waterclock.cdc.origin import Origin
from waterclock.cdc.position import Position
from waterclock.cdc.source import Item, Source, SourceMark, TableFilter
from waterclock.changes.maxwell import MaxwellMessage
from waterclock.changes.sql_types import ColumnTypes
from waterclock.errors import Unreadable, UsageError


def no_source(position: Position) -> Source:
    raise AssertionError


def handed(stream: ChangeStream) -> Batch:
    stream.claim()
    change = MaxwellMessage("a", "t", "insert", 0, "", 1, 0, True, (), {"id": "1"})
    batch = stream.handed(BatchAhead([change], Position("0-1-7")))
    assert batch is not None
    return batch


@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_a_batch_is_committed_no_more_once_the_stream_has_let_go_of_it(is_elsewhere: bool) -> None:
    """What was written of it was rolled back, and its position was kept all the same: the rows were lost. sqlite3 rolls
    nothing back in a thread that did not open it: the rows stayed, without their position, and came twice."""
    rows = sqlite3.connect(":memory:")
    rows.execute("create table copy (id int)")
    store = SqlPosition(rows)
    stream = ChangeStream(Origin(no_source, Position(""), str, list), store, False, False, Bounds())
    batch = handed(stream)
    rows.execute("insert into copy values (1)")
    if is_elsewhere:
        closing = threading.Thread(target=stream.close)
        closing.start()
        closing.join()
    else:
        stream.close()
    rows.execute("insert into copy values (2)")
    with pytest.raises(UsageError, match="comes again at the next start"):
        batch.commit()
    rows.commit()
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


def two_transactions() -> list[MaxwellMessage]:
    """The first has one row, the second two."""
    types = ColumnTypes.parsed({"id": "int"})
    return [
        MaxwellMessage("a", "t", "insert", 0, f"0-1-{min(n, 2)}", n, 0, True, (), {"id": str(n)}, types=types)
        for n in (1, 2, 3)
    ]


def test_a_pause_within_a_transaction_loses_nothing_of_it(tmp_path: Path) -> None:
    """Its beginning was thrown away when what stood before it was handed out."""
    first, second, third = two_transactions()
    source = Told([first, SourceMark.COMMITTED, second, SourceMark.QUIET, third, SourceMark.COMMITTED], lambda: None)
    origin_ = Origin(lambda position: source, Position(""), lambda: "0-1-2", list)
    batches = []
    with ChangeStream(origin_, FilePosition(tmp_path / "p"), False, True, Bounds()) as stream:
        for batch in stream:
            batches.append([change.data["id"] for change in batch])
            batch.commit()
    assert batches == [[1], [2, 3]]


class Odd(Told):
    """Has something behind all that cannot be read."""

    def items(self) -> Iterator[Item]:
        yield from super().items()
        raise Unreadable("it is odd.")


def test_an_error_is_no_end_and_who_goes_on_has_what_comes_then(tmp_path: Path) -> None:
    """Whoever caught it and went on was told that there was no more."""
    first, second, _ = two_transactions()
    sources = iter(
        [Odd([first, SourceMark.COMMITTED], lambda: None), Told([second, SourceMark.COMMITTED], lambda: None)]
    )
    origin_ = Origin(lambda position: next(sources), Position(""), str, list)
    with ChangeStream(origin_, FilePosition(tmp_path / "p"), False, False, Bounds(most=1)) as stream:
        next(stream).commit()
        with pytest.raises(Unreadable):
            next(stream)
        assert [change.data["id"] for change in next(stream)] == [2]


def test_a_stream_that_was_closed_is_not_begun_again_in_silence(tmp_path: Path) -> None:
    """A loop that read once a minute by one stream had its changes the first time alone."""
    stream = ChangeStream(
        Origin(no_source, Position(""), str, list), FilePosition(tmp_path / "p"), False, False, Bounds()
    )
    stream.close()
    with pytest.raises(UsageError, match="was closed: make another one"), stream:
        pass
    assert list(stream) == []

    async def unopened() -> None:
        loop = ChangeStream(
            Origin(no_source, Position(""), str, list), FilePosition(tmp_path / "p"), False, False, Bounds()
        )
        with pytest.raises(UsageError, match="is not open: begin its block"):
            await anext(AsyncChangeStream(loop))

    asyncio.run(unopened())


def test_a_connection_may_make_dicts_of_its_rows() -> None:
    """The name of the column was taken for the position: `Expecting value: line 1 column 1`."""
    rows = sqlite3.connect(":memory:")
    rows.row_factory = lambda cursor, row: {
        column[0]: value for column, value in zip(cursor.description, row, strict=True)
    }
    store = SqlPosition(rows)
    assert store.claim() is None
    store.commit(Position("0-1-7"))
    assert store.claim() == Position("0-1-7")


@pytest.mark.parametrize(
    ("option", "right"), [("snapshot", "initial or when-needed or never"), ("new_tables", "ask or from-now")]
)
def test_a_word_that_is_none_of_an_options_is_refused(tmp_path: Path, option: str, right: str) -> None:
    """`snapshot="off"` was the default: all older rows came."""
    with pytest.raises(UsageError, match=f"^{option} off: write {right}"):
        changes("mysql://root@127.0.0.1/shop", position=tmp_path / "p", **{option: "off"})
