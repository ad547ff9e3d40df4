"""Kafka's timer and purgatory in `waterclock bench`: what its programs tell, what is refused, what is said without it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import quiet
from waterclock.bench import tables
from waterclock.bench.kafka import harness, purgatory, timers
from waterclock.bench.purgatory import load
from waterclock.bench.purgatory import verbs as purgatory_verbs
from waterclock.bench.timers import verbs
from waterclock.errors import WrongAnswer

COSTS = {"add": 150.0, "churn": 400.0, "cancel": 90.0, "expire": 900.0}
ALL = {"add": 300.0, "churn": 500.0, "cancel": 120.0, "expire": 2_000.0}
LOAD = {
    "sent": 1_000,
    "over": 1_000,
    "expired": 80,
    "delayed": 0,
    "behind_ms": 2.5,
    "pending_most": 9,
    "cpu_ns": 4_500_000,
}
VERSIONS = {"kafka": "4.3.1", "java": "17"}
Answer = Callable[[str, tuple[Any, ...]], Any]


class Told(harness.Harness):
    """A harness whose programs answer from here."""

    def __init__(self, folder: Path, answer: Answer) -> None:
        super().__init__(folder, "")
        object.__setattr__(self, "answer", answer)

    def _run(self, first: Any, program: str, arguments: Any, options: Any, heap_mb: int) -> Any:
        return self.answer(program, arguments)  # type: ignore[attr-defined]


def in_order(program: str, arguments: tuple[Any, ...]) -> Any:
    """As TimerVerbs answers."""
    numbers = [read_ints(file) for file in arguments if isinstance(file, Path)]
    if arguments[0] == "verbs":
        ran = len(numbers[0]) * arguments[-1]
        return VERSIONS | {"ran": ran, "ran_cancelled": 0, "thread": COSTS, "process": ALL}
    delays, cancelled = numbers
    order = sorted(set(range(len(delays))) - set(cancelled), key=lambda number: (delays[number], number))
    return VERSIONS | {"ran": len(order), "early": 0, "order": order}


def read_ints(file: Path) -> list[int]:
    return list(memoryview(file.read_bytes()).cast("i"))


def altered(change: Mapping[str, Any]) -> Answer:
    return lambda program, arguments: in_order(program, arguments) | change


def fails(program: str, arguments: tuple[Any, ...]) -> Any:
    raise harness.NotMeasured("java ended with 1: no memory")


def measured(rival: timers.KafkaTimer, sizes: list[int]) -> tuple[Any, str]:
    found = verbs.measure(verbs.STANDARD[:1], sizes, 1, quiet, [rival])
    return found, tables.verbs({"pending": sizes, "rounds": 1, **found})


# What is needed


@pytest.mark.parametrize("tool", harness.TOOLS)
def test_without_java_javac_or_mvn_one_sentence_says_so_and_there_is_no_row(
    tool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == tool else f"/bin/{name}")
    said: list[str] = []
    with harness.built(said.append) as kafka:
        found, shown = measured(timers.KafkaTimer(kafka, quiet), [50])
    why = f"it needs {tool} on the PATH (Debian: apt install default-jdk-headless maven)"
    assert said == [f"Kafka is not measured: {why}"]  # before minutes are spent
    assert list(found["ns"]) == [verbs.OURS]
    assert [line for line in shown.splitlines() if "Kafka" in line] == [f"Kafka SystemTimer: not measured: {why}"]


def test_a_tool_that_fails_is_a_reason_and_not_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for tool in harness.TOOLS:
        (tmp_path / tool).write_text("#!/bin/sh\necho [ERROR] no route to the registry\nexit 3\n")
        (tmp_path / tool).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with harness.built(quiet) as kafka:
        assert str(kafka) == "mvn ended with 3: [ERROR] no route to the registry"


@pytest.mark.parametrize("output", ["", "Killed\n", "{}\nat Foo.java"])
def test_a_program_that_tells_no_record_is_a_reason(output: str) -> None:
    with pytest.raises(harness.NotMeasured, match="the program told no record: "):
        harness.read(output)


def test_numbers_arrive_in_a_program_as_they_were(tmp_path: Path) -> None:
    file = harness.Harness(tmp_path, "").file("delays", [1, 3_600_000, 0])
    assert read_ints(file) == [1, 3_600_000, 0]


# The timer


def test_the_timer_has_a_row_for_each_way_and_ratios_to_ours(tmp_path: Path) -> None:
    found, shown = measured(timers.KafkaTimer(Told(tmp_path, in_order), quiet), [50, 200])
    assert list(found["ns"]) == [verbs.OURS, timers.NAME, timers.BEST]
    assert found["ns"][timers.NAME] == {verb: {50: ns, 200: ns} for verb, ns in COSTS.items()}
    rows = [line.split() for line in shown.splitlines() if line.startswith(f"{timers.NAME}  ")]
    assert [row[2] for row in rows] == ["150", "90", "400", "900"]
    assert all(row[3].endswith("x)") for row in rows)
    assert "Kafka SystemTimer: Kafka 4.3.1, Java 17; G1 as Kafka starts it" in shown


def test_the_whole_process_is_a_row_once_its_clock_is_fine_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "COLD", 200)
    found, _ = measured(timers.KafkaTimer(Told(tmp_path, in_order), quiet), [50, 200])
    assert found["ns"][timers.WHOLE] == {verb: {200: ns} for verb, ns in ALL.items()}


def backwards(program: str, arguments: tuple[Any, ...]) -> Any:
    told = in_order(program, arguments)
    return told | {"order": told.get("order", [])[::-1]}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (altered({"early": 2}), "2 timers of 50 ran before their deadlines"),
        (altered({"ran_cancelled": 1}), "timers ran that were cancelled, at 50 pending"),
        (altered({"ran": 4_999}), "4999 timers ran of 5000"),
        (backwards, "the wrong timers ran, or not by their deadlines"),
    ],
)
def test_a_timer_too_many_too_few_or_too_early_fails_the_run(answer: Answer, message: str, tmp_path: Path) -> None:
    with pytest.raises(WrongAnswer, match=f"Kafka SystemTimer: .*{message}"):
        measured(timers.KafkaTimer(Told(tmp_path, answer), quiet), [50])


def test_a_program_that_fails_once_is_not_asked_again_and_costs_nothing_else(tmp_path: Path) -> None:
    asked: list[int] = []

    def once(program: str, arguments: tuple[Any, ...]) -> Any:
        size = len(read_ints(arguments[2]))
        asked.append(size)
        return fails(program, arguments) if size == 200 else in_order(program, arguments)

    found, shown = measured(timers.KafkaTimer(Told(tmp_path, once), quiet), [50, 200, 300])
    assert asked.count(200) == 1
    assert 300 not in asked
    assert (list(found["ns"][verbs.OURS]["add"]), list(found["ns"][timers.NAME]["add"])) == ([50, 200, 300], [50])
    assert "\nKafka from 200 pending on: not measured: java ended with 1: no memory" in shown


def test_a_heap_of_more_than_half_of_the_memory_is_not_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timers, "memory_mb", lambda: 10_000)
    rival = timers.KafkaTimer(Told(tmp_path, fails), quiet)
    rival.check(10_000_000)
    why = "not measured: its heap of 8,000 MB is more than half of the memory"
    assert rival.notes == {"Kafka from 10,000,000 pending on": why}


# The purgatory


def test_what_the_load_told_becomes_a_record_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*of: Any) -> load.Held:
        return load.Held("waterclock", *of, 1, 9.0, True, 0.0, 0.1, 0.1, 1, 0.0, 0.0)

    monkeypatch.setattr(load, "run", run)
    rival = purgatory.KafkaPurgatory(Told(tmp_path, lambda program, arguments: LOAD | VERSIONS))
    found = load.measure([500], 1.0, quiet, rival)
    assert [r["contender"] for r in found] == ["waterclock", "Kafka"] * 4
    theirs = {"requests": 1_000, "cpu_us": 4.5, "held": True, "expired": 0.08, "pending_most": 9, "resident_mb": None}
    assert found[1] | theirs == found[1]
    assert "Kafka  4.50 (0.5x)   yes" in tables.rates(found)
    assert rival.notes == {"Kafka": "Kafka 4.3.1, Java 17, G1 as Kafka starts it; see the doubts"}


@pytest.mark.long(seconds=3)
def test_each_contender_goes_on_until_its_own_rate_is_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*of: Any) -> load.Held:
        return load.Held("waterclock", *of, 1, 9.0, False, 500.0, 0.1, 0.1, 1, 0.0, 0.0)

    monkeypatch.setattr(load, "run", run)
    rival = purgatory.KafkaPurgatory(Told(tmp_path, lambda program, arguments: LOAD | VERSIONS))
    found = load.measure([10, 20], 1.0, quiet, rival)
    assert [(r["contender"], r["rate"]) for r in found] == [("waterclock", 10), ("Kafka", 10), ("Kafka", 20)] * 4


@pytest.mark.parametrize("wrong", [{"over": 999}, {"over": 1_001}, {"delayed": 1}], ids=str)
def test_a_request_over_never_or_twice_or_a_timer_left_fails_the_run(wrong: dict[str, int], tmp_path: Path) -> None:
    rival = purgatory.KafkaPurgatory(Told(tmp_path, lambda program, arguments: LOAD | VERSIONS | wrong))
    with pytest.raises(WrongAnswer, match=r"Kafka: 1000 requests, \d+ over, \d timers left"):
        rival.run("own", 20, 60, 500, 1.0)


@pytest.mark.long(seconds=3)
def test_the_verbs_of_both_purgatories_take_turns(tmp_path: Path) -> None:
    told = VERSIONS | {"over": 120, "watch": 300.0, "force-complete": 100.0, "check": 500.0}
    rival = purgatory.KafkaPurgatory(Told(tmp_path, lambda program, arguments: told))
    found = purgatory_verbs.measure([60], 2, quiet, rival)
    assert found["Kafka"] == {"watch": {60: 300.0}, "force-complete": {60: 100.0}, "check": {60: 500.0}}
    assert "force-complete: Kafka" in tables.purgatory_verbs(found)
    with pytest.raises(WrongAnswer, match="Kafka: 122 operations should be over, 120 are"):
        rival.verbs(61)


def test_a_load_that_fails_is_noted_and_the_rest_goes_on(tmp_path: Path) -> None:
    asked: list[str] = []

    def once(program: str, arguments: tuple[Any, ...]) -> Any:
        asked.append(program)
        return fails(program, arguments)

    rival = purgatory.KafkaPurgatory(Told(tmp_path, once))
    assert rival.run("own", 20, 60, 500, 1.0) is None
    assert rival.verbs(60) is None
    assert asked == ["PurgatoryLoad"]
    assert rival.notes == {"Kafka, from there on": "not measured: java ended with 1: no memory"}


def test_the_table_of_the_purgatory_ends_with_the_notes() -> None:
    turned = [{"contender": "it", "keys": "own", "p50_ms": 20, "p75_ms": 60, "rate": 1_000, "cpu_us": 3.0}]
    ns = {"waterclock": {verb: {60: 300.0} for verb in purgatory.VERBS}}
    shown = tables.purgatory({"rates": [], "turned": turned, "ns": ns, "notes": {"Kafka": "not measured: why"}})
    assert shown.endswith("\n\nKafka: not measured: why")


# The programs themselves


@pytest.fixture(scope="module")
def kafka() -> Iterator[harness.Harness]:
    with harness.built(quiet) as found:
        if isinstance(found, harness.NotMeasured):
            pytest.skip(f"Kafka cannot be measured here: {found}")
        yield found


@pytest.mark.long(seconds=40)
def test_kafkas_timer_runs_all_in_order_and_none_early(kafka: harness.Harness) -> None:
    rival = timers.KafkaTimer(kafka, quiet)
    rival.check(2_000)
    rows = rival.round(verbs.delays_ms(2_000, seed=1))
    assert {name: set(ns) for name, ns in rows.items()} == {name: set(verbs.VERBS) for name in timers.WAYS}


@pytest.mark.long(seconds=12)
@pytest.mark.parametrize("keys", ["shared", "own"])
def test_kafkas_purgatory_carries_the_load(keys: str, kafka: harness.Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purgatory, "WARMING_MS", 200)
    rival = purgatory.KafkaPurgatory(kafka)
    held = rival.run(keys, 20, 60, 500, 0.3)
    assert held is not None
    assert held.requests == sum(load.draw_arrivals(500, 300))
    assert set(rival.verbs(60) or ()) == set(purgatory.VERBS)
