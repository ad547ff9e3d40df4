"""A mirror "holds, for every key, the row of the change at the largest position, and nothing where that is a delete"."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sinks.stores import Database, DeltaStore, Store, batch, in_a_child
from waterclock.errors import UsageError
from waterclock.sinks import Mirror, Sink, apply_once, written_once
from waterclock.streaming import frames

EVENT = pa.schema(
    [
        ("table", pa.string()),
        ("type", pa.string()),
        ("sequence", pa.int64()),
        ("xoffset", pa.int64()),
        ("id", pa.int64()),
        ("city", pa.string()),
        ("name", pa.string()),
    ]
)
SCHEMA = frames.result_schema(pa.int64(), EVENT)
MIRROR = Mirror(("id", "city", "name"), key=("id", "city"), position=("sequence", "xoffset"), only={"table": "people"})
Change = dict[str, Any]


def change(kind: str | None, position: tuple[int | None, int | None], key: tuple[Any, Any], name: Any = None) -> Change:
    at = {"sequence": position[0], "xoffset": position[1]}
    return {"table": "people", "type": kind, **at, "id": key[0], "city": key[1], "name": name}


def results(changes: Sequence[Change], kind: str = "event") -> pa.Table:
    return pa.Table.from_pylist([{"kind": kind, "key": 0, "event": event} for event in changes], schema=SCHEMA)


def apply(sink: Sink, batch_id: int, changes: Sequence[Change], kind: str = "event") -> None:
    made = replace(batch(batch_id, counters={}), results=results(changes, kind))
    assert apply_once(sink, replace(made, dead_letters=frames.DEAD_SCHEMA.empty_table())) is True


def people(store: Store) -> list[tuple[Any, ...]]:
    return store.look("id, city, name", "people")


def letters(store: Store) -> list[tuple[Any, ...]]:
    return store.in_order("reason, text", "people_dead_letters")


@pytest.fixture
def store(mirroring: Store) -> Store:
    """Every sink that can be a mirror, in turn."""
    return mirroring


@pytest.fixture
def sink(store: Store) -> Iterator[Sink]:
    with closing(store.sink("people", MIRROR)) as made:
        made.open(SCHEMA)
        yield made


A, B = (1, "Rome"), (2, "Oslo")


# One change after the other


def test_the_table_has_the_columns_of_the_source_and_no_others(store: Store, sink: Sink) -> None:
    apply(sink, 0, [change("insert", (1, 0), A, "Ada")])
    assert store.look("*", "people") == [(1, "Rome", "Ada")]


def test_inserts_updates_and_deletes_leave_what_the_source_holds(store: Store, sink: Sink) -> None:
    apply(sink, 0, [change("insert", (1, 0), A, "Ada"), change("insert", (1, 1), B, "Bo")])
    apply(sink, 1, [change("update", (2, 0), A, "Eva"), change("delete", (3, 0), B, "Bo")])
    assert people(store) == [(*A, "Eva")]
    apply(sink, 2, [change("insert", (4, 0), B, None)])
    assert people(store) == [(*A, "Eva"), (*B, None)]


def test_of_the_changes_of_a_batch_the_last_one_of_each_key_counts_wherever_it_stands(store: Store, sink: Sink) -> None:
    first = [change("update", (2, 10), A, "last"), change("update", (2, 9), A, "before"), change("delete", (1, 99), A)]
    apply(sink, 0, [*first, change("delete", (5, 0), B), change("insert", (4, 0), B, "gone")])
    assert people(store) == [(*A, "last")]


@pytest.mark.parametrize("position", [(2, 4), (2, 5), (1, 9), (-(2**63), 2**63 - 1)])
def test_an_older_change_never_overwrites_a_newer_one(store: Store, sink: Sink, position: tuple[int, int]) -> None:
    apply(sink, 0, [change("update", (2, 5), A, "new")])
    apply(sink, 1, [change("update", position, A, "old"), change("insert", position, B, "other")])
    apply(sink, 2, [change("delete", position, A)])
    assert people(store) == [(*A, "new"), (*B, "other")]


def test_a_change_that_lies_between_two_that_came_before_it_is_an_older_one(store: Store, sink: Sink) -> None:
    for batch_id, position in enumerate([(1, 0), (5, 0), (3, 0), (4, 9)]):
        apply(sink, batch_id, [change("update", position, A, str(position)), change("delete", position, B)])
    apply(sink, 4, [change("insert", (4, 0), B, "late")])
    assert people(store) == [(*A, "(5, 0)")]


def test_a_deleted_row_stays_deleted_when_an_older_change_comes_late(store: Store, sink: Sink) -> None:
    apply(sink, 0, [change("delete", (9, 0), A)])
    apply(sink, 1, [change("insert", (1, 0), A, "late"), change("update", (8, 7), A, "late")])
    assert people(store) == []
    apply(sink, 2, [change("insert", (9, 1), A, "again")])
    assert people(store) == [(*A, "again")]


def test_a_key_that_changes_comes_as_a_delete_and_an_insert(store: Store, sink: Sink) -> None:
    apply(sink, 0, [change("insert", (1, 0), A, "Ada")])
    apply(sink, 1, [change("delete", (2, 0), A, "Ada"), change("insert", (2, 0), B, "Ada")])
    assert people(store) == [(*B, "Ada")]
    apply(sink, 2, [change("insert", (1, 0), A, "Ada")])
    assert people(store) == [(*B, "Ada")]


def test_rows_of_other_tables_are_passed_over(store: Store, sink: Sink) -> None:
    other = {**change("insert", (1, 0), A, "no\x00thing"), "table": "places"}
    apply(sink, 0, [other, {**other, "table": None}, {**other, "id": None}, change("insert", (1, 0), B, "Bo")])
    assert (people(store), letters(store)) == ([(*B, "Bo")], [])


def test_late_events_are_applied_and_results_without_an_event_are_nothing(store: Store, sink: Sink) -> None:
    apply(sink, 0, [change("insert", (1, 0), A, "Ada")], kind="late")
    gap = pa.Table.from_pylist([{"kind": "gap", "key": 0, "event": None}], schema=SCHEMA)
    apply_once(sink, replace(batch(1), results=gap))
    assert people(store) == [(*A, "Ada")]


# What cannot be applied


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (change("truncate", (1, 0), A), "'type' must be one of insert, update, delete"),
        (change(None, (1, 0), A), "'type' must be one of insert, update, delete"),
        (change("insert", (None, 0), A), "'sequence', a part of the change's position, is missing"),
        (change("insert", (1, None), A), "'xoffset', a part of the change's position, is missing"),
        (change("insert", (1, 0), (None, "Rome")), "'id', a part of the row's key, is missing"),
        (change("insert", (1, 0), (1, None)), "'city', a part of the row's key, is missing"),
    ],
)
def test_what_cannot_be_applied_is_a_dead_letter_and_the_rest_goes_on(
    store: Store, sink: Sink, wrong: Change, reason: str
) -> None:
    apply(sink, 0, [wrong, change("insert", (1, 0), B, "Bo")])
    assert people(store) == [(*B, "Bo")]
    ((why, text),) = letters(store)
    assert (why, json.loads(text)) == (reason, wrong)
    assert sink.totals() == {"dead_letters": 1}


def test_what_is_put_aside_is_told_and_is_no_result(sink: Sink) -> None:
    # a live pipeline adds up what its sink wrote: its figures were not those of the tables
    given = results([change("insert", (1, 0), A), change("truncate", (1, 0), B)])
    written = written_once(sink, replace(batch(0, counters={"results": 2}), results=given))
    assert written is not None
    assert written.counters == sink.totals() == {"dead_letters": 1, "results": 1}
    assert written_once(sink, batch(0)) is None


# The promise, by a model

KEYS = st.sampled_from([(1, "a"), (1, "b"), (2, "a")])


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Change], list[list[int]]]:
    """The changes of a source in its order, and small batches of their numbers: in any order, some more than once."""
    made = draw(
        st.lists(
            st.tuples(st.sampled_from(["insert", "update", "delete"]), KEYS, st.booleans()), min_size=1, max_size=8
        )
    )
    changes, sequence, xoffset = [], 0, 0
    for number, (kind, key, begins) in enumerate(made):
        sequence, xoffset = (sequence + 1, 0) if begins else (sequence, xoffset + 1)
        changes.append(change(kind, (sequence, xoffset), key, f"row {number}"))
    numbers = range(len(changes))
    coming = draw(st.permutations([*numbers, *draw(st.lists(st.sampled_from(numbers), max_size=6))]))
    size = draw(st.integers(1, 3))
    return changes, [coming[at : at + size] for at in range(0, len(coming), size)]


def source_after(changes: Sequence[Change]) -> list[tuple[Any, ...]]:
    rows: dict[tuple[Any, Any], Any] = {}
    for made in changes:
        key = (made["id"], made["city"])
        rows.pop(key, None)
        if made["type"] != "delete":
            rows[key] = made["name"]
    return [(*key, rows[key]) for key in sorted(rows)]


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories())
def test_in_any_order_and_however_often_changes_come_the_table_equals_the_source(
    database: Database, history: tuple[list[Change], list[list[int]]]
) -> None:
    is_right(database, history)


@settings(max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories())
def test_so_does_a_table_of_delta_lake(tmp_path: Path, history: tuple[list[Change], list[list[int]]]) -> None:
    is_right(DeltaStore(tmp_path), history)


@pytest.mark.long(seconds=60)
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(histories())
def test_so_does_a_table_of_delta_lake_in_many_histories(
    tmp_path: Path, history: tuple[list[Change], list[list[int]]]
) -> None:
    is_right(DeltaStore(tmp_path), history)


def is_right(store: Store, history: tuple[list[Change], list[list[int]]]) -> None:
    changes, batches = history
    with closing(store.sink("people", MIRROR)) as sink:
        sink.open(SCHEMA)
        for batch_id, numbers in enumerate(batches):
            apply(sink, batch_id, [changes[n] for n in numbers])
        assert people(store) == source_after(changes)
        assert letters(store) == []
        sink.remove()


# A crash


def test_a_kill_while_a_batch_is_applied_leaves_nothing_of_it(store: Store, sink: Sink) -> None:
    apply(sink, 0, [change("insert", (1, 0), A, "Ada")])
    body = """
from tests.sinks import test_mirror as t
sink = {mirror}
sink.open(t.SCHEMA)
made = t.batch(1, counters=Deadly())
rows = [t.change("delete", (2, 0), t.A), t.change("insert", (2, 1), t.B, "Bo")]
apply_once(sink, t.replace(made, results=t.results(rows)))
"""
    made = store.mirroring("people", "t.MIRROR")
    died = in_a_child(store, body.format(mirror=made))
    assert (died.returncode, died.stderr) == (-signal.SIGKILL, "")
    assert people(store) == [(*A, "Ada")]
    apply(sink, 1, [change("update", (1, 1), A, "Eva")])
    assert people(store) == [(*A, "Eva")]


# What is refused before anything is written


@pytest.mark.parametrize(
    ("mirror", "told"),
    [
        (replace(MIRROR, key=()), "'key' must name columns"),
        (replace(MIRROR, columns=("id", "id")), "'columns' must name columns, each once"),
        (replace(MIRROR, columns=("id", "city", "nme")), "names the column 'nme'; events have table, type"),
        (replace(MIRROR, operation="op"), "names the column 'op'"),
        (replace(MIRROR, only={"db": "shop"}), "names the column 'db'"),
        (replace(MIRROR, columns=("id", "name")), "key 'city' must be one of its columns, id, name"),
        (replace(MIRROR, position=("name",)), "position 'name' must be a long or an int"),
        (replace(MIRROR, operation="sequence"), "looks at the text in 'sequence'"),
    ],
)
def test_a_mirror_that_does_not_fit_the_events_is_refused(store: Store, mirror: Mirror, told: str) -> None:
    with closing(store.sink("people", mirror)) as sink, pytest.raises(UsageError, match=told):
        sink.open(SCHEMA)
    assert store.tables() == []


@pytest.mark.parametrize("name", ["_deleted", "_position_1", "_ROW"])
def test_a_column_with_a_name_of_waterclocks_own_is_refused(name: str) -> None:
    event = EVENT.append(pa.field(name, pa.string()))
    with pytest.raises(UsageError, match=f"'{name}' has a name of waterclock's own"):
        replace(MIRROR, columns=(*MIRROR.columns, name)).check(event)


def test_a_double_is_no_key() -> None:
    event = EVENT.append(pa.field("d", pa.float64()))
    with pytest.raises(UsageError, match="'d' is a double"):
        Mirror(("d",), key=("d",), position=("sequence",)).check(event)


def test_a_table_that_was_there_is_neither_taken_nor_removed(store: Store) -> None:
    store.make_table_of_others("people")
    with closing(store.sink("people", MIRROR)) as sink:
        for call in (lambda: sink.open(SCHEMA), sink.remove):
            with pytest.raises(UsageError, match=r"'people' .*(is left alone|is not removed).*another table"):
                call()
    assert store.tables() == ["people"]


def test_another_key_on_the_same_table_is_refused(store: Store, sink: Sink) -> None:
    other = replace(MIRROR, key=("id",))
    with (
        closing(store.sink("people", other)) as changed,
        pytest.raises(UsageError, match=r"\(id, city\) there and \(id\)"),
    ):
        changed.open(SCHEMA)


def test_remove_drops_the_mirror_and_its_positions(store: Store, sink: Sink) -> None:
    apply(sink, 0, [change("insert", (1, 0), A, "Ada")])
    sink.remove()
    assert store.tables() == []


def test_a_mirror_of_keys_only_is_one_too(store: Store) -> None:
    with closing(store.sink("people", replace(MIRROR, columns=("id", "city")))) as sink:
        sink.open(SCHEMA)
        for batch_id in range(2):
            apply(sink, batch_id, [change("insert", (batch_id, 0), A), change("update", (batch_id, 1), B)])
        apply(sink, 2, [change("delete", (7, 0), A)])
    assert store.look("id, city", "people") == [B]


def test_keys_are_told_apart_byte_by_byte(store: Store, sink: Sink) -> None:
    cities = ["", " ", "a", "A", "\u00e4", "a\u0308", "🕰", "'", "%s"]
    apply(sink, 0, [change("insert", (1, n), (1, city), str(n)) for n, city in enumerate(cities)])
    apply(sink, 1, [change("update", (2, n), (1, city), str(n)) for n, city in enumerate(cities)])
    assert {(city, int(name)) for _, city, name in people(store)} == {(city, n) for n, city in enumerate(cities)}
