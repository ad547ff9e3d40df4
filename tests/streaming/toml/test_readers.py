"""[source] for Spark's own readers: what it means, and what is refused before Spark is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark.least_pipeline import LEAST
from waterclock.errors import UsageError
from waterclock.streaming.toml.config import Files, load
from waterclock.streaming.toml.readers import Reader

BARE = LEAST[: LEAST.index("[source.columns]")], LEAST[LEAST.index("[rules]") :]


def loaded(folder: Path, source: str) -> Files | Reader:
    file = folder / "pipeline.toml"
    file.write_text(BARE[0].replace('path = "in"\n', source) + BARE[1])
    found = load(file).source
    assert isinstance(found, Files | Reader)
    return found


def test_a_reader_has_its_columns_and_options_in_sparks_words(tmp_path: Path) -> None:
    found = loaded(
        tmp_path,
        'path = "in"\nformat = "csv"\n[source.columns]\nx = "struct<a: int>"\n[source.options]\nheader = true\nsep = ";"\n',
    )
    options = {"header": "true", "sep": ";"}
    assert found == Reader("csv", tmp_path / "in", None, 16, {"x": "struct<a: int>"}, options)


def test_parquet_with_columns_keeps_its_fast_reader_and_without_is_sparks(tmp_path: Path) -> None:
    fast = loaded(tmp_path, 'path = "in"\nformat = "parquet"\n[source.columns]\ncase = "string"\nts = "timestamp"\n')
    assert isinstance(fast, Files)
    assert loaded(tmp_path, 'path = "in"\nformat = "parquet"\n') == Reader(
        "parquet", tmp_path / "in", None, 16, None, {}
    )
    assert loaded(tmp_path, 'table = "a.b"\nformat = "table"\n') == Reader("table", None, "a.b", 16, None, {})


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ('format = "csv"\n', "'path' is missing"),
        ('format = "table"\n', "'table' is missing"),
        ('format = "table"\npath = "in"\n', "'path' has no place beside format = 'table': name the table in 'table'"),
        ('format = "csv"\npath = "in"\ntable = "t"\n', "'table' has no place beside format = 'csv'"),
        ('format = "csv"\npath = "in"\nper_batch = 1\n', "'per_batch' is not known here"),
        ('format = "text"\npath = "in"\n[source.columns]\na = "string"\n', "format = 'text' has columns of its own"),
        ('format = "csv"\npath = "in"\n[source.columns]\na = 1\n', "'a' must be a type in Spark's words"),
        ('format = "csv"\npath = "in"\n[source.options]\nmode = "dropMalformed"\n', "it would drop lines in silence"),
        ('format = "csv"\npath = "in"\n[source.options]\nignoreMissingFiles = true\n', "pass over files in silence"),
        (
            'format = "json"\npath = "in"\n[source.options]\nenableDateTimeParsingFallback = true\n',
            "it would cut what is finer than a microsecond, in silence",
        ),
        (
            'format = "csv"\npath = "in"\n[source.options]\nmaxFilesPerTrigger = 1\n',
            "files_per_batch in [source] says it",
        ),
        ('format = "csv"\npath = "in"\n[source.options]\na = ["b"]\n', "'a' must be a text, a number, true or false"),
    ],
)
def test_what_could_not_be_read_or_would_lose_something_is_refused(tmp_path: Path, source: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        loaded(tmp_path, source)
    assert sentence in str(caught.value)
    assert str(caught.value).startswith(f"{tmp_path}/pipeline.toml: [source")
