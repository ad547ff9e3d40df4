"""A pipeline on Spark and without it: the same results, and each refuses the other's checkpoint."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.local.running import kinds, run_locally
from tests.spark.pipelines import make_pipeline, orders, run, table
from tests.streaming.files.values import ONLY_SPARK, TIME, VALUES
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


def test_several_sinks_are_given_alike(spark: SparkSession, tmp_path: Path) -> None:
    asks = '[[sink]]\npath = "out.db"\ntakes = ["results"]\ncolumns = ["event_at", "key", "due", "result_id"]\n'
    asks += '[[sink]]\npath = "letters/out.db"\ntakes = ["late", "dead_letters"]\n'
    local, sparks = (make_pipeline(tmp_path / name, orders(60), 5) for name in ("local", "spark"))
    for file in (local, sparks):
        file.write_text(file.read_text().replace('[sink]\npath = "out.db"\n', asks))
        bad = file.parent / "in" / "004.jsonl"
        bad.write_text(bad.read_text() + "{\n")  # the newest
    run_locally(local)
    run(spark, sparks)
    mine, theirs = ([row[1:] for row in table(file.parent)] for file in (local, sparks))
    assert sorted(mine, key=str) == sorted(theirs, key=str) != []
    for file in (local, sparks):
        with closing(sqlite3.connect(file.parent / "letters" / "out.db")) as db:
            assert db.execute("SELECT line, text FROM results_dead_letters").fetchall()[0][1] == "{"
            assert db.execute("SELECT count(*) FROM results").fetchall() == [(0,)]


def test_csv_is_read_alike_or_not_at_all(spark: SparkSession, tmp_path: Path) -> None:
    lines: list[str] = []
    for place, (kind, values) in enumerate(VALUES.items()):
        for text in [*values, *ONLY_SPARK.get(kind, ())]:
            others = ["x", "1", "1", "0.5", "true", TIME]
            lines.append(",".join([f"k{len(lines)}", TIME, *others[:place], text, *others[place + 1 :]]))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("\n".join(["k,t,s,l,i,d,b,v", *lines, ""]))
    local, sparks = (tmp_path / name / "pipeline.toml" for name in ("local", "spark"))
    for file in (local, sparks):
        file.parent.mkdir()
        file.write_text(CSV.replace('"in"', f'"{tmp_path}/in"'))
    run_locally(local)
    run(spark, sparks)
    asked = "event_k, event_t, event_s, event_l, event_i, event_d, event_b, event_v"
    mine, theirs = (table(file.parent, asked) for file in (local, sparks))
    assert set(map(str, mine)) <= set(map(str, theirs))
    more = [text for texts in ONLY_SPARK.values() for text in texts]
    assert len(theirs) - len(mine) == len(more)
    assert [type(value) for value in mine[0]] == [type(value) for value in theirs[0]]


CSV = """
[source]
format = "csv"
path = "in"
[source.options]
header = true
[source.columns]
k = "string"
t = "timestamp"
s = "string"
l = "bigint"
i = "int"
d = "double"
b = "boolean"
v = "timestamp"
[rules]
key = "k"
time = "t"
[sink]
path = "out.db"
"""
