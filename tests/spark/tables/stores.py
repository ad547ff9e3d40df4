"""Tables of Spark's catalogs as stores of the contract suites: Delta Lake's in Spark's own catalog, Iceberg's in another.

Rule 1: all of them are in one session, which one process keeps. A child that is to be killed is another driver's Python on
        the same Java: it costs no start of Spark, and sees the same catalogs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from tests.conftest import QUICK
from waterclock.bench.servers import tables
from waterclock.spark import SparkTable
from waterclock.spark.session.session import start
from waterclock.spark.tables.catalog import quoted

_names = count(1)
# what makes the Java of this process known to a child's pyspark
_PORT, _SECRET = "PYSPARK_GATEWAY_PORT", "PYSPARK_GATEWAY_SECRET"


@contextmanager
def session_with_tables(folder: Path) -> Iterator[SparkSession]:
    """A session that has both catalogs; pytest's skip, with the reason, where there can be none."""
    if reason := tables.missing():
        pytest.skip(f"{reason}: make test-tables brings that")
    spark = start("tables", 2, {**QUICK, **tables.settings(folder)}, folder / "spark.log").spark
    try:
        yield spark
    finally:
        spark.stop()


def attached(port: int, secret: str) -> SparkSession:
    """The session of another process's Java, for a child of the tests'."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    with patch.dict(os.environ, {_PORT: str(port), _SECRET: secret}):
        gateway = launch_gateway()
    java = gateway.jvm.org.apache.spark.sql.classic.SparkSession.getDefaultSession().get()
    context = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(java.sparkContext())
    conf = SparkConf(_jvm=gateway.jvm, _jconf=context.getConf())
    return SparkSession(SparkContext(gateway=gateway, jsc=context, conf=conf), java)


class TableStore:
    """A namespace of its own, in the catalog of one provider."""

    impossible_tables = ("", "a b", ".a", "lake.", 'a"b', "a\x00b", "é", "a`b")

    def __init__(self, spark: SparkSession, provider: str) -> None:
        self.spark, self.provider = spark, provider
        self.namespace = f"{'lake' if provider == 'iceberg' else 'spark_catalog'}.n{next(_names)}"
        spark.sql(f"CREATE NAMESPACE {self.namespace}")

    def named(self, table: str) -> str:
        return table if table in self.impossible_tables else f"{self.namespace}.{table}"

    def sink(self, table: str = "results") -> SparkTable:
        return SparkTable(self.named(table), session=self.spark)

    def source(self) -> str:
        java = self.spark.sparkContext._gateway.gateway_parameters  # type: ignore[union-attr]
        room = "__import__('tests.spark.tables.stores', fromlist=['attached'])"
        session = f"{room}.attached({java.port}, {java.auth_token!r})"
        return f"{room}.SparkTable({self.named('results')!r}, session={session})"

    def look(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        return self._rows(f"SELECT {columns} FROM {self._fresh(table)} ORDER BY 1, 2")

    def in_order(self, columns: str, table: str = "results") -> list[tuple[Any, ...]]:
        order = "batch_id" if table.endswith("_dead_letters") else "batch_id, batch_row"
        return self._rows(f"SELECT {columns} FROM {self._fresh(table)} ORDER BY {order}")

    def make_table_of_others(self, table: str) -> None:
        self.spark.sql(f"CREATE TABLE {self._name(table)} (batch_id bigint, mine bigint) USING {self.provider}")

    def tables(self) -> list[str]:
        return sorted(row["tableName"] for row in self.spark.sql(f"SHOW TABLES IN {self.namespace}").collect())

    def _name(self, table: str) -> str:
        return quoted(self.named(table))

    def _fresh(self, table: str) -> str:
        self.spark.catalog.refreshTable(self._name(table))
        return self._name(table)

    def _rows(self, statement: str) -> list[tuple[Any, ...]]:
        return [tuple(row) for row in self.spark.sql(statement).collect()]
