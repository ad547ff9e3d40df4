"""What Python gives a user's code is the universe's while one is open: time, chance, and what aiokafka walks.

Functions of Python's own modules are replaced, so `time.time()` and `random.random()` are the universe's wherever they are
called from; a name that was taken out of a module before (`from time import time`), `datetime.now()` and other threads are
not. Everything is put back when the universe is over.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from waterclock.simulation.world import NS, World

READING_NS = 1_000  # what one reading of a clock takes: a loop until some time ends


class OrderedSet(set[Any]):
    """A set that is walked in one order: aiokafka has sets of names, and Python's order of those is another in each process."""

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=_rank))

    def pop(self) -> Any:
        one = next(iter(self))
        self.remove(one)
        return one


def _rank(one: object) -> tuple[str, Any]:
    kind = type(one).__name__
    return kind, one if isinstance(one, str | int | tuple) else hash(one)


def _ordered(name: str) -> Callable[..., Any]:
    plain = getattr(set, name)
    return lambda self, *others: OrderedSet(plain(self, *others))


for _name in ("__or__", "__and__", "__sub__", "__xor__", "__rsub__", "union", "intersection", "difference", "copy"):
    setattr(OrderedSet, _name, _ordered(_name))


class Clocks:
    """`time`'s functions, for the thread that runs the universe."""

    def __init__(self, world: World) -> None:
        self._world, self._thread = world, threading.get_ident()

    def ns(self) -> int:
        world = self._world
        world.clock_ns = max(world.clock_ns, world.now) + READING_NS
        return world.clock_ns  # type: ignore[no-any-return]

    def date_ns(self) -> int:
        return self._world.wall_shift_ms * 1_000_000 + self.ns()  # type: ignore[no-any-return]

    def sleep(self, seconds: float) -> None:
        self._world.sleep(round(seconds * NS))

    def instead(self, real: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
        return lambda *args: (ours if threading.get_ident() == self._thread else real)(*args)


@contextmanager
def stand_ins(world: World) -> Iterator[None]:
    """While it is open, time and chance are those of the universe."""
    clocks, chance = Clocks(world), random.getstate()
    functions = {
        "time": lambda: clocks.date_ns() / NS,
        "time_ns": clocks.date_ns,
        "monotonic": lambda: clocks.ns() / NS,
        "monotonic_ns": clocks.ns,
        "perf_counter": lambda: clocks.ns() / NS,
        "perf_counter_ns": clocks.ns,
        "sleep": lambda seconds: clocks.sleep(seconds) if world.thread is not None else None,
    }
    draw = world.stream("urandom").randbytes
    with ExitStack() as stack:
        for name, ours in functions.items():
            stack.enter_context(patch.object(time, name, clocks.instead(getattr(time, name), ours)))
        stack.enter_context(patch.object(os, "urandom", clocks.instead(os.urandom, draw)))  # uuid.uuid4
        stack.enter_context(patch.object(random, "_urandom", clocks.instead(os.urandom, draw)))  # secrets
        _aiokafka(stack, world)
        random.seed(f"{world.seed}/random")
        try:
            yield
        finally:
            random.setstate(chance)


class Told(logging.Handler):
    """A library's log lines belong to the history."""

    def __init__(self, world: World) -> None:
        super().__init__(logging.INFO)
        self._world = world

    def emit(self, record: logging.LogRecord) -> None:
        thread = self._world.thread
        if thread is not None:
            self._world.log(thread.process.name, record.levelname, record.getMessage())


def _aiokafka(stack: ExitStack, world: World) -> None:
    """Its sets have an order, and its records the universe's date: its compiled part reads a clock of its own."""
    from aiokafka.producer.message_accumulator import BatchBuilder

    plain = BatchBuilder.append

    def append(self: Any, *, timestamp: int | None, **record: Any) -> Any:
        return plain(self, timestamp=int(time.time() * 1000) if timestamp is None else timestamp, **record)

    stack.enter_context(patch.object(BatchBuilder, "append", append))
    log = logging.getLogger("aiokafka")
    stack.enter_context(patch.multiple(log, handlers=[Told(world)], propagate=False, level=logging.INFO))
    for name, module in sorted(sys.modules.items()):
        if name.startswith("aiokafka."):
            stack.enter_context(patch.multiple(module, create=True, set=OrderedSet, frozenset=OrderedSet))
