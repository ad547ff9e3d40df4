"""What a pipeline on a topic promises, whichever way reads it and whoever serves it: one suite for both ways and brokers.

The files that run it (tests/spark/test_topics.py, tests/conformance/test_spark_pipeline.py) bring the fixtures `way`,
`bootstrap`, `spark` and `new_topic`. What is marked `long` is for the campaign and to the servers' suite, which has it.
"""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions
from confluent_kafka.admin import NewTopic as Topic
from pyspark.sql import SparkSession

from tests.conformance.waiting import until
from tests.spark.pipelines import make_pipeline, orders, table
from tests.spark.topics import Sender, make_topic_pipeline, value
from waterclock.errors import UsageError, WaterclockError
from waterclock.spark.pipeline import Progress, Summary, configured
from waterclock.streaming.toml.config import load

COLUMNS = "kind, key, rule, due, source_id, result_id"
NewTopic = Callable[[int], str]
Files = Callable[..., Path]


def run(spark: SparkSession, file: Path, **how: Any) -> Summary:
    pipeline = configured(load(file))
    try:
        return pipeline.run(spark, **how)
    finally:
        pipeline.close()


def counted(file: Path, columns: str = COLUMNS) -> Counter[tuple[Any, ...]]:
    return Counter(table(file.parent, columns))


def by_files(spark: SparkSession, folder: Path, rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """What a pipeline of files makes of the same orders."""
    file = make_pipeline(folder, rows, files=3, files_per_batch=3)
    run(spark, file)
    return counted(file)


def dead_letters(file: Path) -> list[tuple[str, int, str]]:
    with closing(sqlite3.connect(file.parent / "out.db")) as db:
        return db.execute("SELECT file, line, reason FROM results_dead_letters ORDER BY file, line").fetchall()


def batches(file: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file.parent / "out.db")) as db:
        return db.execute("SELECT batch_id, offsets, counters FROM results_batches ORDER BY batch_id").fetchall()


@pytest.fixture
def pipeline_of(tmp_path: Path, bootstrap: str, way: str) -> Files:
    """`pipeline_of(topic, name="a", more="per_batch = 5")`: the file of a pipeline on the topic, in a folder of its own."""

    def make(topic: str, name: str = "p", more: str = "") -> Path:
        return make_topic_pipeline(tmp_path / name, bootstrap, topic, way=way, more=more)

    return make


def opened(file: Path) -> Path:
    """The pipeline, without a close at the end of a run."""
    file.write_text(file.read_text().replace("[rules]\n", "close = false\n[rules]\n", 1))
    return file


# what comes out ------------------------------------------------------------------------------------------


@pytest.mark.long(seconds=10)
@pytest.mark.parametrize("partitions", [1, 3])
def test_the_same_events_by_files_and_by_topic_give_the_same_table(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files, tmp_path: Path, partitions: int
) -> None:
    topic, rows = new_topic(partitions), orders(50)
    Sender(bootstrap, topic).orders(rows)
    file = pipeline_of(topic, more="per_batch = 40")
    run(spark, file)
    assert counted(file) == by_files(spark, tmp_path / "files", rows)
    assert len(batches(file)) > 3


@pytest.mark.long(seconds=6)
def test_running_again_adds_nothing_and_makes_no_batches(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic = new_topic(2)
    Sender(bootstrap, topic).orders(orders(20))
    file = opened(pipeline_of(topic))
    run(spark, file)
    before, count = table(file.parent), len(batches(file))
    again = run(spark, file)
    assert (again.events, table(file.parent), len(batches(file))) == (0, before, count)


@pytest.mark.long(seconds=8)
def test_a_partition_that_is_read_ahead_makes_nothing_of_another_late(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    # one partition is ten times as dense as the other: fair shares of a batch are days apart in event time
    topic = new_topic(2)
    sender = Sender(bootstrap, topic)
    rows = sorted(orders(30, seed=5), key=lambda row: row["at"])
    sender.put(*map(value, rows), partition=0)
    few = [{**row, "order": f"other-{row['order']}", "id": f"other-{row['id']}"} for row in rows[::10]]
    sender.put(*map(value, few), partition=1)
    file = pipeline_of(topic, more="per_batch = 12")
    summary = run(spark, file)
    assert summary.totals["late"] == 0
    assert summary.totals["events"] == len(rows) + len(few)


@pytest.mark.long(seconds=8)
def test_only_what_is_committed_is_read_and_nothing_is_waited_for(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic, rows = new_topic(1), orders(6)
    sender = Sender(bootstrap, topic, transactional_id=uuid4().hex)
    sender.producer.init_transactions(30)
    for number in range(0, len(rows), 3):
        sender.in_transaction(*map(value, rows[number : number + 3]), committed=True)
        sender.in_transaction("never", "to be seen", committed=False)
    file = pipeline_of(topic, more="per_batch = 4")
    summary = run(spark, file)
    assert (summary.totals["records"], summary.totals["dead_letters"]) == (len(rows), 0)
    assert summary.totals["events"] == len(rows)


def test_what_cannot_be_read_is_a_dead_letter_with_its_place_and_the_rest_goes_on(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic, rows = new_topic(2), orders(6)
    sender = Sender(bootstrap, topic)
    sender.put("rubbish", b"\xff", None, partition=1)
    sender.put(*map(value, rows), '{"order": "x", "at": "yesterday"}', partition=0)
    file = pipeline_of(topic)
    summary = run(spark, file)
    found = dead_letters(file)
    assert [(place, offset) for place, offset, _ in found] == [
        (f"{topic}/0", len(rows)),
        (f"{topic}/1", 0),
        (f"{topic}/1", 1),
    ]
    assert "ISO 8601" in found[0][2]
    assert (summary.totals["tombstones"], summary.totals["events"]) == (1, len(rows))


@pytest.mark.long(seconds=8)
def test_parts_of_a_record_stand_in_the_results(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic, (row, *_) = new_topic(2), orders(3)
    Sender(bootstrap, topic).put(
        value(row), partition=1, key="who", headers=[("a", b"1"), ("a", None)], timestamp=1_700_000_000_123
    )
    parts = {part: f"r_{part}" for part in ("key", "headers", "timestamp", "topic", "partition", "offset")}
    file = pipeline_of(topic)
    lines = "".join(f'{part} = "{column}"\n' for part, column in parts.items())
    file.write_text(file.read_text().replace("[time]", f"[source.record]\n{lines}[time]"))
    run(spark, file)
    columns = ", ".join(f"event_{column}" for column in parts.values())
    assert table(file.parent, columns, "kind IN ('event', 'gap') AND event_id IS NOT NULL") == [
        ("who", '[["a", "1"], ["a", null]]', "2023-11-14 22:13:20.123000", topic, 1, 0)
    ]


@pytest.mark.long(seconds=8)
def test_each_batch_keeps_where_it_ended(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic, rows = new_topic(1), orders(20)
    Sender(bootstrap, topic).orders(rows)
    file = pipeline_of(topic, more="per_batch = 20")
    run(spark, file)
    ends = [json.loads(offsets.splitlines()[2])[topic]["0"] for _, offsets, _ in batches(file)]
    taken = [json.loads(counters).get("records", 0) for *_, counters in batches(file)]
    assert ends == [min(20 * number, len(rows)) for number in range(1, len(ends) + 1)]
    assert sum(taken) == len(rows)


# time ----------------------------------------------------------------------------------------------------


@pytest.mark.long(seconds=12)
def test_a_heartbeat_to_every_partition_moves_time_and_one_alone_does_not(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic = new_topic(2)
    sender = Sender(bootstrap, topic)
    created = next(row for row in orders(1) if row["what"] == "created")
    sender.put(value(created), partition=0)
    sender.heartbeat(created["at"].isoformat(), 1)
    file = opened(pipeline_of(topic))
    run(spark, file)
    assert ("expired",) not in counted(file, "kind")
    later = created["at"].replace(day=20).isoformat()
    sender.heartbeat(later, 0)
    run(spark, file)
    assert ("expired",) not in counted(file, "kind")
    sender.heartbeat(later, 1)
    run(spark, file)
    assert counted(file, "kind, key")[("expired", created["order"])] == 1


@pytest.mark.long(seconds=15)
def test_a_live_run_ends_where_every_partition_was_closed(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files, tmp_path: Path
) -> None:
    topic, rows = new_topic(2), orders(40)
    sender = Sender(bootstrap, topic)
    told: list[Progress] = []

    def go_on(progress: Progress) -> None:
        told.append(progress)
        if len(told) == 1:
            sender.orders(rows[30:])
            sender.heartbeat("9999-12-31T00:00:00Z", 0, 1)

    sender.orders(rows[:30])
    sender.heartbeat("2020-01-01T00:00:00Z", 0, 1)
    file = pipeline_of(topic)
    run(spark, file, live=True, report=go_on)
    assert counted(file) == by_files(spark, tmp_path / "files", rows)
    assert told[-1].unit == "records"
    assert (told[-1].done, told[-1].found) == (len(rows) + 4, len(rows) + 4)
    assert run(spark, file, live=True).batches == 0  # as after a kill behind the last batch: nothing to wait for


# where to begin, where to end ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("starting", "first"),
    [
        pytest.param('"latest"', 4, marks=pytest.mark.long(seconds=5)),
        pytest.param("{{ {topic} = {{ 0 = 3 }} }}", 3, marks=pytest.mark.long(seconds=5)),
        pytest.param("2023-11-14T22:13:22Z", 2, marks=pytest.mark.long(seconds=5)),
        pytest.param("2033-01-01T00:00:00Z", 4, marks=pytest.mark.long(seconds=5)),
    ],
)
def test_a_stream_begins_where_it_is_told(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files, starting: str, first: int
) -> None:
    topic = new_topic(1)
    for number in range(4):
        Sender(bootstrap, topic).put(str(number), timestamp=1_700_000_000_000 + 1000 * number)
    file = pipeline_of(topic, more=f"starting = {starting.format(topic=topic)}")
    run(spark, file)
    assert [offset for _, offset, _ in dead_letters(file)] == list(range(first, 4))


@pytest.mark.long(seconds=8)
def test_a_run_to_the_end_takes_what_was_there_at_its_start_and_the_next_one_the_rest(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic = new_topic(1)
    sender = Sender(bootstrap, topic)
    sender.put(*(str(number) for number in range(5)))
    file = opened(pipeline_of(topic, more="per_batch = 2"))
    run(spark, file, report=lambda progress: sender.put("late comer"))
    assert [offset for _, offset, _ in dead_letters(file)] == list(range(5))
    run(spark, file)
    assert [offset for _, offset, _ in dead_letters(file)] == list(range(8))


@pytest.mark.long(seconds=8)
def test_records_after_the_close_are_refused_and_not_called_late(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic = new_topic(1)
    sender = Sender(bootstrap, topic)
    sender.orders(orders(5))
    file = pipeline_of(topic)
    run(spark, file)
    sender.put("one", "two")
    with pytest.raises(UsageError, match=rf"was closed, and 2 records came after that \({topic}/0\)"):
        run(spark, file)


def add_partition(bootstrap: str, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, 2)])[topic].result(30)


@pytest.mark.long(seconds=8)
def test_new_partitions_are_read_from_their_first_record(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files, tmp_path: Path
) -> None:
    topic, rows = new_topic(1), orders(20)
    Sender(bootstrap, topic).put(*map(value, rows[:20]))
    file = opened(pipeline_of(topic))
    run(spark, file)
    add_partition(bootstrap, topic)
    Sender(bootstrap, topic).put(*map(value, rows[20:]), partition=1)
    file.write_text(file.read_text().replace("close = false", "close = true"))
    run(spark, file)
    assert counted(file) == by_files(spark, tmp_path / "files", rows)


@pytest.mark.long(seconds=8)
def test_a_partition_that_is_added_while_the_stream_runs_is_found(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files, tmp_path: Path
) -> None:
    topic, rows = new_topic(1), orders(20)
    Sender(bootstrap, topic).put(*map(value, rows[:20]))

    def go_on(progress: Progress) -> None:
        if progress.totals["records"] == 20:
            add_partition(bootstrap, topic)
            Sender(bootstrap, topic).put(*map(value, rows[20:]), partition=1)
        elif progress.totals["records"] == len(rows):
            Sender(bootstrap, topic).heartbeat("9999-12-31T00:00:00Z", 0, 1)

    file = pipeline_of(topic)
    run(spark, file, live=True, report=go_on)
    assert counted(file) == by_files(spark, tmp_path / "files", rows)


# loss ----------------------------------------------------------------------------------------------------


def deleted(bootstrap: str, topic: str, before: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (done,) = admin.delete_records([TopicPartition(topic, 0, before)]).values()
    done.result(30)


@pytest.mark.long(seconds=8)
def test_records_that_are_gone_before_they_were_read_are_told_of_or_passed_over(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic = new_topic(1)
    sender = Sender(bootstrap, topic)
    sender.put("0", "1")
    file = opened(pipeline_of(topic))
    run(spark, file)
    sender.put(*(str(number) for number in range(2, 8)))
    deleted(bootstrap, topic, 5)
    with pytest.raises(WaterclockError, match=r"are gone before they were read.*on_loss = \"go on\".*--fresh"):
        run(spark, file)
    file.write_text(file.read_text().replace("[source]\n", '[source]\non_loss = "go on"\n'))
    run(spark, file)
    assert [offset for _, offset, _ in dead_letters(file)] == [0, 1, 5, 6, 7]


@pytest.mark.long(seconds=14)
def test_a_topic_made_anew_is_told_of_or_gone_on_with(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic = new_topic(1)
    sender = Sender(bootstrap, topic)
    sender.put(*"01234")
    file = opened(pipeline_of(topic))
    run(spark, file)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(30)
    made_anew(admin, topic)
    Sender(bootstrap, topic).put("5", "6")
    with pytest.raises(WaterclockError, match="are gone before they were read"):
        run(spark, file)
    file.write_text(file.read_text().replace("[source]\n", '[source]\non_loss = "go on"\n'))
    run(spark, file)
    Sender(bootstrap, topic).put("7")
    run(spark, file)
    assert [offset for _, offset, _ in dead_letters(file)] == [0, 1, 2, 2, 3, 4]


def made_anew(admin: AdminClient, topic: str) -> None:
    def made() -> bool:
        try:
            admin.create_topics([Topic(topic, 1)])[topic].result(30)
        except KafkaException:  # the old one is not quite gone yet
            return False
        return True

    until(made)


# before Spark starts -------------------------------------------------------------------------------------


def test_a_topic_that_is_not_there_is_told_before_spark_starts(pipeline_of: Files) -> None:
    pipeline = configured(load(pipeline_of("nobody-made-it")))
    with pytest.raises(UsageError, match=r"the topic 'nobody-made-it' is not on the broker at .*create it"):
        pipeline.check()
    pipeline.close()
