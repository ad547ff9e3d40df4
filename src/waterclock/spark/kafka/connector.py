"""The way "connector": Spark's own Kafka source, where its jars are there, to the same packed rows.

Rule 1: no version of the connector is named here: its jars come with the cluster, or with the session's settings.
Rule 2: settings that librdkafka and Kafka's Java client call differently are given in both languages (TRANSLATED).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import AnalysisException

from waterclock.errors import EnvironmentMissing
from waterclock.kafka import Offsets, Partition
from waterclock.spark.kafka.packing import PacksRecords
from waterclock.spark.packing.packs import in_workers
from waterclock.streaming.toml.topics import Topics
from waterclock.streaming.topics.offsets import to_json
from waterclock.streaming.topics.records import Headers, Records

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

WAYS = (
    'give its jars under [spark.conf] as "spark.jars", or its name as "spark.jars.packages" '
    '(org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION, in Spark\'s own version), or take way = "python" in [source]'
)
MISSING = f"Spark's own Kafka connector is not there: {WAYS}"
_COLUMNS = ("topic", "partition", "offset", "nullif(unix_millis(timestamp), -1) AS ms", "key", "value", "headers")
_SAME = ("security.protocol", "ssl.endpoint.identification.algorithm", "client.id")
EARLIEST = -2  # the first record that a partition still has, in the connector's words


def packed_topics(
    session: SparkSession, topics: Topics, packing: PacksRecords, starting: Offsets, ending: Offsets | None
) -> DataFrame:
    """The packed rows of a stream by Spark's connector; records from `ending` on are passed over if it is given.

    `starting` names every partition that there is, as the connector needs it, with the offset where it begins, or
    EARLIEST. EnvironmentMissing if the session does not know the connector.
    """
    try:
        raw = session.readStream.format("kafka").options(**_options(topics, starting)).load()
    except AnalysisException as error:
        if "kafka" not in str(error).lower() or "data source" not in str(error).lower():
            raise
        raise EnvironmentMissing(MISSING, door="spark") from error
    return in_workers(raw.selectExpr(*_COLUMNS), _packer(packing, list(starting), ending), packing.columns)


def java_settings(client: Mapping[str, str]) -> dict[str, str]:
    """Settings of librdkafka as Kafka's Java client calls them."""
    translated = {name: client[name] for name in _SAME if name in client}
    mechanism = client.get("sasl.mechanism", client.get("sasl.mechanisms"))
    if mechanism:
        translated["sasl.mechanism"] = mechanism
    if "sasl.username" in client:
        translated["sasl.jaas.config"] = _jaas(
            mechanism or "PLAIN", client["sasl.username"], client.get("sasl.password", "")
        )
    if "ssl.ca.location" in client:
        translated |= {"ssl.truststore.location": client["ssl.ca.location"], "ssl.truststore.type": "PEM"}
    return translated


def _jaas(mechanism: str, user: str, password: str) -> str:
    module = "scram.Scram" if mechanism.startswith("SCRAM") else "plain.Plain"
    name, secret = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password))
    return f'org.apache.kafka.common.security.{module}LoginModule required username="{name}" password="{secret}";'


def _options(topics: Topics, starting: Offsets) -> dict[str, str]:
    """Settings of the client, over them the connector's own, and over those what cannot be set (toml/topics.py, rule 1)."""
    return {
        **{f"kafka.{name}": value for name, value in java_settings(topics.client).items()},
        **topics.connector,
        "kafka.bootstrap.servers": topics.servers,
        "kafka.isolation.level": "read_committed",
        "subscribe": ",".join(topics.topics),
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": str(topics.per_batch),
        "failOnDataLoss": str(topics.on_loss == "fail").lower(),
        "startingOffsets": json.dumps(to_json(starting)),
    }


# In the workers ------------------------------------------------------------------------------------------------


def _packer(
    packing: PacksRecords, known: list[Partition], ending: Offsets | None
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """Rows of the connector in, packed rows out."""

    def pack(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for records in _by_partition(batch, ending):
                yield packing.pack(records, known)

    return pack


def _by_partition(batch: pa.RecordBatch, ending: Offsets | None) -> Iterator[Records]:
    rows = zip(*(column.to_pylist() for column in batch.columns), strict=True)
    for (topic, partition), run in groupby(rows, key=lambda row: row[:2]):
        end = None if ending is None else ending.get((topic, partition), 0)
        kept = [row for row in run if end is None or row[2] < end]
        if kept:
            _, _, offsets, times_ms, keys, values, headers = map(list, zip(*kept, strict=True))
            yield Records(topic, partition, offsets, times_ms, keys, values, list(map(_pairs, headers)))


def _pairs(headers: list[dict[str, Any]] | None) -> Headers | None:
    return None if headers is None else [(header["key"], header["value"]) for header in headers]
