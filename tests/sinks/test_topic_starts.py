"""A topic sink's start and its batches, with kills, brokers that have just started, and limits of topics."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from secrets import token_hex

import pyarrow as pa
import pytest
from confluent_kafka import Producer

from tests.sinks.stores import SCHEMA, TopicStore, batch, everything, of_batches, results
from waterclock.errors import EnvironmentMissing, SinkLost, UsageError
from waterclock.kafka.admin import Admin
from waterclock.sinks import TopicSink, apply_once
from waterclock.sinks.ledger import Epoch
from waterclock.testing import Broker


@pytest.fixture
def store(kafka_broker: Broker) -> TopicStore:
    return TopicStore(kafka_broker.bootstrap)


@pytest.fixture
def sink(store: TopicStore) -> Iterator[TopicSink]:
    with closing(store.sink()) as made:
        made.open(SCHEMA)
        yield made


def test_what_the_broker_does_not_know_just_now_is_not_taken_for_empty(
    store: TopicStore, sink: TopicSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    # one that has just started may not know its topics yet: nothing was applied, it seemed, and batch 0 stood there twice
    apply_once(sink, batch(0))
    sink.rollback()
    sink._let_go()
    monkeypatch.setattr(sink._asking(), "ends", lambda places: {})
    with pytest.raises(SinkLost, match=r"does not know the topic '.*results_batches'"):
        apply_once(sink, batch(0))
    with closing(store.sink()) as late:
        monkeypatch.setattr(late._asking(), "ends", lambda places: {})
        with pytest.raises(SinkLost, match=r"does not know the topic '.*results_batches'"):
            late.look(SCHEMA)
    monkeypatch.undo()
    assert apply_once(sink, batch(0)) is False
    assert everything(store) == of_batches(0)


def test_a_first_start_that_was_killed_leaves_nothing_that_keeps_the_next_one_away(store: TopicStore) -> None:
    # what it had begun was thrown away, and the offsets that were left looked like the records of somebody else, for ever
    for part in ("", "_dead_letters", "_batches"):
        store.admin().make(
            store.named("results") + part, 1, {"cleanup.policy": "compact"} if part == "_batches" else {}
        )
    settings = {"bootstrap.servers": store.servers, "transactional.id": f"waterclock-sink-{store.named('results')}"}
    killed, next_one = Producer(settings), Producer(settings)
    killed.init_transactions(10)
    killed.begin_transaction()
    killed.produce(store.named("results_batches"), b"[]", b"columns")
    killed.flush(10)
    next_one.init_transactions(10)  # it begins, so the other's is thrown away, and is killed too
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        assert apply_once(sink, batch(0)) is True
    assert everything(store) == of_batches(0)


def test_of_two_that_begin_at_once_neither_takes_the_others_columns_for_a_strangers_records(
    store: TopicStore, sink: TopicSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = store.sink()
    look, looks = other._look, []

    def look_before_the_first_one_has_written() -> None:
        looks.append(1)
        if len(looks) > 1:
            look()

    monkeypatch.setattr(other, "_look", look_before_the_first_one_has_written)
    with closing(other):
        assert other.look(SCHEMA) == []


def test_results_go_in_batches_that_the_topic_takes(store: TopicStore) -> None:
    # each was small enough, and a hundred of them in one batch of librdkafka's were not: refused at every start
    store.admin().make(store.named("results"), 1, {"max.message.bytes": "20000"})
    rows = [{**row, "source_id": token_hex(200)} for row in results(0, 500).to_pylist()]
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        assert apply_once(sink, replace(batch(0), results=pa.Table.from_pylist(rows, schema=SCHEMA))) is True
    assert [row["source_id"] for _, row in store.records()] == [row["source_id"] for row in rows]


def test_what_a_segment_does_not_take_is_put_aside(store: TopicStore) -> None:
    store.admin().make(store.named("results"), 1, {"segment.bytes": "1048576", "max.message.bytes": "3000000"})
    rows = results(0, 100).to_pylist()
    rows[1]["event"]["case"] = token_hex(600_000)
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        assert apply_once(sink, replace(batch(0), results=pa.Table.from_pylist(rows, schema=SCHEMA))) is True
    assert [row["event_n"] for _, row in store.records()] == [0, *range(2, 100)]


def test_a_broker_that_has_just_begun_to_follow_does_not_say_that_topics_are_gone(
    store: TopicStore, sink: TopicSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any broker lists topics; who leads is asked for their ids."""
    apply_once(sink, batch(0))
    sink.rollback()
    sink._let_go()
    monkeypatch.setattr(Admin, "topics", lambda admin: {})
    assert apply_once(sink, batch(1)) is True


@pytest.mark.parametrize("part", ["", "_dead_letters", "_batches"])
def test_the_remedies_that_are_named_for_a_topic_that_is_gone_are_ways_on(
    store: TopicStore, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    monkeypatch.setattr("waterclock.kafka.admin._MADE_WITHIN_S", 0.5)
    table, letters, batches = (store.named("results") + each for each in ("", "_dead_letters", "_batches"))
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
        store.admin().remove([table + part])
        sink._let_go()
        with pytest.raises(
            UsageError, match=r"another broker leads that never had it.*Start over with --fresh"
        ) as told:
            apply_once(sink, batch(1))
    if part == "_batches":  # nobody knows any more what was written last, or whose the others are
        assert f"delete '{table}' and '{letters}' before" in str(told.value)
        store.admin().remove([table, letters])
    else:
        assert "make the topic again, and the same command goes on" in str(told.value)
        store.admin().make(table + part, 1)
        with closing(store.sink()) as again:
            again.open(SCHEMA)
            assert apply_once(again, batch(1)) is True
    with closing(store.sink()) as fresh:
        fresh.remove()
        fresh.open(SCHEMA)
        assert fresh.last_applied() is None
        assert apply_once(fresh, batch(0)) is True
    assert everything(store) == of_batches(0)
    assert batches in store.admin().topics()


def meet_others_behind(meet: Callable[..., None], store: TopicStore, is_made: bool) -> Callable[..., None]:
    """`meet`, and behind its first call another topic of results, or none, as after a leader that had just made it."""

    def met(sink: TopicSink, admin: Admin) -> None:
        meet(sink, admin)
        if not met.__dict__.setdefault("done", False):
            met.__dict__["done"] = True
            store.admin().remove([store.named("results")])
            if is_made:
                store.admin().make(store.named("results"), 1)

    return met


def test_before_anything_was_written_another_topic_of_the_name_is_as_good(
    store: TopicStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TopicSink, "_meet", meet_others_behind(TopicSink._meet, store, is_made=True))
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        sink.fence(Epoch("lineage", 1))
        assert apply_once(sink, batch(0)) is True
    assert everything(store) == of_batches(0)


def test_one_that_is_gone_before_anything_was_written_ends_the_start_and_the_next_one_makes_it(
    store: TopicStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(TopicSink, "_meet", meet_others_behind(TopicSink._meet, store, is_made=False))
    with closing(store.sink()) as sink:
        with pytest.raises(EnvironmentMissing, match="another broker leads, which never had it"):
            sink.open(SCHEMA)
        sink.open(SCHEMA)
        assert apply_once(sink, batch(0)) is True


def test_who_lists_topics_before_the_other_makes_them_does_not_take_its_records_for_a_strangers(
    store: TopicStore, sink: TopicSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that stood still between its list and its look."""
    apply_once(sink, batch(0))
    there = store.admin().topics()
    for known in ((), ("",), ("", "_dead_letters"), ("_batches",)):
        listed = {name: there[name] for name in (store.named("results") + part for part in known)}
        monkeypatch.setattr(Admin, "known", lambda admin, names, listed=listed: listed)
        with closing(store.sink()) as late:
            assert late.look(SCHEMA) == []
            late.open(SCHEMA)
            assert late.totals() == sink.totals()


def test_what_a_list_lacks_is_removed_with_the_rest(
    store: TopicStore, sink: TopicSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The results alone would be nobody's, and refused for ever."""
    apply_once(sink, batch(0))
    batches = store.named("results_batches")
    monkeypatch.setattr(Admin, "known", lambda admin, names: {batches: 1} if batches in Admin.topics(admin) else {})
    sink.remove()
    assert not [name for name in store.admin().topics() if name.startswith(store.named("results"))]


def test_a_strangers_topic_that_a_list_lacks_is_not_written_to_and_our_own_are_removed(
    store: TopicStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that lags has an old list. By it a stranger's topic was none, and became ours, with his records in it; and
    ours stayed when they were to go: a run that started over wrote its results beside the old ones."""
    with monkeypatch.context() as lagging, closing(store.sink()) as sink:
        lagging.setattr(Admin, "topics", lambda admin: {})
        store.admin().make(store.named("results"), 1)
        stranger = Producer({"bootstrap.servers": store.servers})
        stranger.produce(store.named("results"), b"mine")
        stranger.flush()
        with pytest.raises(UsageError, match="holds records, and no sink of waterclock wrote to it"):
            sink.open(SCHEMA)
    store.admin().remove([store.named("results")])
    with closing(store.sink()) as sink:
        sink.open(SCHEMA)
        apply_once(sink, batch(0))
        with monkeypatch.context() as lagging:
            lagging.setattr(Admin, "topics", lambda admin: {})
            sink.remove()
    assert not [name for name in store.admin().topics() if name.startswith(store.named("results"))]
