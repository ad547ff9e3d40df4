"""Lakes whose results come as files that tasks wrote, for the contract suites; two writers, and writers that are killed."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from tests.sinks.stores import DeltaStore, IcebergStore, batch
from waterclock import sinks
from waterclock.errors import SinkLost
from waterclock.sinks import Batch, Replica, Sink, apply_once
from waterclock.sinks.base import ResultFile
from waterclock.sinks.files import ResultFiles
from waterclock.sinks.tables import with_letters


def part_of(files: ResultFiles, part: int, attempt: int, rows: pa.Table) -> tuple[list[ResultFile], pa.Table]:
    """What a task writes: the file, where there is a row, and dead letters."""
    writer = files.begin(part, attempt)
    refused = writer.add(rows)
    written = writer.end()
    return [written] if written is not None else [], refused


class ByExecutors:
    """A sink that takes each batch as two tasks wrote it; the second one was tried twice, and its first try is lost."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def write(self, batch: Batch) -> Batch:
        files = self._sink.result_files(batch.batch_id)
        half = batch.results.num_rows // 2
        shares = [batch.results.slice(0, half), batch.results.slice(half)]
        part_of(files, 1, 6, shares[1])
        done = [part_of(files, part, 7, rows) for part, rows in enumerate(shares)]
        named = tuple(file for written, _ in done for file in written)
        given = with_letters(batch, pa.concat_tables([refused for _, refused in done]))
        written: Batch = self._sink.write(replace(given, results=batch.results.slice(0, 0), files=named))
        return written


def _wrapped(source: str) -> str:
    inner = f"{source[:-1]}, written_by='executors')"
    return f"__import__('tests.sinks.file_stores', fromlist=['sinks']).ByExecutors({inner})"


class DeltaFileStore(DeltaStore):
    def sink(self, table: str = "results", mirror: Replica | None = None) -> Sink:  # type: ignore[override]
        return ByExecutors(sinks.DeltaSink(f"{self.folder}/{table}", mirror=mirror, written_by="executors"))

    def source(self) -> str:
        return _wrapped(super().source())


class IcebergFileStore(IcebergStore):
    def sink(self, table: str = "results") -> Sink:  # type: ignore[override]
        return ByExecutors(sinks.IcebergSink(self.named(table), self.settings, written_by="executors"))

    def source(self) -> str:
        return _wrapped(super().source())


def collide(late: Sink, quick: Sink, number: int) -> None:
    """Both look for a batch, write it, and commit: of two writers who come to that at once the late one is refused."""
    for each in (late, quick):
        each.begin()
        assert each.is_applied("q", number) is False
        each.write(batch(number))
    quick.commit()
    with pytest.raises(SinkLost, match=re.escape(f"another writer was quicker at {late.describe()}")):
        late.commit()
    assert apply_once(late, batch(number)) is False


# where the catalog is to be given the commit of that number: its files are written
ICEBERG_KILL = """
import os, signal
from pyiceberg.catalog.sql import SqlCatalog
commit, steps = SqlCatalog.commit_table, iter(range(9))
def dying(*arguments):
    if next(steps) == {step}:
        os.kill(os.getpid(), signal.SIGKILL)
    return commit(*arguments)
SqlCatalog.commit_table = dying
apply_once(sink, batch(1))
"""
