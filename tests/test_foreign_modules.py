"""Files beside a user's data that are named like modules of Python's or of a dependency: no command imports them.

A profile.py in the folder where `waterclock run` was called ended the run in a traceback of Spark's workers.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.spark.pipelines import make_pipeline, orders
from waterclock.cli import _parser

ROOT = Path(__file__).parents[1]
NAMES = (
    *("profile", "random", "types", "statistics", "json", "socket", "runpy", "queue", "struct", "logging", "secrets"),
    *(
        "pandas",
        "numpy",
        "pyarrow",
        "pyspark",
        "py4j",
        "msgpack",
        "rich",
        "confluent_kafka",
        "matplotlib",
        "waterclock",
    ),
)
STEPS = """
import pstats, sys
from pyspark.sql import functions as F
from pyspark.sql.types import StringType
def opened(rows):
    def renamed(what):
        import own_helper
        return own_helper.renamed(what)
    return rows.withColumn("what", F.udf(renamed, StringType())("what"))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with such files, in which the commands are called."""
    for name in NAMES:
        (tmp_path / f"{name}.py").write_text(f"raise SystemExit('{name} of the folder was imported')")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def waterclock(*words: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("waterclock")), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


COMMANDS = sorted(_parser()._subparsers._group_actions[0].choices)  # type: ignore[union-attr, arg-type]


@pytest.mark.parametrize("words", [["--version"], *([name, "--help"] for name in COMMANDS)], ids=" ".join)
def test_a_command_imports_nothing_from_the_folder_where_it_is_called(folder: Path, words: list[str]) -> None:
    done = waterclock(*words)
    assert (done.returncode, done.stderr) == (0, "")


def test_every_python_that_is_started_leaves_the_folder_of_its_start_out_of_its_path() -> None:
    # -P; Spark's are started by session/pythons.py, which has tests of its own
    started = [
        (file, first)
        for part in ("src/waterclock", "examples", "bench")
        for file in (ROOT / part).rglob("*.py")
        for first in re.findall(r"\[\s*sys\.executable,\s*([^,\]]*)", file.read_text())
    ]
    assert len(started) > 10
    assert [each for each in started if each[1] != '"-P"'] == []


@pytest.mark.spark
@pytest.mark.long(seconds=25)
@pytest.mark.parametrize("step", ["", 'transform = "own_steps:opened"\n'], ids=["plain", "transform"])
def test_a_pipeline_runs_beside_such_files_and_a_function_finds_its_own_modules_there(folder: Path, step: str) -> None:
    rows = orders(5)
    file = make_pipeline(folder, rows)
    text = file.read_text().replace('path = "in"', f'path = "in"\n{step}').replace("files_per_batch = 1", "")
    file.write_text(text)
    (folder / "own_steps.py").write_text(STEPS)
    (folder / "own_helper.py").write_text("def renamed(what): return what")
    done = waterclock("run", "pipeline.toml", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["events"] == len(rows)
