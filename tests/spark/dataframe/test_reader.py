"""Spark's own readers as the source of a pipeline's file: foreign formats, columns that are inferred once, bad lines."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import PIPELINE, orders, table
from tests.spark.test_pipeline_api import TOLD, expected
from waterclock.errors import EnvironmentMissing, StateMismatch, UsageError, WaterclockError
from waterclock.spark.pipeline import configured
from waterclock.streaming.statistics import Summary
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark
REST = PIPELINE[PIPELINE.index("[time]") : PIPELINE.index("[spark.conf]")]
CSV = """
[source]
path = "in"
format = "csv"
files_per_batch = 1
[source.options]
timestampFormat = "dd.MM.yyyy HH:mm:ss.SSSSSS"
header = true
"""
COLUMNS = '[source.columns]\norder = "string"\nat = "timestamp"\nwhat = "string"\nid = "string"\nn = "bigint"\n'
HEAD = "order,at,what,id,n"


def a_file(folder: Path, source: str) -> Path:
    (folder / "in").mkdir(exist_ok=True)
    (folder / "pipeline.toml").write_text(source + REST)
    return folder / "pipeline.toml"


def run(spark: SparkSession, file: Path) -> Summary:
    with configured(load(file)) as pipeline:
        pipeline.check()  # as the command does before Spark is there
        return pipeline.run(spark)


def lines(rows: list[dict[str, Any]]) -> str:
    each = [f"{r['order']},{r['at']:%d.%m.%Y %H:%M:%S.%f},{r['what']},{r['id']},{r['n']}" for r in rows]
    return "\n".join([HEAD, *each, ""])


def letters(folder: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(folder / "out.db")) as db:
        return db.execute("SELECT file, reason, text FROM results_dead_letters").fetchall()


@pytest.mark.long(seconds=12)
def test_gzipped_csv_with_a_foreign_time_format_is_read_and_a_bad_line_is_a_letter_with_its_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = orders(20)
    file = a_file(tmp_path, CSV + COLUMNS)
    for number, part in enumerate((rows[:30], rows[30:])):
        text = lines(part) + ("o1,2026-01-01,paid,x,1\n" if number else "")
        path = tmp_path / "in" / f"{number}.csv.gz"
        path.write_bytes(gzip.compress(text.encode()))
        os.utime(path, (1_700_000_000 + number,) * 2)  # Spark takes the older one first
    summary = run(spark, file)
    assert Counter(table(tmp_path, TOLD)) == expected(rows)
    ((path, reason, text),) = letters(tmp_path)
    assert (Path(path).name, text) == ("1.csv.gz", "o1,2026-01-01,paid,x,1")
    assert reason == "the reader cannot read it by the columns"
    assert (summary.events, summary.totals["dead_letters"]) == (len(rows), 1)
    assert run(spark, file).batches == 0


@pytest.mark.long(seconds=10)
def test_columns_are_inferred_once_and_kept_whatever_comes_later(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(8)
    file = a_file(tmp_path, CSV)
    file.write_text(file.read_text().replace("[rules]\n", "close = false\n[rules]\n", 1))
    with pytest.raises(UsageError, match=r"in holds nothing from which columns could be inferred: declare them"):
        run(spark, file)
    (tmp_path / "in" / "a.csv").write_text(lines(rows[:10]))
    run(spark, file)
    kept = json.loads((tmp_path / "pipeline-checkpoint" / "inferred.json").read_text())["columns"]["fields"]
    assert {field["name"]: field["type"] for field in kept}["n"] == "integer"
    (tmp_path / "in" / "b.csv").write_text(lines(rows[10:]) + "o1,01.01.2026 00:00:00.000000,paid,x,many\n")
    file.write_text(file.read_text().replace("close = false\n", ""))
    run(spark, file)
    assert Counter(table(tmp_path, TOLD)) == expected(rows)
    assert [text for _, _, text in letters(tmp_path)] == ["o1,01.01.2026 00:00:00.000000,paid,x,many"]
    assert json.loads((tmp_path / "pipeline-checkpoint" / "inferred.json").read_text())["columns"]["fields"] == kept


@pytest.mark.long(seconds=5)
def test_columns_that_a_refused_start_inferred_are_not_kept(spark: SparkSession, tmp_path: Path) -> None:
    # without a header they were called _c0, and so they stayed when the file was mended
    rows = orders(8)
    file = a_file(tmp_path, CSV.replace("header = true\n", ""))
    (tmp_path / "in" / "a.csv").write_text(lines(rows))
    with pytest.raises(UsageError, match="order"):
        run(spark, file)
    run(spark, a_file(tmp_path, CSV))
    assert Counter(table(tmp_path, TOLD)) == expected(rows)


@pytest.mark.long(seconds=5)
def test_options_and_columns_that_changed_are_refused(spark: SparkSession, tmp_path: Path) -> None:
    file = a_file(tmp_path, CSV + COLUMNS)
    (tmp_path / "in" / "a.csv").write_text(lines(orders(2)))
    run(spark, file)
    as_it_was = file.read_text()
    for before, after, told in (
        ("header = true", "header = false", "options"),
        ('n = "bigint"', 'n = "int"', "columns"),
    ):
        file.write_text(as_it_was.replace(before, after))
        with pytest.raises(StateMismatch, match=rf"the pipeline changed .*\({told}\)"):
            run(spark, file)
    file.write_text(as_it_was.replace("files_per_batch = 1", "files_per_batch = 2"))
    assert run(spark, file).batches == 0


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        (
            "dd.MM.yyyy",
            "dd.MM.YYYY",
            r"\[source.options\]: Spark does not know timestampFormat = 'dd.MM.YYYY .*': write",
        ),
        ("dd.MM.yyyy", "bla", r"Spark does not know timestampFormat = 'bla .*': write a pattern such as"),
        (
            "header = true",
            'encoding = "UTF-99"',
            r"Spark does not know encoding = 'UTF-99': write .* such as ISO-8859-1",
        ),
        ("header = true", "headr = true", r"'headr' is not known to Spark's reader of csv; did you mean 'header'"),
        ("header = true", 'timeZone = "Europe/Nowhere"', r"\[source\]: Spark cannot read it: \[INVALID_TIMEZONE\]"),
    ],
)
def test_an_option_that_spark_cannot_read_by_is_refused_at_the_start(
    spark: SparkSession, tmp_path: Path, before: str, after: str, told: str
) -> None:
    # It was said of the first row: the checkpoint was made by then, and the sentence spoke of an upgrade to Spark 3
    file = a_file(tmp_path, (CSV + COLUMNS).replace(before, after))
    with configured(load(file)) as pipeline, pytest.raises(UsageError, match=told):
        pipeline.check(spark)
    assert not (tmp_path / "pipeline-checkpoint" / "metadata").exists()


@pytest.mark.long(seconds=8)
def test_a_file_whose_first_line_names_other_columns_ends_the_run_and_none_of_its_rows_is_misread(
    spark: SparkSession, tmp_path: Path
) -> None:
    # Spark takes values by their place: `what` and `order` had changed places in a second file, and a key was "created"
    rows = orders(4)
    file = a_file(tmp_path, CSV + COLUMNS)
    other = tmp_path / "in" / "a.csv"
    other.write_text(lines(rows).replace("order,at,what", "what,at,order"))
    told = (
        r"the first line of \S*a.csv does not name the columns that are read, .*Header: what, at.*enforceSchema = true"
    )
    for _ in range(2):
        with pytest.raises(WaterclockError, match=told):
            run(spark, file)
    other.write_text(lines(rows).replace(HEAD, HEAD + ",more"))
    with pytest.raises(WaterclockError, match=r"a.csv does not name .*Header length: 6, schema size: 5"):
        run(spark, file)
    assert table(tmp_path) == []
    file.write_text(file.read_text().replace("header = true", "header = true\nenforceSchema = true"))
    other.write_text(lines(rows).replace(HEAD, "Auftrag,Zeit,Was,Nummer,Folge"))
    run(spark, file)
    assert Counter(table(tmp_path, TOLD)) == expected(rows)


@pytest.mark.long(seconds=4)
def test_a_byte_that_is_not_of_the_encoding_makes_its_line_a_dead_letter(spark: SparkSession, tmp_path: Path) -> None:
    # Spark puts the same mark for each such byte, so two keys became one
    rows = orders(4)
    file = a_file(tmp_path, CSV + COLUMNS)
    bad = "".join(f"{key},01.01.2026 00:00:00.000000,created,x,1\n" for key in "ÄÖ")
    (tmp_path / "in" / "a.csv").write_bytes(lines(rows).encode() + bad.encode("latin-1"))
    run(spark, file)
    assert Counter(table(tmp_path, TOLD)) == expected(rows)
    found = [(reason, json.loads(text)["order"]) for _, reason, text in letters(tmp_path)]
    assert found == [("it holds a byte that is not of the encoding", "\ufffd")] * 2


@pytest.mark.long(seconds=8)
def test_nor_does_it_stop_json_or_reach_the_sink_from_lines_of_text(spark: SparkSession, tmp_path: Path) -> None:
    # Python could not read such a line: the run of JSON ended, each time anew, and from text the bytes came into the table
    rules, sink = '[rules]\nkey = "k"\ntime = "at"\n', '[sink]\npath = "out.db"\n'
    flat = "try_to_timestamp(substr(value, 1, 20)) AS at, substr(value, 22) AS k"
    ways = {
        "json": ('[source.columns]\nat = "timestamp"\nk = "string"\n', '{"at": "2026-01-01T00:00:00Z", "k": "KEY"}'),
        "text": (f'query = "SELECT {flat} FROM source"\n', "2026-01-01T00:00:00Z KEY"),
    }
    for format_, (more, line) in ways.items():
        place = tmp_path / format_
        (place / "in").mkdir(parents=True)
        (place / "in" / "a").write_bytes("".join(line.replace("KEY", k) + "\n" for k in "aÄb").encode("latin-1"))
        (place / "p.toml").write_text(f'[source]\nformat = "{format_}"\npath = "in"\n{more}{rules}{sink}')
        run(spark, place / "p.toml")
        assert table(place, "key") == [("a",), ("b",)]
        ((path, reason, text),) = letters(place)
        assert (Path(path).name, reason) == ("a", "it holds a byte that is not of the encoding")
        assert line[:10] in text


@pytest.mark.long(seconds=8)
def test_a_file_that_spark_cannot_read_ends_the_run_with_the_way_out_and_the_same_command_goes_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = orders(4)
    file = a_file(tmp_path, CSV + COLUMNS)
    broken = tmp_path / "in" / "a.csv.gz"
    broken.write_bytes(gzip.compress(lines(rows).encode())[:-30])
    with pytest.raises(WaterclockError, match=r"Spark cannot read the file \S*a.csv.gz, .*under the same name"):
        run(spark, file)
    assert table(tmp_path) == []
    broken.write_bytes(gzip.compress(lines(rows).encode()))
    run(spark, file)
    assert Counter(table(tmp_path, TOLD)) == expected(rows)


@pytest.mark.long(seconds=8)
def test_a_table_and_orc_are_read_and_a_format_without_a_reader_is_told(spark: SparkSession, tmp_path: Path) -> None:
    rows = orders(5)
    frame = spark.createDataFrame(rows, "order string, at timestamp, what string, id string, n long").coalesce(1)
    frame.write.orc(str(tmp_path / "in"))
    file = a_file(tmp_path, '[source]\npath = "in"\nformat = "orc"\n')
    run(spark, file)
    assert Counter(table(tmp_path, TOLD)) == expected(rows)
    other = tmp_path / "delta"
    other.mkdir()
    with pytest.raises(EnvironmentMissing, match=r"no reader for format = 'delta': give its jars"):
        run(spark, a_file(other, '[source]\npath = "in"\nformat = "delta"\n'))
    with pytest.raises(UsageError, match=r"\[source\]: Spark cannot read it: \[TABLE_OR_VIEW_NOT_FOUND\]"):
        run(spark, a_file(other, '[source]\ntable = "nobody.made_it"\nformat = "table"\n'))
