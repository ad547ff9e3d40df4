"""A pipeline's file on a list of events: what a run makes of them, in memory, and nothing else is touched."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.local.running import run_locally
from tests.local.test_pipeline import change
from tests.spark.pipelines import START, make_pipeline, orders
from waterclock.errors import UsageError
from waterclock.testing import run_pipeline

ROWS = orders(40)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return make_pipeline(tmp_path, ROWS, 6)


def event(order: str, after: timedelta, what: str = "created", number: int = 1) -> dict[str, Any]:
    return {"order": order, "at": START + after, "what": what, "id": f"{order}-{number}", "n": number}


def test_it_makes_what_a_run_makes(file: Path) -> None:
    change(file, "files_per_batch = 1", "files_per_batch = 6")
    tried = run_pipeline(file, ROWS, per_batch=len(ROWS))
    assert sorted(os.listdir(file.parent)) == ["in", "pipeline.toml"]
    summary = run_locally(file)
    with closing(sqlite3.connect(file.parent / "out.db")) as db:
        columns = "kind, key, rule, due, emitted_at, source_id, result_id, event_at, event_n"
        found = db.execute(f"SELECT {columns} FROM results ORDER BY rowid").fetchall()
    made = [
        (*(row[name] for name in columns.split(", ")[:7]), *((row["event"] or {}).get(name) for name in ("at", "n")))
        for row in tried.results
    ]
    text = "%Y-%m-%d %H:%M:%S.%f"
    assert [tuple(v.strftime(text) if isinstance(v, datetime) else v for v in row) for row in made] == found
    counted = {name: count for name, count in summary.totals.items() if name not in ("files", "state_bytes")}
    assert counted.items() <= tried.counters.items()


def test_by_default_each_event_is_a_batch_and_one_behind_the_watermark_is_late(file: Path) -> None:
    events = [event("a", timedelta(hours=9)), event("b", timedelta(0))]
    assert run_pipeline(file, events).counters["late"] == 1
    assert run_pipeline(file, events, per_batch=2).counters["late"] == 0


def test_without_a_close_time_comes_as_far_as_a_heartbeat_takes_it(file: Path) -> None:
    change(file, "[time]\n", "[time]\nclose = false\n")
    created = event("a", timedelta(0))

    def rules_behind(hours: float) -> set[str]:
        beat = {"at": (START + timedelta(hours=hours)).isoformat()}
        return {row["rule"] for row in run_pipeline(file, [created, beat]).results}

    assert rules_behind(1.3) & {"unpaid", "remind"} == set()  # the watermark is an hour behind
    assert rules_behind(1.4) & {"unpaid", "remind"} == {"unpaid"}
    assert rules_behind(1.6) & {"unpaid", "remind"} == {"unpaid", "remind"}


def test_what_is_no_event_is_a_dead_letter_as_in_a_run(file: Path) -> None:
    run = run_pipeline(file, ["{damaged", {**event("a", timedelta(0)), "n": "one"}, event("b", timedelta(0))])
    assert [(row["line"], row["text"][:8]) for row in run.dead_letters] == [(0, "{damaged"), (1, '{"order"')]
    assert (run.counters["dead_letters"], run.counters["events"]) == (2, 1)


def test_times_are_datetimes_with_a_zone(file: Path) -> None:
    (first, *_) = run_pipeline(file, [event("a", timedelta(0))]).results
    assert first["event"]["at"] == datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("wrong", [7, ["a"], {"order": Decimal(1)}])
def test_what_no_record_could_hold_is_an_error(file: Path, wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"an event.* needs to be a"):
        run_pipeline(file, [wrong])


def test_a_result_that_is_due_behind_the_calendar_is_told_and_the_remedy_helps(file: Path) -> None:
    far = {**event("a", timedelta(0)), "at": "9999-12-30T23:50:00Z"}
    change(file, 'by = "30 minutes"', 'by = "400 days"')
    with pytest.raises(UsageError, match=r"due behind the year 9999.*shorten the rules' durations"):
        run_pipeline(file, [far])
    change(file, 'by = "400 days"', 'by = "30 minutes"')
    assert run_pipeline(file, [far]).counters["results"] > 1


def test_batches_of_nothing_are_refused(file: Path) -> None:
    with pytest.raises(ValueError, match="per_batch must be 1 or more, got 0"):
        run_pipeline(file, ROWS, per_batch=0)


def test_a_pipeline_of_a_topic_needs_no_broker(file: Path) -> None:
    change(
        file,
        'path = "in"\nfiles_per_batch = 1',
        'format = "kafka"\nservers = "nobody:1"\ntopics = ["t"]\nrecord = {key = "by", offset = "place"}',
    )
    (row, *_) = run_pipeline(file, [{**event("a", timedelta(0)), "by": "me", "place": 7}]).results
    assert (row["event"]["by"], row["event"]["place"]) == ("me", 7)


def test_where_an_event_lies_is_no_part_of_what_it_says(file: Path) -> None:
    # an event that was sent twice was two, and a heartbeat a dead letter, where a run has one, and a heartbeat
    source = 'format = "kafka"\nservers = "nobody:1"\ntopics = ["t"]\nrecord = {offset = "place"}'
    change(file, 'path = "in"\nfiles_per_batch = 1', source)
    change(file, 'id = "id"\nsequence = "n"\n', "")
    twice = event("a", timedelta(0))
    counters = run_pipeline(
        file, [{**twice, "place": 0}, {**twice, "place": 1}, {"at": START + timedelta(hours=1), "place": 2}]
    ).counters
    assert [counters[name] for name in ("events", "duplicates", "heartbeats", "dead_letters")] == [2, 1, 1, 0]


def test_a_pipeline_of_csv_takes_the_same_events(file: Path) -> None:
    change(file, 'path = "in"\n', 'path = "in"\nformat = "csv"\noptions = {header = "true"}\n')
    change(file, 'n = "long"', 'n = "int"')
    (row, *_) = run_pipeline(file, [event("a", timedelta(0))]).results
    assert row["event"] == event("a", timedelta(0))


def test_what_needs_spark_is_refused_by_its_name(file: Path) -> None:
    change(file, 'path = "out.db"', 'path = "out.db"\nquery = "SELECT * FROM results"')
    with pytest.raises(UsageError, match="needs Spark"):
        run_pipeline(file, [])
