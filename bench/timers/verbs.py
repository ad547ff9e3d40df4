"""What the verbs cost: CPU nanoseconds an operation of the calling thread, the Python loop and call included.

    add      N timers into an empty keeper          churn    N pending: cancel one and add one, as one operation
    cancel   all N in random order                  expire   one jump past the last deadline, callbacks run

Rule 1: contenders take turns within each round, those that are another program too; a figure is the median over the rounds.
Rule 2: delays are log-uniform from 1 ms to 1 h, tick 1 ms, other ones each round, the same for all contenders.
Rule 3: from `COLD` pending on, 128 MB are streamed before each timed phase: nothing is left in the caches.
Rule 4: answers are checked beside the speed, order and number at each size, number in each round. A wrong one
        ends the run.
Rule 5: the garbage collector is on, as in life; it has run before each phase, and what is not the contender's
        is frozen, so that a collection walks the timers only.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import repeat
from statistics import median
from typing import Any, Final, Protocol

from waterclock.bench.timers.keepers import HOUR_MS, Keeper
from waterclock.errors import WrongAnswer, pip_install
from waterclock.wheel import COMPILED

VERBS: Final = ("add", "cancel", "churn", "expire")
COLD: Final = 1_000_000
CHURNED: Final = 1_000_000  # at most so many operations in one churn
REPEATED: Final = 100_000  # a small size is repeated until this many timers have been through
STREAM: Final = bytearray(1)  # grows to 128 MB when it is first needed

Report = Callable[[str], None]
Figures = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Contender:
    """Who is measured: where its class is, up to which size and why not further; `fifo`: equal deadlines in order."""

    name: str
    home: str
    largest: int = 10_000_000
    why: str = ""
    fifo: bool = True

    def load(self) -> type[Keeper]:
        """Its class; `ImportError` where its package is not installed."""
        module, name = self.home.split(":")
        return getattr(import_module(f"waterclock.bench.timers.{module}"), name)  # type: ignore[no-any-return]


OURS = "waterclock, compiled" if COMPILED else "waterclock (NOT compiled)"
LONG = "a round takes minutes"
STANDARD: Final = (
    Contender(OURS, "keepers:Wheel"),
    Contender("waterclock, reference", "keepers:ReferenceWheel", 100_000, LONG),
    Contender("asyncio call_later", "keepers:Asyncio", 1_000_000, LONG, fifo=False),
    Contender("heapq, lazy deletion", "keepers:Heap", 10_000_000),
    Contender("sched", "keepers:Sched", 1_000, "its cancel searches all timers"),
)
CONTENDERS: Final = (
    STANDARD[0],
    Contender("waterclock, ArrayWheel", "arrays:ArrayKeeper"),
    *STANDARD[1:],
    Contender("uvloop call_later", "packages:Uvloop", 1_000_000, LONG, fifo=False),
    Contender("sortedcontainers", "packages:Sorted", 1_000_000, LONG),
    Contender("APScheduler", "packages:APScheduler", 1_000, "minutes at the next size", fifo=False),
)


class Rival(Protocol):
    """Who does the verbs in a process of its own, and may be several rows; what it cannot do it leaves out and notes."""

    notes: Mapping[str, str]

    def check(self, size: int) -> None:
        """The same as `check` here; `WrongAnswer`."""

    def round(self, delays: Sequence[int]) -> Mapping[str, Mapping[str, float]]:
        """Once through the verbs: ns by row and verb."""


class Found:
    """ns of each round by contender, verb and size, and their medians."""

    def __init__(self) -> None:
        self._rounds: dict[str, dict[str, dict[int, list[float]]]] = {}

    def add(self, name: str, size: int, ns: Mapping[str, float]) -> None:
        by_verb = self._rounds.setdefault(name, {verb: {} for verb in VERBS})
        for verb, cost in ns.items():
            by_verb[verb].setdefault(size, []).append(cost)

    def medians(self) -> dict[str, dict[str, dict[int, float]]]:
        return {
            name: {verb: {size: median(ns) for size, ns in by_size.items()} for verb, by_size in by_verb.items()}
            for name, by_verb in self._rounds.items()
        }


def measure(
    contenders: Sequence[Contender], sizes: Sequence[int], rounds: int, report: Report, rivals: Sequence[Rival] = ()
) -> Figures:
    """CPU ns by contender, verb and size, and a note for whom or what was left out."""
    makers, notes = _load(contenders)
    found = Found()
    for size in sizes:
        here = {c: makers[c.name] for c in contenders if c.name in makers and size <= c.largest}
        for contender, make in here.items():
            report(f"{contender.name}, {size:,} pending: checking the answers")
            check(contender, make, size)
        for rival in rivals:
            rival.check(size)
        for turn in range(rounds):
            delays = delays_ms(size, seed=turn)
            for contender, make in here.items():
                report(f"{contender.name}, {size:,} pending: round {turn + 1} of {rounds}")
                found.add(contender.name, size, _round(contender.name, make, delays))
            for rival in rivals:
                for name, ns in rival.round(delays).items():
                    found.add(name, size, ns)
    largest = max(sizes)
    notes |= {
        c.name: f"not beyond {c.largest:,}: {c.why}" for c in contenders if c.name in makers and c.largest < largest
    }
    for rival in rivals:
        notes |= rival.notes
    return {"ns": found.medians(), "notes": notes}


def delays_ms(number: int, seed: int) -> list[int]:
    """Log-uniform from 1 ms to 1 h."""
    choose, top = random.Random(seed).random, math.log(HOUR_MS)
    return [int(math.exp(choose() * top)) for _ in range(number)]


def check(contender: Contender, make: Callable[[Any], Keeper], size: int) -> None:
    """What was not cancelled ran once, by deadline and then in the order of adding; `WrongAnswer` otherwise."""
    keeper = make(print)  # each timer of a check has a callback of its own
    step, number = keeper.step_ms, min(size, keeper.checked)
    delays = [delay + -delay % step for delay in delays_ms(number, seed=size)]
    cancelled = random.Random(size).sample(range(number), number // 3)
    ran, gone = keeper.order(delays, cancelled), set(cancelled)
    keeper.close()
    expected = sorted((n for n in range(number) if n not in gone), key=lambda n: delays[n])
    if [delays[n] for n in ran] != [delays[n] for n in expected] or sorted(ran) != sorted(expected):
        raise WrongAnswer(f"{contender.name}: at {size} pending the wrong timers ran, or not by their deadlines")
    if contender.fifo and ran != expected:
        raise WrongAnswer(f"{contender.name}: at {size} pending equal deadlines did not run in the order of adding")


def _load(contenders: Sequence[Contender]) -> tuple[dict[str, type[Keeper]], dict[str, str]]:
    makers: dict[str, type[Keeper]] = {}
    notes: dict[str, str] = {}
    for contender in contenders:
        try:
            makers[contender.name] = contender.load()
        except ImportError as error:
            notes[contender.name] = f"not measured: {error}; {pip_install('bench')}"
    return makers, notes


def _round(name: str, make: type[Keeper], delays: list[int]) -> dict[str, float]:
    """Once through the verbs, a small size several times; ns an operation."""
    times = max(1, min(make.repeats, REPEATED // len(delays)))
    gc.collect()
    gc.freeze()
    try:
        each = [_once(name, make, delays) for _ in range(times)]
    finally:
        gc.unfreeze()
    return {verb: sum(one[verb] for one in each) / times for verb in VERBS}


def _once(name: str, make: type[Keeper], delays: list[int]) -> dict[str, float]:
    size, churned = len(delays), min(len(delays), CHURNED)
    tickets = deque(repeat(None, size + 1))  # a callback that counts in C: each call takes one
    keeper = make(tickets.popleft)
    wanted = keeper.prepare(delays)
    handles: Any = None

    def add() -> None:
        nonlocal handles
        handles = keeper.add_all(wanted)

    ns = {"add": _timed(add, size)}
    keeper.shuffle(handles, seed=size)
    ns["churn"] = _timed(lambda: keeper.churn(handles, wanted[:churned]), churned, size)
    ns["cancel"] = _timed(lambda: keeper.cancel_all(handles), size)
    handles = None
    keeper.expire()  # what lazy deletion left behind
    if len(tickets) + keeper.ran() != size + 1:
        raise WrongAnswer(f"{name}: timers ran that were cancelled, at {size} pending")
    add()
    handles = None
    keeper.wait()
    ns["expire"] = _timed(keeper.expire, size)
    keeper_ran = size + 1 - len(tickets) + keeper.ran()
    if keeper_ran != size:
        raise WrongAnswer(f"{name}: {keeper_ran} timers ran of {size}")
    keeper.close()
    return ns


def _timed(work: Callable[[], Any], operations: int, pending: int | None = None) -> float:
    if (pending or operations) >= COLD:
        _stream()
    gc.collect()
    begin = time.thread_time_ns()
    work()
    return (time.thread_time_ns() - begin) / operations


def _stream() -> None:
    """Read and write 128 MB, so that no cache holds a timer."""
    if len(STREAM) == 1:
        STREAM.extend(bytes(2**27))
    STREAM[:] = STREAM.translate(bytes(range(256)))
