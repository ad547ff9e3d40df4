"""Columns of a user's on their way through Spark: by place, under names of ours.

Spark and PySpark read a column's name as an expression: a dot in it asks for a field, a backtick quotes. `mapInArrow`
itself asks for each column by its name.

Rule 1: a user's name never reaches a place that reads it so: there the columns are c0, c1, ... in their order.
Rule 2: what leaves Spark, batches in workers and DataFrames that a user sees, has the user's names again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

Batches = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]


def by_place(rows: DataFrame) -> tuple[DataFrame, dict[str, Column]]:
    """`rows` with its columns called by their place; and those columns, by the names that they had."""
    ours = [f"c{place}" for place in range(len(rows.columns))]
    return rows.toDF(*ours), dict(zip(rows.columns, map(F.col, ours), strict=True))


def in_workers(rows: DataFrame, function: Batches, columns: Any) -> DataFrame:
    """What `function` makes of `rows` in Spark's Python workers: batches with the names of `rows` in, `columns` out."""
    names = rows.columns

    def named(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return function(batch.rename_columns(names) for batch in batches)

    return by_place(rows)[0].mapInArrow(named, columns)
