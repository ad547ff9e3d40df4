"""Apache Spark's own Kafka connector, as it comes from Maven, against either broker: structured streaming."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.batches import Record, batch
from tests.conformance.dialogue import LATEST, Dialogue
from tests.conformance.spark_topics import SparkTopics, arrived, finished
from tests.conformance.test_deleting import deleted
from tests.conformance.transactions import Transactional
from tests.conformance.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark]
AT_ONCE = {"processingTime": "0 seconds"}


@pytest.fixture
def streams(spark: SparkSession, bootstrap: str, tmp_path: Path) -> Iterator[SparkTopics]:
    yield SparkTopics(spark, bootstrap, tmp_path)
    for query in spark.streams.active:  # of a test that failed
        query.stop()


def fill(dialogue: Dialogue, topic: str, count: int, *, partition: int = 0, first: int = 0) -> list[str]:
    """So many records in one batch each; their values."""
    wanted = [f"{partition}.{number}" for number in range(first, first + count)]
    for value in wanted:
        dialogue.produce(topic, batch(value.encode()), partition=partition)
    return wanted


def vanished(dialogue: Dialogue, topic: str) -> None:
    """Delete a topic."""
    dialogue.wire.ask("delete_topics", 6, topics=[{"name": topic}], timeout=5_000)
    until(lambda: dialogue.metadata(topic).error_code != 0)


def test_everything_is_read_once_over_a_restart_from_the_checkpoint(
    streams: SparkTopics, dialogue: Dialogue, new_topic: Callable[..., str]
) -> None:
    topic, by_fifteen = new_topic(2), {"maxOffsetsPerTrigger": 15}
    wanted = [fill(dialogue, topic, 30, partition=p) for p in range(2)]
    query = streams.to_files(topic, options=by_fifteen, **AT_ONCE)
    arrived(query, 15)
    query.stop()
    first = len(streams.copied())
    assert first >= 15
    wanted[0] += fill(dialogue, topic, 5, first=30)
    taken = finished(streams.to_files(topic, options=by_fifteen, availableNow=True))
    assert max(taken) <= 15
    assert streams.copied() == wanted[0] + wanted[1]
    assert finished(streams.to_files(topic, options=by_fifteen, availableNow=True)) == []


def test_partitions_that_are_added_while_a_stream_runs_are_found(
    streams: SparkTopics, dialogue: Dialogue, topic: str
) -> None:
    wanted = fill(dialogue, topic, 3)
    query = streams.to_files(topic, **AT_ONCE)
    arrived(query, 3)
    grown = {"name": topic, "count": 2, "assignments": None}
    dialogue.wire.ask("create_partitions", 3, topics=[grown], timeout=5_000)
    until(lambda: dialogue.is_led(topic, 2))
    wanted += fill(dialogue, topic, 3, partition=1)
    arrived(query, 6)
    query.stop()
    assert streams.copied() == wanted


def test_a_stream_of_what_is_committed_goes_over_markers_and_aborted_records(
    streams: SparkTopics, dialogue: Dialogue, topic: str, name: str
) -> None:
    producer = Transactional(dialogue, name, new=True)
    for number in range(6):
        producer.put(topic, b"%d" % number)
        producer.end(committed=number % 2 == 0)
    until(lambda: dialogue.fetch(topic).partition.last_stable_offset == 12)
    options = {"kafka_isolation_level": "read_committed", "maxOffsetsPerTrigger": 5}
    finished(streams.to_files(topic, options=options, availableNow=True))
    assert streams.copied() == ["0", "2", "4"]
    producer.put(topic, b"last")
    producer.commit()
    until(lambda: dialogue.fetch(topic).partition.last_stable_offset == 14)
    finished(streams.to_files(topic, options=options, availableNow=True))
    assert streams.copied() == ["0", "2", "4", "last"]


def test_records_deleted_under_a_stream_are_told_of_or_passed_over(
    streams: SparkTopics, dialogue: Dialogue, topic: str
) -> None:
    wanted = fill(dialogue, topic, 5)
    finished(streams.to_files(topic, availableNow=True))
    fill(dialogue, topic, 5, first=5)
    deleted(dialogue, topic, 8)
    with pytest.raises(Exception, match="Some data may have been lost"):
        finished(streams.to_files(topic, availableNow=True))
    finished(streams.to_files(topic, options={"failOnDataLoss": "false"}, availableNow=True))
    assert streams.copied() == [*wanted, "0.8", "0.9"]


def test_a_topic_made_anew_under_a_stream_is_told_of_or_gone_on_with(
    streams: SparkTopics, dialogue: Dialogue, topic: str
) -> None:
    wanted = fill(dialogue, topic, 5)
    finished(streams.to_files(topic, availableNow=True))
    vanished(dialogue, topic)
    dialogue.create_topic(topic)
    fill(dialogue, topic, 2, first=5)
    with pytest.raises(Exception, match=r"Some data may have been lost[\s\S]*changed from 5 to 2"):
        finished(streams.to_files(topic, availableNow=True))
    goes_on = {"failOnDataLoss": "false"}
    finished(streams.to_files(topic, options=goes_on, availableNow=True))
    wanted += fill(dialogue, topic, 2, first=7)
    finished(streams.to_files(topic, options=goes_on, availableNow=True))
    assert sorted(streams.copied()) == wanted


def test_a_topic_deleted_under_a_stream_is_told_of_or_gone_on_without(
    streams: SparkTopics, dialogue: Dialogue, name: str
) -> None:
    stays, goes = (dialogue.create_topic(f"{name}-{word}") for word in ("stays", "goes"))
    wanted = fill(dialogue, stays, 2) + fill(dialogue, goes, 2, first=2)
    finished(streams.to_files(f"{name}-.*", availableNow=True))
    vanished(dialogue, goes)
    with pytest.raises(Exception, match=r"Some data may have been lost[\s\S]*-goes-0"):
        finished(streams.to_files(f"{name}-.*", availableNow=True))
    wanted += fill(dialogue, stays, 2, first=4)
    finished(streams.to_files(f"{name}-.*", options={"failOnDataLoss": "false"}, availableNow=True))
    assert sorted(streams.copied()) == wanted


def test_a_stream_from_one_topic_to_another_keeps_count_keys_headers_and_partitions(
    streams: SparkTopics, dialogue: Dialogue, new_topic: Callable[..., str]
) -> None:
    source, target = new_topic(2), new_topic(3)
    wanted = [[(b"k%d" % n, b"%d" % n, (("h", b"x"),)) for n in range(p, 400, 2)] for p in range(2)]
    for partition, answer in enumerate(wanted):
        records = [Record(value, key, headers=headers) for key, value, headers in answer]
        dialogue.produce(source, batch(*records), partition=partition)
    found = streams.stream(source, includeHeaders="true", maxOffsetsPerTrigger=150)
    rows = found.selectExpr("key", "value", "headers", "partition + 1 AS partition")
    sink = rows.writeStream.format("kafka").options(**streams.endpoint, topic=target)
    assert sum(finished(streams.begin(sink, availableNow=True))) == 400
    assert [dialogue.offset(target, LATEST, partition=p).offset for p in range(3)] == [0, 200, 200]
    for partition, answer in enumerate(wanted, 1):
        records = [r for b in dialogue.read(target, partition=partition) for r in b.decoded()]
        assert [(r.key, r.value, r.headers) for r in records] == answer
