"""Which stream the [source] of a pipeline's file means: files of a folder, or topics of Kafka."""

from __future__ import annotations

from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.source import Stream
from waterclock.spark.toml.config import Config, Source


def stream_of(config: Config, checkpoint: Checkpoint) -> Stream:
    """The stream that the pipeline's [source] asks for; EnvironmentMissing where a package for it is not installed."""
    if isinstance(config.source, Source):
        from waterclock.spark.files.source import FileStream

        return FileStream(config, config.source, checkpoint)
    from waterclock.spark.kafka.stream import TopicStream

    return TopicStream(config, config.source, checkpoint)
