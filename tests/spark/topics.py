"""The small pipeline of pipelines.py, on a topic: orders are sent to it, keyed by order."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from tests.spark.pipelines import PIPELINE
from waterclock.streaming.topics.records import HEARTBEAT

PATIENCE_S = 30


def make_topic_pipeline(folder: Path, bootstrap: str, topic: str, *, way: str = "python", more: str = "") -> Path:
    """A ready folder; returns the pipeline's file. `more` are further lines of [source]."""
    folder.mkdir(parents=True, exist_ok=True)
    source = f'format = "kafka"\nservers = "{bootstrap}"\ntopics = ["{topic}"]\nway = "{way}"\n{more}'
    file = folder / "pipeline.toml"
    file.write_text(PIPELINE.replace('path = "in"\nfiles_per_batch = {files_per_batch}', source))
    return file


def value(row: dict[str, Any]) -> str:
    """An order as JSON."""
    return json.dumps({**row, "at": row["at"].isoformat()})


class Sender:
    """Sends to one topic; what it was given is acknowledged when a method returns."""

    def __init__(self, bootstrap: str, topic: str, **settings: Any) -> None:
        told = {name.replace("_", "."): setting for name, setting in settings.items()}
        self.producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0, "linger.ms": 0, **told})
        self.topic = topic

    def orders(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            self.producer.produce(self.topic, value(row), row["order"])
        self._flush()

    def put(self, *values: str | bytes | None, partition: int = 0, **more: Any) -> None:
        for each in values:
            self.producer.produce(self.topic, each, partition=partition, **more)
        self._flush()

    def heartbeat(self, moment: str, *partitions: int) -> None:
        for partition in partitions:
            self.put(None, partition=partition, headers={HEARTBEAT: moment})

    def in_transaction(self, *values: str | bytes, committed: bool, partition: int = 0) -> None:
        self.producer.begin_transaction()
        self.put(*values, partition=partition)
        end = self.producer.commit_transaction if committed else self.producer.abort_transaction
        end(PATIENCE_S)

    def _flush(self) -> None:
        assert self.producer.flush(PATIENCE_S) == 0
