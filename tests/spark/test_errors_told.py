"""The reference's page of messages says what is said: of results that executors write, and of the place that a step leaves
out. Words in capitals stand for anything, and so do three dots.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from docsite import messages

from tests.sinks.file_stores import part_of
from tests.sinks.stores import SCHEMA, results
from waterclock.errors import WaterclockError
from waterclock.sinks import DeltaSink, SQLiteSink
from waterclock.sinks.base import ResultFile
from waterclock.sinks.files import refuse_unseen
from waterclock.spark import reshaped
from waterclock.spark.batch.outlets import Outlets
from waterclock.spark.kafka.stepping import with_place
from waterclock.streaming.toml.config import load

WRITES = 'format = "delta"\npath = "lake"\nwritten_by = "executors"\n'


def told() -> list[str]:
    """Each message of the page."""
    return [each for its in messages.messages().values() for each in its]


def fits(told: str, message: str) -> bool:
    """Whether the message of the page is the beginning of `message`."""
    parts = re.split(r"(\.\.\.|\b[A-Z_]{2,}\b)", told)
    pattern = "".join(".+?" if number % 2 else re.escape(part) for number, part in enumerate(parts))
    return re.match(pattern, message) is not None


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
    (
        "do not come through the driver",
        lambda folder: Outlets([lake(folder), SQLiteSink(folder / "out.db")]),
    ),
    ("do not come through the driver", lambda folder: Outlets(reshaped(lake(folder), takes=["results"]))),
    (
        "do not come through the driver",
        lambda folder: Outlets(reshaped(lake(folder), query="SELECT key FROM results")),
    ),
    ("cannot write results into", into_nowhere),
    ("an executor wrote", lambda folder: refuse_unseen(str(folder), [ResultFile("part-1.parquet", 1, 1, 1, "{}")])),
    ("by which partitions keep their order", lambda folder: with_place(SimpleNamespace(columns=["order", "at"]))),
]


@pytest.mark.parametrize(("row", "doing"), CASES)
def test_what_is_said_stands_on_the_page_of_messages(tmp_path: Path, row: str, doing: Callable[[Path], Any]) -> None:
    with pytest.raises(WaterclockError) as caught:
        doing(tmp_path)
    message = str(caught.value).removeprefix(f"{tmp_path / 'pipeline.toml'}: ")
    found = [each for each in told() if row in each and fits(each, message)]
    assert len(found) == 1, f"{message}\nstands in {found}"


def test_a_message_that_says_something_else_is_seen() -> None:
    assert fits("the file FILE cannot be read: REASON", "the file a cannot be read: gone")
    assert not fits("the file FILE cannot be read: REASON", "the file a cannot be opened: full")
