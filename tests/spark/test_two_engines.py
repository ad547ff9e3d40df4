"""A pipeline on Spark and without it: the same results, and each refuses the other's checkpoint."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.local.running import kinds, run_locally
from tests.spark.pipelines import make_pipeline, orders, run, table
from waterclock.errors import WaterclockError

pytestmark = pytest.mark.spark


def test_the_results_are_those_of_spark(spark: SparkSession, tmp_path: Path) -> None:
    local, sparks = (make_pipeline(tmp_path / name, orders(60), 5) for name in ("local", "spark"))
    run_locally(local)
    summary = run(spark, sparks)
    assert kinds(table(local.parent)) == kinds(table(sparks.parent)) != []
    mine = {name: n for name, n in run_locally(local).totals.items() if name != "state_bytes"}
    assert mine == {name: n for name, n in summary.totals.items() if name != "state_bytes"}


def test_each_engine_refuses_the_others_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    for first, second in ((run_locally, lambda file: run(spark, file)), (lambda file: run(spark, file), run_locally)):
        file = make_pipeline(tmp_path / f"{id(first)}", orders(5), 1)
        first(file)
        before = table(file.parent)
        with pytest.raises(WaterclockError, match=r"engine|another query|changed since"):
            second(file)
        assert table(file.parent) == before
