"""`waterclock bench relay`: tiny sizes. Figures are not looked at; answers, refusals, tables and pictures are."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("confluent_kafka")
pytest.importorskip("kio")
pytest.importorskip("numpy")

import numpy as np
from confluent_kafka import Producer

from tests.bench.conftest import quiet
from waterclock import cli
from waterclock.bench import benchmarks
from waterclock.bench.relay import campaign, figures, taking
from waterclock.bench.relay.keeper import NotMeasured
from waterclock.bench.relay.on_kafka import OnKafka, Relay
from waterclock.bench.relay.polled import Polled
from waterclock.bench.relay.putting import DAY_MS, Load, put
from waterclock.bench.relay.sorted_set import SortedSet
from waterclock.bench.relay.table import table
from waterclock.bench.relay.ways import from_kafka, value_of
from waterclock.bench.servers.ours import OurBroker
from waterclock.errors import WrongAnswer
from waterclock.testing import Broker

LOAD = Load(10, 3, 1_000, 30)  # due at 1,000, 1,010 and 1,020 ms
RIGHT = [[10, 1_000_500, 0], [11, 1_011_000, 1], [12, 1_020_000, 0]]
PARTS: dict[str, Any] = {
    "kept": {"messages": 20_000, "put_per_s": 150_000.0, "filed_per_s": 30_000.0, "resident_mb": 70.0,
             "resident_bytes": 20.0, "disk_files_bytes": 300.0, "disk_log_bytes": 310.0},
    "idle": {"relay": 0.005, "broker": 0.01, "taker": 0.002},
    "late 2000": {"rate": 2_000, "messages": 1_200, "p50_ms": 12.0, "p99_ms": 30.0, "max_ms": 55.0},
    "late 6000": {"rate": 6_000, "messages": 3_600, "p50_ms": 14.0, "p99_ms": 41.0, "max_ms": 80.0},
    "burst 20000": {"messages": 6_000, "all_ms": 200.0, "per_s": 30_000.0, "ready_late_ms": 0.0},
    "burst 100000": {"messages": 30_000, "all_ms": 900.0, "per_s": 33_333.0, "ready_late_ms": 0.0},
    "cancel": {"messages": 3_000, "per_s": 40_000.0},
    "crash": {"again_ms": 1_100.0, "messages": 1_000},
    "take-over": {"cold_ms": 7_400.0, "warm_ms": 6_800.0},
}  # fmt: skip
RECORD: dict[str, Any] = {
    "seconds": 0.3, "pending": [20_000], "load": 0.1, "load_after": 1.9, "notes": {"procrastinate": "not measured: gone"},
    "runs": [
        {"keeper": campaign.OURS, "pending": 20_000, **PARTS},
        {"keeper": "Redis", "version": "Redis 7", "pending": 20_000, **PARTS,
         "kept": {"messages": 20_000, "put_per_s": 75_000.0, "resident_mb": 12.0, "resident_bytes": 404.0,
                  "disk_files_bytes": 390.0},
         "late 2000": {"rate": 200, "messages": 120, "p50_ms": 3.0, "p99_ms": 15.0, "max_ms": 16.0},
         "burst 100000": {"error": "Redis: 3 messages were lost, of 30000"}, "take-over": {"left_out": "one server"}},
    ],
}  # fmt: skip


# What is made of moments


def test_each_once_and_none_early_is_right() -> None:
    figures.check("somebody", LOAD, np.array(RIGHT))


@pytest.mark.parametrize(
    ("had", "what"),
    [
        (RIGHT[:2], "1 messages were lost"),
        ([*RIGHT, RIGHT[0]], "1 messages were had twice"),
        ([*RIGHT, [99, 2_000_000, 0]], "1 messages were had that nobody put in"),
        ([*RIGHT[:2], [12, 1_019_999, 0]], "1 messages were had early"),
        ([], "3 messages were lost"),
    ],
)
def test_a_wrong_answer_is_no_figure(had: list[list[int]], what: str) -> None:
    with pytest.raises(WrongAnswer, match=f"somebody: {what}, of 3"):
        figures.check("somebody", LOAD, np.array(had, "i8").reshape(-1, 3))


def test_a_burst_counts_from_when_it_is_due_or_if_that_is_later_from_when_it_is_in() -> None:
    load = Load(0, 1, 1_000)
    had = np.array([[0, 3_000_000, 0]])
    assert figures.burst(load, had, 500_000)["all_ms"] == 2_000
    assert figures.burst(load, had, 2_000_000)["all_ms"] == 1_000


def test_the_gap_of_a_kill_is_that_of_the_partition_that_waits_longest() -> None:
    load = Load(0, 4, 1_000, 400)  # due at 1,000, 1,100, 1,200, 1,300
    had = np.array([[0, 1_010_000, 0], [1, 1_900_000, 0], [2, 1_250_000, 1], [3, 1_950_000, 0]])
    assert figures.gap_ms(load, had, 1_050_000) == 850.0


class Box:
    """Takes what is put in, and notes when."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.leads_ms: list[float] = []

    def put(self, numbers: Sequence[int], dues_ms: Sequence[int]) -> None:
        self.numbers += numbers
        self.leads_ms += [due_ms - time.time() * 1000 for due_ms in dues_ms]

    def flush(self) -> None:
        """Nothing is on its way."""


def test_all_is_put_in_at_once_and_what_is_due_within_a_week_at_random() -> None:
    box, load = Box(), Load(5, 25_000, 1_000, 7 * DAY_MS)
    put(box, load)
    assert box.numbers == list(range(5, 25_005))
    dues_ms = load.dues_ms()
    assert dues_ms == load.dues_ms() != sorted(dues_ms)
    assert min(dues_ms) >= 1_000


def test_with_a_lead_each_is_put_in_so_long_before_it_is_due() -> None:
    box, load = Box(), Load(0, 100, int(time.time() * 1000) + 300, 300, 200)
    put(box, load)
    assert box.numbers == list(range(100))
    assert max(box.leads_ms) <= 201


# Who keeps them


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RATES": (200, 400), "BURSTS": (500, 1_000), "CANCELS": 500, "CRASH_RATE": 50}.items():
        monkeypatch.setattr(campaign, name, value)
    parts = ("kept", "idle", "late 200", "late 400", "burst 500", "burst 1000", "cancel", "crash", "take-over")
    monkeypatch.setattr(campaign, "PARTS", parts)


@pytest.mark.usefixtures("small")
@pytest.mark.long(seconds=60)
def test_the_relay_on_our_broker_gives_right_answers_to_everything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = OnKafka(campaign.OURS, lambda folder: OurBroker(folder, campaign.KEPT), lambda: "")
    monkeypatch.setattr(campaign, "keepers", lambda: [ours])
    options = ["--sizes", "10k", "--seconds", "0.5", "--out", str(tmp_path)]
    assert cli.main(["bench", "relay", *options]) == 0
    (run,) = json.loads((tmp_path / "relay.json").read_text())["figures"]["runs"]
    assert [part for part in campaign.PARTS if "error" in run[part] or "left_out" in run[part]] == []
    assert run["take-over"]["cold_ms"] > 0 < run["crash"]["again_ms"]
    assert "burst" not in capsys.readouterr().err.splitlines()[-1]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "keeper", [SortedSet("Redis", "always"), pytest.param(Polled("a table"), marks=pytest.mark.postgres)]
)
@pytest.mark.long(seconds=30)
def test_the_others_give_right_answers_where_they_are_installed(keeper: Any) -> None:
    try:
        with keeper:
            found = campaign.Run(keeper, 10_000, 0.3, quiet).parts()
    except NotMeasured as why:
        pytest.skip(str(why))
    assert [found[part]["error"] for part in found if "error" in found[part]] == []
    assert found["cancel"]["messages"] == 150


class Absent:
    """A keeper that is not installed."""

    name = "somebody"

    def __enter__(self) -> None:
        raise NotMeasured("apt install somebody")

    def __exit__(self, *_: object) -> None:
        """It was never here."""


def test_who_is_not_there_is_told_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(campaign, "keepers", lambda: [Absent()])
    found = campaign.measure([1_000], 0.1, quiet)
    assert (found["runs"], found["notes"]) == ([], {"somebody": "not measured: apt install somebody"})


def test_a_broker_whose_relay_does_not_start_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Apache Kafka went on for an hour after its benchmark."""
    ended: list[str] = []

    class Server:
        bootstrap = "127.0.0.1:1"

        def kill(self) -> None:
            ended.append("broker")

    def fails(relay: Relay) -> None:
        raise RuntimeError("it does not start")

    monkeypatch.setattr(Relay, "start", fails)
    with pytest.raises(RuntimeError, match="it does not start"), OnKafka("somebody", lambda _: Server(), lambda: ""):  # type: ignore[arg-type, return-value]
        pass
    assert ended == ["broker"]


def test_what_is_there_before_anybody_looks_is_had_too(kafka_broker: Broker) -> None:
    """The first look threw away what it found: a message was lost, though nobody had lost it."""
    kafka_broker.create_topic("there")
    producer = Producer({"bootstrap.servers": kafka_broker.bootstrap, "log_level": 0})
    producer.produce("there", value_of(7), headers=[("delayed-from", b"delays-2-5")])
    producer.flush(10)
    some, had = from_kafka(kafka_broker.bootstrap, "there"), list[tuple[int, int, int]]()
    for _ in range(100):
        had += next(some) if not had else []
    assert [(number, partition) for number, _, partition in had] == [(7, 0)]


def test_whoever_takes_and_fails_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WrongAnswer, match="whoever takes messages has failed"), taking.taking("nobody", "-", "-", 1):
        pass


# What people see


def test_the_table_has_a_block_a_question_and_how_many_times_as_good_ours_is() -> None:
    text = table(RECORD)
    assert "Redis                 20k  75,000 (2.0x)                -                12         404" in text
    assert [line.split()[2:] for line in text.splitlines() if line.startswith("Redis  ")][1:3] == [
        ["200", "3.0", "15.0", "(0.5x)", "16.0"],
        ["6,000", "14.0", "41.0", "80.0"],
    ]
    assert text.splitlines()[1] == "Redis 7"
    assert "Redis, burst 100000: failed: Redis: 3 messages were lost, of 30000" in text
    assert "Redis, take-over: not measured: one server" in text
    assert text.splitlines()[-1] == "procrastinate: not measured: gone"


def test_the_picture_is_drawn_from_the_record_alone(tmp_path: Path) -> None:
    plots = pytest.importorskip("waterclock.bench.plots", reason="it comes with the extra bench")
    record = {"benchmark": "relay", "machine": "a machine", "figures": json.loads(json.dumps(RECORD))}
    assert plots.draw(record, tmp_path / "relay.png")
    assert (tmp_path / "relay.png").read_bytes().startswith(b"\x89PNG")
    assert not plots.draw({**record, "figures": {"store": {}}}, tmp_path / "none.png")


def test_with_store_only_the_files_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["bench", "relay", "--store", "--sizes", "10k", "--out", str(tmp_path)]) == 0
    assert "the store alone, 10,000 pending" in capsys.readouterr().out
    record = json.loads((tmp_path / "relay.json").read_text())
    assert (list(record["figures"]), record["command"][-8:]) == (["store"], " --store")


def test_the_help_names_the_part(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["bench", "relay", "--help"])
    assert f"measure only {benchmarks.BENCHMARKS['relay'].parts['store']}" in " ".join(capsys.readouterr().out.split())
