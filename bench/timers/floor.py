"""What a verb of the compiled wheel cannot be quicker than, called from Python: the parts of it that are not the wheel.

    the loop              Python's loop over the delays or handles, and nothing else
    an empty method       a compiled method that is called and looks at nothing (`len` of an empty wheel)
    an object kept        a call that makes an object of 16 bytes, which a list keeps; a handle has 64
    a handle asked        `handle.cancelled()`, handles in random order: a method that reads one word of the handle's line
    asked from C          the same by `map`: no instructions of Python's loop stand between one handle and the next
    a callback from C     what a timer calls here, called so often by a loop in C that looks at nothing else
    a handle dropped      cancelled handles given up by a list that is cleared, in the order of their deadlines
    add, cancel, expire   the wheel's own, in the same rounds

Rule 1: from `COLD` pending on the caches are streamed before each, as for the verbs: then the line of a handle is cold.
Rule 2: parts take turns within each round; a figure is the median over the rounds. Lists are there before.
Rule 3: what is not the wheel's is frozen for the whole round: a collection that walks all modules leaves caches cold.
"""

from __future__ import annotations

import gc
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from itertools import repeat
from statistics import median
from typing import Any, Final

from waterclock.bench.tables import aligned, short
from waterclock.bench.timers import verbs
from waterclock.bench.timers.keepers import HOUR_MS
from waterclock.bench.timers.verbs import Report, _timed, delays_ms
from waterclock.wheel import TimingWheel

PARTS: Final = (
    *("the loop", "an empty method", "an object kept", "add"),
    *("a handle asked", "asked from C", "cancel"),
    *("a callback from C", "a handle dropped", "expire"),
)


def measure(sizes: Sequence[int], rounds: int, report: Report) -> list[dict[str, Any]]:
    """A record for each size: ns by part."""
    found = []
    for size in sizes:
        report(f"the floor under add, cancel and expire, {size:,} pending")
        each = [_round(size, turn) for turn in range(rounds)]
        ns = {part: round(median(one[part] for one in each), 1) for part in PARTS}
        found.append({"pending": size, **ns})
    return found


def _round(size: int, seed: int) -> dict[str, float]:
    times = max(1, verbs.REPEATED // size)
    gc.collect()
    gc.freeze()
    try:
        each = [_once(size, seed) for _ in range(times)]
    finally:
        gc.unfreeze()
    return {part: sum(one[part] for one in each) / times for part in PARTS}


def _once(size: int, seed: int) -> dict[str, float]:
    wheel, delays = TimingWheel(), delays_ms(size, seed)
    handles: list[Any] = [None] * size
    ns = {
        "the loop": _timed(lambda: _go(delays), size),
        "an empty method": _timed(lambda: _call(delays, wheel.__len__), size),
        "an object kept": _timed(lambda: _keep([None] * size, delays, object), size),
        "add": _timed(lambda: _add(handles, delays, wheel.add), size),
    }
    random.Random(seed).shuffle(handles)
    asked = type(handles[0]).cancelled
    ns["a handle asked"] = _timed(lambda: _ask(handles), size)
    ns["asked from C"] = _timed(lambda: _drain(map(asked, handles)), size)
    ns["cancel"] = _timed(lambda: _cancel(handles), size)
    handles.sort(key=lambda handle: handle.deadline)
    ns["a handle dropped"] = _timed(handles.clear, size)
    return ns | _expired(delays)


def _expired(delays: Sequence[int]) -> dict[str, float]:
    """A callback takes one ticket out of a deque, in C, as in verbs.py."""
    size, last = len(delays), object()
    wheel, tickets = TimingWheel(), deque[Any](repeat(None, size))
    _add([None] * size, delays, wheel.add, tickets.popleft)
    ns = {"expire": _timed(lambda: wheel.advance(2 * HOUR_MS), size)}
    tickets.extend([*repeat(None, size), last])
    ns["a callback from C"] = _timed(lambda: _drain(iter(tickets.popleft, last)), size)
    return ns


def _go(delays: Sequence[int]) -> None:
    for _ in delays:
        pass


def _call(delays: Sequence[int], method: Callable[[], Any]) -> None:
    for _ in delays:
        method()


def _keep(kept: list[Any], delays: Sequence[int], make: Callable[[], Any]) -> None:
    for place, _ in enumerate(delays):
        kept[place] = make()


def _nothing() -> None:
    pass


def _add(
    handles: list[Any], delays: Sequence[int], add: Callable[..., Any], callback: Callable[[], Any] = _nothing
) -> None:
    for place, delay in enumerate(delays):
        handles[place] = add(delay, callback)


def _drain(things: Iterator[Any]) -> None:
    """All of them, in C."""
    deque(things, maxlen=0)


def _ask(handles: Sequence[Any]) -> None:
    for handle in handles:
        handle.cancelled()


def _cancel(handles: Sequence[Any]) -> None:
    for handle in handles:
        handle.cancel()


def table(records: Sequence[dict[str, Any]]) -> str:
    """ns by part, sizes across."""
    head = ["the floor, CPU ns", *(short(r["pending"]) for r in records)]
    return aligned(head, [[part, *(f"{r[part]:.0f}" for r in records)] for part in PARTS])
