"""A step as text: what happened, and tables of levels and buckets."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from waterclock.trace.durations import show_duration
from waterclock.trace.scenario import Scenario
from waterclock.trace.walk import Step


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
