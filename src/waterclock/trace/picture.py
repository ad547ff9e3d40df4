"""A step as text, in 80 columns: what happened, and tables of levels and buckets; `--verbose` shows every bucket.

With `--verbose` a step has all that Kafka's own classes know:

    begin      the first level, empty
    add        each level that is asked, the virtual id of the one that takes the timer, and the bucket
    advance    the wheel when its hands have moved and nothing is put back yet, then what becomes of each timer

Rule 1: nothing that is printed is broken by the terminal itself.
Rule 2: with `--verbose` a level is a table of all its buckets, by number. One that is not in the queue has the expiration
    -1, as in Kafka.
Rule 3: four empty buckets or more in a row are one line, with the range of them all.
Rule 4: the bucket under a level's hand says why no timer is ever put there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import Final

from waterclock.trace.moments import Moments
from waterclock.trace.scenario import Scenario
from waterclock.trace.walk import Step
from waterclock.wording import show_duration

WIDTH: Final = 80
GAP: Final = "  "
LEAST: Final = 8  # of the last column: below it a name stands alone on its line
HANGING: Final = 13  # where a line of a step goes on
FEW: Final = 3  # so many empty buckets in a row have a line each
MIDDLE: Final = "in the middle: the hands have moved, nothing is put back yet"


def table(titles: Sequence[str], rows: Sequence[Sequence[str]], indent: int = 4) -> list[str]:
    """Columns as wide as their widest cell; what the last one has too much goes on below.

    >>> table(("level", "tick"), [("1", "20ms")])
    ['    level  tick', '    1      20ms']
    """
    *first, _ = [max(len(cell) for cell in column) for column in zip(titles, *rows, strict=True)]
    room = max(LEAST, WIDTH - indent - sum(first) - len(GAP) * len(first))
    lines = []
    for *cells, last in (titles, *rows):
        for part, *words in zip_longest(_folded(last, room), *([cell] for cell in cells), fillvalue=""):
            padded = [word.ljust(width) for word, width in zip(words, first, strict=True)]
            lines.append((" " * indent + GAP.join([*padded, part])).rstrip())
    return lines


def folded(text: str, indent: int) -> list[str]:
    """A sentence over as many lines as it needs; those behind the first begin at `indent`.

    >>> folded("       ran   " + ", ".join(["task"] * 14), 13)[1]
    '             task, task, task'
    """
    start = text[: len(text) - len(text.lstrip())]
    return [start + line for line in _folded(text.strip(), WIDTH - len(start), " " * (indent - len(start)))]


def _folded(text: str, room: int, behind: str = "") -> list[str]:
    if len(text) <= room:
        return [text]
    return wrap(text, room, subsequent_indent=behind, break_on_hyphens=False) or [text]


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


def sentence(step: Step, at: Moments) -> str:
    """What happened, on one line."""
    if "begin" in step:
        return "the wheel is made: one level, nothing waits"
    lines = show_deed(0, step, at)
    if "advance_to" in step:
        lines += [*show_ran(step), *(line for move in step["moved_down"] for line in show_move(move))]
    parts = [re.sub(r"^ +(ran|down)  +", r"; \1 ", line) for line in lines]
    return " ".join(" ".join(parts).split()).removeprefix("0 ").replace(" ;", ";").replace(" -> ", " to ")


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
    words = {
        "early": "a timer runs up to a tick early, as in Kafka; Timer never does",
        "late": "no timer runs before its deadline",
    }
    lines = folded(f"{scenario.name}: tick {show_duration(scenario.tick_ms)}, slots {slots}", 0)
    lines += [f"rounding {rounding}: {words[rounding]}", *folded(scenario.note or "timers of your own", 0)]
    lines += folded(f"times: {at(scenario.start_ms)} is the start ({scenario.start_ms} ms); [a, b) is without b", 0)
    return "\n".join([*lines, ""])


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
