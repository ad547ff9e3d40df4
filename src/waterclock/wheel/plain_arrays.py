"""The array wheel in plain Python: what is used where nothing is compiled, and the oracle of the compiled one.

A tick is a row of timers in the order of adding, a heap says which tick is next. Ids, order, errors and bytes are
those of the compiled wheel to the letter; the speed and the memory are not.

    id = generation * 2**32 + index        index: a place that is given again; generation: how often it was

Rule 1: a free index goes on a stack, the last one freed is given next. Only when there is none is a new one made.
Rule 2: what is scheduled for now or before counts as of the tick of now, and waits behind what is due already.
Rule 3: an argument is looked at as a whole before anything changes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from heapq import heapify, heappop, heappush
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

from waterclock.wheel import columns, saved
from waterclock.wheel.bounds import MAX_NOW, MAX_TICK, MAX_TIME, whole
from waterclock.wheel.occupancy import Occupancy, laid_out
from waterclock.wheel.pictures import of_wheel
from waterclock.wheel.statistics import WheelStatistics

WIDTH = (256,)  # buckets of each level of the compiled wheel

_P = ParamSpec("_P")
_R = TypeVar("_R")


def _alone(
    method: Callable[Concatenate[ArrayWheel, _P], _R],
) -> Callable[Concatenate[ArrayWheel, _P], _R]:
    """Let one thread in at a time; a second one gets a `RuntimeError`."""

    @wraps(method)
    def guarded(self: ArrayWheel, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            token = self._door.pop()  # atomic: of two threads one finds the list empty
        except IndexError:
            raise RuntimeError("another thread is inside this ArrayWheel: put a lock around it") from None
        try:
            return method(self, *args, **kwargs)
        finally:
            self._door.append(token)

    return cast("Callable[Concatenate[ArrayWheel, _P], _R]", guarded)


class ArrayWheel:
    """Timers by the million, as ids in arrays; no clock, no thread, no callbacks: `advance` gives back who is due.

    tick: the grain of time, 1 .. 2**61, in any unit the caller likes; start: the time it begins at, in that unit.
    Arrays are NumPy's, of int64; other buffers of 64-bit integers are taken too, and where NumPy is not installed
    what comes out is `array.array("q")`. A call takes all or nothing: an error changes nothing.

    >>> from array import array
    >>> wheel = ArrayWheel(tick=10)
    >>> ids = wheel.schedule(array("q", [25, 40, 5]))
    >>> wheel.cancel(ids[1:2]).tolist(), wheel.next_deadline()
    ([True], 10)
    >>> due, deadlines = wheel.advance(30)
    >>> due.tolist() == [ids[2], ids[0]], deadlines.tolist()
    (True, [5, 25])
    """

    def __repr__(self) -> str:
        return of_wheel(self)

    def __init__(self, tick: int = 1, start: int = 0) -> None:
        self._tick = whole("tick", tick, 1, MAX_TICK)
        self._now = whole("start", start, -MAX_TIME, MAX_TIME)
        self._generations = [0]  # by index; index 0 is never given, so that every id is positive
        self._free: list[int] = []
        self._pending: dict[int, tuple[int, int]] = {}  # id -> deadline, tick
        self._rows: dict[int, OrderedDict[int, None]] = {}  # tick -> ids, in the order of adding
        self._queue: list[int] = []  # a heap of ticks; some have no row any more
        self._base = self._now // self._tick  # for occupancy(), as the compiled wheel counts: a tick
        self._fired = self._cancelled = self._opened = 0
        self._door = [None]

    @property
    def now(self) -> int:
        """The latest `now` handed to `advance`, or `start`."""
        return self._now

    def __len__(self) -> int:
        """How many timers wait."""
        return len(self._pending)

    @_alone
    def schedule(self, deadlines: Any) -> Any:
        """One timer for each deadline; returns their ids, in the same order.

        A deadline that has passed is due at the next `advance`, behind what is due already. `ValueError` when one
        lies beyond 2**62, `TypeError` for what is no row of 64-bit integers; then nothing was scheduled.
        """
        wanted = columns.deadlines(deadlines).tolist()
        for deadline in wanted:
            if not -MAX_TIME <= deadline <= MAX_TIME:
                raise columns.beyond(deadline)
        present = self._now // self._tick
        if not self._pending:
            self._base = present
        ids = []
        for deadline in wanted:
            if self._free:
                index = self._free.pop()
            else:
                index = len(self._generations)
                self._generations.append(0)
            ids.append(self._generations[index] << 32 | index)
            self._put(ids[-1], deadline, present if deadline <= self._now else -(-deadline // self._tick))
        return columns.column(ids)

    @_alone
    def cancel(self, ids: Any) -> Any:
        """Take these out; for each, True if this call cancelled it.

        An id that is not known, that has expired, was cancelled before or stands in `ids` a second time is False.
        """
        done = []
        for name in columns.ids(ids).tolist():
            done.append(name in self._pending)
            if done[-1]:
                self._drop(name)
        self._cancelled += sum(done)
        return columns.truths(done)

    @_alone
    def advance(self, now: int, limit: int | None = None) -> tuple[Any, Any]:
        """Move on to `now` and take out who is due, at most `limit`; returns their ids and deadlines, in order.

        The order is that of ticks, then that of scheduling. What `limit` holds back stays due and comes first
        next time. A `now` before the wheel's does nothing and gives empty arrays.
        """
        now = whole("now", now, -MAX_NOW, MAX_NOW)
        budget = len(self._pending) if limit is None else whole("limit", limit, 0, MAX_NOW)
        ids: list[int] = []
        found: list[int] = []
        if now >= self._now:
            self._now = now
            while len(ids) < budget and (row := self._first_row(now // self._tick)) is not None:
                name = next(iter(row))
                ids.append(name)
                found.append(self._drop(name))
            self._fired += len(ids)
        return columns.column(ids), columns.column(found)

    @_alone
    def next_deadline(self) -> int | None:
        """The least `now` for which `advance(now)` gives back a timer; None when nothing waits.

        That is the earliest deadline rounded up to the tick, or the present `now` where that has passed.
        """
        if self._first_row(MAX_NOW) is None:
            return None
        return max(self._now, self._queue[0] * self._tick)

    @_alone
    def statistics(self) -> WheelStatistics:
        """Counts since the start, as one frozen record."""
        return WheelStatistics(
            now=self._now,
            pending=len(self._pending),
            added=len(self._pending) + self._fired + self._cancelled,
            fired=self._fired,
            cancelled=self._cancelled,
            cascaded=0,
            opened=self._opened,
            levels=1,
            buckets=sum(tick * self._tick > self._now for tick in self._rows),
        )

    @_alone
    def occupancy(self) -> Occupancy:
        """How many timers wait in each bucket of the compiled wheel: a row is a tick, and has no bucket here.

        What is due and held back by a limit stands in the finest level, in the bucket of now. One mapping a level, the
        finest first: occupancy.py.

        >>> from array import array
        >>> wheel = ArrayWheel()
        >>> ids = wheel.schedule(array("q", [7, 7, 300]))
        >>> wheel.occupancy()
        ({7: 2}, {1: 1})
        """
        present = self._now // self._tick - self._base
        ticks = (max(tick - self._base, present) for _, tick in self._pending.values())
        return laid_out(ticks, present, WIDTH)

    @_alone
    def to_bytes(self) -> bytes:
        """All of the wheel; `from_bytes` goes on from there, here or in the compiled wheel. The format: saved.py."""
        present = self._now // self._tick
        pending = [(tick, name) for tick in sorted(self._rows) for name in self._rows[tick]]
        header = saved.Header(
            due=sum(tick <= present for tick, _ in pending),
            pending=len(pending),
            free=len(self._free),
            tick=self._tick,
            now=self._now,
            fired=self._fired,
            cancelled=self._cancelled,
            cascaded=0,
            opened=self._opened,
        )
        content = header.packed() + b"".join(
            (
                saved.packed("q", [self._pending[name][0] for _, name in pending]),
                saved.packed("I", [name % 2**32 for _, name in pending]),
                saved.packed("I", self._free),
                saved.packed("I", self._generations[1:]),
            )
        )
        return content + saved.digest(content)

    @classmethod
    def from_bytes(cls, blob: Any) -> ArrayWheel:
        """The wheel that `to_bytes` was asked of. `ValueError` for bytes that are cut, altered or no wheel's."""
        header, content = saved.opened(blob)
        wheel = cls(header.tick)
        wheel._now = header.now
        wheel._fired = header.fired
        wheel._cancelled = header.cancelled
        wheel._opened = header.opened
        deadlines, indices, wheel._free, generations = saved.columns_of(header, content)
        if (
            sorted(indices + wheel._free) != list(range(1, len(generations) + 1))
            or max(generations, default=0) >= 2**31
        ):
            raise saved.impossible()
        wheel._generations += generations
        present = wheel._base = header.now // header.tick
        for n, (deadline, index) in enumerate(zip(deadlines, indices, strict=True)):
            tick = present if n < header.due else -(-deadline // header.tick)
            if abs(deadline) > MAX_TIME or (deadline > header.now if n < header.due else tick <= present):
                raise saved.impossible()
            wheel._put(generations[index - 1] << 32 | index, deadline, tick)
        return wheel

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayWheel.from_bytes, (self.to_bytes(),)

    def _put(self, name: int, deadline: int, tick: int) -> None:
        self._pending[name] = deadline, tick
        if tick not in self._rows:
            self._rows[tick] = OrderedDict()
            heappush(self._queue, tick)
        self._rows[tick][name] = None

    def _drop(self, name: int) -> int:
        """Take it out, and its index is free; returns the deadline."""
        deadline, tick = self._pending.pop(name)
        row = self._rows[tick]
        del row[name]
        if not row:
            del self._rows[tick]
            if len(self._queue) > 4 * len(self._rows) + 64:  # forget ticks of timers that were cancelled
                self._queue[:] = self._rows
                heapify(self._queue)
        index = name % 2**32
        self._generations[index] = (self._generations[index] + 1) % 2**31
        self._free.append(index)
        return deadline

    def _first_row(self, last: int) -> OrderedDict[int, None] | None:
        """The row of the earliest tick, when that is at most `last`."""
        while self._queue and self._queue[0] not in self._rows:
            heappop(self._queue)
            self._opened += 1
        return self._rows[self._queue[0]] if self._queue and self._queue[0] <= last else None

    def _check(self) -> None:
        """Raise AssertionError when a rule of the structure is broken; for tests."""
        assert sum(map(len, self._rows.values())) == len(self._pending), "a timer is lost or counted twice"
        assert all(self._rows.values()), "an empty row is kept"
        assert set(self._rows) <= set(self._queue), "a tick is not in the queue"
        assert len(self._queue) <= 4 * len(self._rows) + 64, "too many ticks without timers"
        for name, (_, tick) in self._pending.items():
            assert name in self._rows[tick], "a timer is in the wrong row"
            assert self._generations[name % 2**32] == name >> 32, "an id is of another generation"
        indices = [*self._free, *(name % 2**32 for name in self._pending)]
        assert sorted(indices) == list(range(1, len(self._generations))), "an index is lost or given twice"
