"""`Throttle`: at most one run in so long for each key.

    called at 0, 1, 2 and 9 with interval_s = 5, meanwhile="last"      runs at 0, at 5 with the arguments of 2, and at 10
                                                                       with those of 9
    and with meanwhile="drop"                                          runs at 0 and at 9

Rule 1: two runs of a key begin `interval_s` apart at least. Keys know nothing of each other.
Rule 2: the first call after a rest runs at once, in the caller, which gets what it raises.
Rule 3: of those that come within the interval the latest runs at its end ("last"), or none does ("drop").
Rule 4: what runs at the end of an interval runs where the timer's callbacks run, and its errors go where theirs go.
Rule 5: a key that rested for an interval costs nothing. A call is O(1).
Rule 6: threads are the timer's; after its `close()` a key's first call raises `TimerClosed` and is not run, and what was
    put off does not come.
Rule 7: a coroutine function is a task under an `AsyncTimer`, where it runs at once, too, and its errors go where the
    timer's go; under a `Timer` it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from threading import RLock
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar

from waterclock.errors import TimerClosed
from waterclock.timer.drive import driver
from waterclock.timer.driver import nothing
from waterclock.timer.forking import make_new_in_child
from waterclock.timer.units import nanoseconds

if TYPE_CHECKING:
    from waterclock.timer import AsyncTimer, Handle, Timer
    from waterclock.timer.driver import Driver

K = TypeVar("K", bound=Hashable)
P = ParamSpec("P")


class Interval:
    """Of one key: until when it lasts, and the call that was put off to its end."""

    __slots__ = ("due_ns", "handle", "key", "later", "of")

    def __init__(self, of: Throttle[Any, Any], key: Any, due_ns: int) -> None:
        self.of = of
        self.key = key
        self.due_ns = due_ns
        self.later: tuple[Any, Any] | None = None
        self.handle: Handle = of._timer.add_and_look(due_ns, _end, self)


class Throttle(Generic[K, P]):
    """Call `fn(key, *args)`, but once in `interval_s` seconds for each key; the rules stand in throttle.py.

    timer: a `Timer` or an `AsyncTimer`. meanwhile: what becomes of calls within the interval, "last" or "drop".
    `ValueError` for a time that is no number above zero or another `meanwhile`.

    >>> from waterclock import ManualClock, Timer
    >>> timer = Timer(clock=ManualClock())
    >>> report = Throttle(timer, 5, print)
    >>> report("disk", "90 %"), report("disk", "91 %"), report("disk", "92 %"), timer.advance(5)
    disk 90 %
    disk 92 %
    (True, False, False, 1)
    """

    __slots__ = ("__weakref__", "_fn", "_interval_ns", "_intervals", "_keeps", "_lock", "_timer")

    def __init__(
        self,
        timer: Timer | AsyncTimer,
        interval_s: float,
        fn: Callable[Concatenate[K, P], object],
        *,
        meanwhile: Literal["last", "drop"] = "last",
    ) -> None:
        if meanwhile not in ("last", "drop"):
            raise ValueError(f"meanwhile must be 'last' or 'drop', got {meanwhile!r}")
        self._timer: Driver = driver(timer)
        self._timer.check(fn)
        self._interval_ns = nanoseconds("interval_s", interval_s, least=1)
        self._fn = fn
        self._keeps = meanwhile == "last"
        self._after_fork()
        make_new_in_child(self)

    def _after_fork(self) -> None:
        """Begin without a key; in a forked child what was put off is the parent's (timer/forking.py)."""
        self._intervals: dict[K, Interval] = {}
        self._lock = RLock()

    def __call__(self, key: K, *args: P.args, **kwargs: P.kwargs) -> bool:
        """True if it ran, here; False if it was put off, or dropped."""
        before = None
        with self._lock:
            interval, now_ns = self._intervals.get(key), self._timer.now_ns()
            if interval is not None and (interval.due_ns > now_ns or interval.later is not None):
                if self._keeps:
                    before, interval.later = interval.later, (args, kwargs)  # let go of when the lock is free
                return False
            new = Interval(self, key, now_ns + self._interval_ns)
            if interval is not None:
                interval.handle.cancel()  # it is over, and its timer late
            self._intervals[key] = new
        del before
        self._timer.returned.take(self._fn(key, *args, **kwargs))
        return True

    def cancel(self, key: K) -> bool:
        """Forget what was put off for a key, whose interval goes on; False if nothing was."""
        with self._lock:
            interval = self._intervals.get(key)
            if interval is None:
                return False
            later, interval.later = interval.later, None
        return later is not None

    def clear(self) -> None:
        """Forget all keys: what was put off, and that they ran."""
        with self._lock:
            intervals, self._intervals = self._intervals, {}
            for interval in intervals.values():
                interval.handle.cancel()
        self._timer.left()

    def __len__(self) -> int:
        """How many keys are within their interval."""
        return len(self._intervals)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"<Throttle, {len(self)} keys, interval={self._interval_ns / 1e9}, callback={self._fn!r}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Throttle is neither copied nor pickled: what was put off is called once")


def _end(interval: Interval) -> None:
    """An interval is over: another one begins with what was put off, or none."""
    of, key = interval.of, interval.key
    with of._lock:
        if of._intervals.get(key) is not interval:
            return
        later, interval.later = interval.later, None
        del of._intervals[key]
        if later is None:
            return
        try:
            of._intervals[key] = Interval(of, key, of._timer.now_ns() + of._interval_ns)
        except TimerClosed:
            return
    of._timer.call(_run, (of._fn, key, later), nothing)


def _run(fn: Callable[..., object], key: Any, call: tuple[Any, Any]) -> object:
    return fn(key, *call[0], **call[1])
