"""What a program pays that uses a driver: CPU nanoseconds of the thread, Python's loop and call included.

    call_later, cancel   a timer of 30 seconds that is cancelled at once, the commonest life of one
    reschedule           a timer that waits is moved; in asyncio it is cancelled and made anew
    touch                an IdleTimeout's; in asyncio the loop's time is noted
    timeout              `async with timeout(30): pass`
    wait                 a task that is woken by its key, with a timeout; in asyncio a dict and a Future, written by hand

Rule 1: all of it happens in a running loop, with a thousand timers in it that are due later.
Rule 2: ways take turns within each round; a figure is the median over the rounds. A turn of the loop at its end counts.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import Any, Final

from waterclock.bench.tables import aligned
from waterclock.bench.timers.verbs import Report
from waterclock.purgatory import Purgatory
from waterclock.timer import AsyncTimer, IdleTimeout

PENDING: Final = 1_000
FAR_S: Final = 30.0
Deed = Callable[[int], Awaitable[None]]


class Ours:
    """With an AsyncTimer and a Purgatory."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.timer = AsyncTimer()
        self.purgatory = Purgatory("bench", self.timer)
        for number in range(PENDING):
            self.timer.call_later(2 * FAR_S + number, _nothing)

    async def call_later(self, times: int) -> None:
        timer = self.timer
        for _ in range(times):
            timer.call_later(FAR_S, _nothing).cancel()

    async def reschedule(self, times: int) -> None:
        handle = self.timer.call_later(FAR_S, _nothing)
        for _ in range(times):
            handle.reschedule(FAR_S)
        handle.cancel()

    async def touch(self, times: int) -> None:
        with IdleTimeout(self.timer, FAR_S, _nothing) as idle:
            for _ in range(times):
                idle.touch()

    async def timeout(self, times: int) -> None:
        timer = self.timer
        for _ in range(times):
            async with timer.timeout(FAR_S):
                pass

    async def wait(self, times: int) -> None:
        done = [False]

        def tell() -> None:
            done[0] = True
            self.purgatory.check_and_complete("key")

        for _ in range(times):
            done[0] = False
            self.loop.call_soon(tell)
            assert await self.purgatory.wait(["key"], lambda: done[0], FAR_S)

    def close(self) -> None:
        self.timer.close()


class Asyncios:
    """With what the loop has."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.waiting: dict[str, asyncio.Future[bool]] = {}
        self.kept = [self.loop.call_later(2 * FAR_S + number, _nothing) for number in range(PENDING)]

    async def call_later(self, times: int) -> None:
        loop = self.loop
        for _ in range(times):
            loop.call_later(FAR_S, _nothing).cancel()

    async def reschedule(self, times: int) -> None:
        loop = self.loop
        handle = loop.call_later(FAR_S, _nothing)
        for _ in range(times):
            handle.cancel()
            handle = loop.call_later(FAR_S, _nothing)
        handle.cancel()

    async def touch(self, times: int) -> None:
        loop = self.loop
        for _ in range(times):
            self.latest_s = loop.time()

    async def timeout(self, times: int) -> None:
        for _ in range(times):
            async with asyncio.timeout(FAR_S):
                pass

    async def wait(self, times: int) -> None:
        for _ in range(times):
            self.loop.call_soon(self.tell, "key", True)
            assert await self.wait_for("key", FAR_S)

    async def wait_for(self, key: str, timeout_s: float) -> bool:
        self.waiting[key] = future = self.loop.create_future()
        handle = self.loop.call_later(timeout_s, self.tell, key, False)
        try:
            return await future
        finally:
            handle.cancel()
            del self.waiting[key]

    def tell(self, key: str, done: bool) -> None:
        future = self.waiting.get(key)
        if future is not None and not future.done():
            future.set_result(done)

    def close(self) -> None:
        for handle in self.kept:
            handle.cancel()


WAYS: Final[dict[str, type[Ours] | type[Asyncios]]] = {"waterclock": Ours, "the loop": Asyncios}
DEEDS: Final = {"call_later": 100_000, "reschedule": 100_000, "touch": 100_000, "timeout": 20_000, "wait": 10_000}
SHOWN: Final = {"call_later": "call_later, cancel"}


def measure(most: int, rounds: int, report: Report) -> list[dict[str, Any]]:
    """A record for each loop, deed and way, of at most `most` deeds a round; on uvloop too where it is installed."""
    found = []
    for loop in ("asyncio", "uvloop"):
        try:
            factory = asyncio.new_event_loop if loop == "asyncio" else __import__("uvloop").new_event_loop
        except ImportError:
            continue
        report(f"what a driver's verbs cost, {loop}")
        with asyncio.Runner(loop_factory=factory) as runner:
            found += [{"loop": loop, **record} for record in runner.run(_rounds(most, rounds))]
    return found


async def _rounds(most: int, rounds: int) -> list[dict[str, Any]]:
    found: dict[tuple[str, str], list[float]] = {(deed, way): [] for deed in DEEDS for way in WAYS}
    for _ in range(rounds):
        for (deed, way), ns in found.items():
            ns.append(await _cost(way, deed, min(most, DEEDS[deed])))
    return [{"deed": deed, "way": way, "ns": round(median(ns))} for (deed, way), ns in found.items()]


async def _cost(way: str, deed: str, times: int) -> float:
    keeper = WAYS[way]()
    work: Deed = getattr(keeper, deed)
    gc.collect()
    begin = time.thread_time_ns()
    await work(times)
    # a loop's heap is tidied in its own turn: that is the cost of who left what was cancelled there
    await asyncio.sleep(0)
    spent = time.thread_time_ns() - begin
    keeper.close()
    return spent / times


def table(records: Sequence[dict[str, Any]]) -> str:
    """ns a deed by way, and how many times the first one's."""
    loops = list(dict.fromkeys(r["loop"] for r in records))
    ns = {(r["loop"], r["deed"], r["way"]): r["ns"] for r in records}
    head = ["a driver's verbs, CPU ns", *(f"{way} ({loop})" for loop in loops for way in WAYS)]
    rows = []
    for deed in DEEDS:
        cells = [[ns[loop, deed, "waterclock"], ns[loop, deed, "the loop"]] for loop in loops]
        shown = [[f"{ours:,}", f"{theirs:,} ({theirs / max(1, ours):.1f}x)"] for ours, theirs in cells]
        rows.append([SHOWN.get(deed, deed), *(cell for pair in shown for cell in pair)])
    return aligned(head, rows)


def _nothing() -> None:
    pass
