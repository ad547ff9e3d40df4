"""What Spark's own connector is told, and what its rows become; no session is started."""

from __future__ import annotations

import importlib.util
import json
from typing import Any

import pyarrow as pa
import pytest

if not importlib.util.find_spec("pyspark") or not importlib.util.find_spec("confluent_kafka"):
    pytest.skip("needs waterclock[spark,kafka]", allow_module_level=True)

from waterclock.spark.kafka import connector
from waterclock.streaming.toml.topics import Topics

STARTING = {("a", 0): connector.EARLIEST, ("a", 1): 5, ("b", 0): connector.EARLIEST}


def topics(client: dict[str, str] | None = None, **options: str) -> Topics:
    told = {name.replace("_", "."): value for name, value in options.items()}
    return Topics("s:1", ("a", "b"), {}, {}, "latest", "latest", 7, "connector", "go on", client or {}, told)


def options(made: Topics) -> dict[str, str]:
    return connector._options(made, STARTING)


def test_the_connector_is_told_what_the_table_says() -> None:
    told = options(topics())
    assert {name: told[name] for name in ("subscribe", "maxOffsetsPerTrigger", "failOnDataLoss")} == {
        "subscribe": "a,b",
        "maxOffsetsPerTrigger": "7",
        "failOnDataLoss": "false",
    }


def test_offsets_to_start_from_name_every_partition_as_the_connector_wants_it() -> None:
    told = json.loads(options(topics())["startingOffsets"])
    assert told == {"a": {"0": -2, "1": 5}, "b": {"0": -2}}


def test_what_keeps_exactly_once_cannot_be_set() -> None:
    told = options(topics(kafka_isolation_level="read_uncommitted", subscribe="other", kafka_client_id="mine"))
    assert (told["kafka.isolation.level"], told["subscribe"], told["kafka.client.id"]) == (
        "read_committed",
        "a,b",
        "mine",
    )


@pytest.mark.parametrize(
    ("mechanism", "module"), [("PLAIN", "plain.PlainLoginModule"), ("SCRAM-SHA-512", "scram.ScramLoginModule")]
)
def test_a_user_and_a_password_are_told_in_the_words_of_the_java_client(mechanism: str, module: str) -> None:
    client = {
        "sasl.mechanisms": mechanism,
        "sasl.username": "ann",
        "sasl.password": 'a"b\\c',
        "security.protocol": "SASL_SSL",
    }
    told = connector.java_settings({**client, "ssl.ca.location": "/ca.pem"})
    assert told == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'org.apache.kafka.common.security.{module} required username="ann" password="a\\"b\\\\c";',
        "ssl.truststore.location": "/ca.pem",
        "ssl.truststore.type": "PEM",
    }


def batch(*rows: tuple[str, int, int, bytes | None]) -> pa.RecordBatch:
    """Rows as the connector gives them: topic, partition, offset, value."""
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    columns: list[Any] = [*map(list, zip(*rows, strict=True))]
    return pa.RecordBatch.from_arrays(
        [
            pa.array(columns[0]),
            pa.array(columns[1], pa.int32()),
            pa.array(columns[2], pa.int64()),
            pa.array([1_000] * len(rows), pa.int64()),
            pa.array([b"k"] * len(rows), pa.binary()),
            pa.array(columns[3], pa.binary()),
            pa.array([[{"key": "h", "value": b"x"}, {"key": "h", "value": None}]] + [None] * (len(rows) - 1), headers),
        ],
        ["topic", "partition", "offset", "ms", "key", "value", "headers"],
    )


def test_rows_of_a_batch_are_taken_apart_by_partition() -> None:
    rows = batch(("a", 0, 5, b"x"), ("a", 0, 7, None), ("a", 1, 0, b"y"), ("b", 0, 0, b"z"))
    found = list(connector._by_partition(rows, None))
    assert [(each.topic, each.partition, each.offsets, each.values) for each in found] == [
        ("a", 0, [5, 7], [b"x", None]),
        ("a", 1, [0], [b"y"]),
        ("b", 0, [0], [b"z"]),
    ]
    assert found[0].headers == [[("h", b"x"), ("h", None)], None]
    assert (found[0].keys, found[0].times_ms) == ([b"k", b"k"], [1_000, 1_000])


def test_after_the_close_nothing_is_taken_that_came_later() -> None:
    rows = batch(("a", 0, 5, b"x"), ("a", 0, 6, b"late"), ("a", 1, 0, b"new partition"))
    found = list(connector._by_partition(rows, {("a", 0): 6}))
    assert [(each.partition, each.offsets) for each in found] == [(0, [5])]
