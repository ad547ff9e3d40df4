"""Apache Spark's own Kafka connector, as it comes from Maven, against either broker: tables."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conformance.batches import LONG_AGO_MS, Record, batch
from tests.conformance.client_confluent import ConfluentProducer, ConfluentReader
from tests.conformance.clients import Endpoint, Message, Reading, Writing, read
from tests.conformance.dialogue import LATEST, Dialogue
from tests.conformance.spark_topics import READ, SparkTopics, at
from tests.conformance.test_deleting import deleted
from tests.conformance.transactions import Transactional
from tests.conformance.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.servers, pytest.mark.spark]
CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]  # by their numbers in a batch


@pytest.fixture
def tables(spark: SparkSession, bootstrap: str, tmp_path: Path) -> SparkTopics:
    return SparkTopics(spark, bootstrap, tmp_path)


@pytest.fixture
def two(dialogue: Dialogue, new_topic: Callable[..., str]) -> str:
    """A topic with two partitions: the values 0.0 to 0.9 and 1.0 to 1.9, ten milliseconds apart."""
    topic = new_topic(2)
    for partition, number in itertools.product(range(2), range(10)):
        record = Record(b"%d.%d" % (partition, number), timestamp_ms=LONG_AGO_MS + 10 * number)
        dialogue.produce(topic, batch(record), partition=partition)
    return topic


def numbers(partition: int, first: int, end: int) -> list[str]:
    return [f"{partition}.{number}" for number in range(first, end)]


def test_a_table_has_keys_values_headers_times_and_places(
    tables: SparkTopics, dialogue: Dialogue, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(2)
    dialogue.produce(topic, batch(Record(b"v", b"k", LONG_AGO_MS, (("h", b"x"), ("h", None)))))
    dialogue.produce(topic, batch(Record(None, None, LONG_AGO_MS + 1), Record(b"", b"")), partition=1)
    answer = ("topic", "partition", "offset", "key", "value", "unix_millis(timestamp)", "timestampType")
    first, second, third = tables.rows(topic, *answer)
    assert first == (topic, 0, 0, b"k", b"v", LONG_AGO_MS, 0)
    assert second == (topic, 1, 0, None, None, LONG_AGO_MS + 1, 0)
    assert third[1:5] == (1, 1, b"", b"")
    headers = [found for (found,) in tables.rows(topic, "headers", includeHeaders="true")]
    assert headers == [[("h", b"x"), ("h", None)], None, None]


def test_a_table_begins_and_ends_at_the_offsets_that_are_told(tables: SparkTopics, two: str) -> None:
    found = tables.values(two, startingOffsets=at(two, 3, -2), endingOffsets=at(two, -1, 4))
    assert found == numbers(0, 3, 10) + numbers(1, 0, 4)


def test_a_table_begins_and_ends_at_the_times_that_are_told(tables: SparkTopics, two: str) -> None:
    found = tables.values(two, startingTimestamp=LONG_AGO_MS + 31, endingTimestamp=LONG_AGO_MS + 60)
    assert found == numbers(0, 4, 6) + numbers(1, 4, 6)


def test_a_time_behind_the_last_record_is_refused_or_means_the_end(tables: SparkTopics, two: str) -> None:
    late = {"startingTimestamp": LONG_AGO_MS + 91}
    with pytest.raises(Exception, match="No offset matched"):
        tables.values(two, **late)
    assert tables.values(two, startingOffsetsByTimestampStrategy="latest", **late) == []


def test_a_table_is_cut_into_more_pieces_than_partitions(tables: SparkTopics, two: str) -> None:
    found = tables.rows(two, "spark_partition_id()", READ, minPartitions=5)
    assert len({piece for piece, _ in found}) >= 5
    assert [value for _, value in found] == numbers(0, 0, 10) + numbers(1, 0, 10)


def test_an_empty_topic_is_an_empty_table(tables: SparkTopics, topic: str) -> None:
    assert tables.values(topic) == []


def test_a_pattern_finds_topics(tables: SparkTopics, dialogue: Dialogue, name: str) -> None:
    for number in range(2):
        dialogue.produce(dialogue.create_topic(f"{name}-{number}"), batch(b"%d" % number))
    assert sorted(tables.values(f"{name}-.*")) == ["0", "1"]


def test_a_topic_that_is_not_there_is_an_error(tables: SparkTopics, name: str) -> None:
    with pytest.raises(Exception, match="UnknownTopicOrPartition"):
        tables.values(name)


def test_deleted_records_are_told_of_or_passed_over(tables: SparkTopics, dialogue: Dialogue, two: str) -> None:
    deleted(dialogue, two, 6)
    asked = {"startingOffsets": at(two, 2, 8), "endingOffsets": at(two, -1, -1)}
    with pytest.raises(Exception, match="Some data may have been lost"):
        tables.values(two, failOnDataLoss="true", **asked)
    assert tables.values(two, failOnDataLoss="false", **asked) == numbers(0, 6, 10) + numbers(1, 8, 10)


def test_what_was_aborted_is_passed_over(tables: SparkTopics, dialogue: Dialogue, topic: str, name: str) -> None:
    producer = Transactional(dialogue, name)
    for values, end in (([b"a", b"b"], producer.commit), ([b"gone"], producer.abort), ([b"c"], producer.commit)):
        producer.put(topic, *values)
        end()
    producer.put(topic, b"last and gone")
    producer.abort()
    until(lambda: dialogue.fetch(topic).partition.last_stable_offset == 9)
    assert tables.values(topic, kafka_isolation_level="read_committed") == ["a", "b", "c"]
    assert tables.values(topic) == ["a", "b", "gone", "c", "last and gone"]


def test_an_open_transaction_ends_the_table(tables: SparkTopics, dialogue: Dialogue, topic: str, name: str) -> None:
    dialogue.produce(topic, batch(b"before"))
    producer = Transactional(dialogue, name, new=True)
    producer.put(topic, b"open")
    dialogue.produce(topic, batch(b"behind"))
    assert tables.values(topic, kafka_isolation_level="read_committed") == ["before"]
    producer.abort()


def test_rows_are_written_with_keys_headers_and_partitions(
    tables: SparkTopics, dialogue: Dialogue, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3)
    tables.write(
        f"SELECT '{topic}' AS topic, 'k' || id AS key, IF(id = 5, NULL, 'v' || id) AS value, CAST(id % 3 AS INT) AS "
        "partition, array(struct('h' AS key, CAST('' || id AS BINARY) AS value)) AS headers FROM range(0, 6, 1, 1)",
        includeHeaders="true",
    )
    found = {p: [r for b in dialogue.read(topic, partition=p) for r in b.decoded()] for p in range(3)}
    assert {p: [(r.key, r.value, r.headers) for r in records] for p, records in found.items()} == {
        p: [(b"k%d" % n, None if n == 5 else b"v%d" % n, (("h", b"%d" % n),)) for n in (p, p + 3)] for p in range(3)
    }


def test_a_record_that_is_too_large_fails_the_job(
    tables: SparkTopics, dialogue: Dialogue, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(**{"max.message.bytes": 500})
    with pytest.raises(Exception, match="RecordTooLarge"):
        tables.write("SELECT repeat('x', 1000) AS value", topic=topic)
    assert dialogue.offset(topic, LATEST).offset == 0


@pytest.mark.parametrize("codec", CODECS[1:])
def test_what_spark_packs_others_unpack_and_the_other_way(
    tables: SparkTopics, dialogue: Dialogue, bootstrap: str, new_topic: Callable[..., str], codec: str
) -> None:
    topic, back, long = new_topic(), new_topic(), "long " * 50
    tables.write(
        f"SELECT concat('{long}', id) AS value FROM range(0, 20, 1, 1)", topic=topic, kafka_compression_type=codec
    )
    assert {b.attributes & 7 for b in dialogue.read(topic)} == {CODECS.index(codec)}
    reader = ConfluentReader(Endpoint(bootstrap), Reading(partitions=[(topic, 0)]))
    wanted = [f"{long}{number}" for number in range(20)]
    assert [(m.value or b"").decode() for m in read(reader, 20)] == wanted
    reader.close()
    producer = ConfluentProducer(Endpoint(bootstrap), Writing(compression=codec))
    producer.write(back, [Message(value.encode()) for value in wanted])
    assert {b.attributes & 7 for b in dialogue.read(back)} == {CODECS.index(codec)}
    assert tables.values(back) == wanted
