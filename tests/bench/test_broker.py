"""`waterclock bench broker`: tiny sizes, our broker alone. Figures are not looked at; answers, records and refusals are."""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")

from waterclock import cli
from waterclock.bench.broker import campaign, closed_loop, long_polls
from waterclock.bench.broker.table import table
from waterclock.bench.servers import apache
from waterclock.bench.servers.server import Process
from waterclock.broker import Broker
from waterclock.errors import WrongAnswer

RUNS: dict[str, Any] = {
    "waterclock": {"produce-100": {"messages": 9, "per_s": 3000.0}, "start": {"ready_s": 0.25, "resident_mb": 40.0}},
    "Apache Kafka, fsync": {"produce-100": {"error": "it said no"}, "start": {"ready_s": 5.0, "resident_mb": 20.0}},
    "Apache Kafka, memory": {"produce-100": {"messages": 9, "per_s": 1000.0}, "start": {"ready_s": 2.5}},
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    with Broker(tmp_path / "data") as running:
        yield running


def without_kafka() -> None:
    raise RuntimeError("Apache Kafka needs Java 17 and Maven")


@pytest.mark.long(seconds=6)
def test_the_command_measures_ours_where_kafka_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(apache, "fetch", without_kafka)
    monkeypatch.setattr(campaign, "WORKLOADS", (("produce-1k", "pair"), ("consume-1k", "pair")))
    monkeypatch.setattr(campaign, "CLOSED", {"closed-2 x 2": (2, 2)})
    for name, value in {"LARGE": 1e6, "IDLE_S": 0.1, "FILLING_S": 0.1}.items():
        monkeypatch.setattr(campaign, name, value)
    options = ["--sizes", "1,2", "--rounds", "1", "--seconds", "0.2", "--out", str(tmp_path)]
    assert cli.main(["bench", "broker", *options]) == 0
    figures = json.loads((tmp_path / "broker.json").read_text())["figures"]
    ours = figures["runs"]["waterclock"]
    assert [name for name, of in ours.items() if "error" in of] == []
    assert ours["consume-1k"]["messages"] == ours["produce-1k"]["messages"] > 0
    assert {f"{kind}: {size}" for kind in ("connections", "partitions", "long polls") for size in (1, 2)} < set(ours)
    assert ours["kill -9, 10 GB"]["written_gb"] > 0
    assert ours["kill -9, growth's partitions"]["ready_s"] > 0
    assert list(figures["notes"]) == ["Apache Kafka, fsync", "Apache Kafka, memory"]
    assert "Apache Kafka, fsync: not measured: Apache Kafka needs Java 17 and Maven" in capsys.readouterr().out


def test_each_answer_of_the_closed_loop_is_a_record_in_the_log(broker: Broker) -> None:
    broker.create_topic("loop", partitions=2)
    found = closed_loop.run(broker.bootstrap, "loop", 2, 3, 0.2, 0)
    assert 0 < found["messages"] <= broker.statistics().records_in <= found["messages"] + 3


def test_at_a_rate_no_more_is_sent_than_that(broker: Broker) -> None:
    broker.create_topic("slow")
    assert 5 <= closed_loop.run(broker.bootstrap, "slow", 1, 5, 0.5, 10)["messages"] <= 30


def test_an_answer_with_an_error_ends_the_closed_loop(broker: Broker) -> None:
    broker.create_topic("loop")
    with pytest.raises(WrongAnswer, match="error code 3"):
        closed_loop.run(broker.bootstrap, "loop", 2, 2, 1, 0)


def test_a_long_poll_goes_on_behind_what_it_has_read(broker: Broker) -> None:
    broker.create_topic("polled")
    poll = long_polls.Poll(closed_loop.connected(broker.bootstrap), b"polled")
    for _ in range(2):
        poll.ask()
        sent = closed_loop.run(broker.bootstrap, "polled", 1, 1, 0.1, 0)["messages"]
        while not poll.take():
            pass
        assert sent > 0 < poll.offset <= broker.statistics().records_in
    poll.sock.close()


def test_an_answer_with_an_error_ends_a_long_poll(broker: Broker) -> None:
    poll = long_polls.Poll(closed_loop.connected(broker.bootstrap), b"nowhere")
    poll.ask()
    with pytest.raises(WrongAnswer, match="error code 3"):
        poll.take()
    poll.sock.close()


def test_the_table_says_how_many_times_as_good_ours_is_and_who_failed() -> None:
    blocks = table({"runs": RUNS, "notes": {"Apache Kafka, memory": "tired"}}).split("\n\n")
    assert blocks[1].splitlines()[1:] == [
        "waterclock                   3,000",
        "Apache Kafka, fsync              -",
        "Apache Kafka, memory  1,000 (3.0x)",
        "Apache Kafka, fsync: failed: it said no",
    ]
    assert "5.00 (20.0x)" in blocks[2]
    assert "20 (0.5x)" in blocks[2]
    assert blocks[3] == "Apache Kafka, memory: tired"


def test_a_server_keeps_its_compiled_python_also_where_the_benchmark_may_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without it a start is measured as no user has it: with all of the broker compiled anew."""
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    code = (
        "import sys, time; print('writes' if not sys.dont_write_bytecode else 'does not', flush=True); time.sleep(60)"
    )
    server = Process([sys.executable, "-c", code], tmp_path / "log", lambda written: written.endswith("\n"))
    server.end(signal.SIGKILL)
    assert (tmp_path / "log").read_text() == "writes\n"
