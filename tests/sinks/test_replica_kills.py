"""A process that is killed anywhere in a batch of changes leaves tables that a second try makes right."""

from __future__ import annotations

import itertools
import os
import signal
from decimal import Decimal
from typing import Any

import pytest

from tests.sinks.stores import MirroringStore, in_a_child
from tests.sinks.test_following import ID, NAME, PRICE, following, found, schema
from tests.sinks.test_replica import delete, give, insert, items, opened, truncate, update
from waterclock.changes.table_schema import ColumnSchema, SchemaHistory
from waterclock.sinks import Sink
from waterclock.sinks.duckdb.mirrored import DuckDBTables
from waterclock.sinks.following import SchemaFollower
from waterclock.sinks.postgres.postgres import PostgresTables
from waterclock.sinks.sqlite.sqlite import SQLiteTables

BEFORE = (insert(1, 1, name="a"), insert(1, 2, name="b"), insert(2, 8, "shop.buyer", name="Ann"))
BATCH = (truncate(3), insert(4, 3, name="c"), update(5, 3, name="C", more=1), insert(5, 9, "shop.buyer", name="Bo"))
FIRST = ([(1, "a"), (2, "b")], [(8, "Ann")])
THEN = ([(3, "C")], [(8, "Ann"), (9, "Bo")])


def both(store: MirroringStore) -> tuple[Any, Any]:
    return items(store), items(store, table="shop.buyer")


def die_at_statement(number: int) -> None:
    """Make the process kill itself right before its statement of that number."""
    left = [number]
    for place in (PostgresTables, SQLiteTables, DuckDBTables):

        def run(self: Any, statement: str, run: Any = place.run) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return run(self, statement)

        place.run = run  # type: ignore[method-assign]


def child(store: MirroringStore, body: str, shapes: int | None = None) -> int | None:
    """How it ended: killed by itself, or with 0. `shapes`: so many schemas are known."""
    made = store.mirroring("changes")
    script = f"""
from tests.sinks import test_replica_kills as t
from tests.sinks.stores import Dying
from waterclock.changes.packed import CHANGES
{"" if shapes is None else f"t.follow({shapes})"}
sink = {made}
sink.open(CHANGES)
{body}
"""
    ended = in_a_child(store, script)
    assert ended.stderr == ""
    return ended.returncode


@pytest.mark.parametrize(
    ("crash", "survives"),
    [
        *[(f"t.die_at_statement({number}); t.give(sink, 1, *t.BATCH)", False) for number in range(1, 25, 6)],
        ("t.give(Dying(sink, None, 'write'), 1, *t.BATCH)", False),
        ("t.give(Dying(sink, None, 'commit'), 1, *t.BATCH)", True),
    ],
)
def test_a_kill_anywhere_in_a_batch_leaves_all_of_it_or_nothing(
    store: MirroringStore, crash: str, survives: bool
) -> None:
    with opened(store) as sink:
        give(sink, 0, *BEFORE)
    assert child(store, crash) == -signal.SIGKILL
    assert both(store) == (THEN if survives else FIRST)
    with opened(store) as sink:
        assert give_again(sink) is not survives
    assert both(store) == THEN


def give_again(sink: Sink) -> bool:
    applied = sink.last_applied()
    if applied is not None and applied.batch_id == 1:
        return False
    give(sink, 1, *BATCH)
    return True


# While the table follows its schema

SHAPES = (
    schema(0, ID._replace(type="smallint"), NAME, PRICE),
    schema(
        4, ID, NAME._replace(name="title"), PRICE._replace(type="numeric(12,3)"),
        ColumnSchema("n", "integer", False, 4, older="7"),
    ),
)  # fmt: skip
ALTERED = (insert(5, 3, title="c", price="3.000", n=8), update(3, 2, name="B"), delete(6, 9))
_OLD = [("1", "a", "1.50"), ("2", "b", None)]
_NEW = [("1", "a", "1.50", "7"), ("2", "B", None, "7"), ("3", "c", "3.000", "8")]


def follow(shapes: int) -> None:
    """Make the process's sinks know so many schemas of the table."""
    history = SchemaHistory(SHAPES[:shapes])
    SchemaFollower.of = lambda mirror: SchemaFollower(history, mirror.on_drop)  # type: ignore[method-assign, assignment]


def as_it_was_or_is(store: MirroringStore) -> bool:
    """Whether it is altered, which it has to be with all of its rows; in SQLite numbers keep the digits they came with."""
    try:
        rows = found(store, "id, title, price, n")
    except Exception:  # of a database that has no such columns
        assert found(store, "id, name, price") == _OLD
        return False
    assert [row[:2] + row[3:] for row in rows] == [row[:2] + row[3:] for row in _NEW]
    assert [row[2] and Decimal(row[2]) for row in rows] == [row[2] and Decimal(row[2]) for row in _NEW]
    return True


@pytest.mark.parametrize("first", [1, 9, 17, pytest.param(None, marks=pytest.mark.long(seconds=40))])
def test_a_kill_anywhere_while_a_table_is_altered_leaves_all_of_it_or_nothing(
    store: MirroringStore, monkeypatch: pytest.MonkeyPatch, first: int | None
) -> None:
    """Before one statement, or in a row before each that there is, until nothing was left to be killed before."""
    with following(store, monkeypatch) as (sink, learn):
        learn(SHAPES[0])
        give(sink, 0, insert(1, 1, name="a", price="1.50"), insert(2, 2, name="b"))
    for number in itertools.count(1) if first is None else [first]:
        ended = child(store, f"t.die_at_statement({number}); t.give(sink, 1, *t.ALTERED)", len(SHAPES))
        assert as_it_was_or_is(store) is (ended == 0)
        if ended == 0:
            assert number > 20
            return
    with following(store, monkeypatch) as (sink, learn):
        for shape in SHAPES:
            learn(shape)
        give(sink, 1, *ALTERED)
    assert as_it_was_or_is(store)
