"""A live run at the end of a topic, where its reading stays from batch to batch: what is sent, new, cut, made anew."""

from __future__ import annotations

import json
import random
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from threading import Event

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions

from tests.local.running import counts, living, run_locally, until
from tests.local.test_pipeline import RECORDS, batches, change, replayed
from tests.spark.pipelines import make_pipeline, orders, table
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.clock import ManualClock
from waterclock.errors import StateMismatch, UsageError, WaterclockError
from waterclock.kafka.admin import Admin
from waterclock.kafka.client import Client
from waterclock.local import pipeline as module
from waterclock.local import topics
from waterclock.local.command import configured
from waterclock.local.snapshots import NAME, Written
from waterclock.local.topics import TopicSource
from waterclock.sinks.sqlite.sqlite import SQLiteSink
from waterclock.streaming.layout import CLOSING
from waterclock.streaming.statistics import Progress
from waterclock.streaming.toml.config import load
from waterclock.streaming.topics import planner
from waterclock.streaming.topics.fetcher import Fetcher
from waterclock.streaming.topics.offsets import Range
from waterclock.testing import Broker

Loss = Callable[[Broker, str], None]
WAIT_S = 30


@pytest.fixture
def file(kafka_broker: Broker, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pipeline that does not close, and looks for what is otherwise five times a second."""
    monkeypatch.setattr(planner, "_NEW_PARTITIONS_EVERY_S", 0.2)
    monkeypatch.setattr(planner, "_GONE_AFTER_S", 0.5)
    Sender(kafka_broker.bootstrap, topic).orders(orders(40))
    made = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic, more="per_batch = 30")
    change(made, "[time]\n", "[time]\nclose = false\n")
    return made


@pytest.fixture
def transactional(kafka_broker: Broker, topic: str) -> Sender:
    sender = Sender(kafka_broker.bootstrap, topic, transactional_id=topic)
    sender.producer.init_transactions(WAIT_S)
    return sender


def test_what_was_read_at_the_end_of_a_topic_is_read_once_more_alike(file: Path, transactional: Sender) -> None:
    rows, sent, chance = orders(60, seed=3), RECORDS, random.Random(file.name)
    with living(file) as (pipeline, _):
        counts(pipeline, "records", RECORDS)
        while rows:
            some, rows = rows[:7], rows[7:]
            committed = chance.random() < 0.7
            transactional.producer.begin_transaction()
            transactional.orders(some)
            transactional.put("damaged", partition=chance.randrange(3))
            (transactional.producer.commit_transaction if committed else transactional.producer.abort_transaction)(
                WAIT_S
            )
            sent += committed * (len(some) + 1)
        counts(pipeline, "records", sent)
    assert pipeline.statistics().count("records") == sent
    before, count = table(file.parent), len(batches(file))
    (file.parent / "checkpoint" / NAME).unlink()
    assert replayed(file) == count > 10
    assert table(file.parent) == before


def test_a_live_run_says_that_it_read_what_was_aborted(file: Path, transactional: Sender) -> None:
    with living(file) as (pipeline, _):
        counts(pipeline, "records", RECORDS)
        for partition in range(3):
            transactional.in_transaction("gone", committed=False, partition=partition)
        source = pipeline._source
        assert isinstance(source, TopicSource)
        until(lambda: not any(source.behind(source._at).values()), "it does not stand behind the markers")
    assert run_locally(file).batches == 0


def test_new_partitions_are_found(kafka_broker: Broker, topic: str, file: Path) -> None:
    with living(file) as (pipeline, _):
        counts(pipeline, "records", RECORDS)
        admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(WAIT_S)
        Sender(kafka_broker.bootstrap, topic).put("damaged", partition=3)
        counts(pipeline, "dead_letters", 1)


def test_a_live_run_ends_when_heartbeats_have_closed_every_partition(
    kafka_broker: Broker, topic: str, file: Path
) -> None:
    sender = Sender(kafka_broker.bootstrap, topic)
    with living(file) as (pipeline, run):
        counts(pipeline, "records", RECORDS)
        sender.heartbeat(CLOSING, 0, 1)
        counts(pipeline, "heartbeats", 2)
        assert not run.done()
        sender.heartbeat(CLOSING, 2)
        until(run.done, "it goes on")
    assert run.result().totals["held"] == 0
    assert run_locally(file).batches == 0
    sender.put("late")
    with pytest.raises(UsageError, match=r"1 record came after that.*--fresh"):
        run_locally(file)


def test_one_who_falls_behind_reads_by_fair_shares_again(
    kafka_broker: Broker, topic: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner, "_NEW_PARTITIONS_EVERY_S", 0.0)
    sender, fetched = Sender(kafka_broker.bootstrap, topic), list[list[Range]]()

    def seen(client: Client, ranges: list[Range], on_loss: str) -> Fetcher:
        fetched.append(ranges)
        return Fetcher(client, ranges, on_loss)

    with living(file) as (pipeline, _):
        counts(pipeline, "records", RECORDS)
        monkeypatch.setattr(topics, "Fetcher", seen)
        for turn in range(1, 31):  # the planner may look between the two
            for partition in (0, 1):
                sender.put(*["damaged"] * 300, partition=partition)
            counts(pipeline, "records", RECORDS + 600 * turn)
            if any(len(ranges) > 1 for ranges in fetched):
                return
    raise AssertionError(fetched)


class Rests(Event):
    """The event that ends a live run, where it rests for want of something to read. It does not wait."""

    def __init__(self, idle_s: float) -> None:
        super().__init__()
        self.idle_s, self.behind = idle_s, list[float]()

    def wait(self, timeout: float | None = None) -> bool:
        if timeout == self.idle_s:
            self.set()
        else:
            self.behind.append(timeout or 0.0)
        return self.is_set()


@pytest.mark.parametrize("of_files", [True, False])
def test_linger_is_behind_a_batch_that_took_all_there_was_and_behind_no_other(
    file: Path, of_files: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "CHUNK", 1)  # who is behind at all, goes by the planner
    if of_files:
        file = make_pipeline(tmp_path / "files", orders(40), 6, 2)
        change(file, "[time]\n", "[time]\nclose = false\n")
    file.write_text(f'[local]\nlinger = "1 hour"\n{file.read_text()}')
    with closing(configured(load(file))) as pipeline:
        rests = Rests(pipeline._source.idle_s)
        pipeline._ended = rests
        count = pipeline.run(live=True).batches
    assert count >= 3
    assert rests.behind == [3600.0]


def test_every_bucket_is_written_within_seconds_however_long_a_batch_takes(tmp_path: Path) -> None:
    file, clock, behind = make_pipeline(tmp_path, orders(40), 12), ManualClock(), list[int]()
    file.write_text(f"[local]\nbuckets = 64\n{file.read_text()}")
    with closing(configured(load(file))) as pipeline:
        pipeline._clock, pipeline._ended = clock, Rests(pipeline._source.idle_s)

        def after(progress: Progress) -> None:
            behind.append(progress.batch_id - min(pipeline._kept.values()))
            clock.advance_s(0.7)

        pipeline.run(live=True, report=after)
    assert len(behind) == 12
    assert max(behind[3:]) <= module.SNAPSHOT_S / 0.7 + 1


def test_where_nothing_comes_every_bucket_is_written_within_seconds_and_then_no_more(tmp_path: Path) -> None:
    file, clock = make_pipeline(tmp_path, orders(40), 2), ManualClock()
    change(file, "[time]\n", "[time]\nclose = false\n")
    with closing(configured(load(file))) as pipeline:
        lacking, writes, keep = list[int](), list[int](), pipeline._keep

        def counted(written: list[Written]) -> None:
            writes.extend(len(lacking) for _ in written)
            keep(written)

        class Idle(Event):
            def wait(self, timeout: float | None = None) -> bool:
                clock.advance_s(0.6)
                lacking.append(sum(at < pipeline._batch for at in pipeline._kept.values()))
                if len(lacking) == 12:
                    pipeline._keep = keep  # a clean end writes all
                    self.set()
                return self.is_set()

        pipeline._keep, pipeline._clock, pipeline._ended = counted, clock, Idle()
        pipeline.run(live=True)
    assert max(lacking) == 4
    assert lacking[-6:] == [0] * 6
    assert max(writes) <= 6


def test_a_batch_at_the_end_of_a_topic_is_full_where_it_took_as_much_as_a_batch_takes(
    kafka_broker: Broker, topic: str, file: Path
) -> None:
    with closing(configured(load(file))._source) as source:
        assert isinstance(source, TopicSource)
        source.begin([source.first()], live=True)
        while source.take() is not None or any(source.behind(source._at).values()):
            pass
        Sender(kafka_broker.bootstrap, topic).put(*["damaged"] * 65)
        found = list[tuple[int, bool]]()
        while sum(count for count, _ in found) < 65:
            if (given := source.take()) is not None:
                found.append((given.counters["records"], given.is_full))
    assert max(found) == (30, True), "it was never full"
    assert all(is_full == (count == 30) for count, is_full in found)


def cut(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.delete_records([TopicPartition(topic, 0, -1)])[TopicPartition(topic, 0)].result(WAIT_S)


def removed(broker: Broker, topic: str) -> None:
    Admin({"bootstrap.servers": broker.bootstrap}).remove([topic])


def made_anew(broker: Broker, topic: str) -> None:
    removed(broker, topic)
    broker.create_topic(topic, 3)


def test_a_topic_that_is_made_anew_with_as_many_records_is_noticed_in_the_run(
    kafka_broker: Broker, topic: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topics, "SAME_FOR_S", 0.5)
    told = pytest.raises(StateMismatch, match=r"was made anew while it was read.*--fresh")
    with told, living(file) as (pipeline, run):
        counts(pipeline, "records", RECORDS)
        away = kafka_broker.faults.drop("Fetch", times=None, topic=topic)
        time.sleep(0.2)  # what waits at the broker comes back
        made_anew(kafka_broker, topic)
        Sender(kafka_broker.bootstrap, topic).orders(orders(80))
        away.clear()
        until(run.done, "nothing was noticed")


@pytest.mark.parametrize(
    ("loss", "on_loss"),
    [(cut, "fail"), (made_anew, "fail"), (removed, "fail"), (cut, "go on"), (made_anew, "go on")],
)
def test_what_is_lost_at_the_end_is_said_or_gone_over(
    kafka_broker: Broker, topic: str, file: Path, loss: Loss, on_loss: str
) -> None:
    change(file, "per_batch = 30", f'per_batch = 30\non_loss = "{on_loss}"')
    sender = Sender(kafka_broker.bootstrap, topic)
    gone = pytest.raises(WaterclockError, match="are gone before they were read")
    with gone if on_loss == "fail" else nullcontext(), living(file) as (pipeline, run):
        counts(pipeline, "records", RECORDS)
        away = kafka_broker.faults.drop("Fetch", times=None, topic=topic)
        time.sleep(0.2)  # what waits at the broker comes back
        sender.put("lost")
        loss(kafka_broker, topic)
        away.clear()

        def is_noticed() -> bool:
            if on_loss == "go on":
                sender.put("damaged")
                return pipeline.statistics().count("dead_letters") > 0
            return run.done()

        until(is_noticed, "nothing was noticed")
    counted = [json.loads(row[3]) for row in batches(file)]
    assert sum(each.get("events", 0) for each in counted) == len(orders(40)), "nothing is read twice"


# One pipeline that runs more than once


def table_of_letters(file: Path) -> list[tuple[int, str, int]]:
    with closing(sqlite3.connect(file.parent / "out.db")) as db:
        return db.execute("SELECT batch_id, file, line FROM results_dead_letters ORDER BY rowid").fetchall()


def test_one_to_the_end_behind_a_live_run_reads_to_the_end(kafka_broker: Broker, topic: str, file: Path) -> None:
    # the reading that stood at the end was asked, and what it had not got within a tenth of a second was passed over
    with closing(configured(load(file))) as pipeline, ThreadPoolExecutor(1) as thread:
        run = thread.submit(pipeline.run, live=True)
        counts(pipeline, "records", RECORDS)
        pipeline.end()
        run.result(60)
        slow = kafka_broker.faults.delay("Fetch", 400, topic=topic)
        time.sleep(0.2)  # what waits at the broker comes back
        Sender(kafka_broker.bootstrap, topic).put("damaged")
        pipeline.run()
        slow.clear()
        assert pipeline.statistics().count("dead_letters") == 1


def test_a_live_run_behind_one_to_the_end_finds_new_partitions(kafka_broker: Broker, topic: str, file: Path) -> None:
    # where the topics ended when the first one began was the end of the second one too
    with closing(configured(load(file))) as pipeline, ThreadPoolExecutor(1) as thread:
        pipeline.run()
        admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
        admin.create_partitions([NewPartitions(topic, 4)])[topic].result(WAIT_S)
        Sender(kafka_broker.bootstrap, topic).put("damaged", partition=3)
        run = thread.submit(pipeline.run, live=True)
        try:
            counts(pipeline, "dead_letters", 1)
        finally:
            pipeline.end()
        run.result(60)


def test_a_crash_behind_a_topic_that_was_made_anew_where_a_loss_is_gone_over_stops_no_start(
    kafka_broker: Broker, topic: str, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the checkpoint knew the topic by what it was when the run began, and the start took all for read of that one
    change(file, "per_batch = 30", 'per_batch = 30\non_loss = "go on"')
    sender = Sender(kafka_broker.bootstrap, topic)

    def put_until(is_so: Callable[[], object]) -> None:
        def is_so_now() -> object:
            sender.put("damaged")
            return is_so()

        until(is_so_now, "it goes on")

    crash = pytest.raises(ZeroDivisionError)
    with crash, living(file) as (pipeline, run):
        counts(pipeline, "records", RECORDS)
        monkeypatch.setattr(module, "turns", lambda *_: 0)  # no bucket is written because it is time
        away = kafka_broker.faults.drop("Fetch", times=None, topic=topic)
        time.sleep(0.2)  # what waits at the broker comes back
        made_anew(kafka_broker, topic)
        away.clear()
        for least in (1, 2):
            put_until(partial(lambda least: pipeline.statistics().count("dead_letters") >= least, least))
        monkeypatch.setattr(SQLiteSink, "commit", lambda sink: 1 / 0)
        put_until(run.done)
    monkeypatch.undo()
    read = table_of_letters(file)
    assert replayed(file) > 0
    assert table_of_letters(file)[: len(read)] == read
    assert len(table_of_letters(file)) > len(read) > 1


def test_a_start_that_was_refused_is_refused_again(kafka_broker: Broker, topic: str, file: Path) -> None:
    # the second one took what the first one had looked at for looked at
    run_locally(file)
    made_anew(kafka_broker, topic)
    Sender(kafka_broker.bootstrap, topic).orders(orders(80))
    before = batches(file)
    with closing(configured(load(file))) as pipeline:
        for _ in range(2):
            with pytest.raises(StateMismatch, match="was made anew since"):
                pipeline.run()
    assert batches(file) == before
