"""What only mirrors in Delta Lake do: several commits a batch, tables that were made beforehand, names that it has not."""

from __future__ import annotations

import signal
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from tests.sinks.stores import DeltaStore, in_a_child
from tests.sinks.test_replica import delete, give, insert, items, opened, truncate, update
from tests.sinks.test_replica_kills import BATCH, BEFORE, FIRST, THEN, both
from waterclock.changes.row_change import RowChange
from waterclock.errors import SinkLost, StateMismatch, UsageError
from waterclock.sinks import LastBatch, Replica
from waterclock.sinks.delta.replica import GONE, Change
from waterclock.sinks.ledger import Epoch, fence

# kills the child before its commit to a table of that number
KILL = """
import os, signal
from tests.sinks import test_delta_mirror as t
from waterclock.changes.packed import CHANGES
from waterclock.sinks.delta import delta, replica
steps = iter(range(99))
def dying(place, name):
    work = getattr(place, name)
    def call(*arguments, **more):
        if next(steps) == {step}:
            os.kill(os.getpid(), signal.SIGKILL)
        return work(*arguments, **more)
    setattr(place, name, call)
for place, name in ((delta, "write_deltalake"), (replica, "_add"), (replica, "_merge"), (replica, "_widen")):
    dying(place, name)
sink = {sink}
sink.open(CHANGES)
t.give(sink, 1, *{batch})
"""


@pytest.fixture
def store(tmp_path: Path) -> DeltaStore:
    return DeltaStore(tmp_path)


def at(store: DeltaStore, table: str = "shop/item") -> DeltaTable:
    return DeltaTable(store.folder / table)


# Kills


@pytest.mark.parametrize("step", range(4), ids=["the first table", "the second table", "the positions", "the batch"])
def test_a_kill_between_two_tables_leaves_each_as_before_or_after_and_a_rerun_makes_all_right(
    store: DeltaStore, step: int
) -> None:
    with opened(store) as sink:
        give(sink, 0, *BEFORE)
    died = in_a_child(store, KILL.format(step=step, batch="t.BATCH", sink=mirror(store)))
    assert (died.returncode, died.stderr) == (-signal.SIGKILL, "")
    seen = both(store)
    assert [table in both_ways for table, both_ways in zip(seen, zip(FIRST, THEN, strict=True), strict=True)] == [
        True
    ] * 2
    assert (seen == FIRST) is (step == 0)
    with opened(store) as sink:
        assert sink.last_applied() == LastBatch("q", 0)
        versions = [at(store, table).version() for table in ("shop/buyer", "shop/item")]
        give(sink, 1, *BATCH)
    assert both(store) == THEN
    rewritten = [at(store, table).version() - v for table, v in zip(("shop/buyer", "shop/item"), versions, strict=True)]
    assert rewritten == [[1, 2], [0, 1], [0, 0], [0, 0]][step]  # what was committed is not committed again
    assert store.look("batch_id, query_id", "changes_batches") == [(0, "q"), (1, "q")]


WIDENING = (insert(4, 1, name=7), update(5, 2, name="B", more=1))


@pytest.mark.long(seconds=20)
@pytest.mark.parametrize("step", range(4))
def test_so_does_one_at_a_table_whose_columns_grow(store: DeltaStore, step: int) -> None:
    with opened(store) as sink:
        give(sink, 0, *BEFORE)
    script = KILL.format(step=step, batch="t.WIDENING", sink=mirror(store))
    assert in_a_child(store, script).returncode == -signal.SIGKILL
    with opened(store) as sink:
        give(sink, 1, *WIDENING)
    assert items(store, "id, name, more") == [(1, "7", None), (2, '"B"', 1)]


def mirror(store: DeltaStore) -> str:
    return store.mirroring("changes")


def test_of_two_writers_that_take_the_same_batch_one_writes_it(store: DeltaStore) -> None:
    with opened(store) as sink, opened(store) as other:
        give(sink, 0, *BEFORE)
        for each in (sink, other):
            each.begin()
            each.write(changes_of(1, *BATCH))
        other.commit()
        with pytest.raises(SinkLost, match="another writer was quicker"):
            sink.commit()
        sink.begin()
        assert sink.is_applied("q", 1)
    assert both(store) == THEN


def changes_of(batch_id: int, *changes: RowChange) -> Any:
    """The batch that `give` gives."""
    given: list[Any] = []

    class Taking:
        def __getattr__(self, name: str) -> Any:
            return lambda *arguments: given.extend(arguments) if name == "write" else False

    give(Taking(), batch_id, *changes)  # type: ignore[arg-type]
    return given[0]


# Files and commits


def test_rows_of_new_keys_are_added_and_no_file_is_written_anew(store: DeltaStore) -> None:
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, name="a"))
        before = set(at(store).file_uris())
        give(sink, 1, insert(2, 2, name="b"))
        assert before < set(at(store).file_uris())
        give(sink, 2, update(3, 2, name="B"))
        assert before < set(at(store).file_uris())  # what lies outside of the keys' range is not written anew
    assert items(store) == [(1, "a"), (2, "B")]


def test_a_batch_that_changes_nothing_is_no_commit_of_a_table(store: DeltaStore) -> None:
    with opened(store) as sink:
        give(sink, 0, insert(2, 1, name="a"))
        version = at(store).version()
        give(sink, 1, insert(1, 1, name="older"), delete(3, 7))
        assert (at(store).version(), sink.last_applied()) == (version, LastBatch("q", 1))
        give(sink, 2, insert(2, 7, name="before its delete"))
    assert items(store) == [(1, "a")]


# Tables that were there


def test_a_table_with_rows_of_somebody_else_is_left_alone(store: DeltaStore) -> None:
    mine = pa.table({"id": [1], "name": ["mine"]})
    with opened(store) as sink:
        write_deltalake(store.folder / "shop" / "item", mine)
        with pytest.raises(UsageError, match="holds rows that waterclock did not write"):
            give(sink, 0, insert(1, 1, name="theirs"))
        assert items(store) == [(1, "mine")]
        at(store).delete()
        give(sink, 0, insert(1, 1, name="theirs"))
    assert items(store) == [(1, "theirs")]


def test_a_table_that_was_made_beforehand_keeps_its_types(store: DeltaStore) -> None:
    fields = {"id": pa.string(), "active": pa.bool_(), "price": pa.decimal128(9, 2), "n": pa.int64(), "raw": pa.binary(),
              "at": pa.timestamp("us", tz="UTC"), "day": pa.date32(), "d": pa.float64()}  # fmt: skip
    DeltaTable.create(store.folder / "shop" / "item", pa.schema(list(fields.items())))
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, active=1, price=Decimal("1.50"), n="7", at="2024-01-02 03:04:05Z", more=1, d=1.5))
        give(sink, 1, insert(2, 2, active=0, price=2, day="2024-01-02", more=Decimal("0.5"), raw=b"\0", d="2e300"))
        give(sink, 2, update(3, 2, active=None), delete(4, 1))
    (row,) = at(store).to_pyarrow_table().to_pylist()
    assert {name: str(value) for name, value in row.items()} == {
        "id": "2", "active": "None", "price": "2.00", "n": "None", "raw": "b'\\x00'", "at": "None",
        "day": "2024-01-02", "d": "2e+300", "more": "0.5",
    }  # fmt: skip


def test_a_value_that_such_a_column_does_not_take_is_told(store: DeltaStore) -> None:
    DeltaTable.create(store.folder / "shop" / "item", pa.schema([("id", pa.int64()), ("n", pa.int64())]))
    with opened(store) as sink, pytest.raises(UsageError, match=r"the column 'n' of shop\.item is int64 in the target"):
        give(sink, 0, insert(1, 1, n="no number"))


# Names


@pytest.mark.parametrize("name", ["a b", "a,b", "(a", "a=b"])
def test_a_column_that_not_every_engine_could_read_is_told_with_the_remedy(store: DeltaStore, name: str) -> None:
    with opened(store) as sink, pytest.raises(UsageError, match=r"cannot be in a table of Delta Lake.*'tables' in"):
        give(sink, 0, insert(1, 1, **{name: "x"}))


def test_columns_that_differ_by_case_only_are_told(store: DeltaStore) -> None:
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, name="a"))
        with pytest.raises(UsageError, match=r"'name' and 'Name' of shop\.item in the source differ by case only"):
            give(sink, 1, insert(2, 1, Name="b"))


@pytest.mark.parametrize("table", ["shop.a/b", "shop...", "a%b.item", "changes_batches.item", "shop." + "é" * 128])
def test_a_table_that_cannot_be_a_folder_is_told_with_the_remedy(store: DeltaStore, table: str) -> None:
    with opened(store) as sink, pytest.raises(UsageError, match=r"the table .* of the source .*'tables' in \[source\]"):
        give(sink, 0, insert(1, 1, table, name="x"))


# In a pipeline's file


def of_file(folder: Path, sink: str, value: str = "maxwell") -> Any:
    from waterclock.streaming.toml.config import load

    source = f"[source]\nformat = 'kafka'\nservers = 'a:1'\ntopics = ['t']\nvalue = '{value}'\n"
    (folder / "pipeline.toml").write_text(f"{source}[sink]\nformat = 'delta'\n{sink}\n")
    return load(folder / "pipeline.toml").sink


def test_of_changes_the_path_is_the_folder_in_which_the_tables_stand(tmp_path: Path) -> None:
    made = of_file(tmp_path, "path = 'lake'")
    (tmp_path / "lake" / "changes_batches").mkdir(parents=True)
    assert made == of_file(tmp_path, "path = 'lake'")  # the second start was refused: the folder was there
    assert (made.location, made.mirror) == (str(tmp_path / "lake" / "changes"), Replica())
    assert of_file(tmp_path, "path = 's3://lake/'\ntable = 'own'").location == "s3://lake/own"


def test_a_truncate_takes_rows_of_earlier_batches(store: DeltaStore) -> None:
    with opened(store) as sink:
        give(sink, 0, *(insert(n, n, name="x") for n in range(1, 20)))
        give(sink, 1, truncate(30), insert(31, 5, name="again"))
    assert items(store) == [(5, "again")]


def test_so_does_one_alone_of_a_table_that_was_made_beforehand(store: DeltaStore) -> None:
    """No row of the batch told its key."""
    DeltaTable.create(store.folder / "shop" / "item", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, name="a"), insert(1, 2, name="b"))
        give(sink, 1, truncate(2))
    assert items(store) == []


def taken_over_in_the_middle(old: Any, new: Any) -> None:
    """The run of `old` has written a batch and not committed it when that of `new` takes the sink over."""
    fence(old, Epoch("a", 1))
    give(old, 0, *BEFORE)
    old.begin()
    old.write(changes_of(1, *BATCH))
    fence(new, Epoch("a", 2))


def test_a_mirrors_run_that_was_taken_over_writes_to_no_table(store: DeltaStore) -> None:
    with opened(store) as old, opened(store) as new:
        taken_over_in_the_middle(old, new)
        give(new, 1, *BATCH)
        give(new, 2, update(9, 3, name="later"))
        with pytest.raises(SinkLost, match="another writer was quicker"):
            old.commit()
        with pytest.raises(StateMismatch, match="run of epoch 2"):
            old.begin()
    assert items(store) == [(3, "later")]


def test_what_another_writer_did_while_a_table_got_its_form_is_not_done_again(tmp_path: Path) -> None:
    place = str(tmp_path / "t")
    before = DeltaTable.create(place, pa.schema([("id", pa.int64()), ("name", pa.string())]))

    def change(name: str, found: DeltaTable) -> Change:
        rows = pa.table({"id": [1], "name": [name], GONE: [False]})
        return Change("q", lambda: found, lambda: DeltaTable(place), rows, ("id",), False)

    for number, name in enumerate(["first", "later"]):
        change(name, DeltaTable(place)).commit(number)
    change("first", before).commit(0)
    assert DeltaTable(place).to_pyarrow_table().to_pylist() == [{"id": 1, "name": "later"}]


def test_a_mirrors_run_that_is_fenced_in_the_middle_of_a_batch_leaves_the_positions_as_they_are(
    store: DeltaStore,
) -> None:
    with opened(store) as old, opened(store) as new:
        taken_over_in_the_middle(old, new)
        before = store.look("table_name, key, position, deleted", "changes_positions")
        with pytest.raises(SinkLost, match="another writer was quicker"):
            old.commit()
        assert store.look("table_name, key, position, deleted", "changes_positions") == before
        give(new, 1, *BATCH)
    assert both(store) == THEN
