"""`waterclock bench cdc`: a tiny binlog through the command. Figures are not looked at; answers and the record are."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("pymysqlreplication")
pytest.importorskip("psycopg")

from waterclock import cli
from waterclock.bench import tables
from waterclock.bench.cdc import campaign
from waterclock.bench.cdc.debezium import NAME, Debezium, Engine
from waterclock.bench.cdc.ended import ended
from waterclock.examples.cdc import servers
from waterclock.examples.cdc.checker import OrderErrors
from waterclock.examples.cdc.shop import Shop, Version

RECORD: dict[str, Any] = {
    "contender": campaign.OURS,
    "database": "MariaDB",
    "changes": 300_000,
    "changes_per_s": 9_000.0,
    "changes_per_cpu_s": 12_000.0,
    "peak_mb": 61.2,
    "start_cpu_s": None,
    "cpu_s_per_million": 80.0,
    "broker_cpu_s_per_million": 12.34,
    "server_cpu_s_per_million": 1.0,
    "right": True,
}
SERVER = pytest.mark.skipif(not shutil.which("mariadbd"), reason="needs MariaDB's server")


def test_the_decoder_has_no_broker_and_is_compared_with_ours_at_its_size() -> None:
    other = {**RECORD, "contender": campaign.DECODER, "changes_per_cpu_s": 4_000.0, "broker_cpu_s_per_million": None}
    lines = tables.cdc([RECORD, {**other, "right": False}]).splitlines()
    assert lines[1].split()[-7:] == ["12,000", "9,000", "61", "80.0", "12.3", "1.0", "right"]
    assert lines[2].split()[-8:] == ["4,000", "(3.00x)", "9,000", "61", "80.0", "-", "1.0", "WRONG"]


def test_who_failed_has_a_line_with_its_reason_and_nobody_is_compared_with_it() -> None:
    failed = {name: RECORD[name] for name in ("contender", "database", "changes")} | {"error": "it broke"}
    lines = tables.cdc([failed, {**RECORD, "contender": campaign.DECODER}]).splitlines()
    assert lines[1].split()[-8:-6] == ["300,000", "12,000"]
    assert lines[2] == f"MariaDB: {campaign.OURS}, 300,000: it broke"


def test_the_memory_of_a_contender_is_its_own_and_not_the_benchmarks() -> None:
    """A capture of 60 MB was told with the 134 MB of the program that had started it."""
    large = bytearray(os.urandom(1) * (200 << 20))
    program = "import time; own = bytearray(b'x' * (30 << 20)); time.sleep(0.3); print('{}')"
    figures = ended("it", [sys.executable, "-c", program])
    assert 30 < figures["peak_mb"] < len(large) / 2e6


@pytest.mark.parametrize(("ends", "marked", "unplaced"), [
    ("", [False, True], ""),
    ("; echo it broke >&2; exit 1", [False], "it failed before anything was written: it broke"),
])  # fmt: skip
def test_a_change_of_the_marks_stands_behind_the_place_that_debezium_stored(
    ends: str, marked: list[bool], unplaced: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It leaves out the first row of the event that comes then: 19,999 of 20,000 changes came."""
    end, marks = tmp_path / "ended", list[bool]()
    monkeypatch.setattr(Engine, "_command", lambda *_: ["sh", "-c", f"sleep 0.2; touch {end}{ends}"])
    assert Engine(tmp_path, "").placed(lambda: marks.append(end.exists())).unplaced == unplaced
    assert marks == marked


def test_a_row_that_gets_another_key_is_one_row_of_the_binlog() -> None:
    shop = Shop(lambda: None, 1, 4, campaign.TABLES)
    shop.history = [[Version("a", "insert", (1,), 1), Version("a", "delete", (1,), 1), Version("a", "insert", (2,), 2)]]
    assert campaign._rows(shop) == 2


def test_without_mariadb_one_sentence_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: None)
    assert cli.main(["bench", "cdc", "--out", str(tmp_path)]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("waterclock: the benchmark cdc needs the servers of MariaDB, and there is no mariadbd")
    assert "apt install mariadb-server)" in said


def test_who_needs_mariadb_alone_is_not_asked_for_postgresql(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name, path=None: f"/bin/{name}" if name.startswith("mariadb") else None)
    assert sorted(servers.programs("this", ["MariaDB"])) == ["mariadb-install-db", "mariadbd"]


@SERVER
@pytest.mark.mariadb
@pytest.mark.long(seconds=5)
def test_a_binlog_is_copied_and_decoded_and_both_are_right(tmp_path: Path) -> None:
    """So is Debezium where Maven is: its place is such that the first change behind it comes."""
    options = ["--sizes", "500", "--rounds", "1", "--out", str(tmp_path)]
    assert cli.main(["bench", "cdc", *options]) == 0
    figures = json.loads((tmp_path / "cdc.json").read_text())["figures"]
    of_mariadb = [(r["contender"], r["right"]) for r in figures if r["database"] == "MariaDB"]
    assert of_mariadb[:2] == [(campaign.OURS, True), (campaign.DECODER, True)]
    assert all(r["right"] for r in figures)
    assert figures[0]["changes_per_s"] > 0


@SERVER
@pytest.mark.mariadb
@pytest.mark.long(seconds=3)
def test_a_wrong_topic_is_told_in_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(campaign, "check_topic", lambda *_: OrderErrors(versions=200, swapped=1))
    assert cli.main(["bench", "cdc", "--sizes", "200", "--rounds", "1", "--out", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith(f"MariaDB: {campaign.OURS}")] == ["WRONG"]


@SERVER
@pytest.mark.mariadb
@pytest.mark.long(seconds=5)
def test_a_contender_that_fails_is_said_and_ends_nothing_but_the_exit_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Debezium, "engine", lambda *_: Engine(tmp_path, "", unplaced="it broke"))
    monkeypatch.setattr(Engine, "placed", lambda self, mark: self)
    monkeypatch.setattr(campaign, "debezium", lambda: nullcontext(Debezium(tmp_path, "")))
    assert cli.main(["bench", "cdc", "--sizes", "200", "--rounds", "1", "--out", str(tmp_path)]) == 1
    figures = json.loads((tmp_path / "cdc.json").read_text())["figures"]
    failed = [r for r in figures if "error" in r]
    assert {r["contender"] for r in failed} == {NAME}
    assert {r["database"] for r in failed} == {r["database"] for r in figures}
    assert all(r["right"] for r in figures if "error" not in r)
    assert capsys.readouterr().err.splitlines()[-1] == f"waterclock: {NAME}: 1 of 1 round failed: it broke"


@SERVER
@pytest.mark.mariadb
@pytest.mark.long(seconds=3)
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_who_stops_it_leaves_no_server_behind(tmp_path: Path, sent: signal.Signals) -> None:
    command = [sys.executable, "-m", "waterclock.cli", "bench", "cdc", "--sizes", "1M", "--out", str(tmp_path)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": "/tmp"}) as process:
        assert process.stderr is not None
        while "writing" not in process.stderr.readline():
            assert process.poll() is None
        running = _children(process.pid)
        process.send_signal(sent)
        said = process.stderr.read()
    assert (process.returncode, len(running)) == (1, 2)
    assert said.splitlines()[-1] == "waterclock: stopped; nothing was written"
    assert [pid for pid in running if Path(f"/proc/{pid}").exists()] == []


def _children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
