"""`waterclock trace`: what a learner sees, what a wrong word on the command line gets, and the ways to look at a walk:
times of day, timers that are added later, real time, the flat wheel; all in 80 columns.
"""

from __future__ import annotations

import argparse
import json
import re
from importlib import resources
from threading import TIMEOUT_MAX
from typing import Any

import pytest

from waterclock.clock import SystemClock
from waterclock.trace import command, flat
from waterclock.trace.live import Live
from waterclock.trace.picture import WIDTH
from waterclock.trace.scenario import NAMES, SCENARIOS, build_scenario
from waterclock.trace.walk import Step, Walk


def run(*words: str) -> int:
    parser = argparse.ArgumentParser("waterclock trace")
    command.add_to(parser)
    return command.run(parser.parse_args(words))


@pytest.mark.parametrize("name", SCENARIOS)
def test_json_of_a_scenario_is_the_worked_example_step_by_step(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(name, "--json") == 0
    shown = json.loads(capsys.readouterr().out)
    file = resources.files("waterclock.traces").joinpath(SCENARIOS[name])
    expected = json.loads(file.read_text("utf-8"))
    assert shown["steps"] == expected["steps"]
    assert (shown["tick_ms"], shown["start_ms"]) == (expected["tick_ms"], expected["start_ms"])


def test_a_step_shows_what_ran_what_went_down_and_every_range(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("seven-tasks") == 0
    step = capsys.readouterr().out.split("\n  8  ")[1].split("\n  9  ")[0]
    assert step.splitlines() == [
        "the clock goes to 442ms",
        "       ran   task1 (level 1, bucket 0)",
        "       down  task3: level 2, bucket 0 -> level 1, bucket 2",
        "       down  task7: level 3, bucket 2 -> level 2, bucket 2",
        "",
        "    level  tick  slots  clock  covers",
        "    1      1s    3      442ms  [442ms, 3.442s)",
        "    2      3s    3      442ms  [442ms, 9.442s)",
        "    3      9s    3      442ms  [442ms, 27.442s)",
        "",
        "    level  bucket  covers            queue  timers",
        "    1      1       [1.442s, 2.442s)  #1     task2",
        "    1      2       [2.442s, 3.442s)  #2     task3",
        "    2      1       [3.442s, 6.442s)  #3     task4, task5, task6",
        "    2      2       [6.442s, 9.442s)  #4     task7",
    ]


def test_without_arguments_the_seven_tasks_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert capsys.readouterr().out.startswith("seven-tasks: tick 1s, slots 3\nrounding early: ")


def test_a_scenario_of_ones_own_is_walked_to_its_end(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--tick", "1s", "--slots", "60,60,12", "--tasks", "59s,61s,1h", "--json") == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    fired = [(step["advance_to"], one["timer"]) for step in steps for one in step.get("fired", ())]
    assert fired == [(59_000, "59s"), (61_000, "61s"), (3_600_000, "1h")]
    assert steps[-1]["after"]["buckets"] == []


@pytest.mark.parametrize(("rounding", "at"), [("early", 20), ("late", 30)])
def test_rounding_decides_at_which_end_of_the_tick_a_timer_runs(
    rounding: str, at: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--tick", "10ms", "--tasks", "25", "--rounding", rounding, "--json") == 0
    steps = json.loads(capsys.readouterr().out)["steps"]
    assert [step["advance_to"] for step in steps if step.get("fired")] == [at]


def test_timers_of_equal_delay_are_told_apart_and_one_due_at_once_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--tasks", "0,5,5") == 0
    out = capsys.readouterr().out
    assert "add 0 for 0s: into no bucket: it is due at once" in out
    assert "ran   0 (due when added)" in out
    assert "ran   5 (level 1, bucket 5), 5 #2 (level 1, bucket 5)" in out


@pytest.mark.parametrize(
    ("words", "cause"),
    [
        (["nope"], "take one of seven-tasks"),
        (["--tick", "1s"], "add --tasks"),
        (["--slots", "3"], "add --tasks"),
        (["clock-face", "--tasks", "1s"], "leave one out"),
        (["--tasks", "1q"], "write numbers with ms, s, m, h or d"),
        (["--tasks", ""], "empty place"),
        (["--tasks", "1s,,2s"], "empty place"),
        (["--tasks", "8ms@"], "no time behind the @"),
        (["--tasks", "8ms@2ms@3ms"], "'2ms@3ms' is no duration"),
        (["--clock", "24:00"], "such as 14:40:20.558"),
        (["--tasks", "1s", "--clock", "noon"], "such as 14:40:20.558"),
        (["--live", "--json"], "leave one out"),
        (["flat-wheel", "--live"], "has no --live"),
        (["flat-wheel", "--tasks", "1s"], "has no --tasks"),
        (["--tasks", "1s", "--tick", "fast"], "'fast' is no duration"),
        (["--tasks", "1s", "--tick", "0"], "--tick '0' must lie within 1ms and "),
        (["--tasks", "1s", "--tick", "99999999999999d"], "must lie within 1ms and 26687997791d"),
        (["--tasks=-5s"], "'-5s' is negative"),
        (["--tasks", "0.0004s"], "'0.0004s' is no whole number of milliseconds"),
        (["--tasks", "1s", "--slots", "3;4"], "such as 60,60,12"),
        (["--tasks", "1s", "--slots", "1"], "slots must lie within"),
        (["--tasks", "99999999999999999999d"], "it is due behind 53375995583d"),
        (
            ["--tasks", "1s@99999999999999999999d"],
            "timer '1s@99999999999999999999d' cannot be added: it is due behind",
        ),
        (["--tasks", "@2ms"], "no delay in front of the @"),
        (["--tasks", "٣s"], "'٣s' is no duration"),
    ],
)
def test_a_wrong_word_ends_with_2_one_line_and_the_remedy(
    words: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("waterclock trace: ")
    assert cause in err


def test_help_ends_with_examples(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        run("--help")
    assert stop.value.code == 0
    assert "waterclock trace --tick 1s --slots 3 --tasks 1s,2s,7s" in capsys.readouterr().out


EACH_WAY = [[], ["--clock", "14:40:20.558"], ["--verbose"], ["--verbose", "--clock", "23:59:59.999"]]
Capture = pytest.CaptureFixture[str]


def shown(capture: Capture, *words: str) -> str:
    assert run(*words) == 0
    return capture.readouterr().out


@pytest.mark.parametrize("way", EACH_WAY, ids=" ".join)
@pytest.mark.parametrize("name", [name for name in NAMES if name != "flat-wheel"])
def test_nothing_is_wider_than_80_columns(name: str, way: list[str], capsys: Capture) -> None:
    assert [line for line in shown(capsys, name, *way).splitlines() if len(line) > WIDTH] == []


def test_nor_are_many_timers_of_ones_own(capsys: Capture) -> None:
    delays = ",".join(["350ms"] * 40)
    for way in EACH_WAY:
        assert max(map(len, shown(capsys, "--tasks", delays, *way).splitlines())) <= WIDTH


def test_nor_is_a_timer_whose_name_is_long(capsys: Capture) -> None:
    for way in ([], ["--clock", "23:59:59.999"]):
        out = shown(capsys, "--tasks", "99d23h59m59s999ms@98d23h59m59s999ms", *way)
        assert max(map(len, out.splitlines())) <= WIDTH


# Times of day


def test_the_seven_tasks_are_told_by_the_clock(capsys: Capture) -> None:
    page = shown(capsys, "seven-tasks", "--clock", "14:40:20.558").split("\n  7  ")[1].split("\n  8  ")[0]
    assert page.splitlines() == [
        "add task7 for 14:40:27.558: into level 3, bucket 2",
        "",
        "    level  tick  slots  clock         covers",
        "    1      1s    3      14:40:20.000  [14:40:20.000, 14:40:23.000)",
        "    2      3s    3      14:40:18.000  [14:40:18.000, 14:40:27.000)",
        "    3      9s    3      14:40:12.000  [14:40:12.000, 14:40:39.000)",
        "",
        "    level  bucket  covers                        queue  timers",
        "    1      0       [14:40:21.000, 14:40:22.000)  #1     task1",
        "    1      1       [14:40:22.000, 14:40:23.000)  #4     task2",
        "    2      0       [14:40:21.000, 14:40:24.000)  #2     task3",
        "    2      1       [14:40:24.000, 14:40:27.000)  #5     task4, task5, task6",
        "    3      2       [14:40:21.000, 14:40:30.000)  #3     task7",
    ]


def test_a_wheel_of_ones_own_starts_at_that_time_of_day_its_hands_at_whole_ticks_of_it(capsys: Capture) -> None:
    words = ("--tick", "1s", "--slots", "3", "--tasks", "1s,2s,3s,4s,5s,6s,7s", "--clock", "14:40:20.558")
    own = shown(capsys, *words)
    classic = shown(capsys, "seven-tasks", "--clock", "14:40:20.558")
    renamed = re.sub(r"\b([1-7])s\b(?= |,|\n)(?!    3)", r"task\1", own.split("\n  1  ")[1])
    assert re.findall(r"\[14.*?\)", renamed) == re.findall(r"\[14.*?\)", classic.split("\n  1  ")[1])


def test_the_next_day_is_counted_behind(capsys: Capture) -> None:
    out = shown(capsys, "--tick", "1s", "--tasks", "2s", "--clock", "23:59:59")
    assert "the clock goes to 00:00:01.000+1d" in out


# Timers that are added later


def test_a_timer_that_is_added_later_counts_from_there_and_takes_a_bucket_that_was_used_before(capsys: Capture) -> None:
    steps = json.loads(shown(capsys, "--tasks", "2ms,8ms@2ms,19ms@2ms", "--json"))["steps"]
    told = [(s.get("insert", s.get("advance_to")), (s.get("to") or {}).get("bucket")) for s in steps]
    assert told == [("2ms", 2), (2, None), ("8ms@2ms", 10), ("19ms@2ms", 1), (10, None), (21, None)]


def test_the_clock_goes_to_the_time_of_a_later_timer_though_nothing_runs_there(capsys: Capture) -> None:
    steps = json.loads(shown(capsys, "--tasks", "1ms@5ms,4ms@1ms", "--json"))["steps"]
    order = [s.get("insert", s.get("advance_to")) for s in steps]
    assert order == [1, "4ms@1ms", 5, "1ms@5ms", 6]
    assert [one["timer"] for s in steps for one in s.get("fired", ())] == ["4ms@1ms", "1ms@5ms"]


# The smallest levels, and the flat wheel


def test_three_buckets_show_hands_at_c_and_the_bucket_that_never_takes_a_timer(capsys: Capture) -> None:
    out = shown(capsys, "three-buckets", "--verbose")
    last = out.split("\n  5  ")[1].split("\n  6  ")[0]
    assert [" ".join(line.split()) for line in last.splitlines() if re.match(r"  \d", line) and "hand" in line] == [
        "0 [c, c+1) -1 - hand: due at once",
        "0 [c, c+3) -1 - hand: in level 1",
        "0 [c, c+9) -1 - hand: in level 2",
    ]
    hands = re.findall(r"  level 1: tick 1ms, hand at (\S+),", out)
    assert list(dict.fromkeys(hands))[:4] == ["c", "c+1", "c+2", "c+3"]
    steps = json.loads(shown(capsys, "three-buckets", "--json"))["steps"]
    for step in steps:
        for one in step["after"]["buckets"]:
            assert one["expiration"] > step["after"]["current_time"][one["level"] - 1]  # none under a hand


def test_a_flat_wheel_looks_at_every_millisecond_and_levels_only_at_buckets_in_use() -> None:
    found = flat.compare(1_000, 5, (2, 8, 350, 999))
    flat_wheel, levels = found["flat"], found["levels"]
    assert flat_wheel["ran_ms"] == levels["ran_ms"] == [2, 8, 350, 999]
    assert (flat_wheel["wake_ups"], flat_wheel["buckets"]) == (999, 1_000)
    assert (levels["levels"], levels["buckets"], levels["covers_ms"]) == (5, 25, 3_125)
    assert levels["wake_ups"] == 4 + levels["moved_down"]  # no two of these share a bucket
    assert levels["bytes"] < flat_wheel["bytes"]


def test_the_flat_wheel_is_a_table_of_what_was_counted(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    found = flat.compare(1_000, 5, (2, 8, 350, 999))
    monkeypatch.setattr(flat, "compare", lambda: found)
    lines = [line.split() for line in shown(capsys, "flat-wheel").splitlines()]
    assert ["buckets", "1,000", "25"] in lines
    assert ["buckets", "looked", "at", "until", "all", "ran", "999", str(found["levels"]["wake_ups"])] in lines
    assert json.loads(shown(capsys, "flat-wheel", "--json")) == found


# Real time


def live(tasks: str, idle_s: float = 0.02) -> tuple[list[Step], list[float]]:
    steps: list[Step] = []
    passed_ms: list[float] = []

    def show(step: Step, ms: float) -> None:
        steps.append(step)
        passed_ms.append(ms)

    Live(Walk(build_scenario("1ms", "20", tasks), "early"), SystemClock(), show, idle_s).run()
    return steps, passed_ms


def test_in_real_time_the_same_steps_come_none_before_its_time() -> None:
    tasks = "2ms,30ms,8ms@10ms,0ms@12ms"
    steps, passed_ms = live(tasks)
    assert steps == list(Walk(build_scenario("1ms", "20", tasks), "early").steps())
    now = 0.0
    for step, ms in zip(steps, passed_ms, strict=True):
        now = max(now, step.get("advance_to", now))
        assert ms >= now


class HurriedClock(SystemClock):
    """Shows the start once, and from then on a moment at which everything is long due."""

    def __init__(self) -> None:
        self.asked = 0

    def monotonic_s(self) -> float:
        self.asked += 1
        return 0.0 if self.asked == 1 else 1_000.0 + self.asked


def test_on_a_machine_that_stood_still_each_bucket_is_taken_before_a_later_timer_is_added() -> None:
    scenario = build_scenario("1ms", "20", "2ms,30ms,8ms@10ms,5ms@50ms,1ms@51ms")
    steps: list[Step] = []
    Live(Walk(scenario, "early"), HurriedClock(), lambda step, _: steps.append(step)).run()
    assert steps == list(Walk(scenario, "early").steps())


def test_the_thread_ends_only_when_nothing_has_waited_for_the_idle_time() -> None:
    began_s = SystemClock().monotonic_s()
    steps, passed_ms = live("1ms", idle_s=0.05)
    assert SystemClock().monotonic_s() - began_s >= passed_ms[-1] / 1e3 + 0.05
    assert steps[-1]["fired"][0]["timer"] == "1ms"


def test_a_wait_for_longer_than_the_machine_can_sleep_is_a_wait() -> None:
    """It was an OverflowError with its traceback."""
    walk = Walk(build_scenario("1ms", "20", "4611686018427387904"), "early")
    assert Live(walk, SystemClock(), lambda step, _: None)._left_s(2**62) == TIMEOUT_MAX


def test_what_the_thread_could_not_do_is_raised_by_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, to: int) -> Step:
        raise RuntimeError("broken")

    monkeypatch.setattr(Walk, "advance", fail)
    with pytest.raises(RuntimeError, match="broken"):
        live("1ms,2ms@3ms")


@pytest.mark.long(seconds=3)
def test_the_command_in_real_time_says_how_late_each_step_was_and_that_it_ends(capsys: Capture) -> None:
    out = shown(capsys, "--tasks", "2ms,8ms@2ms", "--live")
    assert len(re.findall(r"after the start, by the machine's clock", out)) == 4
    assert out.endswith("nothing has waited for 2 s: the thread ends\n")
