"""A step as text: what happened, and tables of levels and buckets."""

from __future__ import annotations

from waterclock.trace.columns import folded, table
from waterclock.trace.durations import show_duration
from waterclock.trace.moments import Moments
from waterclock.trace.scenario import Scenario
from waterclock.trace.walk import Step

HANGING = 13  # where a line of a step goes on


def show_step(number: int, step: Step, scenario: Scenario, at: Moments) -> str:
    """One step as text: what happened, then levels, buckets and the queue."""
    lines = show_deed(number, step, at)
    if "advance_to" in step:
        lines += [*show_ran(step), *(line for move in step["moved_down"] for line in show_move(move))]
    state, rows = step["after"], []
    for level, (time, tick) in enumerate(zip(state["current_time"], state["level_tick"], strict=True), 1):
        size = scenario.size_of(level)
        span = f"[{at(time)}, {at(time + tick * size)})"
        rows.append((str(level), show_duration(tick), str(size), at(time), span))
    lines += ["", *table(("level", "tick", "slots", "clock", "covers"), rows), ""]
    return "\n".join(lines + _show_buckets(state, at)) + "\n"


def show_deed(number: int, step: Step, at: Moments) -> list[str]:
    """Its number, and what was done."""
    if "advance_to" in step:
        return [f"{number:>3}  the clock goes to {at(step['advance_to'])}"]
    to = step["to"]
    where = f"level {to['level']}, bucket {to['bucket']}" if to else "no bucket: it is due at once"
    return folded(f"{number:>3}  add {step['insert']} for {at(step['deadline'])}: into {where}", 5)


def show_ran(step: Step) -> list[str]:
    """What ran, and where each was before."""
    ran = ", ".join(f"{one['timer']} ({_place(one, 'from')})" for one in step["fired"])
    return folded(f"       ran   {ran or 'nothing'}", HANGING)


def show_move(move: Step) -> list[str]:
    """A timer that went down."""
    return folded(f"       down  {move['timer']}: {_place(move, 'from')} -> {_place(move, 'to')}", HANGING)


def _place(record: Step, word: str) -> str:
    level, bucket = record[f"{word}_level"], record[f"{word}_bucket"]
    return f"level {level}, bucket {bucket}" if level else "due when added"


def _show_buckets(state: Step, at: Moments) -> list[str]:
    if not state["buckets"]:
        return ["    no bucket in use, the queue is empty"]
    turn = turns(state)
    rows = []
    for one in state["buckets"]:
        start, place = one["expiration"], (one["level"], one["bucket"])
        span = f"[{at(start)}, {at(start + state['level_tick'][one['level'] - 1])})"
        rows.append((str(place[0]), str(place[1]), span, f"#{turn[place]}", ", ".join(one["timers"])))
    return table(("level", "bucket", "covers", "queue", "timers"), rows)


def turns(state: Step) -> dict[tuple[int, int], int]:
    """Level and bucket to the place in the queue, the first being 1; a bucket's place is that of the start of its range."""
    return {(entry["level"], entry["bucket"]): place for place, entry in enumerate(state["queue"], 1)}


def show_head(scenario: Scenario, rounding: str, at: Moments) -> str:
    """What is about to be watched, in three lines or a few more."""
    slots = ",".join(map(str, scenario.slots))
    words = {"early": "a bucket fires at its start, up to a tick early", "late": "never early"}
    lines = folded(f"{scenario.name}: tick {show_duration(scenario.tick_ms)}, slots {slots}", 0)
    lines += [f"rounding {rounding}: {words[rounding]}", *folded(scenario.note or "timers of your own", 0)]
    lines += folded(f"times: {at(scenario.start_ms)} is the start ({scenario.start_ms} ms); [a, b) is without b", 0)
    return "\n".join([*lines, ""])
