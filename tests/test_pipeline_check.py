"""What a pipeline refuses before Spark is started, by what it finds of an earlier run."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.least_pipeline import LEAST
from waterclock.errors import StateMismatch
from waterclock.spark.config import load
from waterclock.spark.pipeline import Pipeline


def test_a_sink_that_lost_the_only_batch_is_refused_where_spark_noted_it_as_done(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "p.toml").write_text(LEAST)
    config = load(tmp_path / "p.toml")
    for name in ("offsets/0", "commits/0"):
        (config.checkpoint / name).parent.mkdir(parents=True, exist_ok=True)
        (config.checkpoint / name).write_text("v1\n{}\n")
    (config.checkpoint / "metadata").write_text('{"id": "q"}')
    with closing(Pipeline(config)) as pipeline, pytest.raises(StateMismatch, match=r"holds no results, but .* up to 0:"):
        pipeline.check()
    (config.checkpoint / "commits" / "0").unlink()  # killed before that: the batch is run again
    with closing(Pipeline(config)) as pipeline:
        pipeline.check()
