"""What Python gives to a user's code is the universe's while one is open: time, chance, and what aiokafka walks.

Functions of Python's own modules are replaced, so `time.time()`, `random.random()` and `uuid.uuid4()` are the universe's
wherever they are called from. Not so `datetime.now()`, what was taken out of a module before (`from time import time`),
and other threads.
"""

from __future__ import annotations

import logging
import os
import random
import sys
import threading
import time  # noqa: TID251 the one place where it is replaced
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from waterclock.simulation.user_loop import UserLoop
from waterclock.simulation.world import MS, NS, World

READING_NS = 1_000  # what one reading of a clock takes: who waits for a moment by reading it comes there


class OrderedSet(set[Any]):
    """A set that is walked in one order: Python's own order of names is another in each process."""

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=_rank))

    def pop(self) -> Any:
        one = next(iter(self))
        self.remove(one)
        return one


def _rank(one: object) -> tuple[str, Any]:
    return type(one).__name__, one if isinstance(one, str | int | tuple) else hash(one)


def _ordered(plain: Callable[..., set[Any]]) -> Callable[..., OrderedSet]:
    return lambda self, *others: OrderedSet(plain(self, *others))


for _name in ("__or__", "__and__", "__sub__", "__xor__", "__rsub__", "union", "intersection", "difference", "copy"):
    setattr(OrderedSet, _name, _ordered(getattr(set, _name)))


def _functions(world: World) -> dict[str, Callable[..., Any]]:
    """Of `time`, as the universe has them."""

    def ns() -> int:
        now = max(world.clock_ns, world.now) + READING_NS
        world.clock_ns = now
        return now

    def date_ns() -> int:
        return ns() + world.wall_shift_ms * MS

    def sleep(seconds: float) -> None:
        if world.thread is not None:
            world.sleep(round(seconds * NS))

    whole = {"time": date_ns, "monotonic": ns, "perf_counter": ns}
    parts = {name: lambda read=read: read() / NS for name, read in whole.items()}
    return {"sleep": sleep, **parts, **{f"{name}_ns": read for name, read in whole.items()}}


@contextmanager
def stand_ins(world: World) -> Iterator[None]:
    """While it is open, in this thread. Afterwards all is as it was."""
    here, chance, draw = threading.get_ident(), random.getstate(), world.stream("urandom").randbytes

    def put(where: Any, name: str, ours: Callable[..., Any]) -> None:
        real = getattr(where, name)
        both = lambda *args: (ours if threading.get_ident() == here else real)(*args)  # noqa: E731
        stack.enter_context(patch.object(where, name, both))

    with ExitStack() as stack:
        stack.callback(random.setstate, chance)
        random.seed(f"{world.seed}/random")
        for name, ours in _functions(world).items():
            put(time, name, ours)
        put(os, "urandom", draw)  # uuid.uuid4
        put(random, "_urandom", draw)  # secrets
        _aiokafka(stack, world)
        yield


def _aiokafka(stack: ExitStack, world: World) -> None:
    """Its sets have an order, and its records the universe's date: its compiled part reads a clock of its own."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.conn import AIOKafkaConnection
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from aiokafka.producer.message_accumulator import BatchBuilder

    plain = BatchBuilder.append

    def append(self: Any, *, timestamp: int | None, **record: Any) -> Any:
        return plain(self, timestamp=int(time.time() * 1000) if timestamp is None else timestamp, **record)

    def tell(record: logging.LogRecord) -> None:
        if world.thread is not None:
            world.log(world.thread.process.name, record.levelname, record.getMessage())

    stack.enter_context(patch.object(BatchBuilder, "append", append))
    for kind in (AIOKafkaConnection, AIOKafkaConsumer, AIOKafkaProducer):
        _complain_of_real_ones(kind)
    # what it counts and keeps in classes would go on from one universe to the next
    stack.enter_context(patch.object(AIOKafkaProducer, "_PRODUCER_CLIENT_ID_SEQUENCE", 0, create=True))
    stack.enter_context(patch.multiple(StickyPartitionAssignor, member_assignment=None, generation=-1))
    for name, module in sorted(sys.modules.items()):
        if name.startswith("aiokafka."):
            stack.enter_context(patch.multiple(module, create=True, set=OrderedSet, frozenset=OrderedSet))
    for name, logger in sorted(logging.root.manager.loggerDict.items()):
        if name.startswith("aiokafka") and isinstance(logger, logging.Logger):  # its lines are the history's
            stack.enter_context(patch.multiple(logger, handle=tell, level=logging.INFO))


def _complain_of_real_ones(kind: Any) -> None:
    """Nobody closes what was killed, so it does not complain of that, even if it is freed long after its universe."""
    if not hasattr(kind, "complains"):
        kind.complains = kind.__del__
        kind.__del__ = lambda self: isinstance(getattr(self, "_loop", None), UserLoop) or self.complains()
