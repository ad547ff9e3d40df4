"""A mirrored table follows its source's ALTER TABLE, in order with the rows, whatever order the partitions come in."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tests.sinks.stores import MirroringStore, PostgresStore, SQLiteStore
from tests.sinks.test_replica import delete, give, insert, items, truncate, update
from waterclock.changes.packed import CHANGES
from waterclock.changes.row_change import RowChange
from waterclock.changes.table_schema import ColumnSchema, SchemaHistory, TableSchema
from waterclock.errors import UsageError
from waterclock.sinks import Replica, Sink
from waterclock.sinks.following import SchemaFollower

ID = ColumnSchema("id", "bigint", False, 1)
NAME = ColumnSchema("name", "text", number=2)
PRICE = ColumnSchema("price", "numeric(10,2)", number=3)


def schema(since: int, *columns: ColumnSchema, key: Sequence[str] = ("id",), unsure: bool = False) -> TableSchema:
    return TableSchema("postgres", "shop", "item", (since, 0), columns, tuple(key), unsure)


@contextmanager
def following(
    store: MirroringStore, monkeypatch: pytest.MonkeyPatch, on_drop: str = "keep"
) -> Iterator[tuple[Sink, Any]]:
    """A sink that was told of schemas, and what adds one to them; no topic is read."""
    history = SchemaHistory()
    monkeypatch.setattr(SchemaFollower, "of", lambda mirror: SchemaFollower(history, mirror.on_drop))
    with closing(store.sink("changes", Replica(on_drop=on_drop))) as sink:
        sink.open(CHANGES)
        yield sink, history.add


def found(store: MirroringStore, columns: str) -> list[tuple[Any, ...]]:
    """In SQLite numbers with a point are texts."""
    shown = [f"CAST({name} AS text)" for name in columns.split(", ")]
    return sorted(store.look(", ".join(shown), store.mirrored("shop.item")))


def test_a_table_is_made_with_the_types_of_its_source(store: MirroringStore, monkeypatch: pytest.MonkeyPatch) -> None:
    when = ColumnSchema("at", "timestamp(3) with time zone", number=4)
    tag = ColumnSchema("tag", "uuid", number=5)
    own = ColumnSchema("mood", "shop.mood", number=6)
    uuid = "7d44b2a0-1bd2-4a1f-9c8e-0242ac120002"
    with following(store, monkeypatch) as (sink, learn):
        learn(schema(1, ID, PRICE, when, tag, own))
        give(sink, 0, insert(2, 1, price="12.50", at="2024-01-02 03:04:05.678+00", tag=uuid, mood="glad"))
    if isinstance(store, PostgresStore):
        kinds = "attnum, format_type(atttypid, atttypmod)"
        of_item = "pg_attribute where attrelid = 'shop.item'::regclass and attnum > 0"
        types = store.look(kinds, of_item)
        words = ["bigint", "numeric(10,2)", "timestamp(3) with time zone", "uuid", "text"]
        assert [word for _, word in types] == words
    assert found(store, "id, price, tag, mood") == [("1", "12.50", uuid, "glad")]


def test_a_table_that_is_there_stays_as_it_is(store: MirroringStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with following(store, monkeypatch) as (sink, learn):
        give(sink, 0, insert(2, 1, name="a"))
        learn(schema(1, ID, NAME, PRICE))
        give(sink, 1, insert(3, 2, name="b", price=4))
        learn(schema(4, ID, NAME._replace(name="title"), PRICE))
        give(sink, 2, insert(5, 3, title="c", price=4))
    assert found(store, "id, title, price") == [("1", "a", None), ("2", "b", "4"), ("3", "c", "4")]


def test_a_renamed_column_keeps_its_values_and_two_may_change_their_names(
    store: MirroringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following(store, monkeypatch) as (sink, learn):
        learn(schema(1, ID, NAME, PRICE))
        give(sink, 0, insert(2, 1, name="a", price="1.00"), insert(3, 2, name="b", price="2.00"))
        learn(schema(4, ID, NAME._replace(name="price"), PRICE._replace(name="name")))
        # older ones of another partition come behind it
        give(sink, 1, update(5, 1, name="7.00"), insert(3, 3, name="c", price="3.00"))
    assert found(store, "id, price, name") == [("1", "a", "7.00"), ("2", "b", "2.00"), ("3", "c", "3.00")]


def test_older_rows_get_what_a_new_column_has_in_them_whenever_they_come(
    store: MirroringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = ColumnSchema("n", "integer", False, 4, older="7")
    with following(store, monkeypatch) as (sink, learn):
        learn(schema(1, ID, NAME))
        give(sink, 0, insert(2, 1, name="a"))
        learn(schema(5, ID, NAME, new))
        give(sink, 1, insert(6, 2, name="b", n=8), insert(3, 3, name="c"))
        give(sink, 2, update(4, 1, name="d"), insert(3, 4, name="e"))
    assert found(store, "id, name, n") == [("1", "d", "7"), ("2", "b", "8"), ("3", "c", "7"), ("4", "e", "7")]
    assert {type(n) for _, n in items(store, "id, n")} == {int}  # in SQLite those of older rows were texts


def test_nor_do_they_change_the_type_of_a_column_that_grows(
    store: MirroringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A table that was made before the sink was told of schemas."""
    with following(store, monkeypatch) as (sink, learn):
        give(sink, 0, insert(6, 2, name="b", n=8, ok=False))
        learn(schema(1, ID, NAME))
        new = ColumnSchema("n", "integer", number=4, older="7"), ColumnSchema("ok", "boolean", number=5, older="t")
        learn(schema(5, ID, NAME, *new))
        give(sink, 1, insert(3, 1, name="a"), insert(7, 3, name="c", n=9, ok=True))
    assert items(store, "id, n, ok") == [(1, 7, True), (2, 8, False), (3, 9, True)]


@pytest.mark.parametrize("on_drop", ["keep", "follow"])
def test_a_dropped_column_stays_or_goes_as_the_word_says(
    on_drop: str, store: MirroringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following(store, monkeypatch, on_drop) as (sink, learn):
        learn(schema(1, ID, NAME))
        give(sink, 0, insert(2, 1, name="a"))
        learn(schema(3, ID, ColumnSchema("name", "integer", number=9)))
        give(sink, 1, insert(4, 2, name=5), insert(2, 3, name="old"))
    assert found(store, "id, name") == [("1", None), ("2", "5"), ("3", None)]
    if on_drop == "keep":
        assert found(store, "id, name_dropped_2") == [("1", "a"), ("2", None), ("3", "old")]


def has(store: MirroringStore, column: str) -> bool:
    try:
        items(store, f"id, {column}")
    except Exception as error:  # each database has its own
        if column not in str(error):
            raise
        return False
    return True


# of each schema its columns by number
HISTORIES = {
    "came again": [{2: "a"}, {}, {9: "a"}],
    "went twice": [{2: "a"}, {9: "a"}, {}, {12: "a"}],
    "renamed and went": [{2: "a"}, {2: "b"}, {}, {9: "a"}, {9: "b"}],
    "went, and another got its name": [{2: "a", 3: "b"}, {3: "b"}, {3: "a"}],
}


@pytest.mark.parametrize("on_drop", ["keep", "follow"])
@pytest.mark.parametrize("history", HISTORIES.values(), ids=HISTORIES)
def test_what_a_column_is_called_does_not_depend_on_when_batches_come(
    history: list[dict[int, str]], on_drop: str, store: MirroringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = [
        schema(10 * n, ID, *(ColumnSchema(name, "text", number=number) for number, name in columns.items()))
        for n, columns in enumerate(history)
    ]
    rows = [
        insert(10 * n + 1, n, **{name: f"{number}" for number, name in columns.items()})
        for n, columns in enumerate(history)
    ]

    def all_of() -> list[dict[str, str]]:
        some = [(n, name) for columns in history for n, name in columns.items()]
        names = dict.fromkeys([*(name for _, name in some), *(f"{name}_dropped_{n}" for n, name in some)])
        there = [name for name in names if has(store, name)]
        rows = items(store, ", ".join(["id", "1", *there]))
        return [{name: value for name, value in zip(there, row[2:], strict=True) if value} for row in rows]

    with following(store, monkeypatch, on_drop) as (sink, learn):
        for n, (shape, row) in enumerate(zip(shapes, rows, strict=True)):
            learn(shape)
            give(sink, n, row)
        one_by_one = all_of()
        assert [set(row.values()) for row in one_by_one] == [
            {f"{n}" for n in columns if on_drop == "keep" or n in history[-1]} for columns in history
        ]
        store.run(f"DROP TABLE {store.mirrored('shop.item')}")  # type: ignore[attr-defined]
        sink.remove()
        sink.open(CHANGES)
        give(sink, 0, *rows)
        assert all_of() == one_by_one


@pytest.mark.parametrize("is_known", [True, False], ids=["known from the start", "met on the way"])
def test_a_table_that_was_made_anew_with_its_key_elsewhere_keeps_it(
    is_known: bool, store: MirroringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By PostgreSQL's numbers its columns had changed their names: in SQLite rows stayed under another one's key."""
    shapes = [schema(1, ID, NAME), schema(5, NAME._replace(number=1), ID._replace(number=2))]
    with following(store, monkeypatch) as (sink, learn):
        learn(shapes[0])
        if is_known:
            learn(shapes[1])
        give(sink, 0, insert(2, 2, name="x"))
        learn(shapes[1])
        give(sink, 1, truncate(6), insert(7, 1, name="y"))
        give(sink, 2, insert(3, 3, name="late"), insert(8, 2, name="z"))
    assert items(store) == [(1, "y"), (2, "z")]


def test_json_becomes_text_where_the_source_made_it_one(store: MirroringStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with following(store, monkeypatch) as (sink, learn):
        learn(schema(1, ID, ColumnSchema("j", "json", number=2)))
        give(sink, 0, insert(2, 1, j={"a": 1}))
        learn(schema(3, ID, ColumnSchema("j", "text", number=2)))
        give(sink, 1, insert(4, 2, j="plain"))
    assert items(store, "id, j") == [(1, '{"a":1}'), (2, "plain")]


def test_a_column_in_front_of_the_key_goes_too(store: MirroringStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """DuckDB drops none that an index has behind it."""
    with following(store, monkeypatch, "follow") as (sink, learn):
        learn(schema(1, NAME, PRICE, ID))
        give(sink, 0, insert(2, 1, name="a", price="1.50"))
        learn(schema(3, PRICE._replace(type="numeric(12,2)"), ID))
        give(sink, 1, insert(4, 2, price="2.50"))
    assert found(store, "id, price") == [("1", "1.50"), ("2", "2.50")]


def test_an_empty_table_that_was_dropped_gets_its_types_again(
    store: MirroringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    if isinstance(store, SQLiteStore):
        pytest.skip("its columns have none")
    word = "pg_typeof(n)::text" if isinstance(store, PostgresStore) else "lower(typeof(n))"
    with following(store, monkeypatch) as (sink, learn):
        learn(schema(1, ID, ColumnSchema("n", "smallint", number=2)))
        for batch_id in (0, 2):
            give(sink, batch_id, insert(2 + batch_id, 1, n=7))
            assert items(store, f"id, {word}") == [(1, "smallint")]
            give(sink, batch_id + 1, delete(3 + batch_id, 1))
            store.run(f"DROP TABLE {store.mirrored('shop.item')}")  # type: ignore[attr-defined]


def test_a_widened_type_is_widened(store: MirroringStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with following(store, monkeypatch) as (sink, learn):
        learn(schema(1, ID, ColumnSchema("n", "smallint", number=2)))
        give(sink, 0, insert(2, 1, n=7))
        learn(schema(3, ID, ColumnSchema("n", "numeric(30,2)", number=2)))
        give(sink, 1, insert(4, 2, n="1234567890123456789012345678.25"))
    assert found(store, "id, n")[1] == ("2", "1234567890123456789012345678.25")


@pytest.mark.parametrize(
    "last",
    [schema(3, ID, PRICE, unsure=True), schema(3, ID._replace(name="no"), NAME, key=["no"])],
    ids=["unsure", "key"],
)
def test_what_is_not_known_is_asked_for_and_nothing_is_changed(
    last: TableSchema, store: MirroringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    with following(store, monkeypatch) as (sink, learn):
        learn(schema(1, ID, NAME))
        give(sink, 0, insert(2, 1, name="a"))
        learn(last)
        with pytest.raises(UsageError, match="--fresh"):
            give(sink, 1, insert(2, 2, name="b"))
    assert found(store, "id, name") == [("1", "a")]


def test_that_a_column_may_have_been_renamed_is_told_where_a_pipeline_starts_over_as_it_is_told_to(
    store: MirroringStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with following(store, monkeypatch) as (sink, learn):
        learn(schema(1, ID, NAME))
        learn(schema(3, ID, PRICE, unsure=True))
        give(sink, 0, insert(2, 1, name="a"))
        assert (
            "If one was renamed, older rows lack it: have its rows come again (waterclock cdc snapshot)" in caplog.text
        )
        give(sink, 1, insert(4, 1, price="1.50"))
    assert found(store, "id, price") == [("1", "1.50")]


def test_any_order_of_partitions_comes_to_the_same_table(
    store: MirroringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = random.Random(29)
    shapes = [
        schema(0, ID, NAME),
        schema(20, ID, NAME._replace(name="title")),
        schema(40, ID, NAME._replace(name="title"), ColumnSchema("name", "bigint", number=3, older="0")),
    ]
    rows: dict[int, tuple[str, int]] = {}
    partitions: list[list[RowChange]] = [[], [], []]
    for n in range(1, 60):
        key = drawn.randrange(6)
        rows[key] = (f"v{n}", n if n >= 40 else 0)
        values: dict[str, Any] = {"name" if n < 20 else "title": f"v{n}"} | ({"name": n} if n >= 40 else {})
        partitions[key % 3].append(insert(n, key, **values))
    with following(store, monkeypatch) as (sink, learn):
        batch, learned = 0, 0
        while any(partitions):
            chosen = drawn.choice([each for each in partitions if each])
            size = drawn.randrange(1, 5)
            taken, chosen[:] = chosen[:size], chosen[size:]
            while learned < 3 and shapes[learned].since <= max(change.position for change in taken):
                learn(shapes[learned])
                learned += 1
            give(sink, batch, *taken)
            batch += 1
    assert found(store, "id, title, name") == [(str(key), *map(str, row)) for key, row in sorted(rows.items())]


def test_a_key_that_is_widened_keeps_its_rows_and_the_types_of_the_others(
    store: MirroringStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB alters no column of a key."""
    small = ID._replace(type="smallint")
    with following(store, monkeypatch) as (sink, learn):
        learn(schema(1, small, PRICE))
        give(sink, 0, insert(2, 1, price="1.50"), insert(2, 2, price="2.50"))
        learn(schema(3, ID, PRICE))
        give(sink, 1, update(4, 2, price="0.10"), insert(4, 2**40, price="4.50", more=7))
        give(sink, 2, insert(5, 3, price=None, more="x"))
    assert found(store, "id, price, more") == [
        ("1", "1.50", None), ("1099511627776", "4.50", "7"), ("2", "0.10", None),
        ("3", None, "x" if isinstance(store, SQLiteStore) else '"x"'),
    ]  # fmt: skip
