"""What a step of the user's own between topics and the rules promises, whichever way reads: the second part of the suite
in topic_contract.py, run by the same files.
"""

from __future__ import annotations

import json
from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.spark.pipelines import orders, table
from tests.spark.test_pipeline_api import TOLD, expected
from tests.spark.topic_contract import Files, NewTopic, counted, dead_letters, opened, run
from tests.spark.topics import Sender, value
from waterclock import Rules
from waterclock.errors import StateMismatch, UsageError, WaterclockError
from waterclock.sinks import SQLiteSink
from waterclock.spark import Pipeline, topics
from waterclock.streaming.summary import Progress

NAMED = """
query = '''SELECT `order`, at, coalesce(name, what) AS what, id, n, _row_id_place
FROM source LEFT JOIN (VALUES ("erstellt", "created")) AS names (what, name) USING (what)'''
"""
KEPT = 'query = "SELECT * FROM source"\n'
COLUMNS = {"order": "string", "at": "timestamp", "what": "string", "id": "string", "n": "long"}


def death(progress: Progress) -> None:
    raise RuntimeError("a death")


def in_german(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{**row, "what": "erstellt" if row["what"] == "created" else row["what"]} for row in rows]


@pytest.mark.long(seconds=12)
def test_a_query_between_a_topic_and_the_rules_gives_what_the_rules_give_in_process(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic, rows = new_topic(3), orders(10)
    Sender(bootstrap, topic).orders(in_german(rows))
    Sender(bootstrap, topic).put("rubbish", None, partition=1)
    file = pipeline_of(topic, more=f"per_batch = 60\n{NAMED}")
    with pytest.raises(WaterclockError, match="a death"):
        run(spark, file, report=death)  # behind the commit, before Spark knows
    summary = run(spark, file)
    assert Counter(table(file.parent, TOLD)) == expected(rows)
    ((place, _, reason),) = dead_letters(file)
    assert (place, reason) == (f"{topic}/1", "Expecting value: line 1 column 1 (char 0)")
    known = {name: summary.totals[name] for name in ("records", "tombstones", "dead_letters")}
    assert known == {"records": len(rows) + 2, "tombstones": 1, "dead_letters": 1}


@pytest.mark.long(seconds=12)
def test_behind_a_step_a_pipeline_that_is_closed_is_not_opened_again(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic, rows = new_topic(3), orders(10)
    Sender(bootstrap, topic).orders(in_german(rows))
    file = pipeline_of(topic, more=NAMED)
    run(spark, file)
    assert run(spark, file).batches == 0
    Sender(bootstrap, topic).orders(rows[:1])
    with pytest.raises(UsageError, match="the pipeline was closed, and 1 record came after that"):
        run(spark, file)


@pytest.mark.long(seconds=8)
def test_behind_a_step_a_partition_has_a_time_of_its_own_and_heartbeats_move_it(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    # by the largest time of all rows, as other sources have it, all of partition 1 would be late
    topic = new_topic(2)
    sender = Sender(bootstrap, topic)
    (row, *_) = orders(1)
    later, early = ({**row, "order": f"o{day}", "id": f"o{day}", "at": row["at"].replace(day=day)} for day in (9, 1))
    sender.put(value({**later, "what": "created", "n": 1}), partition=0)
    file = opened(pipeline_of(topic, more=KEPT))
    run(spark, file)
    sender.put(value({**early, "what": "created", "n": 1}), partition=1)
    run(spark, file)
    assert {kind for kind, *_ in counted(file)} == {"event"}
    sender.heartbeat("2026-02-01T00:00:00Z", 0, 1)
    run(spark, file)
    assert Counter(kind for kind, *_ in counted(file)) == {"event": 2, "emit": 2, "expired": 2}


@pytest.mark.long(seconds=6)
def test_what_a_step_spoils_is_a_dead_letter_with_the_place_of_its_record(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic, rows = new_topic(2), orders(4)
    Sender(bootstrap, topic).put(*map(value, rows[:4]), partition=1)
    query = "SELECT `order`, if(id = '{}', null, at) AS at, what, id, n, _row_id_place FROM source".format(
        rows[2]["id"]
    )
    file = pipeline_of(topic, more=f'query = "{query}"\n')
    run(spark, file)
    assert dead_letters(file) == [(f"{topic}/1", 2, "column 'at' (the time) is missing")]


@pytest.mark.long(seconds=8)
def test_equal_times_behind_a_step_go_by_offset(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, way: str, tmp_path: Path
) -> None:
    # more than a batch of Arrow's, each made two: rows of one offset stay together, and none is lost
    rules = Rules(key="k", time="t", type="w").order().expect("b", after="a", within="1 second", otherwise="no b")
    at, count = "2026-01-01T00:00:00Z", 6_000
    records = [json.dumps({"k": f"k{n}", "t": at, "w": w}) for n in range(count) for w in "ab"]
    topic = new_topic(1)
    Sender(bootstrap, topic).put(*records)
    source = topics(
        bootstrap, [topic], columns={"k": "string", "t": "timestamp", "w": "string"}, way=way, per_batch=7_000,
        transform=lambda rows: rows.selectExpr("k", "t", "w", "_row_id_place", "explode(array(1, 2)) AS twin"),
    )  # fmt: skip
    sink = SQLiteSink(tmp_path / "out.db")
    with Pipeline(source, rules, sink, tmp_path / "checkpoint") as pipeline:
        totals = pipeline.run(spark).totals
    assert (totals["events"], totals["records"]) == (4 * count, 2 * count)
    start = datetime.fromisoformat(at)
    rows = [{"k": f"k{n}", "t": start, "w": w, "twin": twin} for n in range(count) for w in "ab" for twin in (1, 2)]
    assert Counter(table(tmp_path, "kind, key")) == Counter((r.kind, r.key) for r in rules.run(rows))


@pytest.mark.parametrize(
    ("step", "told"),
    [
        ('query = "SELECT `order`, at, what, id, n FROM source"', r"leaves out _row_id_place.*name it in the SELECT"),
        ('query = "SELECT what, count(*) AS n FROM source GROUP BY what"', "behind source holds an aggregation"),
        ('query = "SELECT at, _row_id_place FROM source"', "the rules name the column 'order'; the events have at"),
        ('query = "SELECT 1 AS a"', "does not read source"),
    ],
)
def test_a_step_that_keeps_state_or_leaves_the_place_out_is_refused_before_anything_is_written(
    spark: SparkSession, new_topic: NewTopic, pipeline_of: Files, step: str, told: str
) -> None:
    file = pipeline_of(new_topic(1), more=f"{step}\n")
    with pytest.raises(UsageError, match=told):
        run(spark, file)
    assert not (file.parent / "checkpoint" / "offsets").exists()


@pytest.mark.long(seconds=6)
def test_another_query_is_another_pipeline(
    spark: SparkSession, bootstrap: str, new_topic: NewTopic, pipeline_of: Files
) -> None:
    topic = new_topic(1)
    Sender(bootstrap, topic).orders(orders(3))
    file = opened(pipeline_of(topic, more=KEPT))
    run(spark, file)
    file.write_text(
        file.read_text().replace("SELECT *", "SELECT `order`, at, upper(what) AS what, id, n, _row_id_place")
    )
    with pytest.raises(StateMismatch, match=r"the pipeline changed .*\(query\)"):
        run(spark, file)
