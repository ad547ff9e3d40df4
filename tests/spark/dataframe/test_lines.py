"""What Spark's readers of lines would cut in silence: times finer than a microsecond, numbers too large, foreign bytes."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from waterclock.spark.dataframe.lines import ANY_TIME, ENDLESS, NOT_DECODED, NOT_READ, uncut, with_letters
from waterclock.spark.dataframe.rows import CORRUPT, FILE, REASON
from waterclock.streaming.toml.readers import Reader

pytestmark = pytest.mark.spark
_ZONED = {  # what Spark's own way takes, as (text, the UTC time of it)
    "2024-01-02T03:04:05.123456Z": "2024-01-02 03:04:05.123456",
    "2024-01-02 03:04:05.1": "2024-01-02 03:04:05.1",
    "2024-01-02T03:04:05.123456000+02:00": "2024-01-02 01:04:05.123456",
    "2024-01-02 03:04:05 Europe/Berlin": "2024-01-02 02:04:05",
    "2024-01-02 03:04:05 PST": "2024-01-02 11:04:05",
    "2024-01-02 03:04:05-0800": "2024-01-02 11:04:05",
    "2024-1-2 3:4:5": "2024-01-02 03:04:05",
    "  2024-01-02 03:04  ": "2024-01-02 03:04:00",
    "2024-01-02": "2024-01-02 00:00:00",
    "2024-01": "2024-01-01 00:00:00",
    "2024": "2024-01-01 00:00:00",
}
_FINER = ("2024-01-02T03:04:05.1234567Z", "2024-01-02 03:04:05.123456789", "2024-01-02T03:04:05.00000000001")


def a_reader(format_: str, **options: str) -> Reader:
    return Reader(format_, None, None, 1, None, options)


def read(session: SparkSession, folder: Path, reader: Reader, columns: str, lines: Iterable[str]) -> list[Any]:
    """Rows as (all columns, line of a letter, reason)."""
    (folder / "lines").write_bytes(("\n".join(lines) + "\n").encode(errors="surrogateescape"))
    options = {"timeZone": "UTC", **uncut(reader), "columnNameOfCorruptRecord": CORRUPT}
    found = session.read.format(reader.format).options(**options).schema(f"{columns}, {CORRUPT} string")
    rows = with_letters(found.load(str(folder / "lines")).withColumn(FILE, F.lit("lines")), reader)
    own = [column for column in rows.columns if column not in (CORRUPT, REASON, FILE)]
    texts = [F.col(name).cast("string") for name in own]
    return [(*row[:-2], row[-2], row[-1]) for row in rows.select(*texts, CORRUPT, REASON).collect()]


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
@pytest.mark.parametrize("format_", ["csv", "json"])
def test_a_time_without_a_pattern_is_taken_as_by_spark_and_one_that_would_be_cut_is_a_letter(
    spark: SparkSession, tmp_path: Path, format_: str, kind: str
) -> None:
    good = {
        text: at for text, at in _ZONED.items() if kind == "timestamp" or text.endswith((at[-2:], "03:04  ", "-02"))
    }
    texts = [*good, *_FINER]
    lines = texts if format_ == "csv" else [json.dumps({"t": text}) for text in texts]
    found = read(spark, tmp_path, a_reader(format_), f"t {kind}", lines)
    assert found[: len(good)] == [(at, None, None) for at in good.values()]
    assert found[len(good) :] == [(None, line, NOT_READ) for line in lines[len(good) :]]


def test_a_pattern_of_the_users_reads_no_more_digits_than_there_are_in_a_microsecond(
    spark: SparkSession, tmp_path: Path
) -> None:
    reader = a_reader("csv", TimestampFormat="'S'dd.MM.yyyy HH:mm:ss[,SSSSSSSSS]")
    times = ("S24.12.2026 01:02:03,123456000", "S24.12.2026 01:02:03", "S24.12.2026 01:02:03,123456001")
    found = read(spark, tmp_path, reader, "t timestamp", [f'"{time}"' for time in times])
    assert found[:2] == [("2026-12-24 01:02:03.123456", None, None), ("2026-12-24 01:02:03", None, None)]
    assert found[2] == (None, f'"{times[2]}"', NOT_READ)


@pytest.mark.parametrize("format_", ["csv", "json"])
def test_no_setting_of_the_session_has_spark_try_its_own_way_behind_the_pattern(
    spark: SparkSession, tmp_path: Path, format_: str
) -> None:
    line = _FINER[0] if format_ == "csv" else json.dumps({"t": _FINER[0]})
    name = f"spark.sql.legacy.{format_}.enableDateTimeParsingFallback"
    spark.conf.set(name, "true")
    try:
        assert read(spark, tmp_path, a_reader(format_), "t timestamp", [line]) == [(None, line, NOT_READ)]
    finally:
        spark.conf.unset(name)


def test_what_is_quoted_in_a_pattern_or_not_finer_than_a_microsecond_stays() -> None:
    for pattern in ("HH:mm:ss.SSSSSS", "HH:mm:ss'SSSSSSSS'", "SSSSSSSSSSSS", ANY_TIME):
        assert uncut(a_reader("json", timestampNTZFormat=pattern))["timestampNTZFormat"] == pattern
    assert uncut(a_reader("orc", timestampFormat="SSSSSSSSS")) == {"timestampFormat": "SSSSSSSSS"}


def test_a_number_beyond_a_double_is_a_letter_wherever_it_stands(spark: SparkSession, tmp_path: Path) -> None:
    columns = "d double, f float, n struct<a: array<struct<x: double>>, m: map<string, double>, s: string>"
    good = {"d": 1e308, "f": 1e38, "n": {"a": [{"x": 1.5}], "m": {"k": 2.5}, "s": "Infinity"}}
    whole = json.dumps(good)
    bad = [
        whole.replace(*pair) for pair in (("1e+308", "1e999"), ("1e+38", "-1e39"), ("1.5", "1e400"), ("2.5", "1e400"))
    ]
    found = read(spark, tmp_path, a_reader("json"), columns, [whole, *bad, "{}"])
    assert [row[-1] for row in found] == [None, *[ENDLESS] * 4, None]
    assert [row[-2] is None for row in found] == [True, *[False] * 4, True]
    found = read(
        spark, tmp_path, a_reader("csv"), "k string, d double", ["a,1e999", "b,1e-999", "c,-Inf", "d,NaN", "e,"]
    )
    assert [(row[0], row[-1]) for row in found] == list(zip("abcde", [ENDLESS, None, ENDLESS, None, None], strict=True))
    assert json.loads(found[0][-2])["k"] == "a"


def test_infinity_is_kept_where_the_user_says_that_the_files_write_it(spark: SparkSession, tmp_path: Path) -> None:
    found = read(spark, tmp_path, a_reader("csv", positiveInf="endless"), "d double", ["endless", "1"])
    assert found == [("Infinity", None, None), ("1.0", None, None)]
    reader = a_reader("json", allowNonNumericNumbers="true")
    assert read(spark, tmp_path, reader, "d double", ['{"d": -Infinity}']) == [("-Infinity", None, None)]


def test_a_byte_that_is_not_of_the_encoding_is_told_from_a_line_that_does_not_fit(
    spark: SparkSession, tmp_path: Path
) -> None:
    found = read(spark, tmp_path, a_reader("csv"), "k string, n int", ["a,1", "\ufffd,1", "\ufffd,x", "a,x"])
    assert [row[-1] for row in found] == [None, NOT_DECODED, NOT_DECODED, NOT_READ]
    assert found[2][-2] == "\ufffd,x"
    lines = ['{"k": "a"}', '{"k": "\udcc4"}']  # the byte C4 alone
    found = read(spark, tmp_path, a_reader("json"), "k string", lines)
    assert [row[-1] for row in found] == [None, NOT_DECODED]
