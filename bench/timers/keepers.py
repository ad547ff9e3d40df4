"""Who keeps timers: one class a contender, all behind the same verbs. This file needs nothing from outside.

Rule 1: a contender is used as its own documentation shows; what the loop and the call cost is part of a verb.
Rule 2: a verb takes all timers at once, so that a contender for arrays can be itself.
Rule 3: delays are whole milliseconds. The clock stands until `expire` turns it past every deadline.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import sched
from collections.abc import Callable, Sequence
from functools import partial
from itertools import count
from typing import Any

from waterclock.wheel import TimingWheel, reference

HOUR_MS = 3_600_000
Callback = Callable[[], Any]


class Keeper:
    """A contender whose handles have `cancel()`; the others replace what they do differently."""

    by_array = False  # whether timers come and go as arrays of ids, without handles
    checked = 20_000  # at most so many timers in one check of the order
    step_ms = 1  # the check rounds delays up to this: what the contender can tell apart
    repeats = 100  # how often at most a small size is repeated within a round

    def __init__(self, callback: Callback) -> None:
        self.callback = callback

    add: Callable[[Any, Callback], Any]

    def prepare(self, delays_ms: Sequence[int]) -> Sequence[Any]:
        """The delays as this contender wants them; not measured."""
        return delays_ms

    def add_all(self, delays: Sequence[Any]) -> Any:
        add, callback = self.add, self.callback
        return [add(delay, callback) for delay in delays]

    def cancel(self, handle: Any) -> None:
        """One, for the slowest of many; `cancel_all` is what is measured."""
        handle.cancel()

    def cancel_all(self, handles: Any) -> None:
        for handle in handles:
            handle.cancel()

    def churn(self, handles: Any, delays: Sequence[Any]) -> None:
        """Cancel one and add one, so many times as there are delays."""
        add, callback = self.add, self.callback
        for place, delay in enumerate(delays):
            handles[place].cancel()
            handles[place] = add(delay, callback)

    def wait(self) -> None:
        """Before `expire`, not measured: for a contender whose clock cannot be turned."""

    def expire(self) -> None:
        """One jump past the last deadline; everything that waits runs."""
        raise NotImplementedError

    def ran(self) -> int:
        """How many the last `expire` gave back instead of calling; none, where callbacks are called."""
        return 0

    def close(self) -> None:
        """Nothing may be left."""

    def shuffle(self, handles: Any, seed: int) -> None:
        random.Random(seed).shuffle(handles)

    def order(self, delays_ms: Sequence[int], cancelled: Sequence[int]) -> list[int]:
        """Which timers ran, by number, in the order they ran; for the check beside the speed."""
        ran: list[int] = []
        delays = self.prepare(delays_ms)
        handles = [self.add(delay, partial(ran.append, number)) for number, delay in enumerate(delays)]
        self.cancel_all([handles[number] for number in cancelled])
        self.wait()
        self.expire()
        return ran


class Wheel(Keeper):
    """waterclock's wheel, whichever `waterclock.wheel` gives: the compiled one where it was built."""

    wheel: Any

    def __init__(self, callback: Callback) -> None:
        super().__init__(callback)
        self.wheel = self.make()
        self.add = self.wheel.add

    def make(self) -> Any:
        return TimingWheel()

    def expire(self) -> None:
        self.wheel.advance(self.wheel.now + 2 * HOUR_MS)

    def close(self) -> None:
        assert len(self.wheel) == 0


class ReferenceWheel(Wheel):
    """The wheel in plain Python."""

    def make(self) -> Any:
        return reference.TimingWheel()


class Asyncio(Keeper):
    """`loop.call_later` in a loop whose clock counts ms and stands until it is turned; its selector included."""

    def __init__(self, callback: Callback) -> None:
        super().__init__(callback)
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
    """One timer in a heap; cancelled, it stays there without its callback."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callback | None) -> None:
        self.callback = callback

    def cancel(self) -> None:
        self.callback = None


class Heap(Keeper):
    """heapq with lazy deletion: a cancelled entry stays until its time comes."""

    def __init__(self, callback: Callback) -> None:
        super().__init__(callback)
        self.now = 0
        self.entries: list[tuple[int, int, HeapEntry]] = []
        self.number = count()
        self.add = self._add

    def _add(self, delay: int, callback: Callback) -> HeapEntry:
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


class Sched(Keeper):
    """The standard library's `sched`: a heap, and a cancel that searches it."""

    repeats = 5

    def __init__(self, callback: Callback) -> None:
        super().__init__(callback)
        self.now = 0
        self.scheduler = sched.scheduler(lambda: self.now, lambda delay: None)
        self.add = lambda delay, action: self.scheduler.enter(delay, 0, action)

    def add_all(self, delays: Sequence[int]) -> Any:
        enter, callback = self.scheduler.enter, self.callback
        return [enter(delay, 0, callback) for delay in delays]

    def cancel(self, handle: Any) -> None:
        self.scheduler.cancel(handle)

    def cancel_all(self, handles: Any) -> None:
        cancel = self.scheduler.cancel
        for handle in handles:
            cancel(handle)

    def churn(self, handles: Any, delays: Sequence[int]) -> None:
        cancel, enter, callback = self.scheduler.cancel, self.scheduler.enter, self.callback
        for place, delay in enumerate(delays):
            cancel(handles[place])
            handles[place] = enter(delay, 0, callback)

    def expire(self) -> None:
        self.now += 2 * HOUR_MS
        self.scheduler.run(blocking=False)

    def close(self) -> None:
        assert self.scheduler.empty()
