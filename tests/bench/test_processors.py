"""`waterclock bench pipeline` beside Flink and Kafka Streams: what must come out, what is said, and tiny runs of it all."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from argparse import ArgumentTypeError
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("pyspark")

from tests.bench.conftest import quiet
from waterclock.bench import command, orders
from waterclock.bench.kafka.harness import TOOLS, NotMeasured, missing
from waterclock.bench.processors import building, campaign, course
from waterclock.bench.processors.answers import Answer, answer, counted, of_table
from waterclock.bench.processors.contender import Contender
from waterclock.bench.processors.table import losses, table
from waterclock.bench.trees import hold, tree_cpu_s

FIGURES: dict[str, Any] = {
    "has_rules": True,
    "events": 350_000,
    "rounds": 1,
    "right": True,
    "rows_per_s": 40_000.0,
    "cpu_s_per_million": 30.0,
    "whole_s": 10.0,
    "whole_cpu_s_per_million": 35.0,
    "broker_cpu_s_per_million": None,
}
OURS = {**FIGURES, "contender": "waterclock", "sink": "SQLite"}


# What must come out


def test_the_answer_that_everybody_is_held_to_is_the_one_of_the_rules_in_process() -> None:
    made = orders.make(300).rows
    events = [dict(zip(course.COLUMNS, row, strict=True)) for row in made]
    ours = [
        (r.kind, r.key, r.rule, text(r.due), r.source_id, r.event and r.event["id"], r.event and text(r.due))
        for r in orders.ALL.run(events, watermark_delay="2 minutes")
    ]
    assert answer(ours) == answer(course.results(made))


def text(us: Any) -> str:
    return course.texts([us])[0]


def test_a_row_that_is_missing_doubled_or_another_is_no_right_answer() -> None:
    rows = list(course.results(orders.make(5).rows))
    right = answer(rows)
    assert right.is_right(answer(reversed(rows)))
    other = [("met" if rows[-1][0] == "expired" else "expired", *rows[-1][1:])]
    swapped = [(*rows[0][:4], rows[1][4], *rows[0][5:])]
    for wrong in (rows[1:], [*rows, rows[0]], rows[:-1] + other, swapped + rows[1:]):
        assert not right.is_right(answer(wrong))
    assert right.is_right(counted({**right.counts, "late": 0}))
    assert not right.is_right(counted({**right.counts, "late": 1}))


def test_files_hold_all_rows_in_their_order_and_the_last_is_no_longer_than_the_first(tmp_path: Path) -> None:
    made = course.make(100, tmp_path / "in")
    files = sorted((tmp_path / "in").iterdir())
    read = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert [row["id"] for row in read] == [row[0] for row in orders.make(25).rows]
    assert (made.events, made.rows, len(files)) == (100, len(read), course.FILES)
    assert made.answer.counts["event"] == 100
    assert made.answer.counts["met"] + made.answer.counts.get("expired", 0) == 25


def test_a_table_that_is_read_again_is_held_to_the_same_rows(tmp_path: Path) -> None:
    rows = list(course.results(orders.make(5).rows))
    with closing(sqlite3.connect(tmp_path / "results.db")) as db:
        db.execute("CREATE TABLE results (kind, key, rule, due, source_id, event_id, event_deliver_at)")
        db.executemany("INSERT INTO results VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
        db.execute("INSERT INTO results VALUES ('event', 'end0', 'deliver_at', '', 'end0-1', 'end0-1', '')")
        db.commit()
    assert isinstance(found := of_table(tmp_path / "results.db"), Answer)
    assert answer(rows).is_right(found)


# What is said


def test_the_table_has_ratios_to_waterclock_of_the_same_sink_and_says_where_it_loses() -> None:
    flink = {**OURS, "contender": "Flink, hashmap", "rows_per_s": 50_000.0, "whole_cpu_s_per_million": 70.0}
    wrong = {**OURS, "contender": "Kafka Streams", "right": False, "rows_per_s": None, "cpu_s_per_million": None}
    floor = {**OURS, "contender": "no rules", "rows_per_s": 200_000.0, "has_rules": False}
    figures = {"records": [OURS, flink, wrong, floor], "versions": ["it 1"], "notes": {"that": "not measured: no Java"}}
    shown = table(figures).splitlines()
    rows = {line.split("  ")[0]: line.split() for line in shown[1:5]}
    assert rows["waterclock"][1:] == ["40,000", "30", "10", "35", "-", "right"]
    of_flink = "50,000 (0.80x) 30 (1.00x) 10 (1.00x) 70 (2.00x) - right"
    assert rows["Flink, hashmap"][2:] == of_flink.split()
    assert (rows["Kafka Streams"][2:4], rows["Kafka Streams"][-1]) == (["-", "-"], "WRONG")
    assert [line for line in shown if "loses" in line] == [
        "waterclock loses to Flink, hashmap, SQLite, 350k events: rows/s 40,000 against 50,000"
    ]
    assert shown[-1] == "that: not measured: no Java"


def test_nobody_loses_to_who_has_no_rules_nor_to_another_sink_or_size() -> None:
    better = {"rows_per_s": 900_000.0, "contender": "it"}
    assert list(losses([OURS, {**OURS, **better, "has_rules": False}])) == []
    assert list(losses([OURS, {**OURS, **better, "sink": "thrown away"}, {**OURS, **better, "events": 1}])) == []


def test_each_engine_of_waterclock_is_held_to_the_others_and_not_to_the_other_engine() -> None:
    local = {**OURS, "contender": "waterclock, local", "rows_per_s": 90_000.0, "whole_s": 3.0}
    flink = {**OURS, "contender": "it", "rows_per_s": 60_000.0, "whole_s": 2.0}
    assert list(losses([OURS, local, flink])) == [
        "waterclock loses to it, SQLite, 350k events: rows/s 40,000 against 60,000; whole, s 10 against 2",
        "waterclock, local loses to it, SQLite, 350k events: whole, s 3 against 2",
    ]
    assert list(losses([OURS, local])) == []


def test_contenders_are_chosen_by_name_and_those_of_one_sink_stand_together() -> None:
    assert command.contenders("streams,flink") == ["streams", "flink"]
    with pytest.raises(ArgumentTypeError, match="there is no contender 'storm'; did you mean 'streams'"):
        command.contenders("flink,storm")
    assert [(entry.name, entry.sink) for entry in campaign.entries(["flink"])] == [
        ("waterclock", "SQLite"),
        ("waterclock, local", "SQLite"),
        ("no rules: Spark reads and writes", "SQLite"),
        ("no rules: Arrow reads, SQLite writes", "SQLite"),
        ("Flink, hashmap", "SQLite"),
        ("waterclock", "thrown away"),
        ("waterclock, local", "thrown away"),
        ("Flink, hashmap", "thrown away"),
    ]
    for name in ("waterclock", "waterclock, local"):
        brokers = [entry.sink for entry in campaign.entries(["streams"]) if entry.name == name]
        assert brokers == list(campaign.BROKERS)


# Processes


def test_what_a_process_says_beside_its_record_is_nobodys_business(tmp_path: Path) -> None:
    echo = (
        "import sys\nfor line in sys.stdin: print('hello'); print('{\"said\": \"' + line.strip() + '\"}', flush=True)"
    )
    contender = Contender([sys.executable, "-c", echo], tmp_path / "log")
    assert [contender.ask("one", 1), contender.ask("two")] == [{"said": "one 1"}, {"said": "two"}]
    contender.close()


def test_a_process_that_ends_is_a_reason_with_its_last_words(tmp_path: Path) -> None:
    contender = Contender([sys.executable, "-c", "raise SystemExit('no room on the disk')"], tmp_path / "log")
    with pytest.raises(NotMeasured, match="its process ended: no room on the disk"):
        contender.ask("one")
    contender.close()


def test_what_children_took_is_counted_while_they_live_and_when_they_have_ended(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    run = f"subprocess.run([sys.executable, '-c', {burn!r}])"
    parent = f"import subprocess, sys\nfor line in sys.stdin: {run}; print('{{\"\": 0}}')"
    contender = Contender([sys.executable, "-uc", parent], tmp_path / "log")
    before = tree_cpu_s(contender.pid)
    contender.ask("burn")
    assert tree_cpu_s(contender.pid) - before >= 0.2
    contender.close()


def test_a_program_is_made_once_and_again_when_a_source_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jar").touch()
    maven = f"for word; do case $word in -Dmdep.outputFile=*) echo {tmp_path}/a.jar > ${{word#*=}};; esac; done"
    for tool, script in {"mvn": maven, "javac": "mkdir -p $2", "java": ""}.items():
        (tmp_path / tool).write_text(f"#!/bin/sh\necho {tool} >> {tmp_path}/called\n{script}\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(building, "KEPT", tmp_path / "kept")
    assert building.command("flink", quiet) == building.command("flink", quiet)
    assert (tmp_path / "called").read_text().split() == ["mvn", "javac"]
    monkeypatch.setattr(building, "_digest", lambda sources: "another")
    building.command("flink", quiet)
    assert (tmp_path / "called").read_text().split() == ["mvn", "javac"] * 2
    assert len(list((tmp_path / "kept").iterdir())) == 2


def test_without_java_who_needs_it_is_left_out_with_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda tool: None if tool in TOOLS else f"/bin/{tool}")
    monkeypatch.setattr(campaign, "Contender", lambda *_: pytest.fail("started"))
    with campaign._ground(quiet) as ground:
        flink = next(entry for entry in campaign.entries(["flink"]) if entry.process == "flink")
        assert not campaign._is_ready(ground, flink, [])
    assert ground.notes == {
        "Flink, hashmap, SQLite": "not measured: it needs java, javac, mvn on the PATH "
        "(Debian: apt install default-jdk-headless maven)"
    }
    assert not ground.folder.exists()


# All of it, tiny


def test_the_local_engine_gives_the_answer_in_a_process_without_spark(tmp_path: Path) -> None:
    made = course.make(2000, tmp_path / "in")
    for name in ("kept", "thrown", "floor"):
        (tmp_path / name).mkdir()
    contender = Contender([sys.executable, "-P", "-c", WITHOUT_SPARK], tmp_path / "log")
    kept, thrown, floor = (
        contender.ask(what, made.folder, sink, tmp_path / name)
        for what, sink, name in (
            ("files", "sqlite", "kept"),
            ("files", "nothing", "thrown"),
            ("floor", "sqlite", "floor"),
        )
    )
    contender.close()
    assert made.answer.is_right(of_table(tmp_path / "kept" / "results.db"))
    assert made.answer.is_right(counted(thrown["counts"]))
    assert floor["counts"] == {"rows": made.rows}
    assert {record["marks"][-1][1] for record in (kept, thrown, floor)} == {made.rows}


WITHOUT_SPARK = """
import sys
sys.modules["pyspark"] = None
from waterclock.bench.processors.local import RUNS, serve
serve(RUNS)
"""


def bench(folder: Path, contenders: str) -> Any:
    if missing():
        pytest.skip(f"it needs {', '.join(missing())}")
    words = ["bench", "pipeline", "--contenders", contenders, "--events", "400", "--out", str(folder)]
    done = subprocess.run(
        [sys.executable, "-m", "waterclock.cli", *words], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((folder / "pipeline.json").read_text())["figures"]["processors"]
    assert found["notes"] == {}
    return found


@pytest.mark.spark
@pytest.mark.long(seconds=80)
def test_flink_and_waterclock_write_the_same_rows(tmp_path: Path) -> None:
    found = bench(tmp_path, "flink,flink-rocksdb")
    everybody = [(entry.name, entry.sink, True) for entry in campaign.entries(["flink", "flink-rocksdb"])]
    assert [(row["contender"], row["sink"], row["right"]) for row in found["records"]] == everybody
    assert [version.split()[0] for version in found["versions"]] == ["Flink", "waterclock", "waterclock"]


@pytest.mark.spark
@pytest.mark.servers
@pytest.mark.long(seconds=120)
def test_kafka_streams_and_waterclock_write_the_same_records_on_both_brokers(tmp_path: Path) -> None:
    found = bench(tmp_path, "streams")
    everybody = [(entry.name, entry.sink, True) for entry in campaign.entries(["streams"])]
    assert [(row["contender"], row["sink"], row["right"]) for row in found["records"]] == everybody


def test_a_tree_of_processes_is_held_to_the_cpus_that_are_told_and_so_is_what_it_starts_later() -> None:
    every, tell = os.sched_getaffinity(0), "print(sorted(os.sched_getaffinity(0)), flush=True)"
    later = f"subprocess.run([sys.executable, '-c', 'import os; {tell}'])"
    code = f"import os, subprocess, sys\nfor line in sys.stdin: {later}"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as held:
        hold(held.pid, {max(every)})
        assert held.communicate("now\n")[0] == f"[{max(every)}]\n"
    assert os.sched_getaffinity(0) == every
