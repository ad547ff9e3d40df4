"""Pipelines whose results executors write into Delta Lake or Iceberg, and what these tables hold."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from tests.spark.pipelines import make_pipeline

DELTA = 'format = "delta"\npath = "lake/orders"'
ICEBERG = 'format = "iceberg"\ntable = "shop.orders"'
CATALOG = '[sink.catalog]\ntype = "sql"\nuri = "sqlite:///lake/catalog.db"\nwarehouse = "lake"\n'
BY_EXECUTORS = '\nwritten_by = "executors"'
PARTS = ("", "_dead_letters", "_batches")


def lake_pipeline(folder: Path, rows: list[dict[str, Any]], sink: str, files: int = 4) -> Path:
    """A pipeline into `sink` over files of which one has a line of rubbish."""
    file = make_pipeline(folder, rows, files=files)
    second = folder / "in" / "001.jsonl"
    moment = second.stat()
    second.write_text(second.read_text() + "rubbish\n")
    os.utime(second, (moment.st_atime, moment.st_mtime))  # files come in the order of their times
    text = file.read_text().replace('path = "out.db"', sink)
    file.write_text(text.replace("[spark.conf]", CATALOG + "[spark.conf]") if ICEBERG in sink else text)
    return file


def table(folder: Path, part: str = "") -> pa.Table:
    """A table of the sink: what its reader sees."""
    if (folder / "lake" / f"orders{part}").is_dir():
        return DeltaTable(folder / "lake" / f"orders{part}").to_pyarrow_table()
    from pyiceberg.catalog import load_catalog

    lake = {"type": "sql", "uri": f"sqlite:///{folder}/lake/catalog.db", "warehouse": f"file://{folder}/lake"}
    with closing(load_catalog("default", **lake)) as catalog:
        return catalog.load_table(f"shop.orders{part}").scan().to_arrow()


def held(folder: Path, *, numbered: bool = True) -> list[tuple[Any, ...]]:
    """The results, by batch and row; without these two numbers where rows were not written in the same way."""
    found = table(folder).sort_by([("batch_id", "ascending"), ("batch_row", "ascending")])
    names = [name for name in found.column_names if numbered or name != "batch_row"]
    return [tuple(row.values()) for row in found.select(names).to_pylist()]


def beside(folder: Path) -> list[Any]:
    """The dead letters and the batches, without what time and place make of them."""
    letters = table(folder, "_dead_letters").select(["batch_id", "line", "reason", "text"]).to_pylist()
    batches = table(folder, "_batches").select(["batch_id", "counters", "watermark"]).to_pylist()
    return [sorted(map(repr, letters)), sorted(map(repr, batches))]


def orphans(folder: Path) -> set[str]:
    """Files of results that nothing names, as a vacuum of the table finds them."""
    found = DeltaTable(folder / "lake" / "orders")
    return set(found.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False, full=True))
