# cython: language_level=3, annotation_typing=False, binding=False, auto_pickle=False, nonecheck=True
"""Delayed operations: each waits for a key or a deadline, whichever comes first, and is over once.

A write waits until two replicas hold it; a long poll waits until there is enough to read. Each is an
operation: a question (`try_complete`), a deed (`on_complete`), a timeout. It is watched under the keys whose
change may answer the question. Who changes something calls `check_and_complete(key)`, and every operation
watched there is asked again.

    state      leaves it by                                            then
    waiting    try_complete says True, force_complete()                over, "completed"
               the timeout                                             over, "expired"
               cancel_for_key(), close(), a cancelled wait()           over, "cancelled"
    over       -                                                       it is in no watch list and holds no callable

Rule 1: an operation's state, the watch lists and the counts change together, under the purgatory's lock. So an
    operation that is over is in no list, at no moment, and `watched` is exact.
Rule 2: no callable of the user runs under that lock. (A key's `__hash__` and `__eq__` do: keys are values.)
Rule 3: nobody waits for an operation's own lock. Who finds it held by another thread leaves word and goes on.

No lost wake-up (rule 3, told in threads A and B; test_a_trigger_during_a_try_is_tried_by_who_holds_the_lock plays it):

    A  check_and_complete("k") takes the operation's lock and asks: not yet
    B  makes the condition true, calls check_and_complete("k"), and finds the lock held
       by A. It writes down "again" and returns 0.
    A  is done asking and wants to let go of the lock. It reads "again", and asks once more.

B's word and A's letting go are both steps under the purgatory's lock, so one comes first. B first: A reads the
word. A first: B finds the lock free, takes it and asks itself. In neither order the trigger is lost, and B never
waits for A, however long A's question takes; so two threads that trigger each other's operations cannot lock
each other out. The same holds for the first try against the first trigger: see `try_complete_else_watch`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Hashable, Iterable
from math import isfinite
from threading import RLock, get_ident
from types import SimpleNamespace
from typing import Any, Literal, Protocol

from waterclock.errors import PurgatoryClosed
from waterclock.purgatory.records import PurgatoryStatistics

Outcome = Literal["completed", "expired", "cancelled"]
COMPLETED: Outcome = "completed"
EXPIRED: Outcome = "expired"
CANCELLED: Outcome = "cancelled"

SPARSE = 8  # a watch list that once was this many times longer is copied, for a dict keeps its size


class Timer(Protocol):
    """What a purgatory needs of a timer: `Timer` and `AsyncTimer` have it."""

    def call_later(self, delay_s: float, fn: Callable[..., Any], /, *args: Any) -> Any: ...


class DelayedOperation:
    """Something that waits: `try_complete` asks whether it is over, `on_complete` runs once when it is.

    Each callable gets the operation as its one argument. `timeout_s` is in seconds: None waits for ever, zero or
    less expires at the timer's next turn. `on_expire` runs after `on_complete`, on a timeout only. `ValueError`
    for a timeout that is not finite, `TypeError` for what cannot be called or is no number.

    >>> op = DelayedOperation(lambda op: False, lambda op: print("over:", op.outcome), timeout_s=None)
    >>> op.completed, op.outcome, op.force_complete(), op.force_complete()
    over: completed
    (False, None, True, False)
    """

    __slots__ = (
        "__weakref__",
        "_again",
        "_credit",
        "_holder",
        "_keys",
        "_on_complete",
        "_on_expire",
        "_outcome",
        "_purgatory",
        "_timeout",
        "_timeout_s",
        "_try_complete",
    )

    def __init__(
        self,
        try_complete: Callable[[DelayedOperation], Any],
        on_complete: Callable[[DelayedOperation], Any],
        timeout_s: float | None,
        on_expire: Callable[[DelayedOperation], Any] | None = None,
    ) -> None:
        if not callable(try_complete) or not callable(on_complete) or not (on_expire is None or callable(on_expire)):
            raise _not_callable(try_complete=try_complete, on_complete=on_complete, on_expire=on_expire)
        if timeout_s is not None and not isfinite(timeout_s):
            raise ValueError(f"timeout_s must be a finite number of seconds, or None to wait for ever, got {timeout_s}")
        self._try_complete: Any = try_complete
        self._on_complete: Any = on_complete
        self._on_expire: Any = on_expire
        self._timeout_s = timeout_s
        self._timeout: Any = None  # the timer's handle
        self._outcome: Outcome | None = None
        self._purgatory = _NOWHERE
        self._keys: tuple[Hashable, ...] = ()
        self._holder = 0  # its own lock: the thread that asks now, or 0
        self._again = False  # a word for the holder: a trigger came while it asked
        self._credit = False  # the holder's thread ended it, and has not counted it yet

    @property
    def outcome(self) -> Outcome | None:
        """None while it waits, then "completed", "expired" or "cancelled" for good."""
        return self._outcome

    @property
    def completed(self) -> bool:
        """Whether it is over, whatever the outcome. True already inside `on_complete`."""
        return self._outcome is not None

    @property
    def timeout_s(self) -> float | None:
        """The seconds it was given, counted from when it is watched; None for ever."""
        return self._timeout_s

    def force_complete(self) -> bool:
        """End it as "completed", whatever `try_complete` would say. True for exactly one caller.

        It works before the operation was ever handed to a purgatory, too.
        """
        purgatory = self._purgatory
        return purgatory._end(self, COMPLETED) or (
            self._purgatory is not purgatory and self._purgatory._end(self, COMPLETED)
        )

    def __repr__(self) -> str:
        return f"<DelayedOperation {self._outcome or 'waiting'}, timeout_s={self._timeout_s}>"


class WatchList:
    """The operations watched under one key, in the order they came; a dict used as an ordered set."""

    __slots__ = ("longest", "operations")

    def __init__(self) -> None:
        self.operations: dict[DelayedOperation, None] = {}
        self.longest = 64

    def add(self, op: DelayedOperation) -> None:
        self.operations[op] = None
        if len(self.operations) > self.longest:
            self.longest = len(self.operations)

    def remove(self, op: DelayedOperation) -> int:
        """Take one out; how many are left."""
        del self.operations[op]
        left = len(self.operations)
        if left * SPARSE < self.longest and self.longest > 64:
            self.operations = dict(self.operations)
            self.longest = max(64, left)
        return left


class Purgatory:
    """Where delayed operations wait, watched by key, each with a timeout of `timer` (a `Timer` or `AsyncTimer`).

    `name` stands in its errors. An exception of a callable goes to `on_error(error, op)`, without one to
    `sys.unraisablehook`; it stops no other operation. Every method may be called from any thread that the timer
    may be called from.

    >>> from waterclock import ManualClock, Timer
    >>> acks = []
    >>> with Timer(clock=ManualClock()) as timer:
    ...     purgatory = Purgatory("produce", timer)
    ...     op = DelayedOperation(lambda op: len(acks) == 2, lambda op: print("over:", op.outcome), timeout_s=1.5)
    ...     print(purgatory.try_complete_else_watch(op, ["orders-0"]))
    ...     acks += ["b1", "b2"]
    ...     print(purgatory.check_and_complete("orders-0"))
    False
    over: completed
    1
    """

    def __init__(
        self, name: str, timer: Timer, on_error: Callable[[Exception, DelayedOperation], Any] | None = None
    ) -> None:
        self._name = name
        self._timer = timer
        self._on_error = on_error
        self._lock = RLock()  # re-entrant: the garbage collector may run a user's __del__ in the middle of a step
        self._lists: dict[Hashable, WatchList] = {}
        self._closed = False
        self._watched = self._delayed = self._completed = self._expired = self._cancelled = 0

    @property
    def name(self) -> str:
        """What it was called."""
        return self._name

    def try_complete_else_watch(self, op: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Ask the operation once; if it is not over, watch it under every one of `keys` and ask once more.

        True: it is over already. False: it waits, and its timeout runs from now. `ValueError` without a key, or
        for an operation used before; `PurgatoryClosed` after `close()`. The timer's errors (`TimerClosed`,
        `TimerFull`) are raised too, and the operation then waits nowhere and can be used again.

        1. Try, under the operation's lock. Most are over here and cost no list.
        2. Watch it under every key. A trigger from now on finds it.
        3. Try again: for what came after 1 and found it in no list yet.
        4. Let go of the lock. A trigger that came during 3 left word: then try once more.
        5. Start the timeout.
        """
        distinct = _distinct(keys)
        if not self._take(op):
            return True
        try:
            if not self._try(op):  # 1
                self._watch(op, distinct)  # 2
                self._try(op)  # 3
            if self._let_go(op, 0):  # 4
                self._attempt(op)
            if op._outcome is None and op._timeout_s is not None:
                self._start_timeout(op)  # 5
        except BaseException as error:
            if self._withdraw(op) or not isinstance(error, Exception):
                raise
        return op._outcome is not None

    def check_and_complete(self, key: Hashable) -> int:
        """Something about `key` changed: ask every operation watched there. How many this call completed.

        Operations are asked in the order they came. One that another thread is asking right now is asked again by
        that thread, and is not counted here.
        """
        completed = 0
        for op in self._watchers(key):
            completed += self._attempt(op)
        return completed

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """End every operation watched under `key` as "cancelled", under all its keys; these operations."""
        return [op for op in self._watchers(key) if self._end(op, CANCELLED)]

    async def wait(
        self, keys: Iterable[Hashable], predicate: Callable[[], Any], timeout_s: float | None
    ) -> bool:
        """True once `predicate()` holds; it is asked at first, and at each trigger of one of `keys`.

        False when `timeout_s` was over first, or when the wait was ended by `cancel_for_key` or `close`. A task
        that is cancelled while it waits leaves every watch list. Errors as for `try_complete_else_watch`.
        """
        from waterclock.purgatory.waiting import Waker  # asyncio: for those only who wait in it

        waker = Waker()
        op = DelayedOperation(lambda op: predicate(), waker.wake, timeout_s)
        try:
            if not self.try_complete_else_watch(op, keys):
                await waker.woken
        finally:
            self._end(op, CANCELLED)  # when the task was cancelled; else it is over
        return op._outcome is COMPLETED

    def watched_for(self, key: Hashable) -> int:
        """How many operations wait under `key` now."""
        with self._lock:
            watch_list = self._lists.get(key)
            return 0 if watch_list is None else len(watch_list.operations)

    def statistics(self) -> PurgatoryStatistics:
        """Counts of this moment, consistent with each other, as one frozen record."""
        with self._lock:
            return PurgatoryStatistics(
                watched=self._watched,
                delayed=self._delayed,
                completed=self._completed,
                expired=self._expired,
                cancelled=self._cancelled,
            )

    def close(self) -> list[DelayedOperation]:
        """End everything that waits as "cancelled", and return it; a second time an empty list.

        Afterwards `try_complete_else_watch` raises `PurgatoryClosed`. The timer is left alone: it may serve others.
        """
        with self._lock:
            self._closed = True
            waiting: dict[DelayedOperation, None] = {}
            for watch_list in self._lists.values():
                waiting.update(watch_list.operations)
        return [op for op in list(waiting) if self._end(op, CANCELLED)]

    # Steps under the lock

    def _take(self, op: DelayedOperation) -> bool:
        """Take in a new operation and hold its lock; False when somebody completed it before it came here."""
        if not isinstance(op, DelayedOperation):
            raise TypeError(f"op must be a DelayedOperation, got {op!r}")
        with _NOWHERE._lock:
            if self._closed:
                raise self._is_closed()
            if op._purgatory is not _NOWHERE:
                raise ValueError(f"op is used once, and was handed to a purgatory before: {op!r}; make a new one")
            op._purgatory = self
            op._holder = get_ident()
            return op._outcome is None

    def _watch(self, op: DelayedOperation, keys: tuple[Hashable, ...]) -> None:
        """Put it into the list of every key, unless it is over by now."""
        with self._lock:
            if self._closed:
                raise self._is_closed()
            if op._outcome is not None:
                return
            op._keys = keys
            for key in keys:
                watch_list = self._lists.get(key)
                if watch_list is None:
                    watch_list = self._lists[key] = WatchList()
                watch_list.add(op)
            self._watched += len(keys)
            self._delayed += 1

    def _unwatch(self, op: DelayedOperation) -> None:
        """Take it out of the list of every key; a list without operations goes."""
        for key in op._keys:
            watch_list = self._lists[key]
            if not watch_list.remove(op):
                del self._lists[key]
        if op._keys:
            self._watched -= len(op._keys)
            self._delayed -= 1
        op._keys = ()

    def _end(self, op: DelayedOperation, outcome: Outcome) -> bool:
        """The one way to be over: True for exactly one caller, who then runs the callables."""
        with self._lock:
            if op._outcome is not None or op._purgatory is not self:
                return False
            op._outcome = outcome
            self._unwatch(op)
            self._count(outcome)
            op._credit = outcome is COMPLETED and op._holder != 0 and op._holder == get_ident()
            timeout, on_complete, on_expire = op._timeout, op._on_complete, op._on_expire
            op._try_complete = op._on_complete = op._on_expire = op._timeout = None
        if timeout is not None and outcome is not EXPIRED:
            timeout.cancel()
        self._run(on_complete, op)
        if outcome is EXPIRED and on_expire is not None:
            self._run(on_expire, op)
        return True

    def _count(self, outcome: Outcome) -> None:
        self._completed += outcome is COMPLETED
        self._expired += outcome is EXPIRED
        self._cancelled += outcome is CANCELLED

    def _watchers(self, key: Hashable) -> list[DelayedOperation]:
        with self._lock:
            watch_list = self._lists.get(key)
            return [] if watch_list is None else list(watch_list.operations)

    def _withdraw(self, op: DelayedOperation) -> bool:
        """Undo a watch that failed half-way, as if it never was; False when somebody ended it meanwhile."""
        with self._lock:
            if op._outcome is not None:
                return False
            self._unwatch(op)
            op._purgatory = _NOWHERE
            op._holder, op._again = 0, False
            return True

    # Trying

    def _attempt(self, op: DelayedOperation) -> bool:
        """A trigger for one operation: ask it, or leave word with who asks it now. True when we completed it."""
        me = get_ident()
        again = True
        done = False
        while again and not done:
            with self._lock:
                if op._outcome is not None:
                    return False
                holder = op._holder
                if holder not in (0, me):
                    op._again = True
                    return False
                op._holder, op._again = me, False
            try:
                done = self._try(op)
            finally:
                again = self._let_go(op, holder)
        return done

    def _let_go(self, op: DelayedOperation, holder: int) -> bool:
        """Give the operation's lock back to who held it before us; whether somebody left word meanwhile."""
        with self._lock:
            op._holder = holder
            return op._again and not holder

    def _try(self, op: DelayedOperation) -> bool:
        """Ask once, holding its lock, and end it if it says so; True when it ended in this thread just now."""
        try_complete = op._try_complete
        if try_complete is None:
            return False
        if self._run(try_complete, op):
            self._end(op, COMPLETED)
        credit, op._credit = op._credit, False
        return credit

    # The timeout, and errors

    def _is_closed(self) -> PurgatoryClosed:
        return PurgatoryClosed(f"the purgatory {self._name!r} is closed: it takes no operation any more, make a new one")

    def _start_timeout(self, op: DelayedOperation) -> None:
        handle = self._timer.call_later(op._timeout_s, _expire, op)
        with self._lock:
            if op._outcome is None:
                op._timeout = handle
                return
        handle.cancel()  # it was over before it had a timeout to cancel

    def _run(self, fn: Callable[[DelayedOperation], Any], op: DelayedOperation) -> Any:
        """Call a callable of the user; an exception is reported and counts as None."""
        try:
            return fn(op)
        except Exception as error:
            self._report(error, op)

    def _report(self, error: Exception, op: DelayedOperation) -> None:
        try:
            if self._on_error is not None:
                self._on_error(error, op)
                return
        except Exception as second:
            error = second
        _to_the_hook(error, op)


def _expire(op: DelayedOperation) -> None:
    op._purgatory._end(op, EXPIRED)


def _to_the_hook(error: Exception, op: DelayedOperation) -> None:
    message = "Exception ignored in a callable of a delayed operation"
    sys.unraisablehook(
        SimpleNamespace(
            exc_type=type(error), exc_value=error, exc_traceback=error.__traceback__, err_msg=message, object=op
        )
    )


def _distinct(keys: Iterable[Hashable]) -> tuple[Hashable, ...]:
    if isinstance(keys, str | bytes):
        raise TypeError(f"keys must be several keys, got the one {keys!r}: write [{keys!r}]")
    distinct = tuple(dict.fromkeys(keys))
    if not distinct:
        raise ValueError("keys must hold at least one key: an operation without one would only ever expire")
    return distinct


def _not_callable(**callables: Any) -> TypeError:
    name, value = next((n, v) for n, v in callables.items() if not callable(v))
    return TypeError(f"{name} must be callable with the operation as its argument, got {value!r}")


# Where operations are before they are handed to a purgatory: its lock guards them until then.
_NOWHERE = Purgatory("nowhere", None)  # type: ignore[arg-type]


def _unlock_in_child() -> None:
    _NOWHERE._lock = RLock()  # another thread of the parent may have held it at the fork, and is not here to let go


os.register_at_fork(after_in_child=_unlock_in_child)
