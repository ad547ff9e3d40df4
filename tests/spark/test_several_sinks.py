"""Several sinks of one pipeline: each gets what it takes, once, also where a kill comes between two of them."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.sinks.five_verbs import FiveVerbs
from tests.sinks.stores import COUNTERS, SCHEMA, batch
from tests.spark.least_pipeline import LEAST, least_with
from tests.spark.pipelines import make_pipeline, orders
from tests.spark.test_pipeline_api import COLUMNS, ORDERS
from waterclock.errors import StateMismatch, UsageError
from waterclock.sinks import Batch, DeltaSink, LastBatch, Replica, SQLiteSink
from waterclock.spark import Pipeline, folder, reshaped
from waterclock.spark.batch.outlets import Outlets
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.fresh import start_over
from waterclock.spark.pipeline import configured
from waterclock.streaming.toml.config import load

# the command, and SIGKILL in the batch of that number, when the first sink has it and the second one has it not
DRIVER = """
import os, signal, sys
from waterclock import cli
from waterclock.spark.batch import outlets
written_once = outlets.written_once
def dying(sink, batch):
    if sink.path.name == "aside.db" and batch.batch_id == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGKILL)
    return written_once(sink, batch)
outlets.written_once = dying
cli.main(["run", sys.argv[1]])
"""
ASIDE = (
    '[[sink]]\npath = "out.db"\ntakes = ["results"]\n[[sink]]\npath = "aside.db"\ntakes = ["late", "dead_letters"]\n'
)


def rows(file: Path, columns: str = "*", part: str = "") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file)) as db:
        return db.execute(f"SELECT {columns} FROM results{part} ORDER BY rowid").fetchall()


# of a table: what is the same wherever its source lies and however long a batch took
PARTS = {
    "": "*",
    "_dead_letters": "batch_id, line, reason, text",
    "_batches": "batch_id, counters, watermark",
}


def last_of(file: Path) -> int:
    """The last batch that a sink has; -1 where it has none."""
    return max((batch_id for (batch_id,) in rows(file, "batch_id", "_batches")), default=-1)


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Any]:
    """Makes outlets on two files, and opens them for a checkpoint that is new."""
    with ExitStack() as open_ones:

        def made(*takes: tuple[str, ...]) -> Outlets:
            sinks: list[Any] = [SQLiteSink(tmp_path / f"{n}.db") for n in range(2)]
            outlets = Outlets([reshaped(s, takes=t) if t else s for s, t in zip(sinks, takes or ((), ()), strict=True)])
            open_ones.enter_context(closing(outlets))
            assert outlets.plan(None, SCHEMA)
            outlets.open(Checkpoint(tmp_path / "checkpoint"))
            return outlets

        yield made


NO_SESSION: Any = None  # where no step of a user's own asks for one


def mixed(batch_id: int) -> Batch:
    """A batch with an event, a late one, and a dead letter."""
    made = batch(batch_id, counters={**COUNTERS, "results": 2})
    kinds = pa.chunked_array([pa.array(["event", "late"])])
    return replace(made, results=made.results.set_column(0, made.results.schema.field("kind"), kinds))


# What each takes


def test_without_a_word_each_gets_everything(two: Any, tmp_path: Path) -> None:
    outlets = two()
    assert outlets.write(NO_SESSION, mixed(0)) == mixed(0)
    for n in range(2):
        assert rows(tmp_path / f"{n}.db", "kind") == [("event",), ("late",)]
        assert len(rows(tmp_path / f"{n}.db", "line", "_dead_letters")) == 1


@pytest.mark.parametrize(
    ("takes", "kinds", "letters"),
    [
        ((("results",), ("late", "dead_letters")), [["event"], ["late"]], [0, 1]),
        ((("results", "late"), ("dead_letters",)), [["event", "late"], []], [0, 1]),
        ((("results", "dead_letters"), ("results", "late")), [["event"], ["event", "late"]], [1, 0]),
    ],
)
def test_each_gets_what_it_takes_and_counts_the_results_that_it_has(
    two: Any, tmp_path: Path, takes: Any, kinds: list[list[str]], letters: list[int]
) -> None:
    outlets = two(*takes)
    outlets.write(NO_SESSION, mixed(0))
    for n, output in enumerate(outlets):
        assert [kind for (kind,) in rows(tmp_path / f"{n}.db", "kind")] == kinds[n]
        assert len(rows(tmp_path / f"{n}.db", "line", "_dead_letters")) == letters[n]
        assert output.sink.totals() == {**COUNTERS, "results": len(kinds[n])}


def test_each_has_columns_of_its_own(tmp_path: Path) -> None:
    outlets = Outlets(
        [reshaped(SQLiteSink(tmp_path / "0.db"), columns=["key", "event_n"]), SQLiteSink(tmp_path / "1.db")]
    )
    with closing(outlets):
        assert outlets.columns == ()  # the other one wants them all
        outlets.plan(None, SCHEMA)
        outlets.open(Checkpoint(tmp_path / "checkpoint"))
        outlets.write(NO_SESSION, mixed(0))
    assert rows(tmp_path / "0.db") == [(0, "a", 0), (0, "a", 1)]
    assert rows(tmp_path / "1.db", "kind, event_n") == [("event", 0), ("late", 1)]


@pytest.mark.parametrize("takes", [("results",), ("late", "dead_letters"), ("results", "late")])
def test_what_no_sink_takes_is_refused(tmp_path: Path, takes: tuple[str, ...]) -> None:
    sink = SQLiteSink(tmp_path / "a.db")
    with (
        closing(sink),
        pytest.raises(UsageError, match=r"no sink takes .*, which would be lost"),
    ):
        Outlets(reshaped(sink, takes=takes))


# Exactly once, each


def test_one_that_was_not_reached_is_brought_level_and_the_other_one_writes_nothing_twice(
    two: Any, tmp_path: Path
) -> None:
    outlets = two()
    first, second = (output.sink for output in outlets)
    outlets.write(NO_SESSION, mixed(0))
    second.begin = lambda: (_ for _ in ()).throw(UsageError("the second is away"))  # type: ignore[method-assign]
    with pytest.raises(UsageError, match="the second is away"):
        outlets.write(NO_SESSION, mixed(1))
    assert (first.last_applied(), second.last_applied()) == (LastBatch("q", 1), LastBatch("q", 0))
    del second.begin
    assert outlets.write(NO_SESSION, mixed(1)) is None  # as the first one has it, it counts for nothing in this run
    assert rows(tmp_path / "0.db") == rows(tmp_path / "1.db")
    assert outlets.write(NO_SESSION, mixed(2)) is not None
    assert [row[0] for row in rows(tmp_path / "1.db", "batch_id")] == [0, 0, 1, 1, 2, 2]


def test_a_sink_that_comes_to_a_pipeline_later_is_refused_in_a_sentence(tmp_path: Path) -> None:
    class Far(Checkpoint):
        def query_id(self) -> str | None:
            return "q"

        def last_batch(self) -> int | None:
            return 4

    sinks = [SQLiteSink(tmp_path / f"{n}.db") for n in range(2)]
    sinks[0].open(SCHEMA)
    for number in range(5):
        Outlets(sinks[0]).write(NO_SESSION, batch(number))
    outlets = Outlets(sinks)
    outlets.plan(None, SCHEMA)
    with closing(outlets), pytest.raises(StateMismatch, match=r"1\.db holds no results, but the checkpoint .* up to 3"):
        outlets.open(Far(tmp_path / "checkpoint"))


# What cannot be


def test_two_at_one_place_are_refused(tmp_path: Path) -> None:
    sinks = [SQLiteSink(tmp_path / "a.db") for _ in range(2)]
    with pytest.raises(UsageError, match=r"two of the pipeline's sinks write to the table 'results' in .*a\.db"):
        Outlets(sinks)
    own = FiveVerbs(tmp_path / "own.db")
    with pytest.raises(UsageError, match=r"the same object|write to"):
        Outlets([sinks[0], sinks[0]])
    for each in sinks:
        each.close()
    own.finish()
    with pytest.raises(UsageError, match="an empty list"):
        Outlets([])


def test_a_mirror_takes_all_its_changes(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a mirror, which takes all its changes"):
        Outlets(reshaped(DeltaSink(tmp_path / "a", mirror=Replica()), takes=["results"]))


def test_a_file_names_several(tmp_path: Path) -> None:
    kafka = '[[sink]]\nformat = "kafka"\nservers = "a:1"\ntopic = "aside"\ntakes = ["late", "dead_letters"]\n'
    config = least_with(tmp_path, '[[sink]]\npath = "out.db"\ncolumns = ["key"]\n' + kafka)
    assert [type(outlet.sink).__name__ for outlet in config.outlets] == ["SQLiteFile", "KafkaTopic"]
    assert [(outlet.columns, outlet.takes) for outlet in config.outlets] == [
        (("key",), ()),
        ((), ("late", "dead_letters")),
    ]


@pytest.mark.parametrize(
    ("sinks", "told"),
    [
        ('[[sink]]\npath = "a.db"\n[[sink]]\ntable = "x"\n', r"\[\[sink\]\] number 2: 'path' is missing"),
        ('[[sink]]\npath = "a.db"\n[[sink]]\npath = "in/b.db"\n', "lie in each other"),
        ('[[sink]]\npath = "a.db"\n[[sink]]\npath = "a.db"\n', r"two of the pipeline's sinks write to .*a\.db"),
        ('[[sink]]\npath = "a.db"\ntakes = ["late"]\n', "no sink takes 'results', which would be lost"),
        ('[sink]\npath = "a.db"\ntakes = ["late"]\n', "no sink takes 'results'"),
        (
            '[[sink]]\npath = "a.db"\ntakes = ["gaps"]\n',
            r"number 1: 'takes' must be a list of some of results, late",
        ),
        (
            '[[sink]]\npath = "a.db"\nmode = "apply"\ntakes = ["late"]\n',
            r"number 1: mode = 'apply' is gone",
        ),
        ("sink = []\n", "'sink' is missing"),
        ("sink = [3]\n", r"\[sink\] must be a table, got 3"),
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, sinks: str, told: str) -> None:
    text = (
        f"{sinks}{LEAST.partition('[sink]')[0]}" if sinks.startswith("sink") else LEAST.partition("[sink]")[0] + sinks
    )
    (tmp_path / "in").mkdir()
    (tmp_path / "pipeline.toml").write_text(text)
    with pytest.raises(UsageError, match=told):
        load(tmp_path / "pipeline.toml")


def test_fresh_removes_the_tables_of_all(tmp_path: Path) -> None:
    least_with(tmp_path, ASIDE)
    with closing(configured(load(tmp_path / "pipeline.toml"))) as pipeline:
        pipeline.check()
    start_over(load(tmp_path / "pipeline.toml"))
    for name in ("out.db", "aside.db"):
        with closing(sqlite3.connect(tmp_path / name)) as db:
            assert db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall() == []


# On Spark


def with_rubbish(place: Path, sinks: str = ASIDE) -> Path:
    file = make_pipeline(place, orders(40), files=4)
    file.write_text(
        file.read_text().replace('[sink]\npath = "out.db"\n', sinks).replace('"1 hour"\n[rules]', '"1 s"\n[rules]')
    )
    second = place / "in" / "001.jsonl"
    second.write_text(second.read_text() + "rubbish\n")
    return file


@pytest.mark.spark
@pytest.mark.long(seconds=12)
def test_results_go_one_way_and_what_is_late_or_rubbish_another(spark: SparkSession, tmp_path: Path) -> None:
    whole, parted = with_rubbish(tmp_path / "whole", '[sink]\npath = "out.db"\n'), with_rubbish(tmp_path / "parted")
    totals = []
    for file in (whole, parted):
        with closing(configured(load(file))) as pipeline:
            totals.append(pipeline.run(spark).totals)
    plain, late = ([row for row in rows(whole.parent / "out.db") if (row[1] == "late") is one] for one in (False, True))
    assert rows(parted.parent / "out.db") == plain
    assert rows(parted.parent / "aside.db") == late != []
    assert rows(parted.parent / "out.db", part="_dead_letters") == []
    of_letters = ("line, reason, text", "_dead_letters")
    assert rows(parted.parent / "aside.db", *of_letters) == rows(whole.parent / "out.db", *of_letters)
    assert totals[1] == {**totals[0], "results": len(plain)}


@pytest.mark.spark
@pytest.mark.long(seconds=40)
def test_a_kill_between_two_sinks_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    clean, killed = with_rubbish(tmp_path / "clean"), with_rubbish(tmp_path / "killed")
    with closing(configured(load(clean))) as pipeline:
        pipeline.run(spark)
    for batch_id in (0, 2):
        command = [sys.executable, "-c", DRIVER, str(killed), str(batch_id)]
        died = subprocess.run(command, capture_output=True, timeout=240)
        assert died.returncode == -signal.SIGKILL, died.stderr.decode()[-2000:]
        assert [last_of(killed.parent / name) for name in ("out.db", "aside.db")] == [batch_id, batch_id - 1]
    with closing(configured(load(killed))) as pipeline:
        pipeline.run(spark)
    for name in ("out.db", "aside.db"):
        for part, columns in PARTS.items():
            assert rows(killed.parent / name, columns, part) == rows(clean.parent / name, columns, part)


@pytest.mark.spark
def test_in_python_a_list_is_several_and_each_may_have_a_step(spark: SparkSession, tmp_path: Path) -> None:
    make_pipeline(tmp_path, orders(20))
    unpaid = reshaped(SQLiteSink(tmp_path / "unpaid.db"), query="SELECT key, due FROM results WHERE rule = 'unpaid'")
    source = folder(tmp_path / "in", columns=COLUMNS, files_per_batch=16)
    sinks = [SQLiteSink(tmp_path / "out.db"), unpaid]
    with Pipeline(source, ORDERS, sinks, tmp_path / "checkpoint", watermark_delay="1 hour") as pipeline:
        summary = pipeline.run(spark)
    assert summary.sink == f"the table 'results' in {tmp_path}/out.db and the table 'results' in {tmp_path}/unpaid.db"
    found = [row for row in rows(tmp_path / "out.db", "key, due, rule") if row[2] == "unpaid"]
    assert rows(tmp_path / "unpaid.db", "key, due") == [row[:2] for row in found] != []
