"""Pipelines whose checkpoint and files lie on a server: HDFS, or an S3 server."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

from tests.spark.pipelines import behind, make_pipeline, orders
from waterclock.bench.servers import hdfs, s3
from waterclock.streaming.places.hadoop import HadoopPath


class Store:
    """A server of files: what a session needs for it, and a new folder on it for each test."""

    def __init__(self, server: hdfs.Hdfs | s3.S3) -> None:
        self.server = server
        self.settings = server.settings if isinstance(server, s3.S3) else {}

    def folder(self) -> HadoopPath:
        return HadoopPath(f"{self.server.uri}/{uuid4().hex}")


def put_files(local: Path, place: HadoopPath) -> None:
    """The files of a folder of this machine, each written later than the one before it, by the clock of the store."""
    before_ms = 0
    for file in sorted(local.iterdir()):
        written_ms = before_ms
        while written_ms <= before_ms:  # an S3 server counts whole seconds
            (place / file.name).write_whole(file.read_bytes())
            written_ms = (place / file.name).written_ms()
        before_ms = written_ms


def pipeline_on(store: Store, folder: Path, files: int) -> Path:
    """A ready folder; returns the pipeline's file."""
    place = store.folder()
    file = behind(str(place), make_pipeline(folder, orders(60), files))
    conf = "".join(f'"{name}" = "{value}"\n' for name, value in store.settings.items())
    file.write_text(file.read_text() + conf)
    put_files(folder / "in", place / "in")
    return file
