"""A process that is killed anywhere in a batch of changes leaves tables that a second try makes right."""

from __future__ import annotations

import os
import signal
from typing import Any

import pytest

from tests.sinks.stores import MirroringStore, in_a_child
from tests.sinks.test_replica import give, insert, items, opened, truncate, update
from waterclock.sinks import Sink
from waterclock.sinks.duckdb.mirrored import DuckDBTables
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


def child(store: MirroringStore, body: str) -> None:
    made = store.mirroring("changes")
    script = f"""
from tests.sinks import test_replica_kills as t
from tests.sinks.stores import Dying
from waterclock.changes.packed import CHANGES
sink = {made}
sink.open(CHANGES)
{body}
"""
    died = in_a_child(store, script)
    assert (died.returncode, died.stderr) == (-signal.SIGKILL, "")


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
    child(store, crash)
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
