"""How much of its source a pipeline has not taken: files of a folder, records of topics on a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from tests.spark.least_pipeline import LEAST
from waterclock.broker import Broker
from waterclock.kafka import client as clients
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.watching import Behind
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
