"""`waterclock trace`: what a learner sees, and what a wrong word on the command line gets."""

from __future__ import annotations

import argparse
import json
from importlib import resources

import pytest

from waterclock.trace import command
from waterclock.trace.scenario import SCENARIOS


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
        (["--tasks", "1q"], "write whole numbers with ms, s, m, h or d"),
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
        (["--tasks", "1s", "--tick", "0"], "tick must lie within"),
        (["--tasks", "1s", "--slots", "3;4"], "such as 60,60,12"),
        (["--tasks", "1s", "--slots", "1"], "slots must lie within"),
        (["--tasks", "99999999999999999999d"], "deadline must lie within"),
        (
            ["--tasks", "1s@99999999999999999999d"],
            "timer '1s@99999999999999999999d' cannot be added: deadline must lie",
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
