"""Pipelines without Spark: the same results, what is recorded and what is refused."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from tests.local.running import counts, kinds, living, run_locally
from tests.spark.pipelines import make_pipeline, orders, table
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.cli import main
from waterclock.errors import EnvironmentMissing, StateMismatch, UsageError
from waterclock.kafka.admin import Admin
from waterclock.local import pipeline as module
from waterclock.local.command import check, configured, start_over
from waterclock.local.snapshots import NAME
from waterclock.streaming.statistics import Progress
from waterclock.streaming.toml.config import load
from waterclock.testing import Broker

RECORDS = len(orders(40))


def replayed(file: Path) -> int:
    """How many batches a start reads once more."""
    with closing(configured(load(file))) as pipeline:
        pipeline.run()
        return pipeline.replayed


def batches(file: Path) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file.parent / "out.db")) as db:
        return db.execute("SELECT * FROM results_batches ORDER BY batch_id").fetchall()


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_pipeline(tmp_path, orders(40), 6)


@pytest.fixture
def topic_file(kafka_broker: Broker, topic: str, tmp_path: Path) -> Path:
    Sender(kafka_broker.bootstrap, topic).orders(orders(40))
    return make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic, more="per_batch = 30")


def test_a_topic_gives_what_files_give(topic_file: Path, tmp_path: Path) -> None:
    summary = run_locally(topic_file)
    file = make_pipeline(tmp_path / "files", orders(40), 1)
    of_files = run_locally(file)
    assert summary.totals["events"] == of_files.totals["events"]
    assert kinds(table(topic_file.parent)) == kinds(table(file.parent)) != []


def test_a_run_that_ended_cleanly_reads_nothing_again(file: Path) -> None:
    change(file, "[time]\n", "[time]\nclose = false\n")
    assert run_locally(file).batches == 6
    assert replayed(file) == 0
    write = file.parent / "in" / "more.jsonl"
    write.write_text(json.dumps({"order": "new", "at": "2026-02-01T00:00:00Z", "what": "x", "id": "n", "n": 1}) + "\n")
    assert run_locally(file).batches == 1


def test_a_heartbeat_among_events_of_a_file_moves_time_and_is_no_event(file: Path) -> None:
    run_locally(make_pipeline(file.parent / "closed", orders(40), 6))
    change(file, "[time]\n", "[time]\nclose = false\n")
    last = max((file.parent / "in").iterdir(), key=lambda each: each.stat().st_mtime_ns)
    last.write_text(last.read_text() + json.dumps({"order": None, "at": "2026-02-01T00:00:00Z"}) + "\n")
    summary = run_locally(file)
    assert (summary.totals["events"], summary.totals["heartbeats"]) == (RECORDS, 1)
    assert kinds(table(file.parent)) == kinds(table(file.parent / "closed")) != []


def test_what_comes_after_the_close_is_refused(file: Path) -> None:
    run_locally(file)
    (file.parent / "in" / "late.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match=r"1 file came after that.*--fresh"):
        run_locally(file)
    assert main(["run", str(file), "--engine", "local", "--fresh", "--json"]) == 0


def test_a_checkpoint_that_is_lost_is_made_anew_from_the_source(file: Path) -> None:
    run_locally(file)
    before = table(file.parent)
    (file.parent / "checkpoint" / NAME).unlink()
    assert replayed(file) == 7
    assert table(file.parent) == before


def test_a_state_that_is_damaged_is_set_aside_and_made_anew(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    run_locally(file)
    (file.parent / "checkpoint" / NAME).write_bytes(b"no database" * 1000)
    assert replayed(file) == 7
    assert (file.parent / "checkpoint" / f"{NAME}.damaged-1").exists()
    assert "is damaged" in caplog.text
    start_over(load(file))
    assert not (file.parent / "checkpoint").exists()


def test_a_sink_that_was_put_back_to_an_older_copy_gets_what_it_lacks(file: Path) -> None:
    change(file, "[time]\n", "[time]\nclose = false\n")
    run_locally(file)
    before = table(file.parent)
    with closing(sqlite3.connect(file.parent / "out.db", isolation_level=None)) as db:
        for name in ("results", "results_batches", "results_dead_letters"):
            db.execute(f"DELETE FROM {name} WHERE batch_id > 2")
    assert run_locally(file).batches == 3
    assert table(file.parent) == before


def test_a_state_that_cannot_be_written_is_no_damage(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_locally(file)
    state = file.parent / "checkpoint" / NAME
    with closing(sqlite3.connect(state, isolation_level=None)) as db:
        db.execute("BEGIN EXCLUSIVE")
        connect = sqlite3.connect
        monkeypatch.setattr(sqlite3, "connect", lambda *given, **more: connect(*given, **{**more, "timeout": 0.1}))
        with pytest.raises(EnvironmentMissing, match=r"cannot be written or read.*start again"):
            run_locally(file)
        monkeypatch.undo()
    assert not list(state.parent.glob("*.damaged*"))
    assert replayed(file) == 0


def test_a_file_behind_the_close_is_seen_though_another_one_is_gone(file: Path) -> None:
    run_locally(file)
    (file.parent / "in" / "000.jsonl").unlink()
    (file.parent / "in" / "late.jsonl").write_text("{}\n")
    with pytest.raises(UsageError, match="1 file came after that"):
        run_locally(file)


def test_fresh_removes_nothing_if_the_run_could_not_start_or_the_folder_holds_anything_else(file: Path) -> None:
    run_locally(file)
    before, own = table(file.parent), file.parent / "checkpoint" / "waterclock.toml"
    own.write_text("mine")
    with pytest.raises(UsageError, match=r"other things in its folder \(waterclock.toml"):
        start_over(load(file))
    own.unlink()
    change(file, 'path = "out.db"', 'path = "out.db"\ntransform = "my:own"')
    with pytest.raises(UsageError, match="needs Spark"):
        start_over(load(file))
    change(file, '\ntransform = "my:own"', "")
    (file.parent / "in").rename(file.parent / "away")
    with pytest.raises(UsageError, match="does not exist"):
        start_over(load(file))
    assert table(file.parent) == before


def test_a_removal_that_was_killed_is_ended_by_the_next_start(file: Path) -> None:
    run_locally(file)
    with closing(sqlite3.connect(file.parent / "out.db", isolation_level=None)) as db:
        for name in ("results", "results_batches", "results_dead_letters"):
            db.execute(f"DROP TABLE {name}")
    (file.parent / "checkpoint" / "waterclock.removing").touch()
    assert run_locally(file).batches == 7
    assert not (file.parent / "checkpoint" / "waterclock.removing").exists()


def test_a_checkpoint_that_was_moved_with_its_sink_goes_on(file: Path, tmp_path: Path) -> None:
    change(file, 'path = "in"', f'path = "{file.parent / "in"}"')
    change(file, "[time]\n", "[time]\nclose = false\n")
    run_locally(file)
    moved = tmp_path / "moved"
    moved.mkdir()
    for name in ("checkpoint", "out.db", file.name):
        (file.parent / name).rename(moved / name)
    assert run_locally(moved / file.name).batches == 0


def test_one_checkpoint_for_two_sinks_is_refused_and_not_removed(file: Path) -> None:
    run_locally(file)
    change(file, 'path = "out.db"', 'path = "other.db"')
    with pytest.raises(StateMismatch, match=r'is that of the pipeline with .*checkpoint = "checkpoint-2"'):
        run_locally(file)
    with pytest.raises(UsageError, match=r"so it is not removed.*checkpoint-2"):
        start_over(load(file))
    change(file, 'checkpoint = "checkpoint"', 'checkpoint = "checkpoint-2"')
    assert run_locally(file).batches == 7


def gone(folder: Path) -> None:
    (folder / "in" / "001.jsonl").unlink()


def cut(folder: Path) -> None:
    path = folder / "in" / "001.jsonl"
    path.write_bytes(path.read_bytes()[:100])


def other_times(folder: Path) -> None:
    path = folder / "in" / "005.jsonl"
    path.write_text(path.read_text().replace("2026-01-01", "2025-01-01"))


def newer(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "out.db", isolation_level=None)) as db:
        db.execute("""UPDATE results_batches SET offsets = replace(offsets, '"version":"', '"version":"99.')""")


def no_record(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "out.db", isolation_level=None)) as db:
        db.execute("DELETE FROM results_batches WHERE batch_id = 2")


def of_spark(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "out.db", isolation_level=None)) as db:
        db.execute("UPDATE results_batches SET offsets = 'v1' WHERE batch_id = 2")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (gone, r"001.jsonl is gone since it was read.*put it back"),
        (cut, r"001.jsonl is another one since it was read.*put it back"),
        (other_times, r"batch 5 was read once more, and says other times"),
        (newer, r"were made by waterclock 99\.\S+, which did not end cleanly"),
        (no_record, r"lacks the record of batch 2"),
        (of_spark, r'written by another engine than "local"'),
    ],
)
def test_what_would_make_another_state_is_refused(file: Path, damage: Callable[[Path], None], words: str) -> None:
    run_locally(file)
    before = table(file.parent)
    (file.parent / "checkpoint" / NAME).unlink()  # so that everything is read once more
    damage(file.parent)
    with pytest.raises(StateMismatch, match=words):
        run_locally(file)
    assert table(file.parent) == before


def test_other_rules_are_refused_and_named(file: Path) -> None:
    run_locally(file)
    change(file, 'by = "30 minutes"', 'by = "31 minutes"')
    with pytest.raises(StateMismatch, match=r"changed since .* was made \(rules\)"):
        run_locally(file)
    (file.parent / "checkpoint" / "waterclock.json").unlink()
    with pytest.raises(StateMismatch, match="with other rules"):
        run_locally(file)


def test_a_checkpoint_of_spark_names_the_way_to_carry_it_over(file: Path) -> None:
    (file.parent / "checkpoint" / "offsets").mkdir(parents=True)
    with pytest.raises(
        StateMismatch, match=r'engine = "spark": .* waterclock state move PIPELINE\.toml --engine local'
    ):
        run_locally(file)


def test_two_runs_at_once_are_refused(file: Path) -> None:
    with closing(configured(load(file))) as one, closing(configured(load(file))) as two:
        one.check()
        with pytest.raises(UsageError, match="another run has the checkpoint"):
            two.check()


def test_another_run_with_another_checkpoint_into_the_same_table_is_noticed(file: Path, tmp_path: Path) -> None:
    other = file.with_name("other.toml")
    other.write_text(file.read_text().replace('"checkpoint"', '"checkpoint-2"'))
    with closing(configured(load(file))) as one, closing(configured(load(other))) as two:
        one.check()
        two.check()
        one.run()
        with pytest.raises(StateMismatch):
            two.run()
    assert len(batches(file)) == 7


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('path = "out.db"', 'path = "out.db"\nquery = "SELECT * FROM results"', r"'query' and 'transform' in \[sink\]"),
        ('path = "in"\n', 'path = "in"\nformat = "orc"\n', "a source of Spark's readers"),
        ('checkpoint = "checkpoint"', 'checkpoint = "hdfs://host/checkpoint"', "a place behind a URI"),
        ('path = "out.db"', 'path = "lake"\nformat = "delta"', "a table of Delta Lake as a sink needs Spark"),
    ],
)
def test_what_only_spark_can_do_is_refused_by_its_name(file: Path, old: str, new: str, words: str) -> None:
    change(file, old, new)
    with pytest.raises(UsageError, match=words):
        configured(load(file))


def test_a_compacted_topic_is_refused(kafka_broker: Broker, kafka_topic: str, tmp_path: Path) -> None:
    topic = f"{kafka_topic}-compacted"
    kafka_broker.create_topic(topic, 1, {"cleanup.policy": "compact"})
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, topic)
    with pytest.raises(UsageError, match=r'is compacted.*engine = "spark"'):
        run_locally(file)


def test_a_topic_that_was_made_anew_is_refused(kafka_broker: Broker, topic: str, topic_file: Path) -> None:
    change(topic_file, "[time]\n", "[time]\nclose = false\n")
    run_locally(topic_file)
    Admin({"bootstrap.servers": kafka_broker.bootstrap}).remove([topic])
    kafka_broker.create_topic(topic, 3)
    Sender(kafka_broker.bootstrap, topic).orders(orders(80))
    with pytest.raises(StateMismatch, match="was made anew"):
        run_locally(topic_file)


def state_of_batch(file: Path, number: int) -> Path:
    """Run it with small snapshots; the state as it was behind that batch."""
    state, copy = file.parent / "checkpoint" / NAME, file.parent / "copy"

    def keep(progress: Progress) -> None:
        if progress.batch_id == number:
            with closing(sqlite3.connect(state)) as db, closing(sqlite3.connect(copy)) as to:
                db.backup(to)

    with closing(configured(load(file))) as pipeline:
        pipeline.run(report=keep)
    return copy


def test_a_replay_of_a_topic_begins_with_the_watermarks_of_its_partitions(
    topic_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(topic_file, "per_batch = 30", "per_batch = 5")  # so that a batch has nothing of some partition
    monkeypatch.setattr(module, "turns", lambda *_: 1)
    copy = state_of_batch(topic_file, 9)
    before = table(topic_file.parent)
    copy.replace(topic_file.parent / "checkpoint" / NAME)
    count = len(batches(topic_file))
    assert 0 < replayed(topic_file) < count - 5
    assert table(topic_file.parent) == before


def test_a_replay_goes_on_over_no_loss(
    kafka_broker: Broker, topic: str, topic_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(topic_file, "per_batch = 30", 'per_batch = 30\non_loss = "go on"')
    run_locally(topic_file)
    (topic_file.parent / "checkpoint" / NAME).unlink()
    admin = AdminClient({"bootstrap.servers": kafka_broker.bootstrap})
    for done in admin.delete_records([TopicPartition(topic, 0, 5)]).values():
        done.result()
    with pytest.raises(
        StateMismatch, match=r"are gone before they were read once more: .*whatever on_loss says: start"
    ):
        run_locally(topic_file)
    start_over(load(topic_file))
    assert run_locally(topic_file).totals["records"] == RECORDS - 5


def test_a_live_run_brings_what_comes_and_ends_behind_its_batch(
    kafka_broker: Broker, topic: str, topic_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FOLDED", 5)
    monkeypatch.setattr(module, "turns", lambda *_: 1)
    sender = Sender(kafka_broker.bootstrap, topic)
    with living(topic_file) as (pipeline, _):
        for row in orders(10, seed=2):
            sender.orders([{**row, "order": f"more-{row['order']}", "id": f"more-{row['id']}"}])
            time.sleep(0.02)
        counts(pipeline, "records", RECORDS + len(orders(10, seed=2)))
    summary = pipeline.statistics()
    rows = batches(topic_file)
    assert len(rows) < summary.batches, "rows of batches that are in every snapshot are folded"
    assert sum(json.loads(row[3])["events"] for row in rows) == summary.events
    assert run_locally(topic_file).totals["held"] == 0


def test_the_command_runs_it_checks_it_and_needs_no_java(file: Path) -> None:
    change(file, 'name = "orders"', 'name = "orders"\nengine = "local"')
    hidden = {"PATH": os.path.dirname(sys.executable), "JAVA_HOME": "/nowhere"}
    block = "import sys; sys.modules['pyspark'] = None\nfrom waterclock.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", block, "run", str(file), "--json"]
    checked = subprocess.run([*command, "--check"], env=hidden, capture_output=True, text=True)
    assert (checked.returncode, json.loads(checked.stdout)["faults"]) == (0, [])
    done = subprocess.run(command, env=hidden, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["totals"]["held"] == 0
    assert table(file.parent)


def test_check_says_what_is_wrong(file: Path) -> None:
    change(file, 'path = "in"', 'path = "gone"')
    assert "does not exist" in check(str(file)).faults[0]
    change(file, "[rules]", "[rulez]")
    assert check(str(file)).faults
