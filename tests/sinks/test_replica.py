"""Mirrored tables: "for every key a table holds what the changes of that key say up to the largest position"."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.sinks.database_stores import DuckDBStore
from tests.sinks.stores import DeltaStore, MirroringStore, PostgresStore, SQLiteStore
from waterclock.changes.packed import CHANGES
from waterclock.changes.row_change import RowChange
from waterclock.errors import UsageError
from waterclock.sinks import Batch, Replica, Sink, apply_once
from waterclock.streaming import frames
from waterclock.streaming.topics.records import ChangeLayout, Records, read_changes

Values = Mapping[str, Any]


def insert(n: int, key: int, table: str = "shop.item", /, **values: Any) -> RowChange:
    return RowChange(table, "insert", {"id": key}, (n, 0), {"id": key, **values})


def update(n: int, key: int, /, **values: Any) -> RowChange:
    return RowChange("shop.item", "update", {"id": key}, (n, 0), {"id": key, **values})


def delete(n: int, key: int) -> RowChange:
    return RowChange("shop.item", "delete", {"id": key}, (n, 0), {})


def truncate(n: int) -> RowChange:
    return RowChange("shop.item", "truncate", {}, (n, 0), {})


@contextmanager
def opened(store: MirroringStore) -> Iterator[Sink]:
    with closing(store.sink("changes", Replica())) as sink:
        sink.open(CHANGES)
        yield sink


@pytest.fixture
def store(mirroring: MirroringStore) -> MirroringStore:
    """Every sink that can be a mirror, in turn."""
    return mirroring


def give(sink: Sink, batch_id: int, *changes: RowChange) -> None:
    from waterclock.changes.packed import packed

    rows = [packed(change) for change in changes]
    columns: Any = zip(*rows, strict=True)
    table = pa.Table.from_arrays([pa.array(c, f.type) for c, f in zip(columns, CHANGES, strict=True)], schema=CHANGES)
    assert apply_once(sink, Batch("q", batch_id, None, table, frames.DEAD_SCHEMA.empty_table(), {}, None, 0.1))


def items(store: MirroringStore, columns: str = "id, name", table: str = "shop.item") -> list[tuple[Any, ...]]:
    return store.look(columns, store.mirrored(table))


def test_each_change_goes_to_the_table_that_it_names(store: MirroringStore) -> None:
    with opened(store) as sink:
        give(sink, 0, insert(1, 4, name="pen"), insert(1, 9, "shop.buyer", name="Ann"), insert(2, 5, name="ink"))
    assert items(store) == [(4, "pen"), (5, "ink")]
    assert items(store, table="shop.buyer") == [(9, "Ann")]


def test_an_older_change_is_passed_over_in_one_batch_and_over_batches(store: MirroringStore) -> None:
    with opened(store) as sink:
        give(sink, 0, update(5, 4, name="new"), insert(1, 4, name="old"), delete(3, 7), insert(2, 7, name="gone"))
        give(sink, 1, update(4, 4, name="older"), insert(1, 7, name="before its delete"))
    assert items(store) == [(4, "new")]


def test_a_deleted_key_comes_back_with_a_later_position_only(store: MirroringStore) -> None:
    with opened(store) as sink:
        give(sink, 0, insert(1, 4, name="pen"))
        give(sink, 1, delete(3, 4))
        give(sink, 2, insert(2, 4, name="late"))
        assert items(store) == []
        give(sink, 3, insert(4, 4, name="again"))
    assert items(store) == [(4, "again")]


def test_what_an_update_does_not_bring_stays_and_what_an_insert_does_not_bring_goes(store: MirroringStore) -> None:
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, name="a", text="long"), insert(1, 2, name="b", text="long"))
        give(sink, 1, update(2, 1, name="A"), delete(2, 2), insert(3, 2, name="B"))
        give(sink, 2, insert(4, 3, name="c", text="x"), update(5, 3, name="C"))
        assert items(store, "id, name, text") == [(1, "A", "long"), (2, "B", None), (3, "C", "x")]
        give(sink, 3, insert(6, 3, name="whole"))  # a copy of the table begun anew
    assert items(store, "id, name, text")[2] == (3, "whole", None)


def test_a_writer_that_begins_again_some_way_back_takes_no_column_back(store: MirroringStore) -> None:
    """Debezium does so after a crash, and leaves out large values. The batch ended before what had come in between."""
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, name="a", text="old"), update(2, 1, text="new"))
        give(sink, 1, update(3, 1, name="b"), insert(1, 1, name="a", text="old"))
        assert items(store, "id, name, text") == [(1, "b", "new")]
        give(sink, 2, update(2, 1, text="new"), update(3, 1, name="b"))
        give(sink, 3, update(4, 1, name="c"), insert(5, 2, name="x", text="y"), delete(6, 2))
        give(sink, 4, insert(8, 2, name="again", text="z"), update(9, 2, name="once more"))
        give(sink, 5, update(10, 2, name="now"), delete(6, 2), update(11, 1, name="d"), update(3, 1, name="b"))
        assert items(store, "id, name, text") == [(1, "d", "new"), (2, "now", "z")]
        give(sink, 6, update(12, 1, name="e"), truncate(13), insert(14, 1, name="f"), update(15, 1, name="g"))
    assert items(store, "id, name, text") == [(1, "g", None)]


@pytest.mark.parametrize("together", [True, False], ids=["in one batch", "one by one"])
def test_rows_that_did_not_come_again_are_gone_and_one_that_changed_meanwhile_keeps_its_columns(
    together: bool, store: MirroringStore
) -> None:
    """The end of a table's rows is a truncate behind rows that are later than it: what one of them keeps stays."""
    later = [insert(4, 2, name="q", price=7), update(7, 1, price=9), update(8, 2, price=8), insert(9, 3, name="c")]
    later += [truncate(5), insert(4, 5, name="late")]
    with opened(store) as sink:
        give(sink, 1, *[insert(1, key, name=name, price=1) for key, name in enumerate("abcd", 1)])
        for number, some in enumerate([later] if together else [[each] for each in later], 2):
            give(sink, number, *some)
    assert sorted(items(store, "id, name, price")) == [(1, "a", 9), (2, "q", 8), (3, "c", None)]


def test_a_truncate_ends_older_rows_whenever_they_come(store: MirroringStore) -> None:
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, name="a"), insert(9, 2, name="later"))
        give(sink, 1, truncate(5))
        give(sink, 2, insert(4, 3, name="older, of another partition"), insert(6, 4, name="newer"))
        assert items(store) == [(2, "later"), (4, "newer")]
        give(sink, 3, insert(7, 1, name="again"))
        give(sink, 4, insert(10, 8, name="x"), truncate(11), insert(12, 9, name="y"))
    assert items(store) == [(9, "y")]


def test_a_column_may_have_any_name(store: MirroringStore) -> None:
    if isinstance(store, DeltaStore):
        pytest.skip("not every engine that reads Delta Lake takes every name")
    names = ["_key", "table", "select", 'a "b"', "\u00e4 \u4e2d"]
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, **{name: name for name in names}))
        give(sink, 1, update(2, 1, **{name: name.upper() for name in names}))
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    assert items(store, f"id, {columns}") == [(1, *(name.upper() for name in names))]


def test_a_key_of_several_columns_is_one_whatever_their_order(store: MirroringStore) -> None:
    def line(n: int, key: Values, count: int) -> RowChange:
        return RowChange("shop.item", "insert", key, (n,), {**key, "count": count})

    with opened(store) as sink:
        give(sink, 0, line(1, {"id": 1, "name": "a"}, 5), line(1, {"id": 1, "name": "b"}, 6))
        give(sink, 1, line(3, {"name": "a", "id": 1}, 7))
        give(sink, 2, line(2, {"id": 1, "name": "a"}, 8))
    assert items(store, "id, name, count") == [(1, "a", 7), (1, "b", 6)]


def test_columns_come_with_their_first_value_and_grow_with_their_values(store: MirroringStore) -> None:
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, n=1, t="a", none=None))
        give(sink, 1, insert(2, 2, n=Decimal("12.50"), t="b", more=True))
        give(sink, 2, insert(3, 3, n=2**64, t=[1, {"a": Decimal("1.10")}]))
        give(sink, 3, insert(4, 4, n=0, t="c"), insert(4, 5, n=0, t=7))
    rows = {row[0]: row[1:] for row in items(store, "id, n, t, more")}
    if isinstance(store, PostgresStore):
        assert rows[1] == (Decimal(1), "a", None)
        assert rows[2] == (Decimal("12.50"), "b", True)
        assert rows[3] == (Decimal(2**64), [1, {"a": 1.10}], None)
        assert (rows[4][1], rows[5][1]) == ("c", 7)
    elif isinstance(store, DeltaStore | DuckDBStore):
        assert rows == {1: ("1", '"a"', None), 2: ("12.50", '"b"', True), 3: (str(2**64), '[1,{"a":1.10}]', None),
                        4: ("0", '"c"', None), 5: ("0", "7", None)}  # fmt: skip
    else:
        assert rows == {1: (1, "a", None), 2: ("12.50", "b", 1), 3: (str(2**64), '[1,{"a":1.10}]', None),
                        4: (0, "c", None), 5: (0, 7, None)}  # fmt: skip
    with pytest.raises(Exception, match="none"):
        items(store, "id, none")


def test_every_text_and_bytes_arrive_as_they_are(store: MirroringStore) -> None:
    texts = ["", "\\N", "\\", "a\tb\nc\rd", "'\"", "\u00e4\U0001f600", "NULL"]
    with opened(store) as sink:
        give(sink, 0, *(insert(1, number, name=text, raw=text.encode()) for number, text in enumerate(texts)))
    assert items(store, "id, name, raw") == [(number, text, text.encode()) for number, text in enumerate(texts)]


def test_keys_are_told_apart_byte_by_byte(store: MirroringStore) -> None:
    cities = ["", " ", "a", "A", "\u00e4", "a\u0308", "\U0001f570", "'", "%s"]

    def of(n: int, city: str, number: int) -> RowChange:
        return RowChange("shop.item", "insert", {"city": city}, (n, 0), {"city": city, "number": number})

    with opened(store) as sink:
        give(sink, 0, *(of(1, city, n + 100) for n, city in enumerate(cities)))
        give(sink, 1, *(of(2, city, n) for n, city in enumerate(cities)))
    assert {*items(store, "city, number")} == {(city, n) for n, city in enumerate(cities)}


def test_a_table_of_keys_only_is_one_too(store: MirroringStore) -> None:
    with opened(store) as sink:
        give(sink, 0, insert(1, 1), update(2, 2))
        give(sink, 1, insert(3, 1), update(4, 2), delete(7, 1))
    assert items(store, "id, 1") == [(2, 1)]


def test_a_table_with_rows_of_somebody_else_is_left_alone(store: MirroringStore) -> None:
    if isinstance(store, DeltaStore):
        pytest.skip("tests/sinks/test_delta_mirror.py has it")
    name = store.mirrored("shop.item")
    with opened(store) as sink:
        if not isinstance(store, SQLiteStore):
            store.run("CREATE SCHEMA shop")
        store.run(f"CREATE TABLE {name} (id bigint PRIMARY KEY, name text)")
        store.run(f"INSERT INTO {name} VALUES (1, 'mine')")
        with pytest.raises(UsageError, match="holds rows that waterclock did not write"):
            give(sink, 0, insert(1, 1, name="theirs"))
        assert items(store) == [(1, "mine")]
        store.run(f"DELETE FROM {name}")
        give(sink, 0, insert(1, 1, name="theirs"))
    assert items(store) == [(1, "theirs")]


def test_a_table_that_was_made_beforehand_keeps_its_types(store: MirroringStore) -> None:
    if not isinstance(store, PostgresStore):
        pytest.skip("SQLite's columns take everything; tests/sinks/test_delta_mirror.py has Delta Lake's")
    store.run("CREATE SCHEMA shop")
    store.run(
        "CREATE TABLE shop.item (id text PRIMARY KEY, active boolean, price text, n bigint, at timestamp, j jsonb)"
    )
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, active=1, price=Decimal("1.50"), n="7", at="2024-01-02 03:04:05", more=1, j="a"))
        give(sink, 1, insert(2, 2, active=0, price=2, n=8, at=None, more=Decimal("0.5"), j="b"))
        give(sink, 2, update(3, 2, active=None), delete(4, 1))
    columns = "id, active, price, n, more, j, pg_typeof(at)::text"
    assert items(store, columns) == [("2", None, "2", 8, Decimal("0.5"), "b", "timestamp without time zone")]


@pytest.mark.parametrize(
    "keys", [[[1, 2], ["a"]], [1, "a"], [True, 3]], ids=["lists", "a number and a text", "a boolean"]
)
def test_a_key_may_be_of_any_kind_and_of_several(store: MirroringStore, keys: list[Any]) -> None:
    # PostgreSQL has no primary keys of json: one such change stopped the pipeline, and every run after it
    made = [
        RowChange("shop.item", "insert", {"id": key}, (n, 0), {"id": key, "name": "x"}) for n, key in enumerate(keys)
    ]
    with opened(store) as sink:
        for batch_id, change in enumerate(made):
            give(sink, batch_id, change)
        assert len(items(store)) == 2
        give(sink, 2, *(RowChange("shop.item", "delete", {"id": key}, (9, 0), {}) for key in keys))
    assert items(store) == []


def test_a_name_that_is_too_long_is_told_with_the_remedy(store: MirroringStore) -> None:
    if not isinstance(store, PostgresStore):
        pytest.skip("the names of the others have no end")
    with opened(store) as sink, pytest.raises(UsageError, match=r"the column 'c+' of the source .* with 'tables' in"):
        give(sink, 0, insert(1, 1, **{"c" * 64: "x"}))


def test_another_primary_key_is_refused(store: MirroringStore) -> None:
    with opened(store) as sink:
        give(sink, 0, insert(1, 1, name="a"))
        with pytest.raises(UsageError, match=r"the primary key of shop.item is \(id\) in the target and \(name\)"):
            give(sink, 1, RowChange("shop.item", "insert", {"name": "a"}, (2, 0), {"id": 1, "name": "a"}))


def test_positions_that_cannot_be_compared_are_refused(store: MirroringStore) -> None:
    with opened(store) as sink:
        offset = RowChange("shop.item", "insert", {"id": 2}, (9,), {"id": 2})
        with pytest.raises(UsageError, match=r"the changes of shop\.item give their positions in two ways"):
            give(sink, 0, insert(1, 1, name="a"), offset)
        give(sink, 0, insert(1, 1, name="a"))
        with pytest.raises(UsageError, match="in two ways"):
            give(sink, 1, offset)
    assert items(store) == [(1, "a")]


def test_start_over_empties_tables_and_leaves_them(store: MirroringStore) -> None:
    with opened(store) as sink:
        give(sink, 0, insert(5, 1, name="a"))
        sink.remove()
        sink.open(CHANGES)
        assert items(store) == []
        give(sink, 0, insert(1, 1, name="b"))
    assert items(store) == [(1, "b")]


@pytest.mark.parametrize("seed", range(5))
def test_any_order_and_any_batches_give_what_the_source_holds(store: MirroringStore, seed: int) -> None:
    """The changes of a random history, cut into batches, partly twice and out of order, against a dictionary."""
    chance = random.Random(seed)
    held: dict[int, dict[str, Any]] = {}
    history: list[RowChange] = []
    for n in range(1, 200):
        key, word = chance.randrange(12), chance.random()
        if word < 0.02:
            held.clear()
            history.append(truncate(n))
        elif key in held and word < 0.3:
            del held[key]
            history.append(delete(n, key))
        elif key in held:
            held[key] = {"id": key, "name": f"n{n}", "other": chance.choice([None, "x"])}
            history.append(update(n, key, name=held[key]["name"], other=held[key]["other"]))
        else:
            held[key] = {"id": key, "name": f"n{n}", "other": "new"}
            history.append(insert(n, key, name=f"n{n}", other="new"))
    mixed = [*history, *chance.sample(history, 50)]
    chance.shuffle(mixed)
    with opened(store) as sink:
        for batch_id, start in enumerate(range(0, len(mixed), 40)):
            give(sink, batch_id, *mixed[start : start + 40])
    assert items(store, "id, name, other") == sorted((r["id"], r["name"], r["other"]) for r in held.values())


def read(values: Sequence[bytes | None], layout: ChangeLayout) -> tuple[list[Any], list[Any], dict[str, int]]:
    count = len(values)
    records = Records("t", 0, list(range(count)), [None] * count, [None] * count, list(values), [None] * count)
    rows, dead, counters = read_changes(records, layout)
    return rows.to_pylist(), dead.to_pylist(), counters


def maxwell(data: Values, table: str = "item", key: Sequence[str] = ("id",)) -> bytes:
    fields = {"database": "shop", "table": table, "type": "insert", "primary_key_columns": key, "data": data}
    return json.dumps(fields).encode()


def truncate_of(table: str) -> bytes:
    return json.dumps({"database": "shop", "table": table, "type": "truncate", "data": {}}).encode()


def test_a_record_that_no_table_can_hold_is_a_dead_letter_and_the_rest_goes_on() -> None:
    strange = [
        b"{", b'{"type": "insert"}', maxwell({"id": 1}, key=()), maxwell({"id": None}), maxwell({"id": 1, "t": "a\0"}),
        maxwell({"id": 1, "t": "\ud800"}), maxwell({"id": 1, "": 2}), maxwell({"id": 1}, table="\ud800"),
        maxwell({"id": 1}, table="a\0"), maxwell({"id": 1}, table=""), truncate_of("\ud800"),
    ]  # fmt: skip
    rows, dead, counters = read([*strange, None, maxwell({"id": 1, "t": "good"})], ChangeLayout("maxwell"))
    assert [row["texts"] for row in rows] == [["1", "good"]]
    assert [letter["line"] for letter in dead] == [*range(11)]
    assert counters == {"records": 13, "events": 10, "applied": 1, "tombstones": 1, "dead_letters": 11}


@pytest.mark.parametrize("number", ["NaN", "[-Infinity]", "1e131072", "-1e-16384", "{'a':" * 5000 + "1.5" + "}" * 5000])
def test_a_number_that_no_database_has_is_a_dead_letter(number: str) -> None:
    """A batch with it would fail again whenever it is tried."""
    value = maxwell({"id": 1, "n": "?"}).replace(b'"?"', number.replace("'", '"').encode())
    rows, dead, _ = read([value, maxwell({"id": 2, "n": 1.5})], ChangeLayout("maxwell"))
    assert ([row["texts"] for row in rows], [letter["line"] for letter in dead]) == ([["2", "1.5"]], [0])


def test_only_the_tables_that_are_asked_for_are_taken() -> None:
    values = [maxwell({"id": 1}, table) for table in ("item", "buyer", "basket")]
    rows, _, _ = read(values, ChangeLayout("maxwell", ("shop.b*",)))
    assert [row["table"] for row in rows] == ["shop.buyer", "shop.basket"]
