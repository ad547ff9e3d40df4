"""A scenario: a wheel (tick, slots, start) and its timers, from a worked example or from the command's options."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from importlib import resources
from typing import Final

from waterclock.errors import UsageError
from waterclock.trace.durations import parse_duration

SCENARIOS: Final = {
    "seven-tasks": "seven_tasks.json",
    "three-levels": "three_levels_350_450.json",
    "clock-face": "clock_face.json",
    "precise-advance": "precise_advance.json",
}


@dataclass(frozen=True)
class Scenario:
    """A wheel and its timers: times in ms, deadlines absolute; slots per level, the last one repeats."""

    name: str
    note: str
    tick_ms: int
    slots: tuple[int, ...]
    start_ms: int
    timers: tuple[tuple[str, int], ...]


def parse_slots(text: str) -> tuple[int, ...]:
    """Sizes of the levels from `3` or `60,60,12`; `UsageError` for anything else.

    >>> parse_slots("60,60,12")
    (60, 60, 12)
    """
    if not re.fullmatch(r"\d+(,\d+)*", text):
        raise UsageError(f"--slots {text!r} is no list of sizes: write one number, or one per level, such as 60,60,12")
    return tuple(int(size) for size in text.split(","))


def load_scenario(name: str) -> Scenario:
    """One of `SCENARIOS`, from the package's own files.

    >>> load_scenario("precise-advance").timers
    (('a', 200), ('b', 840))
    """
    if name not in SCENARIOS:
        raise UsageError(f"there is no scenario {name!r}: take one of {', '.join(SCENARIOS)}, or give --tasks")
    data = json.loads(resources.files("waterclock.traces").joinpath(SCENARIOS[name]).read_text("utf-8"))
    size = data["wheel_size"]
    return Scenario(
        name=name,
        note=data["note"],
        tick_ms=data["tick_ms"],
        slots=tuple(size) if isinstance(size, list) else (size,),
        start_ms=data["start_ms"],
        timers=tuple((step["insert"], step["deadline"]) for step in data["steps"] if "insert" in step),
    )


def build_scenario(tick: str, slots: str, tasks: str) -> Scenario:
    """A scenario from the texts of the options, starting at 0; each timer is named by its delay.

    >>> build_scenario("1s", "3", "1s,7s").timers
    (('1s', 1000), ('7s', 7000))
    """
    names = [name.strip() for name in tasks.split(",")]
    if "" in names:
        raise UsageError(f"--tasks {tasks!r} has an empty place: write delays with commas between, such as 1s,2s,7s")
    delays = [parse_duration(name) for name in names]
    seen: dict[str, int] = {}
    timers = []
    for name, delay in zip(names, delays, strict=True):
        seen[name] = seen.get(name, 0) + 1
        timers.append((name if seen[name] == 1 else f"{name} #{seen[name]}", delay))
    return Scenario("your own", "", parse_duration(tick), parse_slots(slots), 0, tuple(timers))
