"""Four ways to keep timers, side by side in one run: `python bench/wheel.py [--pending 100000] [--json]`.

CPU nanoseconds an operation of the calling thread, the Python loop and call included. Delays are log-uniform
from 1 ms to 1 h, tick 1 ms. Contenders take turns within each round; the table shows medians over the rounds.

Doubts first: the callback does nothing, so `expire` is the keeper's own cost. Caches are as the phase before
left them. asyncio runs under a clock turned by hand, its selector included. `cancel` of asyncio and of the
heap only marks; the bill comes when the time does, and is in `pair` in part and in `cancel` not at all. The
garbage collector is on, as in life, and has been run before each timed phase.

add      N timers into an empty keeper            pair    with N pending: add one, cancel it
cancel   all N in random order                    expire  one jump past the last deadline
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import json
import math
import platform
import random
import statistics
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any, Protocol

from waterclock.wheel import COMPILED, TimingWheel, reference

VERBS = ("add", "pair", "cancel", "expire")
HOUR_MS = 3_600_000


class Keeper(Protocol):
    """What is measured: delays in ms, handles with cancel(), and a jump past every deadline."""

    add: Callable[[int, Callable[[], Any]], Any]

    def expire(self) -> None: ...
    def close(self) -> None: ...


class Wheel:
    def __init__(self, make: Callable[[], Any] = TimingWheel) -> None:
        self.wheel = make()
        self.add = self.wheel.add

    def expire(self) -> None:
        self.wheel.advance(self.wheel.now + 2 * HOUR_MS)

    def close(self) -> None:
        assert len(self.wheel) == 0


class ReferenceWheel(Wheel):
    def __init__(self) -> None:
        super().__init__(reference.TimingWheel)


class Asyncio:
    """`loop.call_later` in a loop whose clock counts ms and stands until it is turned."""

    def __init__(self) -> None:
        self.now = 0
        self.loop = asyncio.new_event_loop()
        self.loop.time = lambda: self.now  # type: ignore[method-assign]
        self.add = self.loop.call_later

    def expire(self) -> None:
        self.now += 2 * HOUR_MS
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def close(self) -> None:
        self.loop.close()


class HeapEntry:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], Any] | None) -> None:
        self.callback = callback

    def cancel(self) -> None:
        self.callback = None


class Heap:
    """heapq with lazy deletion: a cancelled entry stays until its time comes."""

    def __init__(self) -> None:
        self.now = 0
        self.entries: list[tuple[int, int, HeapEntry]] = []
        self.number = count()

    def add(self, delay: int, callback: Callable[[], Any]) -> HeapEntry:
        entry = HeapEntry(callback)
        heapq.heappush(self.entries, (self.now + delay, next(self.number), entry))
        return entry

    def expire(self) -> None:
        self.now += 2 * HOUR_MS
        while self.entries and self.entries[0][0] <= self.now:
            entry = heapq.heappop(self.entries)[2]
            if entry.callback is not None:
                entry.callback()

    def close(self) -> None:
        assert not self.entries


CONTENDERS: dict[str, Callable[[], Any]] = {
    "waterclock, compiled" if COMPILED else "waterclock (NOT compiled)": Wheel,
    "waterclock, reference": ReferenceWheel,
    "asyncio call_later": Asyncio,
    "heapq, lazy deletion": Heap,
}


def delays_ms(number: int, seed: int) -> list[int]:
    choose = random.Random(seed)
    return [int(math.exp(choose.uniform(0, math.log(HOUR_MS)))) for _ in range(number)]


def nothing() -> None:
    pass


def timed(work: Callable[[], Any], operations: int) -> float:
    gc.collect()
    begin = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - begin) / operations


def measure(make: Callable[[], Any], delays: list[int], seed: int) -> dict[str, float]:
    """One contender once through the four verbs; ns an operation."""
    keeper: Any = make()
    add, handles = keeper.add, []
    pairs = delays[: max(1, len(delays) // 2)]
    found: dict[str, float] = {}

    def add_all() -> None:
        handles.extend([add(delay, nothing) for delay in delays])

    def add_and_cancel() -> None:
        for delay in pairs:
            add(delay, nothing).cancel()

    def cancel_all() -> None:
        for handle in handles:
            handle.cancel()

    found["add"] = timed(add_all, len(delays))
    found["pair"] = timed(add_and_cancel, len(pairs))
    random.Random(seed).shuffle(handles)
    found["cancel"] = timed(cancel_all, len(delays))
    handles.clear()
    keeper.expire()  # what lazy deletion left behind
    add_all()
    handles.clear()
    found["expire"] = timed(keeper.expire, len(delays))
    keeper.close()
    return found


def check(make: Callable[[], Any], seed: int) -> None:
    """Beside speed: what was not cancelled runs once, by deadline and then in the order of adding."""
    keeper: Any = make()
    ran: list[int] = []
    delays = delays_ms(5_000, seed)
    handles = [keeper.add(delay, lambda n=n: ran.append(n)) for n, delay in enumerate(delays)]
    for handle in handles[::3]:
        handle.cancel()
    keeper.expire()
    keeper.close()
    by_deadline = sorted((delay, n) for n, delay in enumerate(delays) if n % 3)
    # asyncio does not promise the order of equal deadlines, so it is held to the deadlines only
    assert [delays[n] for n in ran] == [delay for delay, _ in by_deadline], "wrong timers, or out of order"
    assert make is Asyncio or ran == [n for _, n in by_deadline], "equal deadlines not in the order of adding"


def run(pending: int, rounds: int, seed: int) -> dict[str, dict[str, float]]:
    for make in CONTENDERS.values():
        check(make, seed)
    results: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for turn in range(rounds):
        delays = delays_ms(pending, seed + turn)
        for name, make in CONTENDERS.items():
            results[name].append(measure(make, delays, seed))
    return {
        name: {verb: statistics.median(one[verb] for one in found) for verb in VERBS} for name, found in results.items()
    }


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    cores = sum(line.startswith("processor") for line in lines)
    return f"{model}, {cores} cores, {platform.python_implementation()} {platform.python_version()}"


def show(results: dict[str, dict[str, float]], pending: int, rounds: int, seed: int) -> str:
    base = next(iter(results.values()))
    lines = [
        f"CPU ns an operation, {pending} pending, median of {rounds} rounds, seed {seed}; (over the first)",
        machine(),
        "same timers expired, in order: checked",
        "",
        f"{'':<28}" + "".join(f"{verb:>20}" for verb in VERBS),
    ]
    for name, row in results.items():
        cells = (f"{row[verb]:>11.0f} ({row[verb] / base[verb]:>5.1f}x)" for verb in VERBS)
        lines.append(f"{name:<28}" + "".join(f"{cell:>20}" for cell in cells))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Timers side by side: add, add+cancel pair, cancel, expire.")
    parser.add_argument("--pending", type=int, default=100_000, help="timers waiting (default 100000)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds, contenders taking turns (default 5)")
    parser.add_argument("--seed", type=int, default=1, help="of the delays (default 1)")
    parser.add_argument("--json", action="store_true", help="one JSON record instead of the table")
    args = parser.parse_args()
    results = run(args.pending, args.rounds, args.seed)
    if args.json:
        print(json.dumps({"machine": machine(), "compiled": COMPILED, **vars(args), "ns": results}))
    else:
        print(show(results, args.pending, args.rounds, args.seed))


if __name__ == "__main__":
    main()
