"""README: what its first screen has, that each door's sample runs, and that its numbers are those of the records."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.samples import all_blocks, free_port, run_page

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
DOORS = ("Timers", "A Kafka for tests", "Delayed messages", "A database's changes", "Pipelines", "Learn")


def record(name: str) -> Any:
    return json.loads((ROOT / "bench" / "results" / name).read_text(encoding="utf-8"))["figures"]


def door(name: str, folder: Path) -> Path:
    """A page of this door alone."""
    page = folder / "door.md"
    page.write_text(re.split(r"^##", TEXT.split(f"\n### {name}")[1], flags=re.M)[0], encoding="utf-8")
    return page


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    folder = tmp_path / "empty"
    folder.mkdir()
    return folder


def test_the_first_screen_is_a_picture_a_sentence_and_six_doors() -> None:
    title, picture, sentence = TEXT.split("\n\n")[:3]
    assert title == "# waterclock"
    assert re.fullmatch(r"!\[A timing wheel in use: .+\]\(docs/pictures/wheel\.svg\)", picture)
    assert sentence.startswith("waterclock is Kafka's way with time, for Python")
    assert sentence.count(". ") == 0
    assert [heading.startswith(name) for heading, name in zip(headings(), DOORS, strict=True)] == [True] * len(DOORS)
    assert len(TEXT.splitlines()) <= 120


def headings() -> list[str]:
    return re.findall(r"^### (.+)$", TEXT, re.M)


@pytest.mark.parametrize("name", DOORS)
def test_a_door_has_a_sample_of_a_few_lines(name: str, tmp_path: Path) -> None:
    samples = list(all_blocks(door(name, tmp_path).read_text(encoding="utf-8")))
    assert samples
    assert max(sum(map(bool, sample.content.splitlines())) for sample in samples) <= 10


def test_timers_run_as_they_stand(tmp_path: Path, empty: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_page(door("Timers", tmp_path), empty) == 1
    assert capsys.readouterr().out == "a tenth of a second\ncancelled: True\n"


def test_the_test_with_a_kafka_in_it_passes(tmp_path: Path, empty: Path) -> None:
    pytest.importorskip("kio")
    pytest.importorskip("confluent_kafka")
    assert run_page(door("A Kafka for tests", tmp_path), empty) == 1
    ran = subprocess.run([sys.executable, "-m", "pytest", "-q"], cwd=empty, capture_output=True, text=True, check=False)
    assert "1 passed" in ran.stdout


def test_a_message_comes_later(tmp_path: Path, empty: Path) -> None:
    pytest.importorskip("kio")
    pytest.importorskip("confluent_kafka")
    port = free_port()
    there = f"--bootstrap 127.0.0.1:{port}"
    put = {
        "--embedded out/relay": f"--embedded out/relay --port {port}",
        "127.0.0.1:9092": f"127.0.0.1:{port}",
        "--delay 3s": f"--delay 3s {there}",
        "--most 1": f"--most 1 {there}",
    }
    assert run_page(door("Delayed messages", tmp_path), empty, put=put) == 1


@pytest.mark.mariadb
def test_a_databases_changes_are_copied(tmp_path: Path, empty: Path) -> None:
    """From a server of its own: the capture reads all of the log, and other tests write what it refuses."""
    pytest.importorskip("kio")
    pytest.importorskip("pymysqlreplication")
    from tests.cdc.mariadb import running_server

    with running_server(tmp_path / "db") as mariadb:
        mariadb.run(
            "create database shop",
            "create table shop.item (id int primary key)",
            "insert into shop.item values (1), (2), (3)",
            "create user capture",
            "grant select on *.* to capture",
        )
        port = free_port()
        put = {
            "broker --data out/broker": f"broker --data out/broker --port {port}",
            "capture@127.0.0.1:3307/shop --password-file password.txt": f"root@127.0.0.1:{mariadb.port}/shop",
            "127.0.0.1:9092": f"127.0.0.1:{port}",
        }
        assert run_page(door("A database's changes", tmp_path), empty, put=put, has={"MariaDB"}) == 1


@pytest.mark.spark
def test_the_pipeline_writes_its_event_and_that_it_is_unpaid(tmp_path: Path, empty: Path) -> None:
    pytest.importorskip("pyarrow")
    assert run_page(door("Pipelines", tmp_path), empty) == 2  # the console shows these rows too
    with closing(sqlite3.connect(empty / "orders.db")) as db:
        rows = db.execute("SELECT kind, key, rule, due FROM results").fetchall()
    assert rows == [
        ("event", "A", "order", "2026-01-01 12:00:00.000000"),
        ("expired", "A", "unpaid", "2026-01-01 12:30:00.000000"),
    ]


def test_the_wheel_turns_as_it_is_shown(tmp_path: Path, empty: Path) -> None:
    assert run_page(door("Learn", tmp_path), empty) == 1


def numbers() -> Mapping[str, tuple[str, str, str]]:
    table = TEXT.split("## Three numbers\n\n")[1].split("\n\n")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {what: (ours, beside, doubt) for what, ours, beside, doubt in rows}


def test_the_three_numbers_are_those_of_the_records_each_with_its_doubt() -> None:
    churn = {name: of["churn"].get("100000") for name, of in record("timers.json")["ns"].items()}
    start = {name: of["start"]["ready_s"] for name, of in record("broker.json")["runs"].items()}
    runs = record("processors/pipeline.json")["processors"]["records"]
    rows = {run["contender"]: run["rows_per_s"] for run in runs if run["sink"] == "SQLite"}
    assert all(run["events"] == 350_000 and run["rounds"] == 3 and run["right"] for run in runs)
    assert [told[:2] for told in numbers().values()] == [
        (f"{churn['waterclock, compiled']:.0f} ns", f"asyncio: {churn['asyncio call_later']:,.0f} ns"),
        (f"{start['waterclock']:.2f} s", f"Apache Kafka: {start['Apache Kafka, fsync']:.1f} s"),
        (f"{rows['waterclock']:,.0f}"[:-2] + "00", f"Apache Flink: {rows['Flink, hashmap']:,.0f}"[:-2] + "00"),
    ]
    assert all(doubt for *_, doubt in numbers().values())
    assert "](docs/performance.md)" in TEXT.split("## Three numbers")[1].split("\n## ")[0]
