"""How far a pipeline is behind its source, and what Spark reports of a query's batches."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

import pytest

if importlib.util.find_spec("pyspark") is None:
    pytest.skip("needs waterclock[spark]", allow_module_level=True)

from confluent_kafka import Producer

from tests.spark.least_pipeline import LEAST
from waterclock.broker import Broker
from waterclock.clock import ManualClock
from waterclock.kafka import client as clients
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.watching import Behind, listening
from waterclock.streaming.statistics import Gatherer
from waterclock.streaming.toml.config import Config, load


def config_of(folder: Path, source: str) -> Config:
    (folder / "in").mkdir()
    (folder / "pipeline.toml").write_text(LEAST.replace('path = "in"', source))
    return load(folder / "pipeline.toml")


def taken(checkpoint: Checkpoint, offsets: str) -> None:
    """As after a batch of Spark's: a version, the batch's settings, a line for each source."""
    file = checkpoint.path / "offsets" / "0"
    file.parent.mkdir(parents=True)
    file.write_text(f"v1\n{{}}\n{offsets}\n-")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as made:
        made.create_topic("orders", partitions=2)
        yield made


@pytest.fixture
def behind(broker: Broker, tmp_path: Path) -> Iterator[tuple[Behind, Checkpoint]]:
    config = config_of(tmp_path, f'format = "kafka"\nservers = "{broker.bootstrap}"\ntopics = ["orders"]')
    checkpoint = Checkpoint(config.checkpoint)
    made = Behind(config.source, checkpoint)
    yield made, checkpoint
    made.close()


def produce(broker: Broker, partition: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    for _ in range(count):
        producer.produce("orders", b"{}", partition=partition)
    assert producer.flush(30) == 0


def test_records_that_no_batch_took_are_told_by_partition_as_they_come(
    broker: Broker, behind: tuple[Behind, Checkpoint]
) -> None:
    source, checkpoint = behind
    produce(broker, 0, 5)
    taken(checkpoint, '{"orders": {"0": 2}}')  # nothing was read of partition 1
    assert source.of({}) == {"orders/0": 3, "orders/1": 0}
    produce(broker, 1, 4)
    assert source.of({}) == {"orders/0": 3, "orders/1": 4}


def test_before_the_first_batch_it_is_not_known(broker: Broker, behind: tuple[Behind, Checkpoint]) -> None:
    produce(broker, 0, 5)
    assert behind[0].of({}) is None


def test_a_broker_that_is_away_leaves_it_unknown(
    broker: Broker, behind: tuple[Behind, Checkpoint], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "_ANSWER_S", 0.5)
    source, checkpoint = behind
    taken(checkpoint, '{"orders": {"0": 0, "1": 0}}')
    assert source.of({}) == {"orders/0": 0, "orders/1": 0}
    broker.close()
    assert source.of({}) is None


def test_a_damaged_checkpoint_leaves_it_unknown(behind: tuple[Behind, Checkpoint]) -> None:
    taken(behind[1], "{")
    assert behind[0].of({}) is None


def test_files_that_no_batch_took_are_counted_without_those_that_spark_does_not_read(tmp_path: Path) -> None:
    config = config_of(tmp_path, 'path = "in"')
    for name in ("a.jsonl", "b.jsonl", "c.jsonl", "_half.jsonl", ".hidden"):
        (tmp_path / "in" / name).touch()
    (tmp_path / "in" / "folder").mkdir()
    source = Behind(config.source, Checkpoint(config.checkpoint))
    assert [source.of({"files": count}) for count in (0, 2, 3, 4)] == [{"": 3}, {"": 1}, {"": 0}, {"": 0}]
    source.close()


def test_a_folder_that_went_away_leaves_it_unknown(tmp_path: Path) -> None:
    config = config_of(tmp_path, 'path = "in"')
    (tmp_path / "in").rmdir()
    assert Behind(config.source, Checkpoint(config.checkpoint)).of({}) is None


QUERY = "5f1bd0f4-96a5-4a48-9f92-5b2f3b8e2b11"
STATE = {
    "operatorName": "transformWithStateExec", "numRowsTotal": 16, "numRowsUpdated": 16, "numRowsRemoved": 0,
    "allUpdatesTimeMs": 5, "allRemovalsTimeMs": 0, "commitTimeMs": 3, "memoryUsedBytes": 4096,
    "numRowsDroppedByWatermark": 0, "numShufflePartitions": 2, "numStateStoreInstances": 2, "customMetrics": {},
}  # fmt: skip
TOLD = {
    "id": QUERY, "runId": QUERY, "name": "orders", "timestamp": "2026-01-01T00:00:00.000Z", "batchId": 7,
    "batchDuration": 250, "numInputRows": 2, "durationMs": {"addBatch": 200, "walCommit": 9}, "eventTime": {},
    "stateOperators": [STATE], "sources": [], "sink": {"description": "ForeachBatchSink", "numOutputRows": -1},
}  # fmt: skip


def test_a_batch_is_told_with_the_id_of_its_query_its_phases_and_its_state() -> None:
    session, event = MagicMock(), MagicMock()
    heard: list[tuple[str, int]] = []
    event.progress.return_value.json.return_value = json.dumps(TOLD)
    gathering = Gatherer("orders", ManualClock())

    def report(query_id: str, progress: Any) -> None:
        heard.append((query_id, progress.batchId))
        gathering.heard(progress)

    with listening(session, report):
        wrapper = session._jvm.org.apache.spark.sql.streaming.PythonStreamingQueryListenerWrapper
        (told,) = wrapper.call_args.args
        told.onQueryProgress(event)
        (added,) = session.streams.addListener.call_args.args
        assert added._jlistener is wrapper.return_value
    session.streams.removeListener.assert_called_once_with(added)
    assert heard == [(QUERY, 7)]
    seen = gathering.seen("files", lambda totals: None)
    assert (seen.state_rows, seen.state_memory_bytes) == (16, 4096)
    assert seen.phases is not None
    assert (seen.phases["addBatch"].last_s, seen.phases["walCommit"].last_s) == (0.2, 0.009)
