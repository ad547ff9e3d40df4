"""A scenario: a wheel (tick, slots, start) and its timers, from a worked example or from the command's options."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import dataclass
from importlib import resources
from typing import Final, NamedTuple

from waterclock.errors import UsageError, meant
from waterclock.trace.moments import parse_duration
from waterclock.wording import show_duration

SCENARIOS: Final = {
    "seven-tasks": "seven_tasks.json",
    "three-levels": "three_levels_350_450.json",
    "clock-face": "clock_face.json",
    "precise-advance": "precise_advance.json",
}


class Task(NamedTuple):
    """One timer: when it is due, and when it is added, in ms."""

    name: str
    deadline: int
    added: int


@dataclass(frozen=True)
class Scenario:
    """A wheel and its timers: times in ms, absolute; slots per level, the last one repeats. `letter` is for the start."""

    name: str
    note: str
    tick_ms: int
    slots: tuple[int, ...]
    start_ms: int
    timers: tuple[Task, ...]
    letter: str = ""

    def size_of(self, level: int) -> int:
        """How many buckets a level has, the finest being 1.

        >>> SMALLEST.size_of(3)
        3
        """
        return self.slots[min(level, len(self.slots)) - 1]


SMALLEST: Final = Scenario(
    name="three-buckets",
    note="tick 1, three buckets, hands at c, c+1, c+2, ...; --verbose shows in each level the bucket that takes no timer",
    tick_ms=1,
    slots=(3,),
    start_ms=0,
    timers=(*(Task(f"c+{due}", due, 0) for due in (1, 2, 3, 8, 26)), Task("c+3, too", 3, 1), Task("c+4", 4, 2)),
    letter="c",
)
FLAT: Final = "flat-wheel"  # no walk: flat.py
NAMES: Final = (*SCENARIOS, SMALLEST.name, FLAT)


def parse_slots(text: str) -> tuple[int, ...]:
    """Sizes of the levels from `3` or `60,60,12`; `UsageError` for anything else.

    >>> parse_slots("60,60,12")
    (60, 60, 12)
    """
    if not re.fullmatch(r"[0-9]+(,[0-9]+)*", text):
        raise UsageError(f"--slots {text!r} is no list of sizes: write one number, or one per level, such as 60,60,12")
    return tuple(int(size) for size in text.split(","))


def load_scenario(name: str) -> Scenario:
    """One of `NAMES` that is walked through, from the package's own files.

    >>> [task.deadline for task in load_scenario("precise-advance").timers]
    [200, 840]
    """
    if name == SMALLEST.name:
        return SMALLEST
    if name not in SCENARIOS:
        hint = meant(name, NAMES, f"take one of {', '.join(NAMES)}")
        raise UsageError(f"there is no scenario {name!r} (--tasks makes one); {hint}")
    data = json.loads(resources.files("waterclock.traces").joinpath(SCENARIOS[name]).read_text("utf-8"))
    size, start = data["wheel_size"], data["start_ms"]
    return Scenario(
        name=name,
        note=data["note"],
        tick_ms=data["tick_ms"],
        slots=tuple(size) if isinstance(size, list) else (size,),
        start_ms=start,
        timers=tuple(Task(step["insert"], step["deadline"], start) for step in data["steps"] if "insert" in step),
    )


def build_scenario(tick: str, slots: str, tasks: str, start_ms: int = 0) -> Scenario:
    """A scenario from the texts of the options; each timer is named by its text, `8ms@2ms` is added 2 ms after the start.

    >>> build_scenario("1s", "3", "1s,7s@2s").timers
    (Task(name='1s', deadline=1000, added=0), Task(name='7s@2s', deadline=9000, added=2000))
    """
    from waterclock.wheel.bounds import MAX_TICK

    texts = [text.strip() for text in tasks.split(",")]
    if "" in texts:
        raise UsageError(f"--tasks {tasks!r} has an empty place: write delays with commas between, such as 1s,2s,7s")
    seen: Counter[str] = Counter()
    timers = []
    for text in texts:
        seen[text] += 1
        timers.append(_task(text, text if seen[text] == 1 else f"{text} #{seen[text]}", start_ms))
    by_time = sorted(timers, key=lambda task: task.added)  # of one moment in the order in which they were written
    tick_ms = parse_duration(tick)
    if not 1 <= tick_ms <= MAX_TICK:
        usual = "1ms is usual, or a bucket's time such as 1s"
        raise UsageError(f"--tick {tick!r} must lie within 1ms and {show_duration(MAX_TICK)}: {usual}")
    return Scenario("your own", "", tick_ms, parse_slots(slots), start_ms, tuple(by_time))


def _task(text: str, name: str, start_ms: int) -> Task:
    delay, at, after = text.partition("@")
    if at and not delay:
        raise UsageError(f"--tasks {text!r} says no delay in front of the @: write such as 8ms@2ms, 8 ms from 2 ms on")
    if at and not after:
        raise UsageError(f"--tasks {text!r} says no time behind the @: write such as 8ms@2ms, 8 ms from 2 ms on")
    added = start_ms + (parse_duration(after) if at else 0)
    return Task(name, added + parse_duration(delay), added)
