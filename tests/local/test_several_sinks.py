"""Several sinks of a pipeline without Spark: each gets what it takes, once, also where a kill comes between two of them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.local.places import sink_text
from tests.local.running import driven, run_locally
from tests.sinks.stores import TopicStore
from tests.spark.pipelines import make_pipeline, orders
from tests.spark.topics import Sender, make_topic_pipeline
from waterclock.errors import StateMismatch, UsageError
from waterclock.local import pipeline as module
from waterclock.local.command import check, configured, start_over
from waterclock.local.snapshots import NAME
from waterclock.sinks import RecordingSink
from waterclock.streaming.toml.config import load
from waterclock.testing import Broker

ALONE = '[sink]\npath = "out.db"\n'
ASIDE = (
    '[[sink]]\npath = "out.db"\ntakes = ["results"]\n[[sink]]\npath = "aside.db"\ntakes = ["late", "dead_letters"]\n'
    '[[sink]]\npath = "some.db"\ncolumns = ["event_at", "key", "due"]\n'
)
PARTS = ("", "_dead_letters", "_batches")
FILES = 6
Tables = list[list[tuple[Any, ...]]]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Some events are late, and some lines are none."""
    made = make_pipeline(tmp_path, orders(60), FILES)
    text = made.read_text().replace('watermark_delay = "1 hour"', 'watermark_delay = "1 minute"')
    made.write_text(text.replace(ALONE, ASIDE))
    with (tmp_path / "in" / "003.jsonl").open("a") as lines:
        lines.write("{\n")
    return made


def look(file: Path, name: str, columns: str = "*", part: str = "") -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(file.with_name(name))) as db:
        return db.execute(f"SELECT {columns} FROM results{part} ORDER BY rowid").fetchall()


def found(file: Path) -> Tables:
    """All of the three; of the batches what is no matter of when a bucket is written."""
    counters = "json_remove(counters, '$.state_bytes')"
    of_batches = f"batch_id, offsets, watermark, {counters}"
    names = ("out.db", "aside.db", "some.db")
    return [look(file, name, of_batches if part == PARTS[2] else "*", part) for name in names for part in PARTS]


def anew(file: Path) -> None:
    """The pipeline as if it had never run."""
    for name in ("out.db", "aside.db", "some.db"):
        for end in ("", "-wal", "-shm"):
            file.with_name(f"{name}{end}").unlink(missing_ok=True)
    for path in (file.parent / "checkpoint").iterdir():
        path.unlink()


def test_each_gets_what_it_takes_with_the_columns_that_it_asks_for(file: Path) -> None:
    assert check(str(file)).faults == []
    assert not (file.parent / "out.db").exists()
    summary = run_locally(file)
    text = file.read_text()
    start_over(load(file))
    run_locally(file)
    mixed = found(file)
    anew(file)
    file.write_text(text.replace(ASIDE, ALONE))
    whole = run_locally(file)
    rows, dead = look(file, "out.db"), look(file, "out.db", "*", "_dead_letters")
    late = [row for row in rows if row[1] == "late"]
    assert len(late) > 5
    assert mixed[0] == [row for row in rows if row not in late]
    assert mixed[1] == []
    assert (mixed[3], mixed[4]) == (late, dead)
    assert mixed[6] == look(file, "out.db", "batch_id, event_at, key, due")
    assert mixed[7] == dead != []
    assert summary.totals["results"] == whole.totals["results"] - len(late)


def test_a_kill_behind_each_commit_of_each_sink_changes_nothing(file: Path) -> None:
    run_locally(file)
    peace = found(file)
    anew(file)
    for count in (1, 2, 3, 4, 5, 7):
        assert driven(file, "committed", count) is None
    assert driven(file) is not None
    assert found(file) == peace


@pytest.mark.parametrize("name", ["out.db", "aside.db"])
def test_a_sink_that_was_put_back_or_lost_gets_what_it_lacks(file: Path, name: str) -> None:
    run_locally(file)
    peace = found(file)
    with closing(sqlite3.connect(file.with_name(name), isolation_level=None)) as db:
        for part in PARTS:
            db.execute(f"DELETE FROM results{part} WHERE batch_id > 2")
    assert run_locally(file).batches == 0
    assert found(file) == peace
    file.with_name(name).unlink()
    totals = run_locally(file).totals
    assert found(file) == peace
    assert totals["results"] == sum(1 for _ in peace[0])


def test_one_that_lacks_what_the_source_has_no_more_is_refused(file: Path) -> None:
    run_locally(file)
    file.with_name("aside.db").unlink()
    (file.parent / "in" / "001.jsonl").unlink()
    with pytest.raises(StateMismatch, match=r"001.jsonl is gone since it was read.*put it back"):
        run_locally(file)


def test_one_that_lacks_what_no_record_says_any_more_is_named(
    kafka_broker: Broker, kafka_topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FOLDED", 5)
    monkeypatch.setattr(module, "turns", lambda *_: 1)
    Sender(kafka_broker.bootstrap, kafka_topic).orders(orders(20))
    file = make_topic_pipeline(tmp_path, kafka_broker.bootstrap, kafka_topic, more="per_batch = 4")
    file.write_text(file.read_text().replace(ALONE, ASIDE))
    run_locally(file)
    peace, aside = found(file), file.with_name("aside.db")
    copy = aside.replace(file.with_name("copy.db"))
    with pytest.raises(
        StateMismatch, match=r"lacks the record of batch 0.*: restore the table 'results' in \S+aside.db, or"
    ):
        run_locally(file)
    copy.replace(aside)
    assert run_locally(file).batches == 0
    assert found(file) == peace


def test_one_may_be_left_out_and_does_not_come_back(file: Path) -> None:
    text = file.read_text().replace("[time]\n", "[time]\nclose = false\n")
    last = sorted((file.parent / "in").iterdir())[-1]
    later = last.rename(file.with_name("later"))
    file.write_text(text)
    run_locally(file)
    aside = look(file, "aside.db", part="_batches")
    later.rename(last)
    file.write_text(text.replace(ASIDE, ALONE))
    assert run_locally(file).batches == 1
    assert look(file, "aside.db", part="_batches") == aside
    file.write_text(text)
    with pytest.raises(StateMismatch, match=r"is that of the pipeline with the table 'results' in \S+out.db, and this"):
        run_locally(file)


def test_fresh_starts_over_where_one_was_left_out_and_where_it_comes_back(file: Path) -> None:
    """It took the checkpoint for another pipeline's, as its sinks were not the same to the letter."""
    text = file.read_text()
    run_locally(file)
    peace = found(file)
    for sinks in (ALONE, ASIDE):
        file.write_text(text.replace(ASIDE, sinks))
        start_over(load(file))
        run_locally(file)
    assert found(file) == peace


def test_sinks_of_two_pipelines_are_refused(file: Path, tmp_path: Path) -> None:
    run_locally(file)
    other = make_pipeline(tmp_path / "other", orders(3), 1)
    run_locally(other)
    other.with_name("out.db").replace(file.with_name("aside.db"))
    (file.parent / "checkpoint" / NAME).unlink()
    with pytest.raises(
        StateMismatch, match=r"'results' in .*out.db and .*aside.db.* hold results of different pipelines"
    ):
        run_locally(file)


def test_a_table_and_a_topic_of_one_pipeline_hold_the_same(kafka_broker: Broker, file: Path) -> None:
    store = TopicStore(kafka_broker.bootstrap)
    text = file.read_text().replace(ASIDE, f'[[sink]]\npath = "out.db"\n[[sink]]\n{sink_text(store)}\n')
    file.write_text(text)
    assert driven(file, "committed", 5) is None  # the table's of a batch that the topic lacks
    assert driven(file) is not None
    names = "batch_id, kind, key, rule, source_id, result_id, event_what, event_n"
    assert store.in_order(names) == look(file, "out.db", names) != []
    with closing(configured(load(file))) as pipeline:
        sinks = [outlet.sink for outlet in pipeline._outlets._all]
        assert all(isinstance(sink, RecordingSink) for sink in sinks)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('"late", "dead_letters"', '"dead_letters"', ""),
        ('path = "some.db"', 'path = "some"\nformat = "delta"', "as a sink needs Spark"),
        ('columns = ["event_at"', 'columns = ["event_gone"', "names the column 'event_gone'"),
        ('path = "some.db"', 'path = "out.db"', "two of the pipeline's sinks write to"),
    ],
)
def test_what_cannot_be_is_said_by_the_check_too(file: Path, old: str, new: str, words: str) -> None:
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    faults = check(str(file)).faults
    if not words:
        assert faults == []
        return
    assert words in faults[0]
    with pytest.raises(UsageError, match=words):
        run_locally(file)
