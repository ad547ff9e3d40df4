"""What the planner of a stream of topics finds out of a broker and hands to the workers; no session is started."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

if not all(map(importlib.util.find_spec, ("pyspark", "confluent_kafka", "kio"))):
    pytest.skip("needs waterclock[spark,kafka,broker]", allow_module_level=True)

from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.spark.checkpoint import Checkpoint
from waterclock.spark.config import load
from waterclock.spark.source import stream_of
from waterclock.testing import Broker


@contextmanager
def planner(file: Path) -> Iterator[Any]:
    """The reader that Spark would be given for the pipeline in `file`."""
    config, made = load(file), []
    checkpoint = Checkpoint(config.checkpoint)
    checkpoint.heartbeats.mkdir(parents=True, exist_ok=True)
    session: Any = MagicMock(dataSource=SimpleNamespace(register=made.append))
    with closing(stream_of(config, checkpoint)) as stream:
        stream._by_python(session, True)  # type: ignore[attr-defined]
    (source,) = made
    reader = source({}).streamReader(None)
    yield reader
    reader.stop()


@pytest.mark.parametrize("starting", ["latest", "earliest", "2026-01-01T00:00:00Z"])
def test_where_the_first_batch_begins_is_found_out_once(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path, starting: str
) -> None:
    topic = f"{kafka_topic}-first"
    kafka_broker.create_topic(topic, 2)
    sender = Sender(kafka_broker.bootstrap, topic)
    sender.put(*"012")
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic, more=f'starting = "{starting}"')
    with planner(file) as first:
        begun = first.initialOffset()
    assert begun == {topic: {"0": 3 if starting == "latest" else 0, "1": 0}}
    sender.put(*"345")
    with planner(file) as again:
        assert again.initialOffset() == begun
