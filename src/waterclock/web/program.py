"""`serve(timer, purgatory, ...)`: a program's own timers and purgatories, live in a browser on this machine.

    /console/           the page
    /statistics.json    the record that it is made of; /dials.json the wheels of the timers

Rule 1: a `Timer` and a `Purgatory` are asked by the server's thread. What belongs to an asyncio loop is asked in that loop;
        while it is busy, what was known last is shown, and how old it is.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from waterclock.clock import SystemClock
from waterclock.web.console.console import Console
from waterclock.web.console.sources import OwnProcess
from waterclock.web.dial import Dial, dial_of
from waterclock.web.record import to_json
from waterclock.web.server import JSON, PageServer

T = TypeVar("T")
COMMAND: Final = "program"
BUSY_S: Final = 0.1
FULLEST: Final = 5


@dataclass(frozen=True, slots=True)
class ShownTimer:
    """Counts of a timer since it was made, and how late its callbacks start."""

    pending: int
    added: int
    fired: int
    cancelled: int
    failed: int
    p50_ms: float
    p99_ms: float
    latest_ms: float


@dataclass(frozen=True, slots=True)
class ShownPurgatory:
    """Counts of a purgatory since it was made; `fullest`: operations by key, of the keys with most of them."""

    delayed: int
    completed: int
    expired: int
    cancelled: int
    fullest: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class ProgramStatistics:
    """What `serve` shows, by name. `age_s`: how old it is, 0 if it is of now; None if the loop has answered nothing yet."""

    timers: Mapping[str, ShownTimer] = field(default_factory=dict)
    purgatories: Mapping[str, ShownPurgatory] = field(default_factory=dict)
    age_s: float | None = 0.0


def serve(*shown: Any, port: int = 0, **named: Any) -> PageServer:
    """Show these timers (`Timer`, `AsyncTimer`) and purgatories on a live page, until `close` or the end of a `with`. Where
    it is stands on stderr. What has no name is called by its kind. `port` 0 is any free one of 127.0.0.1.

    TypeError for anything else, and for an `AsyncTimer` outside of its loop. UsageError if the port cannot be had.

    >>> from waterclock import Timer, web
    >>> with web.serve(Timer(), reminders=Timer()) as server:
    ...     server.url.startswith("http://127.0.0.1:")
    True
    """
    program = _Program(_by_name(shown, named))
    console = Console([OwnProcess(COMMAND, program.statistics, program.dials)])
    routes = {
        "/statistics.json": lambda: (JSON, to_json(COMMAND, program.statistics())),
        "/dials.json": lambda: (JSON, to_json(COMMAND, program.dials())),
    }
    server = PageServer(routes, port, console.below, console.streams, "port=0")
    print(f"console at {server.url}/console/", file=sys.stderr, flush=True)
    return server


def _by_name(shown: tuple[Any, ...], named: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(named)
    for each in shown:
        kind = type(each).__name__.lower()
        name, number = kind, 1
        while name in found:
            number += 1
            name = f"{kind} {number}"
        found[name] = each
    return found


class _Program:
    """Rule 1."""

    def __init__(self, shown: Mapping[str, Any]) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        with suppress(RuntimeError):  # nobody has a loop here
            self._loop = asyncio.get_running_loop()
        for name, each in shown.items():
            if not (hasattr(each, "occupancy") and hasattr(each, "tick_s")) and not hasattr(each, "fullest_keys"):
                raise TypeError(f"{name} must be a Timer, an AsyncTimer or a Purgatory, got {each!r}")
            if hasattr(each, "__aenter__") and self._loop is None:
                raise TypeError(f"{name} belongs to an asyncio loop: call serve in a coroutine, got {each!r}")
        self._timers = {name: each for name, each in shown.items() if hasattr(each, "occupancy")}
        self._purgatories = {name: each for name, each in shown.items() if name not in self._timers}
        self._last: dict[str, Any] = {"statistics": ProgramStatistics(), "dials": {}}
        self._clock, self._told_s = SystemClock(), dict[str, float]()

    def statistics(self) -> ProgramStatistics:
        found, is_new = self._asked("statistics", self._counted)
        told_s = self._told_s.get("statistics")
        age_s = 0.0 if is_new else None if told_s is None else round(self._clock.monotonic_s() - told_s, 1)
        return replace(found, age_s=age_s)

    def dials(self) -> dict[str, Dial]:
        return self._asked("dials", lambda: {name: dial_of(each) for name, each in self._timers.items()})[0]

    def _counted(self) -> ProgramStatistics:
        return ProgramStatistics(
            {name: _timer(each.statistics()) for name, each in self._timers.items()},
            {name: _purgatory(each) for name, each in self._purgatories.items()},
        )

    def _asked(self, name: str, make: Callable[[], T]) -> tuple[T, bool]:
        """Rule 1; and whether it is of now. A loop that has ended runs nothing any more: what was known last stays."""
        if self._loop is None:
            return make(), True
        answer: Future[T] = Future()
        is_new = False
        with suppress(TimeoutError, RuntimeError):
            self._loop.call_soon_threadsafe(lambda: answer.set_result(make()))
            self._last[name], is_new = answer.result(BUSY_S), True
            self._told_s[name] = self._clock.monotonic_s()
        last: T = self._last[name]
        return last, is_new


def _timer(record: Any) -> ShownTimer:
    late = record.lateness
    counts = record.pending, record.added, record.fired, record.cancelled, record.failed
    return ShownTimer(*counts, late.p50_s * 1000, late.p99_s * 1000, late.max_s * 1000)


def _purgatory(purgatory: Any) -> ShownPurgatory:
    record = purgatory.statistics()
    fullest = {str(key): count for key, count in purgatory.fullest_keys(FULLEST)}
    return ShownPurgatory(record.delayed, record.completed, record.expired, record.cancelled, fullest)
