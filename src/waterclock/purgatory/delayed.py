# cython: language_level=3, annotation_typing=False, binding=False, auto_pickle=False, nonecheck=True
# cython: embedsignature=True, embedsignature.format=clinic
"""Delayed operations: each waits for a key or a deadline, whichever comes first, and is over once.

An operation is a question (`try_complete`), a deed (`on_complete`) and a timeout, watched under the keys whose change
may answer the question. Who changes something calls `check_and_complete(key)`: all that is watched there is asked.

Rule 1: state (outcomes.py), lists and counts change in one step, under the purgatory's lock: what is over is in no list.
Rule 2: no callable of the user runs under that lock. (A key's `__hash__` and `__eq__` do: keys are values.)
Rule 3: no thread waits for an operation's own lock: lock.py says why, and why no wake-up is lost.
Rule 4: ends that end others are a loop (completions.py). Questions that trigger others nest; what is too deep waits.
Rule 5: hot steps say `acquire` and `release`, C calls when compiled; docstrings of classes have a signature, as in C.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from waterclock.purgatory.arguments import answered, as_several, as_timeout, closed, no_operation, not_callable, used
from waterclock.purgatory.built import Completions, new_waker
from waterclock.purgatory.lock import Lock
from waterclock.purgatory.outcomes import CANCELLED, COMPLETED, EXPIRED, Outcome
from waterclock.purgatory.statistics import PurgatoryStatistics, fullest
from waterclock.timer.forking import make_new_in_child
from waterclock.timer.report import report
from waterclock.timer.units import MOST_S

if TYPE_CHECKING:
    from waterclock.timer import AsyncTimer, Timer

Call: TypeAlias = "Callable[[DelayedOperation], Any]"
DEEP = 50  # questions within questions, of all threads
SHORT, SPARSE = 64, 8  # a dict keeps its size: a longer watch list that has shrunk to an eighth is copied


class DelayedOperation:
    """DelayedOperation(try_complete, on_complete, timeout_s, on_expire=None)\n--\n
    Something that waits: `try_complete` asks whether it is over, `on_complete` runs once when it is. Each is given the
    operation. `timeout_s`, in seconds: None waits for ever, zero or less expires at the timer's next turn. `on_expire` runs
    after `on_complete`, on a timeout only. `TypeError` for what cannot be called, `ValueError` for a timeout not finite.

    >>> op = DelayedOperation(lambda op: False, lambda op: print("over:", op.outcome), timeout_s=None)
    >>> op.completed, op.outcome, op.force_complete(), op.force_complete()
    over: completed
    (False, None, True, False)
    """

    __slots__ = ("__weakref__", "_again", "_credit", "_heard", "_holder", "_on_complete", "_on_expire", "_outcome",
                 "_place", "_purgatory", "_timeout", "_timeout_s", "_try_complete")  # fmt: skip

    def __init__(
        self, try_complete: Call, on_complete: Call, timeout_s: float | None, on_expire: Call | None = None
    ) -> None:
        if type(self) is not DelayedOperation:
            raise TypeError("DelayedOperation takes no subclasses: what it does is in its callables")
        if not callable(try_complete) or not callable(on_complete) or not (on_expire is None or callable(on_expire)):
            raise not_callable(try_complete=try_complete, on_complete=on_complete, on_expire=on_expire)
        self._try_complete: Any = try_complete
        self._on_complete: Any = on_complete
        self._on_expire: Any = on_expire
        self._timeout_s = timeout_s if type(timeout_s) is float and abs(timeout_s) < MOST_S else as_timeout(timeout_s)
        self._timeout: Any = None  # the timer's handle
        self._outcome: Outcome | None = None
        self._purgatory = _NOWHERE
        self._place: WatchList | None = None
        self._holder = 0  # its own lock: the thread that asks now, or 0
        self._again = False  # word for the holder: a trigger came meanwhile
        self._heard = False  # its own question left word: it is asked once more for that, not twice
        self._credit = False  # the holder completed it and has not counted it yet

    @property
    def outcome(self) -> Outcome | None:
        """None while it waits, then "completed", "expired" or "cancelled" for good."""
        return self._outcome

    @property
    def completed(self) -> bool:
        """Whether it is over, whatever the outcome. True already inside `on_complete`."""
        return self._outcome is not None

    def force_complete(self) -> bool:
        """End it as "completed", whatever `try_complete` would say, watched or not. True for exactly one caller."""
        purgatory = self._purgatory
        if purgatory._end(self, COMPLETED):
            return True
        return self._purgatory is not purgatory and self._purgatory._end(self, COMPLETED)  # taken in just then

    def __reduce__(self) -> Any:
        raise TypeError("an operation is over once: it is neither copied nor pickled")

    def __repr__(self) -> str:
        return f"<DelayedOperation, {self._outcome or 'waiting'}, timeout_s={self._timeout_s}>"


class WatchList:
    """The operations watched under one key, in the order they came. The lists of one operation are a chain:
    `op._place` is one of them, and what stands there beside the operation is the next."""

    __slots__ = ("key", "longest", "operations")

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.operations: dict[DelayedOperation, WatchList | None] = {}
        self.longest = SHORT

    def add(self, op: DelayedOperation) -> bool:
        """False if it is in the list already, for a key that was given twice."""
        before = len(self.operations)
        self.operations.setdefault(op, op._place)
        if len(self.operations) == before:
            return False
        op._place = self
        self.longest = max(self.longest, before + 1)
        return True

    def remove(self, op: DelayedOperation) -> None:
        """Take out an operation whose `_place` this is."""
        op._place = self.operations.pop(op)
        if self.longest > SHORT and len(self.operations) * SPARSE < self.longest:
            self.operations = dict(self.operations)
            self.longest = max(SHORT, len(self.operations))


class Purgatory:
    """Purgatory(name, timer, on_error=None)\n--\n
    Where delayed operations wait, watched by key, each with a timeout of `timer`, a `Timer` or an `AsyncTimer`. `name`
    stands in its errors. An exception of a callable goes to `on_error(error, op)`, without one to `sys.unraisablehook`,
    and stops no other operation. Its methods may be called from wherever the timer's may.

    >>> acks, purgatory = [], Purgatory("produce", timer=None)  # None does where nothing has a timeout
    >>> op = DelayedOperation(lambda op: len(acks) == 2, lambda op: print("over:", op.outcome), timeout_s=None)
    >>> purgatory.try_complete_else_watch(op, ["a", "b"]), purgatory.watched_for("a"), acks.extend(["b1", "b2"])
    (False, 1, None)
    >>> purgatory.check_and_complete("a"), purgatory.watched_for("b")
    over: completed
    (1, 0)
    """

    def __init__(
        self, name: str, timer: Timer | AsyncTimer, on_error: Callable[[Exception, DelayedOperation], Any] | None = None
    ) -> None:
        self._name = name
        self._timer = timer
        self._on_error = on_error
        self._closed = False
        self._lists: dict[Hashable, WatchList] = {}
        self._after_fork()
        make_new_in_child(self)

    def _after_fork(self) -> None:
        """Begin empty; in a forked child what waits is the parent's, and is over here (timer/forking.py)."""
        forsaken = self._waiting()
        self._lists = {}
        self._lock = Lock()
        self._catching_up = False
        self._watched = self._delayed = self._asking = 0  # the last: questions that triggers ask now, in all threads
        self._over = {COMPLETED: 0, EXPIRED: 0, CANCELLED: 0}
        self._completions = Completions(self._lock, self._on_error)
        self._later: list[DelayedOperation] = []  # triggered too deep
        for op in forsaken:
            op._outcome, op._place = CANCELLED, None
            op._timeout = op._on_complete = op._on_expire = op._try_complete = None

    def try_complete_else_watch(self, op: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """Ask the operation; if it is not over, watch it under all of `keys` and ask once more. True: it is over.

        `ValueError` without a key, or for an operation used before; `PurgatoryClosed` after `close()`; the timer's
        own (`TimerClosed`, `TimerFull`). After an error the operation waits nowhere, and may be used again.

        1. Ask, under the operation's lock. Most operations are over here, and touch no list.
        2. Put it into the list of every key. From now on a trigger finds it.
        3. Ask again, for a trigger that came after 1 and found it in no list.
        4. Let go of the lock; ask once more where a trigger left word during 3.
        5. Start the timeout. It is stopped at once where the operation was completed since 4.
        """
        several = keys if type(keys) is tuple and keys else as_several(keys)
        self._take(op)
        try:
            if not self._try(op):  # 1
                self._watch(op, several)  # 2
                self._try(op)  # 3
            if self._let_go(op, 0):  # 4
                self._attempt(op, op._heard)
            if op._outcome is None and op._timeout_s is not None:
                self._start_timeout(op, op._timeout_s)  # 5
        except BaseException as error:
            with self._lock:  # as if it had never been; False if somebody ended it meanwhile
                if withdrawn := op._outcome is None:
                    self._unwatch(op)
                    op._purgatory = _NOWHERE
            if withdrawn or not isinstance(error, Exception):
                raise
        return op._outcome is not None

    def check_and_complete(self, key: Hashable) -> int:
        """Something about `key` changed: ask all operations watched there; how many this call completed.

        In the order they came. One that is being asked now is asked again by who asks it, and not counted here.
        """
        completed = 0
        for op in self._watchers(key):
            completed += self._attempt(op, False)
        return completed

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """End all operations watched under `key` as "cancelled", under their other keys too; those operations."""
        return [op for op in self._watchers(key) if self._end(op, CANCELLED)]

    async def wait(self, keys: Iterable[Hashable], predicate: Callable[[], Any], timeout_s: float | None) -> bool:
        """True once `predicate()` holds; it is asked at first, and at each trigger of one of `keys`.

        False when `timeout_s` was over first, or `cancel_for_key` or `close` ended the wait. A task that is cancelled
        leaves every watch list before it goes on. Errors as for `try_complete_else_watch`.
        """
        op = DelayedOperation((waker := new_waker(predicate)).ask, waker.wake, timeout_s)
        try:
            if not self.try_complete_else_watch(op, keys):
                await waker.woken
        finally:
            self._end(op, CANCELLED)  # for a task that was cancelled; any other finds it over
        return op._outcome is COMPLETED

    def watched_for(self, key: Hashable) -> int:
        """How many operations wait under `key`."""
        return len(self._watchers(key))

    def fullest_keys(self, n: int = 10) -> list[tuple[Hashable, int]]:
        """The `n` keys with most operations, and how many; the fullest first, of equal ones the oldest. O(keys)."""
        counts: list[tuple[Hashable, int]] = []
        with self._lock:
            for watch_list in list(self._lists.values()):  # a copy: the collector may end operations meanwhile
                counts.append((watch_list.key, len(watch_list.operations)))  # noqa: PERF401  its type is known here
        return fullest(counts, n)

    def __repr__(self) -> str:
        return f"<Purgatory {self._name!r}, {'closed, ' if self._closed else ''}{self._delayed} waiting>"

    def statistics(self) -> PurgatoryStatistics:
        """Counts of one moment, as one frozen record."""
        with self._lock:
            return PurgatoryStatistics(watched=self._watched, delayed=self._delayed, **self._over)

    def close(self) -> list[DelayedOperation]:
        """End everything that waits as "cancelled", and return it; a second time an empty list. Afterwards
        `try_complete_else_watch` raises `PurgatoryClosed`. The timer goes on: others may use it."""
        with self._lock:
            self._closed = True
            waiting = self._waiting()
        return [op for op in waiting if self._end(op, CANCELLED)]

    def _waiting(self) -> list[DelayedOperation]:
        """Under the lock: all that wait, each once."""
        waiting: dict[DelayedOperation, Any] = {}
        for watch_list in self._lists.values():
            waiting.update(watch_list.operations)
        return list(waiting)

    def _take(self, op: DelayedOperation) -> None:
        """Take in a new operation, with its lock. It may be over by now: then every step finds that."""
        if not isinstance(op, DelayedOperation):
            raise no_operation(op)
        _NOWHERE._lock.acquire()
        try:
            if self._closed or op._purgatory is not _NOWHERE:
                raise closed(self._name) if self._closed else used(op)
            op._purgatory = self
            op._holder, op._again, op._heard = self._lock.me(), False, False
        finally:
            _NOWHERE._lock.release()

    def _watch(self, op: DelayedOperation, keys: tuple[Hashable, ...]) -> None:
        """Put it into the list of every key, unless it is over by now."""
        self._lock.acquire()
        try:
            if self._closed:
                raise closed(self._name)
            if op._outcome is not None:
                return
            for key in keys:
                if (watch_list := self._lists.get(key) or self._lists.setdefault(key, WatchList(key))).add(op):  # noqa: F841  typed
                    self._watched += 1
        finally:
            self._delayed += op._place is not None
            self._lock.release()

    def _unwatch(self, op: DelayedOperation) -> None:
        """Under the lock: take it out of all its lists. A list without operations goes."""
        self._delayed -= op._place is not None
        while op._place is not None:
            watch_list = op._place
            watch_list.remove(op)
            self._watched -= 1
            if not watch_list.operations:
                self._lists.pop(watch_list.key, None)

    def _end(self, op: DelayedOperation, outcome: Outcome) -> bool:
        """The one way to be over. True for exactly one caller, which runs what was to be run."""
        self._lock.acquire()
        try:
            if op._outcome is not None or op._purgatory is not self:
                return False
            op._outcome = outcome
            op._credit = outcome is COMPLETED and op._holder != 0 and op._holder == self._lock.me()
            self._unwatch(op)
            self._over[outcome] += 1
            # held here until the lock is released: letting go of them may run code of the user
            timeout, on_complete, on_expire, _ = op._timeout, op._on_complete, op._on_expire, op._try_complete
            op._timeout = op._on_complete = op._on_expire = op._try_complete = None
        finally:
            self._lock.release()
        if timeout is not None and outcome is not EXPIRED:
            timeout.cancel()
        self._completions.run(self._lock.me(), op, on_complete, on_expire if outcome is EXPIRED else None)
        return True

    def _watchers(self, key: Hashable) -> list[DelayedOperation]:
        """A copy: they leave the list while it is walked."""
        self._lock.acquire()
        try:
            watch_list = self._lists.get(key)
            return [] if watch_list is None else list(watch_list.operations)
        finally:
            self._lock.release()

    def _attempt(self, op: DelayedOperation, heard: bool) -> bool:
        """A trigger: ask one operation; True: it was completed here. `heard`: its own question leaves word no more."""
        completed, again, me = False, True, self._lock.me()
        while again and not completed and self._takes(op, me, heard):
            try:
                completed = self._try(op)
            finally:
                again = self._let_go(op, 1)
            heard = op._heard
        if self._later and not self._catching_up and self._asking < DEEP // 2:
            self._catching_up = True
            try:
                while self._later:
                    self._attempt(self._later.pop(), False)
            finally:
                self._catching_up = False
        return completed

    def _takes(self, op: DelayedOperation, me: int, heard: bool) -> bool:
        """Take the operation's lock, for a question. False: it is over, or is asked by its holder, or later."""
        self._lock.acquire()
        try:
            if op._outcome is not None:
                return False
            if op._holder != 0:
                op._again = op._again or op._holder != me or not op._heard
                op._heard = op._heard or op._holder == me
            elif self._asking >= DEEP:
                self._later.append(op)
            else:
                op._holder, op._again, op._heard = me, False, heard
                self._asking += 1
                return True
            return False
        finally:
            self._lock.release()

    def _let_go(self, op: DelayedOperation, asked: int) -> bool:
        """Give the operation's lock back. Whether a trigger left word."""
        self._lock.acquire()
        self._asking -= asked
        op._holder, again = 0, op._again
        self._lock.release()
        return again

    def _try(self, op: DelayedOperation) -> bool:
        """Ask once, with the operation's lock. True when that completed it; a trigger within a trigger counts once."""
        try_complete = op._try_complete
        if try_complete is None:
            return False
        try:
            if (answer := try_complete(op)) is True or (answer and answered(answer)):
                self._end(op, COMPLETED)
        except Exception as error:
            report(self._on_error, "a Purgatory", error, op)
        completed, op._credit = op._credit, False
        return completed

    def _start_timeout(self, op: DelayedOperation, timeout_s: float) -> None:
        handle = self._timer.call_later(timeout_s, _expire, op)
        self._lock.acquire()
        if op._outcome is None:
            op._timeout = handle
        self._lock.release()
        if op._outcome is not None:
            handle.cancel()  # the one that ended it may not have seen it; a second cancel does nothing


def _expire(op: DelayedOperation) -> None:
    op._purgatory._end(op, EXPIRED)


_NOWHERE = Purgatory("nowhere", None)  # type: ignore[arg-type]  # where an operation is before one has it
