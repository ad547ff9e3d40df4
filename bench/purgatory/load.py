"""The standard load of Kafka's purgatory, in real time: requests at a rate, each over by its latency or by its timeout.

    arrivals      at random: so many in each millisecond as a Poisson process of that rate has
    latency       log-normal, by its median and upper quartile: 20 and 60 ms, or 200 and 400 ms
    timeout       200 ms; so 8 % or 50 % of the requests expire, and that share proves the load
    shared keys   each request under 3 of 100 keys; who answers it calls `force_complete()`
    own keys      each request under a key of its own; who answers it calls `check_and_complete(key)`

One thread sends and answers, millisecond by millisecond; the timer's thread expires. CPU is the process's: the sender,
the answerer and the timer included. The random numbers are drawn beforehand.

Rule 1: a rate is held when sender and answerer are less than `BEHIND_MS` behind at the end.
Rule 2: every request is over once, no timer and no watch is left, or the run ends with `WrongAnswer`.
Rule 3: a request that was answered and expired within the same moment may count as either: so the share is shown beside
        the share of the drawn latencies above the timeout, and is not asserted.
"""

from __future__ import annotations

import gc
import math
import random
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import cycle
from typing import Any, Final, Protocol

from waterclock.bench.timers.memory import resident_bytes
from waterclock.bench.timers.verbs import Report
from waterclock.errors import WrongAnswer
from waterclock.purgatory import DelayedOperation, Purgatory
from waterclock.timer import Timer

NAME: Final = "waterclock"
LATENCIES_MS: Final = ((20, 60), (200, 400))  # median and upper quartile
TIMEOUT_MS: Final = 200
KEYS, KEYS_A_REQUEST = 100, 3
BEHIND_MS: Final = 100
QUARTILE: Final = 0.6744897501960817  # of the normal distribution
DRAWN: Final = 100_003  # so many latencies, again and again
DRAWN_MS: Final = 10_007  # and arrivals of so many milliseconds


@dataclass(frozen=True, slots=True)
class Held:
    """One rate of one load."""

    contender: str
    keys: str
    p50_ms: int
    p75_ms: int
    rate: int
    seconds: float
    requests: int
    cpu_us: float  # a request
    held: bool
    behind_ms: float  # at the end
    expired: float  # share of the requests
    expected: float  # share of the latencies drawn that were above the timeout
    pending_most: int
    resident_mb: float | None  # at the end, above the start; None where it says nothing, as of a JVM
    grown_mb: float | None  # of that in the second half


class Answerer:
    """Makes requests and ends them; what differs between shared and own keys."""

    def __init__(self, purgatory: Any, operation: Any = DelayedOperation) -> None:
        self.purgatory, self.operation = purgatory, operation
        self.now_ms = 0
        self.over = 0

    def send(self, answered_ms: int) -> Any:
        """A request that will be answered at that millisecond; what `answer` takes."""
        raise NotImplementedError

    def answer(self, sent: Any) -> None:
        raise NotImplementedError

    def count(self, op: DelayedOperation) -> None:
        self.over += 1


class SharedKeys(Answerer):
    """Under 3 of 100 keys; the answer names the operation."""

    def __init__(self, purgatory: Any, operation: Any = DelayedOperation) -> None:
        super().__init__(purgatory, operation)
        choose = random.Random(1)
        keys = [f"topic-{number}" for number in range(KEYS)]
        self.keys: Iterator[tuple[str, ...]] = cycle([tuple(choose.sample(keys, KEYS_A_REQUEST)) for _ in range(9_973)])

    def send(self, answered_ms: int) -> Any:
        op = self.operation(lambda op: self.now_ms >= answered_ms, self.count, TIMEOUT_MS / 1000)
        self.purgatory.try_complete_else_watch(op, next(self.keys))
        return op

    def answer(self, sent: Any) -> None:
        sent.force_complete()


class OwnKeys(Answerer):
    """Each under a key of its own, a whole number; the answer names the key."""

    def __init__(self, purgatory: Any, operation: Any = DelayedOperation) -> None:
        super().__init__(purgatory, operation)
        self.number = 0

    def send(self, answered_ms: int) -> int:
        self.number = key = self.number + 1
        op = self.operation(lambda op: self.now_ms >= answered_ms, self.count, TIMEOUT_MS / 1000)
        self.purgatory.try_complete_else_watch(op, (key,))
        return key

    def answer(self, sent: int) -> None:
        self.purgatory.check_and_complete(sent)


ANSWERERS: Final[dict[str, type[Answerer]]] = {"shared": SharedKeys, "own": OwnKeys}


class Rival(Protocol):
    """Who carries the same loads in a process of its own."""

    name: str

    def run(self, keys: str, p50_ms: int, p75_ms: int, rate: int, seconds: float) -> Held | None:
        """One rate of one load; None where it cannot be measured."""


def measure(rates: list[int], seconds: float, report: Report, rival: Rival) -> list[dict[str, Any]]:
    """Records by load, rate and contender; after a rate that a contender does not hold, its higher ones are left out."""
    found = []
    for keys in ANSWERERS:
        for p50_ms, p75_ms in LATENCIES_MS:
            ahead = {NAME: run, rival.name: rival.run}
            for rate in sorted(rates):
                for name, carry in list(ahead.items()):
                    report(
                        f"{name}, {keys} keys, {p50_ms} and {p75_ms} ms: {rate:,} requests a second for {seconds:g} s"
                    )
                    held = carry(keys, p50_ms, p75_ms, rate, seconds)
                    if held is not None:
                        found.append(asdict(held))
                    if held is None or not held.held:
                        del ahead[name]
    return found


def run(keys: str, p50_ms: int, p75_ms: int, rate: int, seconds: float) -> Held:
    """One rate of one load."""
    latencies, arrivals = draw_latencies(p50_ms, p75_ms), draw_arrivals(rate, min(DRAWN_MS, int(seconds * 1000)))
    expected = sum(latency > TIMEOUT_MS for latency in latencies) / len(latencies)
    gc.collect()
    begin_bytes = resident_bytes()
    with Timer(name="bench-purgatory") as timer:
        purgatory = Purgatory("bench", timer)
        answerer = ANSWERERS[keys](purgatory)
        sender = Sender(answerer, cycle(latencies), cycle(arrivals), purgatory)
        begin_ns = time.process_time_ns()
        sender.run(int(seconds * 1000))
        spent_ns = time.process_time_ns() - begin_ns
        reported = purgatory.statistics()
        check(sender, answerer, reported, len(timer))
    end_bytes = resident_bytes()
    return Held(
        contender=NAME,
        keys=keys,
        p50_ms=p50_ms,
        p75_ms=p75_ms,
        rate=rate,
        seconds=seconds,
        requests=sender.sent,
        cpu_us=round(spent_ns / 1000 / max(1, sender.sent), 2),
        held=sender.behind_ms < BEHIND_MS,
        behind_ms=round(sender.behind_ms, 1),
        expired=round(reported.expired / max(1, sender.sent), 4),
        expected=round(expected, 4),
        pending_most=sender.pending_most,
        resident_mb=round((end_bytes - begin_bytes) / 1e6, 1),
        grown_mb=round((end_bytes - sender.half_bytes) / 1e6, 1),
    )


class Sender:
    """Sends and answers, one millisecond after the other, never ahead of the clock."""

    def __init__(self, answerer: Answerer, latencies: Iterator[int], arrivals: Iterator[int], purgatory: Any) -> None:
        self.answerer, self.purgatory = answerer, purgatory
        self.latencies, self.arrivals = latencies, arrivals
        self.due: defaultdict[int, list[Any]] = defaultdict(list)
        self.sent = self.pending_most = self.half_bytes = 0
        self.behind_ms = 0.0

    def run(self, duration_ms: int) -> None:
        """Send for so long, then answer what is left, and let what will expire expire."""
        begin_s = time.monotonic()
        for now_ms in range(duration_ms):
            self._wait_until(begin_s + now_ms / 1000)
            self._answer(now_ms)
            self._send(now_ms)
            if now_ms % 100 == 0:
                self.pending_most = max(self.pending_most, self.purgatory.statistics().delayed)
            if now_ms == duration_ms // 2:
                self.half_bytes = resident_bytes()
        self.behind_ms = max(0.0, (time.monotonic() - begin_s) * 1000 - duration_ms)
        for now_ms in range(duration_ms, duration_ms + TIMEOUT_MS):
            self._wait_until(begin_s + now_ms / 1000)
            self._answer(now_ms)
        self._settle()

    def _wait_until(self, moment_s: float) -> None:
        ahead_s = moment_s - time.monotonic()
        if ahead_s > 0:
            time.sleep(ahead_s)

    def _answer(self, now_ms: int) -> None:
        self.answerer.now_ms = now_ms
        answer = self.answerer.answer
        for sent in self.due.pop(now_ms, ()):
            answer(sent)

    def _send(self, now_ms: int) -> None:
        send, due = self.answerer.send, self.due
        for _ in range(next(self.arrivals)):
            answered_ms = now_ms + next(self.latencies)
            due[answered_ms].append(send(answered_ms))
            self.sent += 1

    def _settle(self) -> None:
        """What nobody answered in time expires by itself; at most a few timeouts long."""
        end_s = time.monotonic() + 50 * TIMEOUT_MS / 1000
        while self.purgatory.statistics().delayed and time.monotonic() < end_s:
            time.sleep(TIMEOUT_MS / 1000)
        self.due.clear()


def draw_latencies(p50_ms: int, p75_ms: int, number: int = DRAWN) -> list[int]:
    """Whole milliseconds, rounded up; from 1."""
    draw, mu, sigma = random.Random(1).lognormvariate, math.log(p50_ms), math.log(p75_ms / p50_ms) / QUARTILE
    return [max(1, math.ceil(draw(mu, sigma))) for _ in range(number)]


def draw_arrivals(rate: int, number: int) -> list[int]:
    """How many come in each of so many milliseconds, at exponential distances."""
    chance, counts, moment_ms = random.Random(2), [0] * number, 0.0
    while (moment_ms := moment_ms + chance.expovariate(rate / 1000)) < number:
        counts[int(moment_ms)] += 1
    return counts


def check(sender: Sender, answerer: Answerer, reported: Any, timers: int) -> None:
    """`WrongAnswer` where a request is not over once, or something is left."""
    over = reported.completed + reported.expired
    if not sender.sent == answerer.over == over or reported.cancelled:
        raise WrongAnswer(f"purgatory: {sender.sent} requests, {answerer.over} over, {reported} told")
    if reported.watched or reported.delayed or timers:
        raise WrongAnswer(
            f"purgatory: {reported.watched} watched, {reported.delayed} delayed, {timers} timers left at the end"
        )
