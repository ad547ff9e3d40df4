"""All 35 tables of the seven tasks, parsed from what `waterclock trace --verbose` prints, to the letter.

A table a level and state: one for the empty wheel, 13 while tasks are added, 21 while the clock goes on. README.md says
where the right ones come from.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.trace.test_trace import run
from waterclock.trace.picture import MIDDLE

RIGHT = json.loads((Path(__file__).parent / "seven_tasks.json").read_text("utf-8"))
START_MS = RIGHT["start_ms"]
CLOCK = "14:40:20.558"
CLOCK_MS = 52_820_558
Table = dict[int, tuple[int, list[str]]]  # bucket: its expiration, or -1, and its timers


def ms_of(time_of_day: str) -> int:
    """The moment of the example that a time of day stands for."""
    hours, minutes, seconds = time_of_day.split(":")
    return START_MS - CLOCK_MS + int(hours) * 3_600_000 + int(minutes) * 60_000 + round(float(seconds) * 1_000)


def tables_of(text: str) -> list[tuple[int, int, int, Table]]:
    """Level, hand, end and buckets of each table that was printed."""
    found: list[tuple[int, int, int, Table]] = []
    for line in text.splitlines():
        if head := re.fullmatch(r"  level (\d): tick \ds, hand at (\S+), ends at (\S+)", line):
            found.append((int(head[1]), ms_of(head[2]), ms_of(head[3]), {}))
        elif row := re.fullmatch(r"  (\d) +\[(\S+), \S+\) +(\S+) +(?:#\d|-) *(.*)", line):
            timers = [] if row[3] == "-1" else row[4].split(", ")
            expiration = -1 if row[3] == "-1" else ms_of(row[3])
            assert expiration in (-1, ms_of(row[2]))
            found[-1][3][int(row[1])] = (expiration, timers)
    return found


def right_tables(state: dict[str, Any]) -> list[tuple[int, int, int, Table]]:
    """The same of a state of the example; a bucket that is not in use has the expiration -1."""
    found = []
    for level, (hand, tick) in enumerate(zip(state["current_time"], state["level_tick"], strict=True), 1):
        table: Table = {bucket: (-1, []) for bucket in range(3)}
        for one in state["buckets"]:
            if one["level"] == level:
                table[one["bucket"]] = (one["expiration"], one["timers"])
        found.append((level, hand, hand + 3 * tick, table))
    return found


@pytest.fixture(scope="module")
def printed() -> list[str]:
    """What is printed for each step, the empty wheel first."""
    import io
    from contextlib import redirect_stdout

    with redirect_stdout(io.StringIO()) as out:
        assert run("seven-tasks", "--clock", CLOCK, "--verbose") == 0
    return re.split(r"\n {1,2}\d{1,2}  (?=the |add )", out.getvalue())[1:]


def settled(page: str) -> str:
    """A step's page without the middle of its advance."""
    return page.split("\n       ran ", 1)[-1]


def test_every_table_of_the_seven_tasks_is_printed_to_the_letter(printed: list[str]) -> None:
    empty = {"current_time": [START_MS - 558], "level_tick": [1_000], "buckets": []}
    states = [empty, *(step["after"] for step in RIGHT["steps"])]
    shown = [tables_of(settled(page)) for page in printed]
    assert sum(map(len, shown)) == 35
    assert shown == [right_tables(state) for state in states]


def test_the_middle_of_each_advance_has_moved_hands_and_what_was_taken_is_nowhere(printed: list[str]) -> None:
    steps = RIGHT["steps"]
    for before, step, page in zip(steps[6:], steps[7:], printed[8:], strict=False):
        middle = page.split(MIDDLE)[1].split("\n       ran ")[0]
        hand = re.search(r"hand  (.*)", middle)
        assert hand is not None
        taken = [one for one in before["after"]["buckets"] if one["expiration"] == step["advance_to"]]
        assert hand[1].split(", ") == [name for one in taken for name in one["timers"]]
        left = [one for one in before["after"]["buckets"] if one not in taken]
        assert tables_of(middle) == right_tables(
            {"buckets": left, **{key: step["after"][key] for key in ("current_time", "level_tick")}}
        )


def test_each_level_tells_its_parameters_when_it_is_made(printed: list[str]) -> None:
    new = [" ".join(line.split()) for page in printed for line in re.findall(r"new   (.*\n.*)", page)]
    assert new == [
        "level 1: startMs 14:40:20.558, tick 1s, wheelSize 3, interval 3s, taskCounter 0, overflow wheel none; "
        "its hand: 14:40:20.000",
        "level 2: startMs 14:40:20.000, tick 3s, wheelSize 3, interval 9s, taskCounter 3, overflow wheel none; "
        "its hand: 14:40:18.000",
        "level 3: startMs 14:40:18.000, tick 9s, wheelSize 3, interval 27s, taskCounter 7, overflow wheel none; "
        "its hand: 14:40:12.000",
    ]


def test_a_bucket_is_the_remainder_of_a_virtual_id_that_is_shown(printed: list[str]) -> None:
    deadlines = {step["insert"]: step["deadline"] for step in RIGHT["steps"][:7]}
    for step, page in zip(RIGHT["steps"][:7], printed[1:], strict=False):
        found = re.findall(r"asks  level (\d): virtualId (\d+)/(\d+) = (\d+), % (\d) = bucket (\d)", page)
        ((level, due, tick, number, size, bucket),) = [tuple(map(int, one)) for one in found]
        assert (due, due // tick, number % size) == (deadlines[step["insert"]], number, bucket)
        assert {"level": level, "bucket": bucket} == step["to"]


def test_the_packages_own_file_is_the_one_that_is_right_here() -> None:
    from importlib import resources

    packaged = resources.files("waterclock.traces").joinpath("seven_tasks.json").read_text("utf-8")
    assert json.loads(packaged) == RIGHT
