"""The sinks of a local pipeline: each holds what SQLite holds, row for row; what a topic does besides."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import SQL, store_of
from tests.local.places import WRITTEN_AT_ANY_TIME, Table, found, into
from tests.local.running import run_locally
from tests.sinks.stores import SQLiteStore, Store, TopicStore, batch
from tests.spark.pipelines import make_pipeline, orders
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.errors import SinkLost, StateMismatch
from waterclock.local import LocalPipeline
from waterclock.local import pipeline as module
from waterclock.local.command import configured, start_over
from waterclock.local.snapshots import NAME
from waterclock.sinks import apply_once
from waterclock.streaming.statistics import Progress
from waterclock.streaming.toml.config import load
from waterclock.testing import Broker

BAD = '{"order": \n{"order": "o1", "at": "2026-01-01T00:00:00Z", "n": "x"}\n'


@pytest.fixture(params=[*SQL, "topic"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    if request.param == "topic":
        return TopicStore(request.getfixturevalue("kafka_broker").bootstrap)
    return store_of(request, tmp_path)


@pytest.fixture
def topic(kafka_broker: Broker) -> TopicStore:
    return TopicStore(kafka_broker.bootstrap)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pipeline from files with two bad lines; it takes more when it has ended."""
    made = make_pipeline(tmp_path, orders(40), 6)
    (tmp_path / "in" / "bad.jsonl").write_text(BAD)
    made.write_text(made.read_text().replace("[time]\n", "[time]\nclose = false\n"))
    return made


def test_each_sink_holds_what_sqlite_holds_row_for_row(file: Path, store: Store, tmp_path: Path) -> None:
    text = file.read_text()
    summary = run_locally(into(file, store))
    file.write_text(text.replace('"checkpoint"', '"checkpoint-2"'))
    sqlite = SQLiteStore(tmp_path / "sqlite")
    sqlite.path.parent.mkdir(parents=True)
    both = [{**each.totals, WRITTEN_AT_ANY_TIME: 0} for each in (run_locally(into(file, sqlite)), summary)]
    assert both[0] == both[1]
    assert found(store) == found(sqlite)
    assert len(found(store)[0]) > 100
    assert len(found(store)[1]) == 2


def test_a_run_goes_on_and_starts_over_in_each_sink(file: Path, store: Store) -> None:
    run_locally(into(file, store))
    before = found(store)
    assert run_locally(file).batches == 0
    (file.parent / "checkpoint" / NAME).unlink()
    assert run_locally(file).batches == 0, "state is made anew of what the sink says of its batches"
    start_over(load(file))
    run_locally(file)
    assert found(store)[:2] == before[:2]


def test_what_a_run_needs_no_more_is_folded_in_each_sink(
    kafka_broker: Broker, kafka_topic: str, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FOLDED", 5)
    monkeypatch.setattr(module, "turns", lambda *_: 1)
    Sender(kafka_broker.bootstrap, kafka_topic).orders(orders(20))
    file = into(make_topic_pipeline(tmp_path, kafka_broker.bootstrap, kafka_topic, more="per_batch = 4"), store)
    summary = run_locally(file)
    with closing(configured(load(file))) as pipeline:
        pipeline.check()
        assert 0 < len(recorded(pipeline)) < summary.batches - 4
        assert pipeline._outlets.totals() == summary.totals
    (file.parent / "checkpoint" / NAME).unlink()
    with pytest.raises(StateMismatch, match="lacks the record of batch 0"):
        run_locally(file)


def test_who_wakes_up_behind_a_fold_writes_no_batch_again(file: Path, store: Store) -> None:
    # the row by which its batch was known had become one with those behind it
    run_locally(into(file, store))
    with closing(configured(load(file))) as pipeline:
        pipeline.check()
        sink, (*_, (last, _)) = pipeline._outlets.only().sink, recorded(pipeline)
        sink.fold(pipeline._query, last)
        before = found(store)
        late = replace(batch(last - 1, pipeline._query), results=pipeline._schema.empty_table())
        assert not apply_once(sink, late)
    assert found(store) == before


def recorded(pipeline: LocalPipeline) -> list[tuple[int, str | None]]:
    return pipeline._outlets.inputs(pipeline._query)


# A topic ---------------------------------------------------------------------------------------------------------


def test_who_hangs_in_its_commit_commits_nothing_behind_the_next_ones_look(file: Path, topic: TopicStore) -> None:
    run_locally(into(file, topic))
    with closing(configured(load(file))) as next_one, closing(topic.sink()) as hanging:
        schema = next_one._schema
        hanging.open(schema)
        last = hanging.last_applied()
        assert last is not None
        hanging.begin()
        hanging.write(replace(batch(last.batch_id + 1, last.query_id), results=schema.empty_table()))
        next_one.check()
        with pytest.raises(SinkLost, match="another writer has taken"):
            hanging.commit()
        hanging.rollback()
        before = recorded(next_one)
        next_one.run()
        assert recorded(next_one) == before


def test_another_run_with_another_checkpoint_into_the_same_topic_is_noticed(file: Path, topic: TopicStore) -> None:
    other = file.with_name("other.toml")
    other.write_text(into(file, topic).read_text().replace('"checkpoint"', '"checkpoint-2"'))
    with closing(configured(load(file))) as one, closing(configured(load(other))) as two:
        one.check()
        two.check()
        one.run()
        before = found(topic)
        with pytest.raises(StateMismatch, match="another pipeline began to write there"):
            two.run()
    assert found(topic) == before


def test_a_topic_of_another_engine_is_refused(file: Path, topic: TopicStore) -> None:
    with closing(configured(load(into(file, topic)))) as pipeline, closing(topic.sink()) as sink:
        sink.open(pipeline._schema)
        for number in range(2):
            apply_once(sink, replace(batch(number), results=pipeline._schema.empty_table()))
        with pytest.raises(StateMismatch, match='written by another engine than "local"'):
            pipeline.run()


def test_a_broker_that_is_away_for_a_while_is_waited_for(
    kafka_broker_factory: Callable[..., Broker], tmp_path: Path
) -> None:
    broker, kept = kafka_broker_factory(tmp_path / "data"), list[list[Table]]()
    broker.create_topic("orders", 3)
    Sender(broker.bootstrap, "orders").orders(orders(40))
    for batch_id in (None, 2):
        store, folder = TopicStore(broker.bootstrap), tmp_path / f"{batch_id}"

        def cut(progress: Progress, at: int | None = batch_id) -> None:
            if progress.batch_id == at:
                broker.cut_power()
                broker.start()

        made = into(make_topic_pipeline(folder, broker.bootstrap, "orders", more="per_batch = 30"), store)
        with closing(configured(load(made))) as pipeline:
            pipeline.run(report=cut)
        kept.append(found(store))
    assert kept[0] == kept[1]
