"""A sink that says what each batch read: of a user's own query, in order, until it is folded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import SQL, store_of
from tests.sinks.stores import COUNTERS, SCHEMA, Store, TopicStore, batch
from waterclock.sinks import LastBatch, RecordingSink, apply_once
from waterclock.sinks.ledger import Marks, folded, records_of


@pytest.fixture(params=[*SQL, "topic"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "topic":
        return TopicStore(request.getfixturevalue("kafka_broker").bootstrap)
    return store_of(request, tmp_path)


@pytest.fixture
def sink(store: Store) -> Iterator[RecordingSink]:
    with closing(recording(store)) as made:
        yield made


def recording(store: Store) -> RecordingSink:
    made = store.sink()
    assert isinstance(made, RecordingSink)
    made.open(SCHEMA)
    return made


def apply(sink: RecordingSink, *numbers: int, query_id: str = "q") -> None:
    for number in numbers:
        assert apply_once(sink, replace(batch(number, query_id), is_logged=True))


def test_what_each_batch_read_is_there_for_its_query_alone(store: Store, sink: RecordingSink) -> None:
    assert sink.inputs("q") == []
    apply(sink, *range(12))
    wanted = [(number, f"offsets {number}") for number in range(12)]
    assert sink.inputs("q") == wanted
    assert sink.inputs("another") == []
    with closing(recording(store)) as other:
        assert other.inputs("q") == wanted


def test_what_is_folded_is_forgotten_and_its_counters_are_not(store: Store, sink: RecordingSink) -> None:
    apply(sink, 0, 1, 2, 3)
    sink.fold("q", 2)
    sink.fold("q", 2)
    apply(sink, 4)
    for each in (sink, other := recording(store)):
        assert each.inputs("q") == [(number, f"offsets {number}") for number in (2, 3, 4)]
        assert each.totals() == {name: 5 * value for name, value in COUNTERS.items()}
        assert each.last_applied() == LastBatch("q", 4)
    other.close()


def test_a_batch_that_was_rolled_back_was_never_read(sink: RecordingSink) -> None:
    apply(sink, 0)
    sink.begin()
    sink.write(replace(batch(1), is_logged=True))
    sink.rollback()
    assert sink.inputs("q") == [(0, "offsets 0")]


def test_the_last_batch_of_another_engine_says_what_it_read(sink: RecordingSink) -> None:
    apply_once(sink, batch(0))
    apply_once(sink, batch(1))
    assert sink.inputs("q")[-1] == (1, "offsets 1")


def test_the_last_record_of_each_key_says_it_all() -> None:
    """Kafka compacts TOPIC_batches."""
    whole, kept, again = Marks(), dict[bytes, bytes | None](), Marks()
    for number in range(5):
        made = replace(batch(number), is_logged=True)
        for key, value in records_of(made, whole.after(made), None):
            kept[key] = value
            whole.take(key, value, "here")
    kept.update([folded("q", 0)])
    whole.take(*folded("q", 0), "here")
    for key, last in kept.items():
        again.take(key, last, "here")
    assert again.inputs("q") == whole.inputs("q") == [(number, f"offsets {number}") for number in range(1, 5)]
    assert again.totals() == whole.totals()
