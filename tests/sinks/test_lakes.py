"""What each lake does, Delta Lake and Iceberg: a commit in three steps, two writers that collide, rows that are counted."""

from __future__ import annotations

import signal
from contextlib import closing
from pathlib import Path

import pytest

from tests.sinks.file_stores import ICEBERG_KILL, collide
from tests.sinks.stores import (
    COUNTERS,
    SCHEMA,
    DeltaStore,
    IcebergStore,
    Store,
    batch,
    everything,
    in_a_child,
    of_batches,
)
from waterclock.sinks import LastBatch, Sink, apply_once

# kill the child where the lake is to be given the commit of that number: the first is that of the dead letters
DELTA_KILL = """
import os, signal
from waterclock.sinks.delta import delta
write, steps = delta.write_deltalake, iter(range(9))
def dying(*arguments, **more):
    if next(steps) == {step}:
        os.kill(os.getpid(), signal.SIGKILL)
    write(*arguments, **more)
delta.write_deltalake = dying
apply_once(sink, batch(1))
"""


@pytest.fixture(params=["delta", "iceberg"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return DeltaStore(tmp_path) if request.param == "delta" else IcebergStore(tmp_path)


def killed(store: Store, step: int) -> bool:
    """Whether a child was killed in front of that commit of batch 1."""
    text = DELTA_KILL if isinstance(store, DeltaStore) else ICEBERG_KILL
    return in_a_child(store, text.format(step=step)).returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    ("step", "seen"),
    [(0, [[0], [0]]), (1, [[0, 1], [0]]), (2, [[0, 1], [0, 1]])],
    ids=["before the dead letters", "before the batch", "before the results"],
)
def test_a_kill_inside_a_commit_leaves_no_result_and_a_rerun_makes_it_whole(
    store: Store, sink: Sink, step: int, seen: list[list[int]]
) -> None:
    assert killed(store, step)
    beside = [store.look("batch_id, line", "results_dead_letters"), store.look("batch_id, query_id", "results_batches")]
    assert [[number for number, _ in rows] for rows in beside] == seen
    assert everything(store)[0] == of_batches(0)[0]
    with closing(store.sink()) as again:
        again.open(SCHEMA)
        assert (again.last_applied(), again.totals()) == (LastBatch("q", 0), COUNTERS)
        assert apply_once(again, batch(1)) is True
        assert again.totals() == {"events": 4, "late": 2}
    assert everything(store) == of_batches(0, 1)


def test_of_two_writers_that_take_the_same_batch_one_writes_it(store: Store, sink: Sink) -> None:
    with closing(store.sink()) as other:
        other.open(SCHEMA)
        collide(sink, other, 1)
    assert everything(store) == of_batches(0, 1)


def test_rows_of_a_batch_are_numbered_in_the_order_in_which_they_came(store: Store, sink: Sink) -> None:
    apply_once(sink, batch(1, count=300))
    found = [(row, n) for number, row, n in store.in_order("batch_id, batch_row, event_n") if number == 1]
    assert found == [(n, n) for n in range(300)]
