"""The table of errors in docs/pipeline-file.md says what is said: of results that executors write, and of the place that a
step leaves out. Words in capitals stand for anything, and so do three dots.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sinks.file_stores import part_of
from tests.sinks.stores import SCHEMA, results
from tests.test_readme import ROOT
from waterclock.errors import WaterclockError
from waterclock.sinks import DeltaSink, SQLiteSink
from waterclock.sinks.base import ResultFile
from waterclock.sinks.files import refuse_unseen
from waterclock.spark import reshaped
from waterclock.spark.batch.outlets import Outlets
from waterclock.spark.kafka.stepping import with_place
from waterclock.streaming.toml.config import load

WRITES = 'format = "delta"\npath = "lake"\nwritten_by = "executors"\n'


def told_rows() -> list[str]:
    """The first cell of each row of the document's tables of errors."""
    _, text = (ROOT / "docs" / "pipeline-file.md").read_text(encoding="utf-8").split("## Every error\n")
    return [line.split(" | ")[0].removeprefix("| ") for line in text.splitlines() if line.startswith("| `")]


def fits(row: str, message: str) -> bool:
    """Whether the message that stands first in a row, or one behind its "or", is the beginning of `message`."""
    first, *others = re.findall(r"`+ ?(.+?) ?`+(?= |$|\)|,)", row)
    patterns = [first, *(other for other in others if len(other.split()) > 3)]  # shorter ones are parts of a message
    return any(re.match(pattern_of(each), message) for each in patterns)


def pattern_of(told: str) -> str:
    parts = re.split(r"(\.\.\.|\b[A-Z]{2,}\b)", told)
    return "".join(".+?" if number % 2 else re.escape(part) for number, part in enumerate(parts))


def lake(folder: Path) -> DeltaSink:
    sink = DeltaSink(folder / "lake", written_by="executors")
    sink.open(SCHEMA)
    return sink


def into_nowhere(folder: Path) -> Any:
    files = lake(folder).result_files(1)
    assert files is not None
    (folder / "lake").rename(folder / "elsewhere")
    return part_of(files, 0, 1, results(0, 3))


def written_by_executors(folder: Path) -> Any:
    source = '[source]\nformat = "kafka"\nservers = "a:1"\ntopics = ["t"]\nvalue = "maxwell"\n'
    (folder / "pipeline.toml").write_text(f"{source}[sink]\n{WRITES}")
    return load(folder / "pipeline.toml")


CASES: list[tuple[str, Callable[[Path], Any]]] = [
    ("a mirror is written by the driver", lambda folder: written_by_executors(folder)),
    ("has written_by = 'executors'", lambda folder: Outlets([lake(folder), SQLiteSink(folder / "out.db")])),
    ("has written_by = 'executors'", lambda folder: Outlets(reshaped(lake(folder), takes=["results"]))),
    ("has written_by = 'executors'", lambda folder: Outlets(reshaped(lake(folder), query="SELECT key FROM results"))),
    ("cannot write results into", into_nowhere),
    ("an executor wrote", lambda folder: refuse_unseen(str(folder), [ResultFile("part-1.parquet", 1, 1, 1, "{}")])),
    ("leaves out _row_id_place", lambda folder: with_place(SimpleNamespace(columns=["order", "at"]))),
]


@pytest.mark.parametrize(("row", "doing"), CASES)
def test_what_is_said_stands_in_the_table_of_errors(tmp_path: Path, row: str, doing: Callable[[Path], Any]) -> None:
    with pytest.raises(WaterclockError) as caught:
        doing(tmp_path)
    message = str(caught.value).removeprefix(f"{tmp_path / 'pipeline.toml'}: ")
    found = [each for each in told_rows() if fits(each, message)]
    assert len(found) == 1, f"{message}\nstands in {found}"
    assert row in found[0]


def test_a_row_that_says_something_else_is_seen() -> None:
    assert fits(
        "`the file FILE cannot be read: REASON` (or `the folder PATH is gone`)", "the folder /in is gone: mend it"
    )
    assert not fits("`the file FILE cannot be read: REASON`", "the file a cannot be opened: full")
