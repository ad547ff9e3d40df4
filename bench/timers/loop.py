"""What an asyncio loop spends on timers: CPU time of the loop's thread for all of it, by the timer.

N timers are added at once, their delays uniform over a spread of seconds; a share of them is cancelled in random order;
then the loop runs until the last is due. Counted are adding, cancelling, waking, running. The spread decides much: with
100k timers within 10 s ten are due at a tick of 1 ms, within 1 s a hundred. So both are measured.

Rule 1: every way runs in a fresh loop; they take turns within each round, and a figure is the median.
Rule 2: what was not cancelled ran, once, or the run ends with `WrongAnswer`.
"""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable
from statistics import median
from typing import Any, Final

from waterclock.bench.timers.verbs import Report
from waterclock.errors import WrongAnswer
from waterclock.timer import AsyncTimer

TIMERS: Final = 100_000
SHARES: Final = (0.0, 0.9)
SHORT_S: Final = 1.0
SLACK_S: Final = 0.2  # from the last deadline to the end
Way = tuple[Callable[[], asyncio.AbstractEventLoop], bool]  # the loop; whether AsyncTimer keeps the timers


def ways() -> dict[str, Way]:
    """Who is measured; uvloop where it is installed."""
    found: dict[str, Way] = {
        "waterclock AsyncTimer": (asyncio.new_event_loop, True),
        "asyncio call_later": (asyncio.new_event_loop, False),
    }
    try:
        import uvloop
    except ImportError:
        return found
    return found | {
        "waterclock AsyncTimer on uvloop": (uvloop.new_event_loop, True),
        "uvloop call_later": (uvloop.new_event_loop, False),
    }


def measure(timers: int, seconds: float, rounds: int, report: Report) -> list[dict[str, Any]]:
    """A record for each way, share of cancelled ones, and spread: `seconds`, and one second where that is less."""
    spreads = sorted({min(seconds, SHORT_S), seconds})
    cases = [(name, share, spread) for spread in spreads for share in SHARES for name in ways()]
    found: dict[tuple[str, float, float], list[float]] = {case: [] for case in cases}
    for turn in range(rounds):
        for case in cases:
            report(f"{case[0]}, {timers:,} in a loop, {case[1]:.0%} cancelled: round {turn + 1} of {rounds}")
            found[case].append(_spend(timers, *case))
    return [
        {"driver": name, "timers": timers, "cancelled": share, "within_s": spread, "ns_a_timer": round(median(ns))}
        for (name, share, spread), ns in found.items()
    ]


def _spend(timers: int, name: str, share: float, seconds: float) -> float:
    make, ours = ways()[name]
    loop = make()
    chance = random.Random(timers)
    delays_s = [chance.random() * seconds for _ in range(timers)]
    cancelled = chance.sample(range(timers), int(timers * share))
    gc.collect()
    gc.freeze()
    try:
        begin = time.thread_time_ns()
        ran = loop.run_until_complete(_live(loop, ours, delays_s, cancelled, seconds))
        spent = time.thread_time_ns() - begin
    finally:
        gc.unfreeze()
        loop.close()
    if ran != timers - len(cancelled):
        raise WrongAnswer(f"{name}: {ran} timers ran in the loop, of {timers - len(cancelled)} that were not cancelled")
    return spent / timers


async def _live(
    loop: asyncio.AbstractEventLoop, ours: bool, delays_s: list[float], cancelled: list[int], seconds: float
) -> int:
    ran = 0

    def run() -> None:
        nonlocal ran
        ran += 1

    timer = AsyncTimer() if ours else None
    call_later = loop.call_later if timer is None else timer.call_later
    handles = [call_later(delay_s, run) for delay_s in delays_s]
    for number in cancelled:
        handles[number].cancel()
    await asyncio.sleep(seconds + SLACK_S)
    if timer is not None:
        timer.close()
    return ran
