"""Tables of plain Parquet files: what several files of tests ask of them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.sinks.spark_view import seen_by_spark
from tests.sinks.stores import SCHEMA, DeltaStore, batch, columns_in
from waterclock import sinks
from waterclock.sinks import Mirror, ParquetSink, Replica, apply_once
from waterclock.sinks.parquet import manifests
from waterclock.sinks.parquet.parquet_tables import batches, dead_letter_files, dead_letters, files, read


class ParquetStore:
    """Folders of plain files, read by their manifests."""

    impossible_tables = DeltaStore.impossible_tables

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "deep" / "plain"

    def sink(self, table: str = "results", mirror: Mirror | Replica | None = None) -> sinks.ParquetSink:
        assert mirror is None, "a folder of Parquet files is no mirror"
        return sinks.ParquetSink(f"{self.folder}/{table}")

    def source(self) -> str:
        return f"sinks.ParquetSink({str(self.folder / 'results')!r})"

    def mirroring(self, table: str, mirror: str) -> str:
        raise NotImplementedError("what is written there stays")

    def look(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        return sorted(self.in_order(columns, table), key=lambda row: row[:2])

    def in_order(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        names = columns_in(columns)
        return [tuple(row[name] for name in names) for row in self.rows(table).to_pylist()]

    def rows(self, table: str = "results") -> pa.Table:
        for end, found in (("_dead_letters", dead_letters), ("_batches", batches)):
            if table.endswith(end):
                return found(self.folder / table.removesuffix(end))
        return read(self.folder / table)

    def make_table_of_others(self, table: str) -> None:
        (self.folder / table).mkdir(parents=True)
        (self.folder / table / "mine.parquet").write_bytes(b"mine")

    def tables(self) -> list[str]:
        return sorted(path.name for path in self.folder.glob("*")) if self.folder.is_dir() else []


def table(store: ParquetStore) -> Path:
    return store.folder / "results"


def lying(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*.parquet")}


def named(paths: list[str]) -> list[str]:
    return [Path(path).name for path in paths]


def made(folder: Path, count: int) -> None:
    """A table of so many batches."""
    with closing(ParquetSink(folder)) as sink:
        sink.open(SCHEMA)
        for number in range(count):
            apply_once(sink, batch(number))


def manifest(store: ParquetStore, number: int) -> Path:
    return store.folder / "results_batches" / manifests.name_of(number)


def agree(store: ParquetStore) -> None:
    """Spark and the manifests name the same files."""
    assert seen_by_spark(table(store)) == named(files(table(store)))
    assert seen_by_spark(store.folder / "results_dead_letters") == named(dead_letter_files(table(store)))
