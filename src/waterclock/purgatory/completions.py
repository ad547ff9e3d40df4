# cython: language_level=3, annotation_typing=False, binding=False, auto_pickle=False, nonecheck=True
"""Who runs what an operation that is over was to run: the thread that ended it, one after the other.

An `on_complete` may end another operation, whose `on_complete` ends the next. As calls within calls a chain of a thousand
is deeper than Python allows: the rest of it would wait for its timeouts. So what is ended within an `on_complete` is over
at once, and its own runs behind that one: a chain is a loop.

Rule 1: a thread runs what it has ended itself, in the order in which it was ended.
Rule 2: each runs, whatever another's `on_complete` raises: what is no Exception is raised at the end.
Rule 3: only its own thread touches what a thread is to run. It is compiled as it stands, with the types of
    _completions.pxd.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from waterclock.timer.awaited import unawaited
from waterclock.timer.report import report

if TYPE_CHECKING:
    from waterclock.purgatory.lock import Lock

Completion: TypeAlias = "tuple[Any, Callable[[Any], Any], Callable[[Any], Any] | None]"
"""An operation that is over, its `on_complete`, and its `on_expire` if it has expired."""


class Completions:
    """Of one purgatory, with its lock and its `on_error`."""

    __slots__ = ("_first", "_lock", "_on_error", "_others", "_queue")

    def __init__(self, lock: Lock, on_error: Callable[..., Any] | None) -> None:
        self._lock = lock
        self._on_error = on_error
        self._first = 0  # the thread that runs some now; where there are several, the first
        self._queue: deque[Completion] = deque()  # what it runs next
        self._others: dict[int, deque[Completion]] = {}  # the same of each other thread that runs some now

    def run(self, me: int, op: Any, on_complete: Callable[[Any], Any], on_expire: Callable[[Any], Any] | None) -> None:
        """Run it and all that is ended by it; where this thread runs one already, behind that."""
        if self._first == me or (self._others and me in self._others):
            (self._queue if self._first == me else self._others[me]).append((op, on_complete, on_expire))
            return
        try:
            if self._first == 0 and not self._others:
                self._first = me  # two threads may do so at once: one of them then has a list in `_others` too
            else:
                self._others[me] = deque()
            self._run(op, on_complete, on_expire)
        finally:
            if self._first == me and not self._queue:
                self._first = 0  # nearly always
                if self._queue:  # a `__del__` came in between
                    self._run_rest(me)
            else:
                self._run_rest(me)

    def _run_rest(self, me: int) -> None:
        stopped: BaseException | None = None
        try:
            completion = self._next(me)
            while completion is not None:
                try:
                    self._run(completion[0], completion[1], completion[2])
                except BaseException as error:
                    stopped = error if stopped is None else stopped
                completion = self._next(me)
        finally:
            self._ends(me)
        if stopped is not None:
            raise stopped

    def _run(self, op: Any, on_complete: Any, on_expire: Any) -> None:
        self._call(op, on_complete)
        if on_expire is not None:
            self._call(op, on_expire)

    def _call(self, op: Any, deed: Any) -> None:
        try:
            returned = deed(op)
            if returned is not None and (unheard := unawaited(returned)) is not None:
                report(self._on_error, "a Purgatory", unheard, op)
        except Exception as error:
            report(self._on_error, "a Purgatory", error, op)

    def _next(self, me: int) -> Completion | None:
        """What this thread runs next. None: nothing, and it runs none any more."""
        self._lock.acquire()
        try:
            several = self._others.pop(me, None)
            if several:
                self._others[me] = several
                return several.popleft()
            if several is None and (self._first == me or self._first == 0):
                self._first = 0  # before the look: what a `__del__` ends between the two is seen, or run there
                if self._queue:
                    self._first = me
                    return self._queue.popleft()
            return None
        finally:
            self._lock.release()

    def _ends(self, me: int) -> None:
        """Interrupted between two of them: whoever is next runs what is left too."""
        if self._first == me:
            self._first = 0
        elif self._others:
            self._queue.extend(self._others.pop(me, ()))
