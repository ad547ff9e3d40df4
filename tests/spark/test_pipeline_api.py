"""Pipelines written in Python: the same as those of a file, with what a program of one's own may get wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.sinks.five_verbs import FiveVerbs
from tests.spark.pipelines import make_pipeline, orders, table
from waterclock import Rules
from waterclock.errors import StateMismatch, UsageError
from waterclock.sinks import SQLiteSink
from waterclock.spark import Pipeline, folder
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.pipeline import configured
from waterclock.streaming.checkpoint import stored as stored_in
from waterclock.streaming.toml.config import load

ORDERS = (
    Rules(key="order", time="at", type="what", id="id", sequence="n")
    .deduplicate(within="1 day")
    .order(wait="1 hour")
    .delay(after="created", by="30 minutes", emit="remind")
    .expect("paid", after="created", within="20 minutes", otherwise="unpaid")
)
COLUMNS = {"order": "string", "at": "timestamp", "what": "string", "id": "string", "n": "long"}
TOLD = "kind, key, rule, due, source_id"


def expected(rows: list[dict[str, Any]], rules: Rules = ORDERS) -> Counter[tuple[Any, ...]]:
    results = rules.run(rows, "1 hour")
    return Counter((r.kind, r.key, r.rule, f"{r.due:%Y-%m-%d %H:%M:%S.%f}", r.source_id) for r in results)


def a_pipeline(place: Path, **more: Any) -> Pipeline:
    """The pipeline of tests/spark/pipelines.py, in Python."""
    source, sink = folder(place / "in", columns=COLUMNS, files_per_batch=1), SQLiteSink(place / "out.db")
    return Pipeline(
        source, ORDERS, sink, place / "checkpoint", **{"watermark_delay": "1 hour", "name": "orders", **more}
    )


@pytest.mark.spark
def test_a_pipeline_in_python_and_its_file_are_one(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(30)
    file = make_pipeline(tmp_path, rows)
    with a_pipeline(tmp_path) as pipeline:
        assert pipeline.run().pipeline == "orders"  # the active session is taken
    assert Counter(table(tmp_path, TOLD)) == expected(rows)
    with configured(load(file)) as same:  # the checkpoint of one is the other's
        assert same.run(spark).batches == 0


def test_a_file_and_python_give_a_checkpoint_the_same_settings(tmp_path: Path) -> None:
    file = make_pipeline(tmp_path, orders(1))
    with configured(load(file)) as pipeline:
        pipeline.check()
    settings = stored_in(tmp_path / "checkpoint" / "waterclock.json")
    with a_pipeline(tmp_path) as same:
        same.check()
    assert stored_in(Checkpoint(tmp_path / "checkpoint").path / "waterclock.json") == settings
    with (
        a_pipeline(tmp_path, watermark_delay="2 hours") as other,
        pytest.raises(StateMismatch, match="watermark_delay"),
    ):
        other.check()


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"columns": {"order": "text"}}, r"\[source.columns\]: 'order' must be one of string, long"),
        (
            {"columns": COLUMNS, "file_per_batch": 1},
            r"'file_per_batch' is not known here; did you mean 'files_per_batch'",
        ),
        ({"columns": COLUMNS, "files_per_batch": 0}, r"'files_per_batch' must be at least 1"),
        ({"columns": COLUMNS, "format": "kafka"}, r"'path' is not known here"),
    ],
)
def test_a_wrong_source_is_refused_in_the_words_of_the_file(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        folder("/in", **wrong)


def test_what_is_no_source_or_does_not_fit_the_rules_is_refused_at_the_call(tmp_path: Path) -> None:
    sink = SQLiteSink(tmp_path / "out.db")
    with pytest.raises(TypeError, match=r"Pipeline\(source=\) must be a folder\(\.\.\.\), .* got '/in'"):
        Pipeline("/in", ORDERS, sink, tmp_path / "cp")  # type: ignore[arg-type]
    few = folder(tmp_path / "in", columns={"order": "string"})
    with pytest.raises(UsageError, match=r"\[rules\] names the column 'at'"):
        Pipeline(few, ORDERS, sink, tmp_path / "cp")
    with pytest.raises(UsageError, match=r"and the source folder .* lie in each other"):
        Pipeline(folder(tmp_path, columns=COLUMNS), ORDERS, sink, tmp_path / "cp")
    with pytest.raises(UsageError, match=r"Pipeline\(name=\): 'name' must be"):
        Pipeline(folder(tmp_path / "in", columns=COLUMNS), ORDERS, sink, tmp_path / "cp", name="a b")
    sink.close()


@pytest.mark.long(seconds=5)
@pytest.mark.spark
def test_an_object_with_five_verbs_is_written_to_as_a_sink_of_ours(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(10)
    make_pipeline(tmp_path, rows, files=2)
    own = FiveVerbs(tmp_path / "own.db")
    source = folder(tmp_path / "in", columns=COLUMNS)
    for again in (False, True):
        with Pipeline(source, ORDERS, own, tmp_path / "checkpoint", watermark_delay="1 hour") as pipeline:
            assert (pipeline.run(spark).batches == 0) is again
    told = Counter((r.kind, r.source_id) for r in ORDERS.run(rows, "1 hour"))
    assert Counter(row[1:] for row in own.rows()) == told
    own.finish()


def test_a_session_that_a_run_starts_tells_its_story_where_the_commands_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a notebook showed what Java and each worker said, between the cell and its answer
    told = list[tuple[str, Path | None]]()

    def started(name: str, log: Path | None) -> SparkSession:
        told.append((name, log))
        raise InterruptedError

    monkeypatch.setattr("waterclock.spark.pipeline.session_for", started)
    (tmp_path / "in").mkdir()
    with a_pipeline(tmp_path) as pipeline, pytest.raises(InterruptedError):
        pipeline.run()
    assert told == [("orders", tmp_path / "checkpoint" / "spark.log")]
    assert Checkpoint(tmp_path / "checkpoint").buckets() is not None  # it was looked at before, and is the pipeline's


def test_what_is_no_sink_is_refused_at_the_call(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"a sink needs the verbs .*: str lacks begin"):
        Pipeline(folder(tmp_path / "in", columns=COLUMNS), ORDERS, "out.db", tmp_path / "cp")
