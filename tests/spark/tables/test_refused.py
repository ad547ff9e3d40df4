"""What cannot be a table that Spark writes once, told in a sentence: with any Spark, and without any jar."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.sinks.stores import SCHEMA
from tests.spark.least_pipeline import least_with
from waterclock.errors import UsageError
from waterclock.sinks.catalog import SparkCatalogTable
from waterclock.spark import SparkTable
from waterclock.spark.tables import catalog


def of_file(folder: Path, sink: str) -> SparkCatalogTable:
    config = least_with(folder, f"[sink]\nformat = 'table'\n{sink}\n")
    assert config.is_remote()  # so that Spark is started before its tables are asked for
    assert isinstance(config.sink, SparkCatalogTable)
    return config.sink


def test_a_pipeline_names_a_table_as_sparks_sql_does(tmp_path: Path) -> None:
    made = of_file(tmp_path, "table = 'lake.shop.late'\nusing = 'iceberg'")
    assert made == SparkCatalogTable("lake.shop.late", "iceberg")
    assert made.place == made.sink().describe() == "the table 'lake.shop.late' in Spark's catalog"


@pytest.mark.parametrize(
    ("sink", "told"),
    [
        ("table = 'late orders'", "must be named as in Spark's SQL"),
        ("table = 'a.b'\nusing = 'parquet'", "'using' must be one of delta, iceberg, got 'parquet'"),
        ("table = 'a.b'\nwritten_by = 'executors'", "'written_by' is not known here"),
        ("", "'table' is missing"),
    ],
)
def test_what_cannot_be_a_table_of_sparks_is_refused(tmp_path: Path, sink: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        of_file(tmp_path, sink)


@pytest.mark.spark
@pytest.mark.parametrize("provider", ["parquet", "orc"])
def test_a_table_of_files_is_refused_with_the_reason_and_left_alone(
    spark: SparkSession, tmp_path: Path, provider: str
) -> None:
    spark.sql(f"CREATE TABLE plain_{provider} (batch_id bigint) USING {provider} LOCATION '{tmp_path}/t'")
    try:
        sink = SparkTable(f"plain_{provider}", session=spark)
        for deed in (lambda: sink.open(SCHEMA), sink.remove):
            with pytest.raises(
                UsageError, match=rf"'{provider}', where no batch can be written exactly once: a job that"
            ):
                deed()
        assert spark.catalog.tableExists(f"plain_{provider}")
    finally:
        spark.sql(f"DROP TABLE plain_{provider}")


@pytest.mark.spark
def test_a_new_table_needs_its_kind_where_the_catalog_makes_several(spark: SparkSession) -> None:
    with (
        closing(SparkTable("late_orders", session=spark)) as sink,
        pytest.raises(UsageError, match="say using = 'delta'"),
    ):
        sink.open(SCHEMA)


@pytest.mark.spark
@pytest.mark.parametrize("using", ["delta", "iceberg"])
def test_a_library_that_the_session_lacks_is_told(spark: SparkSession, using: str) -> None:
    sink = SparkTable("late_orders", using=using, session=spark)
    with pytest.raises(
        UsageError, match=r"ClassNotFoundException: .* is not in Spark's session, or was built"
    ) as caught:
        sink.open(SCHEMA)
    assert "\n" not in str(caught.value)
    assert not spark.catalog.tableExists("late_orders")


class Thrown:
    """What Java threw, as py4j shows it."""

    def __init__(self, told: str, cause: Thrown | None = None) -> None:
        self.toString, self.getCause = (lambda: told), (lambda: cause)


def thrown(*told: str) -> Exception:
    error, cause = Exception("An error occurred while calling o38.append."), None
    for each in reversed(told):
        cause = Thrown(each, cause)
    error.java_exception = cause  # type: ignore[attr-defined]
    return error


def test_a_library_for_another_spark_is_told_with_the_last_cause() -> None:
    linkage = "java.lang.NoSuchMethodError: 'void org.apache.spark.sql.execution.LogicalRDD.<init>(...)'"
    told = catalog.explained(thrown("org.apache.spark.SparkException: Job aborted", linkage))
    assert told.startswith(
        f"{linkage}. The library of Delta Lake or Iceberg is not in Spark's session, or was built for"
    )


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("org.apache.iceberg.exceptions.ValidationException: Found conflicting files", True),
        ("io.delta.exceptions.ConcurrentTransactionException: This error occurs when", True),
        ("org.apache.iceberg.exceptions.CommitFailedException: Version 4 already exists", True),
        ("java.net.ConnectException: ValidationException", False),
    ],
)
def test_a_collision_is_told_from_a_failure(name: str, is_one: bool) -> None:
    assert catalog.is_collision(thrown("org.apache.spark.SparkException: Writing job aborted", name)) is is_one
