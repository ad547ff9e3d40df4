"""What a mirrored table does not take: changes after which rows would be gone, or wrong, in silence. The remedies work."""

from __future__ import annotations

import shutil

import pytest

from tests.sinks.database_stores import DuckDBStore
from tests.sinks.stores import DeltaStore, MirroringStore, PostgresStore
from tests.sinks.test_replica import delete, give, insert, items, opened, truncate, update
from waterclock.changes.row_change import RowChange
from waterclock.errors import UsageError

OTHER_KEY = r"the primary key of shop\.item is \(id\) in the target and \(name\) in the changes: drop the table"


@pytest.fixture
def store(mirroring: MirroringStore) -> MirroringStore:
    return mirroring


def drop(store: MirroringStore) -> None:
    """As its owner does it."""
    if isinstance(store, DeltaStore):
        shutil.rmtree(store.folder / "shop" / "item")
    else:
        store.run(f"DROP TABLE {store.mirrored('shop.item')}")  # type: ignore[attr-defined]


def by_name(n: int, name: str, operation: str = "insert") -> RowChange:
    return RowChange("shop.item", operation, {"name": name}, (n, 0), {"id": n, "name": name})


@pytest.mark.parametrize("change", [update(5, 1, name="new"), insert(5, 9, name="new"), truncate(5)])
def test_a_mirror_that_is_gone_is_not_made_anew_without_its_rows(store: MirroringStore, change: RowChange) -> None:
    rows = [insert(n, n, name="old") for n in (1, 2)]
    with opened(store) as sink:
        give(sink, 0, *rows)
    drop(store)
    with opened(store) as sink:
        with pytest.raises(UsageError, match=r"is gone, with rows that .*, or start over with --fresh"):
            give(sink, 1, change)
        sink.remove()
    with opened(store) as sink:
        give(sink, 0, *rows)
        give(sink, 1, update(6, 2, name="new"))
    assert items(store) == [(1, "old"), (2, "new")]


def test_one_of_which_all_rows_were_deleted_may_be_dropped(store: MirroringStore) -> None:
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, name="a"))
        give(sink, 1, delete(2, 1))
    drop(store)
    with opened(store) as sink:
        give(sink, 2, insert(3, 1, name="again"))
    assert items(store) == [(1, "again")]


@pytest.mark.parametrize("operation", ["insert", "update", "delete"])
def test_a_key_of_other_columns_is_refused_wherever_it_stands_in_a_batch(store: MirroringStore, operation: str) -> None:
    """One key of a batch was looked at: a delete by another one took all rows of the table."""
    with opened(store) as sink:
        give(sink, 0, *(insert(1, n, name="a") for n in range(1, 4)))
        with pytest.raises(UsageError, match=OTHER_KEY):
            give(sink, 1, insert(2, 4, name="b"), by_name(3, "a", operation))
        assert len(items(store)) == 3
    drop(store)
    with opened(store) as sink:
        sink.remove()
    with opened(store) as sink:  # a new topic
        give(sink, 0, by_name(11, "x"), by_name(12, "y"))
        give(sink, 1, by_name(13, "x", "delete"))
    assert items(store) == [(12, "y")]


def test_a_mirror_that_got_another_key_by_hand_is_refused_before_a_truncate_passes_over_its_rows(
    store: MirroringStore,
) -> None:
    if not isinstance(store, PostgresStore):
        pytest.skip("the others alter no primary key")
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, name="a"))
        store.run('ALTER TABLE shop.item DROP CONSTRAINT item_pkey, ADD PRIMARY KEY ("name")')
        with pytest.raises(UsageError, match=r"is \(name\) in the target and \(id\) in the changes"):
            give(sink, 1, truncate(2))


def test_a_constraint_of_a_table_that_was_made_beforehand_is_named(store: MirroringStore) -> None:
    """SQLite's was told as a fault of the disk, and DuckDB's as one of the file."""
    if isinstance(store, DeltaStore):
        pytest.skip("its writer knows none")
    name = store.mirrored("shop.item")
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, "shop.buyer", name="x"))
        store.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text NOT NULL)")  # type: ignore[attr-defined]
        told = (
            r"NOT NULL constraint failed: .*\. Take the constraint away, and start again|violates not-null constraint"
        )
        with pytest.raises(UsageError, match=told):
            give(sink, 1, insert(2, 1, name=None))
    drop(store)
    store.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text)")  # type: ignore[attr-defined]
    with opened(store) as sink:
        give(sink, 1, insert(2, 1, name=None))
    assert items(store) == [(1, None)]


@pytest.mark.parametrize("part", ["positions", "batches", "dead_letters", "owner"])
def test_a_table_that_has_the_place_of_the_sinks_own_is_refused(store: MirroringStore, part: str) -> None:
    """The source may be such a target itself: its table of batches was written into the sink's own."""
    if not isinstance(store, PostgresStore | DuckDBStore):
        pytest.skip("SQLite's tables are in no schema; tests/sinks/test_delta_mirror.py has Delta Lake's")
    schema = store.schema if isinstance(store, PostgresStore) else "main"
    key = {"query_id": "theirs", "batch_id": 7}
    with opened(store) as sink:
        for table in (f"{schema}.changes_{part}", f"{schema}.Changes_{part}"):
            with pytest.raises(
                UsageError, match=rf"{table} of the source has the place of the sink's own.*'tables' in"
            ):
                give(sink, 0, RowChange(table, "insert", key, (1, 0), key))
        assert sink.last_applied() is None
