"""`Debounce`: many calls for one key, and one when it has become quiet.

    called at 0, 1, 2 and 3 with quiet_s = 2       runs at 5, with the arguments of 3
    and with most_s = 4                            runs at 4, with the arguments of 3

Rule 1: it runs once `quiet_s` have passed since the latest call for a key, with that call's arguments. Keys know nothing of
    each other.
Rule 2: with `most_s` it runs that long after the first call that it answers at the latest, so that a key that is never
    quiet has its turn too.
Rule 3: it runs where the timer's callbacks run, and what it raises goes where their errors go. A call that comes while it
    runs begins anew.
Rule 4: a key that does not wait costs nothing. A call is O(1) and asks the wheel once in `quiet_s`: expiring_map.py.
Rule 5: threads are the timer's; after its `close()` a key's first call raises `TimerClosed`, and nothing runs any more.
Rule 6: a coroutine function is a task under an `AsyncTimer`; under a `Timer` it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from waterclock.keyed.expiring_map import ExpiringMap
from waterclock.timer.drive import driver
from waterclock.timer.forking import make_new_in_child
from waterclock.timer.units import nanoseconds

if TYPE_CHECKING:
    from waterclock.timer import AsyncTimer, Timer

K = TypeVar("K", bound=Hashable)
P = ParamSpec("P")


class Debounce(Generic[K, P]):
    """Call `fn(key, *args)` when a key was not called for `quiet_s` seconds; the rules stand in debounce.py.

    timer: a `Timer` or an `AsyncTimer`. most_s: the longest that a key is put off; None for any time. `ValueError` for a
    time that is no number above zero.

    >>> from waterclock import ManualClock, Timer
    >>> timer = Timer(clock=ManualClock())
    >>> save = Debounce(timer, 2, print)
    >>> save("a.txt", "first"), timer.advance(1), save("a.txt", "second"), timer.advance(2)
    a.txt second
    (None, 0, None, 2)
    """

    __slots__ = ("__weakref__", "_fn", "_most_ns", "_quiet_s", "_timer", "_waiting")

    def __init__(
        self,
        timer: Timer | AsyncTimer,
        quiet_s: float,
        fn: Callable[Concatenate[K, P], object],
        *,
        most_s: float | None = None,
    ) -> None:
        driver(timer).check(fn)
        nanoseconds("quiet_s", quiet_s, least=1)
        self._timer = timer
        self._quiet_s = quiet_s
        self._most_ns = None if most_s is None else nanoseconds("most_s", most_s, least=1)
        self._fn = fn
        self._after_fork()
        make_new_in_child(self)

    def _after_fork(self) -> None:
        """Begin without a key; in a forked child what waits is the parent's (timer/forking.py)."""
        self._waiting: ExpiringMap[K, tuple[Any, Any, int]] = ExpiringMap(
            self._timer, self._quiet_s, on_evict=self._run
        )

    def __call__(self, key: K, *args: P.args, **kwargs: P.kwargs) -> None:
        if self._most_ns is None:
            self._waiting[key] = args, kwargs, 0
            return
        waiting, now_ns = self._waiting, self._timer.now_ns()
        with waiting._lock:  # looking and setting are one step
            before = waiting.get(key)
            last_ns = now_ns + self._most_ns if before is None else before[2]
            left_s = max(last_ns - now_ns, 1) / 1e9
            waiting.set(key, (args, kwargs, last_ns), min(self._quiet_s, left_s))

    def flush(self, key: K) -> bool:
        """Run it now, here, where the key waits, and raise what it raises; False if it does not."""
        call = self._waiting.pop(key, None)
        if call is None:
            return False
        self._timer.returned.take(self._run(key, call, "flushed"))
        return True

    def cancel(self, key: K) -> bool:
        """Forget what a key waits for; False if it does not wait."""
        return self._waiting.pop(key, None) is not None

    def clear(self) -> None:
        """Forget what all keys wait for."""
        self._waiting.clear()

    def when(self, key: K) -> float:
        """The moment it runs at if it is not called until then, in seconds of `timer.time()`; `KeyError` for none."""
        return self._waiting.when(key)

    def __contains__(self, key: object) -> bool:
        return key in self._waiting

    def __len__(self) -> int:
        """How many keys wait."""
        return len(self._waiting)

    def __bool__(self) -> bool:
        return True

    def _run(self, key: K, call: tuple[Any, Any, int], why: str) -> object:
        return self._fn(key, *call[0], **call[1])

    def __repr__(self) -> str:
        return f"<Debounce, {len(self)} keys waiting, quiet={float(self._quiet_s)}, callback={self._fn!r}>"

    def __reduce__(self) -> Any:
        raise TypeError("a Debounce is neither copied nor pickled: what waits is called once")
