"""Java's heaps, Netty's wheel, the number of levels and a thread that ticks, in `waterclock bench timers`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bench.test_kafka import COSTS, Told, fails, quiet, read_ints
from waterclock import cli
from waterclock.bench import benchmarks, tables
from waterclock.bench.kafka import harness, heaps
from waterclock.bench.timers import driver, floor, levels, ticking, verbs
from waterclock.errors import WrongAnswer

ALL = {"add": 300.0, "churn": 500.0, "cancel": 120.0, "expire": 2_000.0}
VERSIONS = {"java": "17", "netty": "4.1"}


def in_order(program: str, arguments: tuple[Any, ...]) -> Any:
    """As HeapVerbs answers."""
    numbers = [read_ints(file) for file in arguments if isinstance(file, Path)]
    if arguments[0] == "verbs":
        measured = {verb: ns for verb, ns in COSTS.items() if arguments[-1] == "yes" or verb in ("add", "expire")}
        ran = len(numbers[0]) * arguments[-2]
        return VERSIONS | {"ran": ran, "ran_cancelled": 0, "thread": measured, "process": ALL}
    delays, cancelled = numbers
    order = sorted(set(range(len(delays))) - set(cancelled), key=lambda number: (delays[number], -number))
    return {"ran": len(order), "early": 0, "order": order}


def measured(rival: heaps.JavaHeaps, sizes: list[int]) -> tuple[Any, str]:
    found = verbs.measure(verbs.STANDARD[:1], sizes, 1, quiet, [rival])
    return found, tables.verbs({"pending": sizes, "rounds": 1, **found})


@pytest.fixture(autouse=True)
def few_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure that nobody looks at need not be sure."""
    monkeypatch.setattr(verbs, "REPEATED", 1_000)


# Java's heaps, and Netty's wheel


def test_each_kind_has_a_row_and_ratios_to_ours(tmp_path: Path) -> None:
    found, shown = measured(heaps.JavaHeaps(Told(tmp_path, in_order), quiet), [50])
    assert list(found["ns"]) == [verbs.OURS, *heaps.KINDS]
    assert found["ns"]["java.util.Timer"] == {verb: {50: ns} for verb, ns in COSTS.items()}
    assert "Netty HashedWheelTimer: Netty 4.1, tick 1 ms" in shown


def test_a_queue_that_searches_all_cancels_at_small_sizes_only(tmp_path: Path) -> None:
    found, _ = measured(heaps.JavaHeaps(Told(tmp_path, in_order), quiet), [1_000, 1_001])
    assert {verb: list(of) for verb, of in found["ns"]["DelayQueue"].items()} == {
        "add": [1_000, 1_001], "cancel": [1_000], "churn": [1_000], "expire": [1_000, 1_001]
    }  # fmt: skip


def test_the_whole_process_of_nettys_wheel_is_a_row_at_large_sizes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heaps, "COLD", 60)
    found, _ = measured(heaps.JavaHeaps(Told(tmp_path, in_order), quiet), [50, 60])
    assert found["ns"]["Netty, all threads"] == {verb: {60: ns} for verb, ns in ALL.items()}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"early": 2}, "2 timers of 50 ran before their deadlines"),
        ({"ran_cancelled": 1}, "timers ran that were cancelled, at 50 pending"),
        ({"ran": 4}, "4 timers ran of 5000"),
        ({"order": [1, 2]}, "the wrong timers ran, or not by their deadlines"),
    ],
)
def test_a_wrong_answer_of_java_fails_the_run(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    def answer(program: str, arguments: tuple[Any, ...]) -> Any:
        return in_order(program, arguments) | change

    with pytest.raises(WrongAnswer, match=f"java.util.Timer: .*{message}"):
        measured(heaps.JavaHeaps(Told(tmp_path, answer), quiet), [50])


def test_a_kind_that_fails_is_noted_and_the_others_are_measured(tmp_path: Path) -> None:
    def answer(program: str, arguments: tuple[Any, ...]) -> Any:
        return fails(program, arguments) if arguments[1] == "netty" else in_order(program, arguments)

    found, shown = measured(heaps.JavaHeaps(Told(tmp_path, answer), quiet), [50])
    assert list(found["ns"])[1:] == [name for name in heaps.KINDS if not name.startswith("Netty")]
    assert "Netty HashedWheelTimer from 50 pending on: not measured: java ended with 1: no memory" in shown


def test_without_java_one_line_says_so() -> None:
    rival = heaps.JavaHeaps(harness.NotMeasured("it needs java"), quiet)
    found, shown = measured(rival, [50])
    assert list(found["ns"]) == [verbs.OURS]
    assert "Java's timers: not measured: it needs java" in shown


def test_beyond_a_million_none_is_started(tmp_path: Path) -> None:
    rival = heaps.JavaHeaps(Told(tmp_path, fails), quiet)
    rival.check(2_000_000)
    assert rival.notes == {"Java's heaps and Netty's wheel": "not beyond 1,000,000: a round takes minutes"}


@pytest.fixture(scope="module")
def java() -> Iterator[harness.Harness]:
    with harness.built(quiet) as found:
        if isinstance(found, harness.NotMeasured):
            pytest.skip(f"Java cannot be measured here: {found}")
        yield found


@pytest.mark.long(seconds=70)
def test_javas_timers_run_all_by_their_deadlines_and_none_early(java: harness.Harness) -> None:
    rival = heaps.JavaHeaps(java, quiet)
    rival.check(1_000)
    rows = rival.round(verbs.delays_ms(1_000, seed=1))
    assert {name: set(ns) for name, ns in rows.items()} == {name: set(verbs.VERBS) for name in heaps.KINDS}


# Levels, and ticking


@pytest.mark.long(seconds=6)
def test_the_number_of_levels_is_measured_for_both_wheels_and_shown_beside_the_fewest() -> None:
    found = levels.measure(50, 1, quiet, slots=(4_096, 16, 2))
    assert [(r["wheel"], r["slots"], r["levels"]) for r in found] == [
        (wheel, slots, many) for wheel in ("compiled", "plain") for slots, many in ((4_096, 2), (16, 6), (2, 22))
    ]
    assert all(r[verb] > 0 for r in found for verb in verbs.VERBS)
    assert tables.levels(found).splitlines()[1].split()[:4] == ["compiled", "50", "4,096", "2"]
    assert tables.levels(found).count("(1.0x)") >= 8


def test_a_thread_that_ticks_wakes_for_each_tick_and_one_by_bucket_for_three() -> None:
    found = {r["way"]: r for r in ticking.measure(quiet, (20, 84))}  # as 200 and 840 a tenth of them
    assert found["ticks each millisecond"]["woken"] == 84
    assert found["by bucket, as Kafka"]["woken"] == 3
    assert found["waterclock Timer"]["woken"] <= 3
    shown = tables.ticking(list(found.values())).splitlines()
    assert shown[0].startswith("timers at 20 and 84 ms  wake-ups")
    assert len(shown) == 4


@pytest.mark.parametrize("told", [[], [(200, 199.9), (840, 840.0)], [(840, 840.0), (200, 900.0)]], ids=str)
def test_a_timer_that_did_not_run_or_was_early_fails_the_run(told: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def way(due_ms: Any, ran: Any) -> tuple[int, int, float]:
        ran += told
        return 0, 0, 0.0

    monkeypatch.setattr(ticking, "WAYS", {"it": way})
    with pytest.raises(WrongAnswer, match=r"it: timers for \[200, 840\] ms ran as \["):
        ticking.measure(quiet)


def test_a_part_is_measured_alone_and_the_record_says_how_to_do_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ticking, "DUE_MS", (2, 8))
    monkeypatch.setattr(ticking.measure, "__defaults__", ((2, 8),))
    assert cli.main(["bench", "timers", "--sizes", "50", "--rounds", "1", "--ticking", "--out", str(tmp_path)]) == 0
    record = json.loads((tmp_path / "timers.json").read_text())
    assert set(record["figures"]) == {"pending", "rounds", "ticking"}
    assert record["command"].endswith(" --ticking")
    assert "by bucket, as Kafka" in capsys.readouterr().out


def test_kafkas_timer_can_be_measured_alone_beside_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(harness, "missing", lambda: ["java"])
    monkeypatch.setattr(verbs, "REPEATED", 100)
    assert cli.main(["bench", "timers", "--sizes", "50", "--rounds", "1", "--kafka", "--out", str(tmp_path)]) == 0
    figures = json.loads((tmp_path / "timers.json").read_text())["figures"]
    assert list(figures["ns"]) == [contender.name for contender in verbs.CONTENDERS[:2]]
    assert "not measured: it needs java" in figures["notes"]["Kafka SystemTimer"]


def test_the_floor_and_a_drivers_verbs_are_measured_and_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks, "DEEDS", 20)
    monkeypatch.setattr(verbs, "REPEATED", 100)
    command = ["bench", "timers", "--sizes", "50,60", "--rounds", "1", "--floor", "--driver", "--out", str(tmp_path)]
    assert cli.main(command) == 0
    figures = json.loads((tmp_path / "timers.json").read_text())["figures"]
    assert [record["pending"] for record in figures["floor"]] == [50, 60]
    assert all(set(floor.PARTS) < set(record) for record in figures["floor"])
    shown = (tmp_path / "timers.txt").read_text()
    assert [name for name in (*floor.PARTS, *driver.DEEDS) if name not in shown] == []
    asked = {(record["deed"], record["way"]) for record in figures["driver"] if record["loop"] == "asyncio"}
    assert asked == {(deed, way) for deed in driver.DEEDS for way in driver.WAYS}
