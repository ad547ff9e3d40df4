"""A step with all that Kafka's own classes know: the parameters of each level, virtual ids, every bucket, the middle.

    begin      the first level, empty
    add        each level that is asked, the virtual id of the one that takes the timer, and the bucket
    advance    the wheel when its hands have moved and nothing is put back yet, then what becomes of each timer

Rule 1: a level is a table of all its buckets, by number. One that is not in the queue has the expiration -1, as in Kafka.
Rule 2: four empty buckets or more in a row are one line, with the range of them all.
Rule 3: the bucket under a level's hand says why no timer is ever put there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from waterclock.trace.columns import folded, table
from waterclock.trace.durations import show_duration
from waterclock.trace.moments import Moments
from waterclock.trace.picture import HANGING, show_deed, show_move, show_ran, turns
from waterclock.trace.scenario import Scenario
from waterclock.trace.walk import Step

FEW: Final = 3  # so many empty buckets in a row have a line each
MIDDLE: Final = "in the middle: the hands have moved, nothing is put back yet"


def show_whole(number: int, step: Step, scenario: Scenario, at: Moments) -> str:
    """One step, with what went on inside of it."""
    if "begin" in step:
        lines = [f"{number:>3}  the wheel is made", *_show_made(step, at)]
    elif "insert" in step:
        lines = [*show_deed(number, step, at), *_show_made(step, at), *_show_placing(step, at)]
    else:
        lines = show_deed(number, step, at)
        if "middle" in step:
            lines += [f"     {MIDDLE}", *folded(f"       hand  {', '.join(step['middle']['in_hand'])}", HANGING)]
            lines += [*_show_rings(step["middle"], scenario, at), ""]
        lines += show_ran(step)
        for move in step["moved_down"]:
            lines += [*show_move(move), *_show_placing(step, at, move["timer"])]
    return "\n".join([*lines, *_show_rings(step["after"], scenario, at)]) + "\n"


def _show_made(step: Step, at: Moments) -> Iterator[str]:
    for one in step.get("made", ()):
        overflow = f"level {one['overflow_wheel']}" if one["overflow_wheel"] else "none"
        yield from folded(
            f"       new   level {one['level']}: startMs {at(one['start_ms'])}, tick {show_duration(one['tick_ms'])}, "
            f"wheelSize {one['wheel_size']}, interval {show_duration(one['interval_ms'])}, "
            f"taskCounter {one['task_counter']}, overflow wheel {overflow}; its hand: {at(one['current_time'])}",
            HANGING,
        )


def _show_placing(step: Step, at: Moments, only: str | None = None) -> Iterator[str]:
    for placing in step.get("placing", ()):
        if only in (None, placing["timer"]):
            for asked in placing["asked"]:
                if "ends" in asked:
                    answer = f"ends at {at(asked['ends'])}, so its overflow wheel is asked"
                elif "due" in asked:
                    answer = "due already"
                else:
                    number, size, bucket = asked["virtual_id"], asked["wheel_size"], asked["bucket"]
                    virtual = f"virtualId {asked['expiration']}/{asked['tick_ms']} = {number}"
                    answer = f"{virtual}, % {size} = bucket {bucket}"
                yield from folded(f"       asks  level {asked['level']}: {answer}", HANGING)


def _show_rings(state: Step, scenario: Scenario, at: Moments) -> Iterator[str]:
    """A table a level."""
    for level, (hand, tick) in enumerate(zip(state["current_time"], state["level_tick"], strict=True), 1):
        size = scenario.size_of(level)
        yield ""
        head = f"  level {level}: tick {show_duration(tick)}, hand at {at(hand)}, ends at {at(hand + tick * size)}"
        yield from folded(head, 4)
        titles = ("bucket", "covers", "expiration", "queue", "timers")
        yield from table(titles, list(_rows(state, level, size, at)), 2)


def _rows(state: Step, level: int, size: int, at: Moments) -> Iterator[tuple[str, ...]]:
    used = {one["bucket"]: one for one in state["buckets"] if one["level"] == level}
    turn, tick = turns(state), state["level_tick"][level - 1]
    now = state["current_time"][level - 1] // tick
    hand = now % size
    for first, last in _runs(size, {*used, hand}):
        start = (now + (first - hand) % size) * tick
        span = f"[{at(start)}, {at(start + (last - first + 1) * tick)})"
        if first in used:
            queued = (at(used[first]["expiration"]), f"#{turn[level, first]}", ", ".join(used[first]["timers"]))
        else:
            # no timer is ever put under the hand: what it covers is due, or the level below covers it
            why = "hand: due at once" if level == 1 else f"hand: in level {level - 1}"
            queued = ("-1", "-", why if first == hand else "")
        yield (str(first) if first == last else f"{first}-{last}", span, *queued)


def _runs(size: int, alone: set[int]) -> Iterator[tuple[int, int]]:
    """The buckets in order; those in between that are not `alone` together, where they are many."""
    first = 0
    for end in (*sorted(alone), size):
        if end - first > FEW:
            yield first, end - 1
        else:
            yield from ((bucket, bucket) for bucket in range(first, end))
        if end < size:
            yield end, end
        first = end + 1
