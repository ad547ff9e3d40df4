"""A run that was taken over writes nothing more, whichever sink: its epoch is judged in the sink's own transaction."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.sinks.stores import (
    SCHEMA,
    Database,
    DeltaStore,
    IcebergStore,
    Store,
    TopicStore,
    batch,
    everything,
    of_batches,
)
from waterclock.errors import StateMismatch
from waterclock.sinks import Batch, LastBatch, apply_once
from waterclock.sinks.base import sink_of
from waterclock.sinks.ledger import Epoch, fence
from waterclock.testing import Broker

FIRST, SECOND = Epoch("a", 1), Epoch("a", 2)


class Sinks:
    """Sinks on one place, each as a run of its own has it."""

    def __init__(self, store: Store) -> None:
        self._store, self._open = store, ExitStack()

    def fenced(self, epoch: Epoch) -> Any:
        sink = self._open.enter_context(closing(self._store.sink()))
        sink.open(SCHEMA)
        fence(sink, epoch)
        return sink

    def close(self) -> None:
        self._open.close()


@pytest.fixture
def sinks(any_store: Store) -> Iterator[Sinks]:
    with closing(Sinks(any_store)) as made:
        yield made


def test_a_run_that_was_taken_over_writes_nothing_and_the_other_one_goes_on(any_store: Store, sinks: Sinks) -> None:
    old = sinks.fenced(FIRST)
    apply_once(old, batch(0))
    new = sinks.fenced(SECOND)
    with pytest.raises(
        StateMismatch, match=r"run of epoch 2, and this run has epoch 1: another run took the checkpoint"
    ):
        apply_once(old, batch(1))
    assert everything(any_store) == of_batches(0)
    assert apply_once(new, batch(1)) is True
    with pytest.raises(StateMismatch):  # again, and as long as it lives
        apply_once(old, batch(2))
    assert apply_once(new, batch(2)) is True
    assert everything(any_store) == of_batches(0, 1, 2)


def test_a_run_that_stood_still_at_its_start_does_not_take_the_sink_back(any_store: Store, sinks: Sinks) -> None:
    new = sinks.fenced(SECOND)
    with pytest.raises(StateMismatch, match="epoch 2"):
        sinks.fenced(FIRST)
    assert apply_once(new, batch(0)) is True
    assert everything(any_store) == of_batches(0)


def test_an_epoch_is_told_again_and_that_of_another_checkpoint_counts_anew(any_store: Store, sinks: Sinks) -> None:
    apply_once(sinks.fenced(SECOND), batch(0))
    apply_once(sinks.fenced(SECOND), batch(1))
    assert apply_once(sinks.fenced(Epoch("b", 1)), batch(2)) is True
    assert everything(any_store) == of_batches(0, 1, 2)


def test_what_is_removed_is_removed_with_its_owner(any_store: Store, sinks: Sinks) -> None:
    sink = sinks.fenced(SECOND)
    apply_once(sink, batch(0))
    sink.remove()
    assert not [name for name in any_store.tables() if name.startswith("results")]
    apply_once(sinks.fenced(FIRST), batch(0))
    assert everything(any_store) == of_batches(0)


@pytest.mark.parametrize("kind", ["delta", "iceberg", "topic"])
def test_a_take_over_in_the_middle_of_a_batch_leaves_nothing_of_it(
    kind: str, tmp_path: Path, kafka_broker: Broker
) -> None:
    # a database's transaction is alone until it ends: there the other run waits
    folders = {"delta": DeltaStore, "iceberg": IcebergStore}
    store: Store = folders[kind](tmp_path) if kind in folders else TopicStore(kafka_broker.bootstrap)
    with closing(Sinks(store)) as sinks:
        old = sinks.fenced(FIRST)
        apply_once(old, batch(0))
        taken_over: list[Any] = []
        write = old.write

        def write_and_stand_still(each: Batch) -> Batch | None:
            written = write(each)
            taken_over.append(sinks.fenced(SECOND))
            return written  # type: ignore[no-any-return]

        old.write = write_and_stand_still
        with pytest.raises(StateMismatch, match="epoch 2"):
            apply_once(old, batch(1))
        assert everything(store) == of_batches(0)
        assert apply_once(taken_over[0], batch(1)) is True
        assert everything(store) == of_batches(0, 1)


def test_a_table_of_somebody_else_with_an_owners_name_stays(database: Database) -> None:
    with closing(database.sink()) as sink:
        sink.open(SCHEMA)
        database.make_table_of_others("results_owner")
        sink.remove()
    assert [name for name in database.tables() if name.endswith("_owner")] != []


def test_a_sink_that_keeps_no_epochs_is_told_of(caplog: pytest.LogCaptureFixture) -> None:
    class Five:
        def begin(self) -> None: ...
        def last_applied(self) -> LastBatch | None: ...
        def write(self, batch: Batch) -> None: ...
        def commit(self) -> None: ...
        def rollback(self) -> None: ...

    with caplog.at_level(logging.WARNING):
        fence(sink_of(Five()), None)
        assert caplog.messages == []
        fence(sink_of(Five()), FIRST)
    assert caplog.messages == [
        "OwnSink keeps no epochs: a run that stands still while another one takes the checkpoint over may write one batch "
        "more when it wakes up"
    ]


def test_a_users_own_sink_is_told_its_epoch_where_it_has_the_verb() -> None:
    told: list[Epoch] = []

    class Six:
        def begin(self) -> None: ...
        def last_applied(self) -> LastBatch | None: ...
        def write(self, batch: Batch) -> None: ...
        def commit(self) -> None: ...
        def rollback(self) -> None: ...
        def fence(self, epoch: Epoch) -> None:
            told.append(epoch)

    fence(sink_of(Six()), FIRST)
    assert told == [FIRST]
