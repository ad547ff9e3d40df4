"""A pipeline begins on Spark, and goes on without it: what comes out is what a run in peace gives."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sqlite3
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import SQL, store_of
from tests.local.places import into
from tests.local.running import run_locally
from tests.sinks.stores import Store, TopicStore
from tests.spark.pipelines import make_pipeline, orders, run
from tests.spark.rescaling.kill_driver import death_at
from tests.spark.rescaling.moved import (
    all_of,
    back,
    in_peace,
    mixed_pipeline,
    move,
    nothing,
    of_a_topic,
    refused,
    stage_of,
)  # fmt: skip
from tests.spark.rescaling.staged import STAGES, go_on_with, next_stage
from waterclock import Rules, cli
from waterclock.errors import StateMismatch, WaterclockError
from waterclock.local.checkpoint import LocalCheckpoint
from waterclock.local.command import configured, source_of
from waterclock.local.snapshots import Written
from waterclock.pipelines import returning
from waterclock.pipelines.returning import _Stop, to_local
from waterclock.sinks import LastBatch
from waterclock.spark.checkpoint.folder import Checkpoint
from waterclock.spark.pipeline import configured as on_spark
from waterclock.spark.rescaling import stored
from waterclock.spark.rescaling.parts import StateClock, StateSeen
from waterclock.streaming.checkpoint import Removal
from waterclock.streaming.toml.config import load

pytestmark = pytest.mark.spark


@pytest.mark.long(seconds=25)
def test_a_pipeline_of_files_comes_back_from_spark_and_may_go_again(spark: SparkSession, tmp_path: Path) -> None:
    file, new = mixed_pipeline(tmp_path / "moved"), tmp_path / "new"
    old = tmp_path / "moved" / "checkpoint"
    stage_of(file, 0)
    run(spark, file)
    back(spark, file, new)
    assert f"was carried over to {new}" in refused(file, lambda each: on_spark(load(each)), old)
    stage_of(file, 1)
    run_locally(file)
    move(spark, file, tmp_path / "third")
    go_on_with(file, tmp_path / "third")
    run(spark, file)
    back(spark, file, tmp_path / "fourth")
    next_stage(file, STAGES - 1)
    run_locally(file)
    peace = in_peace(mixed_pipeline(tmp_path / "peace"), run_locally)
    assert all_of(file) == peace
    assert {row[0] for row in peace} >= {"event", "late", "emit", "dead", "sum"}


@pytest.mark.long(seconds=20)
@pytest.mark.skipif(not importlib.util.find_spec("kio"), reason="needs waterclock[broker]")
def test_a_pipeline_of_a_topic_comes_back_from_spark(spark: SparkSession, kafka_broker: Any, tmp_path: Path) -> None:
    def carry(file: Path) -> None:
        back(spark, file, tmp_path / "new")

    of_a_topic(kafka_broker, tmp_path, lambda file: run(spark, file), carry, run_locally, silent=0)


@pytest.fixture(params=[*SQL[1:], "topic"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    """Every other sink than SQLite that both engines write to."""
    if request.param == "topic":
        return TopicStore(request.getfixturevalue("kafka_broker").bootstrap)
    return store_of(request, tmp_path)


@pytest.mark.long(seconds=40)
def test_each_sink_goes_there_and_back(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    file = into(mixed_pipeline(tmp_path / "moved"), store)
    stage_of(file, 0)
    run_locally(file)
    move(spark, file, tmp_path / "there")
    go_on_with(file, tmp_path / "there")
    stage_of(file, 1)
    run(spark, file)
    back(spark, file, tmp_path / "back")
    next_stage(file, STAGES - 1)
    run_locally(file)
    columns = 'kind, "key", rule, source_id, result_id'
    peace = mixed_pipeline(tmp_path / "peace")
    in_peace(peace, run_locally)
    with closing(sqlite3.connect(peace.parent / "out.db")) as db:
        wanted = Counter(db.execute(f"SELECT {columns} FROM results").fetchall())
    assert Counter(map(tuple, store.look(columns))) == wanted
    assert len(store.look("file, line", "results_dead_letters")) == 4


@pytest.mark.long(seconds=30)
def test_a_death_behind_each_step_leaves_one_of_the_two_to_be_used(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, old, new = mixed_pipeline(tmp_path / "moved"), tmp_path / "moved" / "checkpoint", tmp_path / "new"
    stage_of(file, 0)
    run(spark, file)
    steps = ("_stop", "_noted", "_bucket", "_written", "hand_over", "give_sink")
    for step in steps:
        with death_at(returning, step, monkeypatch):
            to_local(load(file), new, lambda count: spark)
        there = refused(file, lambda each: on_spark(load(each)), old)
        here = refused(file, lambda each: _looked_at(each), new) if step in steps[1:] else "nothing is there"
        assert (bool(there), bool(here)) == (step == steps[-1], step != steps[-1]), (step, there, here)
    with pytest.raises(StateMismatch, match="was carried over to"):
        to_local(load(file), new, nothing)
    go_on_with(file, new)
    stage_of(file, 1)
    run_locally(file)
    next_stage(file, STAGES - 1)
    run_locally(file)
    assert all_of(file) == in_peace(mixed_pipeline(tmp_path / "peace"), run_locally)


def _looked_at(file: Path) -> Any:
    """A start, as far as it goes before its first batch: the records are read then."""
    made = configured(load(file))
    check = made.check

    def both() -> None:
        check()
        made._records()

    made.check = both  # type: ignore[method-assign]
    return made


def begun(file: Path) -> None:
    """A batch of Spark's that was begun and is not done."""
    commits = file.parent / "checkpoint" / "commits"
    last = max((each for each in commits.iterdir() if each.name.isdecimal()), key=lambda each: int(each.name))
    last.unlink()


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "a batch is under way": (begun, "has begun and did not end.*let it end, then carry over"),
    "other things": (lambda file: shutil.copytree(file.parent / "in", file.parent / "new"), "holds other things"),
    "a sink more": (lambda file: file.write_text(
        file.read_text().replace('[sink]\npath = "out.db"', '[[sink]]\npath = "out.db"\n[[sink]]\npath = "two.db"')),
        "two.db holds no results, but the checkpoint"),
    "a step of the user's": (lambda file: file.write_text(
        file.read_text().replace('[sink]\n', '[sink]\nquery = "SELECT key FROM results"\n')), "needs Spark"),
}  # fmt: skip


@pytest.mark.long(seconds=20)
def test_what_cannot_come_back_is_refused_and_the_old_one_goes_on(spark: SparkSession, tmp_path: Path) -> None:
    file = make_pipeline(tmp_path / "at work", orders(20), 2)
    file.write_text(file.read_text().replace('watermark_delay = "1 hour"', 'watermark_delay = "1 hour"\nclose = false'))
    run(spark, file)
    shutil.copytree(file.parent, tmp_path / "saved")
    for case, (spoil, told) in BROKEN.items():
        spoil(file)
        with pytest.raises(WaterclockError, match=told):
            to_local(load(file), file.parent / "new", nothing)
        assert not (file.parent / "new" / "waterclock.json").exists(), case
        shutil.rmtree(file.parent)
        shutil.copytree(tmp_path / "saved", file.parent)
    file.write_text(file.read_text().replace("close = false", "close = true"))
    run(spark, file)
    with pytest.raises(WaterclockError, match="was closed"):
        to_local(load(file), tmp_path / "new", nothing)


@pytest.mark.long(seconds=30)
def test_the_command_comes_back_and_says_how_to_go_on(
    spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = mixed_pipeline(tmp_path / "moved")
    stage_of(file, 0)
    run(spark, file)
    assert cli.main(["state", "move", str(file), "--engine", "local", "--buckets", "8"]) == 0
    told, new = capsys.readouterr().out, tmp_path / "moved" / "checkpoint-local"
    assert f'engine = "local"\n    checkpoint = "{new}"' in told
    assert "'buckets' under [local] must say 8" in told
    assert cli.main(["state", "show", str(new), "--json"]) == 0
    seen = json.loads(capsys.readouterr().out)
    assert re.search(r"(\d+) keys", told)[1] == str(seen["keys"]) != "0"  # type: ignore[index]
    go_on_with(file, new)
    file.write_text(file.read_text() + "\n[local]\nbuckets = 8\n")
    for stage in (1, 2):
        next_stage(file, stage)
        run_locally(file)
    assert all_of(file) == in_peace(mixed_pipeline(tmp_path / "peace"), run_locally)


class Frames:
    """Parts of no keys, as Spark would give them; `told` says when a bucket's were read."""

    def __init__(self, told: list[str]) -> None:
        self._told = told

    def where(self, condition: str) -> Frames:
        return self

    persist = unpersist = select = lambda self, *names: self

    def collect(self) -> list[Any]:
        self._told.append("read")
        return []


def test_a_bucket_is_written_before_the_next_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    told, lasting = list[str](), list[bool]()

    def write(written: list[Written], lasts: bool) -> None:
        told.append(f"written {[each.bucket for each in written]}")
        lasting.append(lasts)

    monkeypatch.setattr(stored, "parts", lambda *given: Frames(told))
    checkpoint: Any = None
    returning._written(None, checkpoint, StateSeen(3, 16, 1, StateClock(), ()), Rules("key", "time"), 3, 4, write)
    assert told == ["read", "written [0]", "read", "written [1]", "read", "written [2]"]
    assert lasting == [False, False, True]


def test_all_files_that_batches_took_come_along_where_spark_has_put_its_old_entries_together(tmp_path: Path) -> None:
    """Its entries go ten minutes behind that, and its offsets twenty batches on; the last entry is of no batch yet."""
    file, last = make_pipeline(tmp_path, orders(5), 1), 41
    old = Checkpoint(tmp_path / "checkpoint")
    for number in (*range(last - 19, last + 1),):
        spark_noted(old.local / "offsets" / str(number), {"batchWatermarkMs": 0}, {"logOffset": number})
        spark_noted(old.local / "commits" / str(number), {"nextBatchWatermarkMs": 70})
    for name, first, behind in [("39.compact", 0, 40), *((str(n), n, n + 1) for n in (38, 40, 41, 42))]:
        taken = [{"path": f"file:///in/{n}%20.jsonl", "timestamp": n, "batchId": n} for n in range(first, behind)]
        spark_noted(old.local / "sources" / "0" / name, *taken)
    stop = returning._stop(load(file), old, StateSeen(last, 16, 2, StateClock(), ()), last)
    assert [name for name, _ in stop.place["files"]] == [f"{n} .jsonl" for n in range(last + 1)]
    assert stop.clock == {"files": 70_000}


@pytest.mark.parametrize(("place", "name"), [(Removal, "serves"), (LocalCheckpoint, "begin")])
def test_what_a_killed_try_left_is_begun_anew_with_another_number_of_buckets_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Any, name: str
) -> None:
    config, old, new = (
        load(make_pipeline(tmp_path, orders(5), 1)),
        Checkpoint(tmp_path / "checkpoint"),
        tmp_path / "new",
    )
    spark_noted(old.local / "offsets" / "0", {}, {"logOffset": 0})
    spark_noted(old.local / "commits" / "0", {})
    sink: Any = SimpleNamespace(last_applied=lambda: LastBatch("old", 0))
    assert config.rules is not None
    new.mkdir()
    (new / ".waterclock.json.new").touch()
    for buckets in (4, 16):
        assert returning._refuse(old, sink, new) == 0
        each = replace(config, local=replace(config.local, buckets=buckets))
        source, made = source_of(config.source, config.rules, 0), LocalCheckpoint(new, str(old.path))
        with closing(source), closing(made), death_at(place, name, monkeypatch):
            returning._noted(made, source, each, "out.db", "new", _Stop(0, {}, {}, {}))
    assert returning._refuse(old, sink, new) == 0


def spark_noted(file: Path, *lines: Any) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("\n".join(["v1", *(json.dumps(line, separators=(",", ":")) for line in lines)]))
