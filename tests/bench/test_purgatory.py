"""`waterclock bench purgatory`: the load is the one it says it is, and an operation too many or too few fails the run."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from waterclock import cli
from waterclock.bench import tables
from waterclock.bench.kafka import harness
from waterclock.bench.kafka.purgatory import KafkaPurgatory
from waterclock.bench.purgatory import load, turned, verbs
from waterclock.errors import WrongAnswer
from waterclock.purgatory import PurgatoryStatistics

NO_KAFKA = harness.NotMeasured("not here")


@pytest.fixture(autouse=True)
def without_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Maven is not installed: test_kafka.py has Kafka's part."""
    monkeypatch.setattr(harness, "missing", lambda: ["mvn"])


def bench(folder: Path, *options: str) -> int:
    return cli.main(["bench", "purgatory", "--sizes", "60", "--rounds", "1", *options, "--out", str(folder)])


@pytest.mark.long(seconds=12)
def test_the_purgatory_is_measured_by_load_rate_and_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bench(tmp_path, "--rates", "300,600", "--seconds", "0.3") == 0
    figures = json.loads((tmp_path / "purgatory.json").read_text())["figures"]
    assert {name: set(ns) for name, ns in figures["ns"].items()} == {"waterclock": {"watch", "force-complete", "check"}}
    assert {r["contender"] for r in figures["turned"]} == {turned.NAME, "plain Python", "the sender alone"}
    assert {r["rate"] for r in figures["turned"]} == {600}
    loads = {(r["keys"], r["p50_ms"], r["rate"]) for r in figures["rates"]}
    assert loads >= {(keys, p50_ms, 300) for keys in ("shared", "own") for p50_ms in (20, 200)}
    assert (tmp_path / "purgatory.png").exists()
    out = capsys.readouterr().out
    assert out.count("highest rate held, ") == 4
    assert "Kafka: not measured: it needs mvn on the PATH " in out


@pytest.mark.parametrize(("p50_ms", "p75_ms", "share"), [(20, 60, 0.0787), (200, 400, 0.5)])
def test_the_standard_loads_are_those_where_8_and_50_in_100_expire(p50_ms: int, p75_ms: int, share: float) -> None:
    drawn = load.draw_latencies(p50_ms, p75_ms)
    expired = sum(latency > load.TIMEOUT_MS for latency in drawn) / len(drawn)
    assert abs(expired - share) < 0.003
    in_order = sorted(drawn)
    assert abs(in_order[len(drawn) // 2] - p50_ms) <= 0.02 * p50_ms + 1
    assert abs(in_order[len(drawn) * 3 // 4] - p75_ms) <= 0.02 * p75_ms + 1


@pytest.mark.parametrize("rate", [100, 50_000])
def test_as_many_arrive_as_the_rate_says(rate: int) -> None:
    counts = load.draw_arrivals(rate, 10_000)
    assert abs(sum(counts) - 10 * rate) < 5 * (10 * rate) ** 0.5
    assert len(counts) == 10_000


@pytest.mark.parametrize("keys", ["shared", "own"])
def test_what_nobody_answers_in_time_expires(keys: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load, "draw_latencies", lambda p50_ms, p75_ms: [60_000])
    held = load.run(keys, 20, 60, 500, 0.2)
    assert (held.expired, held.expected, held.requests > 0) == (1.0, 1.0, True)


MEASURED = [lambda: load.run("own", 20, 60, 300, 0.2), lambda: turned.measure(300, 0.2, lambda what: None)]


@pytest.mark.parametrize("wrong", [0, 2])
@pytest.mark.parametrize("measured", MEASURED, ids=["in real time", "turned by hand"])
def test_an_operation_over_never_or_twice_fails_the_run(
    measured: Callable[[], Any], wrong: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count(answerer: load.Answerer, op: Any) -> None:
        answerer.over += wrong

    monkeypatch.setattr(load.Answerer, "count", count)
    with pytest.raises(WrongAnswer, match=r"purgatory: \d+ requests"):
        measured()


@pytest.mark.parametrize("left", [{"watched": 1}, {"delayed": 1}, {"timers": 1}, {"cancelled": 1}], ids=str)
def test_what_is_left_at_the_end_fails_the_run(left: dict[str, int]) -> None:
    counts = {"watched": 0, "delayed": 0, "completed": 2, "expired": 1, "cancelled": 0, "timers": 0} | left
    timers = counts.pop("timers")
    sender, answerer = SimpleNamespace(sent=3), SimpleNamespace(over=3)
    with pytest.raises(WrongAnswer, match="purgatory: "):
        load.check(sender, answerer, PurgatoryStatistics(**counts), timers)


def test_verbs_that_complete_too_few_fail_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verbs.Bench, "force", lambda bench, operations: operations[0].force_complete())
    assert bench(tmp_path, "--rates", "300", "--seconds", "0.2") == 1
    assert "60 operations should be over, 1 are" in capsys.readouterr().err


def test_verbs_whose_deeds_do_not_run_fail_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs.Bench, "count", lambda bench, op: None)
    with pytest.raises(WrongAnswer, match="60 operations should be over, 0 are"):
        verbs.measure([60], 1, lambda what: None, KafkaPurgatory(NO_KAFKA))


def test_after_a_rate_that_is_not_held_the_higher_ones_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(keys: str, p50_ms: int, p75_ms: int, rate: int, seconds: float) -> load.Held:
        return load.Held(
            "waterclock", keys, p50_ms, p75_ms, rate, seconds, 1, 1.0, rate < 20, 0.0, 0.0, 0.0, 1, 0.0, 0.0
        )

    monkeypatch.setattr(load, "run", run)
    found = load.measure([30, 10, 20], 1.0, lambda what: None, KafkaPurgatory(NO_KAFKA))
    assert [r["rate"] for r in found] == [10, 20] * 4
    assert "highest rate held, own keys, 20/60 ms, waterclock: 10 requests/s" in tables.rates(found)
