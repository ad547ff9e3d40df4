"""A broker's load on the purgatory: `python -m bench.purgatory [--seconds 3] [--rounds 3] [--json]`.

The load is the one that Apache Kafka measures its purgatory with. Each request is a new operation under 3 keys of 100,
with a timeout of 200 ms; something completes it later, after a delay that is log-normal. Two loads: p50/p75 of 20/60 ms,
of which 8 % expire, and of 200/400 ms, of which half expire. That share is checked, for it proves the load.

force    the request is completed by `force_complete()`, as Kafka's benchmark does
check    it is completed by `check_and_complete` of a fourth key of its own, which asks it once more

CPU microseconds a request, of this process: the request's draws and its place in the queue of answers, two questions,
the watch, the timeout, the answer. The clock is turned by hand, a millisecond at a time.

Doubts first: virtual time has no waiting and no second thread. Requests come evenly, not at random. A question and a deed
that do something cost more. `generator` is the same loop without a purgatory; it is in the other figures too. On a
machine that is shared, CPU time grows with what the neighbours do to the caches: shown is the median over windows of
50 ms of the clock, and the least tenth (`least`).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

from bench.wheel import machine
from waterclock import ManualClock, Timer
from waterclock.purgatory import COMPILED, delayed

if COMPILED:
    from waterclock.purgatory import _delayed

CONTENDERS: dict[str, Any] = {"compiled": _delayed, "plain": delayed} if COMPILED else {"plain": delayed}
LOADS = {"20/60 ms": (20, 60, 0.0793), "200/400 ms": (200, 400, 0.5)}  # p50, p75, the share that expires
TIMEOUT_S = 0.2
WINDOW_MS = 50
QUARTILE = 0.6744897501960817  # of the normal distribution


class Request:
    """One that is completed by its own key."""

    __slots__ = ("answered", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.answered = False

    def ask(self, op: Any) -> bool:
        return self.answered


class Keeper:
    """A purgatory as the loop sees it: `take` a request, `answer` it, turn the clock."""

    def __init__(self, module: Any, by: str) -> None:
        self.timer = Timer(clock=ManualClock())
        self.purgatory = module.Purgatory(by, self.timer)
        self.operation = module.DelayedOperation
        self.over = 0
        self.done = self.count  # bound once
        self.turn = lambda: self.timer.advance(0.001)
        self.take, self.answer = (self.take_forced, self.force) if by == "force" else (self.take_checked, self.check)

    def count(self, op: Any) -> None:
        self.over += 1

    def take_forced(self, keys: tuple[str, ...]) -> Any:
        op = self.operation(never, self.done, TIMEOUT_S)
        self.purgatory.try_complete_else_watch(op, keys)
        return op

    def force(self, op: Any) -> None:
        op.force_complete()

    def take_checked(self, keys: tuple[str, ...]) -> Any:
        request = Request(self.over)
        self.purgatory.try_complete_else_watch(self.operation(request.ask, self.done, TIMEOUT_S), (*keys, request))
        return request

    def check(self, request: Request) -> None:
        request.answered = True
        self.purgatory.check_and_complete(request)


class Nobody:
    """The generator alone."""

    def __init__(self) -> None:
        self.take: Callable[[Any], Any] = lambda keys: keys
        self.answer: Callable[[Any], Any] = lambda keys: None
        self.turn: Callable[[], Any] = lambda: None


def never(op: Any) -> bool:
    return False


def run(keeper: Any, load: tuple[int, int, float], seconds: float, per_ms: int) -> list[float]:
    """CPU us a request, for each window."""
    rng = random.Random(1)
    draw, delay_ms = rng.random, rng.lognormvariate
    mu, sigma = math.log(load[0]), math.log(load[1] / load[0]) / QUARTILE
    keys = [f"key-{n}" for n in range(100)]
    answers: dict[int, list[Any]] = {}
    take, answer, turn = keeper.take, keeper.answer, keeper.turn
    windows, began = [], time.process_time()
    for ms in range(int(seconds * 1000)):
        for _ in range(per_ms):
            request = take((keys[int(draw() * 100)], keys[int(draw() * 100)], keys[int(draw() * 100)]))
            at = ms + 1 + int(delay_ms(mu, sigma))
            if at in answers:
                answers[at].append(request)
            else:
                answers[at] = [request]
        turn()
        for request in answers.pop(ms + 1, ()):
            answer(request)
        if ms % WINDOW_MS == WINDOW_MS - 1:
            now = time.process_time()
            windows.append((now - began) / WINDOW_MS / per_ms * 1e6)
            began = time.process_time()
    return windows[int(len(windows) * 0.2) :]  # the first fifth fills the purgatory


def check(keeper: Keeper, load: tuple[int, int, float], seconds: float, per_ms: int) -> float:
    """The answers beside the speed; the share that expired."""
    told = keeper.purgatory.statistics()
    assert told.delayed + told.completed + told.expired == int(seconds * 1000) * per_ms
    assert keeper.over == told.completed + told.expired
    share = told.expired / ((seconds - TIMEOUT_S) * 1000 * per_ms)  # of those that are decided by now
    assert abs(share - load[2]) < 0.02, f"{share:.1%} expired: this is not the load"
    keeper.timer.advance(1)
    told = keeper.purgatory.statistics()
    assert (told.watched, told.delayed, len(keeper.timer)) == (0, 0, 0)
    return share


def measure(seconds: float, per_ms: int, rounds: int) -> list[dict[str, Any]]:
    """Each contender under each load, completed each way; contenders take turns within a round."""
    rows: list[dict[str, Any]] = []
    for name, load in LOADS.items():
        windows: dict[tuple[str, str], list[float]] = {}
        expired = 0.0
        for _ in range(rounds):
            windows.setdefault(("-", "generator"), []).extend(run(Nobody(), load, seconds, per_ms))
            for by in ("force", "check"):
                for contender, module in CONTENDERS.items():
                    keeper = Keeper(module, by)
                    windows.setdefault((by, contender), []).extend(run(keeper, load, seconds, per_ms))
                    expired = check(keeper, load, seconds, per_ms)
        rows += [row(name, *which, sorted(found), expired) for which, found in windows.items()]
    return rows


def row(load: str, by: str, contender: str, windows: list[float], expired: float) -> dict[str, Any]:
    median, least = statistics.median(windows), windows[len(windows) // 10]
    return {
        "load": load,
        "by": by,
        "contender": contender,
        "us": round(median, 2),
        "least_us": round(least, 2),
        "expired": round(expired, 3),
        "a_second": round(1e6 / median),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of the clock that is turned, for each run")
    parser.add_argument("--rate", type=int, default=100_000, help="requests a second of that clock")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = measure(arguments.seconds, arguments.rate // 1000, arguments.rounds)
    if arguments.json:
        json.dump({"machine": machine(), "rows": rows}, sys.stdout, indent=1)
        return
    print(f"{'load':12s}{'by':7s}{'contender':11s}{'CPU us':>8s}{'least':>8s}{'expired':>9s}{'a second':>10s}")
    for told in rows:
        print(
            f"{told['load']:12s}{told['by']:7s}{told['contender']:11s}{told['us']:8.2f}{told['least_us']:8.2f}"
            f"{told['expired']:9.1%}{told['a_second']:10,}"
        )


if __name__ == "__main__":
    main()
