"""Behind `waterclock trace`: watch a hierarchical timing wheel turn, one bucket at a time.

A scenario is a wheel (tick, slots, start) and timers. First each timer is added, then the clock goes from
bucket to bucket of the queue until nothing waits. After every step the whole wheel is shown: what each level
covers, which buckets are in use and what is in them, the queue, what ran, and what went down a level.

Rule 1: the wheel is the real one, `waterclock.wheel.reference`, seen through `snapshot()`; nothing is acted.
Rule 2: time is whole milliseconds. Tables show it relative to the start, `--json` as it is.
Rule 3: a step is one and the same record for tables, for `--json` and in the files of `waterclock/traces`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, Final

from waterclock.errors import UsageError
from waterclock.wheel.bucket import TimerHandle
from waterclock.wheel.reference import TimingWheel
from waterclock.wheel.statistics import BucketView, WheelSnapshot

SCENARIOS: Final = {
    "seven-tasks": "seven_tasks.json",
    "three-levels": "three_levels_350_450.json",
    "clock-face": "clock_face.json",
    "precise-advance": "precise_advance.json",
}
UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
ABOUT: Final = "Show how a hierarchical timing wheel places timers, passes them down and runs them, step by step."
EPILOG: Final = """examples:
  waterclock trace seven-tasks
  waterclock trace --tick 1s --slots 3 --tasks 1s,2s,7s
  waterclock trace --tick 1s --slots 60,60,12 --tasks 59s,61s,1h --rounding late
"""

Step = dict[str, Any]


@dataclass(frozen=True)
class Scenario:
    """A wheel and its timers: times in ms, deadlines absolute; slots per level, the last one repeats."""

    name: str
    note: str
    tick_ms: int
    slots: tuple[int, ...]
    start_ms: int
    timers: tuple[tuple[str, int], ...]


# Reading


def parse_duration(text: str) -> int:
    """Milliseconds in a text such as 250ms, 1s, 1h30m or 1500 (ms); `UsageError` for anything else.

    >>> parse_duration("1m30s"), parse_duration("250")
    (90000, 250)
    """
    if re.fullmatch(r"\d+", text):
        return int(text)
    parts = re.findall(r"(\d+)(ms|[smhd])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise UsageError(f"{text!r} is no duration: write whole numbers with ms, s, m, h or d, such as 250ms or 1h30m")
    return sum(int(number) * UNITS_MS[unit] for number, unit in parts)


def show_duration(ms: int) -> str:
    """The shortest exact way to say it.

    >>> show_duration(90_000), show_duration(-558), show_duration(3_661_442), show_duration(0)
    ('1m30s', '-558ms', '1h1m1.442s', '0s')
    """
    if abs(ms) < 1_000:
        return f"{ms}ms" if ms else "0s"
    rest, text = abs(ms), "-" if ms < 0 else ""
    for unit in ("d", "h", "m"):
        count, rest = divmod(rest, UNITS_MS[unit])
        text += f"{count}{unit}" if count else ""
    return text + (f"{rest / 1000:.3f}".rstrip("0").rstrip(".") + "s" if rest else "")


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


# Walking


class Walk:
    """A wheel on its way through a scenario; each call is one step and returns its record.

    >>> walk = Walk(load_scenario("precise-advance"), "early")
    >>> [step.get("insert", step.get("advance_to")) for step in walk.steps()]
    ['a', 'b', 200, 800, 840]
    """

    def __init__(self, scenario: Scenario, rounding: str) -> None:
        self.scenario = scenario
        self.names: dict[TimerHandle, str] = {}
        self.ran: list[str] = []
        try:
            self.wheel = TimingWheel(
                scenario.tick_ms,
                scenario.start_ms,
                slots=scenario.slots,
                rounding="late" if rounding == "late" else "early",
            )
        except ValueError as error:
            raise UsageError(f"no wheel can be made of that: {error}") from error

    def steps(self) -> Iterator[Step]:
        """Every insert, then every bucket of the queue until nothing waits."""
        for name, deadline in self.scenario.timers:
            yield self.insert(name, deadline)
        while (to := self.next_stop()) is not None:
            yield self.advance(to)

    def next_stop(self) -> int | None:
        """Where the clock goes next: the first bucket of the queue, or now for what is due already."""
        snapshot = self.wheel.snapshot()
        if snapshot.due:
            return snapshot.now
        return snapshot.queue[0].expiration if snapshot.queue else None

    def insert(self, name: str, deadline: int) -> Step:
        """Add one timer; `to` says where it went, None when it is due at once."""
        try:
            timer = self.wheel.add_at(deadline, lambda: self.ran.append(name))
        except ValueError as error:
            raise UsageError(f"timer {name!r} cannot be added: {error}") from error
        self.names[timer] = name
        snapshot = self.wheel.snapshot()
        to = self.places(snapshot).get(name)
        where = {"level": to[0], "bucket": to[1]} if to else None
        return {"insert": name, "deadline": deadline, "to": where, "after": self.state(snapshot)}

    def advance(self, to: int) -> Step:
        """Turn the wheel to `to`; what ran and what moved is read off the pictures before and after."""
        before = self.places(self.wheel.snapshot())
        self.ran.clear()
        self.wheel.advance(to)
        snapshot = self.wheel.snapshot()
        after = self.places(snapshot)
        fired = [{"timer": name, **_pair("from", before.get(name))} for name in self.ran]
        moved = [
            {"timer": name, **_pair("from", before[name]), **_pair("to", after[name])}
            for name in before
            if name in after and after[name] != before[name]
        ]
        return {"advance_to": to, "fired": fired, "moved_down": moved, "after": self.state(snapshot)}

    def places(self, snapshot: WheelSnapshot) -> dict[str, tuple[int, int]]:
        """Level and bucket of every waiting timer, in the order of the queue."""
        return {self.names[timer]: (view.level, view.bucket) for view in snapshot.queue for timer in view.tasks}

    def state(self, snapshot: WheelSnapshot) -> Step:
        """The record of a snapshot, as in the files of `waterclock/traces`."""
        return {
            "current_time": [level.current_time for level in snapshot.levels],
            "level_tick": [level.tick for level in snapshot.levels],
            "buckets": [self.bucket(view) for view in snapshot.buckets],
            "queue": [
                {"expiration": view.expiration, "level": view.level, "bucket": view.bucket} for view in snapshot.queue
            ],
        }

    def bucket(self, view: BucketView) -> Step:
        """The record of one bucket."""
        timers = [self.names[timer] for timer in view.tasks]
        return {"level": view.level, "bucket": view.bucket, "expiration": view.expiration, "timers": timers}


def _pair(word: str, place: tuple[int, int] | None) -> Step:
    level, bucket = place or (0, 0)  # level 0: it was due without ever being in a level
    return {f"{word}_level": level, f"{word}_bucket": bucket}


# Showing


def table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Aligned plain text, one line a row; columns as wide as their widest cell.

    >>> table(("level", "tick"), [("1", "20ms")])
    ['    level  tick', '    1      20ms']
    """
    widths = [max(len(cell) for cell in column) for column in zip(titles, *rows, strict=True)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (titles, *rows)]
    return ["    " + line.rstrip() for line in lines]


def show_step(number: int, step: Step, scenario: Scenario) -> str:
    """One step as text: what happened, then levels, buckets and the queue."""

    def at(ms: int) -> str:
        return show_duration(ms - scenario.start_ms)

    lines = [f"{number:>3}  " + (_show_insert(step, at) if "insert" in step else _show_advance(step, at))]
    lines += [f"       down  {_show_move(move)}" for move in step.get("moved_down", ())]
    lines += ["", *_show_levels(step["after"], scenario, at), ""]
    return "\n".join(lines + _show_buckets(step["after"], at)) + "\n"


def _show_insert(step: Step, at: Callable[[int], str]) -> str:
    to = step["to"]
    where = f"level {to['level']}, bucket {to['bucket']}" if to else "no bucket: it is due at once"
    return f"add {step['insert']} for {at(step['deadline'])}: into {where}"


def _show_advance(step: Step, at: Callable[[int], str]) -> str:
    ran = ", ".join(f"{one['timer']} ({_place(one, 'from')})" for one in step["fired"])
    return f"the clock goes to {at(step['advance_to'])}\n       ran   {ran or 'nothing'}"


def _show_move(move: Step) -> str:
    return f"{move['timer']}: {_place(move, 'from')} -> {_place(move, 'to')}"


def _place(record: Step, word: str) -> str:
    level, bucket = record[f"{word}_level"], record[f"{word}_bucket"]
    return f"level {level}, bucket {bucket}" if level else "due when added"


def _show_levels(state: Step, scenario: Scenario, at: Callable[[int], str]) -> list[str]:
    rows = []
    for number, (time, tick) in enumerate(zip(state["current_time"], state["level_tick"], strict=True), 1):
        size = scenario.slots[min(number, len(scenario.slots)) - 1]
        span = f"[{at(time)}, {at(time + tick * size)})"
        rows.append((str(number), show_duration(tick), str(size), at(time), span))
    return table(("level", "tick", "slots", "clock", "covers"), rows)


def _show_buckets(state: Step, at: Callable[[int], str]) -> list[str]:
    if not state["buckets"]:
        return ["    no bucket in use, the queue is empty"]
    turn = {(entry["level"], entry["bucket"]): n for n, entry in enumerate(state["queue"], 1)}
    rows = []
    for one in state["buckets"]:
        start, place = one["expiration"], (one["level"], one["bucket"])
        span = f"[{at(start)}, {at(start + state['level_tick'][one['level'] - 1])})"
        rows.append((str(place[0]), str(place[1]), span, f"#{turn[place]} at {at(start)}", ", ".join(one["timers"])))
    return table(("level", "bucket", "covers", "in the queue", "timers"), rows)


def show_head(scenario: Scenario, rounding: str) -> str:
    """What is about to be watched, in three lines."""
    slots = ",".join(map(str, scenario.slots))
    words = {"early": "a bucket fires at its start, up to a tick early", "late": "never early"}
    return "\n".join(
        (
            f"{scenario.name}: tick {show_duration(scenario.tick_ms)}, slots {slots}, "
            f"rounding {rounding} ({words[rounding]})",
            f"{scenario.note or 'timers of your own'}",
            f"times are relative to the start ({scenario.start_ms} ms); [a, b) is without b\n",
        )
    )


# The command


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Give `parser` the arguments of the command, a description and examples."""
    parser.description = ABOUT
    parser.epilog = EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("scenario", nargs="?", metavar="SCENARIO", help=f"one of {', '.join(SCENARIOS)}")
    parser.add_argument("--tasks", metavar="DELAYS", help="your own timers instead: delays such as 1s,2s,7s")
    parser.add_argument("--tick", metavar="TIME", help="with --tasks: the grain of level 1 (default 1ms)")
    parser.add_argument("--slots", metavar="N[,N...]", help="with --tasks: buckets of each level (default 20)")
    parser.add_argument(
        "--rounding",
        choices=("early", "late"),
        default="early",
        help="early: as Kafka does, a bucket fires at its start; late: never before the deadline",
    )
    parser.add_argument("--json", action="store_true", help="the same steps as JSON, times in ms as they are")


def _chosen(args: argparse.Namespace) -> Scenario:
    if args.tasks is None:
        if args.tick is not None or args.slots is not None:
            raise UsageError("--tick and --slots need timers: add --tasks, such as --tasks 1s,2s,7s")
        return load_scenario(args.scenario or "seven-tasks")
    if args.scenario is not None:
        raise UsageError(f"scenario {args.scenario!r} and --tasks exclude each other: leave one out")
    return build_scenario(args.tick or "1ms", args.slots or "20", args.tasks)


def run(args: argparse.Namespace) -> int:
    """Print the walk; 0 when done, 2 when the arguments make no scenario (the error says what to change)."""
    try:
        scenario = _chosen(args)
        steps = list(Walk(scenario, args.rounding).steps())
    except UsageError as error:
        print(f"waterclock trace: {error}", file=sys.stderr)
        return 2
    if args.json:
        head = {
            "tick_ms": scenario.tick_ms,
            "wheel_size": list(scenario.slots),
            "start_ms": scenario.start_ms,
        }
        print(json.dumps({**head, "rounding": args.rounding, "steps": steps}, indent=1))
        return 0
    print(show_head(scenario, args.rounding))
    for number, step in enumerate(steps, 1):
        print(show_step(number, step, scenario))
    return 0
