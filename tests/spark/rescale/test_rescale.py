"""State carried over into other numbers of buckets in the middle of a run: same results, and one checkpoint that counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.rescale.staged import KINDS, in_stages, staged_pipeline
from waterclock.spark.checkpoint.folder import Checkpoint

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("kind", KINDS)
def test_sixteen_to_sixty_four_to_eight_in_the_middle_of_a_run_gives_the_same_table(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    plain = in_stages(spark, staged_pipeline(tmp_path / "plain", kind))
    file = staged_pipeline(tmp_path / "carried", kind)
    assert in_stages(spark, file, (64, 8)) == plain
    assert Checkpoint(tmp_path / "carried" / "checkpoint-64-8").buckets() == 8
