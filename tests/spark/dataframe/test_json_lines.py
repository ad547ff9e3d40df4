"""Lines of JSON that Spark's code reads: each is a row with the values that it gives, or a dead letter as it stands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.dataframe.test_reader import letters, run
from tests.spark.pipelines import table
from waterclock.errors import UsageError

pytestmark = pytest.mark.spark
COLUMNS = 'id = "string"\nat = "timestamp"\nn = "bigint"\nm = "map<string, int>"\n'
COLUMNS += 'in = "struct<a: int, b: array<struct<a: int>>>"\n'
RULES = '[rules]\nkey = "id"\ntime = "at"\n[sink]\npath = "out.db"\ncolumns = ["key", "event_n"]\n'
AT = '"at": "2026-01-01T00:00:00Z"'
TWICE = "it gives a name twice"
UNREAD = "the reader cannot read it by the columns"
WRONG = {
    f'{{"id": "a", "id": "b", {AT}}}': TWICE,
    f'{{"\\u0069d": "a", "id": "a", {AT}}}': TWICE,
    f'{{"id": "a", {AT}, "in": {{"a": 1, "a": 1}}}}': TWICE,
    f'{{"id": "a", {AT}, "in": {{"b": [{{"a": 1}}, {{"a": 1, "a": 2}}]}}}}': TWICE,
    f'{{"id": "a", {AT}, "m": {{"x": 1, "x": 2}}}}': TWICE,
    '{"ID": "a", "At": "2026-01-01T00:00:00Z"}': "it names none of the columns, whose case counts",
    '{"id": "a", "AT": "2026-01-01T00:00:00Z"}': "column 'at' (the time) is missing",
    f'{{"id": "a", {AT}, "n": "many"}}': UNREAD,
    "nonsense": UNREAD,
    "[1": UNREAD,
}
GOOD = {
    f'{{"id": "a", {AT}, "n": 1}}': ("a", 1),
    f'{{"id": "b", {AT}, "N": 1, "n": 2, "Id": "x", "other": 1, "other": 2}}': ("b", 2),
    f"{{'id': 'c', {AT}, 'in': {{'a': 1, 'c': 1, 'c': 2}}, 'm': {{'x': 1, 'X': 2}}}}": ("c", None),
    f'\ufeff{{"id": "d", {AT}}}': ("d", None),
}


def read(spark: SparkSession, place: Path, text: str, more: str = "", step: str = "") -> list[tuple[str, str]]:
    """Reason and text of each dead letter of a file of `text`."""
    (place / "in").mkdir(exist_ok=True)
    (place / "in" / "a.json").write_text(text)
    file = place / "p.toml"
    file.write_text(f'[source]\nformat = "json"\npath = "in"\n{step}[source.columns]\n{COLUMNS}{more}{RULES}')
    run(spark, file)
    assert {Path(path).name for path, *_ in letters(place) if path} <= {"a.json"}
    return [(reason, text) for _, reason, text in letters(place)]


@pytest.mark.parametrize("step", ["", 'query = "SELECT * FROM source"\n'], ids=["as they are", "through a query"])
def test_a_line_is_a_row_or_a_dead_letter_as_it_stands(spark: SparkSession, tmp_path: Path, step: str) -> None:
    found = read(spark, tmp_path, "\n".join([*GOOD, "", "  ", *WRONG, ""]), step=step)
    expected = [(reason, text) for text, reason in WRONG.items()]
    if step:  # what the rules refuse behind it is a row of the query's, not a line
        found, expected = ([one for one in some if "missing" not in one[0]] for some in (found, expected))
    assert sorted(found) == sorted(expected)
    assert sorted(table(tmp_path, "key, event_n")) == sorted(GOOD.values())


def test_a_list_is_a_row_for_each_of_its_elements_in_a_file_of_many_lines_too(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [{"id": key, "at": "2026-01-01T00:00:00Z", "n": n} for n, key in enumerate("ab")]
    text = json.dumps([*rows, 1, None, {"id": "c"}], indent=2)
    found = read(spark, tmp_path, text, "[source.options]\nmultiLine = true\n")
    assert [reason for reason, _ in found] == [UNREAD, UNREAD, "column 'at' (the time) is missing"]
    assert [text for _, text in found][:2] == ["1", "null"]
    assert sorted(table(tmp_path, "key, event_n")) == [("a", 0), ("b", 1)]


def test_a_column_may_be_the_name_of_a_folder(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "in" / "n=7").mkdir(parents=True)
    (tmp_path / "in" / "n=7" / "b.json").write_text(f'{{"id": "b", {AT}}}\n')
    (tmp_path / "p.toml").write_text(f'[source]\nformat = "json"\npath = "in"\n[source.columns]\n{COLUMNS}{RULES}')
    run(spark, tmp_path / "p.toml")
    assert table(tmp_path, "key, event_n") == [("b", 7)]


def test_a_pattern_that_spark_does_not_know_is_refused_before_a_checkpoint_is_bound_to_it(
    spark: SparkSession, tmp_path: Path
) -> None:
    # of JSON every line was a dead letter; and who mended it then was told that the options had changed
    with pytest.raises(UsageError, match=r"Spark does not know timestampFormat = 'bla'"):
        read(spark, tmp_path, "\n".join(GOOD), '[source.options]\ntimestampFormat = "bla"\n')
    assert not (tmp_path / "p-checkpoint" / "waterclock.json").exists()
