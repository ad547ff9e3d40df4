"""`waterclock bench latency` and `held`: tiny sizes through the command. Figures are not looked at; answers are."""

from __future__ import annotations

import json
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("psycopg")
pytest.importorskip("pyspark")

from waterclock.bench import command, held, tables
from waterclock.bench.latency import campaign
from waterclock.bench.latency.contenders import Committed

RECORD = {"contender": campaign.OURS, "sink": "SQLite", "rate": 200, "p50_ms": 8.43, "p99_ms": 420.4, "max_ms": 900.0}
HELD: dict[str, Any] = {"rows_a_batch": 40_000, "state_mb": 12.34, "checkpoint_mb": 45.0, "right": True}


def test_the_table_says_who_wrote_where_and_who_was_left_out() -> None:
    figures = {
        "warm_up_s": 10.0,
        "records": [{**RECORD, "messages": 12_000, "batches": 140, "right": True}],
        "notes": {"PostgreSQL": "not measured: it is not there"},
    }
    lines = tables.live_latency(figures).splitlines()
    assert lines[1].split()[-7:] == ["SQLite", "8.4", "420", "900", "12,000", "140", "right"]
    assert lines[3] == "the first 10 s of sending are not counted: a JVM still compiles"
    assert lines[-1] == "PostgreSQL: not measured: it is not there"


def test_what_was_sent_in_the_warm_up_is_not_counted() -> None:
    committed = Committed({0: 2.0, 1: 13.5}, [(0, "0", "a", 1), (0, "1", "b", 1), (1, "2", "a", 2), (1, "3", "b", 2)])
    found = campaign.figures(committed, [0.0, 1.0, 12.0, 13.0], 11)
    assert (found["messages"], found["p50_ms"], found["max_ms"], found["right"]) == (2, 1500.0, 1500.0, True)


@pytest.mark.parametrize(
    "rows",
    [
        [(0, "0", "a", 1), (0, "1", "b", 1), (1, "2", "a", 2)],
        [(0, "0", "a", 1), (0, "1", "b", 1), (1, "2", "a", 2), (1, "3", "b", 2), (1, "3", "b", 2)],
        [(0, "0", "a", 1), (0, "1", "b", 1), (1, "2", "a", 2), (1, "2", "b", 2)],
        [(0, "2", "a", 2), (0, "1", "b", 1), (1, "0", "a", 1), (1, "3", "b", 2)],
    ],
    ids=["lost", "twice", "another", "swapped"],
)
def test_a_message_lost_twice_or_out_of_order_is_wrong(rows: list[tuple[int, str, str, int]]) -> None:
    assert not campaign.figures(Committed({0: 2.0, 1: 13.5}, rows), [0.0, 1.0, 1.0, 1.0], 0)["right"]


def test_a_batch_is_compared_with_the_first_of_its_kind() -> None:
    kinds = [(held.KEYS, 20_000, 500.0), (held.KEYS, 200_000, 600.0), (held.EXPECTATIONS, 0, 400.0)]
    lines = tables.held([{**HELD, "what": what, "held": n, "batch_ms": ms} for what, n, ms in kinds]).splitlines()
    shown = [line.split()[2:] for line in lines[1:4]]
    assert shown[0] == ["20k", "40,000", "500", "(1.00x)", "12.3", "45.0", "right"]
    assert (shown[1][:4], shown[2][:4]) == (["200k", "40,000", "600", "(1.20x)"], ["0", "40,000", "400", "(1.00x)"])


def test_a_batch_has_the_same_rows_however_many_keys_are_held() -> None:
    few, many = held.Case(held.KEYS, 80, 10), held.Case(held.KEYS, 800, 10)
    assert few.batch(0) == many.batch(0)
    assert len(few.batch(0)) == 160
    assert {row[1] for number in range(held.BATCHES) for row in few.batch(number)} < {row[1] for row in few.fill()}


def test_the_record_names_a_command_that_can_be_typed() -> None:
    arguments = Namespace(benchmark="held", sizes=[20_000, 200_000], open=1_000_000, rounds=1, seconds=0.5)
    assert command._command(arguments) == (
        "waterclock bench held --sizes 20000,200000 --open 1000000 --rounds 1 --seconds 0.5"
    )


def measured(folder: Path, script: str) -> Any:
    """What a process of its own wrote: a benchmark ends its session, and other tests of this process need theirs."""
    done = subprocess.run([sys.executable, "-c", script, str(folder)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    (record,) = folder.glob("*.json")
    return json.loads(record.read_text())


HELD_AT_ONCE = """
import sys
from waterclock import cli
sys.exit(cli.main(["bench", "held", "--sizes", "80,160", "--open", "200", "--out", sys.argv[1]]))
"""


@pytest.mark.spark
@pytest.mark.long(seconds=70)
def test_whatever_is_held_the_answers_are_right(tmp_path: Path) -> None:
    record = measured(tmp_path, HELD_AT_ONCE)
    assert record["command"] == "waterclock bench held --sizes 80,160 --open 200 --rounds 1"
    assert [(r["what"], r["held"], r["right"]) for r in record["figures"]] == [
        (held.KEYS, 80, True),
        (held.KEYS, 160, True),
        (held.EXPECTATIONS, 0, True),
        (held.EXPECTATIONS, 200, True),
    ]


WITH_NOTHING_ELSE = """
import sys
from waterclock import cli
from waterclock.bench.latency import campaign
from waterclock.bench.servers import connector
from waterclock.errors import EnvironmentMissing
def no_postgres(*_):
    raise EnvironmentMissing("no PostgreSQL")
def no_maven(*_):
    raise RuntimeError("no Maven")
campaign.WARM_UP_S, campaign.programs, connector.fetch = 0.5, no_postgres, no_maven
sys.exit(cli.main(["bench", "latency", "--seconds", "1", "--out", sys.argv[1]]))
"""


@pytest.mark.spark
@pytest.mark.long(seconds=40)
def test_every_message_has_its_row_where_neither_postgresql_nor_the_connector_is_there(tmp_path: Path) -> None:
    figures = measured(tmp_path, WITH_NOTHING_ELSE)["figures"]
    assert [(r["contender"], r["sink"], r["right"]) for r in figures["records"]] == [
        (name, "SQLite", True) for name in (campaign.OURS, campaign.LOCAL, campaign.CONSUMER)
    ]
    assert figures["notes"] == {"PostgreSQL": "not measured: no PostgreSQL", campaign.SPARK: "not measured: no Maven"}
