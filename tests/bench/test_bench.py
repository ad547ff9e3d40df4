"""`waterclock bench`: tiny sizes through the command. Figures are not looked at; answers, records and refusals are."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.bench.conftest import quiet
from tests.test_import import bare
from waterclock import cli
from waterclock.bench import benchmarks, bucket, record, run, tables
from waterclock.bench.kafka import harness
from waterclock.bench.timers import keepers, lateness, loop, memory, verbs
from waterclock.errors import WrongAnswer, pip_install

TINY = ("--sizes", "50,200", "--rounds", "1")
PNG = b"\x89PNG\r\n\x1a\n"
AVAILABLE = []
for contender in verbs.CONTENDERS:
    try:
        contender.load()
        AVAILABLE.append(contender)
    except ImportError:
        continue


def read(folder: Path, name: str) -> Any:
    return json.loads((folder / f"{name}.json").read_text())


def bench(folder: Path, name: str, *options: str) -> int:
    return cli.main(["bench", name, *options, "--out", str(folder)])


@pytest.fixture(autouse=True)
def few_repeats(monkeypatch: pytest.MonkeyPatch) -> None:
    """A figure that nobody looks at need not be sure."""
    monkeypatch.setattr(verbs, "REPEATED", 1_000)


@pytest.fixture
def without_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the extra `bench` is not installed."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    monkeypatch.delitem(sys.modules, "waterclock.bench.timers.packages", raising=False)


@pytest.fixture
def without_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where Maven is not installed."""
    monkeypatch.setattr(harness, "missing", lambda: ["mvn"])


# The command


def test_a_benchmark_writes_its_record_its_table_and_its_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(tmp_path / "new" / "folder", "wheel", *TINY) == 0
    out, err = capsys.readouterr()
    assert (tmp_path / "new" / "folder" / "wheel.txt").read_text() == out
    assert (tmp_path / "new" / "folder" / "wheel.png").read_bytes().startswith(PNG)
    assert err.splitlines()[-1].count(str(tmp_path)) == 3
    ns = read(tmp_path / "new" / "folder", "wheel")["figures"]["ns"]
    assert list(ns) == [contender.name for contender in verbs.STANDARD]
    assert all(ns[name][verb]["200"] > 0 for name in ns for verb in ("add", "cancel", "churn", "expire"))


def test_a_record_says_machine_versions_and_the_command_that_does_it_again(tmp_path: Path) -> None:
    bench(tmp_path, "wheel", "--sizes", "0.1k,50", "--rounds", "2")
    found = read(tmp_path, "wheel")
    assert found["command"] == "waterclock bench wheel --sizes 50,100 --rounds 2"
    assert "CPython" in found["machine"] or "PyPy" in found["machine"]
    assert (tmp_path / "wheel.txt").read_text().startswith(f"$ {found['command']}\n{found['machine']}\n")
    assert found["versions"] == record.versions()


def test_with_json_stdout_is_the_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench(tmp_path, "wheel", "--sizes", "50", "--rounds", "1", "--json")
    assert json.loads(capsys.readouterr().out) == read(tmp_path, "wheel")


@pytest.mark.long(seconds=4)
def test_progress_tells_on_stderr_who_is_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bench(tmp_path, "wheel", "--sizes", "50", "--rounds", "2")
    assert "heapq, lazy deletion, 50 pending: round 2 of 2\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["waltz"],
        ["wheel", "--sizes", "0"],
        ["wheel", "--sizes", "1.5"],
        ["wheel", "--sizes", "1k,"],
        ["wheel", "--sizes", "1G"],
        ["wheel", "--rounds", "-1"],
        ["wheel", "--rates", "1k"],
        ["timers", "--seconds", "0"],
        ["timers", "--seconds", "nan"],
        ["purgatory", "--rates", "fast"],
    ],
    ids=" ".join,
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        cli.main(["bench", *arguments])
    assert capsys.readouterr().err.startswith("usage: waterclock")


@pytest.mark.parametrize("name", ["timers", "purgatory", "wheel", "pipeline", "broker"])
def test_the_help_of_each_benchmark_has_an_example_of_it(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        cli.main(["bench", name, "--help"])
    assert f"example: waterclock bench {name} --sizes" in capsys.readouterr().out


def test_a_folder_that_cannot_be_made_is_told_before_anything_is_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert bench(tmp_path / "file" / "folder", "wheel", *TINY) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--out" in line


def test_an_interrupt_writes_nothing_and_is_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    wheel = replace(benchmarks.BENCHMARKS["wheel"], measure=interrupted)
    monkeypatch.setitem(benchmarks.BENCHMARKS, "wheel", wheel)
    assert bench(tmp_path, "wheel") == 1
    assert capsys.readouterr().err == "waterclock: stopped; nothing was written\n"
    assert list(tmp_path.iterdir()) == []


def test_the_wheels_are_measured_in_the_bare_package_without_a_picture(tmp_path: Path) -> None:
    script = "from waterclock.cli import main; sys.exit(main(sys.argv[1:]))"
    done = bare(script, "bench", "wheel", "--sizes", "50", "--rounds", "1", "--out", str(tmp_path))
    assert (done.returncode, sorted(file.name for file in tmp_path.iterdir())) == (0, ["wheel.json", "wheel.txt"])
    assert f"no picture, as matplotlib is missing: {pip_install('bench')}" in done.stderr


def test_all_run_one_after_the_other_until_one_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[list[str]] = []

    def waterclock(arguments: list[str]) -> int:
        asked.append(arguments)
        return int(arguments[1] == "purgatory")

    monkeypatch.setattr(run, "waterclock", waterclock)
    assert run.main([]) == 1
    assert [arguments[1] for arguments in asked] == ["timers", "purgatory"]
    assert asked[0][2:] == ["--out", str(run.RESULTS)]
    with pytest.raises(SystemExit, match="2"):
        run.main(["waltz"])


# Wrong answers


class Wrong(keepers.Heap):
    """A heap that expires its timers in a wrong way."""

    def expire(self) -> None:
        self.entries.sort()
        for _, _, entry in self.wrong(self.entries):
            if entry.callback is not None:
                entry.callback()
        self.entries.clear()

    def wrong(self, entries: list[Any]) -> list[Any]:
        raise NotImplementedError


class Loses(Wrong):
    def wrong(self, entries: list[Any]) -> list[Any]:
        return entries[1:]


class Twice(Wrong):
    def wrong(self, entries: list[Any]) -> list[Any]:
        return [*entries[:1], *entries]


class Backwards(Wrong):
    def wrong(self, entries: list[Any]) -> list[Any]:
        return entries[::-1]


class Lifo(Wrong):
    def wrong(self, entries: list[Any]) -> list[Any]:
        return sorted(entries, key=lambda entry: (entry[0], -entry[1]))


class Deaf(keepers.Heap):
    """Runs what was cancelled."""

    def cancel_all(self, handles: Any) -> None:
        pass


class Swaps(keepers.Heap):
    """Runs the youngest of each deadline so many times as timers of that deadline are due."""

    def order(self, delays_ms: Sequence[int], cancelled: Sequence[int]) -> list[int]:
        youngest = {delay: number for number, delay in enumerate(delays_ms)}
        return [youngest[delays_ms[number]] for number in super().order(delays_ms, cancelled)]


@pytest.mark.parametrize("wrong", [Backwards, Swaps])
def test_who_promises_no_order_of_adding_is_held_to_deadlines_and_to_who_was_cancelled(
    wrong: type[keepers.Keeper],
) -> None:
    loose = verbs.Contender("loose", "keepers:Heap", fifo=False)
    with pytest.raises(WrongAnswer, match="the wrong timers ran, or not by their deadlines"):
        verbs.check(loose, wrong, 300)
    verbs.check(loose, Lifo, 300)


@pytest.mark.parametrize("wrong", [Loses, Twice, Backwards, Lifo, Deaf])
def test_a_contender_that_answers_wrongly_fails_the_run(
    wrong: type[keepers.Keeper], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(keepers, "Heap", wrong)
    assert bench(tmp_path, "wheel", *TINY) == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith("waterclock: heapq, lazy deletion: ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("wrong", [Loses, Twice, Deaf])
def test_the_number_that_ran_is_checked_in_each_round_too(wrong: type[keepers.Keeper]) -> None:
    with pytest.raises(WrongAnswer, match="ran"):
        verbs._once("a heap", wrong, verbs.delays_ms(200, seed=1))


@pytest.mark.parametrize("contender", AVAILABLE, ids=lambda contender: contender.name)
def test_a_contender_keeps_to_its_order_and_counts_right(contender: verbs.Contender) -> None:
    verbs.check(contender, contender.load(), 300)
    found = verbs._once(contender.name, contender.load(), verbs.delays_ms(300, seed=1))
    assert set(found) == set(verbs.VERBS)


def test_delays_are_spread_over_the_decades_from_a_millisecond_to_an_hour() -> None:
    delays = verbs.delays_ms(10_000, seed=1)
    assert (min(delays), max(delays) <= keepers.HOUR_MS) == (1, True)
    for decade in range(6):
        share = sum(10**decade <= delay < 10 ** (decade + 1) for delay in delays) / len(delays)
        assert 0.12 < share < 0.18


# Timers


@pytest.mark.long(seconds=6)
def test_timers_are_measured_in_all_four_ways(
    tmp_path: Path, without_packages: None, without_kafka: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert bench(tmp_path, "timers", *TINY, "--seconds", "0.2") == 0
    figures = read(tmp_path, "timers")["figures"]
    assert {r["contender"] for r in figures["memory"]} >= {"asyncio call_later", "heapq, lazy deletion"}
    assert {(r["driver"], r["beside"]) for r in figures["lateness"]} == {
        (driver, beside)
        for driver in ("waterclock Timer", "waterclock AsyncTimer", "asyncio call_later")
        for beside in ("nothing", "a busy thread")
    }
    assert {(r["timers"], r["cancelled"]) for r in figures["loop"]} == {(200, 0.0), (200, 0.9)}
    out = capsys.readouterr().out
    assert "uvloop call_later: not measured: " in out
    assert re.search(r"^Kafka SystemTimer: not measured: it needs mvn on the PATH ", out, re.M)


def test_who_is_too_slow_for_a_size_is_left_out_and_the_table_says_so() -> None:
    small = verbs.Contender("small", "keepers:Heap", 50, "a reason")
    found = verbs.measure([verbs.STANDARD[0], small], [50, 200], 1, quiet)
    assert list(found["ns"]["small"]["add"]) == [50]
    shown = tables.verbs({"pending": [50, 200], "rounds": 1, **found})
    assert "small: not beyond 50: a reason" in shown
    assert re.search(r"^small .* -$", shown, re.M)


def test_memory_is_measured_in_a_process_of_its_own_and_one_that_fails_costs_nothing_else() -> None:
    heap, gone = verbs.STANDARD[3], verbs.Contender("gone", "keepers:Heap")
    first, second = memory.measure([heap, gone], [20_000], quiet)
    assert first["bytes_a_timer"] > 64
    assert "failed" in second
    assert "gone, 20k: not measured" in tables.memory([first, second])


def test_a_live_timer_that_is_lost_or_early_fails_the_run() -> None:
    with pytest.raises(WrongAnswer, match="1 live timers ran of 2"):
        lateness._check("it", [5], 2, lateness.TICK_NS)
    with pytest.raises(WrongAnswer, match="ran 1 ns before its tick"):
        lateness._check("it", [5, -1], 2, lateness.TICK_NS)


def test_the_due_tick_is_the_deadline_rounded_up() -> None:
    ticks = [lateness._tick_of(s, lateness.TICK_NS) for s in (7.0, 7.000000001, 7.001)]
    assert ticks == [7_000_000_000, 7_001_000_000, 7_001_000_000]


def test_a_loop_that_loses_a_timer_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(loop.AsyncTimer):
        def call_later(self, delay_s: float, fn: Callable[..., Any], /, *args: Any) -> Any:
            return super().call_later(delay_s + 3600 * (len(self) == 3), fn, *args)

    monkeypatch.setattr(loop, "AsyncTimer", Forgetful)
    with pytest.raises(WrongAnswer, match="19 timers ran in the loop, of 20"):
        loop.measure(20, 0.1, 1, quiet)


# The package


def test_the_benchmarks_run_as_a_module_of_the_source_tree() -> None:
    command_line = [sys.executable, "-m", "bench.run", "--help"]
    done = subprocess.run(
        command_line, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2], timeout=60
    )
    assert (done.returncode, "timers, purgatory, wheel, pipeline" in done.stdout) == (0, True)


def test_both_engines_of_a_bucket_are_measured_by_part_and_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "ROWS", 160)
    assert bench(tmp_path, "bucket", "--sizes", "200") == 0
    records = read(tmp_path, "bucket")["figures"]
    assert {(r["what"], r["held"]) for r in records} == {("orders", 0), ("held", 200), ("scattered", 200)}
    assert all(set(r["parts"]) == set(bucket.PARTS) for r in records)
    assert "keys held" in (tmp_path / "bucket.txt").read_text()
