"""What every sink promises: "after `commit` returned, the batch survives a crash; before, nothing of it is seen"."""

from __future__ import annotations

import itertools
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pyarrow as pa
import pytest

from tests.conftest import STORES, THROUGH_SPARK
from tests.sinks.stores import COUNTERS, EVENT, SCHEMA, Store, batch, everything, in_a_child, of_batches
from waterclock.errors import StateMismatch, UsageError
from waterclock.sinks import LastBatch, Sink, apply_once, check_belongs
from waterclock.streaming import frames

# a child that is killed takes seconds to load a lake's packages: those of each kind of sink have their turn
_SLOW = [name for name in STORES if "iceberg" in name or "executors" in name]
KILLED = [
    *(pytest.param(name, marks=pytest.mark.long(seconds=2)) if name in _SLOW else name for name in STORES),
    *THROUGH_SPARK,
]


@pytest.fixture
def store(any_store: Store) -> Store:
    """Every sink in turn."""
    return any_store


@pytest.fixture
def sink(store: Store) -> Iterator[Sink]:
    made = store.sink()
    made.open(SCHEMA)
    yield made
    made.close()


# One batch


def test_a_new_sink_is_empty_and_its_tables_are_there(store: Store, sink: Sink) -> None:
    assert sink.last_applied() is None
    assert sink.totals() == {}
    assert sink.is_applied("q", 0) is False
    assert everything(store) == of_batches()


def test_another_connection_sees_a_batch_after_commit_and_nothing_of_it_before(store: Store, sink: Sink) -> None:
    sink.begin()
    assert everything(store) == of_batches()
    sink.write(batch(0))
    assert everything(store) == of_batches()
    sink.commit()
    assert everything(store) == of_batches(0)


def test_rollback_leaves_nothing_and_the_batch_can_come_again(store: Store, sink: Sink) -> None:
    sink.begin()
    sink.write(batch(0))
    sink.rollback()
    assert everything(store) == of_batches()
    assert (sink.is_applied("q", 0), sink.last_applied(), sink.totals()) == (False, None, {})
    assert apply_once(sink, batch(0)) is True
    assert everything(store) == of_batches(0)


def test_rollback_without_a_begin_is_nothing(store: Store, sink: Sink) -> None:
    sink.rollback()
    apply_once(sink, batch(0))
    sink.rollback()
    assert everything(store) == of_batches(0)


def test_a_batch_is_applied_once(store: Store, sink: Sink) -> None:
    assert [apply_once(sink, batch(0)) for _ in range(3)] == [True, False, False]
    assert everything(store) == of_batches(0)
    assert sink.totals() == COUNTERS


def test_of_two_queries_that_found_the_table_empty_the_second_one_is_refused(store: Store, sink: Sink) -> None:
    with closing(store.sink()) as second:
        second.open(SCHEMA)
        check_belongs(second, "cp", None, None)
        assert apply_once(sink, batch(0)) is True
        assert second.is_applied("other", 0) is False
        with pytest.raises(StateMismatch, match="batch 0 of query q: another pipeline began to write there"):
            apply_once(second, batch(0, "other"))
    assert apply_once(sink, batch(1)) is True
    assert everything(store) == of_batches(0, 1)


def test_an_empty_batch_is_remembered_too(store: Store, sink: Sink) -> None:
    nothing = replace(
        batch(7), results=SCHEMA.empty_table(), dead_letters=frames.DEAD_SCHEMA.empty_table(), counters={}, offsets=None
    )
    assert apply_once(sink, replace(nothing, watermark_us=None)) is True
    assert everything(store) == [[], [], [(7, "q", None)]]
    assert (sink.last_applied(), sink.totals()) == (LastBatch("q", 7), {})


def test_totals_are_the_sums_over_all_batches(sink: Sink) -> None:
    for batch_id, counters in enumerate([{"events": 5, "held": 3}, {}, {"held": -3, "late": 1}, {"events": 2**40}]):
        apply_once(sink, batch(batch_id, counters=counters))
    assert sink.totals() == {"events": 2**40 + 5, "held": 0, "late": 1}


@pytest.mark.parametrize("order", list(itertools.permutations([0, 1, 10])))
def test_last_applied_is_the_batch_of_the_largest_number(sink: Sink, order: tuple[int, ...]) -> None:
    for batch_id in order:
        apply_once(sink, batch(batch_id))
    assert sink.last_applied() == LastBatch("q", 10)


def test_everything_is_there_after_it_was_closed_and_opened_again(store: Store, sink: Sink) -> None:
    apply_once(sink, batch(0))
    again = store.sink()
    again.open(SCHEMA)
    again.open(SCHEMA)
    assert again.last_applied() == LastBatch("q", 0)
    assert again.totals() == COUNTERS
    assert apply_once(again, batch(0)) is False
    assert apply_once(again, batch(1)) is True
    again.close()
    assert everything(store) == of_batches(0, 1)


def test_two_tables_in_one_place_do_not_know_of_each_other(store: Store, sink: Sink) -> None:
    apply_once(sink, batch(0))
    other = store.sink("others")
    other.open(SCHEMA)
    assert (other.last_applied(), other.totals()) == (None, {})
    assert apply_once(other, batch(0)) is True
    other.close()


def test_a_batch_whose_write_fails_leaves_nothing_and_the_sink_goes_on(store: Store, sink: Sink) -> None:
    broken = replace(batch(0), counters={"events": object()})  # type: ignore[dict-item]
    with pytest.raises(TypeError):
        apply_once(sink, broken)
    assert everything(store) == of_batches()
    assert apply_once(sink, batch(0)) is True


def test_rows_of_a_batch_stand_in_the_order_in_which_they_came(sink: Sink, store: Store) -> None:
    apply_once(sink, batch(0, count=1000))
    assert [n for (n,) in store.in_order("event_n")] == list(range(1000))


@pytest.mark.parametrize(
    "changed",
    [
        EVENT.append(pa.field("new", pa.string())),
        EVENT.remove(0),
        EVENT.set(1, pa.field("n", pa.string())),
        EVENT.set(0, pa.field("renamed", pa.string())),
        pa.schema(list(EVENT)[::-1]),
    ],
    ids=["added", "removed", "other type", "renamed", "other order"],
)
def test_a_table_of_other_columns_is_refused_with_the_ways_out_and_left_alone(
    store: Store, sink: Sink, changed: pa.Schema
) -> None:
    apply_once(sink, batch(0))
    other = store.sink()
    with pytest.raises(UsageError) as caught:
        other.open(frames.result_schema(pa.string(), changed))
    other.close()
    for word in ("results'", "--fresh", "another t"):
        assert word in str(caught.value)
    assert everything(store) == of_batches(0)


def test_a_table_of_an_impossible_name_is_refused(store: Store) -> None:
    for table in store.impossible_tables:
        with pytest.raises(UsageError, match=r"table|topic"):
            store.sink(table).open(SCHEMA)


def test_describe_names_the_table_and_the_place(sink: Sink) -> None:
    assert re.match(r"the (table|topic) '([a-z0-9_]+\.)*results' (in|at) ", sink.describe())


# A crash between any two steps


@pytest.mark.parametrize(
    ("crash", "survives"),
    [
        ("apply_once(Dying(sink, 'begin', None), batch(1))", False),
        ("apply_once(Dying(sink, None, 'begin'), batch(1))", False),
        ("apply_once(Dying(sink, None, 'is_applied'), batch(1))", False),
        ("apply_once(sink, batch(1, counters=Deadly()))", False),
        ("apply_once(sink, batch(1, count=30_000, counters=Deadly()))", False),
        ("apply_once(Dying(sink, None, 'write'), batch(1))", False),
        ("apply_once(Dying(sink, 'commit', None), batch(1))", False),
        ("apply_once(Dying(sink, None, 'commit'), batch(1))", True),
    ],
    ids=[
        "1 before begin",
        "2 after begin",
        "3 after the look",
        "4 inside write",
        "4 inside a large write",
        "4 after write",
        "5 before commit",
        "5 after commit",
    ],
)
@pytest.mark.parametrize("any_store", KILLED, indirect=True)
def test_a_kill_between_two_steps_leaves_all_of_a_batch_or_nothing_and_a_rerun_makes_it_whole(
    store: Store, crash: str, survives: bool
) -> None:
    died = in_a_child(store, f"apply_once(sink, batch(0))\n{crash}")
    assert (died.returncode, died.stderr) == (-signal.SIGKILL, "")
    assert everything(store) == (of_batches(0, 1) if survives else of_batches(0))
    with closing(store.sink()) as again:
        again.open(SCHEMA)
        assert again.last_applied() == LastBatch("q", 1 if survives else 0)
        assert apply_once(again, batch(1)) is not survives
        assert again.totals() == {"events": 4, "late": 2}
    assert everything(store) == of_batches(0, 1)


# Does a sink belong to a checkpoint?


@pytest.mark.parametrize(
    ("query_id", "last_batch"),
    [("q", 3), ("q", 4)],
    ids=["the sink is where the checkpoint is", "the checkpoint's last batch did not reach the sink"],
)
def test_a_sink_and_its_checkpoint_belong_together(sink: Sink, query_id: str, last_batch: int) -> None:
    apply_once(sink, batch(3))
    check_belongs(sink, "cp", query_id, last_batch)


@pytest.mark.parametrize("last_batch", [None, 0])
def test_an_empty_sink_belongs_to_a_checkpoint_that_is_new_or_in_its_first_batch(
    sink: Sink, last_batch: int | None
) -> None:
    check_belongs(sink, "cp", None if last_batch is None else "q", last_batch)


@pytest.mark.parametrize(
    ("query_id", "last_batch", "found"),
    [
        (None, None, "is new or was deleted"),
        ("other", 3, "belongs to another query or is older"),
        ("other", 100, "belongs to another query or is older"),
        ("q", 2, "belongs to another query or is older"),
        ("q", None, "belongs to another query or is older"),
    ],
    ids=["deleted checkpoint", "other query", "other query further on", "sink ahead", "checkpoint without a batch"],
)
def test_a_sink_that_does_not_belong_to_the_checkpoint_is_refused_with_the_ways_out(
    sink: Sink, query_id: str | None, last_batch: int | None, found: str
) -> None:
    apply_once(sink, batch(3))
    with pytest.raises(StateMismatch) as caught:
        check_belongs(sink, "/the/checkpoint", query_id, last_batch)
    told = str(caught.value)
    assert f"holds results up to batch 3 of query q, but the checkpoint /the/checkpoint {found}" in told
    assert "--fresh" in told
    assert "restore" in told


@pytest.mark.parametrize("applied", [None, 0, 2], ids=["deleted sink", "old sink", "sink two batches behind"])
def test_a_sink_that_lost_what_the_checkpoint_has_done_is_refused(sink: Sink, applied: int | None) -> None:
    # The offsets of batch 4 are written after batch 3 was committed to the sink: 3 is missing here, for good.
    if applied is not None:
        apply_once(sink, batch(applied))
    with pytest.raises(StateMismatch, match="--fresh"):
        check_belongs(sink, "cp", "q", 4)


@pytest.mark.parametrize("applied", [None, 2], ids=["deleted sink", "sink a batch behind"])
def test_a_sink_that_lost_the_last_batch_is_refused_where_that_is_done(sink: Sink, applied: int | None) -> None:
    last = 0
    if applied is not None:
        apply_once(sink, batch(applied))
        last = applied + 1
    check_belongs(sink, "cp", "q", last, last - 1 if last else None)
    with pytest.raises(StateMismatch, match=f"has done all batches up to {last}: the missing ones"):
        check_belongs(sink, "cp", "q", last, last)


def test_a_sink_that_two_queries_wrote_to_belongs_to_neither_by_the_one_with_fewer_batches(sink: Sink) -> None:
    apply_once(sink, batch(1, "a"))
    apply_once(sink, batch(3, "b"))
    with pytest.raises(StateMismatch):
        check_belongs(sink, "cp", "a", 1)
